package capture

import (
	"time"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/p95"
)

// rebootSlackNs is how far a phone's clock may lag behind what it should show at least before it counts as started again. It covers
// 50 ppm of drift over a working day.
const rebootSlackNs = int64(2 * time.Second)

// lineage gives each connection its source epoch and reconnect generation, and each life of the app its generation.
type lineage struct {
	binding adapter.Binding
	bridge  p95.ClockBridge // of the last exchange
	any     bool
	gone    bool // the bound process belongs to an earlier start of the phone: its pid means nothing any more
}

// connected is the binding of a connection on which the phone's clocks said b. The first one is epoch 1, generation 0.
func (l *lineage) connected(b p95.ClockBridge) adapter.Binding {
	switch {
	case !l.any:
		l.any = true
		l.binding.SourceEpoch = 1
	case b.Timebase != l.bridge.Timebase || restarted(l.bridge, b):
		l.binding.SourceEpoch++
		l.binding.ReconnectGeneration = 0
		l.gone = true
	default:
		l.binding.ReconnectGeneration++
	}
	l.bridge = b
	l.binding.Timebase = b.Timebase
	return l.binding
}

// again is the binding of another tap connection while the phone never went away.
func (l *lineage) again() adapter.Binding {
	l.binding.ReconnectGeneration++
	return l.binding
}

// restarted reports whether the phone's clocks began anew between two exchanges. The continuous clock never stops, so it must have moved
// on by as much as the host's did from when the first answer was here until the second question left; an answer may take seconds. The
// absolute clock stops in sleep: one that has moved on by less may have slept, and one that cannot be told from a restart counts as one,
// since a new epoch at worst forgets a window.
func restarted(before, after p95.ClockBridge) bool {
	was, is := before.DeviceAbsoluteMach, after.DeviceAbsoluteMach
	if before.HasContinuous && after.HasContinuous {
		was, is = before.DeviceContinuousMach, after.DeviceContinuousMach
	}
	if is < was {
		return true
	}
	movedNs, ok := after.Timebase.Ns(is - was)
	return !ok || movedNs < after.HostSendNs-before.HostReceiveNs-rebootSlackNs
}

// app is the binding when the target runs as this process. Another pid is another life of it, and so is the same one after a restart.
func (l *lineage) app(bundleID string, pid int64) adapter.Binding {
	t := &l.binding.Target
	if l.gone || t.BundleID != bundleID || t.PID != pid {
		l.gone = false
		t.BundleID, t.PID = bundleID, pid
		t.Generation++
	}
	return l.binding
}
