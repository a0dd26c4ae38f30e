package p95_test

import (
	"math"
	"testing"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/p95"
)

// Formula and window.

func TestRankIsNearest(t *testing.T) {
	// rank = ceil(0.95 n); the values are 1, 2, … n µs in a shuffled order, so that the value at a rank is that many µs.
	for _, c := range []struct{ n, rank int64 }{{5, 5}, {19, 19}, {20, 19}, {21, 20}, {39, 38}, {40, 38}, {1200, 1140}, {4096, 3892}} {
		l := newLab(t)
		for i := range c.n {
			l.frame(at(deviceStart+i*2_000_000, 1000*(1+i*7919%c.n)))
		}
		r := l.publish()
		l.expectOf(r, outcome{p95.Valid, c.n, 2, "foreground"})
		if r.Rank != is(c.rank) || r.ValueNs != is(1000*c.rank) {
			t.Errorf("n = %d: got rank %d and %d ns, want rank %d and %d ns", c.n, r.Rank.N, r.ValueNs.N, c.rank, 1000*c.rank)
		}
	}
}

func TestFourSamplesAreTooFewAndFiveAreEnough(t *testing.T) {
	l := newLab(t)
	l.frames(4)
	r := l.publish()
	l.expectOf(r, outcome{p95.Warmup, 4, 2, "foreground"})
	if r.Rank.Known || r.ValueNs.Known {
		t.Errorf("rank %v and value %v: want null", r.Rank, r.ValueNs)
	}
	l.frame(at(l.endMach+frameNs, 9_000_000))
	r = l.publish()
	l.expectOf(r, outcome{p95.Valid, 5, 2, "foreground"})
	if r.Rank != is(5) || r.ValueNs != is(9_000_000) {
		t.Errorf("got rank %v and %v ns, want 5 and 9000000", r.Rank, r.ValueNs)
	}
}

func TestWindowIsOpenOnTheLeftToTheNanosecond(t *testing.T) {
	// Six frames, the first at 100 s, the last (P) at 109.5 s. N - H of half a second puts T at 110 s.
	l := newLab(t)
	for _, endNs := range []int64{100 * second, 101 * second, 102 * second, 103 * second, 104 * second, 109_500_000_000} {
		l.frame(at(endNs, frameNs))
	}
	r := l.publishAt(l.hostNs + 499_999_999)
	l.expectOf(r, outcome{p95.Valid, 6, 2, "foreground"})
	if r.WindowLeftNs != is(99_999_999_999) || r.WindowRightNs != is(109_999_999_999) {
		t.Errorf("window: got (%v, %v], want (99999999999, 109999999999]", r.WindowLeftNs, r.WindowRightNs)
	}
	if want := (p95.Sample{RawSequence: 1, PresentationNs: 100 * second, Known: true}); r.FirstSample != want {
		t.Errorf("first sample: got %+v, want %+v", r.FirstSample, want)
	}
	r = l.publishAt(l.hostNs + 500_000_000)
	l.expectOf(r, outcome{p95.Valid, 5, 2, "foreground"})
	if want := (p95.Sample{RawSequence: 2, PresentationNs: 101 * second, Known: true}); r.FirstSample != want {
		t.Errorf("first sample: got %+v, want %+v", r.FirstSample, want)
	}
}

func TestWindowIsClosedOnTheRight(t *testing.T) {
	l := newLab(t)
	l.frames(5)
	r := l.publishAt(l.hostNs) // N = H: T = P
	l.expectOf(r, outcome{p95.Valid, 5, 2, "foreground"})
	if r.WindowRightNs != r.LastPresentationNs || r.WindowRightNs != is(deviceStart+5*frameNs) {
		t.Errorf("right edge %v, P %v: want both 50040000000", r.WindowRightNs, r.LastPresentationNs)
	}
	if want := (p95.Sample{RawSequence: 5, PresentationNs: deviceStart + 5*frameNs, Known: true}); r.LastSample != want {
		t.Errorf("last sample: got %+v, want %+v", r.LastSample, want)
	}
}

func TestFutureSamplesLieOutsideTheWindow(t *testing.T) {
	// Only where another reason stands before host-regression can N be below H and a window be told: T is then below P.
	l := newLab(t)
	l.SetForeground(false, l.hostNs)
	l.frames(6)
	r := l.publishAt(l.hostNs - 2*frameNs) // T = P - 16 ms: the 4th frame's presentation
	l.expectOf(r, outcome{p95.Background, 4, 3, "background"})
	if want := (p95.Sample{RawSequence: 4, PresentationNs: deviceStart + 4*frameNs, Known: true}); r.LastSample != want {
		t.Errorf("last sample: got %+v, want %+v", r.LastSample, want)
	}
	if r := l.publishAt(l.hostNs - 2*frameNs + 1); r.N != is(4) {
		t.Errorf("n: got %v, want 4", r.N)
	}
}

func TestTheWindowMayWidenAgain(t *testing.T) {
	// Frames come in batches. Just before the late second batch T has run ahead of P; with it, T falls back, and what the window had
	// left behind is inside again.
	l := newLab(t)
	l.frame(at(100*second, 30_000_000))
	for i := range int64(5) {
		l.frame(at(109*second+i, frameNs))
	}
	if r := l.publishAt(l.hostNs + second); r.N != is(5) || r.ValueNs != is(frameNs) {
		t.Errorf("before: got n = %v, value %v", r.N, r.ValueNs)
	}
	l.hostNs += second
	l.frame(at(109*second+5, frameNs))
	if r := l.publishAt(l.hostNs + 1); r.N != is(7) || r.ValueNs != is(30_000_000) {
		t.Errorf("after: got n = %v, value %v", r.N, r.ValueNs)
	}
}

// Quality, in its order.

func TestPublicationWithNoTarget(t *testing.T) {
	l := unboundLab(t, true)
	l.Bridge(p95.ClockBridge{HasContinuous: true, DeviceContinuousMach: 5, Timebase: adapter.Timebase{Numer: 1, Denom: 1}})
	var r p95.Receipt
	l.Publish(hostStart, is(hostStart-1), &r)
	if want := (p95.Receipt{HostNs: hostStart, DueNs: is(hostStart - 1), Quality: "no-target", N: is(0)}); r != want {
		t.Errorf("got %+v, want %+v", r, want)
	}
}

func TestPublicationInTheBackgroundTellsTheWindowAllTheSame(t *testing.T) {
	l := newLab(t)
	l.SetForeground(false, l.hostNs)
	l.frames(6)
	r := l.publish()
	l.expectOf(r, outcome{p95.Background, 6, 3, "background"})
	if r.LastHostNs != is(l.hostNs) || r.LastPresentationNs != is(l.endMach) || !r.FirstSample.Known || r.Rank.Known || r.ValueNs.Known {
		t.Errorf("P, H, window and samples are told, rank and value are not: %+v", r)
	}
	if r.Other != (p95.Other{}) {
		t.Errorf("other figures in the background: %+v", r.Other)
	}
}

func TestPublicationHostRegression(t *testing.T) {
	l := newLab(t)
	l.frames(6)
	expect := func(nowNs int64, want p95.Quality) {
		t.Helper()
		r := l.publishAt(nowNs)
		if r.Quality != want {
			t.Errorf("N = H %+d: got %s, want %s", nowNs-l.hostNs, r.Quality, want)
		}
		if want != p95.HostRegression {
			return
		}
		if r.N.Known || r.WindowLeftNs.Known || r.WindowRightNs.Known || r.FirstSample.Known || r.LastSample.Known || r.ValueNs.Known || r.Rank.Known {
			t.Errorf("window, n and samples are null: %+v", r)
		}
		if r.LastHostNs != is(l.hostNs) || r.LastPresentationNs != is(l.endMach) || r.Other != (p95.Other{}) {
			t.Errorf("P and H are told, the other figures are not: %+v", r)
		}
	}
	expect(l.hostNs-1, p95.HostRegression) // below H
	expect(l.hostNs, p95.Valid)
	expect(l.hostNs, p95.HostRegression) // not above the highest N
	expect(l.hostNs+10, p95.Valid)
	expect(l.hostNs+9, p95.HostRegression)
	expect(l.hostNs+11, p95.Valid)

	// The highest N outlives a bind, and counts publications of any quality.
	rebound(func(b *adapter.Binding) { b.Target.PID++ })(l)
	l.publishAt(l.hostNs + 20)
	l.SetForeground(true, l.hostNs)
	l.expectOf(l.publishAt(l.hostNs+20), outcome{p95.HostRegression, 0, 4, "foreground"})
}

func TestPublicationNowAtHIsNoRegressionWithoutH(t *testing.T) {
	l := newLab(t)
	l.expectOf(l.publishAt(math.MinInt64), outcome{p95.Warmup, 0, 2, "foreground"})
}

func TestPublicationPolicyAbsentTellsTheLastRecordOfThePrimaryDisplay(t *testing.T) {
	l := newLab(t)
	l.frame(func(r *adapter.Record) { r.Policy = "" })
	l.expect(outcome{p95.PolicyAbsent, 0, 2, "policy"})
	l.frame(func(r *adapter.Record) { r.DisplayID = 2 })
	l.expect(outcome{p95.PolicyAbsent, 0, 2, "policy"})
	l.Gap(is(l.hostNs)) // no record
	l.expect(outcome{p95.PolicyAbsent, 0, 3, "source-gap"})
	l.frame()
	l.expect(outcome{p95.Warmup, 1, 3, "source-gap"})
	l.frame(func(r *adapter.Record) { r.Policy = "p95-window-segment.v1" })
	l.expect(outcome{p95.PolicyAbsent, 0, 3, "policy"})
	l.frame(func(r *adapter.Record) { r.Schema = "" }) // marked, if nothing else
	l.expect(outcome{p95.Warmup, 0, 3, "contract"})
	l.frame(func(r *adapter.Record) { r.Policy = "" })
	rebound(func(b *adapter.Binding) { b.PrimaryDisplayID = 2 })(l) // a bind that changed anything forgets it
	l.expect(outcome{p95.Warmup, 0, 4, "display"})
}

func TestPublicationHostSilenceOfExactlyOneSecondIsFresh(t *testing.T) {
	l := newLab(t)
	l.frames(6)
	l.expectOf(l.publishAt(l.hostNs+1_000_000_000), outcome{p95.Valid, 6, 2, "foreground"})
	r := l.publishAt(l.hostNs + 1_000_000_001)
	l.expectOf(r, outcome{p95.StaleSource, 6, 2, "foreground"})
	if r.ValueNs.Known || r.Rank.Known || !r.WindowRightNs.Known || r.Other != (p95.Other{}) {
		t.Errorf("the window is told, value and other figures are not: %+v", r)
	}
	l.expectOf(l.publishAt(l.hostNs+20*second), outcome{p95.StaleSource, 0, 2, "foreground"})
}

// bridge is one whose device clock shows deviceNs; the lab's ticks are nanoseconds.
func bridge(sendNs, receiveNs, deviceNs int64) p95.ClockBridge {
	return p95.ClockBridge{HostSendNs: sendNs, HostReceiveNs: receiveNs, DeviceContinuousMach: deviceNs, HasContinuous: true,
		Timebase: adapter.Timebase{Numer: 1, Denom: 1}}
}

func TestPublicationClockAgeOfExactlyTwoSecondsIsFresh(t *testing.T) {
	// N - t1 = 30,000 and N - t0 = 59,999: the drift is 59,999 * 50 / 1,000,000 = 2. Age = D + 30,000 - 2 - P.
	for _, c := range []struct {
		ageNs   int64
		quality p95.Quality
	}{{2_000_000_000, p95.Valid}, {2_000_000_001, p95.StaleClock}, {-5, p95.Valid}, {0, p95.Valid}} {
		l := newLab(t)
		l.frames(6)
		l.Bridge(bridge(l.hostNs-59_999, l.hostNs-30_000, l.endMach+c.ageNs-29_998))
		r := l.publishAt(l.hostNs)
		l.expectOf(r, outcome{c.quality, 6, 2, "foreground"})
		if want := (p95.BridgeReading{Qualified: true, WidthNs: is(29_999), AgeLowerBoundNs: is(c.ageNs)}); r.ClockBridge != want {
			t.Errorf("bridge: got %+v, want %+v", r.ClockBridge, want)
		}
	}
}

func TestClockDriftIsIntegerDivisionAndZeroBeforeTheSend(t *testing.T) {
	for _, c := range []struct{ sinceSendNs, driftNs int64 }{{0, 0}, {19_999, 0}, {20_000, 1}, {39_999, 1}, {1_000_000_000, 50_000}, {-1, 0}, {-40_000, 0}} {
		l := newLab(t)
		l.frames(6)
		l.Bridge(bridge(l.hostNs-c.sinceSendNs, l.hostNs, l.endMach+100_000))
		r := l.publishAt(l.hostNs)
		if want := is(100_000 - c.driftNs); r.ClockBridge.AgeLowerBoundNs != want {
			t.Errorf("N - t0 = %d: got age %v, want %v", c.sinceSendNs, r.ClockBridge.AgeLowerBoundNs, want)
		}
	}
}

func TestClockBridgeIsTheLastWithContinuousTimeOfThisEpoch(t *testing.T) {
	l := newLab(t)
	expect := func(want p95.BridgeReading) {
		t.Helper()
		if r := l.publish(); r.ClockBridge != want {
			t.Errorf("got %+v, want %+v", r.ClockBridge, want)
		}
	}
	expect(p95.BridgeReading{})
	l.Bridge(p95.ClockBridge{HostSendNs: 1, HostReceiveNs: 9, Timebase: l.binding.Timebase}) // gives no continuous time
	expect(p95.BridgeReading{})
	l.Bridge(bridge(100, 150, 5))
	expect(p95.BridgeReading{Qualified: true, WidthNs: is(50)}) // no P, no age
	l.Bridge(bridge(200, 270, 5))
	expect(p95.BridgeReading{Qualified: true, WidthNs: is(70)})
	l.Bridge(p95.ClockBridge{HostSendNs: 1, HostReceiveNs: 9, Timebase: l.binding.Timebase})
	expect(p95.BridgeReading{Qualified: true, WidthNs: is(70)})
	unusable := bridge(1, 9, 5)
	unusable.Timebase.Denom = 0
	l.Bridge(unusable)
	l.Bridge(bridge(1, 9, -5))
	expect(p95.BridgeReading{Qualified: true, WidthNs: is(70)})

	l.Gap(is(l.hostNs))
	l.SetForeground(false, l.hostNs)
	rebound(func(b *adapter.Binding) { b.ReconnectGeneration++; b.Target.PID++ })(l)
	expect(p95.BridgeReading{Qualified: true, WidthNs: is(70)}) // the same epoch still
	rebound(func(b *adapter.Binding) { b.SourceEpoch++ })(l)
	expect(p95.BridgeReading{})
}

func TestClockBridgeBeforeTheFirstBindIsNone(t *testing.T) {
	l := unboundLab(t, true)
	l.Bridge(bridge(100, 150, 5))
	l.bind(l.binding)
	if r := l.publish(); r.ClockBridge != (p95.BridgeReading{}) {
		t.Errorf("got %+v, want none", r.ClockBridge)
	}
}

func TestClockBridgeConvertsByItsOwnTimebase(t *testing.T) {
	l := newLab(t)
	l.frames(6)                        // P = 50.048 s
	b := bridge(l.hostNs, l.hostNs, 0) // 1,250,000,001 ticks at 125/3 are 52,083,333,375 ns
	b.DeviceContinuousMach, b.Timebase = 1_250_000_001, adapter.Timebase{Numer: 125, Denom: 3}
	l.Bridge(b)
	r := l.publishAt(l.hostNs)
	l.expectOf(r, outcome{p95.StaleClock, 6, 2, "foreground"})
	if r.ClockBridge.AgeLowerBoundNs != is(2_035_333_375) {
		t.Errorf("age: got %v, want 2035333375", r.ClockBridge.AgeLowerBoundNs)
	}
}

func TestPublicationPrecedence(t *testing.T) {
	// Each lab fails two checks; the first one of the list is told.
	background := func(l *lab) { l.SetForeground(false, l.hostNs) }
	unmark := func(l *lab) { l.frame(func(r *adapter.Record) { r.Policy = "" }) }
	oldClock := func(l *lab) { l.Bridge(bridge(l.hostNs, l.hostNs, l.endMach+60*second)) }
	for _, c := range []struct {
		name    string
		prepare func(l *lab)
		sinceH  int64
		want    p95.Quality
	}{
		{"background before overflow", func(l *lab) { background(l); overflow(l) }, 0, p95.Background},
		{"background before host-regression", func(l *lab) { background(l); l.frames(6) }, -1, p95.Background},
		{"overflow before host-regression", func(l *lab) { locked(l) }, -1, p95.Overflow},
		{"overflow before policy-absent", func(l *lab) { locked(l); unmark(l) }, 1, p95.Overflow},
		{"host-regression before policy-absent", func(l *lab) { l.publishAt(l.hostNs + frameNs + 1); unmark(l) }, 0, p95.HostRegression},
		{"policy-absent before warmup", unmark, 0, p95.PolicyAbsent},
		{"stale-source before stale-clock", func(l *lab) { l.frames(6); oldClock(l) }, second + 1, p95.StaleSource},
		{"stale-source before warmup", func(l *lab) { l.frames(1) }, second + 1, p95.StaleSource},
		{"stale-clock before warmup", func(l *lab) { l.frames(1); oldClock(l) }, 0, p95.StaleClock},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			c.prepare(l)
			if r := l.publishAt(l.hostNs + c.sinceH); r.Quality != c.want {
				t.Errorf("got %s, want %s", r.Quality, c.want)
			}
		})
	}
	t.Run("no-target before host-regression", func(t *testing.T) {
		l := unboundLab(t, true)
		l.publishAt(5)
		if r := l.publishAt(5); r.Quality != p95.NoTarget || r.N != is(0) {
			t.Errorf("got %s, want no-target", r.Quality)
		}
	})
}

func TestTimesBeyondInt64AreNullAndNeverWrap(t *testing.T) {
	l := newLab(t)
	for i := range int64(6) {
		l.frame(at(math.MaxInt64-5+i, frameNs))
	}
	r := l.publishAt(l.hostNs + 7) // T is 7 ns beyond
	l.expectOf(r, outcome{p95.Valid, 6, 2, "foreground"})
	if r.WindowRightNs.Known || r.WindowLeftNs != is(math.MaxInt64-10*second+7) {
		t.Errorf("window: got (%v, %v], want (9223372026854775814, null]", r.WindowLeftNs, r.WindowRightNs)
	}
	r = l.publishAt(math.MaxInt64)
	l.expectOf(r, outcome{p95.StaleSource, 0, 2, "foreground"})
	if r.WindowRightNs.Known || r.WindowLeftNs.Known {
		t.Errorf("window: got (%v, %v], want nulls", r.WindowLeftNs, r.WindowRightNs)
	}

	l = newLab(t)
	l.frames(6)
	l.Bridge(bridge(math.MinInt64, math.MaxInt64, 0))
	if r := l.publish(); r.ClockBridge.WidthNs.Known || r.ClockBridge.AgeLowerBoundNs.Known || r.Quality != p95.Valid {
		t.Errorf("got %s, %+v: want nulls and no proof", r.Quality, r.ClockBridge)
	}
	l.Bridge(bridge(l.hostNs, math.MinInt64, math.MaxInt64))
	if r := l.publish(); r.ClockBridge.AgeLowerBoundNs.Known || r.Quality != p95.StaleClock {
		t.Errorf("got %s, %+v: want a proof beyond int64", r.Quality, r.ClockBridge)
	}
}

func TestPublicationCarriesTheBinding(t *testing.T) {
	l := newLab(t)
	l.frames(5)
	r := l.publish()
	if r.Target != (p95.Target{Target: adapter.Target{BundleID: "com.example.app", PID: 431, Generation: 1}, Known: true}) ||
		r.SourceEpoch != is(1) || r.ReconnectGeneration != is(0) || r.DisplayID != is(1) ||
		r.Timebase != (p95.Timebase{Timebase: adapter.Timebase{Numer: 1, Denom: 1}, Known: true}) {
		t.Errorf("got %+v", r)
	}
}

func TestWithoutP95OnlyTheOtherFiguresAreThere(t *testing.T) {
	l := unboundLab(t, false)
	l.bind(l.binding)
	l.SetForeground(true, l.hostNs)
	l.frames(6)
	var r p95.Receipt
	l.Publish(l.hostNs, is(5), &r)
	if !r.Other.FPS.Known {
		t.Error("want the other figures")
	}
	r.Other = p95.Other{}
	if want := (p95.Receipt{HostNs: l.hostNs, DueNs: is(5)}); r != want {
		t.Errorf("got %+v, want %+v", r, want)
	}
}
