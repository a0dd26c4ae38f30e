package main

import (
	"math"
	"math/big"
	"slices"
)

// The words of p95-window.md.
const (
	policyMark = "p95-window-segment.v2"
	metric     = "ios.frame.time.p95"
	definition = "activitytrace-framelifetime-p95.v1"
	formula    = "nearest-rank-95"
)

// The bounds of p95-window.md.
const (
	windowNs      = 10_000_000_000
	maxValues     = 4096
	minValues     = 5
	staleSourceNs = 1_000_000_000
	staleClockNs  = 2_000_000_000
)

// sample is a value of the window.
type sample struct{ rawSequence, presentationNs, frameNs int64 }

// cleared says why the values were last forgotten.
type cleared struct {
	reason              string
	rawSequence, hostNs integer
}

// window is the state that p95-window.md describes.
type window struct {
	bound   bool
	binding binding
	segment int64

	foreground integer // 0 background, 1 foreground; not there: unknown

	values []sample // of the current segment, in order of presentation
	last   sample   // the last valid record among the values, with its hostNs
	lastAt integer  // H; not there: nothing among the values

	// Order marks: the highest so far.
	rawSequence, hostNs, end, presentation integer

	locked    bool
	lastClear cleared
	unmarked  bool // the last record of the primary display since the last bind that changed anything had no policy mark
	highestN  integer
	bridge    *bridge // the last with continuous time that came in this epoch
	others    others
}

// forget clears the values.
func (w *window) forget(reason string, rawSequence, hostNs integer) {
	w.values = nil
	w.lastAt = integer{}
	w.lastClear = cleared{reason, rawSequence, hostNs}
}

func (w *window) newSegment(reason string, rawSequence, hostNs integer) {
	w.forget(reason, rawSequence, hostNs)
	w.segment++
}

// bind answers why it is refused, "" where it is not.
func (w *window) bind(b binding, at integer) (refused string) {
	old := w.binding
	sameTarget := b.bundleID == old.bundleID && b.pid == old.pid && b.generation == old.generation
	reason := ""
	switch {
	case b.base.numer < 1 || b.base.denom < 1:
		return "a timebase with a part below 1"
	case !w.bound:
		reason = "bind"
	case sameTarget && (b.epoch < old.epoch || b.epoch == old.epoch && b.reconnect < old.reconnect):
		return "an earlier source epoch or reconnect generation"
	case !sameTarget:
		reason = "target"
	case b.epoch != old.epoch:
		reason = "epoch"
	case b.reconnect != old.reconnect:
		reason = "reconnect"
	case b.base != old.base:
		reason = "timebase"
	case b.display != old.display:
		reason = "display"
	default:
		return ""
	}
	if !w.bound || !sameTarget {
		w.foreground = integer{}
	}
	if !w.bound || b.epoch != old.epoch {
		w.bridge = nil
	}
	if reason != "display" {
		w.rawSequence, w.hostNs, w.end, w.presentation = integer{}, integer{}, integer{}, integer{}
		w.locked = false
	}
	w.bound, w.binding = true, b
	w.unmarked = false
	w.others.forget()
	w.newSegment(reason, integer{}, at)
	return ""
}

func (w *window) state(foreground bool, at integer) {
	state, reason := of(0), "background"
	if foreground {
		state, reason = of(1), "foreground"
	}
	if !w.bound || w.foreground == state {
		return
	}
	w.foreground = state
	w.locked = false
	w.others.forget()
	w.newSegment(reason, integer{}, at)
}

// gap is a source.gap, or a line that cannot be read.
func (w *window) gap(at integer) {
	if w.bound {
		w.newSegment(sourceGap, integer{}, at)
	}
}

func (w *window) clock(b *bridge) {
	if _, ok := b.base.ns(b.continuous.n); w.bound && b.continuous.has && ok {
		c := *b
		w.bridge = &c
	}
}

// known reports whether a record is of one of the known source contracts.
func known(r *record) bool {
	service, selector := "com.apple.instruments.server.services.activitytracetap", "onlySignposts"
	switch string(r.adapterID) {
	case "goios.activity-trace.frame-lifetime.raw", "pmd3.activity-trace.frame-lifetime.raw":
	case "xctrace.os-signpost-interval.frame-lifetime":
		service, selector = "xctrace", "os-signpost-interval"
	default:
		return false
	}
	return r.hasSource && string(r.schema) == "perfowl.display-frame-event/2" && string(r.service) == service && string(r.selector) == selector &&
		r.adapterVersion == of(2) && string(r.scope) == "foreground-device" && string(r.rawUnit) == "signpost-framelifetime"
}

// record follows the record table line by line.
func (w *window) record(r *record, hostNs integer) {
	if !w.bound || r.display.n != w.binding.display { // 1
		return
	}
	w.others.record(r, w.binding.base, hostNs)
	w.unmarked = string(r.policy) != policyMark
	quality := ""
	for _, q := range qualities {
		if q == string(r.quality) {
			quality = q
		}
	}
	figuresOK, frameNs := w.figures(r)
	switch {
	case w.locked: // 2
	case w.unmarked: // 3
		w.forget("policy", r.rawSequence, hostNs)
	case !known(r) || !r.decoded || !r.verified: // 4
		w.forget("contract", r.rawSequence, hostNs)
	case !w.identity(r, hostNs, quality): // 5
		w.forget("identity", r.rawSequence, hostNs)
	case quality == duplicate || quality == outOfOrder: // 6
		w.forget(quality, r.rawSequence, hostNs)
	case !above(r.rawSequence, w.rawSequence) || !above(hostNs, w.hostNs) || !above(r.end, w.end) || !above(r.presentation, w.presentation): // 7
		w.forget("order", r.rawSequence, hostNs)
	case quality != valid: // 8
		w.raise(r, hostNs)
		w.newSegment(quality, r.rawSequence, hostNs)
	case !figuresOK: // 9
		w.forget("figures", r.rawSequence, hostNs)
	default: // 10
		w.raise(r, hostNs)
		w.add(sample{r.rawSequence.n, r.presentation.n, frameNs}, hostNs)
	}
}

// identity is check 5: the record belongs to what is bound, and has what it needs.
func (w *window) identity(r *record, hostNs integer, quality string) bool {
	b := &w.binding
	same := r.hasBundleID && string(r.bundleID) == b.bundleID && r.pid == of(b.pid) && r.generation == of(b.generation) &&
		r.epoch == of(b.epoch) && r.reconnect == of(b.reconnect) && r.numer == of(b.base.numer) && r.denom == of(b.base.denom)
	natives := r.swapID.has && r.seed.has && r.begin.has && r.end.has && r.previous.has && r.refresh.has && r.bufferCount.has && r.skip.has
	return same && r.rawSequence.has && hostNs.has && r.display.has && quality != "" && (quality != valid || natives && r.presentation.has)
}

// above reports whether v, if it is there, is strictly above its order mark.
func above(v, mark integer) bool { return !v.has || !mark.has || v.n > mark.n }

func (w *window) raise(r *record, hostNs integer) {
	for _, m := range [...]struct {
		mark *integer
		v    integer
	}{{&w.rawSequence, r.rawSequence}, {&w.hostNs, hostNs}, {&w.end, r.end}, {&w.presentation, r.presentation}} {
		if m.v.has {
			*m.mark = m.v
		}
	}
}

// figures is check 9: what the record says is what its native integers give.
func (w *window) figures(r *record) (ok bool, frameNs int64) {
	frameNs, ok = intervalNs(r)
	presentationNs, fits := r.base().ns(r.end.n)
	if !ok || !fits || frameNs > maxIntervalNs {
		return false, 0
	}
	return r.presentation == of(presentationNs) && equal(&r.frameTimeMs, of(frameNs), 6) && equal(&r.refreshMultiple, refreshMultiple(r), 3), frameNs
}

// equal reports whether a decimal in a line is want / 10^places, or null where there is none.
func equal(n *node, want integer, places int) bool {
	if n.kind != number {
		return !want.has && (n.kind == null || n.kind == absent)
	}
	v, exact, fits := scaled(n.text, places)
	return exact && fits && of(v) == want
}

func (w *window) add(s sample, hostNs integer) {
	w.last, w.lastAt = s, hostNs
	w.values = append(w.values, s)
	for w.values[0].presentationNs <= s.presentationNs-windowNs {
		w.values = w.values[1:]
	}
	if len(w.values) > maxValues {
		w.forget("overflow", of(s.rawSequence), hostNs)
		w.locked = true
	}
}

// publication is a receipt computed here.
type publication struct {
	quality                string
	valueNs                integer
	presentationNs, hostNs integer // P, H
	left, right            integer
	n, rank                integer
	first, lastSample      *sample
	rawSequence            integer
	lastClear              *cleared
	binding                *binding
	segment                int64
	bridged                bool
	bridgeWidth, bridgeAge integer
	others                 otherFigures
}

// publish computes the publication at N.
func (w *window) publish(n int64) (p publication) {
	regression := w.lastAt.has && n < w.lastAt.n || w.highestN.has && n <= w.highestN.n
	if !w.highestN.has || n > w.highestN.n {
		w.highestN = of(n)
	}
	p.n = of(0)
	if !w.bound {
		p.quality = "no-target"
		return p
	}
	p.segment, p.binding, p.rawSequence = w.segment, &w.binding, w.rawSequence
	p.lastClear = &w.lastClear
	if w.bridge != nil {
		p.bridged, p.bridgeWidth = true, fitting(difference(w.bridge.receiveNs, w.bridge.sendNs))
	}
	var frames []int64
	silence, age := new(big.Int), new(big.Int)
	if w.lastAt.has {
		p.presentationNs, p.hostNs = of(w.last.presentationNs), w.lastAt
		silence = difference(n, w.lastAt.n)
		right := new(big.Int).Add(big.NewInt(w.last.presentationNs), silence)
		left := new(big.Int).Sub(right, big.NewInt(windowNs))
		p.left, p.right = fitting(left), fitting(right)
		above, upTo := nearest(left), nearest(right)
		for i := range w.values {
			if s := &w.values[i]; s.presentationNs > above && s.presentationNs <= upTo {
				if p.first == nil {
					p.first = s
				}
				p.lastSample = s
				frames = append(frames, s.frameNs)
			}
		}
		p.n = of(int64(len(frames)))
		if w.bridge != nil {
			age = w.bridge.ageNs(n, w.last.presentationNs)
			p.bridgeAge = fitting(age)
		}
	}
	switch {
	case w.foreground != of(1):
		p.quality = "background"
	case w.locked:
		p.quality = "overflow"
	case regression:
		p.quality = "host-regression"
		p.left, p.right, p.n, p.first, p.lastSample = integer{}, integer{}, integer{}, nil, nil
	case w.unmarked:
		p.quality = "policy-absent"
	case silence.Cmp(big.NewInt(staleSourceNs)) > 0:
		p.quality = "stale-source"
	case age.Cmp(big.NewInt(staleClockNs)) > 0:
		p.quality = "stale-clock"
	case len(frames) < minValues:
		p.quality = "warmup"
	default:
		p.quality = valid
		slices.Sort(frames)
		p.rank = of(rank(p.n.n))
		p.valueNs = of(frames[p.rank.n-1])
	}
	if w.foreground == of(1) && !regression {
		p.others = w.others.at(n)
	}
	return p
}

// rank is the nearest rank of the 95th percentile of n values, from 1.
func rank(n int64) int64 { return (95*n + 99) / 100 }

// ageNs is a lower bound of how old what was presented at presentationNs is at host time n.
func (b *bridge) ageNs(n, presentationNs int64) *big.Int {
	device, _ := b.base.ns(b.continuous.n) // the window took it, so it has one
	age := difference(n, b.receiveNs)
	age.Add(age, difference(device, presentationNs))
	if n >= b.sendNs {
		drift := difference(n, b.sendNs)
		drift.Mul(drift, big.NewInt(50))
		age.Sub(age, drift.Quo(drift, big.NewInt(1_000_000)))
	}
	return age
}

func difference(a, b int64) *big.Int { return new(big.Int).Sub(big.NewInt(a), big.NewInt(b)) }

// fitting is v where it is an int64.
func fitting(v *big.Int) integer { return maybe(v.Int64(), v.IsInt64()) }

// nearest is the int64 nearest to v.
func nearest(v *big.Int) int64 {
	switch {
	case v.IsInt64():
		return v.Int64()
	case v.Sign() < 0:
		return math.MinInt64
	}
	return math.MaxInt64
}
