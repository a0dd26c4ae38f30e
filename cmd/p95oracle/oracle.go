package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// mismatch is one thing that is not as it must be.
type mismatch struct {
	Line  int64  `json:"line"`
	Seq   int64  `json:"seq,omitempty"` // as the line says; 0 where it says none
	Type  string `json:"type,omitempty"`
	Field string `json:"field"`
	Got   string `json:"got"`
	Want  string `json:"want"`
}

// maxListed bounds how many mismatches are listed: one flipped digit can have a thousand consequences.
const maxListed = 100

// report is the oracle's output.
type report struct {
	Equal        bool             `json:"equal"`
	Lines        int64            `json:"lines"`
	Rejected     int64            `json:"rejectedLines"`
	Records      int64            `json:"records"`
	Publications int64            `json:"publications"`
	Valid        int64            `json:"validPublications"`
	Compared     int64            `json:"figuresCompared"`
	Total        int64            `json:"mismatchesTotal"`
	Mismatches   []mismatch       `json:"mismatches"` // the first of them
	Counts       map[string]int64 `json:"counts"`     // lines by type
	TakenAsGiven []given          `json:"takenAsGiven"`
}

// given is a number of the log that nothing here gives a second time. Only the manifest's hash protects it wherever Shows does not apply.
type given struct {
	Fields string `json:"fields"`
	Shows  string `json:"shows"` // where a change of it changes something that is computed here; "" nowhere
}

var takenAsGiven = []given{
	{"session.start host.cpus", ""},
	{"session.start host.pid", ""},
	{"session.start clock.monotonicNs", ""},
	{"session.start clock.wallNs", ""},
	{"target.bind hostNs", "in lastClear, until something else clears"},
	{"target.state hostNs", "in lastClear, until something else clears"},
	{"clock.bridge hostNs", ""},
	{"clock.bridge hostSendNs", "with continuous time, and a publication before the next one"},
	{"clock.bridge hostReceiveNs", "with continuous time, and a publication before the next one"},
	{"clock.bridge deviceContinuousMach", "with a publication before the next one"},
	{"clock.bridge deviceAbsoluteMach", ""},
	{"display.frame-lifetime.raw hostNs", "in receipts that it is the last one for, in lastClear, and where the order among records breaks"},
	{"display.frame-lifetime.raw source.channel", ""},
	{"display.frame-lifetime.raw payload.swapId", "where a frame is told twice; in FrameUpdate's nativeId"},
	{"display.frame-lifetime.raw payload.frameSeed", "where a frame is told twice, in droppedBefore; in FrameUpdate's nativeId"},
	{"display.frame-lifetime.raw payload.surfaceId", ""},
	{"display.frame-lifetime.raw payload.previousMach", "always in a valid record; in others where it changes the quality"},
	{"display.frame-lifetime.raw payload.refreshIntervalMach", "in refreshMultiple and refreshHz, to three decimals, and where the frame is late"},
	{"display.frame-lifetime.raw payload.bufferCount", "where the frame is late, or would be"},
	{"display.frame-lifetime.raw payload.skipRequest", "where the frame is late"},
	{"display.frame-lifetime.raw payload.displayTargetMach", ""},
	{"display.frame-lifetime.raw payload.inputMach", ""},
	{"display.frame-lifetime.raw payload.renderBeginMach", ""},
	{"display.frame-lifetime.raw payload.renderEndMach", ""},
	{"display.frame-contributors hostNs", ""},
	{"display.frame-contributors frameSeed", ""},
	{"display.frame-contributors displayId", ""},
	{"display.frame-contributors processes[].pid", ""},
	{"source.gap hostNs", "in lastClear, until something else clears"},
	{"source.gap rows", ""},
	{"source.gap bytes", ""},
	{"source.gap messages", ""},
	{"source.state hostNs", ""},
	{"p95.publication hostNs", "always with a window; without one where the order among publications breaks"},
	{"session.end hostNs", ""},
	{"session.end extra", "belowRefresh always"},
}

// oracle goes through a log once.
type oracle struct {
	listed   int // how many mismatches are listed
	document document
	event    event
	judge    judge
	window   window
	report   report

	lastSeq, unread int64 // unread: lines since then that were rejected, and stood in the place of some
	behindHole      int64 // what the next seq is if it was the last line's seq that was wrong; else 0
	rawSequence     counter
	start           integer // hostNs of session.start
	due             integer // when the last regular publication was due
	sessionID       string
	imported        bool
	lastHostNs      integer // of the last line that could be read
	lastRecordNs    integer
	lastN           integer
	belowRefresh    int64 // valid records with a refreshMultiple under 0.95
	ended           bool
}

func newOracle() *oracle {
	return &oracle{listed: maxListed, judge: newJudge(), report: report{Mismatches: []mismatch{}, TakenAsGiven: takenAsGiven, Counts: map[string]int64{}}}
}

// read goes through a log. An error means that it cannot be read; what is in it is in the report.
func (o *oracle) read(r io.Reader) (*report, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	var long []byte // what came so far of a line that the buffer does not hold
	for {
		line, err := in.ReadSlice('\n')
		full := errors.Is(err, bufio.ErrBufferFull)
		if full || len(long) > 0 {
			long = append(long, line[:min(len(line), maxLineBytes+2-len(long))]...) // one byte too many is enough to know
			line = long
		}
		if full {
			continue
		}
		if len(line) > 0 {
			o.report.Lines++
		}
		switch body, whole := bytes.CutSuffix(line, []byte("\n")); {
		case len(body) > maxLineBytes:
			o.reject(fmt.Errorf("longer than %d bytes", maxLineBytes))
		case whole:
			o.line(body)
		case len(line) > 0:
			o.reject(errors.New("torn: it has no end"))
		}
		long = long[:0]
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", o.report.Lines, err)
		}
	}
	if o.report.Lines == 0 {
		return nil, errors.New("the log is empty")
	}
	if !o.ended {
		o.event = event{}
		o.differs("", "no session.end", "a last line session.end")
	}
	o.report.Equal = o.report.Total == 0
	return &o.report, nil
}

// differs notes a mismatch in the line at hand.
func (o *oracle) differs(field, got, want string) {
	o.report.Total++
	if len(o.report.Mismatches) < o.listed {
		o.report.Mismatches = append(o.report.Mismatches, mismatch{o.report.Lines, o.event.seq.n, o.event.kind, field, got, want})
	}
}

// reject takes a line that cannot be read: frames may be among what it held.
func (o *oracle) reject(err error) {
	o.report.Rejected++
	o.event = event{}
	o.differs("", err.Error(), "a line that can be read")
	o.unread++
	o.window.gap(integer{})
}

func (o *oracle) line(line []byte) {
	err := o.document.parse(line)
	if err == nil {
		err = o.document.read(&o.event)
	}
	if err == nil {
		err = o.sequence()
	}
	if err != nil {
		o.reject(err)
		return
	}
	e := &o.event
	o.report.Counts[e.kind]++
	if o.ended {
		o.differs("type", e.kind, "no line after session.end")
	}
	if first := o.report.Lines == 1; first != (e.kind == typeStart) {
		o.differs("type", e.kind, "session.start as the first line, and only there")
	}
	switch e.kind {
	case typeStart:
		o.sessionID, o.imported, o.start = string(e.sessionID), e.imported, e.hostNs
	case typeBind:
		if refused := o.window.bind(e.bind, e.hostNs); refused != "" {
			o.differs("", refused, "a bind that can follow the one before")
		}
	case typeState:
		o.window.state(e.foreground, e.hostNs)
	case typeBridge:
		o.bridge(&e.bridge)
	case typeRecord:
		o.record(&e.record)
	case typeGap:
		o.window.gap(e.hostNs)
	case typePublication:
		o.publication()
	case typeEnd:
		o.end()
	}
	o.lastHostNs = e.hostNs
}

func (o *oracle) bridge(b *bridge) {
	if o.window.bound && b.base != o.window.binding.base {
		o.differs("timebase", fmt.Sprintf("%d/%d", b.base.numer, b.base.denom), fmt.Sprintf("%d/%d, which is bound", o.window.binding.base.numer, o.window.binding.base.denom))
	}
	if b.receiveNs < b.sendNs {
		o.differs("hostReceiveNs", strconv.FormatInt(b.receiveNs, 10), "not before hostSendNs")
	}
	o.window.clock(b)
}

// sequence checks seq. Lines that are missing are as unknown as lines that cannot be read, and one that is out of order is refused: an
// error rejects it.
func (o *oracle) sequence() error {
	got, want := o.event.seq.n, o.lastSeq+1
	switch {
	case got < 1, got < want && got != o.behindHole:
		return fmt.Errorf("seq: expected %d, found %d", want, got)
	case got > want+o.unread:
		o.differs("seq", strconv.FormatInt(got, 10), strconv.FormatInt(want+o.unread, 10))
		o.window.gap(integer{})
		o.behindHole = want + o.unread + 1 // if it is this line's seq that is wrong, and no line is missing
	default:
		o.behindHole = 0
	}
	o.lastSeq, o.unread = got, 0
	return nil
}

// counter checks numbers that go 1, 2, 3 …
type counter struct{ last, odd integer }

// next takes the number that comes. Where it is wrong, want says what it must be; a wrong one alone is told once, and so is a hole.
func (c *counter) next(got integer) (want string, ok bool) {
	expected := c.last.n + 1
	ok = got == of(expected)
	switch {
	case ok:
		c.last, c.odd = got, integer{}
	case got.has && c.odd.has && got.n == c.odd.n+1: // they go on behind a hole
		c.last, c.odd, ok = got, integer{}, true
	default:
		c.last, c.odd = of(expected), got
	}
	return strconv.FormatInt(expected, 10), ok
}

func (n integer) String() string {
	if !n.has {
		return "null"
	}
	return strconv.FormatInt(n.n, 10)
}

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
		return string(n.text[:min(len(n.text), 60)])
	case text:
		return strconv.Quote(string(n.text[:min(len(n.text), 60)]))
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
		o.differs(field, strconv.Quote(string(got[:min(len(got), 60)])), strconv.Quote(want))
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
	for name, s := range map[string]*sample{"firstSample": p.first, "lastSample": p.lastSample} {
		if s == nil {
			o.null(name)
			continue
		}
		o.inner(name, func(f func(string) *node) {
			o.integer(name+".rawSequence", f("rawSequence"), of(s.rawSequence))
			o.integer(name+".presentationNs", f("presentationNs"), of(s.presentationNs))
		})
	}
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
