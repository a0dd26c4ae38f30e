package adapter

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/framebridge/framebridge/dtx/tap"
)

const (
	xctraceTable = "os-signpost-interval"
	// maxXctraceFrames bounds an import; four hours at 120 Hz.
	maxXctraceFrames = 2_000_000
	// What goes into an offset is bounded so that the difference of any two offsets fits int64: times of the trace, which begin at 0,
	// to 13 days, parts of the timebase (real ones are 125/3 and 1/1), and prev_frame * numer.
	maxXctraceNs       = 1 << 50
	maxXctraceTimebase = 1000
	maxXctraceScaled   = 1 << 61
)

// XctraceRecording is the frames of a recording of Instruments, in the order of their ends.
type XctraceRecording struct {
	binding Binding
	frames  []xctraceFrame
	survey  survey
	rows    int64 // of every kind
}

// xctraceFrame is one FrameLifetime row. Times of the trace are ns since its beginning.
type xctraceFrame struct {
	startNs, endNs int64
	class          *class
	swap           uint64
	hasSwap        bool
	process        *element
	state          [maxArguments]argumentState
	number         [maxArguments]uint64
}

// ReadXctrace reads an os-signpost-interval export of Instruments. timebase is that of the recorded device.
//
// The export has no end in ticks. It has begin and duration in ns since the trace began, and each frame's prev_frame in ticks, which is the end
// of the frame before it. So each pair of frames whose seeds follow each other gives an offset between the two clocks, and as both run
// at the same rate, all must agree within one tick: then a frame's end is the next one's prev_frame, and where there is no next frame, or
// frames are missing before it (seeds are, and its prev_frame is a millisecond or more later), the end is reckoned from the offset. Any
// other disagreement means that the file is not what it seems, and it is refused. Frames missing between all that are there would agree
// on a wrong offset as well, so a file without seeds that follow each other is refused too. Displays may share one count: where no
// display has seeds that follow each other, those do that have only seeds of others between them.
func ReadXctrace(r io.Reader, timebase Timebase) (*XctraceRecording, error) {
	if timebase.Numer < 1 || timebase.Denom < 1 || timebase.Numer > maxXctraceTimebase || timebase.Denom > maxXctraceTimebase {
		return nil, fmt.Errorf("timebase %d/%d: want both parts from 1 to %d, such as 125/3", timebase.Numer, timebase.Denom, maxXctraceTimebase)
	}
	x := &XctraceRecording{}
	x.survey.init()
	export := newExportReader(r)
	err := export.rows(xctraceTable, func(values map[string]*element) error {
		if err := x.row(values); err != nil {
			return export.fail("%w", err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(x.frames) == 0 {
		return nil, fmt.Errorf("xctrace export: no FrameLifetime intervals of the render server in table %q; record with the os_signpost instrument, "+
			"and export all of its intervals", xctraceTable)
	}
	slices.SortStableFunc(x.frames, func(a, b xctraceFrame) int { return int(a.endNs - b.endNs) })
	if err := x.findEnds(timebase); err != nil {
		return nil, fmt.Errorf("xctrace export: %w", err)
	}
	first := &x.frames[0]
	x.binding = Binding{Target: Target{Generation: 1}, SourceEpoch: 1, Timebase: timebase}
	if x.binding.Target.BundleID, x.binding.Target.PID = first.emitter(); x.binding.Target.BundleID == "" {
		return nil, errors.New("xctrace export: the row of the first frame names no process; export whole rows")
	}
	if first.state[lifetimeDisplay] == argumentNumber && first.number[lifetimeDisplay] <= math.MaxInt64 {
		x.binding.PrimaryDisplayID = int64(first.number[lifetimeDisplay])
	}
	return x, nil
}

// Binding is what every record of the import belongs to: the emitting process as target, and the first record's display.
func (x *XctraceRecording) Binding() Binding { return x.binding }

func (x *XctraceRecording) row(values map[string]*element) error {
	text := func(column string) []byte {
		if e := values[column]; e != nil {
			return []byte(e.text[:min(len(e.text), maxWordBytes)])
		}
		return nil
	}
	c := x.survey.lookup(text("subsystem"), text("category"), text("name"))
	c.rows++
	x.rows++
	if c.form != formFrameLifetime {
		return nil
	}
	if len(x.frames) == maxXctraceFrames {
		return fmt.Errorf("more than %d frames; export a shorter part of the recording", maxXctraceFrames)
	}
	f := xctraceFrame{class: c, process: values["process"]}
	start, okStart := values["start"].number()
	duration, okDuration := values["duration"].number()
	if !okStart || !okDuration || start > maxXctraceNs || duration > maxXctraceNs {
		return errors.New("a FrameLifetime interval without start and duration in ns")
	}
	f.startNs, f.endNs = int64(start), int64(start+duration)
	f.swap, f.hasSwap = values["identifier"].number()
	message := values["end-message"]
	if message == nil {
		message = values["start-message"]
	}
	if message != nil {
		f.read(message)
	}
	x.frames = append(x.frames, f)
	return nil
}

// read takes the arguments from a message, by the text in front of each.
func (f *xctraceFrame) read(message *element) {
	var name []byte
	for _, e := range message.children {
		kind := kindOf(e.tag)
		if kind == itemNarrative {
			name = appendNormalName(name[:0], lastWord(e.text))
			continue
		}
		i := lifetimeArgument(name, "")
		name = name[:0]
		if i == noArgument || f.state[i] != argumentAbsent {
			continue
		}
		f.state[i] = argumentUnusable
		if n, ok := e.number(); ok && kind == itemNumber {
			f.state[i], f.number[i] = argumentNumber, n
		}
	}
}

// emitter is the name and pid of the process that told of the frame.
func (f *xctraceFrame) emitter() (name string, pid int64) {
	if f.process == nil {
		return "", 0
	}
	name = f.process.format
	if id := f.process.child("pid"); id != nil {
		name = strings.TrimSuffix(name, " ("+id.text+")")
		if n, ok := id.number(); ok && n <= math.MaxInt32 {
			pid = int64(n)
		}
	}
	return name, pid
}

// findEnds gives every frame its begin and end in ticks.
func (x *XctraceRecording) findEnds(t Timebase) error {
	// An offset is the device's time minus the trace's, in units of ns / t.Denom, in which a tick is t.Numer.
	type pair struct {
		frame    int
		previous uint64
		offset   int64
		seedGap  bool // frames may be missing between the two
	}
	var pairs []pair
	var offsets, shared []int64        // of frames whose seeds follow each other; and where all seeds between are of other displays
	next := map[uint64]*xctraceFrame{} // by display
	seeds := map[uint64]bool{}
	for i := range x.frames {
		if f := &x.frames[i]; f.state[lifetimeSeed] == argumentNumber {
			seeds[f.number[lifetimeSeed]] = true
		}
	}
	for i := len(x.frames) - 1; i >= 0; i-- {
		f := &x.frames[i]
		display := f.number[lifetimeDisplay]
		if after := next[display]; after != nil && after.state[lifetimePrevious] == argumentNumber {
			hasSeeds := f.state[lifetimeSeed] == argumentNumber && after.state[lifetimeSeed] == argumentNumber
			seed, seedAfter := f.number[lifetimeSeed], after.number[lifetimeSeed]
			previous := after.number[lifetimePrevious]
			isTold := previous > 0 && previous <= uint64(maxXctraceScaled/t.Numer)
			if isTold && !(hasSeeds && seed == seedAfter) { // the same frame under both categories is no successor of itself
				p := pair{i, previous, int64(previous)*t.Numer - f.endNs*t.Denom, !hasSeeds || seedAfter > seed+1}
				pairs = append(pairs, p)
				switch {
				case hasSeeds && seedAfter == seed+1:
					offsets = append(offsets, p.offset)
				case hasSeeds && seedAfter > seed && seedAfter-seed <= maxSharedSeeds && allIn(seeds, seed+1, seedAfter):
					shared = append(shared, p.offset)
				}
			}
		}
		next[display] = f
	}
	if len(offsets) == 0 {
		offsets = shared
	}
	if len(offsets) == 0 {
		return errors.New("no frame has a successor with prev_frame and the next frame_seed, so that nothing tells the ends in ticks; " +
			"export all intervals of the recording")
	}
	low, high, agree := widestAgreement(offsets, t.Numer)
	if agree*2 <= len(offsets) && len(offsets) > 1 {
		return fmt.Errorf("trace time and ticks: only %d of %d pairs of frames agree on their offset within one tick; want the same for all",
			agree, len(offsets))
	}
	middle := low + (high-low)/2
	ticks := func(ns int64) (uint64, error) {
		scaled := ns*t.Denom + middle
		if scaled < 0 {
			return 0, errors.New("trace time and ticks: a frame before the device's clock began")
		}
		return uint64(scaled+t.Numer/2) / uint64(t.Numer), nil
	}
	for i := range x.frames {
		f := &x.frames[i]
		begin, errBegin := ticks(f.startNs)
		end, errEnd := ticks(f.endNs)
		if err := errors.Join(errBegin, errEnd); err != nil {
			return err
		}
		f.state[lifetimeBegin], f.number[lifetimeBegin] = argumentNumber, begin
		f.state[lifetimeEnd], f.number[lifetimeEnd] = argumentNumber, end
	}
	for _, p := range pairs {
		f := &x.frames[p.frame]
		switch {
		case max(p.offset, high)-min(p.offset, low) <= t.Numer:
			f.number[lifetimeEnd] = p.previous
		case !p.seedGap || p.offset-high < predecessorSlackNs*t.Denom:
			off := max(p.offset-high, low-p.offset)
			return fmt.Errorf("trace time and ticks: the frame that ends at %d ns of the trace is %.3f µs off the offset that %d others agree on; "+
				"want at most one tick: export one recording, and all of it", f.endNs, float64(off)/float64(t.Denom)/1000, agree)
		}
	}
	return nil
}

// maxSharedSeeds bounds how many frames of other displays are looked for between two of one.
const maxSharedSeeds = 64

// allIn reports whether all seeds from first up to, and without, end are there.
func allIn(seeds map[uint64]bool, first, end uint64) bool {
	for seed := first; seed < end; seed++ {
		if !seeds[seed] {
			return false
		}
	}
	return true
}

// widestAgreement finds the most values that lie within span of each other.
func widestAgreement(values []int64, span int64) (low, high int64, count int) {
	sort.Slice(values, func(i, j int) bool { return values[i] < values[j] })
	from := 0
	for to := range values {
		for values[to]-values[from] > span {
			from++
		}
		if n := to - from + 1; n > count {
			low, high, count = values[from], values[to], n
		}
	}
	return low, high, count
}

// Records judges the frames and calls each for every record, in order; the record is valid only during the call. An error of each ends it.
// Records have no arrival: hostNs is presentationNs, made strictly increasing; where there is none, it is the record before's + 1.
func (x *XctraceRecording) Records(sessionID, policy string, each func(*Record) error) (Counts, error) {
	imported := collect{each: each}
	a := New(SourceXctrace, sessionID, policy)
	if err := a.Bind(x.binding); err != nil {
		return Counts{}, err
	}
	a.handler = &imported
	for i := range x.frames {
		f := &x.frames[i]
		r := &a.record
		*r = a.template
		r.Subsystem, r.Category, r.Name = f.class.subsystem, f.class.category, f.class.name
		fault := a.lifetime.record(&arguments{state: f.state, number: f.number}, f.swap, f.hasSwap, r)
		a.hostNs, _ = r.Timebase.Ns(r.EndMach)
		a.emit(f.class.categoryID, fault)
		if imported.err != nil {
			break
		}
	}
	counts := a.Counts()
	counts.Rows = x.rows
	counts.Names, counts.OtherNameRows = x.survey.counts()
	return counts, imported.err
}

// collect is the Handler of an import, which has nothing but records.
type collect struct {
	each func(*Record) error
	err  error
}

func (c *collect) Record(r *Record)           { c.err = c.each(r) }
func (c *collect) Contributors(*Contributors) {}
func (c *collect) Gap(tap.Gap)                {}
