// Package timeline puts the times of a phone on the clock of the host that recorded it, for whoever draws both: a chart, a trace.
//
// Nothing that is measured comes from here. Within one source epoch the two clocks differ by one constant, so that distances between frames
// stay exact to the nanosecond; what happened on the host stands beside them as exactly as that constant is known, and drifts by what
// the two clocks drift (at most 50 ppm, 180 ms an hour).
package timeline

import (
	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/ledger"
	"github.com/framebridge/framebridge/p95"
)

// Axis follows a session. The zero Axis stands before its first event.
type Axis struct {
	epoch    int64
	offsetNs int64 // host - device, of this epoch
	known    bool
	bridgeNs int64 // host - device, by the last clock bridge
	bridged  bool
}

// Follow takes the session's next event. The constant of an epoch is set at its first frame: by the clock bridge that came last in the
// epoch, else by that frame's arrival, which is late by what the phone and the cable held it back (an import has its own time there).
func (a *Axis) Follow(e *ledger.Event) {
	switch v := e.Value.(type) {
	case *adapter.Binding:
		if v.SourceEpoch != a.epoch {
			*a = Axis{epoch: v.SourceEpoch}
		}
	case *p95.ClockBridge:
		deviceNs, ok := v.Timebase.Ns(v.DeviceContinuousMach)
		if !ok || !v.HasContinuous || v.HostSendNs < 0 || v.HostReceiveNs < v.HostSendNs {
			return
		}
		middleNs := v.HostSendNs + (v.HostReceiveNs-v.HostSendNs)/2
		a.bridgeNs, a.bridged = middleNs-deviceNs, true // neither is negative
	case *adapter.Record:
		const need = adapter.HasPresentationNs | adapter.HasHostNs
		if a.known || v.Fields&need != need || v.PresentationNs < 0 || v.HostNs < 0 {
			return
		}
		a.offsetNs, a.known = v.HostNs-v.PresentationNs, true
		if a.bridged {
			a.offsetNs = a.bridgeNs
		}
	}
}

// HostNs is a device time on the host's clock; ok is false before the epoch's first frame, and where it would be negative.
func (a *Axis) HostNs(deviceNs int64) (hostNs int64, ok bool) {
	hostNs = deviceNs + a.offsetNs
	return hostNs, a.known && deviceNs >= 0 && hostNs >= 0 // a sum that overflows is negative
}
