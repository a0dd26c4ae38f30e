package p95

import "github.com/framebridge/framebridge/adapter"

// ClockBridge is one machTimeInfo exchange: what the device's clocks said between HostSendNs and HostReceiveNs.
type ClockBridge struct {
	HostSendNs, HostReceiveNs int64
	DeviceContinuousMach      int64 // meaningful only with HasContinuous
	HasContinuous             bool  // false where the phone does not give it (null in the event line)
	DeviceAbsoluteMach        int64
	Timebase                  adapter.Timebase
}
