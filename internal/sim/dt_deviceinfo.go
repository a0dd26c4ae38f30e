package sim

import (
	"time"

	"github.com/framebridge/framebridge/internal/sim/scene"
)

// deviceinfo: clocks, processes, and what can be asked of sysmontap.
const deviceInfoName = channelPrefix + "deviceinfo"

type deviceInfo struct{ d *Device }

func openDeviceInfo(ch *channel) channelHandler { return deviceInfo{ch.c.d} }

func (deviceInfo) close() {}

func (h deviceInfo) call(selector string, args []any) (any, error) {
	switch selector {
	case "machTimeInfo":
		return h.d.machTimeInfo(), nil
	case "runningProcesses":
		return h.d.runningProcesses(), nil
	case "execnameForPid:":
		pid, _ := integer(arg(args, 0))
		for _, p := range h.d.status().Processes {
			if p.PID == pid {
				return p.Path, nil
			}
		}
		return nil, refuse("no process has the pid %v", arg(args, 0))
	case "sysmonProcessAttributes":
		return sysmonProcessAttributes, nil
	case "sysmonSystemAttributes":
		return sysmonSystemAttributes, nil
	case "hardwareInformation":
		return map[string]any{"hwCPU64BitCapable": uint64(1), "hwCPUsubtype": uint64(2), "hwCPUtype": uint64(0x0100000c),
			"numberOfCpus": uint64(cpus), "numberOfPhysicalCpus": uint64(cpus), "speedOfCpus": uint64(0)}, nil
	case "networkInformation":
		return map[string]any{"lo0": "lo0", "en0": "Wi-Fi"}, nil
	}
	return nil, errUnknownSelector
}

func (d *Device) status() scene.Status { return d.phone.Status(d.now()) }

// machTimeInfo are both clocks, read when the call is served.
func (d *Device) machTimeInfo() []any {
	s := d.status()
	tb := d.Scene.Timebase
	info := []any{uint64(s.Absolute), uint64(tb.Numer), uint64(tb.Denom)}
	if d.os.Major >= 16 {
		info = append(info, uint64(s.Continuous), uint64(d.lab.clock.wall().Unix()), "UTC")
	}
	return info
}

func (d *Device) runningProcesses() []any {
	var list []any
	for _, p := range d.status().Processes {
		entry := map[string]any{"isApplication": p.Bundle != "", "name": p.Name, "pid": uint64(p.PID), "realAppName": p.Path,
			"startDate": d.lab.clock.start.Add(-time.Hour)}
		if d.os.Major >= 16 {
			entry["foregroundRunning"] = p.Foreground
		}
		list = append(list, entry)
	}
	return list
}
