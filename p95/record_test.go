package p95_test

import (
	"math"
	"testing"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/p95"
)

// The table "What happens to a record", line by line. Labs begin with segment 2: bind opened the first, the first word about the
// foreground the second.

func TestRecordLine1NoTargetHasNoEffect(t *testing.T) {
	l := unboundLab(t, true)
	l.frames(6)
	l.bind(l.binding)
	l.SetForeground(true, l.hostNs)
	l.expect(outcome{p95.Warmup, 0, 2, "foreground"})
	if r := l.publish(); r.LastRawSequence != null() {
		t.Errorf("a record before the bind raised the order mark to %v", r.LastRawSequence)
	}
}

func TestRecordLine1AnotherDisplayNeitherClearsNorCountsNorExtendsFreshness(t *testing.T) {
	l := newLab(t)
	l.frames(6)
	arrived := l.hostNs
	l.expectNothingChanged(func() {
		l.frame(func(r *adapter.Record) { r.DisplayID = 2 })
		l.frame(func(r *adapter.Record) { r.DisplayID = 2; r.Policy = "" })
		l.frame(func(r *adapter.Record) { r.DisplayID = 2 }, withQuality(adapter.QualityDiscontinuity))
		l.frame(func(r *adapter.Record) { r.DisplayID = -1; r.Schema = "else" })
		l.hostNs = arrived
	})
	l.expectOf(l.publishAt(arrived+second+1), outcome{p95.StaleSource, 6, 2, "foreground"})
}

func TestRecordLine1MissingDisplayIsZero(t *testing.T) {
	l := newLab(t)
	l.frames(6)
	l.frame(without(adapter.HasDisplayID), func(r *adapter.Record) { r.DisplayID = 0 })
	l.expect(outcome{p95.Valid, 6, 2, "foreground"}) // display 0 is not the primary one

	zero := unboundLab(t, true)
	zero.binding.PrimaryDisplayID = 0
	zero.bind(zero.binding)
	zero.SetForeground(true, hostStart+1)
	zero.frames(6)
	zero.expect(outcome{p95.Valid, 6, 2, "foreground"})
	zero.frame(without(adapter.HasDisplayID))
	zero.expect(outcome{p95.Warmup, 0, 2, "identity"})
}

func TestRecordLine1FloodOnASecondDisplayLeavesThePrimaryAlone(t *testing.T) {
	l := newLab(t)
	for range 100 {
		l.frame()
		for i := range int64(60) {
			l.frame(func(r *adapter.Record) { r.DisplayID = 2; r.HostNs -= frameNs - 1 - i })
			l.hostNs -= frameNs
			l.endMach -= frameNs
		}
	}
	l.expect(outcome{p95.Valid, 100, 2, "foreground"})
}

func TestRecordLine2LockedTakesNothingButTheMark(t *testing.T) {
	l := newLab(t)
	locked(l)
	seq := l.publish().LastRawSequence
	for _, edit := range []func(*adapter.Record){
		func(*adapter.Record) {},
		func(r *adapter.Record) { r.Schema = "else" },
		func(r *adapter.Record) { r.SourceEpoch = 2 },
		withQuality(adapter.QualityDuplicate),
		func(r *adapter.Record) { r.HostNs = 1 },
		withQuality(adapter.QualityNoPredecessor),
		func(r *adapter.Record) { r.FrameTimeNs++ },
	} {
		l.frame(edit)
		l.expect(outcome{p95.Overflow, 0, 2, "overflow"})
	}
	if r := l.publish(); r.LastRawSequence != seq {
		t.Errorf("order mark: got %v, want %v", r.LastRawSequence, seq)
	}
	l.frame(func(r *adapter.Record) { r.Policy = "" })
	l.expect(outcome{p95.Overflow, 0, 2, "overflow"})
	// Overflow hides it until the lock is lifted by something that does not forget the mark.
	l.SetForeground(false, l.hostNs)
	l.SetForeground(true, l.hostNs)
	l.expect(outcome{p95.PolicyAbsent, 0, 4, "foreground"})
}

func TestRecordLine3NoOrAnotherPolicyClears(t *testing.T) {
	for _, policy := range []string{"", "p95-window-segment.v1", "p95-window-segment.v2 "} {
		l := newLab(t)
		l.frames(6)
		r := l.frame(func(r *adapter.Record) { r.Policy = policy })
		got := l.publish()
		l.expectOf(got, outcome{p95.PolicyAbsent, 0, 2, "policy"})
		if want := (p95.Clear{Reason: "policy", RawSequence: is(7), HostNs: is(r.HostNs), Known: true}); got.LastClear != want {
			t.Errorf("last clear: got %+v, want %+v", got.LastClear, want)
		}
		if got.LastRawSequence != is(6) {
			t.Errorf("order mark: got %v, want 6", got.LastRawSequence)
		}
	}
}

func TestRecordLine4AnotherSourceContractClears(t *testing.T) {
	edits := map[string]func(*adapter.Record){
		"schema": func(r *adapter.Record) { r.Schema = "perfowl.display-frame-event/1" },
		"service": func(r *adapter.Record) {
			r.Source.Service = "com.apple.instruments.server.services.coreprofilesessiontap"
		},
		"selector":        func(r *adapter.Record) { r.Source.Selector = "" },
		"adapter id":      func(r *adapter.Record) { r.Source.AdapterID = "xctrace.os-signpost-interval.frame-lifetime" },
		"adapter version": func(r *adapter.Record) { r.Source.AdapterVersion = 1 },
		"scope":           func(r *adapter.Record) { r.Source.Scope = "process" },
		"raw unit":        func(r *adapter.Record) { r.Source.RawUnit = "surface" },
		"no source":       func(r *adapter.Record) { r.Source = adapter.Source{}; r.Fields &^= adapter.HasSource },
		"not decoded":     func(r *adapter.Record) { r.Decoded = false },
		"not verified":    func(r *adapter.Record) { r.Verified = false },
	}
	for name, edit := range edits {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.frames(6)
			l.frame(edit)
			l.expect(outcome{p95.Warmup, 0, 2, "contract"})
		})
	}
}

func TestRecordLine4EveryKnownSourceContractCounts(t *testing.T) {
	for _, source := range []adapter.Source{adapter.SourceGoIOS, adapter.SourcePMD3, adapter.SourceXctrace} {
		l := newLab(t)
		source.Channel = 7 // no part of a contract
		for range 6 {
			l.frame(func(r *adapter.Record) { r.Source = source })
		}
		l.expect(outcome{p95.Valid, 6, 2, "foreground"})
	}
}

func TestRecordLine5AnotherIdentityClears(t *testing.T) {
	edits := map[string]func(*adapter.Record){
		"bundle":               func(r *adapter.Record) { r.Target.BundleID = "com.example.other" },
		"pid":                  func(r *adapter.Record) { r.Target.PID = 432 },
		"generation":           func(r *adapter.Record) { r.Target.Generation = 2 },
		"epoch above":          func(r *adapter.Record) { r.SourceEpoch = 2 },
		"epoch below":          func(r *adapter.Record) { r.SourceEpoch = 0 },
		"reconnect":            func(r *adapter.Record) { r.ReconnectGeneration = 1 },
		"timebase numer":       func(r *adapter.Record) { r.Timebase.Numer = 125 },
		"timebase denom":       func(r *adapter.Record) { r.Timebase.Denom = 3 },
		"no target":            without(adapter.HasTarget),
		"no epoch":             without(adapter.HasSourceEpoch),
		"no reconnect":         without(adapter.HasReconnectGeneration),
		"no timebase":          without(adapter.HasTimebase),
		"no rawSequence":       without(adapter.HasRawSequence),
		"no hostNs":            without(adapter.HasHostNs),
		"no quality":           func(r *adapter.Record) { r.Fields &^= adapter.HasQuality; r.Quality = adapter.QualityUnknown },
		"no swapId":            without(adapter.HasSwapID),
		"no frameSeed":         without(adapter.HasFrameSeed),
		"no beginMach":         without(adapter.HasBeginMach),
		"no endMach":           without(adapter.HasEndMach),
		"no previousMach":      without(adapter.HasPreviousMach),
		"no refresh interval":  without(adapter.HasRefreshIntervalMach),
		"no bufferCount":       without(adapter.HasBufferCount),
		"no skipRequest":       without(adapter.HasSkipRequest),
		"no presentationNs":    without(adapter.HasPresentationNs),
		"same timebase halved": func(r *adapter.Record) { r.Timebase = adapter.Timebase{Numer: 2, Denom: 2} },
	}
	for name, edit := range edits {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.frames(6)
			l.frame(edit)
			l.expect(outcome{p95.Warmup, 0, 2, "identity"})
		})
	}
}

func TestRecordLine5ClearSaysWhatTheRecordHas(t *testing.T) {
	l := newLab(t)
	l.frames(6)
	r := l.frame(without(adapter.HasRawSequence))
	if got, want := l.publish().LastClear, (p95.Clear{Reason: "identity", RawSequence: null(), HostNs: is(r.HostNs), Known: true}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	l.frame(without(adapter.HasHostNs))
	if got, want := l.publish().LastClear, (p95.Clear{Reason: "identity", RawSequence: is(8), HostNs: null(), Known: true}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestRecordLine5NativeIntegersAreAskedOfValidRecordsAlone(t *testing.T) {
	l := newLab(t)
	l.frames(6)
	l.frame(withQuality(adapter.QualityUnsupportedSchema), without(adapter.HasNatives|adapter.HasPresentationNs))
	l.expect(outcome{p95.Warmup, 0, 3, "unsupported-schema"})
}

func TestRecordLine5SurfaceIsNoPartOfTheIdentity(t *testing.T) {
	l := newLab(t)
	l.frames(5)
	l.frame(without(adapter.HasSurfaceID))
	l.expect(outcome{p95.Valid, 6, 2, "foreground"})
}

func TestRecordLine6DuplicateAndOutOfOrderClearAndKeepMarksAndSegment(t *testing.T) {
	for _, q := range []adapter.Quality{adapter.QualityDuplicate, adapter.QualityOutOfOrder} {
		l := newLab(t)
		l.frames(6)
		l.frame(withQuality(q))
		r := l.publish()
		l.expectOf(r, outcome{p95.Warmup, 0, 2, p95.ClearReason(q.String())})
		if r.LastRawSequence != is(6) {
			t.Errorf("%s: order mark: got %v, want 6", q, r.LastRawSequence)
		}
		// The same numbers again, now valid, are above the marks.
		l.seq, l.hostNs, l.endMach = l.seq-1, l.hostNs-frameNs, l.endMach-frameNs
		l.frames(5)
		l.expect(outcome{p95.Valid, 5, 2, p95.ClearReason(q.String())})
	}
}

func TestRecordLine7NotAboveAnOrderMarkClears(t *testing.T) {
	edits := map[string]func(r *adapter.Record, l *lab){
		"rawSequence equal":    func(r *adapter.Record, l *lab) { r.RawSequence-- },
		"rawSequence below":    func(r *adapter.Record, l *lab) { r.RawSequence = 1 },
		"rawSequence negative": func(r *adapter.Record, l *lab) { r.RawSequence = math.MinInt64 },
		"hostNs equal":         func(r *adapter.Record, l *lab) { r.HostNs -= frameNs },
		"hostNs below":         func(r *adapter.Record, l *lab) { r.HostNs -= frameNs + 1 },
		"endMach equal":        func(r *adapter.Record, l *lab) { at(r.EndMach-frameNs, frameNs)(r) },
		"endMach equal alone":  func(r *adapter.Record, l *lab) { r.EndMach -= frameNs },
		"endMach below alone":  func(r *adapter.Record, l *lab) { r.EndMach -= frameNs + 1 },
		"presentationNs equal": func(r *adapter.Record, l *lab) { r.PresentationNs -= frameNs },
		"presentationNs below": func(r *adapter.Record, l *lab) { r.PresentationNs = -1 },
	}
	for name, edit := range edits {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.frames(6)
			l.frame(func(r *adapter.Record) { edit(r, l) })
			r := l.publish()
			l.expectOf(r, outcome{p95.Warmup, 0, 2, "order"})
			if r.LastRawSequence != is(6) {
				t.Errorf("order mark: got %v, want 6", r.LastRawSequence)
			}
		})
	}
}

func TestRecordLine7OneAboveEveryMarkIsEnough(t *testing.T) {
	l := newLab(t)
	l.frames(6)
	l.frame(func(r *adapter.Record) {
		at(r.EndMach-frameNs+1, frameNs)(r)
		r.HostNs += 1 - frameNs
	})
	l.expect(outcome{p95.Valid, 7, 2, "foreground"})
}

func TestRecordLine7WhatIsMissingIsNotCompared(t *testing.T) {
	l := newLab(t)
	l.frames(6)
	l.frame(withQuality(adapter.QualityUnsupportedSchema), without(adapter.HasEndMach|adapter.HasPresentationNs), func(r *adapter.Record) {
		r.EndMach, r.PresentationNs = 0, 0
	})
	l.expect(outcome{p95.Warmup, 0, 3, "unsupported-schema"})
	l.frames(5) // and 0 did not become a mark, nor did the marks sink
	l.expect(outcome{p95.Valid, 5, 3, "unsupported-schema"})
	l.frame(withQuality(adapter.QualitySourceGap), func(r *adapter.Record) { r.EndMach = 1 })
	l.expect(outcome{p95.Warmup, 0, 3, "order"})
}

func TestRecordLine8UnknownIntervalsOpenASegmentAndRaiseMarks(t *testing.T) {
	for _, q := range []adapter.Quality{adapter.QualityDiscontinuity, adapter.QualitySourceGap, adapter.QualityNoPredecessor, adapter.QualityUnsupportedSchema} {
		l := newLab(t)
		l.frames(6)
		was := l.frame(withQuality(q))
		r := l.publish()
		l.expectOf(r, outcome{p95.Warmup, 0, 3, p95.ClearReason(q.String())})
		if want := (p95.Clear{Reason: p95.ClearReason(q.String()), RawSequence: is(7), HostNs: is(was.HostNs), Known: true}); r.LastClear != want {
			t.Errorf("%s: last clear: got %+v, want %+v", q, r.LastClear, want)
		}
		if r.LastRawSequence != is(7) {
			t.Errorf("%s: order mark: got %v, want 7", q, r.LastRawSequence)
		}
		l.frame(func(r *adapter.Record) { r.RawSequence = 7 })
		l.expect(outcome{p95.Warmup, 0, 3, "order"})
	}
}

func TestRecordLine8MarksRiseByWhatItSaysUnchecked(t *testing.T) {
	// The figures of a record that is not valid are compared with nothing; its presentationNs is a mark all the same.
	l := newLab(t)
	l.frames(6)
	l.frame(withQuality(adapter.QualityDiscontinuity), func(r *adapter.Record) { r.PresentationNs += 10 * frameNs })
	l.frames(10)
	l.expect(outcome{p95.Warmup, 0, 3, "order"})
	l.frame()
	l.expect(outcome{p95.Warmup, 1, 3, "order"})
}

func TestRecordLine9ForgedFiguresClear(t *testing.T) {
	edits := map[string]func(*adapter.Record){
		"presentationNs one more": func(r *adapter.Record) { r.PresentationNs++ },
		"presentationNs one less": func(r *adapter.Record) { r.PresentationNs-- },
		"frame time one more":     func(r *adapter.Record) { r.FrameTimeNs++ },
		"frame time one less":     func(r *adapter.Record) { r.FrameTimeNs-- },
		"frame time negative":     func(r *adapter.Record) { r.FrameTimeNs = -frameNs },
		"no frame time":           without(adapter.HasFrameTime),
		"too many decimals":       func(r *adapter.Record) { r.InexactFigures = true },
		"a multiple of unknown":   func(r *adapter.Record) { r.Fields |= adapter.HasRefreshMultiple },
		"no multiple": func(r *adapter.Record) {
			r.RefreshIntervalMach = frameNs
		},
		"multiple one more": func(r *adapter.Record) {
			r.RefreshIntervalMach, r.RefreshMultipleMilli = frameNs, 1001
			r.Fields |= adapter.HasRefreshMultiple
		},
		"multiple of a negative interval": func(r *adapter.Record) {
			r.RefreshIntervalMach, r.RefreshMultipleMilli = -frameNs, -1000
			r.Fields |= adapter.HasRefreshMultiple
		},
		"previous 0":        func(r *adapter.Record) { r.PreviousMach = 0; r.FrameTimeNs = r.EndMach },
		"previous negative": func(r *adapter.Record) { r.PreviousMach = -1; r.FrameTimeNs = r.EndMach + 1 },
		"previous smallest": func(r *adapter.Record) { r.PreviousMach = math.MinInt64 },
		"end at previous":   func(r *adapter.Record) { r.PreviousMach = r.EndMach; r.FrameTimeNs = 0 },
		"end below previous": func(r *adapter.Record) {
			r.PreviousMach = r.EndMach + 1
			r.FrameTimeNs = -1
		},
		"interval 1.1 s and 1 ns": func(r *adapter.Record) { at(r.EndMach, 1_100_000_001)(r) },
	}
	for name, edit := range edits {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.frames(6)
			l.frame(edit)
			r := l.publish()
			l.expectOf(r, outcome{p95.Warmup, 0, 2, "figures"})
			if r.LastRawSequence != is(6) {
				t.Errorf("order mark: got %v, want 6", r.LastRawSequence)
			}
			if r.LastPresentationNs.Known || r.LastHostNs.Known {
				t.Error("a clear forgets P and H")
			}
		})
	}
}

func TestRecordLine9IntervalOfExactly1100MillisecondsCounts(t *testing.T) {
	l := newLab(t)
	l.frames(4)
	l.frame(func(r *adapter.Record) { at(r.EndMach, 1_100_000_000)(r) })
	r := l.publish()
	l.expectOf(r, outcome{p95.Valid, 5, 2, "foreground"})
	if r.ValueNs != is(1_100_000_000) {
		t.Errorf("value: got %v, want 1100000000", r.ValueNs)
	}
}

func TestRecordLine9FiguresOfTheContractsExample(t *testing.T) {
	// The raw record of raw-record.md, and its numbers: 199,999 ticks at 125/3 are 8,333,291.67 ns.
	example := func(r *adapter.Record) {
		r.BeginMach, r.EndMach, r.PreviousMach = 59827756514418, 59827757037126, 59827756837127
		r.RefreshIntervalMach = 199999
		r.PresentationNs, r.FrameTimeNs, r.RefreshMultipleMilli = 2492823209880250, 8_333_291, 1000
		r.Fields |= adapter.HasRefreshMultiple
	}
	l := newLab(t)
	rebound(func(b *adapter.Binding) { b.Timebase = adapter.Timebase{Numer: 125, Denom: 3} })(l)
	l.frame(example)
	l.expect(outcome{p95.Warmup, 1, 3, "timebase"})

	// 400,000 ticks are 16,666,666 ns, never 16,666,667.
	later := func(frameTimeNs int64) func(*adapter.Record) {
		return func(r *adapter.Record) {
			example(r)
			r.EndMach += 400_000
			r.PreviousMach = r.EndMach - 400_000
			r.RefreshIntervalMach = 200_000
			r.PresentationNs, r.FrameTimeNs, r.RefreshMultipleMilli = 2492823226546916, frameTimeNs, 2000 // 59827757437126 * 125 / 3 = …916.67
		}
	}
	l.frame(later(16_666_666))
	l.expect(outcome{p95.Warmup, 2, 3, "timebase"})
	l.frame(later(16_666_667))
	l.expect(outcome{p95.Warmup, 0, 3, "order"}) // the same end again
	l.frame(func(r *adapter.Record) {
		later(16_666_667)(r)
		r.EndMach, r.PreviousMach, r.PresentationNs = r.EndMach+3, r.PreviousMach+3, r.PresentationNs+125
	})
	l.expect(outcome{p95.Warmup, 0, 3, "figures"})
}

func TestRecordLine9MultipleIsRoundedHalfToEven(t *testing.T) {
	// interval * 1000 / 10,000 in thousandths: 5 -> 0.5, 15 -> 1.5, 25 -> 2.5, 26 -> 2.6.
	for _, c := range []struct{ interval, multipleMilli int64 }{{5, 0}, {15, 2}, {25, 2}, {26, 3}, {24, 2}, {10_000, 1000}} {
		l := newLab(t)
		l.frame(func(r *adapter.Record) {
			at(r.EndMach, c.interval)(r)
			r.RefreshIntervalMach, r.RefreshMultipleMilli = 10_000, c.multipleMilli
			r.Fields |= adapter.HasRefreshMultiple
		})
		l.expect(outcome{p95.Warmup, 1, 2, "foreground"})
	}
}

func TestRecordLine9PresentationOutsideInt64Clears(t *testing.T) {
	l := newLab(t)
	rebound(func(b *adapter.Binding) { b.Timebase = adapter.Timebase{Numer: 2, Denom: 1} })(l)
	l.frame(func(r *adapter.Record) {
		r.EndMach, r.PreviousMach = 1<<62, 1<<62-10
		r.PresentationNs, r.FrameTimeNs = math.MinInt64, 20 // what a product of 64 bits would give
	})
	l.expect(outcome{p95.Warmup, 0, 3, "figures"})
}

func TestRecordLine9MultipleOutsideInt64Clears(t *testing.T) {
	l := newLab(t)
	rebound(func(b *adapter.Binding) { b.Timebase = adapter.Timebase{Numer: 1, Denom: 1 << 40} })(l)
	l.frame(func(r *adapter.Record) {
		r.EndMach, r.PreviousMach, r.RefreshIntervalMach = 1<<62+1, 1, 1
		r.PresentationNs, r.FrameTimeNs, r.RefreshMultipleMilli = 1<<22, 1<<22, 0 // 2^62 * 1000, cut to 64 bits
		r.Fields |= adapter.HasRefreshMultiple
	})
	l.expect(outcome{p95.Warmup, 0, 3, "figures"})
}

func TestRecordLine10ForgetsWhatIsTenSecondsOlderThanP(t *testing.T) {
	l := newLab(t)
	l.frame(at(100*second, frameNs))
	l.frame(at(100*second+1, frameNs))
	l.frame(at(110*second, frameNs)) // P - 10 s is the first one's presentation: forgotten; the second one stays
	r := l.publish()
	l.expectOf(r, outcome{p95.Warmup, 2, 2, "foreground"})
	if r.FirstSample != (p95.Sample{RawSequence: 2, PresentationNs: 100*second + 1, Known: true}) {
		t.Errorf("first sample: got %+v", r.FirstSample)
	}
}

func TestRecordLine10HoldsExactly4096Values(t *testing.T) {
	l := newLab(t)
	for i := range int64(4096) {
		l.frame(at(deviceStart+i*1_000_000, frameNs))
	}
	l.expect(outcome{p95.Valid, 4096, 2, "foreground"})
	was := l.frame(at(deviceStart+4096*1_000_000, frameNs))
	r := l.publish()
	l.expectOf(r, outcome{p95.Overflow, 0, 2, "overflow"})
	if want := (p95.Clear{Reason: "overflow", RawSequence: is(4097), HostNs: is(was.HostNs), Known: true}); r.LastClear != want {
		t.Errorf("last clear: got %+v, want %+v", r.LastClear, want)
	}
	if r.LastRawSequence != is(4097) || r.LastPresentationNs.Known || r.LastHostNs.Known || r.WindowRightNs.Known {
		t.Errorf("marks rise and P and H are forgotten: %+v", r)
	}
}

func TestRecordLine10ForgettingComesBeforeCounting(t *testing.T) {
	l := newLab(t)
	for i := range int64(4096) {
		l.frame(at(100*second+i*1_000_000, frameNs))
	}
	l.frame(at(110*second, frameNs)) // the 4097th, but the first one is 10 s old
	l.expect(outcome{p95.Valid, 4096, 2, "foreground"})
}

// The first line that applies decides: each record offends against two lines.
func TestRecordPrecedence(t *testing.T) {
	otherDisplay := func(r *adapter.Record) { r.DisplayID = 2 }
	noPolicy := func(r *adapter.Record) { r.Policy = "" }
	otherSchema := func(r *adapter.Record) { r.Schema = "" }
	otherEpoch := func(r *adapter.Record) { r.SourceEpoch = 9 }
	duplicate := withQuality(adapter.QualityDuplicate)
	below := func(r *adapter.Record) { r.RawSequence = 0 }
	gap := withQuality(adapter.QualitySourceGap)
	forged := func(r *adapter.Record) { r.PresentationNs++ }
	for _, c := range []struct {
		name  string
		edits []func(*adapter.Record)
		want  outcome
	}{
		{"1 before 3", []func(*adapter.Record){otherDisplay, noPolicy}, outcome{p95.Valid, 6, 2, "foreground"}},
		{"3 before 4", []func(*adapter.Record){noPolicy, otherSchema}, outcome{p95.PolicyAbsent, 0, 2, "policy"}},
		{"4 before 5", []func(*adapter.Record){otherSchema, otherEpoch}, outcome{p95.Warmup, 0, 2, "contract"}},
		{"5 before 6", []func(*adapter.Record){otherEpoch, duplicate}, outcome{p95.Warmup, 0, 2, "identity"}},
		{"5 before 8", []func(*adapter.Record){otherEpoch, gap}, outcome{p95.Warmup, 0, 2, "identity"}},
		{"6 before 7", []func(*adapter.Record){duplicate, below}, outcome{p95.Warmup, 0, 2, "duplicate"}},
		{"7 before 8", []func(*adapter.Record){gap, below}, outcome{p95.Warmup, 0, 2, "order"}},
		{"8 before 9", []func(*adapter.Record){gap, forged}, outcome{p95.Warmup, 0, 3, "source-gap"}},
		{"7 before 9", []func(*adapter.Record){below, forged}, outcome{p95.Warmup, 0, 2, "order"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			l.frames(6)
			l.frame(c.edits...)
			l.expect(c.want)
		})
	}
	t.Run("9 before 10", func(t *testing.T) {
		l := newLab(t)
		for i := range int64(4096) {
			l.frame(at(deviceStart+i*1_000_000, frameNs))
		}
		l.frame(at(deviceStart+4096*1_000_000, frameNs), forged)
		l.expect(outcome{p95.Warmup, 0, 2, "figures"})
	})
}

func TestHugeAndNegativeIntegersNeverCountNorPanic(t *testing.T) {
	fields := map[string]func(r *adapter.Record, n int64){
		"hostNs":      func(r *adapter.Record, n int64) { r.HostNs = n },
		"rawSequence": func(r *adapter.Record, n int64) { r.RawSequence = n },
		"pid":         func(r *adapter.Record, n int64) { r.Target.PID = n },
		"generation":  func(r *adapter.Record, n int64) { r.Target.Generation = n },
		"epoch":       func(r *adapter.Record, n int64) { r.SourceEpoch = n },
		"reconnect":   func(r *adapter.Record, n int64) { r.ReconnectGeneration = n },
		"end":         func(r *adapter.Record, n int64) { r.EndMach = n },
		"previous":    func(r *adapter.Record, n int64) { r.PreviousMach = n },
		"interval":    func(r *adapter.Record, n int64) { r.RefreshIntervalMach = n },
		"numer":       func(r *adapter.Record, n int64) { r.Timebase.Numer = n },
		"denom":       func(r *adapter.Record, n int64) { r.Timebase.Denom = n },
		"presented":   func(r *adapter.Record, n int64) { r.PresentationNs = n },
		"frame time":  func(r *adapter.Record, n int64) { r.FrameTimeNs = n },
		"multiple":    func(r *adapter.Record, n int64) { r.RefreshMultipleMilli = n; r.Fields |= adapter.HasRefreshMultiple },
	}
	for name, set := range fields {
		for _, n := range []int64{math.MinInt64, math.MinInt64 + 1, -1, math.MaxInt64} {
			if n == math.MaxInt64 && (name == "hostNs" || name == "rawSequence") {
				continue // right, if odd
			}
			if n < 0 && name == "interval" {
				continue // not known: right, if odd
			}
			l := newLab(t)
			l.frames(6)
			l.frame(func(r *adapter.Record) { set(r, n) })
			if r := l.publish(); r.Quality != p95.Warmup || r.N != is(0) {
				t.Errorf("%s = %d: got %s with n = %d, want nothing left", name, n, r.Quality, r.N.N)
			}
		}
	}
}

// Five old records replayed after any clear must not make a window: order marks live apart from the values.
func TestReplayedOldRecordsNeverMakeAWindow(t *testing.T) {
	clears := map[string]struct {
		clear  func(l *lab)
		reason p95.ClearReason
	}{
		"policy":             {func(l *lab) { l.frame(func(r *adapter.Record) { r.Policy = "" }) }, "policy"},
		"contract":           {func(l *lab) { l.frame(func(r *adapter.Record) { r.Decoded = false }) }, "contract"},
		"identity":           {func(l *lab) { l.frame(without(adapter.HasTarget)) }, "identity"},
		"duplicate":          {func(l *lab) { l.frame(withQuality(adapter.QualityDuplicate)) }, "duplicate"},
		"out-of-order":       {func(l *lab) { l.frame(withQuality(adapter.QualityOutOfOrder)) }, "out-of-order"},
		"order":              {func(l *lab) { l.frame(func(r *adapter.Record) { r.HostNs = 0 }) }, "order"},
		"discontinuity":      {func(l *lab) { l.frame(withQuality(adapter.QualityDiscontinuity)) }, "discontinuity"},
		"source-gap":         {func(l *lab) { l.frame(withQuality(adapter.QualitySourceGap)) }, "source-gap"},
		"no-predecessor":     {func(l *lab) { l.frame(withQuality(adapter.QualityNoPredecessor)) }, "no-predecessor"},
		"unsupported-schema": {func(l *lab) { l.frame(withQuality(adapter.QualityUnsupportedSchema)) }, "unsupported-schema"},
		"figures":            {func(l *lab) { l.frame(func(r *adapter.Record) { r.FrameTimeNs-- }) }, "figures"},
		"gap event":          {func(l *lab) { l.Gap(is(l.hostNs)) }, "source-gap"},
		"background":         {func(l *lab) { l.SetForeground(false, l.hostNs); l.SetForeground(true, l.hostNs) }, "foreground"},
		"display": {func(l *lab) {
			rebound(func(b *adapter.Binding) { b.PrimaryDisplayID = 2 })(l)
			rebound(func(b *adapter.Binding) { b.PrimaryDisplayID = 1 })(l)
		}, "display"},
	}
	for name, c := range clears {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			var old []adapter.Record
			for range 6 {
				old = append(old, l.frame())
			}
			c.clear(l)
			if r := l.publish(); r.LastClear.Reason != c.reason || r.N != is(0) {
				t.Fatalf("after the clear: %+v", r)
			}
			for i := range old {
				l.Record(&old[i])
			}
			r := l.publish()
			if r.N != is(0) || r.LastClear.Reason != "order" || r.ValueNs.Known {
				t.Errorf("old records made a window: n = %d, last clear %q", r.N.N, r.LastClear.Reason)
			}
		})
	}
}
