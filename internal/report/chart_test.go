package report

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/internal/summary"
	"github.com/framebridge/framebridge/ledger"
	"github.com/framebridge/framebridge/p95"
)

func TestClock(t *testing.T) {
	for _, c := range []struct {
		ns     int64
		places int
		want   string
	}{
		{0, 0, "0 s"}, {1_499_999_999, 0, "1 s"}, {1_500_000_000, 0, "2 s"}, {20_000_000, 2, "0.02 s"}, {59_999_600_000, 3, "1:00.000"}, {59_999_400_000, 3, "59.999 s"},
		{61_000_000_000, 0, "1:01"}, {3_599_000_000_000, 1, "59:59.0"}, {3_661_500_000_000, 3, "1:01:01.500"}, {-1_000_000_000, 0, "-1 s"},
		{math.MinInt64, 0, "-2562047:47:17"}, {math.MaxInt64, 3, "2562047:47:16.855"},
	} {
		if got := clock(c.ns, c.places); got != c.want {
			t.Errorf("%d ns with %d places: %q, want %q", c.ns, c.places, got, c.want)
		}
	}
}

func TestScales(t *testing.T) {
	steady := scaleOf(10, 100, 8, 8.3, 60)
	if steady.logarithmic || steady.low != 0 || steady.y(0) != 110 || steady.y(-5) != 110 || steady.y(1e9) != 10 {
		t.Errorf("%+v", steady)
	}
	if got := steady.marks(6); !slices.Equal(got, []float64{0, 20, 40, 60}) {
		t.Errorf("marks %v", got)
	}
	// The longest is more than eight times the middle one.
	spiky := scaleOf(0, 100, 8, 8.3, 900)
	if !spiky.logarithmic {
		t.Errorf("%+v", spiky)
	}
	if got := spiky.marks(6); !slices.Equal(got, []float64{10, 20, 50, 100, 200, 500, 1000}) {
		t.Errorf("marks %v", got)
	}
	if got := (scale{low: 10, high: 40, logarithmic: true}).marks(6); !slices.Equal(got, []float64{10, 20, 30, 40}) {
		t.Errorf("marks %v", got)
	}
}

// frameOf is a frame of display 1 on a device that counts in ns; its refresh interval is not known.
func frameOf(frameTimeNs int64) *adapter.Record {
	return &adapter.Record{Fields: adapter.HasDisplayID | adapter.HasHostNs | adapter.HasQuality | adapter.HasTimebase | adapter.HasEndMach | adapter.HasPreviousMach | adapter.HasFrameTime,
		DisplayID: 1, Quality: adapter.QualityValid, Timebase: adapter.Timebase{Numer: 1, Denom: 1}, PreviousMach: 5_000, EndMach: 5_000 + frameTimeNs,
		PresentationNs: 5_000 + frameTimeNs, FrameTimeNs: frameTimeNs}
}

// columnsOf collects frames of one display that stand at hostNs.
func columnsOf(hostNs, frameTimeNs []int64) *collector {
	low, high := slices.Min(frameTimeNs), slices.Max(frameTimeNs)
	s := &summary.Summary{FirstHostNs: slices.Min(hostNs), LastHostNs: slices.Max(hostNs),
		Displays: []*summary.Display{{DisplayID: 1, Frames: int64(len(hostNs)), MinNs: &low, P50Ns: &low, MaxNs: &high}}}
	c := newCollector(s)
	for i := range hostNs {
		c.event(&ledger.Event{HostNs: hostNs[i], Value: frameOf(frameTimeNs[i])})
	}
	c.finish()
	return c
}

func TestNoColumnHidesItsLongestOrShortestFrame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 3000).Draw(t, "frames")
		hostNs, frameTimeNs := make([]int64, n), make([]int64, n)
		for i := range n {
			hostNs[i] = rapid.Int64Range(0, 1e10).Draw(t, "host")
			frameTimeNs[i] = rapid.Int64Range(1, 1_100_000_000).Draw(t, "time")
		}
		c := columnsOf(hostNs, frameTimeNs)
		columns := c.displays[0].columns
		count := int64(0)
		for i := range columns {
			column := &columns[i]
			if column.frameTimeNs.n == 0 {
				continue
			}
			count += column.frameTimeNs.n
			var inside []int64
			for j := range n {
				if c.column(hostNs[j]) == i {
					inside = append(inside, frameTimeNs[j])
				}
			}
			slices.Sort(inside)
			if column.frameTimeNs.min != inside[0] || column.frameTimeNs.max != inside[len(inside)-1] {
				t.Fatalf("column %d is from %d to %d, its frames from %d to %d", i, column.frameTimeNs.min, column.frameTimeNs.max, inside[0], inside[len(inside)-1])
			}
			height := func(ns int64) int {
				return min(int(c.displays[0].scale.y(float64(ns)/1e6)-plotTop), frameTimesHeight-1)
			}
			aside := len(inside) / 20
			top, bottom := column.middle()
			if wantTop, wantBottom := height(inside[len(inside)-1-aside]), height(inside[aside]); top != wantTop || bottom != wantBottom {
				t.Fatalf("the middle of column %d stands from %d to %d, want %d to %d", i, top, bottom, wantTop, wantBottom)
			}
		}
		if count != int64(n) {
			t.Fatalf("%d of %d frames are in columns", count, n)
		}
	})
}

// publish collects publications of a minute, whose HostNs are in ms here.
func publish(receipts ...p95.Receipt) *collector {
	c := newCollector(&summary.Summary{FirstHostNs: 0, LastHostNs: 60e9})
	for _, r := range receipts {
		r.HostNs *= 1e6
		c.event(&ledger.Event{HostNs: r.HostNs, Value: &r})
	}
	return c
}

func TestTheLineOfTheP95IsBrokenWhereThereIsNone(t *testing.T) {
	valid := func(atMs, ns int64) p95.Receipt {
		return p95.Receipt{HostNs: atMs, Quality: p95.Valid, ValueNs: p95.Of(ns)}
	}
	c := publish(valid(1000, 10e6), valid(2000, 20e6), p95.Receipt{HostNs: 3000, Quality: p95.Warmup}, valid(4000, 30e6), valid(5000, 40e6),
		p95.Receipt{HostNs: 5500, Quality: p95.Warmup}, valid(6000, 10e6))
	chart := newTimeChart(c, "id", "", "", 100)
	chart.p95(scale{top: 0, height: 100, low: 0, high: 50})
	drawing := string(chart.end())
	_, path, _ := strings.Cut(drawing, `class="p95" d="`)
	path, _, _ = strings.Cut(path, `"`)
	// 60 columns of 15⅓ units from 64 on; 10 ms are a fifth of the height. What comes in the same column as the fifth is drawn as if it
	// came before it.
	if want := "M87 80h0.01L102.33 60M133 40h0.01M148.33 20h0.01M163.67 80h0.01"; path != want {
		t.Errorf("path %q, want %q", path, want)
	}
}

// A log of anyone's making may publish what no window computes.
func TestAPublishedValueBelowTheScaleStandsAtItsFoot(t *testing.T) {
	spiky := scaleOf(0, 100, 8, 8.3, 900)
	for _, ms := range []float64{-5, 0, 1} {
		if y := spiky.y(ms); !spiky.logarithmic || y != 100 {
			t.Errorf("%g ms stand at %g, want 100", ms, y)
		}
	}
}

func TestSegmentsAreRunsOfPublications(t *testing.T) {
	clear := func(reason p95.ClearReason) p95.Clear { return p95.Clear{Reason: reason, Known: true} }
	c := publish(
		p95.Receipt{HostNs: 1000, Quality: p95.Valid, ValueNs: p95.Of(10e6), Segment: 1, LastClear: clear("bind")},
		p95.Receipt{HostNs: 2000, Quality: p95.Valid, ValueNs: p95.Of(12e6), Segment: 1, LastClear: clear("bind")},
		p95.Receipt{HostNs: 3000, Quality: p95.Warmup, Segment: 4, LastClear: clear("source-gap")})
	if len(c.segments) != 2 || c.segments[0].Publications != 2 || c.segments[0].ValueNs != (span{2, 10e6, 12e6}) || c.segments[0].AtNs != 1e9 ||
		c.segments[1].Number != 4 || c.segments[1].Cause != "source-gap" || c.segments[1].ValueNs.n != 0 {
		t.Errorf("%+v", c.segments)
	}
	var many []p95.Receipt
	for i := range int64(maxHappenings + 7) {
		many = append(many, p95.Receipt{Segment: i, Quality: p95.Warmup}, p95.Receipt{Segment: i, Quality: p95.Warmup})
	}
	if c := publish(many...); len(c.segments) != maxHappenings || c.moreSegments != 7 || c.segments[maxHappenings-1].Publications != 2 {
		t.Errorf("%d segments and %d more", len(c.segments), c.moreSegments)
	}
}

func TestTheAppIsInTheBackgroundUntilSomebodySaysOtherwise(t *testing.T) {
	c := newCollector(&summary.Summary{FirstHostNs: 0, LastHostNs: 60e9})
	say := func(second int64, v any) { c.event(&ledger.Event{HostNs: second * 1e9, Value: v}) }
	say(10, &adapter.Binding{Target: adapter.Target{BundleID: "a"}})
	say(20, &ledger.TargetState{Foreground: true})
	say(30, &ledger.TargetState{})
	say(40, &ledger.TargetState{Foreground: true})
	say(50, &adapter.Binding{Target: adapter.Target{BundleID: "b"}})
	c.finish()
	var changes []int
	runs(60, func(i int) bool { return c.background[i] }, func(from, to int, background bool) {
		if background {
			changes = append(changes, from, to)
		}
	})
	if want := []int{0, 20, 30, 40, 50, 60}; !slices.Equal(changes, want) {
		t.Errorf("in the background in columns %v, want %v", changes, want)
	}
}

func TestTheFramesThatOverranMostAreKeptInOrder(t *testing.T) {
	d := &display{}
	for _, overrun := range []int64{5, 1, 9, 9, 3, 12, 2, 8, 7, 6, 4, 11, 10, 1} {
		d.keepLongest(longFrame{OverrunNs: overrun})
	}
	var kept []int64
	for _, f := range d.longest {
		kept = append(kept, f.OverrunNs)
	}
	if want := []int64{12, 11, 10, 9, 9, 8, 7, 6, 5, 4}; !slices.Equal(kept, want) {
		t.Errorf("%v, want %v", kept, want)
	}
}
