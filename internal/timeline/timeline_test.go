package timeline

import (
	"math"
	"testing"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/ledger"
	"github.com/framebridge/framebridge/p95"
)

var timebase = adapter.Timebase{Numer: 125, Denom: 3}

func follow(a *Axis, values ...any) {
	for _, v := range values {
		a.Follow(&ledger.Event{Value: v})
	}
}

func bind(epoch int64) *adapter.Binding {
	return &adapter.Binding{SourceEpoch: epoch, Timebase: timebase}
}

// bridge says that the device's clock was at deviceMach in the middle of 1,000 and 3,000 ns of the host.
func bridge(deviceMach int64) *p95.ClockBridge {
	return &p95.ClockBridge{HostSendNs: 1000, HostReceiveNs: 3000, HasContinuous: true, DeviceContinuousMach: deviceMach, Timebase: timebase}
}

func frame(presentationNs, hostNs int64) *adapter.Record {
	return &adapter.Record{Fields: adapter.HasPresentationNs | adapter.HasHostNs, PresentationNs: presentationNs, HostNs: hostNs}
}

func TestFramesStandWhereTheClockBridgePutsThem(t *testing.T) {
	var a Axis
	follow(&a, bind(1), bridge(24)) // 24 ticks are 1,000 ns: the host is 1,000 ns ahead
	if _, ok := a.HostNs(5000); ok {
		t.Error("a place before the first frame")
	}
	follow(&a, frame(5000, 9000))
	if got, ok := a.HostNs(5000); !ok || got != 6000 {
		t.Errorf("%d, %v, want 6000", got, ok)
	}
	// A later bridge of the epoch moves nothing: distances between frames stay what they are.
	follow(&a, bridge(2400), frame(7000, 20000))
	if got, ok := a.HostNs(7000); !ok || got != 8000 {
		t.Errorf("%d, %v, want 8000", got, ok)
	}
}

func TestWithoutAClockBridgeTheFirstFrameStandsAtItsArrival(t *testing.T) {
	var a Axis
	without := bridge(24)
	without.HasContinuous = false
	follow(&a, bind(1), without, frame(5000, 9000), frame(6000, 9001))
	if got, ok := a.HostNs(6000); !ok || got != 10000 {
		t.Errorf("%d, %v, want 10000", got, ok)
	}
}

func TestANewEpochHasItsOwnPlace(t *testing.T) {
	var a Axis
	follow(&a, bind(1), frame(5000, 9000), bind(2))
	if _, ok := a.HostNs(5000); ok {
		t.Error("a place by the clock of another life of the phone")
	}
	follow(&a, frame(100, 20000))
	if got, ok := a.HostNs(150); !ok || got != 20050 {
		t.Errorf("%d, %v, want 20050", got, ok)
	}
	again := bind(2)
	again.ReconnectGeneration = 1
	follow(&a, again)
	if got, ok := a.HostNs(150); !ok || got != 20050 {
		t.Errorf("after a reconnection: %d, %v, want 20050", got, ok)
	}
}

func TestTimesThatHaveNoPlace(t *testing.T) {
	var a Axis
	follow(&a, bind(1), frame(-1, 5), frame(5, -1), &adapter.Record{PresentationNs: 5, HostNs: 7}, frame(1000, 0))
	for _, ns := range []int64{-1, 999, math.MinInt64} {
		if got, ok := a.HostNs(ns); ok {
			t.Errorf("%d has a place: %d", ns, got)
		}
	}
	if got, ok := a.HostNs(math.MaxInt64); !ok || got != math.MaxInt64-1000 {
		t.Errorf("%d, %v", got, ok)
	}
	var b Axis
	follow(&b, bind(1), frame(0, math.MaxInt64))
	if got, ok := b.HostNs(1); ok {
		t.Errorf("a place past the end of time: %d", got)
	}
}
