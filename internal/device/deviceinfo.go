package device

import (
	"context"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/dtx"
	"github.com/framebridge/framebridge/internal/hostclock"
	"github.com/framebridge/framebridge/p95"
)

// DeviceInfo is the deviceinfo service: clocks and processes.
type DeviceInfo struct {
	in *Instruments
	ch *dtx.Channel
}

// DeviceInfo opens the service.
func (in *Instruments) DeviceInfo(ctx context.Context) (*DeviceInfo, error) {
	ch, err := in.open(ctx, "deviceinfo")
	if err != nil {
		return nil, err
	}
	ch.Ignore()
	return &DeviceInfo{in, ch}, nil
}

// MachTime reads the device's clocks: one exchange between two readings of the host's.
func (d *DeviceInfo) MachTime(ctx context.Context) (p95.ClockBridge, error) {
	const selector = "machTimeInfo"
	b := p95.ClockBridge{HostSendNs: hostclock.NowNs()}
	v, err := d.in.call(ctx, d.ch, selector)
	b.HostReceiveNs = hostclock.NowNs()
	if err != nil {
		return b, err
	}
	list, _ := v.([]any)
	if len(list) < 3 {
		return b, badAnswer(selector, v, "at least [mach absolute, numer, denom]")
	}
	var numbers [4]int64 // absolute, numer, denom, continuous
	for i := range min(len(list), len(numbers)) {
		n, ok := integer(list[i])
		if !ok || n < 0 {
			return b, badAnswer(selector, v, "whole numbers")
		}
		numbers[i] = n
	}
	b.DeviceAbsoluteMach, b.Timebase = numbers[0], adapter.Timebase{Numer: numbers[1], Denom: numbers[2]}
	b.DeviceContinuousMach, b.HasContinuous = numbers[3], len(list) > 3
	if b.Timebase.Numer < 1 || b.Timebase.Denom < 1 {
		return b, badAnswer(selector, v, "a timebase of at least 1/1")
	}
	return b, nil
}

// Process is a running process.
type Process struct {
	PID           int64
	Name          string // of the executable
	Foreground    bool
	HasForeground bool // whether the release tells Foreground
}

// Processes lists the running processes.
func (d *DeviceInfo) Processes(ctx context.Context) ([]Process, error) {
	const selector = "runningProcesses"
	v, err := d.in.call(ctx, d.ch, selector)
	if err != nil {
		return nil, err
	}
	list, ok := v.([]any)
	if !ok {
		return nil, badAnswer(selector, v, "a list")
	}
	out := make([]Process, 0, len(list))
	for _, e := range list {
		m, _ := e.(map[string]any)
		pid, ok := integer(m["pid"])
		if !ok {
			return nil, badAnswer(selector, e, "a process with a pid")
		}
		p := Process{PID: pid}
		p.Name, _ = m["name"].(string)
		if p.Foreground, p.HasForeground = m["foregroundRunning"].(bool); !p.HasForeground {
			var n int64
			n, p.HasForeground = integer(m["foregroundRunning"])
			p.Foreground = n != 0
		}
		out = append(out, p)
	}
	return out, nil
}
