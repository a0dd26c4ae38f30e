package main

import (
	"bytes"
	"fmt"
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
	adapterVersion                                   integer
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
func (d *document) read(e *event) error {
	*e = event{}
	kind, _ := d.member(0, "type")
	for _, t := range types {
		if kind.kind == text && string(kind.text) == t {
			e.kind = t
		}
	}
	if e.kind == "" {
		return fmt.Errorf("%w: type: expected one of %v, found %.60q", errReject, types, kind.text)
	}
	if err := d.envelope(e); err != nil {
		return err
	}
	if e.kind != typeRecord && !e.hostNs.has { // of a record the window says what a missing one means
		return fmt.Errorf("%w: hostNs: expected an integer", errReject)
	}
	switch e.kind {
	case typeStart:
		return d.start(e)
	case typeBind:
		return d.bind(&e.bind)
	case typeState:
		n, _ := d.member(0, "foreground")
		e.foreground = string(n.text) == "true"
		if n.kind != boolean {
			return fmt.Errorf("%w: foreground: expected a bool, found %v", errReject, n.kind)
		}
	case typeBridge:
		return d.bridge(&e.bridge)
	case typeRecord:
		return d.record(&e.record)
	case typeContributors:
		return d.contributors()
	case typeGap:
		return d.integers(0, "rows", "bytes", "messages")
	case typePublication:
		return d.receipt()
	case typeEnd:
		for _, name := range [...]string{"counts", "extra"} {
			_, i := d.member(0, name)
			if i == 0 {
				continue
			}
			if err := d.children(i, func(_ []byte, n *node, _ int32) error { _, err := n.integer(); return err }); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *document) envelope(e *event) (err error) {
	seq, _ := d.member(0, "seq")
	if e.seq, err = seq.integer(); err != nil {
		return err
	}
	hostNs, _ := d.member(0, "hostNs")
	e.hostNs, err = hostNs.integer()
	return err
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

// needed reads integers that a line cannot do without.
func (d *document) needed(i int32, into map[string]*int64) error {
	for name, at := range into {
		n, _ := d.member(i, name)
		v, err := n.integer()
		if err != nil {
			return err
		}
		if !v.has {
			return fmt.Errorf("%w: %s: expected an integer, found %v", errReject, name, n.kind)
		}
		*at = v.n
	}
	return nil
}

func (d *document) start(e *event) error {
	id, _ := d.member(0, "sessionId")
	e.sessionID = id.text
	clock, _ := d.member(0, "hostClock")
	e.imported = string(clock.text) == "none"
	_, host := d.member(0, "host")
	if err := d.integers(host, "cpus", "pid"); err != nil {
		return err
	}
	_, i := d.member(0, "clock")
	return d.integers(i, "monotonicNs", "wallNs")
}

func (d *document) timebase(b *timebase) error {
	_, i := d.member(0, "timebase")
	return d.needed(i, map[string]*int64{"numer": &b.numer, "denom": &b.denom})
}

func (d *document) bind(b *binding) error {
	bundle, _ := d.member(0, "bundleId")
	if bundle.kind != text {
		return fmt.Errorf("%w: bundleId: expected a string, found %v", errReject, bundle.kind)
	}
	b.bundleID = string(bundle.text)
	if err := d.needed(0, map[string]*int64{"pid": &b.pid, "generation": &b.generation, "sourceEpoch": &b.epoch,
		"reconnectGeneration": &b.reconnect, "primaryDisplayId": &b.display}); err != nil {
		return err
	}
	return d.timebase(&b.base)
}

func (d *document) bridge(b *bridge) (err error) {
	if err := d.needed(0, map[string]*int64{"hostSendNs": &b.sendNs, "hostReceiveNs": &b.receiveNs}); err != nil {
		return err
	}
	n, _ := d.member(0, "deviceContinuousMach")
	if b.continuous, err = n.integer(); err != nil {
		return err
	}
	if err := d.integers(0, "deviceAbsoluteMach"); err != nil {
		return err
	}
	return d.timebase(&b.base)
}

func (d *document) contributors() error {
	if err := d.integers(0, "frameSeed", "displayId"); err != nil {
		return err
	}
	_, i := d.member(0, "processes")
	if i == 0 {
		return nil
	}
	return d.children(i, func(_ []byte, _ *node, i int32) error { return d.integers(i, "pid") })
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
	return d.children(i, func(key []byte, n *node, _ int32) (err error) {
		switch string(key) {
		case "service":
			r.service = n.text
		case "selector":
			r.selector = n.text
		case "adapter_id":
			r.adapterID = n.text
		case "scope":
			r.scope = n.text
		case "raw_unit":
			r.rawUnit = n.text
		case "adapter_version":
			r.adapterVersion, err = n.integer()
		case "channel":
			_, err = n.integer()
		}
		return err
	})
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
