package lab27_test

import (
	"testing"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/lab27"
	"github.com/framebridge/framebridge/p95"
)

func TestOffsetIsMeasuredFromTheMiddleOfTheBracket(t *testing.T) {
	for _, c := range []struct {
		name          string
		bracket       lab27.Bracket
		timebase      adapter.Timebase
		offset, width int64
	}{
		// A real phone's two clocks: 177,678,871,881 ticks apart, 7,403,286,328,375 ns.
		{"a real phone", lab27.Bracket{AbsoluteBeforeMach: 1_536_005_260_806, ContinuousMach: 1_713_684_132_688, AbsoluteAfterMach: 1_536_005_260_808}, timebase, 7_403_286_328_375, 84},
		{"half a tick", lab27.Bracket{AbsoluteBeforeMach: 10, ContinuousMach: 20, AbsoluteAfterMach: 11}, timebase, 395, 42},             // 9.5 ticks = 395.83 ns; a tick is 41.67
		{"never slept, read late", lab27.Bracket{AbsoluteBeforeMach: 10, ContinuousMach: 10, AbsoluteAfterMach: 13}, timebase, -63, 125}, // -1.5 ticks = -62.5 ns
		{"ns ticks", lab27.Bracket{AbsoluteBeforeMach: 1000, ContinuousMach: 5500, AbsoluteAfterMach: 2000}, adapter.Timebase{Numer: 1, Denom: 1}, 4000, 1000},
	} {
		if got := c.bracket.OffsetNs(c.timebase); got != c.offset {
			t.Errorf("%s: offset %d, want %d", c.name, got, c.offset)
		}
		if got := c.bracket.WidthNs(c.timebase); got != c.width {
			t.Errorf("%s: width %d, want %d", c.name, got, c.width)
		}
	}
}

// A session's clock bridges are a second, wider witness: reading both clocks lies within the exchange.
func TestClockBridgesMustNotContradictTheBrackets(t *testing.T) {
	bridge := func(absolute, slept int64, widthNs int64) p95.ClockBridge {
		return p95.ClockBridge{HostSendNs: 1000, HostReceiveNs: 1000 + widthNs, DeviceAbsoluteMach: absolute, DeviceContinuousMach: absolute + slept, HasContinuous: true, Timebase: timebase}
	}
	const within, exchange = bootMach + 1_000_000, 2_000_000 // ns
	for _, c := range []struct {
		name                   string
		bridge                 p95.ClockBridge
		bridges, contradicting int
	}{
		{"the same offset", bridge(within, sleptTicks, exchange), 1, 0},
		{"apart by less than the exchange took", bridge(within, sleptTicks+48_000, exchange), 1, 0}, // 2 ms
		{"apart by more", bridge(within, sleptTicks+48_100, exchange), 1, 1},
		{"before the run, when the phone had slept less", bridge(bootMach-1, sleptTicks-24_000_000, exchange), 0, 0},
		{"after the run", bridge(bootMach+1_000_000_000_000, sleptTicks, exchange), 0, 0},
		{"without continuous time", p95.ClockBridge{DeviceAbsoluteMach: within, Timebase: timebase}, 0, 0},
		{"another timebase", p95.ClockBridge{DeviceAbsoluteMach: within, DeviceContinuousMach: within + sleptTicks, HasContinuous: true, Timebase: adapter.Timebase{Numer: 1, Denom: 1}}, 1, 1},
		{"a time that no phone can say", p95.ClockBridge{DeviceAbsoluteMach: within, DeviceContinuousMach: 1<<63 - 1, HasContinuous: true, Timebase: timebase}, 1, 1},
	} {
		f := newFixture(t, lab27.PurposeStudy, 100)
		m, err := lab27.Qualify(lab27.MatchInput{Report: f.report(), Frames: f.frames, PrimaryDisplayID: 1, Timebase: timebase, Bridges: []p95.ClockBridge{c.bridge}})
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Verdict.Clock; got.Bridges != c.bridges || got.BridgesContradicting != c.contradicting || m.Verdict.Qualified != (c.contradicting == 0) {
			t.Errorf("%s: %+v, %s %v", c.name, got, m.Verdict.Verdict, m.Verdict.Reasons)
		}
	}
}
