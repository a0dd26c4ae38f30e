// Package capture records a phone's frames: it carries what device hands out through adapter and p95 into a session of ledger.
//
//	recorder.go   what is written for each thing that happens, and with which time (pure: events and times in, lines out)
//	lineage.go    which source epoch, reconnect generation and target generation a connection has (pure)
//	order.go      whether the tap's messages are all there (pure)
//	source.go     the connections to the phone, made again as long as the recording goes on
//	capture.go    one recording from beginning to end
//	decode.go     the same lines again from a recorded wire file
//
// Everything that happens reaches the recorder in one goroutine, in one order, and that is the order of the lines.
package capture

import (
	"strings"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/dtx/tap"
	"github.com/framebridge/framebridge/ledger"
	"github.com/framebridge/framebridge/p95"
)

// Reasons of a source.gap, beside those of tap and adapter.
const (
	ReasonPayloadLost     = "payload-lost"
	ReasonPayloadRepeated = "payload-repeated"
	ReasonDisconnected    = "disconnected"
)

// Log is where lines go: a session that is being recorded, or decode's output.
type Log interface {
	Append(*ledger.Event) error
	AppendWire(hostNs int64, payload []byte) error
}

// Recorder turns what happens into lines. It is not safe for use by several goroutines. After the log's first error every method
// does nothing, and Err tells it.
//
// Times: a payload and what comes of it have its arrival, and never the time of a target.bind before it, so that the order of payloads and
// binds can be told from their times alone. Lines of what happens on this side never go back in time.
type Recorder struct {
	log     Log
	adapter *adapter.Adapter
	meter   *p95.Meter // nil where nothing is published
	err     error

	lastNs        int64 // of the last payload, or line of this side
	lastBindNs    int64
	lastPayloadNs int64
	lastRecordNs  int64
	lastN         int64 // of the last publication
	stampNs       int64 // of the lines that come of the payload in hand

	bound      bool
	binding    adapter.Binding
	foreground foreground
	// anyDisplay says that nobody named the primary display: it follows what the release reports.
	anyDisplay bool
	firstFrame bool // a frame that can be judged has come since the connection was made

	names         map[int64]string // of processes, by pid
	brokenSinceNs int64            // when the row stream broke; 0 while it is whole
	markWire      bool             // the next payload is the first of a connection that is not the first
	totals        Totals
	receipt       p95.Receipt
}

type foreground uint8

const (
	foregroundUnknown foreground = iota
	foregroundNo
	foregroundYes
)

// Totals are what a recording has seen so far.
type Totals struct {
	Frames, Valid, Gaps int64
	ByDisplay           map[int64]int64 // frames
}

// NewRecorder makes a recorder. meter is nil where nothing is published. With anyDisplay the primary display of a binding is a guess,
// corrected by the first frame of a connection that can be judged: 0 where the release reports no display, else as bound, or 1.
func NewRecorder(log Log, a *adapter.Adapter, meter *p95.Meter, anyDisplay bool) *Recorder {
	return &Recorder{log: log, adapter: a, meter: meter, anyDisplay: anyDisplay, totals: Totals{ByDisplay: map[int64]int64{}}}
}

// Err is the log's first error.
func (r *Recorder) Err() error { return r.err }

// Totals are valid until the next call of any method.
func (r *Recorder) Totals() *Totals { return &r.totals }

// BrokenFor is how long, in ns, the row stream has been broken without a reset, 0 while it is whole.
func (r *Recorder) BrokenFor(nowNs int64) int64 {
	if r.brokenSinceNs == 0 {
		return 0
	}
	return nowNs - r.brokenSinceNs
}

// ForgetBroken says that something is being done about the broken row stream.
func (r *Recorder) ForgetBroken() { r.brokenSinceNs = 0 }

// Binding is what is bound; the zero Binding before the first Bind.
func (r *Recorder) Binding() adapter.Binding { return r.binding }

func (r *Recorder) line(hostNs int64, value any) {
	if r.err == nil {
		r.err = r.log.Append(&ledger.Event{HostNs: hostNs, Value: value})
	}
}

// control is the time of a line that says what happened at nowNs.
func (r *Recorder) control(nowNs int64) int64 {
	r.lastNs = max(nowNs, r.lastNs)
	return r.lastNs
}

// NameProcesses gives the names of processes by pid, for contributors that come without. The map must not be changed afterwards.
func (r *Recorder) NameProcesses(names map[int64]string) { r.names = names }

// Bind writes a target.bind, unless the same is bound.
func (r *Recorder) Bind(nowNs int64, b adapter.Binding) {
	if r.err != nil || r.bound && b == r.binding {
		return
	}
	if r.err = r.adapter.Bind(b); r.err != nil {
		return
	}
	at := r.control(nowNs)
	r.lastBindNs = at
	r.line(at, &b)
	if r.meter != nil && r.err == nil {
		_, r.err = r.meter.Bind(b, at)
	}
	if b.Target != r.binding.Target {
		r.foreground = foregroundUnknown
	}
	r.bound, r.binding = true, b
}

// Foreground writes a target.state, unless that is known.
func (r *Recorder) Foreground(nowNs int64, in bool, by string) {
	state := foregroundNo
	if in {
		state = foregroundYes
	}
	if r.err != nil || state == r.foreground {
		return
	}
	r.foreground = state
	at := r.control(nowNs)
	r.line(at, &ledger.TargetState{Foreground: in, By: by})
	if r.meter != nil {
		r.meter.SetForeground(in, at)
	}
}

// Bridge writes a clock.bridge.
func (r *Recorder) Bridge(b p95.ClockBridge) {
	r.line(r.control(b.HostReceiveNs), &b)
	if r.meter != nil {
		r.meter.Bridge(b)
	}
}

// maxCauseBytes bounds what a source.state says of its cause: a phone's own words are in it, which could be more than a line holds.
const maxCauseBytes = 4 << 10

// SourceState writes a source.state.
func (r *Recorder) SourceState(nowNs int64, state, cause string) {
	cause = cause[:min(len(cause), maxCauseBytes)]
	r.line(r.control(nowNs), &ledger.SourceState{State: state, Cause: cause})
}

// Lost writes a source.gap.
func (r *Recorder) Lost(nowNs int64, gap ledger.SourceGap) {
	at := r.control(nowNs)
	r.totals.Gaps++
	r.line(at, &gap)
	if r.meter != nil {
		r.meter.Gap(p95.Of(at))
	}
}

// EndConnection says that the tap's connection ended; the wire gets its mark with the next payload.
func (r *Recorder) EndConnection(nowNs int64) {
	r.stampNs = r.control(nowNs)
	r.adapter.EndConnection((*rows)(r))
	r.brokenSinceNs = 0
	r.firstFrame = false
	r.markWire = r.lastPayloadNs > 0
}

func (r *Recorder) wire(payload []byte) {
	if r.err == nil {
		r.err = r.log.AppendWire(r.stampNs, payload)
	}
}

// Payload takes a DATA message of the tap, which arrived at arrivalNs.
func (r *Recorder) Payload(arrivalNs int64, payload []byte) {
	if r.err != nil || len(payload) == 0 {
		return
	}
	r.stampNs = max(arrivalNs, r.lastBindNs+1, r.lastPayloadNs)
	r.lastPayloadNs = r.stampNs
	r.lastNs = max(r.lastNs, r.stampNs)
	if r.markWire {
		r.markWire = false
		r.wire(nil)
	}
	r.wire(payload)
	r.adapter.Message(r.stampNs, payload, (*rows)(r))
}

// rows is the Recorder as the adapter sees it.
type rows Recorder

func (h *rows) Record(rec *adapter.Record) {
	r := (*Recorder)(h)
	if r.anyDisplay && !r.firstFrame && r.bound && rec.Quality != adapter.QualityUnsupportedSchema {
		r.firstFrame = true
		b := r.binding
		switch {
		case rec.DisplayID == 0:
			b.PrimaryDisplayID = 0
		case b.PrimaryDisplayID == 0:
			b.PrimaryDisplayID = 1
		}
		r.Bind(r.stampNs, b)
	}
	r.line(rec.HostNs, rec)
	r.lastRecordNs = rec.HostNs
	r.totals.Frames++
	r.totals.ByDisplay[rec.DisplayID]++
	if rec.Quality == adapter.QualityValid {
		r.totals.Valid++
	}
	if r.meter != nil {
		r.meter.Record(rec)
	}
}

func (h *rows) Contributors(c *adapter.Contributors) {
	for i := range c.Processes {
		if p := &c.Processes[i]; p.Name == "" {
			p.Name = h.names[p.PID]
		}
	}
	(*Recorder)(h).line(h.stampNs, c)
}

func (h *rows) Gap(g tap.Gap) {
	r := (*Recorder)(h)
	switch g.Reason {
	case tap.ReasonBroken:
		r.brokenSinceNs = r.stampNs
	case tap.ReasonSkipped:
		r.brokenSinceNs = 0
	}
	r.totals.Gaps++
	r.line(r.stampNs, &ledger.SourceGap{Reason: g.Reason, Rows: g.Rows, Bytes: g.Bytes})
	if r.meter != nil {
		r.meter.Gap(p95.Of(r.stampNs))
	}
}

// Publish computes and writes the publication that was due at dueNs. It is valid until the next call.
func (r *Recorder) Publish(dueNs p95.Int, nowNs int64) *p95.Receipt {
	n := max(nowNs, r.lastRecordNs, r.lastN+1)
	r.lastN = n
	r.control(n)
	r.meter.Publish(n, dueNs, &r.receipt)
	r.line(n, &r.receipt)
	return &r.receipt
}

// EndNs is the time for session.end.
func (r *Recorder) EndNs(nowNs int64) int64 { return max(r.control(nowNs), r.lastRecordNs) }

// Extra are the counts that session.end carries beside those of its lines.
func (r *Recorder) Extra() map[string]int64 { return extra(r.adapter.Counts()) }

func extra(c adapter.Counts) map[string]int64 {
	counts := map[string]int64{
		"tapMessages": c.Messages, "tapStatusMessages": c.StatusMessages, "rows": c.Rows, "otherRows": c.OtherNameRows,
		"unreadableRows": c.UnreadableRows, "unreadableFrameRows": c.UnreadableFrameRows,
		"partialContributors": c.PartialContributors,
		"categoryTwins":       c.CategoryTwins, "belowRefresh": c.BelowRefresh, "skewedPredecessors": c.SkewedPredecessors,
		"unpairedBegins": c.UnpairedBegins, "unpairedEnds": c.UnpairedEnds,
	}
	for _, n := range c.Names {
		if !n.Frames {
			// Words with strokes in them, or bytes that no line can carry, may give kinds of rows one name, which then counts both.
			counts[strings.ToValidUTF8("rows:"+n.Subsystem+"/"+n.Category+"/"+n.Name, "\uFFFD")] += n.Rows
		}
	}
	return counts
}
