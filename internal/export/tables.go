package export

import (
	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/internal/jsonline"
	"github.com/framebridge/framebridge/ledger"
	"github.com/framebridge/framebridge/p95"
)

// frame is a raw record and the row of origins that it shares.
type frame struct {
	*adapter.Record
	seq, origin int64
}

func (f *frame) of(has adapter.Fields, n int64) p95.Int {
	return p95.Int{N: n, Known: f.Fields&has != 0}
}

// figure is null too where a file from elsewhere states it in more decimals than it can have: a record has 0 then.
func (f *frame) figure(has adapter.Fields, n int64) p95.Int {
	return p95.Int{N: n, Known: f.Fields&has != 0 && !(f.InexactFigures && n == 0)}
}

const inexact = " (null too where a file from elsewhere states more decimals)"

var frames = table("frames", "one row for each raw record, in the order of the log",
	integer("seq", "the record's line in events.jsonl, from 1", func(f *frame) int64 { return f.seq }),
	maybeInteger("hostNs", "arrival at the recording host, ns of its monotonic clock; an import has its presentation time here",
		func(f *frame) p95.Int { return f.of(adapter.HasHostNs, f.HostNs) }),
	integer("origin", "row of the table origins: source, target and names, which many frames share",
		func(f *frame) int64 { return f.origin }),
	maybeInteger("rawSequence", "number of the record, from 1",
		func(f *frame) p95.Int { return f.of(adapter.HasRawSequence, f.RawSequence) }),
	maybeInteger("sourceEpoch", "life of the source; no frame time bridges two",
		func(f *frame) p95.Int { return f.of(adapter.HasSourceEpoch, f.SourceEpoch) }),
	maybeInteger("reconnectGeneration", "connection within the epoch",
		func(f *frame) p95.Int { return f.of(adapter.HasReconnectGeneration, f.ReconnectGeneration) }),
	maybeInteger("swapId", "the phone's swap id", func(f *frame) p95.Int { return f.of(adapter.HasSwapID, f.SwapID) }),
	maybeInteger("frameSeed", "the phone's frame number; contributors have it too",
		func(f *frame) p95.Int { return f.of(adapter.HasFrameSeed, f.FrameSeed) }),
	maybeInteger("displayId", "display, 0 where the release does not report it",
		func(f *frame) p95.Int { return f.of(adapter.HasDisplayID, f.DisplayID) }),
	maybeInteger("surfaceId", "surface, 0 where the release does not report it",
		func(f *frame) p95.Int { return f.of(adapter.HasSurfaceID, f.SurfaceID) }),
	maybeInteger("beginMach", "begin of the frame's lifetime, ticks of the phone's mach continuous clock",
		func(f *frame) p95.Int { return f.of(adapter.HasBeginMach, f.BeginMach) }),
	maybeInteger("endMach", "the frame on glass, ticks", func(f *frame) p95.Int { return f.of(adapter.HasEndMach, f.EndMach) }),
	maybeInteger("previousMach", "the frame before it on glass, ticks",
		func(f *frame) p95.Int { return f.of(adapter.HasPreviousMach, f.PreviousMach) }),
	maybeInteger("refreshIntervalMach", "refresh interval in force, ticks; 0: not known",
		func(f *frame) p95.Int { return f.of(adapter.HasRefreshIntervalMach, f.RefreshIntervalMach) }),
	maybeInteger("bufferCount", "buffers that the frame may take",
		func(f *frame) p95.Int { return f.of(adapter.HasBufferCount, f.BufferCount) }),
	maybeInteger("skipRequest", "not 0: the frame was asked to wait",
		func(f *frame) p95.Int { return f.of(adapter.HasSkipRequest, f.SkipRequest) }),
	maybeInteger("displayTargetMach", "when it was meant to be on glass, ticks; where reported",
		func(f *frame) p95.Int { return f.of(adapter.HasDisplayTargetMach, f.DisplayTargetMach) }),
	maybeInteger("inputMach", "the input that it answers, ticks; where reported",
		func(f *frame) p95.Int { return f.of(adapter.HasInputMach, f.InputMach) }),
	maybeInteger("renderBeginMach", "begin of rendering, ticks; where reported",
		func(f *frame) p95.Int { return f.of(adapter.HasRenderBeginMach, f.RenderBeginMach) }),
	maybeInteger("renderEndMach", "end of rendering, ticks; where reported",
		func(f *frame) p95.Int { return f.of(adapter.HasRenderEndMach, f.RenderEndMach) }),
	maybeInteger("nativeId", "the signpost identifier's 64 bits, as signed; where reported",
		func(f *frame) p95.Int { return f.of(adapter.HasNativeID, f.NativeID) }),
	maybeInteger("presentationNs", "endMach in ns, rounded down",
		func(f *frame) p95.Int { return f.of(adapter.HasPresentationNs, f.PresentationNs) }),
	maybeInteger("frameTimeNs", "frameTimeMs in ns: endMach - previousMach; of valid frames"+inexact,
		func(f *frame) p95.Int { return f.figure(adapter.HasFrameTime, f.FrameTimeNs) }),
	maybeInteger("lifetimeNs", "lifetimeMs in ns: endMach - beginMach, the latency of the frame; no frame time",
		func(f *frame) p95.Int { return f.of(adapter.HasLifetime, f.LifetimeNs) }),
	maybeInteger("refreshMultipleMilli", "refreshMultiple in thousandths: frame time over refresh interval; of valid frames"+inexact,
		func(f *frame) p95.Int { return f.figure(adapter.HasRefreshMultiple, f.RefreshMultipleMilli) }),
	maybeText("quality", "valid, or the word for why there is no frame time", func(f *frame) string { return f.Quality.String() }),
	text("qualityReason", "more on that", func(f *frame) string { return f.QualityReason }),
	boolean("decoded", "the record was decoded whole", func(f *frame) bool { return f.Decoded }),
	boolean("verified", "and checked", func(f *frame) bool { return f.Verified }),
	maybeInteger("droppedBefore", "frames known to be missing before it; null: there are some, their number is not known",
		func(f *frame) p95.Int { return f.of(adapter.HasDroppedBefore, f.DroppedBefore) }),
	maybeInteger("predecessorSkewMach", "previousMach minus the end before, ticks, where more than one",
		func(f *frame) p95.Int { return f.of(adapter.HasPredecessorSkew, f.PredecessorSkewMach) }),
	maybeText("presentFields", "JSON list of the arguments that were there; of unsupported-schema", func(f *frame) string {
		if f.Quality != adapter.QualityUnsupportedSchema && len(f.PresentFields) == 0 {
			return ""
		}
		list := []byte{'['}
		for i, name := range f.PresentFields {
			if i > 0 {
				list = append(list, ',')
			}
			list = jsonline.AppendString(list, name)
		}
		return string(append(list, ']'))
	}),
)

// origin is what many records share. Of source, target and timebase a record has all or nothing.
type origin struct {
	id                        int64
	has                       adapter.Fields
	schema, sessionID, policy string
	source                    adapter.Source
	target                    adapter.Target
	subsystem, category, name string
	timebase                  adapter.Timebase
}

func originOf(r *adapter.Record) origin {
	return origin{has: r.Fields & (adapter.HasSource | adapter.HasTarget | adapter.HasTimebase), schema: r.Schema, sessionID: r.SessionID, policy: r.Policy,
		source: r.Source, target: r.Target, subsystem: r.Subsystem, category: r.Category, name: r.Name, timebase: r.Timebase}
}

func (o *origin) of(has adapter.Fields, n int64) p95.Int { return p95.Int{N: n, Known: o.has&has != 0} }

var origins = table("origins", "what many frames share; frames.origin names its row",
	integer("origin", "number of the row, from 1", func(o *origin) int64 { return o.id }),
	maybeText("schema", "schema of the records", func(o *origin) string { return o.schema }),
	maybeText("sessionId", "session that they were recorded in", func(o *origin) string { return o.sessionID }),
	maybeText("service", "source: service", func(o *origin) string { return o.source.Service }),
	maybeInteger("channel", "source: channel code", func(o *origin) p95.Int { return o.of(adapter.HasSource, o.source.Channel) }),
	maybeText("selector", "source: selector", func(o *origin) string { return o.source.Selector }),
	maybeText("adapter_id", "source: what made the records", func(o *origin) string { return o.source.AdapterID }),
	maybeInteger("adapter_version", "source: its version",
		func(o *origin) p95.Int { return o.of(adapter.HasSource, o.source.AdapterVersion) }),
	maybeText("scope", "source: scope", func(o *origin) string { return o.source.Scope }),
	maybeText("raw_unit", "source: unit of the records", func(o *origin) string { return o.source.RawUnit }),
	maybeText("bundleId", "target: bundle id of the app under test", func(o *origin) string { return o.target.BundleID }),
	maybeInteger("pid", "target: its process", func(o *origin) p95.Int { return o.of(adapter.HasTarget, o.target.PID) }),
	maybeInteger("generation", "target: grows when the app is relaunched",
		func(o *origin) p95.Int { return o.of(adapter.HasTarget, o.target.Generation) }),
	maybeText("p95PublicationPolicy", "policy mark; null: the records do not count for P95", func(o *origin) string { return o.policy }),
	maybeText("subsystem", "signpost: subsystem", func(o *origin) string { return o.subsystem }),
	maybeText("category", "signpost: category", func(o *origin) string { return o.category }),
	maybeText("name", "signpost: FrameLifetime or FrameUpdate", func(o *origin) string { return o.name }),
	maybeInteger("timebaseNumer", "ns = ticks * numer / denom",
		func(o *origin) p95.Int { return o.of(adapter.HasTimebase, o.timebase.Numer) }),
	maybeInteger("timebaseDenom", "see timebaseNumer", func(o *origin) p95.Int { return o.of(adapter.HasTimebase, o.timebase.Denom) }),
)

// contributor is one process of a contributors line; of a line without any, its only row.
type contributor struct {
	*ledger.Event
	*adapter.Contributors
	position p95.Int
	process  adapter.Contributor
}

var contributors = table("contributors", "the processes that had content in a frame: one row each, and one with nulls for a line without any",
	integer("seq", "the line in events.jsonl", func(c *contributor) int64 { return c.Seq }),
	integer("hostNs", "when it was processed, ns of the recording host's monotonic clock", func(c *contributor) int64 { return c.HostNs }),
	integer("frameSeed", "the frame, as in frames", func(c *contributor) int64 { return c.FrameSeed }),
	integer("displayId", "its display", func(c *contributor) int64 { return c.DisplayID }),
	maybeInteger("position", "place in the line, from 0", func(c *contributor) p95.Int { return c.position }),
	maybeInteger("pid", "the process", func(c *contributor) p95.Int { return p95.Int{N: c.process.PID, Known: c.position.Known} }),
	maybeText("name", "its name, as the phone tells it; null: not known", func(c *contributor) string { return c.process.Name }),
)

type publication = line[*p95.Receipt]

var publications = table("publications", "P95 of the last ten seconds, once a second, each with what is needed to check it: metric ios.frame.time.p95,\n"+
	"definition activitytrace-framelifetime-p95.v1, policy p95-window-segment.v2, formula nearest-rank-95",
	seq[*p95.Receipt](),
	integer("hostNs", "N: host time of the publication, ns", func(p *publication) int64 { return p.v.HostNs }),
	maybeInteger("dueNs", "when it was due, host ns; null: it was asked for", func(p *publication) p95.Int { return p.v.DueNs }),
	maybeInteger("valueNs", "valueMs in ns: the P95", func(p *publication) p95.Int { return p.v.ValueNs }),
	text("quality", "valid, or the word for why there is no value", func(p *publication) string { return string(p.v.Quality) }),
	maybeInteger("lastPresentationNs", "P: of the last value, device ns", func(p *publication) p95.Int { return p.v.LastPresentationNs }),
	maybeInteger("lastHostNs", "H: its arrival, host ns", func(p *publication) p95.Int { return p.v.LastHostNs }),
	maybeInteger("windowLeftNs", "left end of the window (open), device ns", func(p *publication) p95.Int { return p.v.WindowLeftNs }),
	maybeInteger("windowRightNs", "right end of the window (closed), device ns", func(p *publication) p95.Int { return p.v.WindowRightNs }),
	integer("segment", "run of frames with nothing unknown between them; 0: no target", func(p *publication) int64 { return p.v.Segment }),
	maybeText("bundleId", "the app under test", func(p *publication) string { return p.v.Target.BundleID }),
	maybeInteger("pid", "its process", func(p *publication) p95.Int { return p95.Int{N: p.v.Target.PID, Known: p.v.Target.Known} }),
	maybeInteger("generation", "its life",
		func(p *publication) p95.Int { return p95.Int{N: p.v.Target.Generation, Known: p.v.Target.Known} }),
	maybeInteger("sourceEpoch", "life of the source", func(p *publication) p95.Int { return p.v.SourceEpoch }),
	maybeInteger("reconnectGeneration", "connection within the epoch", func(p *publication) p95.Int { return p.v.ReconnectGeneration }),
	maybeInteger("displayId", "the display measured", func(p *publication) p95.Int { return p.v.DisplayID }),
	maybeInteger("timebaseNumer", "ns = ticks * numer / denom",
		func(p *publication) p95.Int { return p95.Int{N: p.v.Timebase.Numer, Known: p.v.Timebase.Known} }),
	maybeInteger("timebaseDenom", "see timebaseNumer", func(p *publication) p95.Int { return p95.Int{N: p.v.Timebase.Denom, Known: p.v.Timebase.Known} }),
	maybeInteger("n", "number of values in the window", func(p *publication) p95.Int { return p.v.N }),
	maybeInteger("rank", "(95 * n + 99) / 100: the value is the one of this rank", func(p *publication) p95.Int { return p.v.Rank }),
	maybeInteger("firstRawSequence", "first value: its record", func(p *publication) p95.Int {
		return p95.Int{N: p.v.FirstSample.RawSequence, Known: p.v.FirstSample.Known}
	}),
	maybeInteger("firstPresentationNs", "first value: device ns", func(p *publication) p95.Int {
		return p95.Int{N: p.v.FirstSample.PresentationNs, Known: p.v.FirstSample.Known}
	}),
	maybeInteger("lastSampleRawSequence", "last value: its record", func(p *publication) p95.Int {
		return p95.Int{N: p.v.LastSample.RawSequence, Known: p.v.LastSample.Known}
	}),
	maybeInteger("lastSamplePresentationNs", "last value: device ns", func(p *publication) p95.Int {
		return p95.Int{N: p.v.LastSample.PresentationNs, Known: p.v.LastSample.Known}
	}),
	maybeInteger("lastRawSequence", "highest rawSequence seen", func(p *publication) p95.Int { return p.v.LastRawSequence }),
	maybeText("clearReason", "what emptied the window last", func(p *publication) string { return string(p.v.LastClear.Reason) }),
	maybeInteger("clearRawSequence", "the record that did; null: no record did",
		func(p *publication) p95.Int { return p.v.LastClear.RawSequence }),
	maybeInteger("clearHostNs", "when, host ns", func(p *publication) p95.Int { return p.v.LastClear.HostNs }),
	boolean("bridgeQualified", "there is a clock bridge of this epoch with continuous time",
		func(p *publication) bool { return p.v.ClockBridge.Qualified }),
	maybeInteger("bridgeWidthNs", "how long its exchange took", func(p *publication) p95.Int { return p.v.ClockBridge.WidthNs }),
	maybeInteger("bridgeAgeLowerBoundNs", "the last value is at least this old",
		func(p *publication) p95.Int { return p.v.ClockBridge.AgeLowerBoundNs }),
	maybeInteger("fps", "frames whose whole interval lies in the last second", func(p *publication) p95.Int { return p.v.Other.FPS }),
	maybeInteger("frameTimeNs", "frameTimeMs of the latest frame in ns", func(p *publication) p95.Int { return p.v.Other.FrameTimeNs }),
	maybeInteger("refreshMilliHz", "refreshHz of the latest frame in thousandths",
		func(p *publication) p95.Int { return p.v.Other.RefreshMilliHz }),
	maybeInteger("jitterUs", "jitterMs in µs: standard deviation of frame times, last second",
		func(p *publication) p95.Int { return p.v.Other.JitterUs }),
	maybeInteger("hitchUsPerS", "hitchMsPerS in µs per s, last ten seconds", func(p *publication) p95.Int { return p.v.Other.HitchUsPerS }),
	maybeInteger("missedRefreshes", "refreshes missed in the last ten seconds",
		func(p *publication) p95.Int { return p.v.Other.MissedRefreshes }),
)

type gap = line[*ledger.SourceGap]

var gaps = table("gaps", "source.gap: frames may be among what was lost",
	seq[*ledger.SourceGap](), hostNs[*ledger.SourceGap](),
	text("reason", "why", func(g *gap) string { return g.v.Reason }),
	integer("rows", "rows lost or undecoded", func(g *gap) int64 { return g.v.Rows }),
	integer("bytes", "bytes lost or undecoded", func(g *gap) int64 { return g.v.Bytes }),
	integer("messages", "messages lost or undecoded", func(g *gap) int64 { return g.v.Messages }),
)

type bind = line[*adapter.Binding]

var targetBinds = table("target_binds", "target.bind: what is measured from here on",
	seq[*adapter.Binding](), hostNs[*adapter.Binding](),
	text("bundleId", "the app under test", func(b *bind) string { return b.v.Target.BundleID }),
	integer("pid", "its process", func(b *bind) int64 { return b.v.Target.PID }),
	integer("generation", "grows when the app is relaunched", func(b *bind) int64 { return b.v.Target.Generation }),
	integer("sourceEpoch", "life of the source", func(b *bind) int64 { return b.v.SourceEpoch }),
	integer("reconnectGeneration", "connection within the epoch", func(b *bind) int64 { return b.v.ReconnectGeneration }),
	integer("primaryDisplayId", "the display measured", func(b *bind) int64 { return b.v.PrimaryDisplayID }),
	integer("timebaseNumer", "ns = ticks * numer / denom", func(b *bind) int64 { return b.v.Timebase.Numer }),
	integer("timebaseDenom", "see timebaseNumer", func(b *bind) int64 { return b.v.Timebase.Denom }),
)

type state = line[*ledger.TargetState]

var targetStates = table("target_states", "target.state: whether the app under test is in the foreground",
	seq[*ledger.TargetState](), hostNs[*ledger.TargetState](),
	boolean("foreground", "it is", func(s *state) bool { return s.v.Foreground }),
	text("by", "who says so: notification, process-list, launch, operator, import", func(s *state) string { return s.v.By }),
)

type bridge = line[*p95.ClockBridge]

var clockBridges = table("clock_bridges", "clock.bridge: the phone's clocks, read between two readings of the host's",
	seq[*p95.ClockBridge](), hostNs[*p95.ClockBridge](),
	integer("hostSendNs", "asked, host ns", func(b *bridge) int64 { return b.v.HostSendNs }),
	integer("hostReceiveNs", "answered, host ns", func(b *bridge) int64 { return b.v.HostReceiveNs }),
	maybeInteger("deviceContinuousMach", "mach continuous time, ticks; null: the phone does not give it", func(b *bridge) p95.Int {
		return p95.Int{N: b.v.DeviceContinuousMach, Known: b.v.HasContinuous}
	}),
	integer("deviceAbsoluteMach", "mach absolute time, ticks", func(b *bridge) int64 { return b.v.DeviceAbsoluteMach }),
	integer("timebaseNumer", "ns = ticks * numer / denom", func(b *bridge) int64 { return b.v.Timebase.Numer }),
	integer("timebaseDenom", "see timebaseNumer", func(b *bridge) int64 { return b.v.Timebase.Denom }),
)

type sourceState = line[*ledger.SourceState]

var sourceStates = table("source_states", "source.state: the connection",
	seq[*ledger.SourceState](), hostNs[*ledger.SourceState](),
	text("state", "connected, disconnected, reconnecting", func(s *sourceState) string { return s.v.State }),
	text("cause", "why", func(s *sourceState) string { return s.v.Cause }),
)

type start = line[*ledger.Start]

var sessions = table("session", "session.start: what was recorded, by what, where",
	seq[*ledger.Start](), hostNs[*ledger.Start](),
	text("sessionId", "UUID", func(s *start) string { return s.v.SessionID }),
	text("name", "name of the session", func(s *start) string { return s.v.Name }),
	text("toolName", "program that recorded it", func(s *start) string { return s.v.Tool.Name }),
	text("toolVersion", "its version", func(s *start) string { return s.v.Tool.Version }),
	text("hostName", "machine that recorded it", func(s *start) string { return s.v.Host.Name }),
	text("hostOs", "its operating system", func(s *start) string { return s.v.Host.OS }),
	text("hostArch", "its architecture", func(s *start) string { return s.v.Host.Arch }),
	integer("hostCpus", "its CPUs", func(s *start) int64 { return s.v.Host.CPUs }),
	integer("hostPid", "process that recorded it", func(s *start) int64 { return s.v.Host.PID }),
	text("deviceUdid", "the phone", func(s *start) string { return s.v.Device.UDID }),
	text("deviceProductType", "its model", func(s *start) string { return s.v.Device.ProductType }),
	text("deviceOsVersion", "its release", func(s *start) string { return s.v.Device.OSVersion }),
	boolean("deviceSimulated", "it is a simulated one", func(s *start) bool { return s.v.Device.Simulated }),
	text("evidence", "what the session can prove at most: E2 software or simulated, E3 real, E4 formal attempt on a real one",
		func(s *start) string { return string(s.v.Evidence) }),
	text("policy", "publication policy", func(s *start) string { return s.v.Policy }),
	integer("monotonicNs", "the host's monotonic clock, read together with", func(s *start) int64 { return s.v.Clock.MonotonicNs }),
	integer("wallNs", "its wall clock, Unix time in ns", func(s *start) int64 { return s.v.Clock.WallNs }),
	boolean("noHostClock", "an import: hostNs are no arrivals", func(s *start) bool { return s.v.NoHostClock }),
)

type end = line[*ledger.End]

var sessionEnds = table("session_end", "session.end; no row: the session was never closed",
	seq[*ledger.End](), hostNs[*ledger.End](),
	text("state", "complete, partial", func(e *end) string { return string(e.v.State) }),
	text("reason", "why partial", func(e *end) string { return e.v.Reason }),
)

// count is one of session.end's counts.
type count struct {
	seq        int64
	kind, name string
	n          int64
}

var counts = table("counts", "what session.end counted",
	integer("seq", "its line in events.jsonl", func(c *count) int64 { return c.seq }),
	text("kind", "line: lines of the log by type; extra: whatever else was counted", func(c *count) string { return c.kind }),
	text("name", "what", func(c *count) string { return c.name }),
	integer("count", "how many", func(c *count) int64 { return c.n }),
)

var badLines = table("bad_lines", "places of events.jsonl where a line cannot be read, or is missing",
	integer("line", "number of the line, from 1", func(e *ledger.LineError) int64 { return e.Line }),
	integer("offset", "offset of its first byte", func(e *ledger.LineError) int64 { return e.Offset }),
	text("fault", "what kind of fault", func(e *ledger.LineError) string { return e.Fault.String() }),
	text("problem", "what is wrong with it", func(e *ledger.LineError) string { return e.Err.Error() }),
)

// Tables are the tables of csv, jsonl, sqlite and parquet, in this order.
var Tables = []*Table{&frames.Table, &origins.Table, &contributors.Table, &publications.Table, &gaps.Table, &targetBinds.Table, &targetStates.Table,
	&clockBridges.Table, &sourceStates.Table, &sessions.Table, &sessionEnds.Table, &counts.Table, &badLines.Table}
