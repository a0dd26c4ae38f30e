package lab27

import (
	"math/bits"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/p95"
)

// MaxBracketNs is how wide a clock bracket may be, and how far the two of a run may disagree: well below the 250 µs of a pair.
const MaxBracketNs = 100_000

// Bracket is one reading of the phone's clocks, in this order. presentedTime runs on mach absolute time, FrameLifetime on mach
// continuous; what they differ by is how long the phone has slept since it was booted.
type Bracket struct {
	AbsoluteBeforeMach int64
	MediaNs            int64 // CACurrentMediaTime: mach absolute time in seconds, here as ns
	ContinuousMach     int64
	AbsoluteAfterMach  int64
}

// WidthNs is rounded up, so that a bracket that is a tick too wide is too wide.
func (b *Bracket) WidthNs(t adapter.Timebase) int64 {
	return -scale(-(b.AbsoluteAfterMach - b.AbsoluteBeforeMach), t.Numer, t.Denom)
}

// OffsetNs is continuous - absolute in ns, from the middle of the bracket, rounded down.
func (b *Bracket) OffsetNs(t adapter.Timebase) int64 {
	// Twice the offset, in ticks: the middle of a bracket may lie between two.
	return scale((b.ContinuousMach-b.AbsoluteBeforeMach)+(b.ContinuousMach-b.AbsoluteAfterMach), t.Numer, 2*t.Denom)
}

// mediaAgrees tells whether CACurrentMediaTime ran on mach absolute time: it must lie within the bracket, give or take what a double
// and a tick cannot tell.
func (b *Bracket) mediaAgrees(t adapter.Timebase) bool {
	const roundingNs = 1000
	before, _ := machNs(t, b.AbsoluteBeforeMach)
	after, _ := machNs(t, b.AbsoluteAfterMach)
	return b.MediaNs >= before-roundingNs && b.MediaNs <= after+roundingNs
}

// scale is floor(x * numer / denom). The caller sees to it that the result fits: times are below maxNs, timebases valid.
func scale(x, numer, denom int64) int64 {
	negative := x < 0
	if negative {
		x = -x
	}
	hi, lo := bits.Mul64(uint64(x), uint64(numer))
	quotient, rest := bits.Div64(hi%uint64(denom), lo, uint64(denom))
	if !negative {
		return int64(quotient)
	}
	if rest > 0 {
		quotient++
	}
	return -int64(quotient)
}

// ClockCheck is what the brackets say, and whether the session's own clock bridges contradict them. Offsets are continuous - absolute.
type ClockCheck struct {
	OffsetNs             int64 `json:"offsetNs"` // the narrower bracket's, the first's where they are alike
	BeforeOffsetNs       int64 `json:"beforeOffsetNs"`
	AfterOffsetNs        int64 `json:"afterOffsetNs"`
	BeforeWidthNs        int64 `json:"beforeWidthNs"`
	AfterWidthNs         int64 `json:"afterWidthNs"`
	MediaTimeAgrees      bool  `json:"mediaTimeAgrees"`
	Bridges              int   `json:"bridges"` // machTimeInfo exchanges during the run that gave both clocks
	BridgesContradicting int   `json:"bridgesContradicting"`
}

// DisagreementNs is how far the two brackets are apart.
func (c *ClockCheck) DisagreementNs() int64 { return abs(c.BeforeOffsetNs - c.AfterOffsetNs) }

// tooWide is how many of the two are.
func (c *ClockCheck) tooWide() (n int) {
	for _, width := range []int64{c.BeforeWidthNs, c.AfterWidthNs} {
		if width > MaxBracketNs {
			n++
		}
	}
	return n
}

func checkClocks(before, after *Bracket, t adapter.Timebase, bridges []p95.ClockBridge) ClockCheck {
	c := ClockCheck{
		BeforeOffsetNs: before.OffsetNs(t), AfterOffsetNs: after.OffsetNs(t), BeforeWidthNs: before.WidthNs(t), AfterWidthNs: after.WidthNs(t),
		MediaTimeAgrees: before.mediaAgrees(t) && after.mediaAgrees(t),
	}
	c.OffsetNs = c.BeforeOffsetNs
	if c.AfterWidthNs < c.BeforeWidthNs {
		c.OffsetNs = c.AfterOffsetNs
	}
	for i := range bridges {
		b := &bridges[i]
		if !b.HasContinuous || b.DeviceAbsoluteMach < before.AbsoluteBeforeMach || b.DeviceAbsoluteMach > after.AbsoluteAfterMach {
			continue // from before or after the run: the phone may have slept between
		}
		c.Bridges++
		// Both clocks were read on the phone within the exchange, one after the other: they are apart by no more than it took.
		allowed := b.HostReceiveNs - b.HostSendNs + max(c.BeforeWidthNs, c.AfterWidthNs)
		ns, ok := machNs(t, b.DeviceContinuousMach)
		if !ok || b.Timebase != t || b.HostReceiveNs < b.HostSendNs {
			c.BridgesContradicting++
			continue
		}
		absolute, _ := machNs(t, b.DeviceAbsoluteMach)
		if abs(ns-absolute-c.OffsetNs) > allowed {
			c.BridgesContradicting++
		}
	}
	return c
}

func abs(x int64) int64 {
	if x < 0 {
		return -x
	}
	return x
}
