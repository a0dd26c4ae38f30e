package lab27

import (
	"fmt"
	"math/big"
)

// Gates of what the reference may cost.
const (
	MaxCPUPoints             = 2       // percentage points of one core, cost-on over cost-off
	MaxFootprintGrowth       = 8 << 20 // bytes, peak over peak
	MaxHandlerNs             = 1_000_000
	maxHostGrowth            = 2 // times per row, whole over quarter: a quadratic host has 4
	hostSamples              = 2
	hostRowsRatio      int64 = 4
)

// Gate is one requirement, what was measured, and whether that passes.
type Gate struct {
	Name     string `json:"name"`
	Required string `json:"required"`
	Measured string `json:"measured"`
	Pass     bool   `json:"pass"`
}

// HostSample is how long this machine took to validate and match a number of rows.
type HostSample struct {
	Rows, Ns int64
}

// CostRun is one of the two runs. Session is the recording around it, nil where there is none: then nothing tells which phone it ran on.
type CostRun struct {
	*Report
	Session *Session
}

func (r *CostRun) simulated() bool {
	return r.Plan != nil && r.Plan.Simulated || r.Session != nil && r.Session.Simulated
}

// CostVerdict is what the reference costs. A rehearsal's can never count.
type CostVerdict struct {
	Schema    string `json:"schema"`
	Pass      bool   `json:"pass"`
	Rehearsal bool   `json:"rehearsal"`
	Simulated bool   `json:"simulated"` // a bundle or a session says so
	SamePhone *bool  `json:"samePhone"` // null where not both runs have a session that says which phone
	Gates     []Gate `json:"gates"`
}

// Cost compares a run without the reference and one with it. host holds two samples of this machine's work, a quarter of the rows and
// all of them. What was not measured does not pass, and nothing is rounded to pass.
func Cost(off, on CostRun, host []HostSample) CostVerdict {
	v := CostVerdict{Schema: "lab27.cost/1", Pass: true, Simulated: off.simulated() || on.simulated()}
	gate := func(name, required string, pass bool, measured string, args ...any) {
		v.Gates = append(v.Gates, Gate{name, required, fmt.Sprintf(measured, args...), pass})
		v.Pass = v.Pass && pass
	}
	if s, t := off.Session, on.Session; s != nil && t != nil && s.UDID != "" && t.UDID != "" {
		v.SamePhone = new(s.UDID == t.UDID)
		gate("same-phone", "the same phone", *v.SamePhone, "%s; %s", s.UDID, t.UDID)
	}
	gate("off-complete", "complete", off.State == Complete, "%s", off.State)
	gate("on-complete", "complete", on.State == Complete, "%s", on.State)
	if off.State != Complete || on.State != Complete {
		return v // nothing below could be computed with
	}
	a, b := &off.Plan.Request, &on.Plan.Request
	v.Rehearsal = a.Rehearsal() || b.Rehearsal()
	gate("purposes", "cost-off without the reference, cost-on with it", a.Purpose == PurposeCostOff && !a.ReferenceEnabled && b.Purpose == PurposeCostOn && b.ReferenceEnabled,
		"%s, reference %t; %s, reference %t", a.Purpose, a.ReferenceEnabled, b.Purpose, b.ReferenceEnabled)
	gate("same-recipe", "the same recipe, scale, app, model and release", a.Recipe == b.Recipe && a.DurationPermille == b.DurationPermille &&
		a.SourceDigest == b.SourceDigest && off.Plan.DeviceModel == on.Plan.DeviceModel && off.Plan.OSVersion == on.Plan.OSVersion,
		"%s at %d permille on %s, %s; %s at %d permille on %s, %s", a.Recipe, a.DurationPermille, off.Plan.DeviceModel, off.Plan.OSVersion,
		b.Recipe, b.DurationPermille, on.Plan.DeviceModel, on.Plan.OSVersion)

	s, t := off.Summary, on.Summary
	if s.HasUsage && t.HasUsage && s.CPUWallNs > 0 && t.CPUWallNs > 0 {
		growth := new(big.Rat).Sub(big.NewRat(t.CPUUsedNs, t.CPUWallNs), big.NewRat(s.CPUUsedNs, s.CPUWallNs))
		growth.Mul(growth, big.NewRat(100, 1))
		gate("cpu", "at most +2 percentage points", growth.Cmp(big.NewRat(MaxCPUPoints, 1)) <= 0, "%s percentage points", growth.FloatString(6))
		grown := t.FootprintPeak - s.FootprintPeak
		gate("footprint", "at most +8388608 bytes", grown <= MaxFootprintGrowth, "%d bytes", grown)
	} else {
		gate("cpu", "at most +2 percentage points", false, "not measured")
		gate("footprint", "at most +8388608 bytes", false, "not measured")
	}
	if h := t.HandlerCost; h != nil {
		gate("handler-mean", "at most 1000000 ns", h.MeanNs <= MaxHandlerNs, "%d ns", h.MeanNs)
		gate("handler-p95", "at most 1000000 ns", h.P95Ns <= MaxHandlerNs, "%d ns", h.P95Ns)
	} else {
		gate("handler-mean", "at most 1000000 ns", false, "not measured")
		gate("handler-p95", "at most 1000000 ns", false, "not measured")
	}
	gate("no-periodic-io", "no file written during a run", s.FileWritesWhileRunning == 0 && t.FileWritesWhileRunning == 0, "%d and %d", s.FileWritesWhileRunning, t.FileWritesWhileRunning)
	gate("bundle", "at most 2097152 bytes", on.Bytes <= MaxBundleBytes, "%d bytes", on.Bytes)
	pass, measured := hostIsLinear(host)
	gate("host-linear", "a row costs at most twice as much among four times as many", pass, "%s", measured)
	return v
}

func hostIsLinear(host []HostSample) (pass bool, measured string) {
	if len(host) != hostSamples || host[0].Rows < 1 || host[1].Rows/hostRowsRatio < host[0].Rows || host[0].Ns < 1 || host[1].Ns < 1 {
		return false, "not measured"
	}
	growth := new(big.Rat).Quo(big.NewRat(host[1].Ns, host[1].Rows), big.NewRat(host[0].Ns, host[0].Rows))
	return growth.Cmp(big.NewRat(maxHostGrowth, 1)) <= 0, growth.FloatString(3) + " times"
}
