package lab27_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/lab27"
)

func TestEveryFrameOfTheWindowIsPairedWhereNothingWentWrong(t *testing.T) {
	for _, permille := range []int64{100, 1000} {
		f := newFixture(t, lab27.PurposeStudy, permille)
		v := f.qualify(t).Verdict
		if v.Err() != nil || v.Verdict != "qualified" || len(v.Reasons) != 0 || v.BundleState != lab27.Complete {
			t.Fatalf("%d permille: %s %v", permille, v.Verdict, v.Reasons)
		}
		c := v.Counts
		if c.Paired != c.FramesInside || c.Paired != c.PresentedInside || c.Paired+c.EdgePairs != len(f.presentations) || c.EdgeFrames != 2 {
			t.Errorf("%d permille: %+v", permille, c)
		}
		if v.Clock.OffsetNs != 7_403_286_328_375 || *v.DifferenceMinNs < -1 || *v.DifferenceMaxNs > 1 {
			t.Errorf("%d permille: offset %d, differences %d to %d", permille, v.Clock.OffsetNs, *v.DifferenceMinNs, *v.DifferenceMaxNs)
		}
		// 14 s or 140 s and a beat, less 100 ms; at a tenth no cut has all ten seconds but the last four.
		if want := int(permille*140/1000) - 1; v.Cuts != want || v.CutsCompared != want || v.CutsFailed != 0 {
			t.Errorf("%d permille: cuts %d, compared %d, failed %d", permille, v.Cuts, v.CutsCompared, v.CutsFailed)
		}
	}
}

// Every disturbance that the contract names, alone: the verdict is unqualified, the difference is counted, located and kept, and nothing
// leaves a denominator.
func TestEachDisturbanceAloneMakesTheVerdictUnqualified(t *testing.T) {
	const n = 100 // in the normal phase
	base := *newFixture(t, lab27.PurposeStudy, 100).qualify(t).Verdict.Counts
	for _, c := range []struct {
		name    string
		disturb func(f *fixture)
		reasons string
		counts  func(c *lab27.Counts) // what differs from an undisturbed run
		lines   []string              // of match.jsonl
	}{
		{"a system frame", func(f *fixture) {
			f.frames = slices.Insert(f.frames, n+1, *f.frameOf(n))
			f.frames[n+1].EndMach += 100_000
			f.frames[n+1].PreviousMach = f.frames[n].EndMach
			f.frames[n+1].RawSequence = 90_001
			f.frames[n+2].PreviousMach = f.frames[n+1].EndMach
		}, "extra-system-frame 1, cut-differs 10", func(c *lab27.Counts) { c.Frames++; c.FramesInside++; c.ExtraSystemFrame = 1 },
			[]string{`{"kind":"extra-system-frame","rawSequence":90001,`}},
		{"a frame that FrameLifetime does not have", func(f *fixture) { f.frames = slices.Delete(f.frames, n, n+1) },
			"missing-frame 1, cut-differs 10", func(c *lab27.Counts) { c.Frames--; c.FramesInside--; c.Paired--; c.MissingFrame = 1 },
			[]string{`{"kind":"missing-frame","n":100,"phase":"normal","line":101,`}},
		{"a handler that never came", func(f *fixture) {
			f.state, f.reason, f.outstanding = "partial", "outstanding", 1
			*f.row(n) = presentation{n: n, phase: "normal", status: "missing"}
			f.events[len(f.events)-2] = strings.Replace(f.events[len(f.events)-2], `"outstanding":0`, `"outstanding":1`, 1)
			f.events[len(f.events)-1] = strings.Replace(f.events[len(f.events)-1], "complete", "partial", 1)
		}, "bundle-partial 1, extra-system-frame 1, not-presented 1, cut-differs 10", func(c *lab27.Counts) {
			c.Presented--
			c.PresentedInside--
			c.Paired--
			c.ExtraSystemFrame, c.NotPresented = 1, 1
		}, []string{`{"kind":"not-presented","n":100,"phase":"normal","line":101,`, `{"kind":"extra-system-frame","rawSequence":101,`}},
		{"a drawable that was dropped, and no frame of it", func(f *fixture) {
			f.row(n).ns, f.row(n).status = 0, "dropped"
			f.frames = slices.Delete(f.frames, n, n+1)
			f.frames[n].PreviousMach = f.frames[n-1].EndMach
		}, "not-presented 1", func(c *lab27.Counts) {
			c.Frames--
			c.FramesInside--
			c.Presented--
			c.PresentedInside--
			c.Paired--
			c.NotPresented = 1
		}, []string{`{"kind":"not-presented","n":100,"phase":"normal","line":101,`}},
		{"a presentedTime of zero, though its frame was there", func(f *fixture) { f.row(n).ns, f.row(n).status = 0, "dropped" },
			"extra-system-frame 1, not-presented 1, cut-differs 10", func(c *lab27.Counts) {
				c.Presented--
				c.PresentedInside--
				c.Paired--
				c.ExtraSystemFrame, c.NotPresented = 1, 1
			}, []string{`{"kind":"not-presented","n":100,`, `"presentedNs":null}`}},
		{"an offset of 0.3 ms", func(f *fixture) { f.before[1] += 7200; f.after[1] += 7200 },
			// The window moves with the offset: a frame that was 250 ns behind its end is inside now.
			"extra-system-frame 714, missing-frame 713", func(c *lab27.Counts) {
				c.FramesInside, c.Paired, c.ExtraSystemFrame, c.MissingFrame, c.EdgePairs, c.EdgeFrames, c.EdgePresented = 714, 0, 714, 713, 0, 7, 6
			}, []string{`{"kind":"missing-frame","n":100,`, `{"kind":"extra-system-frame","rawSequence":101,`}},
		{"sleep between the brackets", func(f *fixture) { f.after[1] += 2401 }, "brackets-disagree 1", func(*lab27.Counts) {}, nil},
		{"a bracket 0.11 ms wide", func(f *fixture) {
			f.before[2] = f.before[0] + 2640
			f.before[1] = f.before[0] + 1320 + sleptTicks
			f.events[0] = `{"event":"admitted","mach":1536005263500}`
		},
			"bracket-too-wide 1", func(*lab27.Counts) {}, nil},
		{"both brackets too wide", func(f *fixture) {
			f.before[0], f.before[1] = f.before[2]-2401, f.before[2]-1200+sleptTicks
			f.after[2] += 2401
			f.after[1] += 1200
		}, "bracket-too-wide 2", func(*lab27.Counts) {}, nil},
		{"a pair swapped", func(f *fixture) { f.row(n).ns, f.row(n+1).ns = f.row(n+1).ns, f.row(n).ns },
			"bundle-invalid 1, surface-mismatch 2, out-of-order 1", func(c *lab27.Counts) { c.Paired -= 2; c.SurfaceMismatch, c.OutOfOrder = 2, 1 },
			[]string{`{"kind":"out-of-order","n":101,"phase":"normal","line":102,`, `{"kind":"bundle-problem","problem":"order","file":"presented.jsonl","line":102,`}},
		{"a second candidate within 0.25 ms", func(f *fixture) {
			f.frames = slices.Insert(f.frames, n+1, *f.frameOf(n))
			f.frames[n+1].EndMach += 5999 // 249,958 ns
			f.frames[n+1].RawSequence = 90_002
		}, "ambiguous 3, cut-differs 10", func(c *lab27.Counts) {
			c.Frames++
			c.FramesInside++
			c.Paired--
			c.AmbiguousFrames, c.AmbiguousPresented = 2, 1
		}, []string{`"candidates":2,"firstRawSequence":101,"lastRawSequence":90002}`, `{"kind":"ambiguous","rawSequence":90002,`}},
		{"a surface that contradicts", func(f *fixture) { f.frameOf(n).SurfaceID = 12 }, "surface-mismatch 1", func(c *lab27.Counts) { c.Paired--; c.SurfaceMismatch = 1 },
			[]string{`{"kind":"surface-mismatch","n":100,"phase":"normal","line":101,"byte":ROW100,"surfaceId":290,`, `"rawSequence":101,"frameSurfaceId":12,`}},
		{"a pair cut by the window's edge", func(f *fixture) {
			// The second presentation goes to 100 ns behind the window's beginning, its frame to about 100 ns before it.
			f.row(2).ns = f.row(1).ns + 50_000_100
			f.frameOf(2).EndMach = f.frameOf(1).EndMach + 1_199_998
			f.frameOf(3).PreviousMach = f.frameOf(2).EndMach
		}, "edge-cut 1, cut-differs 9", func(c *lab27.Counts) { c.PresentedInside++; c.EdgePairs--; c.EdgeCutPresented = 1 },
			[]string{`{"kind":"edge-cut","n":2,"phase":"baseline","line":3,`}},
		{"a frame without an end", func(f *fixture) { f.frames = append(f.frames, lab27.Frame{RawSequence: 90_003, DisplayID: 1}) },
			"unplaced-frame 1", func(c *lab27.Counts) { c.Unplaced = 1 }, nil},
		{"mediaTime of another clock", func(f *fixture) { f.mediaSkewNs = 2000 }, "media-time-differs 1", func(*lab27.Counts) {}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, lab27.PurposeStudy, 100)
			c.disturb(f)
			m := f.qualify(t)
			v := m.Verdict
			want := "run run-1: unqualified: " + c.reasons + "; match.jsonl has each of them"
			if err := v.Err(); !errors.Is(err, lab27.ErrUnqualified) || err.Error() != want || v.Verdict != "unqualified" {
				t.Errorf("%s: %v, want %s", v.Verdict, err, want)
			}
			counts := base
			c.counts(&counts)
			if *v.Counts != counts {
				t.Errorf("counts\ngot  %+v\nwant %+v", *v.Counts, counts)
			}
			text := lines(t, m)
			row100 := strings.Index(f.contents()["presented.jsonl"], "\n[100,") + 1
			for _, line := range c.lines {
				line = strings.Replace(line, "ROW100", strconv.Itoa(row100), 1)
				if !strings.Contains(text, line) {
					t.Errorf("match.jsonl lacks %s", line)
				}
			}
		})
	}
}

func lines(t *testing.T, m *lab27.Match) string {
	t.Helper()
	var b bytes.Buffer
	if err := m.WriteLines(&b); err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.SplitAfter(b.String(), "\n") {
		if line != "" && !json.Valid([]byte(line)) {
			t.Fatalf("line %d is no JSON: %s", i+1, line)
		}
	}
	return b.String()
}

func TestBracketsAtTheirBoundsStillQualify(t *testing.T) {
	f := newFixture(t, lab27.PurposeStudy, 100)
	f.before[0], f.before[1] = f.before[2]-2400, f.before[2]-1200+sleptTicks // 100,000 ns wide
	f.after[1] -= 2400                                                       // and 100,000 ns from the other
	v := f.qualify(t).Verdict
	if !v.Qualified || v.Clock.BeforeWidthNs != 100_000 || v.Clock.DisagreementNs() != 100_000 {
		t.Errorf("%s %v %+v", v.Verdict, v.Reasons, v.Clock)
	}
	// The after bracket is the narrower one, and its offset counts: all pairs are 0.1 ms apart.
	if v.Clock.OffsetNs != v.Clock.AfterOffsetNs || !is(v.DifferenceMaxNs, 100_000) {
		t.Errorf("offset %d, differences to %d", v.Clock.OffsetNs, *v.DifferenceMaxNs)
	}
}

func TestSecondDisplaysFramesAreCountedAndChangeNothing(t *testing.T) {
	f := newFixture(t, lab27.PurposeStudy, 100)
	undisturbed := f.qualify(t).Verdict
	for i := range 300 {
		other := f.frames[i]
		other.DisplayID, other.EndMach = 2, other.EndMach+1000
		f.frames = append(f.frames, other)
	}
	v := f.qualify(t).Verdict
	undisturbed.Counts.OtherDisplay = 300
	if *v.Counts != *undisturbed.Counts || !v.Qualified || *v.WorstP95DifferenceNs != *undisturbed.WorstP95DifferenceNs {
		t.Errorf("%s %+v", v.Verdict, v.Counts)
	}
}

// Frame 0 is the screen before the app drew, frame i that of submission i. The first presentation inside the window is the third: 30 Hz.
func TestAGapOfTheSessionInsideTheWindowIsNeverQualified(t *testing.T) {
	f := newFixture(t, lab27.PurposeStudy, 100)
	inside := f.qualify(t).Verdict.Counts.FramesInside
	first := 3
	last := first + inside - 1
	for gap, want := range map[int]int{0: 0, first - 1: 0, first: 1, 100: 1, last: 1, last + 1: 1, last + 2: 0, len(f.frames): 0} {
		m, err := lab27.Qualify(lab27.MatchInput{Report: f.report(), Frames: f.frames, PrimaryDisplayID: 1, Timebase: timebase, Gaps: []int{gap}})
		if err != nil {
			t.Fatal(err)
		}
		if v := m.Verdict; v.Counts.SessionGaps != want || v.Qualified != (want == 0) || want == 1 && v.Reasons[0] != (lab27.Reason{Reason: "session-gap", Count: 1}) {
			t.Errorf("after %d frames: %d gaps, reasons %v", gap, v.Counts.SessionGaps, v.Reasons)
		}
		located := fmt.Sprintf(`{"kind":"session-gap","afterRawSequence":%d}`, gap)
		if n := strings.Count(lines(t, m), located); n != want {
			t.Errorf("after %d frames: %d lines %s", gap, n, located)
		}
	}
}

// The last cut lies up to a second before the window's end, so that what was lost behind it shows in no P95.
func TestAFrameThatDoesNotFollowTheOneBeforeIsAGapInTheWindowAndRightBehindIt(t *testing.T) {
	f := newFixture(t, lab27.PurposeStudy, 100)
	last := 3 + f.qualify(t).Verdict.Counts.FramesInside - 1
	for _, c := range []struct {
		name  string
		frame int
		gaps  []int // of the session
		want  []int // lines of match.jsonl: after which raw sequence
	}{
		{"the session's first", 0, nil, nil},
		{"the last before the window", 2, nil, nil},
		{"the first inside", 3, nil, []int{3}},
		{"the last inside", last, nil, []int{last}},
		{"the first behind", last + 1, nil, []int{last + 1}},
		{"the second behind", last + 2, nil, nil},
		{"one before which the session has the gap", 100, []int{100}, []int{100}},
		{"one before which it has two", 100, []int{100, 100}, []int{100, 100}},
		{"one before which it has none, but before the next", 100, []int{101}, []int{100, 101}},
	} {
		f := newFixture(t, lab27.PurposeStudy, 100)
		f.frames[c.frame].Unchained = true
		m, err := lab27.Qualify(lab27.MatchInput{Report: f.report(), Frames: f.frames, PrimaryDisplayID: 1, Timebase: timebase, Gaps: c.gaps})
		if err != nil {
			t.Fatal(err)
		}
		v, want, text := m.Verdict, "", lines(t, m)
		for _, after := range c.want {
			want += fmt.Sprintf("{\"kind\":\"session-gap\",\"afterRawSequence\":%d}\n", after)
		}
		if v.Qualified != (c.want == nil) || v.Counts.SessionGaps != len(c.want) || strings.Count(text, "session-gap") != len(c.want) || !strings.Contains(text, want) {
			t.Errorf("%s: %d gaps, %v, want %s", c.name, v.Counts.SessionGaps, v.Reasons, want)
		}
	}
}

// Two of the external display's frames stand between a gap and the frames of the window.
func TestAGapBesideAnotherDisplaysFramesIsOneOfTheWindowAllTheSame(t *testing.T) {
	f := newFixture(t, lab27.PurposeStudy, 100)
	last := 3 + f.qualify(t).Verdict.Counts.FramesInside - 1
	for gap, at := range map[int]int{3: 3, last + 3: last + 1} { // frames before the gap, and where the other display's come in
		f := newFixture(t, lab27.PurposeStudy, 100)
		other := lab27.Frame{RawSequence: 90_001, EndMach: f.frames[at].EndMach - 1000, DisplayID: 2, HasEnd: true, Unchained: true}
		f.frames = slices.Insert(f.frames, at, other, other)
		m, err := lab27.Qualify(lab27.MatchInput{Report: f.report(), Frames: f.frames, PrimaryDisplayID: 1, Timebase: timebase, Gaps: []int{gap}})
		if err != nil {
			t.Fatal(err)
		}
		if v := m.Verdict; v.Counts.SessionGaps != 1 || v.Qualified {
			t.Errorf("after %d frames: %+v", gap, v.Counts)
		}
	}
}

func TestCutFailsWhereP95DiffersByMoreThanAMillisecond(t *testing.T) {
	for _, c := range []struct {
		ticks  int64
		failed bool
	}{{1_000_000, false}, {1_000_001, true}} {
		times := steady(10*second, 101)
		m := match(t, times, times)
		for i := range m.Cuts {
			if !m.Cuts[i].Pass {
				t.Fatalf("undisturbed: %+v", m.Cuts[i])
			}
		}
		// Frames say that each took longer than presentedTime does, though they end together.
		in := lab27.MatchInput{Report: reportOf(times), Timebase: nsTicks}
		for i, ns := range times {
			in.Frames = append(in.Frames, lab27.Frame{RawSequence: int64(i), EndMach: ns, PreviousMach: ns - 20_000_000 - c.ticks, HasEnd: true, Valid: true})
		}
		m, err := lab27.Qualify(in)
		if err != nil {
			t.Fatal(err)
		}
		if v := m.Verdict; v.Qualified == c.failed || v.Cuts != 1 || (v.CutsFailed == 1) != c.failed || !is(v.WorstP95DifferenceNs, c.ticks) {
			t.Errorf("%d ns: %+v", c.ticks, v)
		}
	}
}

func TestCutComparesTheSameTenSecondsByNearestRank(t *testing.T) {
	// 51 s at 20 ms. The window begins 50 ms after the first; the cut at k seconds has the frames of the ten seconds before it, which are 500 from
	// the tenth on: rank 475. In the first seconds there are as many as there were frames.
	times := steady(10*second, 2551)
	m := match(t, times, times)
	if len(m.Cuts) != 50 {
		t.Fatalf("%d cuts", len(m.Cuts))
	}
	for i, want := range map[int][2]int{0: {50, 48}, 1: {100, 95}, 8: {450, 428}, 9: {500, 475}, 49: {500, 475}} {
		c := m.Cuts[i]
		if c.FrameCount != want[0] || c.FrameRank != want[1] || c.ReferenceCount != want[0] || c.ReferenceRank != want[1] || c.FrameP95Ns != 20_000_000 ||
			c.AtNs != 10_054_166_667+int64(i+1)*second || !c.Pass {
			t.Errorf("cut %d: %+v", i+1, c)
		}
	}
}

func TestFewerThanFiveFrameTimesGiveNoP95AndNoComparison(t *testing.T) {
	times := []int64{10 * second, 10*second + 400_000_000, 10*second + 800_000_000, 10*second + 1_200_000_000, 10*second + 1_600_000_000}
	v := match(t, times, times).Verdict
	if v.Cuts != 1 || v.CutsCompared != 0 || v.Qualified || v.Reasons[0].Reason != "no-cut-compared" {
		t.Errorf("%+v", v)
	}
}

func TestWindowOfMoreThanAnHourIsNoRuns(t *testing.T) {
	for length, cuts := range map[int64]int{3600 * second: 3599, 3600*second + 1: 0} { // the last cut would be 4 ms behind the end
		times := []int64{10 * second, 10*second + length + 100_000_000}
		if v := match(t, times, times).Verdict; v.Cuts != cuts || v.Qualified {
			t.Errorf("%d ns: %d cuts", length, v.Cuts)
		}
	}
}

func TestFrameThatIsNotValidHasNoFrameTime(t *testing.T) {
	f := newFixture(t, lab27.PurposeStudy, 100)
	f.frameOf(100).Valid = false // as after a source gap
	v := f.qualify(t).Verdict
	if v.Qualified || v.CutsFailed != 10 || v.Counts.Paired != v.Counts.FramesInside {
		t.Errorf("%v %+v", v.Reasons, v.Counts)
	}
}

func TestFrameOfTakesARecordOfAnyQuality(t *testing.T) {
	r := adapter.Record{Fields: adapter.HasEndMach, RawSequence: 7, EndMach: 100, PreviousMach: 60, DisplayID: 1, SurfaceID: 289, Quality: adapter.QualityValid}
	if got := lab27.FrameOf(&r); got != (lab27.Frame{RawSequence: 7, EndMach: 100, PreviousMach: 60, DisplayID: 1, SurfaceID: 289, HasEnd: true, Valid: true}) {
		t.Errorf("%+v", got)
	}
	r.Fields, r.Quality = 0, adapter.QualityUnsupportedSchema
	if got := lab27.FrameOf(&r); got.HasEnd || got.Valid || got.Unchained {
		t.Errorf("%+v", got)
	}
	for _, c := range []struct {
		quality   adapter.Quality
		reason    string
		unchained bool
	}{
		{adapter.QualitySourceGap, "", true}, {adapter.QualityNoPredecessor, "", true}, {adapter.QualityDiscontinuity, "not-forward", true},
		{adapter.QualityDiscontinuity, "predecessor-earlier", true}, {adapter.QualityDiscontinuity, "too-long", false}, {adapter.QualityDuplicate, "", false},
		{adapter.QualityOutOfOrder, "", false},
	} {
		r.Quality, r.QualityReason = c.quality, c.reason
		if got := lab27.FrameOf(&r); got.Unchained != c.unchained || got.Valid {
			t.Errorf("%s, %s: %+v", c.quality, c.reason, got)
		}
	}
}

func TestVerdictWithoutAReadableBundleSaysSo(t *testing.T) {
	f := newFixture(t, lab27.PurposeStudy, 100)
	files := f.files()
	delete(files, "summary.json")
	m, err := lab27.Qualify(lab27.MatchInput{Report: lab27.Validate(files, nil), Frames: f.frames, PrimaryDisplayID: 1, Timebase: timebase})
	if err != nil || m.Verdict.Qualified || m.Verdict.Reasons[0].Reason != "bundle-partial" || m.Verdict.Reasons[1].Reason != "no-clock" {
		t.Errorf("%v, %+v", err, m.Verdict.Reasons)
	}
	text, err := m.Verdict.JSON()
	for _, name := range []string{"clock", "window", "counts", "differenceMinNs", "differenceMaxNs", "worstP95DifferenceNs", "lastFrameP95Ns", "lastReferenceP95Ns", "tail"} {
		if err != nil || !bytes.Contains(text, []byte("\n \""+name+"\": null")) {
			t.Errorf("%s is told, though nothing could be computed: %v\n%s", name, err, text)
		}
	}
	if _, err := lab27.ParseVerdict(text); err != nil {
		t.Error(err)
	}
}

func TestWithoutAPairThereIsNoDifferenceAndWithoutACutNoP95(t *testing.T) {
	times := steady(10*second, 40) // 780 ms
	v := match(t, times, nil).Verdict
	if v.Counts.MissingFrame != 34 || v.DifferenceMinNs != nil || v.DifferenceMaxNs != nil || v.Cuts != 0 || v.WorstP95DifferenceNs != nil || v.LastFrameP95Ns != nil ||
		v.LastReferenceP95Ns != nil {
		t.Errorf("%+v, %+v", v, v.Counts)
	}
	if v = match(t, times, times).Verdict; !is(v.DifferenceMinNs, 0) || !is(v.DifferenceMaxNs, 0) || v.WorstP95DifferenceNs != nil {
		t.Errorf("%+v", v)
	}
}

// What either side says of itself binds both: the fixture's bundle is simulated, that of reportOf is not.
func TestVerdictNamesItsSessionAndIsSimulatedWhereEitherSideIs(t *testing.T) {
	simulated, times := newFixture(t, lab27.PurposeStudy, 100), steady(10*second, 101)
	var frames []lab27.Frame
	for i, ns := range times {
		frames = append(frames, lab27.Frame{RawSequence: int64(i), EndMach: ns, PreviousMach: ns - 20_000_000, HasEnd: true, Valid: true})
	}
	for _, c := range []struct {
		name      string
		in        lab27.MatchInput
		session   lab27.Session
		simulated bool
		evidence  string
	}{
		{"both real", lab27.MatchInput{Report: reportOf(times), Frames: frames, Timebase: nsTicks}, lab27.Session{ID: "a", Evidence: "E3"}, false, "E3"},
		{"a simulated session", lab27.MatchInput{Report: reportOf(times), Frames: frames, Timebase: nsTicks}, lab27.Session{ID: "b", Evidence: "E2", Simulated: true}, true, "E2"},
		{"a simulated bundle", lab27.MatchInput{Report: simulated.report(), Frames: simulated.frames, PrimaryDisplayID: 1, Timebase: timebase}, lab27.Session{ID: "c", Evidence: "E4"}, true, "E2"},
		{"a bundle that cannot be read", lab27.MatchInput{Report: &lab27.Report{State: lab27.Invalid}}, lab27.Session{ID: "d", Evidence: "E2", Simulated: true}, true, "E2"},
	} {
		c.in.Session = c.session
		m, err := lab27.Qualify(c.in)
		if err != nil {
			t.Fatal(err)
		}
		if v := m.Verdict; v.SessionID != c.session.ID || v.Simulated != c.simulated || v.Evidence != c.evidence || v.Qualified != (c.in.Report.State == lab27.Complete) {
			t.Errorf("%s: session %s, simulated %t, evidence %s, %v", c.name, v.SessionID, v.Simulated, v.Evidence, v.Reasons)
		}
	}
}

func TestVerdictOfARunWithoutReferenceOrWithAnotherTimebaseIsUnqualified(t *testing.T) {
	f := newFixture(t, lab27.PurposeStudy, 100)
	m, err := lab27.Qualify(lab27.MatchInput{Report: f.report(), Frames: f.frames, PrimaryDisplayID: 1, Timebase: nsTicks})
	if err != nil || m.Verdict.Qualified || m.Verdict.Reasons[0].Reason != "timebase-differs" {
		t.Errorf("%v, %+v", err, m.Verdict.Reasons)
	}
	f = newFixture(t, lab27.PurposeCostOff, 100)
	f.presentations, f.handlerCost = nil, "null"
	if v := f.qualify(t).Verdict; v.Qualified || v.Reasons[0].Reason != "reference-off" {
		t.Errorf("%+v", v.Reasons)
	}
}

func TestMoreFramesThanTheBoundAreRefused(t *testing.T) {
	if _, err := lab27.Qualify(lab27.MatchInput{Report: &lab27.Report{}, Frames: make([]lab27.Frame, lab27.MaxFrames+1)}); err == nil {
		t.Error("accepted")
	}
}

func TestVerdictIsWrittenAndReadBack(t *testing.T) {
	f := newFixture(t, lab27.PurposeStudy, 100)
	f.frameOf(100).SurfaceID = 12
	v := f.qualify(t).Verdict
	data, err := v.JSON()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"verdict": "unqualified"`, `"reason": "surface-mismatch"`, `not an optical measurement."`} {
		if !bytes.Contains(data, []byte(want)) {
			t.Errorf("match.json lacks %s", want)
		}
	}
	back, err := lab27.ParseVerdict(data)
	if err != nil || *back.Counts != *v.Counts || *back.Clock != *v.Clock || *back.Window != *v.Window || !slices.Equal(back.Reasons, v.Reasons) {
		t.Errorf("%+v, %v", back, err)
	}
	for change, to := range map[string]string{`"qualified": false`: `"qualified": true`, `lab27.match/1`: `lab27.match/2`, `"counts"`: `"count"`} {
		if _, err := lab27.ParseVerdict(bytes.Replace(data, []byte(change), []byte(to), 1)); err == nil {
			t.Errorf("%s accepted", to)
		}
	}
}

func TestAVerdictThatItsOwnFiguresContradictIsNotBelieved(t *testing.T) {
	f := newFixture(t, lab27.PurposeStudy, 100)
	f.frameOf(100).SurfaceID = 12
	unqualified := f.qualify(t).Verdict
	for name, change := range map[string]func(v *lab27.Verdict){
		"its only reason is taken away": func(v *lab27.Verdict) { v.Reasons, v.Qualified, v.Verdict = []lab27.Reason{}, true, "qualified" },
		"and the count with it": func(v *lab27.Verdict) {
			v.Reasons, v.Qualified, v.Verdict = []lab27.Reason{}, true, "qualified"
			v.Counts.SurfaceMismatch = 0
		},
		"a reason has another count":            func(v *lab27.Verdict) { v.Reasons[0].Count = 2 },
		"a reason that no figure gives":         func(v *lab27.Verdict) { v.Reasons = append(v.Reasons, lab27.Reason{Reason: "bad-weather", Count: 1}) },
		"a bracket is wider than it may be":     func(v *lab27.Verdict) { v.Clock.AfterWidthNs = 100_001 },
		"the bundle is partial":                 func(v *lab27.Verdict) { v.BundleState = lab27.Partial },
		"fewer than no frames are missing":      func(v *lab27.Verdict) { v.Counts.MissingFrame, v.Counts.Paired = -1, v.Counts.Paired+1 },
		"a pair more than there are frames":     func(v *lab27.Verdict) { v.Counts.Paired++ },
		"a P95 too far apart, and no cut fails": func(v *lab27.Verdict) { v.WorstP95DifferenceNs = new(int64(1_000_001)) },
		"a cut compared that there is not":      func(v *lab27.Verdict) { v.CutsCompared = v.Cuts + 1 },
		"no clock, though frames are matched": func(v *lab27.Verdict) {
			v.Clock, v.Reasons = nil, []lab27.Reason{{"no-clock", 1}, {"surface-mismatch", 1}}
		},
		"a simulated phone's is of E3": func(v *lab27.Verdict) { v.Evidence = "E3" },
		"another word":                 func(v *lab27.Verdict) { v.Verdict = "fine" },
	} {
		v := unqualified
		v.Counts, v.Clock, v.Reasons = new(*v.Counts), new(*v.Clock), slices.Clone(v.Reasons)
		change(&v)
		data, err := v.JSON()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := lab27.ParseVerdict(data); !errors.Is(err, lab27.Count) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
