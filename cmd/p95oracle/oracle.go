package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

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
			o.reject("", fmt.Errorf("longer than %d bytes", maxLineBytes))
		case whole:
			o.line(body)
		case len(line) > 0:
			o.reject("", errors.New("torn: it has no end"))
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
func (o *oracle) reject(field string, err error) {
	o.report.Rejected++
	o.event = event{}
	o.differs(field, err.Error(), "a line that can be read")
	o.unread++
	o.window.gap(integer{})
}

func (o *oracle) line(line []byte) {
	if err := o.document.parse(line); err != nil {
		o.reject(string(o.document.path[:min(len(o.document.path), maxShown)]), err)
		return
	}
	if err := o.document.read(&o.event); err != nil {
		o.reject("", err) // it names the member
		return
	}
	if err := o.sequence(); err != nil {
		o.reject("seq", err)
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
		return fmt.Errorf("%d where %d is next", got, want)
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
