// Package adapter turns what a device's activity trace tap sends into normalized raw records (raw-record.md): tap rows are read as frames
// in the native form of the device's release (wire.md), and each frame is judged. It is pure: payloads and times go in, records come out.
//
// Where the contracts leave something open:
//
//   - presentFields names arguments as the device does, in the order of wire.md; one that was there and could not be used is among them.
//     For FrameUpdate they are base_mct, args1, args2, FrameLifetimeInterval and FramePrevious.
//   - A signpost identifier that is missing or does not fit counts as a required argument, since a frame has no swap id without it. So do a
//     display_id that is there and no number (which display it is cannot be guessed), and an end whose nanoseconds do not fit int64.
//   - predecessorSkewMach is previous - last end.
//   - A row that carries both begin_time and end_time is a whole frame even if it is one of a pair; the other one is then no second frame.
//   - A row that cannot be what the device sent (a struct where text belongs, an event type that does not exist) means that the decoder's stack is
//     not the device's any more, as after a payload that was lost: the stream counts as broken until its next reset, and so it is reported.
//   - Contributors are not told again for a frame that is a duplicate.
package adapter

import (
	"fmt"

	"github.com/framebridge/framebridge/dtx/tap"
)

// Handler receives what an Adapter finds, in stream order. Pointers are valid only during the call.
type Handler interface {
	Record(*Record)
	Contributors(*Contributors)
	// Gap says that frames may have been lost here: one of tap's reasons, or ReasonFrameRow.
	Gap(tap.Gap)
}

// ReasonFrameRow is the reason of a gap where a row of a frame form could not be read.
const ReasonFrameRow = "frame-row-unreadable"

// Columns of os-signpost, by place in columns.
const (
	columnTime = iota
	columnEventType
	columnIdentifier
	columnName
	columnFormat
	columnSubsystem
	columnCategory
	columnMessage
)

const signpostTable = "os-signpost"

// want is what the adapter asks of the decoder. Rows of the other tables are only counted.
var want = tap.Want{
	signpostTable:     {"time", "event-type", "identifier", "name", "format-string", "subsystem", "category", "message"},
	"os-signpost-arg": nil,
	"os-log":          nil,
	"os-log-arg":      nil,
}

// Adapter reads one session's tap payloads. It is not safe for use by several goroutines. In steady state it allocates nothing.
type Adapter struct {
	decoder *tap.Decoder
	judge   judge

	template Record // the identity of every record
	last     struct {
		hostNs, rawSequence int64
		any                 bool
	}

	lifetime frameLifetime
	update   frameUpdate
	context  contextInfo
	forms    [formCount]frameForm // by formID; nil where the form tells no frames
	formats  [formCount]formatStrings

	messages messages
	events   idCache[eventType]
	survey   survey
	counts   Counts

	handler Handler // during Message and the like
	hostNs  int64
	row     signpost
	record  Record
	told    Contributors
}

type formID uint8

const (
	formNone formID = iota
	formFrameLifetime
	formFrameUpdate
	formContextInfo
	formCount
)

// formNames are the signpost names of the forms.
var formNames = [formCount]string{formFrameLifetime: "FrameLifetime", formFrameUpdate: "FrameUpdate", formContextInfo: "ContextInfo"}

// New makes an adapter for one session's records. policy is PolicyP95, or "" where records carry no mark. Bind must come before the
// first payload: without a timebase no frame can be judged, and all are unsupported-schema.
func New(source Source, sessionID, policy string) *Adapter {
	a := &Adapter{decoder: tap.NewDecoder(want)}
	a.template = Record{Fields: HasSource, SessionID: sessionID, Schema: RecordSchema, Source: source, Policy: policy}
	a.forms = [formCount]frameForm{formFrameLifetime: &a.lifetime, formFrameUpdate: &a.update}
	a.formats[formFrameLifetime].resolve = lifetimeArgument
	a.formats[formFrameUpdate].resolve = updateArgument
	a.formats[formContextInfo].resolve = contextArgument
	a.judge.bind(0, 0)
	a.survey.init()
	return a
}

// Bind sets the identity of the records from here on; a zero Target means that none is known. Frames of another epoch or reconnect
// generation have no predecessor among those before.
func (a *Adapter) Bind(b Binding) error {
	if b.Timebase.Numer < 1 || b.Timebase.Denom < 1 {
		return fmt.Errorf("timebase %d/%d: want both parts to be 1 or more, as machTimeInfo gives them", b.Timebase.Numer, b.Timebase.Denom)
	}
	r := &a.template
	r.Target, r.SourceEpoch, r.ReconnectGeneration, r.Timebase = b.Target, b.SourceEpoch, b.ReconnectGeneration, b.Timebase
	r.Fields |= HasSourceEpoch | HasReconnectGeneration | HasTimebase | HasTarget
	if b.Target == (Target{}) {
		r.Fields &^= HasTarget
	}
	a.judge.bind(b.SourceEpoch, b.ReconnectGeneration)
	return nil
}

// Message takes the next DATA payload of the tap, which arrived at hostNs, and calls h for everything in it. Status and heartbeat
// objects are counted.
func (a *Adapter) Message(hostNs int64, payload []byte, h Handler) {
	if len(payload) >= len(statusMark) && string(payload[:len(statusMark)]) == statusMark {
		a.counts.StatusMessages++
		return
	}
	a.counts.Messages++
	a.handler, a.hostNs = h, hostNs
	a.decoder.Decode(payload, (*tapHandler)(a))
	a.handler = nil
}

// statusMark begins a payload that is a binary property list and no rows.
const statusMark = "bplist"

// EndConnection says that the tap's connection ended, and with it the row stream; the next payload begins a new one. What was being
// skipped, or was torn, is a gap.
func (a *Adapter) EndConnection(h Handler) {
	a.handler = h
	a.decoder.Flush((*tapHandler)(a))
	a.handler = nil
	for _, f := range a.forms {
		if f != nil {
			f.reset()
		}
	}
}

// tapHandler is the Adapter as its decoder sees it.
type tapHandler Adapter

func (t *tapHandler) Gap(g tap.Gap) { t.handler.Gap(g) }

func (t *tapHandler) Row(row *tap.Row) {
	a := (*Adapter)(t)
	a.counts.Rows++
	if row.Table() != signpostTable {
		a.survey.tables[row.Table()]++ // few: those asked for
		return
	}
	event, class := a.event(row.Value(columnEventType)), a.survey.class(row)
	if event == eventUnknown || class == nil {
		a.decoder.Break("an os-signpost row that the device cannot have sent", t)
		return
	}
	class.rows++
	if class.example == "" {
		class.example = example(row.Value(columnMessage))
	}
	if class.form == formNone {
		return
	}
	s := &a.row
	s.category, s.event = class.categoryID, event
	s.time, s.identifier = row.Value(columnTime), row.Value(columnIdentifier)
	if s.time.IsStruct() || !a.messages.read(row.Value(columnMessage), row.Value(columnFormat), &a.formats[class.form], &s.args) {
		a.decoder.Break("a time or message of another shape than the device sends", t)
		return
	}
	a.told.Processes = a.told.Processes[:0]
	if class.form == formContextInfo {
		// An End row would only repeat what the Begin row said.
		if event != eventEnd && a.context.read(s, &a.told) {
			a.handler.Contributors(&a.told)
		} else if event != eventEnd {
			a.counts.UnreadableRows++
		}
		return
	}
	r := &a.record
	*r = a.template
	r.Subsystem, r.Category, r.Name = class.subsystem, class.category, class.name
	reading := a.forms[class.form].read(s, r, &a.told)
	switch {
	case reading.unreadable != "":
		a.counts.UnreadableFrameRows++
		a.handler.Gap(tap.Gap{Reason: ReasonFrameRow, Detail: reading.unreadable, Rows: 1})
	case reading.whole:
		a.emit(class.categoryID, reading.fault)
	}
}

func (a *Adapter) event(word tap.Value) eventType {
	if word.IsNull() {
		return eventNone
	}
	id := word.ID()
	if event, ok := a.events.get(id); ok {
		return event
	}
	event := eventTypeOf(word.Text())
	a.events.put(id, event)
	return event
}

// emit judges the frame in a.record and hands it out.
func (a *Adapter) emit(category categoryID, fault string) {
	r := &a.record
	if !a.judge.judge(r, category, fault) {
		return
	}
	a.last.rawSequence++
	if a.last.any && a.hostNs <= a.last.hostNs {
		a.last.hostNs++
	} else {
		a.last.hostNs, a.last.any = a.hostNs, true
	}
	r.RawSequence, r.HostNs = a.last.rawSequence, a.last.hostNs
	r.Fields |= HasRawSequence | HasHostNs
	a.handler.Record(r)
	if len(a.told.Processes) > 0 && r.Quality != QualityDuplicate && r.Fields&HasFrameSeed != 0 && r.Fields&HasDisplayID != 0 {
		a.told.FrameSeed, a.told.DisplayID = r.FrameSeed, r.DisplayID
		a.handler.Contributors(&a.told)
	}
}

// Counts returns what was counted so far.
func (a *Adapter) Counts() Counts {
	c := a.counts
	c.JudgeStats, c.PairCounts = a.judge.stats, a.lifetime.pairs
	c.PartialContributors = a.update.partial
	c.Names, c.OtherNameRows = a.survey.counts()
	return c
}
