package lab27_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/lab27"
	"pgregory.net/rapid"
)

var nsTicks = adapter.Timebase{Numer: 1, Denom: 1}

const second = 1_000_000_000

// match compares presentations and frames given in ns, on a phone that has never slept and whose ticks are ns.
func match(t testing.TB, presented []int64, frames []int64) *lab27.Match {
	t.Helper()
	in := lab27.MatchInput{Report: reportOf(presented), Timebase: nsTicks}
	last := int64(0)
	for i, ns := range frames {
		in.Frames = append(in.Frames, lab27.Frame{RawSequence: int64(i + 1), EndMach: ns, PreviousMach: last, HasEnd: true, Valid: i > 0})
		last = ns
	}
	m, err := lab27.Qualify(in)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func reportOf(presented []int64) *lab27.Report {
	r := &lab27.Report{State: lab27.Complete, Plan: &lab27.Plan{Timebase: nsTicks, Request: lab27.Request{ReferenceEnabled: true}, Phases: lab27.Phases(1000)}, Summary: &lab27.Summary{}}
	for i, ns := range presented {
		p := lab27.Presentation{N: int64(i + 1), PresentedNs: ns, Line: i + 2}
		if ns == 0 {
			p.Status = lab27.Dropped
		}
		r.Presentations = append(r.Presentations, p)
	}
	return r
}

// steady is n times from a start, 20 ms apart.
func steady(start int64, n int) []int64 {
	times := make([]int64, n)
	for i := range times {
		times[i] = start + int64(i)*20_000_000
	}
	return times
}

func kinds(m *lab27.Match) map[string]int {
	got := map[string]int{}
	for _, it := range m.Items {
		got[it.Kind.String()]++
	}
	return got
}

func TestPairsAreAtMost250MicrosecondsApart(t *testing.T) {
	for _, c := range []struct {
		shift      int64
		paired     int
		difference int64
	}{{250_000, 95, 250_000}, {-250_000, 95, -250_000}, {250_001, 94, 0}, {-250_001, 94, 0}, {0, 95, 0}} {
		times := steady(10*second, 101) // the window takes 3 from either end
		frames := slices.Clone(times)
		frames[50] += c.shift
		m := match(t, times, frames)
		v := m.Verdict
		if v.Counts.Paired != c.paired || v.Counts.ExtraSystemFrame != 95-c.paired || v.Counts.MissingFrame != 95-c.paired {
			t.Errorf("%d ns: %+v", c.shift, v.Counts)
		}
		if v.Qualified != (c.paired == 95) || !is(v.DifferenceMinNs, min(c.difference, 0)) || !is(v.DifferenceMaxNs, max(c.difference, 0)) {
			t.Errorf("%d ns: %s %v, differences %d to %d", c.shift, v.Verdict, v.Reasons, *v.DifferenceMinNs, *v.DifferenceMaxNs)
		}
	}
}

func TestAmbiguousNeighboursAreReportedAndNotResolved(t *testing.T) {
	times := steady(10*second, 101)
	at := times[50]
	for _, c := range []struct {
		name              string
		presented, frames []int64
		ambiguousP        int
		ambiguousF        int
	}{
		{"two frames for one presentation, one of them exact", times, slices.Insert(slices.Clone(times), 51, at+100_000), 1, 2},
		{"two presentations for one frame", slices.Insert(slices.Clone(times), 51, at+250_000), times, 2, 1},
		{"two and two within reach of each other", slices.Insert(slices.Clone(times), 51, at+100_000), slices.Insert(slices.Clone(times), 51, at+100_000), 2, 2},
		{"a chain: each end has one candidate, the middle two", slices.Insert(slices.Clone(times), 51, at+400_000), slices.Insert(slices.Clone(times), 51, at+200_000), 2, 2},
		{"the same frame twice", times, slices.Insert(slices.Clone(times), 51, at), 1, 2},
	} {
		v := match(t, c.presented, c.frames).Verdict
		if v.Counts.AmbiguousPresented != c.ambiguousP || v.Counts.AmbiguousFrames != c.ambiguousF || v.Qualified {
			t.Errorf("%s: %+v", c.name, v.Counts)
		}
		if v.Counts.Paired != 94 || v.Counts.MissingFrame != 0 || v.Counts.ExtraSystemFrame != 0 {
			t.Errorf("%s: the others are not what they were: %+v", c.name, v.Counts)
		}
	}
}

func TestNeighbourJustOutOfReachIsNoCandidate(t *testing.T) {
	times := steady(10*second, 101)
	v := match(t, times, slices.Insert(slices.Clone(times), 51, times[50]+250_001)).Verdict
	if v.Counts.Paired != 95 || v.Counts.AmbiguousPresented != 0 || v.Counts.ExtraSystemFrame != 1 {
		t.Errorf("%+v", v.Counts)
	}
}

func TestWindowIsClosedAnd50MillisecondsIn(t *testing.T) {
	first, last := int64(10*second), int64(12*second)
	for _, c := range []struct {
		name   string
		at     int64 // of one more frame, which nothing matches
		inside bool
	}{
		{"at its beginning", first + 50_000_000, true},
		{"a nanosecond before", first + 49_999_999, false},
		{"at its end", last - 50_000_000, true},
		{"a nanosecond after", last - 49_999_999, false},
		{"long before", second, false},
	} {
		times := steady(first, 101)
		frames := slices.Clone(times)
		frames = append(frames, c.at)
		slices.Sort(frames)
		v := match(t, times, frames).Verdict
		want := lab27.Counts{Frames: 102, FramesInside: 95, Presented: 101, PresentedInside: 95, Paired: 95, EdgePairs: 6, EdgeFrames: 1}
		if c.inside {
			want.FramesInside, want.ExtraSystemFrame, want.EdgeFrames = 96, 1, 0
		}
		if *v.Counts != want || *v.Window != (lab27.Window{FromNs: 10_050_000_000, ToNs: 11_950_000_000}) {
			t.Errorf("%s: %+v, window %+v", c.name, v.Counts, v.Window)
		}
	}
}

func TestPairAcrossTheWindowsEdgeIsCut(t *testing.T) {
	for _, c := range []struct {
		name             string
		presented, frame int64
		frames, others   int
	}{
		{"presentation inside, frame before", 10_050_000_000, 10_049_999_999, 0, 1},
		{"frame inside, presentation before", 10_049_900_000, 10_050_000_000, 1, 0},
		{"presentation inside, frame after", 11_950_000_000, 11_950_000_001, 0, 1},
	} {
		times := slices.DeleteFunc(steady(10*second, 101), func(ns int64) bool {
			return ns == 10_040_000_000 || ns == 10_060_000_000 || ns == 11_940_000_000 || ns == 11_960_000_000
		})
		presented, frames := append(slices.Clone(times), c.presented), append(slices.Clone(times), c.frame)
		slices.Sort(presented)
		slices.Sort(frames)
		m := match(t, presented, frames)
		if got := m.Verdict.Counts; got.EdgeCutFrames != c.frames || got.EdgeCutPresented != c.others || m.Verdict.Qualified || kinds(m)["edge-cut"] != 1 {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

func TestNotPresentedCountsBetweenTwoThatWereInsideTheWindow(t *testing.T) {
	presented := steady(10*second, 101)
	var frames []int64
	for i, ns := range presented {
		switch i {
		case 2, 40, 41, 98: // the first and the last lie beside the window's edges
			presented[i] = 0
		default:
			frames = append(frames, ns)
		}
	}
	m := match(t, presented, frames)
	if c := m.Verdict.Counts; c.NotPresented != 2 || c.EdgeNotPresented != 2 || c.Paired != 93 || m.Verdict.Qualified {
		t.Errorf("%+v", c)
	}
	var rows []int64
	for _, it := range m.Items {
		if it.Kind == lab27.NotPresented {
			rows = append(rows, int64(it.Presentation)+1)
		}
	}
	if !slices.Equal(rows, []int64{41, 42}) {
		t.Errorf("submissions %v", rows)
	}
}

func TestTooFewPresentationsMakeNoWindow(t *testing.T) {
	for _, n := range []int{0, 1, 5} { // five are 80 ms from first to last
		times := steady(10*second, n)
		v := match(t, times, times).Verdict
		if v.Window != nil || v.Qualified || v.Reasons[0].Reason != "no-window" || v.Counts.EdgePairs != n {
			t.Errorf("%d: %+v", n, v)
		}
	}
}

// naive is the matching of the contract, word by word, in quadratic time.
func naive(presented, frames []int64) lab27.Counts {
	near := func(a, b int64) bool { return max(a-b, b-a) <= 250_000 }
	candidates := func(of int64, among []int64) (found []int) {
		for i, ns := range among {
			if near(of, ns) {
				found = append(found, i)
			}
		}
		return found
	}
	c := lab27.Counts{Frames: len(frames), Presented: len(presented)}
	from, to := presented[0]+50_000_000, presented[len(presented)-1]-50_000_000
	inside := func(ns int64) bool { return from <= to && from <= ns && ns <= to }
	for _, p := range presented {
		found := candidates(p, frames)
		unique := len(found) == 1 && len(candidates(frames[found[0]], presented)) == 1
		if inside(p) {
			c.PresentedInside++
		}
		switch {
		case unique && inside(p) && inside(frames[found[0]]):
			c.Paired++
		case unique && inside(p):
			c.EdgeCutPresented++
		case unique && inside(frames[found[0]]):
			c.EdgeCutFrames++
		case unique:
			c.EdgePairs++
		case !inside(p):
			c.EdgePresented++
		case len(found) == 0:
			c.MissingFrame++
		default:
			c.AmbiguousPresented++
		}
	}
	for _, f := range frames {
		found := candidates(f, presented)
		unique := len(found) == 1 && len(candidates(presented[found[0]], frames)) == 1
		if inside(f) {
			c.FramesInside++
		}
		switch {
		case unique:
		case !inside(f):
			c.EdgeFrames++
		case len(found) == 0:
			c.ExtraSystemFrame++
		default:
			c.AmbiguousFrames++
		}
	}
	return c
}

func TestMergeAgreesWithANaiveMatch(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		// Steps around the tolerance, so that every relation between neighbours comes up.
		step := rapid.OneOf(rapid.Int64Range(1, 600_000), rapid.SampledFrom([]int64{249_999, 250_000, 250_001, 500_000, 500_001, 10_000_000, 50_000_000}))
		build := func(name string) []int64 {
			at := int64(second)
			var times []int64
			for _, s := range rapid.SliceOfN(step, 1, 60).Draw(r, name) {
				at += s
				times = append(times, at)
			}
			return times
		}
		presented, frames := build("presented"), build("frames")
		got, want := *match(t, presented, frames).Verdict.Counts, naive(presented, frames)
		if got != want {
			r.Fatalf("presented %v\nframes %v\ngot  %+v\nwant %+v", presented, frames, got, want)
		}
		if got.FramesInside != got.Paired+got.SurfaceMismatch+got.ExtraSystemFrame+got.AmbiguousFrames+got.EdgeCutFrames ||
			got.PresentedInside != got.Paired+got.SurfaceMismatch+got.MissingFrame+got.AmbiguousPresented+got.EdgeCutPresented {
			r.Fatalf("not everything is accounted for: %+v", got)
		}
	})
}

// jittered is 10,000 presentations and their frames, some apart.
func jittered() (presented, frames []int64) {
	random := rand.New(rand.NewPCG(1, 2))
	at := int64(10 * second)
	for range 10_000 {
		at += 16_666_583
		presented = append(presented, at)
		frames = append(frames, at+random.Int64N(400_000)-200_000)
	}
	return presented, frames
}

func TestTenThousandByTenThousandTakesUnder20Milliseconds(t *testing.T) {
	presented, frames := jittered()
	best := time.Duration(1 << 62)
	for range 20 { // the machine may be busy with something else
		begin := time.Now()
		match(t, presented, frames)
		best = min(best, time.Since(begin))
	}
	limit := 20 * time.Millisecond
	if raceEnabled {
		limit *= 20 // the detector's own cost
	}
	t.Logf("%v a match", best)
	if best > limit {
		t.Errorf("%v a match", best)
	}
}

func TestMatchAllocatesNothingPerFrameBeyondItsOutput(t *testing.T) {
	allocations := func(n int) float64 {
		times := steady(10*second, n)
		return testing.AllocsPerRun(3, func() { match(t, times, times) })
	}
	// The lists grow by doubling: a handful of allocations more for 64 times the frames.
	if small, large := allocations(150), allocations(9600); large > small+150 {
		t.Errorf("%v allocations for 150 frames, %v for 9,600", small, large)
	}
}

func BenchmarkMatch(b *testing.B) {
	presented, frames := jittered()
	for b.Loop() {
		if v := match(b, presented, frames).Verdict; v.Counts.Paired != 9992 {
			b.Fatal(fmt.Sprintf("%+v", v.Counts))
		}
	}
}
