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
	// that); byTime holds each as key(frame time, i). With count > 0, P is the last one's presentationNs and hostNs is H.
	first, count uint32
	hostNs       int64
	ring         [maxValues]value
	byTime       sorted
}

type value struct {
	presentationNs, rawSequence int64
	key                         uint64
}

// key orders values by frame time (at most maxIntervalNs, 31 bits) and makes equal ones distinct by their place.
func key(frameTimeNs int64, place uint32) uint64 { return uint64(frameTimeNs)<<32 | uint64(place) }

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
	w.first, w.count = 0, 0
	w.byTime.clear()
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
	for w.count > 0 && w.oldest().presentationNs <= f.presentationNs-windowNs {
		w.byTime.remove(w.oldest().key)
		w.first++
		w.count--
	}
	if w.count == maxValues {
		w.clear(clearOverflow, Of(r.RawSequence), Of(r.HostNs))
		w.locked = true
		return
	}
	place := w.first + w.count
	v := value{presentationNs: f.presentationNs, rawSequence: r.RawSequence, key: key(f.frameTimeNs, place)}
	w.ring[place%maxValues] = v
	w.byTime.insert(v.key)
	w.count++
	w.hostNs = r.HostNs
}

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

// oldest and newest are of a window with values.
func (w *window) oldest() *value { return &w.ring[w.first%maxValues] }
func (w *window) newest() *value { return &w.ring[(w.first+w.count-1)%maxValues] }

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
		out.FirstSample, out.LastSample = w.sample(first), w.sample(first+n-1)
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
	out.ValueNs = Of(int64(w.byTime.nthLargest(int(int64(n)-rank+1), first, n, n == w.count) >> 32))
}

// inWindow sets the window's edges and finds the values between them: n from first on.
func (w *window) inWindow(nowNs int64, out *Receipt) (first, n uint32) {
	if w.count == 0 {
		return 0, 0
	}
	right := wideOf(w.newest().presentationNs).plus(nowNs).minus(w.hostNs)
	left := right.minus(windowNs)
	out.WindowLeftNs, out.WindowRightNs = left.int(), right.int()
	from := w.countUpTo(left.clamped())
	return w.first + from, w.countUpTo(right.clamped()) - from
}

// countUpTo is the number of values with presentationNs <= edgeNs. Nearly always that is none or all but a few, so it looks from the
// ends first, in growing steps.
func (w *window) countUpTo(edgeNs int64) uint32 {
	if w.newest().presentationNs <= edgeNs {
		return w.count
	}
	low, high := uint32(0), uint32(1) // the answer is low or more
	for high < w.count && w.ring[(w.first+high-1)%maxValues].presentationNs <= edgeNs {
		low, high = high, 2*high
	}
	high = min(high, w.count)
	for low < high {
		middle := (low + high) / 2
		if w.ring[(w.first+middle)%maxValues].presentationNs <= edgeNs {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

func (w *window) sample(place uint32) Sample {
	v := &w.ring[place%maxValues]
	return Sample{RawSequence: v.rawSequence, PresentationNs: v.presentationNs, Known: true}
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
