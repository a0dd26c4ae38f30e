package adapter

import (
	"math"
	"math/bits"
)

// The thresholds of the quality table (raw-record.md).
const (
	// predecessorSlackNs: a frame's previous and the last end differ by less than this, or frames are missing between them.
	predecessorSlackNs = 1_000_000
	// maxIntervalNs: a longer interval is an idle screen and no frame time.
	maxIntervalNs = 1_100_000_000
	// maxSeedsDropped bounds what is believed of a jump in frame seeds.
	maxSeedsDropped = 10_000
	// belowRefreshMilli: a refresh multiple under 0.95 was asked for shorter than the frame's own refresh interval.
	belowRefreshMilli = 950
	// maxDisplays bounds the displays of one epoch that state is kept for; a phone has one and drives at most one more. Frames of
	// further ones are all no-predecessor, and duplicates among them are not found.
	maxDisplays = 64
)

// Words of Record.QualityReason, by quality; a valid record has none.
const (
	ReasonArgumentMissing    = "argument-missing"    // unsupported-schema: a required argument is not there
	ReasonArgumentType       = "argument-type"       // unsupported-schema: one is no integer
	ReasonArgumentRange      = "argument-range"      // unsupported-schema: one is negative or does not fit, alone or as nanoseconds
	ReasonAlreadySeen        = "already-seen"        // duplicate
	ReasonEndNotAfterLast    = "end-not-after-last"  // out-of-order
	ReasonPreviousZero       = "previous-zero"       // no-predecessor: the device knows none
	ReasonFirstOnDisplay     = "first-on-display"    // no-predecessor: we know none
	ReasonNotForward         = "not-forward"         // discontinuity: end <= previous, or begin > end
	ReasonPredecessorEarlier = "predecessor-earlier" // discontinuity
	ReasonPredecessorLater   = "predecessor-later"   // source-gap
	ReasonTooLong            = "too-long"            // discontinuity
)

// judge gives each frame its quality and figures. It keeps what the table needs per display of one source epoch and reconnect
// generation.
type judge struct {
	epoch, generation int64
	displays          map[int64]*displayState // of this generation
	displaysInEpoch   map[int64]bool
	stats             JudgeStats
}

// JudgeStats counts what the judge saw, over the whole life of its owner.
type JudgeStats struct {
	ByQuality          [qualityCount]int64 // index: Quality
	CategoryTwins      int64               // frames told a second time under the other category; no records
	BelowRefresh       int64               // valid, with a refresh multiple under 0.95
	SkewedPredecessors int64               // valid, with PredecessorSkewMach
	Offset             PredecessorOffset
}

type displayState struct {
	seen     memory
	hasLast  bool
	lastEnd  int64 // of the last record that was not 1, 2 or 3 of the table
	lastSeed int64
}

// bind says which epoch and generation the next frames are from. Another one starts with nothing known.
func (j *judge) bind(epoch, generation int64) {
	if j.displays != nil && epoch == j.epoch && generation == j.generation {
		return
	}
	if j.displays == nil || epoch != j.epoch {
		j.displaysInEpoch = map[int64]bool{}
	}
	j.epoch, j.generation, j.displays = epoch, generation, map[int64]*displayState{}
}

// judge sets r's quality and derived figures from its native integers and timebase. fault is why a required argument cannot be used,
// "" where all can. It returns false for a frame that was told under the other category already: that is no record.
func (j *judge) judge(r *Record, category categoryID, fault string) (isRecord bool) {
	r.Fields |= HasQuality | HasDroppedBefore
	r.Decoded, r.Verified = true, true
	end := r.Fields&HasEndMach != 0
	if end {
		var fits bool
		if r.PresentationNs, fits = r.Timebase.Ns(r.EndMach); fits {
			r.Fields |= HasPresentationNs
		} else if fault == "" {
			fault = ReasonArgumentRange
		}
	}
	if end && r.Fields&HasBeginMach != 0 && r.BeginMach <= r.EndMach {
		if ns, fits := r.Timebase.Ns(r.EndMach - r.BeginMach); fits {
			r.LifetimeNs, r.Fields = ns, r.Fields|HasLifetime
		}
	}
	isSeen := r.Fields&HasDisplayID != 0 && (fault == "" || r.DisplayID != 0) // 0 may be for want of an argument
	if isSeen && len(j.displaysInEpoch) < maxDisplays {
		j.displaysInEpoch[r.DisplayID] = true
	}
	if fault != "" {
		j.set(r, QualityUnsupportedSchema, fault)
		return true
	}
	d := j.display(r.DisplayID)
	key := frameKey{seed: r.FrameSeed, swap: r.SwapID, category: category}
	if _, again := d.seen.get(key); again {
		j.set(r, QualityDuplicate, ReasonAlreadySeen)
		return true
	}
	key.category = category.twin()
	if _, twin := d.seen.get(key); twin {
		j.stats.CategoryTwins++
		return false
	}
	key.category = category
	d.seen.put(key, 0)

	if d.hasLast && r.EndMach <= d.lastEnd {
		j.set(r, QualityOutOfOrder, ReasonEndNotAfterLast)
		return true
	}
	quality, reason := j.chained(r, d)
	j.set(r, quality, reason)
	d.hasLast, d.lastEnd, d.lastSeed = true, r.EndMach, r.FrameSeed
	return true
}

// chained is the table from line 4 on: how the frame hangs together with the one before it.
func (j *judge) chained(r *Record, d *displayState) (Quality, string) {
	if r.PreviousMach == 0 {
		return QualityNoPredecessor, ReasonPreviousZero
	}
	if !d.hasLast {
		return QualityNoPredecessor, ReasonFirstOnDisplay
	}
	skew := r.PreviousMach - d.lastEnd // both are at least 0: cannot overflow
	j.stats.Offset.Add(skew)
	if r.EndMach <= r.PreviousMach || r.BeginMach > r.EndMach {
		return QualityDiscontinuity, ReasonNotForward
	}
	if skew < 0 && atLeastNs(r.Timebase, -skew, predecessorSlackNs) {
		return QualityDiscontinuity, ReasonPredecessorEarlier
	}
	if skew > 0 && atLeastNs(r.Timebase, skew, predecessorSlackNs) {
		if dropped := r.FrameSeed - d.lastSeed - 1; len(j.displaysInEpoch) == 1 && dropped >= 0 && dropped < maxSeedsDropped {
			r.DroppedBefore = dropped
		} else {
			r.Fields &^= HasDroppedBefore
		}
		return QualitySourceGap, ReasonPredecessorLater
	}
	interval := r.EndMach - r.PreviousMach
	if atLeastNs(r.Timebase, interval, maxIntervalNs+1) {
		return QualityDiscontinuity, ReasonTooLong
	}
	r.FrameTimeNs, _ = r.Timebase.Ns(interval) // fits: it is not above maxIntervalNs
	r.Fields |= HasFrameTime
	if milli, ok := multipleMilli(interval, r.RefreshIntervalMach); ok {
		r.RefreshMultipleMilli, r.Fields = milli, r.Fields|HasRefreshMultiple
		if milli < belowRefreshMilli {
			j.stats.BelowRefresh++
		}
	}
	if skew < -1 || skew > 1 {
		r.PredecessorSkewMach, r.Fields = skew, r.Fields|HasPredecessorSkew
		j.stats.SkewedPredecessors++
	}
	return QualityValid, ""
}

func (j *judge) set(r *Record, q Quality, reason string) {
	r.Quality, r.QualityReason = q, reason
	j.stats.ByQuality[q]++
}

func (j *judge) display(id int64) *displayState {
	d := j.displays[id]
	if d == nil {
		d = &displayState{}
		if len(j.displays) < maxDisplays {
			j.displays[id] = d
		}
	}
	return d
}

// atLeastNs reports whether ticks are at least ns, which is above 0; ticks that do not fit int64 as nanoseconds are.
func atLeastNs(t Timebase, ticks, ns int64) bool {
	got, fits := t.Ns(ticks)
	return !fits || got >= ns
}

// multipleMilli is interval / refresh in thousandths, half to even; ok is false where refresh is not known (0) or the result does
// not fit.
func multipleMilli(interval, refresh int64) (milli int64, ok bool) {
	if refresh <= 0 {
		return 0, false
	}
	hi, lo := bits.Mul64(uint64(interval), 1000)
	if hi >= uint64(refresh) {
		return 0, false
	}
	q, rest := bits.Div64(hi, lo, uint64(refresh))
	if half := uint64(refresh) - rest; rest > half || rest == half && q%2 == 1 {
		q++
	}
	return int64(q), q <= math.MaxInt64
}

// PredecessorOffset follows the difference between each frame's previous and the end of the frame before it. On the device they are
// equal to the tick. The log loader may add an adjustment to row times, which arguments do not get: then the difference is that
// constant, negated, on every frame. It is named where numbers are shown, and never repaired.
type PredecessorOffset struct {
	Pairs int64 // differences seen
	Ticks int64 // previous - last end, of the most frequent difference
	Same  int64 // differences within a tick of Ticks since that became the most frequent
	votes int64
}

// Add takes one difference, previous - last end.
func (o *PredecessorOffset) Add(ticks int64) {
	// Majority vote: whatever more than half of the differences are is left in Ticks.
	o.Pairs++
	switch near := ticks-o.Ticks >= -1 && ticks-o.Ticks <= 1; {
	case near && o.Same > 0:
		o.votes++
		o.Same++
	case o.votes > 0:
		o.votes--
	default:
		o.Ticks, o.Same, o.votes = ticks, 1, 1
	}
}

// Adjustment is the constant by which frames' ends lie after the next frames' previous, in ticks. ok is false where there is none
// but what truncation explains, or too little was seen to tell.
func (o PredecessorOffset) Adjustment() (ticks int64, ok bool) {
	const enoughPairs = 10
	if o.Pairs < enoughPairs || o.Same < o.Pairs-o.Pairs/10 || o.Ticks >= -1 && o.Ticks <= 1 {
		return 0, false
	}
	return -o.Ticks, true
}
