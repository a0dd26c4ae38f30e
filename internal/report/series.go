package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/internal/summary"
	"github.com/framebridge/framebridge/internal/timeline"
	"github.com/framebridge/framebridge/ledger"
	"github.com/framebridge/framebridge/p95"
)

const (
	// A chart has at most a column for each unit of its width, and not so many that most are empty.
	maxColumns = 920
	minColumns = 60

	// maxDisplays bounds the displays that are drawn; a phone has one and drives at most one more.
	maxDisplays = 4
	// maxHappenings bounds what is told line by line: more is not read.
	maxHappenings = 200
	maxLongest    = 10
)

// span is a range of values; empty as long as n is 0.
type span struct{ n, min, max int64 }

func (s *span) add(v int64) {
	if s.n == 0 {
		s.min, s.max = v, v
	}
	s.n++
	s.min, s.max = min(s.min, v), max(s.max, v)
}

// column is what happened on a display in one column of the charts. It keeps the shortest and the longest, so that none is hidden, and
// how many there are at each height of the chart.
type column struct {
	frameTimeNs span
	first, last int64    // frame times
	heights     []uint32 // from the top
	milliHz     span
	overrunNs   span  // of frames that overran
	without     int64 // frames that have no frame time
}

// publicationColumn is what was published in one column.
type publicationColumn struct {
	valueNs     span
	first, last int64       // values
	quality     p95.Quality // the last that was not valid, else valid; "" where none was published
	segment     int64       // the last
}

// middle is where the middle 90 % of the column's frames stand: the heights from the first to the last of them.
func (c *column) middle() (top, bottom int) {
	aside := uint64(c.frameTimeNs.n) / 20 // at each end
	at := func(rank uint64) int {
		height := 0
		for sum := uint64(c.heights[0]); sum <= rank; sum += uint64(c.heights[height]) {
			height++
		}
		return height
	}
	return at(aside), at(uint64(c.frameTimeNs.n) - 1 - aside)
}

// display is a display's columns, and its worst frames.
type display struct {
	id      int64
	scale   scale // of frame times in ms; none where no frame has one
	columns []column
	longest []longFrame // by overrun, the longest first
}

// longFrame is a frame that overran.
type longFrame struct {
	AtNs                                       int64 // since the session began
	RawSequence, FrameSeed                     int64
	FrameTimeNs, LifetimeNs, OverrunNs, Missed int64
}

// happening is something that happened to the target or the connection.
type happening struct {
	AtNs       int64
	What, More string
	Gap        bool
}

// segment is a run of publications without anything unknown between them.
type segment struct {
	Number       int64
	AtNs         int64  // its first publication
	Cause        string // what had emptied the window last, then
	Publications int64
	ValueNs      span
}

// collector turns events into columns.
type collector struct {
	beginNs, spanNs int64 // of the charts, on the host's clock
	axis            timeline.Axis
	displays        []*display
	publications    []publicationColumn
	gaps            []bool
	background      []bool // at the end of the column the target was not known to be in the foreground
	published       span   // all values

	target       adapter.Target
	foreground   bool
	toldUpTo     int // column up to which background is filled in
	happenings   []happening
	unheard      int // happenings beyond the bound
	segments     []segment
	segment      int64 // of the publication before
	moreSegments int
}

func newCollector(s *summary.Summary) *collector {
	c := &collector{beginNs: s.FirstHostNs, spanNs: max(s.LastHostNs-s.FirstHostNs, 1)}
	n := minColumns
	for _, d := range s.Displays {
		n = max(n, int(min(d.Frames, maxColumns)))
	}
	for _, d := range s.Displays[:min(len(s.Displays), maxDisplays)] {
		shown := &display{id: d.DisplayID, columns: make([]column, n)}
		if d.MinNs != nil {
			shown.scale = scaleOf(plotTop, frameTimesHeight, float64(*d.MinNs)/1e6, float64(*d.P50Ns)/1e6, float64(*d.MaxNs)/1e6)
		}
		c.displays = append(c.displays, shown)
	}
	c.publications, c.gaps, c.background = make([]publicationColumn, n), make([]bool, n), make([]bool, n)
	return c
}

// column is the column of a host time.
func (c *collector) column(hostNs int64) int {
	n := len(c.publications)
	since := float64(hostNs) - float64(c.beginNs) // a log of anyone's making may hold any two
	return int(max(0, min(since/float64(c.spanNs)*float64(n), float64(n-1))))
}

func (c *collector) event(e *ledger.Event) {
	c.axis.Follow(e)
	switch v := e.Value.(type) {
	case *adapter.Record:
		c.record(e.HostNs, v)
	case *p95.Receipt:
		c.publication(v)
	case *ledger.SourceGap:
		c.gaps[c.column(e.HostNs)] = true
		c.happen(e, true, "gap: "+v.Reason,
			fmt.Sprintf("%d rows, %d bytes, %d messages lost or undecoded", v.Rows, v.Bytes, v.Messages))
	case *adapter.Binding:
		if v.Target != c.target { // whether it is in the foreground is not known yet
			c.state(e.HostNs, false)
			c.target = v.Target
		}
		c.happen(e, false, "target", fmt.Sprintf("%s, pid %d, generation %d, source epoch %d, reconnect generation %d, display %d",
			v.Target.BundleID, v.Target.PID, v.Target.Generation, v.SourceEpoch, v.ReconnectGeneration, v.PrimaryDisplayID))
	case *ledger.TargetState:
		c.state(e.HostNs, v.Foreground)
		c.happen(e, false, map[bool]string{true: "foreground", false: "background"}[v.Foreground], "by "+v.By)
	case *ledger.SourceState:
		c.happen(e, v.State == "disconnected", v.State, v.Cause)
	}
}

// finish fills in what lasts to the end.
func (c *collector) finish() {
	for ; c.toldUpTo < len(c.background); c.toldUpTo++ {
		c.background[c.toldUpTo] = !c.foreground
	}
}

func (c *collector) happen(e *ledger.Event, gap bool, what, more string) {
	if len(c.happenings) == maxHappenings {
		c.unheard++
		return
	}
	c.happenings = append(c.happenings, happening{e.HostNs - c.beginNs, what, more, gap})
}

// state fills in whether the target was in the foreground up to now.
func (c *collector) state(hostNs int64, foreground bool) {
	for at := c.column(hostNs); c.toldUpTo < at; c.toldUpTo++ {
		c.background[c.toldUpTo] = !c.foreground
	}
	c.foreground = foreground
}

func (c *collector) record(hostNs int64, r *adapter.Record) {
	at := slices.IndexFunc(c.displays, func(d *display) bool { return d.id == r.DisplayID })
	if at < 0 {
		return
	}
	d := c.displays[at]
	if ns, ok := c.axis.HostNs(r.PresentationNs); ok && r.Fields&adapter.HasPresentationNs != 0 {
		hostNs = ns
	}
	col := &d.columns[c.column(hostNs)]
	frameTimeNs, ok := p95.FrameTimeNs(r)
	if !ok {
		col.without++
		return
	}
	if col.frameTimeNs.n == 0 {
		col.first = frameTimeNs
	}
	col.last = frameTimeNs
	col.frameTimeNs.add(frameTimeNs)
	if col.heights == nil {
		col.heights = make([]uint32, frameTimesHeight)
	}
	height := int(d.scale.y(float64(frameTimeNs)/1e6) - plotTop)
	col.heights[max(0, min(height, frameTimesHeight-1))]++ // a log that grows has frames that no scale was made for
	if ns, ok := r.Timebase.Ns(r.RefreshIntervalMach); ok && ns > 0 {
		col.milliHz.add(1_000_000_000_000 / ns)
	}
	if overrunNs, missed, ok := p95.LatenessOf(r); ok && overrunNs > 0 {
		col.overrunNs.add(overrunNs)
		d.keepLongest(longFrame{hostNs - c.beginNs, r.RawSequence, r.FrameSeed, frameTimeNs, r.LifetimeNs, overrunNs, missed})
	}
}

func (d *display) keepLongest(f longFrame) {
	if len(d.longest) == maxLongest && f.OverrunNs <= d.longest[maxLongest-1].OverrunNs {
		return
	}
	at, _ := slices.BinarySearchFunc(d.longest, f, func(a, b longFrame) int { return cmp.Or(cmp.Compare(b.OverrunNs, a.OverrunNs), -1) })
	d.longest = slices.Insert(d.longest, at, f)
	d.longest = d.longest[:min(len(d.longest), maxLongest)]
}

func (c *collector) publication(r *p95.Receipt) {
	col := &c.publications[c.column(r.HostNs)]
	if col.quality == "" || r.Quality != p95.Valid {
		col.quality = r.Quality
	}
	col.segment = r.Segment
	if r.ValueNs.Known {
		if col.valueNs.n == 0 {
			col.first = r.ValueNs.N
		}
		col.last = r.ValueNs.N
		col.valueNs.add(r.ValueNs.N)
		c.published.add(r.ValueNs.N)
	}
	if r.Segment != c.segment || len(c.segments) == 0 {
		c.segment = r.Segment
		if len(c.segments) == maxHappenings {
			c.moreSegments++
		} else {
			c.segments = append(c.segments, segment{Number: r.Segment, AtNs: r.HostNs - c.beginNs, Cause: string(r.LastClear.Reason)})
		}
	}
	if last := &c.segments[len(c.segments)-1]; c.moreSegments == 0 {
		last.Publications++
		if r.ValueNs.Known {
			last.ValueNs.add(r.ValueNs.N)
		}
	}
}
