package sim

import (
	"context"
	"math"
	"time"
)

// sysmontap: CPU and memory, of the phone and of each process, from time to time.
const sysmonTapName = channelPrefix + "sysmontap"

// cpus is how many cores every simulated phone has: two fast ones, four slow ones.
const cpus = 6

// Attributes that can be asked for; answers carry their values in the order of the question.
var (
	sysmonProcessAttributes = []any{"pid", "name", "cpuUsage", "physFootprint", "memVirtualSize", "memResidentSize", "memAnon", "ctxSwitch", "intWakeups"}
	sysmonSystemAttributes  = []any{"physMemSize", "vmFreeCount", "vmUsedCount", "vmWireCount", "vmPageSize"}
)

// Bounds of the sampling interval: clients ask for 500 ms and more.
const (
	minSysmonInterval     = 50 * time.Millisecond
	defaultSysmonInterval = 500 * time.Millisecond
	maxSysmonInterval     = time.Minute
)

type sysmonTap struct {
	ch       *channel
	interval time.Duration
	process  []any
	system   []any
	sender   *sender
}

func openSysmonTap(ch *channel) channelHandler {
	return &sysmonTap{ch: ch, interval: defaultSysmonInterval}
}

func (h *sysmonTap) close() { h.sender.stop() }

func (h *sysmonTap) call(selector string, args []any) (any, error) {
	switch selector {
	case "setConfig:":
		config, ok := arg(args, 0).(map[string]any)
		if !ok {
			return nil, refuse("setConfig: expected a dictionary, found %T", arg(args, 0))
		}
		h.process, _ = config["procAttrs"].([]any)
		h.system, _ = config["sysAttrs"].([]any)
		h.interval = interval(config, defaultSysmonInterval, minSysmonInterval, maxSysmonInterval)
		return nil, nil
	case "start":
		h.sender.stop()
		h.sender = h.ch.send(h.sample)
		return nil, nil
	case "stop", "pause":
		h.sender.stop()
		h.sender = nil
		return nil, nil
	}
	return nil, errUnknownSelector
}

// interval is a tap's update interval ("ur", ms), brought inside its bounds.
func interval(config map[string]any, otherwise, least, most time.Duration) time.Duration {
	ms, ok := integer(config["ur"])
	if !ok {
		return otherwise
	}
	return min(max(time.Duration(min(ms, most.Milliseconds()))*time.Millisecond, least), most)
}

func (h *sysmonTap) sample(ctx context.Context) error {
	d := h.ch.c.d
	for n := uint64(0); ; n++ {
		if err := h.ch.object(d.sysmonSample(n, h.process, h.system)); err != nil {
			return err
		}
		if sleep(ctx.Done(), d.lab.clock.host(h.interval)) != nil {
			return nil
		}
	}
}

// sysmonSample is the n-th sample: an entry for the whole phone, one for its processes.
func (d *Device) sysmonSample(n uint64, process, system []any) []any {
	s := d.status()
	end := uint64(s.Absolute)
	processes := map[uint64]any{}
	total := 0.0
	for _, p := range s.Processes {
		// A load that goes up and down a little, and is never 0 for an app that is on the screen.
		cpu := 1 + 0.5*math.Sin(float64(n)+float64(p.PID))
		footprint := uint64(24<<20) + uint64(p.PID%64)<<20
		if p.Foreground {
			cpu, footprint = 12+4*math.Sin(float64(n)/3), footprint+96<<20
		}
		total += cpu
		values := map[string]any{"pid": uint64(p.PID), "name": p.Name, "cpuUsage": cpu, "physFootprint": footprint, "memAnon": footprint,
			"memResidentSize": footprint + 16<<20, "memVirtualSize": uint64(400 << 30), "ctxSwitch": 1000 + 50*n, "intWakeups": 100 + 5*n}
		processes[uint64(p.PID)] = pick(values, process)
	}
	memory := map[string]any{"physMemSize": uint64(4 << 30 / 16384), "vmFreeCount": uint64(40_000), "vmUsedCount": uint64(200_000),
		"vmWireCount": uint64(30_000), "vmPageSize": uint64(16384)}
	return []any{
		map[string]any{"Type": uint64(33), "CPUCount": uint64(cpus), "EnabledCPUs": uint64(cpus), "StartMachAbsTime": end, "EndMachAbsTime": end,
			"System": pick(memory, system), "SystemCPUUsage": map[string]any{"CPU_TotalLoad": total, "CPU_UserLoad": -1.0, "CPU_SystemLoad": -1.0, "CPU_NiceLoad": 0.0}},
		map[string]any{"Type": uint64(5), "StartMachAbsTime": end, "EndMachAbsTime": end, "Processes": processes},
	}
}

// pick lists the values of the attributes that were asked for, in that order; one that is not known is null.
func pick(values map[string]any, names []any) []any {
	out := make([]any, len(names))
	for i, name := range names {
		s, _ := name.(string)
		out[i] = values[s]
	}
	return out
}
