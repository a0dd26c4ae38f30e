package p95

import "github.com/framebridge/framebridge/adapter"

// The policy's numbers (p95-window.md).
const (
	windowNs      = 10_000_000_000
	maxIntervalNs = 1_100_000_000 // a longer one is an idle screen, not a frame
	maxSilenceNs  = 1_000_000_000 // N - H above it: stale-source
	maxAgeNs      = 2_000_000_000 // a proved age of P above it: stale-clock
	// maxValues is 10 s at 409 Hz, over three times what any panel does: more is not a stream of frames, and the window locks.
	maxValues  = 4096
	minSamples = 5 // fewer have no 95th percentile worth the name
	// driftDivisor: the two clocks drift apart by at most 50 ppm, one part in 20,000.
	driftDivisor = 1_000_000 / 50
)

// ClearReason says what emptied the window last: an event, a record's quality, or a check that a record failed.
type ClearReason string

const (
	clearBind              ClearReason = "bind" // the first one
	clearTarget            ClearReason = "target"
	clearEpoch             ClearReason = "epoch"
	clearReconnect         ClearReason = "reconnect"
	clearTimebase          ClearReason = "timebase"
	clearDisplay           ClearReason = "display"
	clearForeground        ClearReason = "foreground"
	clearBackground        ClearReason = "background"
	clearSourceGap         ClearReason = "source-gap" // the event, and the quality
	clearPolicy            ClearReason = "policy"
	clearContract          ClearReason = "contract"
	clearIdentity          ClearReason = "identity"
	clearDuplicate         ClearReason = "duplicate"
	clearOutOfOrder        ClearReason = "out-of-order"
	clearOrder             ClearReason = "order"
	clearDiscontinuity     ClearReason = "discontinuity"
	clearNoPredecessor     ClearReason = "no-predecessor"
	clearUnsupportedSchema ClearReason = "unsupported-schema"
	clearFigures           ClearReason = "figures"
	clearOverflow          ClearReason = "overflow"
)

// What line 5 of the record table asks of every record, and of a valid one.
const (
	identityFields = adapter.HasTarget | adapter.HasSourceEpoch | adapter.HasReconnectGeneration | adapter.HasTimebase |
		adapter.HasRawSequence | adapter.HasHostNs | adapter.HasDisplayID | adapter.HasQuality
	validFields = identityFields | adapter.HasNatives | adapter.HasPresentationNs
)

// window is the P95 window of one binding after another: what p95-window.md calls values, order marks, lock and segment.
type window struct {
	segment   int64
	lastClear Clear
	locked    bool
	mark      policyMark
	marks     orderMarks
	bridge    ClockBridge
	bridged   bool // bridge is there, with its continuous time deviceNs
	deviceNs  int64

	// The values, oldest first, are ring[i%maxValues] for first <= i < first+count, in rising presentationNs (the order marks see to
	// that). With count > 0, P is the last one's presentationNs and hostNs is H. What P has left behind is forgotten, and what is new counted
	// among the largest, a batch at a time, which costs less than one by one: until then, only the counted oldest ones are.
	first, count, counted uint32
	hostNs                int64
	ring                  [maxValues]value
	largest               largest
}

type value struct {
	presentationNs, rawSequence int64
	frameTimeNs                 uint32 // at most maxIntervalNs
}

// value is the ith value from the oldest one, which is 0.
func (w *window) value(i uint32) *value { return &w.ring[(w.first+i)%maxValues] }

// policyMark is what the last record of the primary display said about the policy.
type policyMark uint8

const (
	noRecordYet policyMark = iota
	marked
	unmarked
)

// orderMarks are the highest values seen; has tells which there are.
type orderMarks struct {
	has                                          adapter.Fields
	rawSequence, hostNs, endMach, presentationNs int64
}

// below reports whether all of the record's that are there are strictly above the marks.
func (m *orderMarks) below(r *adapter.Record) bool {
	both := r.Fields & m.has
	return !(both&adapter.HasRawSequence != 0 && r.RawSequence <= m.rawSequence ||
		both&adapter.HasHostNs != 0 && r.HostNs <= m.hostNs ||
		both&adapter.HasEndMach != 0 && r.EndMach <= m.endMach ||
		both&adapter.HasPresentationNs != 0 && r.PresentationNs <= m.presentationNs)
}

// raise takes over what a record that is above the marks has.
func (m *orderMarks) raise(r *adapter.Record) {
	const marks = adapter.HasRawSequence | adapter.HasHostNs | adapter.HasEndMach | adapter.HasPresentationNs
	m.has |= r.Fields & marks
	if r.Fields&adapter.HasRawSequence != 0 {
		m.rawSequence = r.RawSequence
	}
	if r.Fields&adapter.HasHostNs != 0 {
		m.hostNs = r.HostNs
	}
	if r.Fields&adapter.HasEndMach != 0 {
		m.endMach = r.EndMach
	}
	if r.Fields&adapter.HasPresentationNs != 0 {
		m.presentationNs = r.PresentationNs
	}
}

func (w *window) clear(why ClearReason, rawSequence, hostNs Int) {
	w.first, w.count, w.counted = 0, 0, 0
	w.largest.clear()
	w.lastClear = Clear{Reason: why, RawSequence: rawSequence, HostNs: hostNs, Known: true}
}

// event is a clear that opens a new segment and is no record's doing.
func (w *window) event(why ClearReason, hostNs Int) {
	w.clear(why, Int{}, hostNs)
	w.segment++
}

// rebind follows a bind that changed something.
func (w *window) rebind(why ClearReason, hostNs int64, sameEpoch bool) {
	w.event(why, Of(hostNs))
	w.mark = noRecordYet
	if why != clearDisplay {
		w.marks = orderMarks{}
		w.locked = false
	}
	if !sameEpoch {
		w.bridged = false
	}
}

// setForeground follows a target.state that differed.
func (w *window) setForeground(foreground bool, hostNs int64) {
	why := clearBackground
	if foreground {
		why = clearForeground
	}
	w.event(why, Of(hostNs))
	w.locked = false
}

func (w *window) setBridge(b ClockBridge) {
	if !b.HasContinuous {
		return
	}
	if deviceNs, ok := b.Timebase.Ns(b.DeviceContinuousMach); ok {
		w.bridge, w.bridged, w.deviceNs = b, true, deviceNs
	}
}

// record takes a record of the primary display; f is its frame, where countable.
func (w *window) record(r *adapter.Record, bound *adapter.Binding, f *frame, countable bool) {
	w.mark = unmarked
	if r.Policy == adapter.PolicyP95 {
		w.mark = marked
	}
	if w.locked {
		return
	}
	if why := w.refuses(r, bound, f, countable); why != "" {
		w.clear(why, field(r, adapter.HasRawSequence, r.RawSequence), field(r, adapter.HasHostNs, r.HostNs))
		return
	}
	w.marks.raise(r)
	if r.Quality != adapter.QualityValid {
		w.clear(ClearReason(r.Quality.String()), Of(r.RawSequence), Of(r.HostNs))
		w.segment++
		return
	}
	if w.count == maxValues {
		if w.forget(f.presentationNs - windowNs); w.count == maxValues {
			w.clear(clearOverflow, Of(r.RawSequence), Of(r.HostNs))
			w.locked = true
			return
		}
	}
	v := w.value(w.count)
	v.presentationNs, v.rawSequence, v.frameTimeNs = f.presentationNs, r.RawSequence, uint32(f.frameTimeNs)
	w.count++
	w.hostNs = r.HostNs
	if w.count-w.counted == batch {
		w.settle()
	}
}

// forget forgets the values up to edgeNs.
func (w *window) forget(edgeNs int64) {
	for ; w.count > 0 && w.value(0).presentationNs <= edgeNs; w.count-- {
		if w.counted > 0 {
			w.largest.remove(w.value(0).frameTimeNs)
			w.counted--
		}
		w.first++
	}
}

// batch is how many values are counted at once. All of a second's would make its publication wait.
const batch = 32

// settle brings a window with values up to date.
func (w *window) settle() {
	w.forget(w.newest().presentationNs - windowNs)
	for ; w.counted < w.count; w.counted++ {
		w.largest.add(w.value(w.counted).frameTimeNs)
		w.largest.trim(int(w.counted)/20 + spare)
	}
}

// spare is how many values more than a publication needs are counted among the largest, so that they seldom run out.
const spare = 64

// refuses is the contract's table, lines 3 to 9 without 8: why a record clears the window and leaves the order marks alone.
func (w *window) refuses(r *adapter.Record, bound *adapter.Binding, f *frame, countable bool) ClearReason {
	valid := r.Quality == adapter.QualityValid
	need := identityFields
	if valid {
		need = validFields
	}
	switch {
	case w.mark != marked:
		return clearPolicy
	case r.Schema != adapter.RecordSchema || !r.Source.Known() || !r.Decoded || !r.Verified:
		return clearContract
	case r.Fields&need != need || r.SourceEpoch != bound.SourceEpoch || r.ReconnectGeneration != bound.ReconnectGeneration ||
		r.Timebase != bound.Timebase || r.Target != bound.Target:
		return clearIdentity
	case r.Quality == adapter.QualityDuplicate || r.Quality == adapter.QualityOutOfOrder:
		return ClearReason(r.Quality.String())
	case !w.marks.below(r):
		return clearOrder
	case valid && !(countable && f.tells(r)):
		return clearFigures
	}
	return ""
}

// newest is of a window with values.
func (w *window) newest() *value { return w.value(w.count - 1) }

// field is n where the record has it.
func field(r *adapter.Record, has adapter.Fields, n int64) Int {
	if r.Fields&has == 0 {
		return Int{}
	}
	return Of(n)
}

// hostRegressed reports whether nowNs is below H.
func (w *window) hostRegressed(nowNs int64) bool { return w.count > 0 && nowNs < w.hostNs }

// publish fills in what depends on the window. regressed says that nowNs is not above the highest N so far.
func (w *window) publish(nowNs int64, foreground, regressed bool, out *Receipt) {
	out.Segment, out.LastClear = w.segment, w.lastClear
	out.LastRawSequence = Int{N: w.marks.rawSequence, Known: w.marks.has&adapter.HasRawSequence != 0}
	stale := w.readClock(nowNs, out)
	if w.count > 0 {
		w.settle()
		out.LastPresentationNs, out.LastHostNs = Of(w.newest().presentationNs), Of(w.hostNs)
	}
	switch {
	case !foreground:
		out.Quality = Background
	case w.locked:
		out.Quality = Overflow
	case regressed || w.hostRegressed(nowNs):
		out.Quality = HostRegression
		return // neither window nor n: they would be those of another moment
	case w.mark == unmarked:
		out.Quality = PolicyAbsent
	case w.count > 0 && uint64(nowNs)-uint64(w.hostNs) > maxSilenceNs:
		out.Quality = StaleSource
	case stale:
		out.Quality = StaleClock
	}
	first, n := w.inWindow(nowNs, out)
	out.N = Of(int64(n))
	if n > 0 {
		out.FirstSample, out.LastSample = w.value(first).sample(), w.value(first+n-1).sample()
	}
	if out.Quality != "" {
		return
	}
	if n < minSamples {
		out.Quality = Warmup
		return
	}
	rank := (95*int64(n) + 99) / 100
	out.Quality, out.Rank = Valid, Of(rank)
	out.ValueNs = Of(w.nthLargestOf(first, n, int(int64(n)-rank+1)))
}

// inWindow sets the window's edges and finds the values between them: n of them, the first one being value(first).
func (w *window) inWindow(nowNs int64, out *Receipt) (first, n uint32) {
	if w.count == 0 {
		return 0, 0
	}
	right := wideOf(w.newest().presentationNs).plus(nowNs).minus(w.hostNs)
	left := right.minus(windowNs)
	out.WindowLeftNs, out.WindowRightNs = left.int(), right.int()
	from := w.countUpTo(left.clamped())
	return from, w.countUpTo(right.clamped()) - from
}

// countUpTo is the number of values with presentationNs <= edgeNs. Nearly always that is none or all but a few, so it looks from the
// ends first, in growing steps.
func (w *window) countUpTo(edgeNs int64) uint32 {
	if w.newest().presentationNs <= edgeNs {
		return w.count
	}
	low, high := uint32(0), uint32(1) // the answer is low or more
	for high < w.count && w.value(high-1).presentationNs <= edgeNs {
		low, high = high, 2*high
	}
	high = min(high, w.count)
	for low < high {
		middle := (low + high) / 2
		if w.value(middle).presentationNs <= edgeNs {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

func (v *value) sample() Sample {
	return Sample{RawSequence: v.rawSequence, PresentationNs: v.presentationNs, Known: true}
}

// nthLargestOf is the nth largest frame time, from 1, of the n values from value(first) on.
func (w *window) nthLargestOf(first, n uint32, nth int) int64 {
	// Seldom more than a few: a second's at most, unless N is far from H.
	outside := func(do func(*largest, uint32)) {
		for i := range first {
			do(&w.largest, w.value(i).frameTimeNs)
		}
		for i := first + n; i < w.count; i++ {
			do(&w.largest, w.value(i).frameTimeNs)
		}
	}
	for {
		outside((*largest).hide)
		timeNs, ok := w.largest.nth(nth)
		outside((*largest).show)
		if ok {
			return int64(timeNs)
		}
		w.largest.fill(nth+int(w.count-n)+spare, w)
	}
}

// nthLargest is the nth largest frame time, from 1, of all values: its digits in base 256 from the highest one down, by counting.
func (w *window) nthLargest(nth int) (timeNs uint32) {
	known := uint32(0) // mask of the digits known
	for shift := 24; shift >= 0; shift -= 8 {
		var values [256]int // among those with the known digits, by their next one
		for i := range w.count {
			if t := w.value(i).frameTimeNs; t&known == timeNs {
				values[byte(t>>shift)]++
			}
		}
		digit := 255
		for ; values[digit] < nth; digit-- {
			nth -= values[digit]
		}
		timeNs |= uint32(digit) << shift
		known |= 255 << shift
	}
	return timeNs
}

// readClock sets what the clock bridge proves about the age of P, and reports whether that is too old.
func (w *window) readClock(nowNs int64, out *Receipt) (stale bool) {
	if !w.bridged {
		return false
	}
	out.ClockBridge = BridgeReading{Qualified: true, WidthNs: wideOf(w.bridge.HostReceiveNs).minus(w.bridge.HostSendNs).int()}
	if w.count == 0 {
		return false
	}
	var driftNs int64
	if nowNs > w.bridge.HostSendNs {
		driftNs = int64((uint64(nowNs) - uint64(w.bridge.HostSendNs)) / driftDivisor)
	}
	age := wideOf(w.deviceNs).plus(nowNs).minus(w.bridge.HostReceiveNs).minus(driftNs).minus(w.newest().presentationNs)
	out.ClockBridge.AgeLowerBoundNs = age.int()
	return age.clamped() > maxAgeNs
}
