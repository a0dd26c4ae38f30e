package p95_test

import (
	"errors"
	"math"
	"testing"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/p95"
)

// The table "What else clears it", line by line.

func TestFirstBindOpensSegmentOne(t *testing.T) {
	l := unboundLab(t, true)
	l.bind(l.binding)
	r := l.publish()
	l.expectOf(r, outcome{p95.Background, 0, 1, "bind"})
	if want := (p95.Clear{Reason: "bind", HostNs: is(hostStart + 1), Known: true}); r.LastClear != want {
		t.Errorf("last clear: got %+v, want %+v", r.LastClear, want)
	}
}

func TestBindOfSomethingElseStartsAnew(t *testing.T) {
	edits := map[string]struct {
		edit    func(*adapter.Binding)
		reason  p95.ClearReason
		unknown bool // foreground is unknown afterwards
	}{
		"bundle":              {func(b *adapter.Binding) { b.Target.BundleID = "com.example.other" }, "target", true},
		"pid":                 {func(b *adapter.Binding) { b.Target.PID = 500 }, "target", true},
		"generation":          {func(b *adapter.Binding) { b.Target.Generation = 2 }, "target", true},
		"generation below":    {func(b *adapter.Binding) { b.Target.Generation = 0 }, "target", true},
		"epoch":               {func(b *adapter.Binding) { b.SourceEpoch = 2 }, "epoch", false},
		"reconnect":           {func(b *adapter.Binding) { b.ReconnectGeneration = 1 }, "reconnect", false},
		"timebase numer":      {func(b *adapter.Binding) { b.Timebase.Numer = 2 }, "timebase", false},
		"timebase denom":      {func(b *adapter.Binding) { b.Timebase.Denom = 2 }, "timebase", false},
		"same ratio":          {func(b *adapter.Binding) { b.Timebase = adapter.Timebase{Numer: 3, Denom: 3} }, "timebase", false},
		"target before epoch": {func(b *adapter.Binding) { b.Target.PID = 500; b.SourceEpoch = 2 }, "target", true},
		"epoch before reconnect": {func(b *adapter.Binding) {
			b.SourceEpoch = 2
			b.ReconnectGeneration = 5
		}, "epoch", false},
		"reconnect before timebase": {func(b *adapter.Binding) {
			b.ReconnectGeneration = 5
			b.Timebase.Numer = 125
		}, "reconnect", false},
		"timebase before display": {func(b *adapter.Binding) {
			b.Timebase.Numer = 125
			b.PrimaryDisplayID = 2
		}, "timebase", false},
	}
	for name, c := range edits {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.frames(6)
			rebound(c.edit)(l)
			quality := p95.Warmup
			if c.unknown {
				quality = p95.Background
			}
			r := l.publish()
			l.expectOf(r, outcome{quality, 0, 3, c.reason})
			if r.LastRawSequence.Known || r.LastPresentationNs.Known || r.LastHostNs.Known {
				t.Errorf("order marks, P and H outlived the bind: %+v", r)
			}

			l = newLab(t)
			locked(l)
			rebound(c.edit)(l)
			l.SetForeground(true, l.hostNs)
			if r := l.publish(); r.Quality != p95.Warmup {
				t.Errorf("lock after the bind: got %s, want it lifted", r.Quality)
			}
		})
	}
}

func TestReconnectMayFallWithANewEpochOrTarget(t *testing.T) {
	l := unboundLab(t, true)
	l.binding.SourceEpoch, l.binding.ReconnectGeneration = 3, 4
	l.bind(l.binding)
	rebound(func(b *adapter.Binding) { b.SourceEpoch, b.ReconnectGeneration = 4, 0 })(l)
	l.expect(outcome{p95.Background, 0, 2, "epoch"})
	rebound(func(b *adapter.Binding) { b.Target.PID, b.SourceEpoch = 500, 1 })(l)
	l.expect(outcome{p95.Background, 0, 3, "target"})
}

func TestBindOfAnotherDisplayKeepsMarksLockAndForeground(t *testing.T) {
	l := newLab(t)
	l.frames(6)
	rebound(func(b *adapter.Binding) { b.PrimaryDisplayID = 2 })(l)
	r := l.publish()
	l.expectOf(r, outcome{p95.Warmup, 0, 3, "display"})
	if r.LastRawSequence != is(6) || r.DisplayID != is(2) {
		t.Errorf("got mark %v and display %v, want 6 and 2", r.LastRawSequence, r.DisplayID)
	}
	l.frames(5)
	l.expect(outcome{p95.Valid, 5, 3, "display"})

	locked(l)
	rebound(func(b *adapter.Binding) { b.PrimaryDisplayID = 1 })(l)
	l.expect(outcome{p95.Overflow, 0, 4, "display"})
}

func TestTwoDisplaysInterleavedWithTheSecondFlooding(t *testing.T) {
	l := newLab(t)
	for range 20 {
		l.frame()
		for range 50 {
			l.hostNs++
			r := l.next()
			l.hostNs, l.endMach = l.hostNs-frameNs, l.endMach-frameNs
			r.DisplayID = 2
			r.HostNs = l.hostNs
			l.Record(&r)
		}
	}
	l.expect(outcome{p95.Valid, 20, 2, "foreground"})
	rebound(func(b *adapter.Binding) { b.PrimaryDisplayID = 2 })(l)
	l.expect(outcome{p95.Warmup, 0, 3, "display"})
}

func TestRetrogradeBindIsRefusedAndChangesNothing(t *testing.T) {
	l := unboundLab(t, true)
	l.binding.SourceEpoch, l.binding.ReconnectGeneration = 3, 4
	l.bind(l.binding)
	l.SetForeground(true, hostStart+1)
	l.frames(6)
	for name, edit := range map[string]func(*adapter.Binding){
		"lower epoch":                             func(b *adapter.Binding) { b.SourceEpoch = 2 },
		"lower epoch, higher reconnect":           func(b *adapter.Binding) { b.SourceEpoch, b.ReconnectGeneration = 2, 9 },
		"lower reconnect":                         func(b *adapter.Binding) { b.ReconnectGeneration = 3 },
		"lower reconnect, other timebase":         func(b *adapter.Binding) { b.ReconnectGeneration = 3; b.Timebase.Numer = 125 },
		"lower epoch, other display":              func(b *adapter.Binding) { b.SourceEpoch = math.MinInt64; b.PrimaryDisplayID = 2 },
		"lower reconnect, other display and base": func(b *adapter.Binding) { b.ReconnectGeneration = 0; b.PrimaryDisplayID, b.Timebase.Denom = 2, 3 },
	} {
		b := l.binding
		edit(&b)
		l.expectNothingChanged(func() {
			if changed, err := l.Bind(b, l.hostNs); changed || !errors.Is(err, p95.ErrRetrograde) {
				t.Errorf("%s: got %t, %v, want ErrRetrograde", name, changed, err)
			}
		})
	}
	l.frame()
	l.expect(outcome{p95.Valid, 7, 2, "foreground"})

	locked(l)
	b := l.binding
	b.SourceEpoch = 0
	l.Bind(b, l.hostNs)
	l.expect(outcome{p95.Overflow, 0, 2, "overflow"})
}

func TestTimebaseBelowOneIsRefused(t *testing.T) {
	for _, timebase := range []adapter.Timebase{{}, {Numer: 125}, {Denom: 3}, {Numer: -125, Denom: -3}, {Numer: 0, Denom: 1}, {Numer: 1, Denom: math.MinInt64}} {
		l := newLab(t)
		l.frames(6)
		b := l.binding
		b.Target.PID++ // another target does not make it right
		b.Timebase = timebase
		l.expectNothingChanged(func() {
			if changed, err := l.Bind(b, l.hostNs); changed || !errors.Is(err, p95.ErrTimebase) {
				t.Errorf("%v: got %t, %v, want ErrTimebase", timebase, changed, err)
			}
		})

		first := unboundLab(t, true)
		if changed, err := first.Bind(b, l.hostNs); changed || !errors.Is(err, p95.ErrTimebase) {
			t.Errorf("first bind with %v: got %t, %v, want ErrTimebase", timebase, changed, err)
		}
		first.expect(outcome{p95.NoTarget, 0, 0, ""})
	}
}

func TestBindOfWhatIsBoundChangesNothing(t *testing.T) {
	l := newLab(t)
	l.frames(6)
	l.expectNothingChanged(func() {
		if changed, err := l.Bind(l.binding, l.hostNs); changed || err != nil {
			t.Errorf("got %t, %v, want no change and no error", changed, err)
		}
	})
}

func TestForegroundChangeClearsAtOnceAndLiftsTheLock(t *testing.T) {
	l := newLab(t)
	l.frames(6)
	// Away and back with no publication in between.
	l.SetForeground(false, l.hostNs+1)
	l.SetForeground(true, l.hostNs+2)
	r := l.publishAt(l.hostNs + 3)
	l.expectOf(r, outcome{p95.Warmup, 0, 4, "foreground"})
	if want := (p95.Clear{Reason: "foreground", HostNs: is(l.hostNs + 2), Known: true}); r.LastClear != want {
		t.Errorf("last clear: got %+v, want %+v", r.LastClear, want)
	}
	if r.LastRawSequence != is(6) {
		t.Errorf("order mark: got %v, want 6", r.LastRawSequence)
	}

	l = newLab(t)
	locked(l)
	l.SetForeground(false, l.hostNs)
	l.expect(outcome{p95.Background, 0, 3, "background"})
	l.SetForeground(true, l.hostNs)
	l.expect(outcome{p95.Warmup, 0, 4, "foreground"})
}

func TestForegroundSaidAgainChangesNothing(t *testing.T) {
	l := newLab(t)
	l.frames(6)
	l.expectNothingChanged(func() { l.SetForeground(true, l.hostNs) })
	locked(l)
	l.expectNothingChanged(func() { l.SetForeground(true, l.hostNs) })
	l.SetForeground(false, l.hostNs)
	l.expectNothingChanged(func() { l.SetForeground(false, l.hostNs) })
}

func TestForegroundFirstWordIsAChange(t *testing.T) {
	for _, inForeground := range []bool{false, true} {
		l := unboundLab(t, true)
		l.bind(l.binding)
		l.expect(outcome{p95.Background, 0, 1, "bind"}) // unknown counts as background
		l.SetForeground(inForeground, l.hostNs)
		want := outcome{p95.Background, 0, 2, "background"}
		if inForeground {
			want = outcome{p95.Warmup, 0, 2, "foreground"}
		}
		l.expect(want)
	}
}

func TestForegroundBeforeTheFirstBindIsForgotten(t *testing.T) {
	l := unboundLab(t, true)
	l.SetForeground(true, l.hostNs)
	l.bind(l.binding)
	l.expect(outcome{p95.Background, 0, 1, "bind"})
}

func TestForegroundIsUnknownAfterAnotherTarget(t *testing.T) {
	l := newLab(t)
	l.frames(6)
	rebound(func(b *adapter.Binding) { b.Target.PID++ })(l)
	l.frames(6)
	l.expect(outcome{p95.Background, 6, 3, "target"})
	l.SetForeground(true, l.hostNs)
	l.expect(outcome{p95.Warmup, 0, 4, "foreground"})
}

func TestGapClearsAndOpensASegmentAndKeepsMarksAndLock(t *testing.T) {
	l := newLab(t)
	l.frames(6)
	l.Gap(is(l.hostNs + 5))
	r := l.publishAt(l.hostNs + 6)
	l.expectOf(r, outcome{p95.Warmup, 0, 3, "source-gap"})
	if want := (p95.Clear{Reason: "source-gap", HostNs: is(l.hostNs + 5), Known: true}); r.LastClear != want {
		t.Errorf("last clear: got %+v, want %+v", r.LastClear, want)
	}
	if r.LastRawSequence != is(6) {
		t.Errorf("order mark: got %v, want 6", r.LastRawSequence)
	}
	l.frames(5)
	l.expect(outcome{p95.Valid, 5, 3, "source-gap"})

	locked(l)
	l.Gap(is(l.hostNs))
	l.expect(outcome{p95.Overflow, 0, 4, "source-gap"})
}

func TestGapOfALineThatCouldNotBeReadHasNoHostTime(t *testing.T) {
	l := newLab(t)
	l.frames(6)
	l.Gap(null())
	if got, want := l.publish().LastClear, (p95.Clear{Reason: "source-gap", Known: true}); got != want {
		t.Errorf("last clear: got %+v, want %+v", got, want)
	}
}

func TestGapBeforeTheFirstBindIsNothing(t *testing.T) {
	l := unboundLab(t, true)
	l.Gap(is(l.hostNs))
	l.expect(outcome{p95.NoTarget, 0, 0, ""})
	l.bind(l.binding)
	l.expect(outcome{p95.Background, 0, 1, "bind"})
}

func TestNothingButTheNamedEventsLiftsTheLock(t *testing.T) {
	l := newLab(t)
	locked(l)
	wrong := l.binding
	wrong.SourceEpoch = 0
	for name, event := range map[string]func(){
		"a good record":             func() { l.frame() },
		"a record of another epoch": func() { l.frame(func(r *adapter.Record) { r.SourceEpoch = 2 }) },
		"a record of another pid":   func() { l.frame(func(r *adapter.Record) { r.Target.PID = 1 }) },
		"a record of no contract":   func() { l.frame(func(r *adapter.Record) { r.Source = adapter.Source{} }) },
		"a discontinuity":           func() { l.frame(withQuality(adapter.QualityDiscontinuity)) },
		"a frame 20 s later":        func() { l.endMach += 20 * second; l.hostNs += 20 * second; l.frame() },
		"the same bind":             func() { l.Bind(l.binding, l.hostNs) },
		"a refused bind":            func() { l.Bind(wrong, l.hostNs) },
		"a clock bridge":            func() { l.Bridge(p95.ClockBridge{HasContinuous: true, Timebase: adapter.Timebase{Numer: 1, Denom: 1}}) },
		"the same foreground":       func() { l.SetForeground(true, l.hostNs) },
		"a gap":                     func() { l.Gap(is(l.hostNs)) },
		"another display": func() {
			rebound(func(b *adapter.Binding) { b.PrimaryDisplayID = 2 })(l)
			rebound(func(b *adapter.Binding) { b.PrimaryDisplayID = 1 })(l)
		},
	} {
		event()
		if r := l.publish(); r.Quality != p95.Overflow || r.N != is(0) {
			t.Errorf("%s: got %s with n = %d, want overflow", name, r.Quality, r.N.N)
		}
	}
}

// locked overflows the window.
func locked(l *lab) {
	l.t.Helper()
	segment := l.publish().Segment
	overflow(l)
	l.expect(outcome{p95.Overflow, 0, segment, "overflow"})
}

func overflow(l *lab) {
	for range 4097 {
		l.endMach += 1_000_000 - frameNs
		l.frame()
	}
}
