package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
)

// The words of the event log.
const (
	typeStart        = "session.start"
	typeBind         = "target.bind"
	typeState        = "target.state"
	typeBridge       = "clock.bridge"
	typeRecord       = "display.frame-lifetime.raw"
	typeContributors = "display.frame-contributors"
	typeGap          = "source.gap"
	typeSourceState  = "source.state"
	typePublication  = "p95.publication"
	typeEnd          = "session.end"
)

var types = [...]string{typeStart, typeBind, typeState, typeBridge, typeRecord, typeContributors, typeGap, typeSourceState, typePublication, typeEnd}

// event is a line, read. Byte slices point into the line.
type event struct {
	seq, hostNs integer
	kind        string // one of types
	sessionID   []byte
	imported    bool // session.start: hostClock is none, so hostNs is no arrival
	bind        binding
	foreground  bool
	bridge      bridge
	record      record
}

// binding is what a target.bind binds, and what a record or receipt says it belongs to.
type binding struct {
	bundleID         string
	pid, generation  int64
	epoch, reconnect int64
	display          int64
	base             timebase
}

type bridge struct {
	sendNs, receiveNs int64
	continuous        integer
	base              timebase
}

// record is a raw record as it stands in the line.
type record struct {
	schema                                           []byte
	service, selector, adapterID, scope, rawUnit     []byte
	adapterVersion, channel                          integer
	hasSource                                        bool // all seven members, of the right kinds
	bundleID                                         []byte
	hasBundleID                                      bool
	pid, generation, epoch, reconnect                integer
	policy                                           []byte
	rawSequence                                      integer
	category, name                                   []byte
	swapID, seed, display                            integer
	begin, end, previous, refresh, bufferCount, skip integer
	numer, denom                                     integer
	presentation                                     integer
	// Figures as they stand in the line, to be compared.
	presentationNs, frameTimeMs, lifetimeMs, refreshMultiple, droppedBefore, skewMach, nativeID node
	quality, reason                                                                             []byte
	decoded, verified                                                                           bool
}

func (r *record) base() timebase { return timebase{r.numer.n, r.denom.n} }

// read takes an event out of a parsed line. Its errors reject the line.
func (d *document) read(e *event) (err error) {
	*e = event{}
	word, _ := d.member(0, "type")
	for _, t := range types {
		if word.kind == text && string(word.text) == t {
			e.kind = t
		}
	}
	if e.kind == "" {
		return fmt.Errorf("type: expected one of %q, found %v", types, word)
	}
	if err := d.needs(0, number, "seq"); err != nil {
		return err
	}
	e.seq = of(d.n(0, "seq"))
	hostNs, _ := d.member(0, "hostNs")
	if e.hostNs, err = hostNs.integer(); err != nil {
		return err
	}
	if e.kind == typeRecord { // all but seq may be missing: the window says what that means
		return d.record(&e.record)
	}
	if err := d.needs(0, number, "hostNs"); err != nil {
		return err
	}
	switch e.kind {
	case typeStart:
		return d.start(e)
	case typeBind:
		return d.bind(&e.bind)
	case typeState:
		n, _ := d.member(0, "foreground")
		e.foreground = string(n.text) == "true"
		return errors.Join(d.needs(0, boolean, "foreground"), d.word("by", "notification", "process-list", "launch", "operator", "import"))
	case typeBridge:
		return d.bridge(&e.bridge)
	case typeContributors:
		return d.contributors()
	case typeGap:
		return errors.Join(d.needs(0, text, "reason"), d.needs(0, number, "rows", "bytes", "messages"))
	case typeSourceState:
		return errors.Join(d.word("state", "connected", "disconnected", "reconnecting"), d.needs(0, text, "cause"))
	case typePublication:
		return d.receipt()
	}
	return d.end()
}

// needs checks that members are there and of that kind; a number has to be an integer.
func (d *document) needs(i int32, want kind, names ...string) error {
	for _, name := range names {
		n, _ := d.member(i, name)
		if want == number {
			if _, err := n.integer(); err != nil {
				return err
			}
		}
		if n.kind != want {
			return fmt.Errorf("%s: expected %v, found %v", name, want, n.kind)
		}
	}
	return nil
}

// word checks that a member is one of a list of strings.
func (d *document) word(name string, list ...string) error {
	n, _ := d.member(0, name)
	if n.kind != text || !slices.Contains(list, string(n.text)) {
		return fmt.Errorf("%s: expected one of %q, found %v", name, list, n)
	}
	return nil
}

// n is an integer member that is there.
func (d *document) n(i int32, name string) int64 {
	n, _ := d.member(i, name)
	v, _ := n.integer()
	return v.n
}

// integers checks members in which integers belong, where they are there.
func (d *document) integers(i int32, names ...string) error {
	for _, name := range names {
		n, _ := d.member(i, name)
		if _, err := n.integer(); err != nil {
			return err
		}
	}
	return nil
}

func (d *document) start(e *event) error {
	id, _ := d.member(0, "sessionId")
	e.sessionID = id.text
	hostClock, _ := d.member(0, "hostClock")
	e.imported = string(hostClock.text) == "none"
	_, host := d.member(0, "host")
	_, clock := d.member(0, "clock")
	return errors.Join(d.needs(0, text, "sessionId", "name", "evidence", "policy"), d.needs(0, object, "tool", "host", "device", "clock"),
		d.needs(host, number, "cpus", "pid"), d.needs(clock, number, "monotonicNs", "wallNs"))
}

func (d *document) timebase() (timebase, error) {
	_, i := d.member(0, "timebase")
	err := errors.Join(d.needs(0, object, "timebase"), d.needs(i, number, "numer", "denom"))
	return timebase{d.n(i, "numer"), d.n(i, "denom")}, err
}

func (d *document) bind(b *binding) error {
	bundle, _ := d.member(0, "bundleId")
	base, err := d.timebase()
	*b = binding{string(bundle.text), d.n(0, "pid"), d.n(0, "generation"), d.n(0, "sourceEpoch"), d.n(0, "reconnectGeneration"),
		d.n(0, "primaryDisplayId"), base}
	return errors.Join(err, d.needs(0, text, "bundleId"),
		d.needs(0, number, "pid", "generation", "sourceEpoch", "reconnectGeneration", "primaryDisplayId"))
}

func (d *document) bridge(b *bridge) error {
	base, err := d.timebase()
	*b = bridge{sendNs: d.n(0, "hostSendNs"), receiveNs: d.n(0, "hostReceiveNs"), base: base}
	if n, _ := d.member(0, "deviceContinuousMach"); n.kind != null {
		b.continuous = of(d.n(0, "deviceContinuousMach"))
		err = errors.Join(err, d.needs(0, number, "deviceContinuousMach"))
	}
	return errors.Join(err, d.needs(0, number, "hostSendNs", "hostReceiveNs", "deviceAbsoluteMach"))
}

func (d *document) contributors() error {
	_, i := d.member(0, "processes")
	if err := errors.Join(d.needs(0, number, "frameSeed", "displayId"), d.needs(0, array, "processes")); err != nil {
		return err
	}
	return d.children(i, func(_ []byte, _ *node, i int32) error { return d.needs(i, number, "pid") })
}

func (d *document) end() error {
	if err := errors.Join(d.word("state", "complete", "partial"), d.needs(0, text, "reason"), d.needs(0, object, "counts", "extra")); err != nil {
		return err
	}
	_, counts := d.member(0, "counts")
	_, extra := d.member(0, "extra")
	return errors.Join(d.needs(counts, number, types[:]...), d.children(extra, func(_ []byte, n *node, _ int32) error {
		if _, err := n.integer(); err != nil || n.kind != number {
			return fmt.Errorf("extra: expected integers, found %v", n)
		}
		return nil
	}))
}

// record reads a raw record in one pass over its members: there are hundreds of thousands of them in a session.
func (d *document) record(r *record) error {
	return d.children(0, func(key []byte, n *node, i int32) (err error) {
		switch string(key) {
		case "schema":
			r.schema = n.text
		case "rawSequence":
			r.rawSequence, err = n.integer()
		case "sourceEpoch":
			r.epoch, err = n.integer()
		case "reconnectGeneration":
			r.reconnect, err = n.integer()
		case "p95PublicationPolicy":
			r.policy = n.text
		case "source":
			return d.source(r, i)
		case "target":
			return d.target(r, i)
		case "payload":
			return d.payload(r, i)
		}
		return err
	})
}

func (d *document) source(r *record, i int32) error {
	texts := 0
	err := d.children(i, func(key []byte, n *node, _ int32) (err error) {
		var to *[]byte
		switch string(key) {
		case "service":
			to = &r.service
		case "selector":
			to = &r.selector
		case "adapter_id":
			to = &r.adapterID
		case "scope":
			to = &r.scope
		case "raw_unit":
			to = &r.rawUnit
		case "adapter_version":
			r.adapterVersion, err = n.integer()
			return err
		case "channel":
			r.channel, err = n.integer()
			return err
		default:
			return nil
		}
		*to = n.text
		if n.kind == text {
			texts++
		}
		return nil
	})
	r.hasSource = texts == 5 && r.adapterVersion.has && r.channel.has
	return err
}

func (d *document) target(r *record, i int32) error {
	return d.children(i, func(key []byte, n *node, _ int32) (err error) {
		switch string(key) {
		case "bundleId":
			r.bundleID, r.hasBundleID = n.text, n.kind == text
		case "pid":
			r.pid, err = n.integer()
		case "generation":
			r.generation, err = n.integer()
		}
		return err
	})
}

func (d *document) payload(r *record, i int32) error {
	return d.children(i, func(key []byte, n *node, i int32) (err error) {
		switch string(key) {
		case "category":
			r.category = n.text
		case "name":
			r.name = n.text
		case "swapId":
			r.swapID, err = n.integer()
		case "frameSeed":
			r.seed, err = n.integer()
		case "displayId":
			r.display, err = n.integer()
		case "beginMach":
			r.begin, err = n.integer()
		case "endMach":
			r.end, err = n.integer()
		case "previousMach":
			r.previous, err = n.integer()
		case "refreshIntervalMach":
			r.refresh, err = n.integer()
		case "bufferCount":
			r.bufferCount, err = n.integer()
		case "skipRequest":
			r.skip, err = n.integer()
		case "surfaceId", "displayTargetMach", "inputMach", "renderBeginMach", "renderEndMach":
			_, err = n.integer()
		case "presentationNs":
			r.presentationNs = *n
			r.presentation, err = n.integer()
		case "droppedBefore":
			r.droppedBefore = *n
			_, err = n.integer()
		case "predecessorSkewMach":
			r.skewMach = *n
			_, err = n.integer()
		case "nativeId":
			r.nativeID = *n
			_, err = n.integer()
		case "frameTimeMs":
			r.frameTimeMs = *n
			err = n.decimal()
		case "lifetimeMs":
			r.lifetimeMs = *n
			err = n.decimal()
		case "refreshMultiple":
			r.refreshMultiple = *n
			err = n.decimal()
		case "quality":
			r.quality = n.text
		case "qualityReason":
			r.reason = n.text
		case "decoded":
			r.decoded = n.kind == boolean && bytes.Equal(n.text, []byte("true"))
		case "verified":
			r.verified = n.kind == boolean && bytes.Equal(n.text, []byte("true"))
		case "timebase":
			return d.children(i, func(key []byte, n *node, _ int32) (err error) {
				switch string(key) {
				case "numer":
					r.numer, err = n.integer()
				case "denom":
					r.denom, err = n.integer()
				}
				return err
			})
		}
		return err
	})
}

// receipt checks the forms of a receipt's numbers. What they say is compared later, and never used.
func (d *document) receipt() error {
	if err := d.integers(0, "dueNs", "lastPresentationNs", "lastHostNs", "windowLeftNs", "windowRightNs", "segment", "sourceEpoch",
		"reconnectGeneration", "displayId", "n", "rank", "lastRawSequence"); err != nil {
		return err
	}
	for _, inner := range [...]struct {
		name     string
		integers []string
		decimals []string
	}{
		{"target", []string{"pid", "generation"}, nil},
		{"timebase", []string{"numer", "denom"}, nil},
		{"firstSample", []string{"rawSequence", "presentationNs"}, nil},
		{"lastSample", []string{"rawSequence", "presentationNs"}, nil},
		{"lastClear", []string{"rawSequence", "hostNs"}, nil},
		{"clockBridge", []string{"widthNs", "ageLowerBoundNs"}, nil},
		{"other", []string{"fps", "missedRefreshes"}, []string{"frameTimeMs", "refreshHz", "jitterMs", "hitchMsPerS"}},
	} {
		_, i := d.member(0, inner.name)
		if i == 0 {
			continue
		}
		if err := d.integers(i, inner.integers...); err != nil {
			return err
		}
		for _, name := range inner.decimals {
			n, _ := d.member(i, name)
			if err := n.decimal(); err != nil {
				return err
			}
		}
	}
	value, _ := d.member(0, "valueMs")
	return value.decimal()
}
