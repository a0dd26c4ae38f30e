package capture

import (
	"testing"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/p95"
)

func TestOrderTakesAJumpForALossOnlyAfterAStretchWithoutOne(t *testing.T) {
	type step struct {
		id       uint32
		lost     int64
		repeated bool
	}
	for name, steps := range map[string][]step{
		"identifiers that do not follow one another from the start say nothing": {{5, 0, false}, {9, 0, false}, {20, 0, false}, {21, 0, false}},
		"a jump after eight that did": {{7, 0, false}, {8, 0, false}, {9, 0, false}, {10, 0, false}, {11, 0, false}, {12, 0, false}, {13, 0, false},
			{14, 0, false}, {15, 0, false}, {18, 2, false}},
		"a jump after seven that did": {{7, 0, false}, {8, 0, false}, {9, 0, false}, {10, 0, false}, {11, 0, false}, {12, 0, false}, {13, 0, false},
			{14, 0, false}, {18, 0, false}},
		"the same one again": {{3, 0, false}, {3, 0, true}, {4, 0, false}},
		"around the end of the numbers": {{0xfffffffa, 0, false}, {0xfffffffb, 0, false}, {0xfffffffc, 0, false}, {0xfffffffd, 0, false}, {0xfffffffe, 0, false},
			{0xffffffff, 0, false}, {0, 0, false}, {1, 0, false}, {2, 0, false}, {4, 1, false}},
		"a step back is no loss": {{7, 0, false}, {8, 0, false}, {9, 0, false}, {10, 0, false}, {11, 0, false}, {12, 0, false}, {13, 0, false},
			{14, 0, false}, {15, 0, false}, {11, 0, false}},
	} {
		t.Run(name, func(t *testing.T) {
			var o order
			for i, s := range steps {
				if lost, repeated := o.next(s.id); lost != s.lost || repeated != s.repeated {
					t.Errorf("step %d, identifier %d: lost %d, repeated %v; want %d, %v", i, s.id, lost, repeated, s.lost, s.repeated)
				}
			}
		})
	}
}

func clocks(hostNs, continuous, absolute int64) p95.ClockBridge {
	return p95.ClockBridge{HostSendNs: hostNs, HostReceiveNs: hostNs + 1_000_000, DeviceContinuousMach: continuous, HasContinuous: continuous > 0,
		DeviceAbsoluteMach: absolute, Timebase: adapter.Timebase{Numer: 125, Denom: 3}}
}

// 24,000 ticks are a millisecond at 125/3.
const second = 24_000_000

func TestAConnectionIsAnotherEpochOnlyAfterARestart(t *testing.T) {
	for name, c := range map[string]struct {
		before, after p95.ClockBridge
		restarted     bool
	}{
		"ten seconds passed on both":                        {clocks(100e9, 5000*second, 900*second), clocks(110e9, 5010*second, 910*second), false},
		"the phone slept: only the continuous clock moved":  {clocks(100e9, 5000*second, 900*second), clocks(110e9, 5010*second, 900*second), false},
		"the phone restarted and its clock is behind":       {clocks(100e9, 5000*second, 900*second), clocks(160e9, 30*second, 30*second), true},
		"it had just started, and has run longer than then": {clocks(100e9, 20*second, 20*second), clocks(200e9, 60*second, 60*second), true},
		"2.0 s behind is within the slack":                  {clocks(100e9, 5000*second, 1), clocks(110e9-1_000_000, 5008*second, 1), false},
		"one tick more is not":                              {clocks(100e9, 5000*second, 1), clocks(110e9-1_000_000, 5008*second-1, 1), true},
		"no continuous clock, awake all the time":           {clocks(100e9, 0, 900*second), clocks(110e9, 0, 910*second), false},
		"no continuous clock, and asleep: cannot be told":   {clocks(100e9, 0, 900*second), clocks(110e9, 0, 901*second), true},
		"no continuous clock, restarted":                    {clocks(100e9, 0, 900*second), clocks(160e9, 0, 30*second), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := restarted(c.before, c.after); got != c.restarted {
				t.Errorf("restarted = %v, want %v", got, c.restarted)
			}
		})
	}
}

func TestLineageCountsEpochsReconnectsAndLivesOfTheApp(t *testing.T) {
	var l lineage
	check := func(what string, b adapter.Binding, epoch, reconnect, generation int64) {
		t.Helper()
		if b.SourceEpoch != epoch || b.ReconnectGeneration != reconnect || b.Target.Generation != generation {
			t.Errorf("%s: epoch %d, reconnect %d, generation %d; want %d, %d, %d", what, b.SourceEpoch, b.ReconnectGeneration, b.Target.Generation, epoch, reconnect, generation)
		}
	}
	l.connected(clocks(100e9, 5000*second, 1))
	check("first connection", l.app("a", 10), 1, 0, 1)
	check("the same process again", l.app("a", 10), 1, 0, 1)
	check("cable back", l.connected(clocks(110e9, 5010*second, 1)), 1, 1, 1)
	check("tap set up again", l.again(), 1, 2, 1)
	check("relaunched", l.app("a", 11), 1, 2, 2)
	check("phone restarted", l.connected(clocks(200e9, 40*second, 1)), 2, 0, 2)
	check("relaunched with the pid of an earlier life", l.app("a", 10), 2, 0, 3)
	other := clocks(210e9, 50*second, 1)
	other.Timebase = adapter.Timebase{Numer: 1, Denom: 1}
	check("another timebase", l.connected(other), 3, 0, 3)
}
