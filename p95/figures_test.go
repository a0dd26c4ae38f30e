package p95_test

import (
	"math"
	"testing"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/p95"
)

// late gives a record the integers of Apple's reading: lifetime, refresh interval and buffer count.
func late(lifetimeNs, refreshNs, buffers int64) func(*adapter.Record) {
	return func(r *adapter.Record) {
		r.BeginMach = r.EndMach - lifetimeNs
		r.RefreshIntervalMach, r.BufferCount = refreshNs, buffers
		// Only the window looks at the multiple; in these tests it may as well refuse the record.
	}
}

func (l *lab) expectOther(want p95.Other) {
	l.t.Helper()
	if got := l.publish().Other; got != want {
		l.t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestFPSOfASteady120Is120(t *testing.T) {
	l := newLab(t)
	rebound(func(b *adapter.Binding) { b.Timebase = adapter.Timebase{Numer: 125, Denom: 3} })(l)
	for i := range int64(121) {
		l.frame(func(r *adapter.Record) { // 200,000 ticks at 125/3 are 8,333,333.3 ns
			r.EndMach = 60_000_000 + 200_000*i
			r.PreviousMach, r.RefreshIntervalMach = r.EndMach-200_000, 199_999
		})
		switch i {
		case 118:
			if got := l.publish().Other.FPS; got != is(119) {
				t.Errorf("after 119 frames: got %v", got)
			}
		case 119, 120:
			if got := l.publish().Other.FPS; got != is(120) {
				t.Errorf("after %d frames: got %v, want 120", i+1, got)
			}
		}
	}
	got := l.publish().Other
	// 1e9 * 3 / (199,999 * 125) Hz = 120.000600…; all frames are of 8,333,333 ns; 2 buffers cover 20 ms of lifetime at no rate.
	if got.FrameTimeNs != is(8_333_333) || got.RefreshMilliHz != is(120_001) || got.JitterUs != is(0) {
		t.Errorf("got %+v", got)
	}
}

func TestFPSCountsWholeIntervalsBothEdgesClosed(t *testing.T) {
	l := newLab(t)
	l.frame(at(100*second, 100)) // [100 s - 100 ns, 100 s]: in whole until Q - 1 s passes its beginning
	l.frame(at(101*second-100, frameNs))
	l.expectOther(p95.Other{FPS: is(2), FrameTimeNs: is(frameNs), JitterUs: is(4000), HitchUsPerS: is(0), MissedRefreshes: is(0)})
	l.frame(at(101*second-99, frameNs)) // now the first frame began 1 ns too early, but still ends in (Q - 1 s, Q]
	// Frame times 100, 8,000,000, 8,000,000 ns: deviation = (8,000,000 - 100) * sqrt(2) / 3 = 3,771,189.02 ns.
	l.expectOther(p95.Other{FPS: is(2), FrameTimeNs: is(frameNs), JitterUs: is(3771), HitchUsPerS: is(0), MissedRefreshes: is(0)})
}

func TestFPSCountsAFrameWithoutLengthOnTheLeftEdge(t *testing.T) {
	// A third of a nanosecond a tick: the interval from tick 300,000,000,000 to 300,000,000,001 is [100 s, 100 s] in whole ns.
	l := newLab(t)
	rebound(func(b *adapter.Binding) { b.Timebase = adapter.Timebase{Numer: 1, Denom: 3} })(l)
	ticks := func(end, interval int64) func(*adapter.Record) {
		return func(r *adapter.Record) { r.EndMach, r.PreviousMach = end, end-interval }
	}
	l.frame(ticks(300_000_000_001, 1))
	l.frame(ticks(303_000_000_000, 30))
	if got := l.publish().Other; got.FPS != is(2) || got.JitterUs.Known {
		t.Errorf("got %+v, want 2 fps, and only one frame time in (Q - 1 s, Q]", got)
	}
}

func TestFPSWhereAFrameReachesBackOverTheOneBefore(t *testing.T) {
	// The same edge, with a frame in between that began before it.
	l := newLab(t)
	rebound(func(b *adapter.Binding) { b.Timebase = adapter.Timebase{Numer: 1, Denom: 3} })(l)
	for _, f := range [][2]int64{{300_000_000_001, 300_000_000_000}, {301_000_000_000, 299_999_999_999}, {303_000_000_000, 302_999_999_000}} {
		l.frame(func(r *adapter.Record) { r.EndMach, r.PreviousMach = f[0], f[1] })
	}
	if got := l.publish().Other.FPS; got != is(2) {
		t.Errorf("got %v, want the first and the last", got)
	}
	// Once the three are out of reach, nothing of them is left.
	for i := range int64(3) {
		l.frame(func(r *adapter.Record) {
			r.EndMach, r.PreviousMach = 309_000_000_000+i*3_000_000, 308_997_000_000+i*3_000_000
		})
	}
	if got := l.publish().Other.FPS; got != is(3) {
		t.Errorf("three seconds later: got %v, want 3", got)
	}
}

func TestJitterIsThePopulationDeviationRoundedHalfToEven(t *testing.T) {
	// Two frame times a and a + d deviate by d / 2.
	for _, c := range []struct{ differNs, wantUs int64 }{{0, 0}, {1000, 0}, {1002, 1}, {3000, 2}, {2998, 1}, {5000, 2}, {5002, 3}, {7000, 4}, {2_000_000, 1000}, {1_099_990_000, 549_995}} {
		l := newLab(t)
		l.frame(at(deviceStart+second, 10_000))
		l.frame(at(deviceStart+second+1, 10_000+c.differNs))
		if got := l.publish().Other.JitterUs; got != is(c.wantUs) {
			t.Errorf("difference of %d ns: got %v µs, want %d", c.differNs, got, c.wantUs)
		}
	}
	// 0, 0 and 3 µs above: variance 2 µs², deviation 1.414 µs; of ten frames, nine equal and one 10 µs above: 3 µs exactly.
	l := newLab(t)
	l.frames(2)
	l.frame(at(l.endMach+frameNs, frameNs+3000))
	if got := l.publish().Other.JitterUs; got != is(1) {
		t.Errorf("got %v µs, want 1", got)
	}
	l = newLab(t)
	l.frames(9)
	l.frame(at(l.endMach+frameNs, frameNs+10_000))
	if got := l.publish().Other.JitterUs; got != is(3) {
		t.Errorf("got %v µs, want 3", got)
	}
}

func TestJitterNeedsTwoFrameTimesInTheSecond(t *testing.T) {
	l := newLab(t)
	l.frame(at(100*second, frameNs))
	if got := l.publish().Other.JitterUs; got.Known {
		t.Errorf("one frame: got %v, want null", got)
	}
	l.frame(at(101*second, frameNs)) // the first one is on the open edge
	if got := l.publish().Other.JitterUs; got.Known {
		t.Errorf("one frame in the second: got %v, want null", got)
	}
}

func TestHitchesByApplesReading(t *testing.T) {
	// Each frame is of 8 ms; a row says its overrun in ms and its missed refreshes.
	for _, c := range []struct {
		name                         string
		lifetimeNs, refresh, buffers int64
		skip                         int64
		overrunMs, missed            int64
	}{
		{"in time", 15_999_999, 8_000_000, 2, 0, 0, 0},
		{"to the last moment", 16_000_000, 8_000_000, 2, 0, 0, 1}, // floor(16 / 8) - 2 + 1
		{"half a refresh late", 20_000_000, 8_000_000, 2, 0, 4, 1},
		{"skip request", 20_000_000, 8_000_000, 2, 1, 0, 1},
		{"two refreshes late", 32_000_000, 8_000_000, 2, 0, 16, 3},
		{"more buffers than lifetime", 8_000_000, 8_000_000, 3, 0, 0, 0},
		{"buffers beyond 64 bits", 20_000_000, 8_000_000, 1 << 61, 0, 0, 0}, // 15,625 * 2^70, of which the low 64 bits are 0
		{"refresh not known", 20_000_000, 0, 2, 0, 0, 0},
		{"begin after end", -5, 8_000_000, 0, 0, 0, 0}, // floor(-5 ns / 8 ms) is -1
	} {
		l := newLab(t)
		l.frame(late(c.lifetimeNs, c.refresh, c.buffers), func(r *adapter.Record) { r.SkipRequest = c.skip })
		got := l.publish().Other
		// ms per 8 ms are 125 times as many ms per s.
		if got.HitchUsPerS != is(c.overrunMs*125_000) || got.MissedRefreshes != is(c.missed) {
			t.Errorf("%s: got %v µs/s and %v missed, want %d and %d", c.name, got.HitchUsPerS, got.MissedRefreshes, c.overrunMs*125_000, c.missed)
		}
	}
}

func TestHitchesAreOverTenSeconds(t *testing.T) {
	l := newLab(t)
	l.frame(at(100*second, frameNs), late(20_000_000, frameNs, 2))
	l.frame(at(105*second, frameNs), late(18_000_000, frameNs, 2))
	l.frame(at(110*second-1, frameNs), late(10_000_000, frameNs, 2))
	got := l.publish().Other // 4 + 2 ms in 24 ms of frame time
	if got.HitchUsPerS != is(250_000) || got.MissedRefreshes != is(2) {
		t.Errorf("got %v and %v, want 250000 and 2", got.HitchUsPerS, got.MissedRefreshes)
	}
	l.frame(at(110*second, frameNs), late(10_000_000, frameNs, 2)) // the first one is on the open edge now
	got = l.publish().Other                                        // 2 ms in 24 ms
	if got.HitchUsPerS != is(83_333) || got.MissedRefreshes != is(1) {
		t.Errorf("got %v and %v, want 83333 and 1", got.HitchUsPerS, got.MissedRefreshes)
	}
}

func TestHitchTimeRatioIsRoundedHalfToEven(t *testing.T) {
	// Overrun of 1, 3 and 5 ns in a frame time of 2 ms: 0.5, 1.5 and 2.5 µs per s.
	for _, c := range []struct{ overrunNs, want int64 }{{1, 0}, {3, 2}, {5, 2}} {
		l := newLab(t)
		l.frame(at(l.endMach, 2_000_000), late(16_000_000+c.overrunNs, 8_000_000, 2))
		if got := l.publish().Other.HitchUsPerS; got != is(c.want) {
			t.Errorf("%d ns: got %v, want %d", c.overrunNs, got, c.want)
		}
	}
}

func TestHitchesAreNullWhileAFrameInTheWindowDoesNotTell(t *testing.T) {
	for name, edit := range map[string]func(*adapter.Record){
		"no begin":             without(adapter.HasBeginMach),
		"no refresh interval":  without(adapter.HasRefreshIntervalMach),
		"no buffer count":      without(adapter.HasBufferCount),
		"no skip request":      without(adapter.HasSkipRequest),
		"begin negative":       func(r *adapter.Record) { r.BeginMach = -1 },
		"refresh negative":     func(r *adapter.Record) { r.RefreshIntervalMach = -1 },
		"buffers negative":     func(r *adapter.Record) { r.BufferCount = math.MinInt64 },
		"skip request is -1":   func(r *adapter.Record) { r.SkipRequest = -1 },
		"begin smallest of it": func(r *adapter.Record) { r.BeginMach = math.MinInt64 },
	} {
		l := newLab(t)
		l.frame(edit)
		l.frame()
		got := l.publish().Other
		if got.HitchUsPerS.Known || got.MissedRefreshes.Known || got.FPS != is(2) || got.JitterUs != is(0) {
			t.Errorf("%s: got %+v, want nulls for the hitches alone", name, got)
		}
		l.endMach += 10 * second
		l.frame()
		if got := l.publish().Other; got.HitchUsPerS != is(0) || got.MissedRefreshes != is(0) {
			t.Errorf("%s, ten seconds later: got %+v", name, got)
		}
	}
}

func TestOtherFiguresCountAStatedValidRecordWhateverElseIsWrongWithIt(t *testing.T) {
	for name, edit := range map[string]func(*adapter.Record){
		"unmarked":           func(r *adapter.Record) { r.Policy = "" },
		"no contract":        func(r *adapter.Record) { r.Source = adapter.Source{}; r.Schema = "" },
		"not verified":       func(r *adapter.Record) { r.Verified, r.Decoded = false, false },
		"another epoch":      func(r *adapter.Record) { r.SourceEpoch = 7 },
		"another target":     func(r *adapter.Record) { r.Target.PID = 7 },
		"no rawSequence":     without(adapter.HasRawSequence),
		"forged frame time":  func(r *adapter.Record) { r.FrameTimeNs, r.PresentationNs, r.RefreshMultipleMilli = 1, 2, 3 },
		"no figures at all":  without(adapter.HasPresentationNs | adapter.HasFrameTime),
		"rawSequence before": func(r *adapter.Record) { r.RawSequence = -5 },
	} {
		l := newLab(t)
		l.frames(2)
		l.frame(edit)
		if got := l.publish().Other; got.FPS != is(3) || got.FrameTimeNs != is(frameNs) {
			t.Errorf("%s: got %+v, want three frames", name, got)
		}
	}
}

func TestOtherFiguresDoNotCountWhatIsNoFrameOfTheBoundClock(t *testing.T) {
	for name, edit := range map[string]func(*adapter.Record){
		"discontinuity":         withQuality(adapter.QualityDiscontinuity),
		"duplicate":             withQuality(adapter.QualityDuplicate),
		"quality of no list":    without(adapter.HasQuality),
		"another timebase":      func(r *adapter.Record) { r.Timebase = adapter.Timebase{Numer: 125, Denom: 3} },
		"no timebase":           without(adapter.HasTimebase),
		"another display":       func(r *adapter.Record) { r.DisplayID = 2 },
		"no end":                without(adapter.HasEndMach),
		"no previous":           without(adapter.HasPreviousMach),
		"no arrival":            without(adapter.HasHostNs),
		"previous 0":            func(r *adapter.Record) { r.PreviousMach = 0 },
		"previous at end":       func(r *adapter.Record) { r.PreviousMach = r.EndMach },
		"1.1 s and 1 ns":        func(r *adapter.Record) { r.PreviousMach = r.EndMach - 1_100_000_001 },
		"smallest previous":     func(r *adapter.Record) { r.PreviousMach = math.MinInt64 },
		"largest end, previous": func(r *adapter.Record) { r.EndMach, r.PreviousMach = math.MaxInt64, math.MaxInt64 },
	} {
		l := newLab(t)
		l.frames(2)
		want := l.publish().Other
		l.frame(edit)
		if got := l.publish().Other; got != want || got.FPS != is(2) {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
	l := newLab(t)
	l.frame(func(r *adapter.Record) { r.PreviousMach = r.EndMach - 1_100_000_000 })
	if got := l.publish().Other.FrameTimeNs; got != is(1_100_000_000) {
		t.Errorf("1.1 s exactly: got %v", got)
	}
}

func TestOtherFiguresOutliveGapsAndClears(t *testing.T) {
	l := newLab(t)
	l.frames(6)
	want := l.publish().Other
	l.Gap(is(l.hostNs))
	if got := l.publish().Other; got != want {
		t.Errorf("after a gap: got %+v, want %+v", got, want)
	}
	l.frame(withQuality(adapter.QualityOutOfOrder))
	if got := l.publish().Other; got != want {
		t.Errorf("after a clear: got %+v, want %+v", got, want)
	}
	l.Bind(l.binding, l.hostNs)
	l.SetForeground(true, l.hostNs)
	if got := l.publish().Other; got != want {
		t.Errorf("after events that changed nothing: got %+v, want %+v", got, want)
	}
}

func TestOtherFiguresBeginAnewWithABindOrAForegroundChange(t *testing.T) {
	for name, event := range map[string]func(l *lab){
		"display": func(l *lab) {
			rebound(func(b *adapter.Binding) { b.PrimaryDisplayID = 2 })(l)
			rebound(func(b *adapter.Binding) { b.PrimaryDisplayID = 1 })(l)
		},
		"reconnect":  rebound(func(b *adapter.Binding) { b.ReconnectGeneration++ }),
		"foreground": func(l *lab) { l.SetForeground(false, l.hostNs); l.SetForeground(true, l.hostNs) },
	} {
		l := newLab(t)
		l.frames(6)
		event(l)
		if got := l.publish().Other; got != (p95.Other{}) {
			t.Errorf("%s: got %+v, want nulls", name, got)
		}
		l.frame()
		if got := l.publish().Other.FPS; got != is(1) {
			t.Errorf("%s, one frame later: got %v, want 1", name, got)
		}
	}
}

func TestOtherFiguresAreNullMoreThanASecondFromTheLatestArrival(t *testing.T) {
	l := newLab(t)
	for range 3 {
		l.frame(func(r *adapter.Record) { r.Policy = "" }) // no H: nothing of this is a host regression
	}
	for _, c := range []struct {
		awayNs int64
		known  bool
	}{{-second - 1, false}, {-second, true}, {-1, true}, {0, true}, {second, true}, {second + 1, false}} {
		r := l.publishAt(l.hostNs + c.awayNs)
		if r.Quality != p95.PolicyAbsent || (r.Other != p95.Other{}) != c.known {
			t.Errorf("N %+d ns from the latest: got %s, %+v, want figures: %t", c.awayNs, r.Quality, r.Other, c.known)
		}
	}
}

func TestOtherFiguresAreNullWhenTheHostClockGoesBack(t *testing.T) {
	l := newLab(t)
	l.frames(6)
	l.publishAt(l.hostNs + 5)
	if r := l.publishAt(l.hostNs + 5); r.Quality != p95.HostRegression || r.Other != (p95.Other{}) {
		t.Errorf("N again: got %s, %+v", r.Quality, r.Other)
	}
	l = newLab(t)
	l.frames(6)
	if r := l.publishAt(l.hostNs - 1); r.Quality != p95.HostRegression || r.Other != (p95.Other{}) {
		t.Errorf("N below H: got %s, %+v", r.Quality, r.Other)
	}
}

func TestOtherWindowsEndAtTheLatestFrameNotNow(t *testing.T) {
	l := newLab(t)
	l.frames(125)
	want := l.publish().Other
	if want.FPS != is(125) {
		t.Errorf("got %v, want 125", want.FPS)
	}
	if got := l.publishAt(l.hostNs + 900_000_000).Other; got != want {
		t.Errorf("0.9 s later: got %+v, want %+v", got, want)
	}
}

func TestOtherLatestIsByArrivalEvenWhereItsPresentationIsNotTheLatest(t *testing.T) {
	// What is presented after Q is outside every window.
	l := newLab(t)
	l.frame(at(100*second, 8_000_000))
	l.frame(at(103*second, 12_000_000))
	l.frame(at(100*second+500_000_000, 10_000_000))
	// 8 and 10 ms: deviation 1 ms.
	l.expectOther(p95.Other{FPS: is(2), FrameTimeNs: is(10_000_000), JitterUs: is(1000), HitchUsPerS: is(0), MissedRefreshes: is(0)})
	l.frame(at(103*second+100_000_000, 16_000_000)) // 12 and 16 ms
	l.expectOther(p95.Other{FPS: is(2), FrameTimeNs: is(16_000_000), JitterUs: is(2000), HitchUsPerS: is(0), MissedRefreshes: is(0)})
}

func TestFPSDoesNotCountAFrameThatEndsAfterTheLatest(t *testing.T) {
	l := newLab(t)
	l.frame(at(100*second, frameNs))
	l.frame(at(100_900_000_000, 800_000_000))
	l.frame(at(100_500_000_000, 300_000_000)) // begins after the one before, and ends inside it
	if got := l.publish().Other.FPS; got != is(2) {
		t.Errorf("got %v, want the first and the last", got)
	}
}

func TestOtherFiguresForgetDisorderWithTheFramesThatHadIt(t *testing.T) {
	// Of the first two frames the later one ends earlier, and the ten seconds' left edge lies between them when the first is pushed out.
	l := newLab(t)
	l.frame(at(100*second+100, frameNs), late(20_000_000, frameNs, 2))
	l.frame(at(100*second, frameNs))
	for i := range int64(4094) {
		l.frame(at(110*second+50-(4093-i)*1000, frameNs))
	}
	l.publish()
	l.frame(at(110*second+60, frameNs))
	l.frame(at(115*second, frameNs))
	l.expectOther(p95.Other{FPS: is(1), FrameTimeNs: is(frameNs), HitchUsPerS: is(0), MissedRefreshes: is(0)})
}

func TestOtherFiguresForgetTheOldestOf4097FramesAndSaySoByNull(t *testing.T) {
	l := newLab(t)
	frames := func(n int, apart int64) {
		for range n {
			l.endMach += apart - frameNs
			l.hostNs += 1 - frameNs
			l.frame()
		}
	}
	frames(4096, 2_000_000)
	got := l.publish().Other
	if got.HitchUsPerS != is(0) || got.MissedRefreshes != is(0) {
		t.Errorf("4,096 frames in ten seconds: got %+v", got)
	}
	frames(1, 2_000_000) // the first frame is pushed out, 8.192 s before Q
	got = l.publish().Other
	// 8 ms frames every 2 ms: those that end in [Q - 0.992 s, Q] lie in the second whole.
	if got.HitchUsPerS.Known || got.MissedRefreshes.Known || got.FPS != is(497) || got.JitterUs != is(0) {
		t.Errorf("4,097 frames in ten seconds: got %+v, want the ten-second figures null", got)
	}
	frames(905, 2_000_000) // the youngest forgotten one is the 906th, 4,096 * 2 ms before Q
	if got := l.publish().Other; got.HitchUsPerS.Known {
		t.Errorf("got %+v", got)
	}
	frames(4096, 2_441_407) // the youngest forgotten one is 4,096 * 2,441,407 ns = 10 s + 3,072 ns before Q
	if got := l.publish().Other; got.HitchUsPerS != is(0) {
		t.Errorf("got %+v, want all within reach again", got)
	}
	frames(4097, 100_000) // more than 4,096 in the last second
	if got := l.publish().Other; got.FPS.Known || got.JitterUs.Known || got.HitchUsPerS.Known || got.FrameTimeNs != is(frameNs) {
		t.Errorf("got %+v, want only the latest frame's figures", got)
	}
}

func TestRefreshRate(t *testing.T) {
	for _, c := range []struct {
		timebase      adapter.Timebase
		intervalTicks int64
		want          p95.Int
	}{
		{adapter.Timebase{Numer: 125, Denom: 3}, 199_999, is(120_001)}, // 120.0006 Hz
		{adapter.Timebase{Numer: 125, Denom: 3}, 400_000, is(60_000)},
		{adapter.Timebase{Numer: 125, Denom: 3}, 399_984, is(60_002)},  // 60.0024 Hz, the real iPhone of wire.md
		{adapter.Timebase{Numer: 1, Denom: 1}, 400_000_000_000, is(2)}, // 2.5 mHz, half to even
		{adapter.Timebase{Numer: 1, Denom: 1}, 0, null()},
		{adapter.Timebase{Numer: 1, Denom: 1}, -8_000_000, null()},
		{adapter.Timebase{Numer: 1, Denom: 9_223_372}, 1, is(9_223_372_000_000_000_000)},
		{adapter.Timebase{Numer: 1, Denom: 9_223_373}, 1, null()},     // beyond int64, within 64 bits
		{adapter.Timebase{Numer: 1, Denom: math.MaxInt64}, 1, null()}, // beyond int64
		{adapter.Timebase{Numer: math.MaxInt64, Denom: math.MaxInt64}, 8_000_000, is(125_000)},
		{adapter.Timebase{Numer: 1 << 62, Denom: 1 << 62}, 400_000_000_000, is(2)},   // 2.5 mHz
		{adapter.Timebase{Numer: 1 << 62, Denom: 1<<62 + 1}, 400_000_000_000, is(3)}, // a hair more
		{adapter.Timebase{Numer: 1 << 62, Denom: 3 << 61}, 1_000_000_000_000, is(2)}, // 1.5 mHz
	} {
		l := newLab(t)
		rebound(func(b *adapter.Binding) { b.Timebase = c.timebase })(l)
		l.frame(func(r *adapter.Record) {
			r.EndMach, r.PreviousMach, r.RefreshIntervalMach = 60_000_000, 59_990_000, c.intervalTicks
		})
		got := l.publish().Other
		if !got.FrameTimeNs.Known || got.RefreshMilliHz != c.want {
			t.Errorf("%d ticks at %v: got %+v, want %v", c.intervalTicks, c.timebase, got, c.want)
		}
	}
	l := newLab(t)
	l.frame(func(r *adapter.Record) { r.RefreshIntervalMach = frameNs })
	l.frame(without(adapter.HasRefreshIntervalMach))
	if got := l.publish().Other.RefreshMilliHz; got.Known {
		t.Errorf("latest without an interval: got %v, want null", got)
	}
}

func TestFrameTimesOfNothingHaveNoHitchTimeRatio(t *testing.T) {
	l := newLab(t)
	rebound(func(b *adapter.Binding) { b.Timebase = adapter.Timebase{Numer: 1, Denom: 3} })(l)
	l.frame(func(r *adapter.Record) { r.PreviousMach = r.EndMach - 1 }) // a third of a nanosecond
	if got := l.publish().Other; got.FrameTimeNs != is(0) || got.HitchUsPerS.Known || got.MissedRefreshes != is(0) {
		t.Errorf("got %+v, want no ratio", got)
	}
}

// None of the other figures may change when P95 is switched off.
func TestOtherFiguresAreTheSameWithoutP95(t *testing.T) {
	on, off := newLab(t), unboundLab(t, false)
	off.bind(off.binding)
	off.SetForeground(true, hostStart+1)
	step := func(do func(l *lab)) {
		t.Helper()
		do(on)
		do(off)
		a, b := on.publish(), off.publish()
		if a.Other != b.Other {
			t.Errorf("with P95 %+v, without %+v", a.Other, b.Other)
		}
	}
	for i := range 400 {
		step(func(l *lab) { l.frame(late(int64(16_000_000+i*20_000), 8_000_000, 2)) })
		switch i % 50 {
		case 7:
			step(func(l *lab) { l.frame(func(r *adapter.Record) { r.Policy = "" }) })
		case 14:
			step(func(l *lab) { l.frame(withQuality(adapter.QualityDiscontinuity)) })
		case 21:
			step(func(l *lab) { l.Gap(is(l.hostNs)) })
		case 28:
			step(func(l *lab) { l.SetForeground(i%100 < 50, l.hostNs) })
		case 35:
			step(func(l *lab) { l.SetForeground(true, l.hostNs) })
		case 42:
			step(rebound(func(b *adapter.Binding) { b.ReconnectGeneration++ }))
		}
	}
	on.hostNs += second
	off.hostNs += second
	step(func(*lab) {})
}
