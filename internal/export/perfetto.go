package export

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/internal/timeline"
	"github.com/framebridge/framebridge/ledger"
	"github.com/framebridge/framebridge/p95"
)

// Field numbers of Perfetto's trace format (github.com/google/perfetto, protos/perfetto/trace and protos/perfetto/trace/track_event).
const (
	tracePacketField = 1 // Trace.packet

	// TracePacket
	packetClockSnapshot   = 6
	packetTimestamp       = 8
	packetSequenceID      = 10 // trusted_packet_sequence_id
	packetTrackEvent      = 11
	packetInternedData    = 12
	packetSequenceFlags   = 13
	packetDefaults        = 59
	packetTrackDescriptor = 60
	packetFirstOnSequence = 87

	flagStateCleared = 1 // SEQ_INCREMENTAL_STATE_CLEARED
	flagNeedsState   = 2 // SEQ_NEEDS_INCREMENTAL_STATE

	defaultsClockID = 58 // TracePacketDefaults.timestamp_clock_id

	// ClockSnapshot, ClockSnapshot.Clock, BuiltinClock
	snapshotClocks  = 1
	snapshotPrimary = 2 // primary_trace_clock
	clockID         = 1
	clockTimestamp  = 2
	clockRealtime   = 1
	clockMonotonic  = 3

	// InternedData, EventName and DebugAnnotationName
	internedEventNames      = 2
	internedAnnotationNames = 3
	internedIID             = 1
	internedName            = 2

	// TrackDescriptor, CounterDescriptor
	trackUUID          = 1
	trackName          = 2
	trackParent        = 5
	trackCounter       = 8
	trackChildOrdering = 11
	trackRank          = 12 // sibling_order_rank
	trackDescription   = 14
	orderingExplicit   = 3
	counterUnitName    = 6

	// TrackEvent
	eventAnnotations   = 4
	eventType          = 9
	eventNameIID       = 10
	eventTrackUUID     = 11
	eventName          = 23
	eventDoubleCounter = 44
	typeSliceBegin     = 1
	typeSliceEnd       = 2
	typeInstant        = 3
	typeCounter        = 4

	// DebugAnnotation
	annotationNameIID = 1
	annotationBool    = 2
	annotationInt     = 4
	annotationText    = 6
	annotationName    = 10
)

const sequenceID = 1 // of every packet: one writer, one sequence

// Tracks. A display's own begin at firstDisplay, tracksPerDisplay apart: its frame time, and then its lanes.
const (
	trackSession = 1 + iota
	trackP95
	trackPublications
	trackEvents

	firstDisplay     = 1 << 16
	tracksPerDisplay = 1 << 8
	// maxDisplays bounds the tracks of displays; a phone has one and drives at most one more.
	maxDisplays = 64
	// maxLanes bounds the frames of a display that are under way at one moment. A pipeline has three; a second of them at 120 Hz is
	// none any more.
	maxLanes = 128
)

// Names of frames, interned: the first two of valid ones, the others by their quality.
const (
	frameOnTime = 1 + iota
	frameLate
	frameOther // + quality
)

// trace writes the format perfetto. Its packets stand in the order of the log and not of time; whoever reads the format sorts them.
type trace struct {
	file *os.File
	out  *bufio.Writer
	err  error // the first that the file gave

	axis     timeline.Axis
	displays map[int64]*displayTracks
	began    bool
	hostNs   int64 // of the last event

	publishing    bool // a publication's slice is open
	publicationNs int64

	framed, packet, event, more message // reused
}

// displayTracks are a display's lanes. Lifetimes overlap, and slices of one track must nest: so each lane is a track, a frame takes the
// first that is free, and Perfetto shows lanes of one name and parent as one track.
type displayTracks struct {
	uuid  uint64 // of its frame time; the lanes' follow
	name  string
	rank  int64
	lanes []int64 // until when each is taken
}

func newTrace(path string) (sink, error) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	t := &trace{file: f, out: bufio.NewWriterSize(f, 256<<10), displays: map[int64]*displayTracks{}}
	var names message
	intern := func(list uint64, iid int, text string) {
		names = names.message(list, message(nil).uint(internedIID, uint64(iid)).text(internedName, text))
	}
	for i, c := range frames.Columns {
		intern(internedAnnotationNames, i+1, c.Name)
	}
	intern(internedEventNames, frameOnTime, "frame")
	intern(internedEventNames, frameLate, "late frame")
	for _, q := range []adapter.Quality{adapter.QualityUnknown, adapter.QualityUnsupportedSchema, adapter.QualityDuplicate, adapter.QualityOutOfOrder,
		adapter.QualityNoPredecessor, adapter.QualityDiscontinuity, adapter.QualitySourceGap} {
		intern(internedEventNames, frameOther+int(q), cmp.Or(q.String(), "quality not known"))
	}
	t.write(message(nil).uint(packetSequenceFlags, flagStateCleared).uint(packetFirstOnSequence, 1).
		message(packetDefaults, message(nil).uint(defaultsClockID, clockMonotonic)).message(packetInternedData, names))
	return t, nil
}

// begin tells the clock and the tracks that every session has.
func (t *trace) begin(e *ledger.Event) {
	name, about := "session", ""
	snapshot := message(nil).uint(snapshotPrimary, clockMonotonic)
	var s *ledger.Start
	if e != nil {
		s, _ = e.Value.(*ledger.Start)
	}
	if s != nil {
		name = fmt.Sprintf("%s (evidence %s)", s.Name, s.Evidence)
		if s.Device.Simulated {
			name = fmt.Sprintf("%s (simulated, evidence %s)", s.Name, s.Evidence)
		}
		about = fmt.Sprintf("Session %s, %s %s, recorded by %s %s. ", s.SessionID, s.Device.ProductType, s.Device.OSVersion, s.Tool.Name, s.Tool.Version)
		if !s.NoHostClock && s.Clock.MonotonicNs >= 0 && s.Clock.WallNs >= 0 {
			snapshot = snapshot.message(snapshotClocks, message(nil).uint(clockID, clockMonotonic).int(clockTimestamp, s.Clock.MonotonicNs)).
				message(snapshotClocks, message(nil).uint(clockID, clockRealtime).int(clockTimestamp, s.Clock.WallNs))
		}
	}
	t.write(message(nil).message(packetClockSnapshot, snapshot))
	t.track(trackSession, 0, 0, name, message(nil).uint(trackChildOrdering, orderingExplicit).text(trackDescription, about+
		"Frames are those of the whole display, not of one app. A counter is 0 where there is no value: the frame's slice and the publication say why."))
	t.track(trackP95, trackSession, 1, "P95 of the last 10 s", message(nil).message(trackCounter, message(nil).text(counterUnitName, "ms")))
	t.track(trackPublications, trackSession, 2, "publications", nil)
	t.track(trackEvents, trackSession, 3, "events", nil)
}

func (t *trace) track(uuid, parent uint64, rank int64, name string, more message) {
	track := append(message(nil).uint(trackUUID, uuid).text(trackName, name).int(trackRank, rank), more...)
	if parent != 0 {
		track = track.uint(trackParent, parent)
	}
	t.write(message(nil).message(packetTrackDescriptor, track))
}

// display is a display's tracks, nil for those beyond the bound.
func (t *trace) display(id int64) *displayTracks {
	d := t.displays[id]
	if d == nil && len(t.displays) < maxDisplays {
		n := int64(len(t.displays))
		d = &displayTracks{uuid: firstDisplay + uint64(n)*tracksPerDisplay, name: fmt.Sprintf("display %d", id), rank: 4 + 2*n}
		t.displays[id] = d
		t.track(d.uuid, trackSession, d.rank+1, d.name+" frame time", message(nil).message(trackCounter, message(nil).text(counterUnitName, "ms")))
	}
	return d
}

// lane is the track of a lifetime, 0 where all are taken.
func (t *trace) lane(d *displayTracks, beginNs, endNs int64) (uuid uint64) {
	lane := 0
	for lane < len(d.lanes) && d.lanes[lane] > beginNs {
		lane++
	}
	if lane == maxLanes {
		return 0
	}
	uuid = d.uuid + 1 + uint64(lane)
	if lane == len(d.lanes) {
		d.lanes = append(d.lanes, 0)
		t.track(uuid, trackSession, d.rank, d.name, nil)
	}
	d.lanes[lane] = endNs
	return uuid
}

func (t *trace) row(e *ledger.Event, table *Table, cells []cell) error {
	if !t.began {
		t.began = true
		t.begin(e)
	}
	if e != nil {
		t.axis.Follow(e)
		t.hostNs = e.HostNs
	}
	switch table {
	case &frames.Table:
		t.frame(e.Value.(*adapter.Record), cells)
	case &publications.Table:
		t.publication(e.Value.(*p95.Receipt), cells)
	case &contributors.Table, &counts.Table: // left out, as the help says
	default:
		t.put(trackEvents, typeInstant, t.hostNs, annotated(message(t.more[:0]).text(eventName, title(e)), table, cells))
	}
	return t.err
}

// title is what an instant is called.
func title(e *ledger.Event) string {
	if e == nil {
		return "line that cannot be read"
	}
	switch v := e.Value.(type) {
	case *ledger.SourceGap:
		return "gap: " + v.Reason
	case *adapter.Binding:
		return fmt.Sprintf("target %s, pid %d, generation %d", v.Target.BundleID, v.Target.PID, v.Target.Generation)
	case *ledger.TargetState:
		if v.Foreground {
			return "foreground"
		}
		return "background"
	case *ledger.SourceState:
		return v.State
	case *adapter.Record:
		return "origin of frames"
	}
	return string(e.Type())
}

// frame is a slice over the frame's lifetime, or an instant where that is not known, and a new value of the display's frame time.
func (t *trace) frame(r *adapter.Record, cells []cell) {
	name := uint64(frameOther) + uint64(r.Quality)
	frameTimeMs := 0.0
	if r.Quality == adapter.QualityValid {
		name, frameTimeMs = frameOnTime, float64(r.FrameTimeNs)/1e6
		if overrunNs, _, ok := p95.LatenessOf(r); ok && overrunNs > 0 {
			name = frameLate
		}
	}
	t.more = annotated(message(t.more[:0]).uint(eventNameIID, name), &frames.Table, cells)
	endNs, ok := t.axis.HostNs(r.PresentationNs)
	d := t.display(r.DisplayID)
	if !ok || r.Fields&adapter.HasPresentationNs == 0 || d == nil {
		t.put(trackEvents, typeInstant, t.hostNs, t.more)
		return
	}
	beginNs, known := endNs, false
	if ns, ok := r.Timebase.Ns(r.BeginMach); ok && r.Fields&adapter.HasBeginMach != 0 {
		beginNs, known = t.axis.HostNs(ns)
		known = known && beginNs <= endNs
	}
	if !known {
		beginNs = endNs
	}
	lane := t.lane(d, beginNs, endNs)
	switch {
	case lane == 0:
		t.put(trackEvents, typeInstant, endNs, t.more)
	case !known:
		t.put(lane, typeInstant, endNs, t.more)
	default:
		t.put(lane, typeSliceBegin, beginNs, t.more)
		t.put(lane, typeSliceEnd, endNs, nil)
	}
	t.put(d.uuid, typeCounter, endNs, message(t.more[:0]).double(eventDoubleCounter, frameTimeMs))
}

// publication is a slice that lasts until the next one, and a new value of the P95.
func (t *trace) publication(r *p95.Receipt, cells []cell) {
	t.closePublication()
	t.publicationNs = max(t.publicationNs, r.HostNs)
	t.publishing = true
	t.put(trackPublications, typeSliceBegin, t.publicationNs, annotated(message(t.more[:0]).text(eventName, string(r.Quality)), &publications.Table, cells))
	t.put(trackP95, typeCounter, t.publicationNs, message(t.more[:0]).double(eventDoubleCounter, float64(r.ValueNs.N)/1e6))
}

func (t *trace) closePublication() {
	if t.publishing {
		t.put(trackPublications, typeSliceEnd, max(t.publicationNs, t.hostNs), nil)
	}
}

func (t *trace) close() error {
	t.closePublication()
	return errors.Join(t.err, t.out.Flush(), t.file.Close())
}

// put writes an event of a track. more is the rest of its fields.
func (t *trace) put(track, kind uint64, hostNs int64, more message) {
	t.event = append(message(t.event[:0]).uint(eventTrackUUID, track).uint(eventType, kind), more...)
	t.packet = message(t.packet[:0]).int(packetTimestamp, max(hostNs, 0)).uint(packetSequenceFlags, flagNeedsState).message(packetTrackEvent, t.event)
	t.write(t.packet)
}

// write writes a packet.
func (t *trace) write(packet message) {
	if t.err == nil {
		packet = packet.uint(packetSequenceID, sequenceID)
		t.framed = message(t.framed[:0]).message(tracePacketField, packet)
		_, t.err = t.out.Write(t.framed)
	}
}

// annotated adds what is known of a row as annotations; texts that are empty are left out.
func annotated(event message, t *Table, cells []cell) message {
	var buffer [64]byte
	for i, c := range cells {
		if !c.known || t.Columns[i].Kind == Text && c.text == "" {
			continue
		}
		a := message(buffer[:0])
		if t == &frames.Table {
			a = a.uint(annotationNameIID, uint64(i)+1)
		} else {
			a = a.text(annotationName, t.Columns[i].Name)
		}
		switch t.Columns[i].Kind {
		case Integer:
			a = a.int(annotationInt, c.n)
		case Boolean:
			a = a.int(annotationBool, c.n)
		case Text:
			a = a.text(annotationText, c.text)
		}
		event = event.message(eventAnnotations, a)
	}
	return event
}
