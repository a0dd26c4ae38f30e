package lab27

import "github.com/framebridge/framebridge/adapter"

const (
	Recipe          = "p95-140.v1"
	RecipeRehearsal = Recipe + ".rehearsal"

	wholeRecipe = 1000 // permille
	minPermille = 10   // below it a phase would have fewer requests than one delay needs
)

// PlannedPhase is what the stimulus was meant to be; it says nothing of what was shown.
type PlannedPhase struct {
	Name                string
	StartNs, LengthNs   int64 // from the start of the run
	RequestedHz         int64
	DelayMs, DelayEvery int64 // a main-thread delay in every DelayEvery-th request of the phase; 0 = none
}

// Phases is the recipe with its durations scaled.
func Phases(durationPermille int64) []PlannedPhase {
	const secondPerMille = 1_000_000
	phases := []PlannedPhase{
		{Name: "baseline", LengthNs: 20, RequestedHz: 30},
		{Name: "normal", LengthNs: 40, RequestedHz: 60},
		{Name: "tail", LengthNs: 40, RequestedHz: 60, DelayMs: 80, DelayEvery: 12},
		{Name: "recovery", LengthNs: 40, RequestedHz: 60},
	}
	start := int64(0)
	for i := range phases {
		phases[i].StartNs = start
		phases[i].LengthNs *= durationPermille * secondPerMille
		start += phases[i].LengthNs
	}
	return phases
}

// intervalNs is one interval at the rate asked for, rounded up.
func (p *PlannedPhase) intervalNs() int64 { return (1_000_000_000 + p.RequestedHz - 1) / p.RequestedHz }

// delayOf is the delay of the i-th request of the phase, from 1.
func (p *PlannedPhase) delayOf(i int64) int64 {
	if p.DelayEvery > 0 && i%p.DelayEvery == 0 {
		return p.DelayMs
	}
	return 0
}

// validTimebase bounds what is read: a tick of at most a microsecond, and parts that leave room in 64 bits.
func validTimebase(t adapter.Timebase) bool {
	return t.Numer >= 1 && t.Denom >= 1 && t.Numer < 1<<32 && t.Denom < 1<<32 && t.Numer/t.Denom <= 1000
}

// maxNs bounds every time that is read, so that sums and differences of them fit int64: 73 years after the phone was booted.
const maxNs = 1 << 61

// machNs is a device time in ns; ok is false where it lies beyond maxNs.
func machNs(t adapter.Timebase, ticks int64) (ns int64, ok bool) {
	ns, ok = t.Ns(ticks)
	return ns, ok && ns < maxNs
}
