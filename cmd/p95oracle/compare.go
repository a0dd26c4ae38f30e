package main

import (
	"fmt"
	"strconv"
)

func (o *oracle) end() {
	o.ended = true
	d := &o.document
	_, counts := d.member(0, "counts")
	for _, t := range types {
		n, _ := d.member(counts, t)
		o.integer("counts."+t, n, of(o.report.Counts[t]))
	}
	_, extra := d.member(0, "extra")
	if n, _ := d.member(extra, "belowRefresh"); n.kind != absent {
		o.integer("extra.belowRefresh", n, of(o.belowRefresh))
	}
}

// integer compares a member that is an integer or null.
func (o *oracle) integer(field string, n *node, want integer) {
	o.report.Compared++
	got, _ := n.integer()
	if got == want && (want.has || n.kind == null) {
		return
	}
	o.differs(field, n.String(), want.String())
}

// decimal compares a member that is a decimal with so many places, or null.
func (o *oracle) decimal(field string, n *node, want integer, places int) {
	o.report.Compared++
	if n.kind != absent && equal(n, want, places) {
		return
	}
	text := "null"
	if want.has {
		text = decimalText(want.n, places)
	}
	o.differs(field, n.String(), text)
}

// text compares a member that is a string.
func (o *oracle) text(field string, n *node, want string) {
	o.report.Compared++
	if n.kind != text || string(n.text) != want {
		o.differs(field, n.String(), strconv.Quote(want))
	}
}

func (n *node) String() string {
	switch n.kind {
	case number, boolean:
		return string(n.text[:min(len(n.text), maxShown)])
	case text:
		return strconv.Quote(string(n.text[:min(len(n.text), maxShown)]))
	}
	return n.kind.String()
}

// record checks what a raw record says of itself, and hands it to the window.
func (o *oracle) record(r *record) {
	o.report.Records++
	hostNs := o.event.hostNs
	v := o.judge.judge(r)
	if want, ok := o.rawSequence.next(r.rawSequence); !ok {
		o.differs("rawSequence", r.rawSequence.String(), want)
	}
	o.arrival(r, v.presentationNs)
	o.belongs(r)
	o.integer("payload.presentationNs", &r.presentationNs, v.presentationNs)
	o.decimal("payload.frameTimeMs", &r.frameTimeMs, v.frameNs, 6)
	o.decimal("payload.lifetimeMs", &r.lifetimeMs, v.lifetime, 6)
	o.decimal("payload.refreshMultiple", &r.refreshMultiple, v.multiple, 3)
	o.words("payload.quality", r.quality, v.quality)
	o.integer("payload.droppedBefore", &r.droppedBefore, v.dropped)
	if v.quality != unsupportedSchema { // there the reason says what was wrong with an argument that is not in the record
		o.words("payload.qualityReason", r.reason, v.reason)
	}
	if v.skew.has || r.skewMach.kind != absent {
		o.integer("payload.predecessorSkewMach", &r.skewMach, v.skew)
	}
	if string(r.name) == "FrameUpdate" && v.quality != unsupportedSchema {
		o.integer("payload.nativeId", &r.nativeID, nativeID(r))
	}
	if v.twin {
		o.differs("payload.category", strconv.Quote(string(r.category)), "no second record of a frame that was told under the other category")
	}
	if v.multiple.has && v.multiple.n < 950 {
		o.belowRefresh++
	}
	o.window.record(r, hostNs)
}

func (o *oracle) words(field string, got []byte, want string) {
	o.report.Compared++
	if string(got) != want {
		o.differs(field, strconv.Quote(string(got[:min(len(got), maxShown)])), strconv.Quote(want))
	}
}

// arrival checks a record's hostNs.
func (o *oracle) arrival(r *record, presentationNs integer) {
	hostNs := o.event.hostNs
	switch {
	case !hostNs.has:
		o.differs("hostNs", "null", "an integer")
		return
	case o.lastRecordNs.has && hostNs.n <= o.lastRecordNs.n:
		o.differs("hostNs", hostNs.String(), "above "+o.lastRecordNs.String()+" of the record before")
	case o.imported:
		want := presentationNs
		if !want.has {
			want = of(o.lastHostNs.n + 1)
		}
		if o.lastRecordNs.has {
			want.n = max(want.n, o.lastRecordNs.n+1)
		}
		if hostNs != want {
			o.differs("hostNs", hostNs.String(), want.String()+": an import has no arrivals but presentations")
		}
	}
	o.lastRecordNs = hostNs
}

// belongs checks that a record is of this session, of a known source contract, and of what is bound.
func (o *oracle) belongs(r *record) {
	w := &o.window
	if !known(r) {
		o.differs("source", fmt.Sprintf("%.60q version %v", r.adapterID, r.adapterVersion), "a known source contract")
	}
	id, _ := o.document.member(0, "sessionId")
	if o.sessionID != "" {
		o.text("sessionId", id, o.sessionID)
	}
	if !w.bound {
		return
	}
	b := &w.binding
	o.words("target.bundleId", r.bundleID, b.bundleID)
	for _, c := range [...]struct {
		field string
		got   integer
		want  int64
	}{
		{"target.pid", r.pid, b.pid}, {"target.generation", r.generation, b.generation},
		{"sourceEpoch", r.epoch, b.epoch}, {"reconnectGeneration", r.reconnect, b.reconnect},
		{"payload.timebase.numer", r.numer, b.base.numer}, {"payload.timebase.denom", r.denom, b.base.denom},
	} {
		o.report.Compared++
		if c.got != of(c.want) {
			o.differs(c.field, c.got.String(), strconv.FormatInt(c.want, 10)+", which is bound")
		}
	}
}

// publication computes a receipt at the line's N and compares every field of the line with it.
func (o *oracle) publication() {
	o.report.Publications++
	d := &o.document
	n := o.event.hostNs
	if o.lastN.has && n.n <= o.lastN.n {
		o.differs("hostNs", n.String(), "above "+o.lastN.String()+" of the publication before")
	}
	o.lastN = n
	o.dueNs()
	p := o.window.publish(n.n)
	if p.quality == valid {
		o.report.Valid++
	}
	top := func(name string) *node { m, _ := d.member(0, name); return m }
	o.text("metric", top("metric"), metric)
	o.text("definition", top("definition"), definition)
	o.text("policy", top("policy"), policyMark)
	o.text("formula", top("formula"), formula)
	o.decimal("valueMs", top("valueMs"), p.valueNs, 6)
	o.text("quality", top("quality"), p.quality)
	o.integer("lastPresentationNs", top("lastPresentationNs"), p.presentationNs)
	o.integer("lastHostNs", top("lastHostNs"), p.hostNs)
	o.integer("windowLeftNs", top("windowLeftNs"), p.left)
	o.integer("windowRightNs", top("windowRightNs"), p.right)
	o.integer("segment", top("segment"), of(p.segment))
	o.integer("n", top("n"), p.n)
	o.integer("rank", top("rank"), p.rank)
	o.integer("lastRawSequence", top("lastRawSequence"), p.rawSequence)
	if b := p.binding; b != nil {
		o.inner("target", func(f func(string) *node) {
			o.text("target.bundleId", f("bundleId"), b.bundleID)
			o.integer("target.pid", f("pid"), of(b.pid))
			o.integer("target.generation", f("generation"), of(b.generation))
		})
		o.integer("sourceEpoch", top("sourceEpoch"), of(b.epoch))
		o.integer("reconnectGeneration", top("reconnectGeneration"), of(b.reconnect))
		o.integer("displayId", top("displayId"), of(b.display))
		o.inner("timebase", func(f func(string) *node) {
			o.integer("timebase.numer", f("numer"), of(b.base.numer))
			o.integer("timebase.denom", f("denom"), of(b.base.denom))
		})
		o.inner("lastClear", func(f func(string) *node) {
			o.text("lastClear.reason", f("reason"), p.lastClear.reason)
			o.integer("lastClear.rawSequence", f("rawSequence"), p.lastClear.rawSequence)
			o.integer("lastClear.hostNs", f("hostNs"), p.lastClear.hostNs)
		})
	} else {
		for _, name := range [...]string{"target", "sourceEpoch", "reconnectGeneration", "displayId", "timebase", "lastClear"} {
			o.null(name)
		}
	}
	o.sample("firstSample", p.first)
	o.sample("lastSample", p.lastSample)
	o.inner("clockBridge", func(f func(string) *node) {
		o.report.Compared++
		if got, want := f("qualified").String(), strconv.FormatBool(p.bridged); got != want {
			o.differs("clockBridge.qualified", got, want)
		}
		o.integer("clockBridge.widthNs", f("widthNs"), p.bridgeWidth)
		o.integer("clockBridge.ageLowerBoundNs", f("ageLowerBoundNs"), p.bridgeAge)
	})
	o.inner("other", func(f func(string) *node) {
		o.integer("other.fps", f("fps"), p.others.fps)
		o.decimal("other.frameTimeMs", f("frameTimeMs"), p.others.frameNs, 6)
		o.decimal("other.refreshHz", f("refreshHz"), p.others.refreshMilliHz, 3)
		o.decimal("other.jitterMs", f("jitterMs"), p.others.jitterUs, 3)
		o.decimal("other.hitchMsPerS", f("hitchMsPerS"), p.others.hitchUsPerS, 3)
		o.integer("other.missedRefreshes", f("missedRefreshes"), p.others.missed)
	})
}

func (o *oracle) sample(name string, s *sample) {
	if s == nil {
		o.null(name)
		return
	}
	o.inner(name, func(f func(string) *node) {
		o.integer(name+".rawSequence", f("rawSequence"), of(s.rawSequence))
		o.integer(name+".presentationNs", f("presentationNs"), of(s.presentationNs))
	})
}

// dueNs checks when the publication was due: one second after another, from a second after the session's start on; null where it was asked for.
func (o *oracle) dueNs() {
	n, _ := o.document.member(0, "dueNs")
	due, _ := n.integer()
	if !due.has {
		if n.kind != null {
			o.differs("dueNs", n.String(), "an integer or null")
		}
		return
	}
	before := o.due
	if !before.has {
		before = o.start
	}
	o.due = due
	o.report.Compared++
	if before.has && due.n != before.n+secondNs {
		o.differs("dueNs", due.String(), strconv.FormatInt(before.n+secondNs, 10)+", a second after the one before")
	}
	if due.n > o.event.hostNs.n {
		o.differs("hostNs", o.event.hostNs.String(), "not before "+due.String()+", when it was due")
	}
}

// inner compares the members of an object that must be there.
func (o *oracle) inner(name string, compare func(member func(string) *node)) {
	n, i := o.document.member(0, name)
	if n.kind != object {
		o.report.Compared++
		o.differs(name, n.String(), "an object")
		return
	}
	compare(func(member string) *node { m, _ := o.document.member(i, member); return m })
}

func (o *oracle) null(name string) {
	o.report.Compared++
	if n, _ := o.document.member(0, name); n.kind != null {
		o.differs(name, n.String(), "null")
	}
}

func (n integer) String() string {
	if !n.has {
		return "null"
	}
	return strconv.FormatInt(n.n, 10)
}
