// Package summary counts a whole session. Its percentiles are over every valid record of a display from beginning to end: another figure
// than the P95 of a window, and never mixed with it.
package summary

import (
	"cmp"
	"errors"
	"io"
	"maps"
	"slices"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/ledger"
	"github.com/framebridge/framebridge/p95"
)

// Summary is what a session holds.
type Summary struct {
	SessionID   string        `json:"sessionId"`
	Name        string        `json:"name"`
	Tool        ledger.Tool   `json:"tool"`
	Device      ledger.Device `json:"device"`
	Evidence    string        `json:"evidence"`
	State       string        `json:"state"` // complete, partial, or "" where the session was never closed
	Reason      string        `json:"reason"`
	NoHostClock bool          `json:"noHostClock"` // an import: there are no arrivals

	FirstHostNs int64 `json:"firstHostNs"`
	LastHostNs  int64 `json:"lastHostNs"`

	PrimaryDisplayID int64      `json:"primaryDisplayId"`
	Displays         []*Display `json:"displays"` // the primary one first

	Lines        map[ledger.Type]int64 `json:"lines"`
	BadLines     int64                 `json:"badLines"`
	Gaps         map[string]*Gap       `json:"gaps"` // by reason
	Sources      map[string]int64      `json:"sourceStates"`
	Epochs       int64                 `json:"sourceEpochs"`
	Targets      []Target              `json:"targets"`
	Contributors []Process             `json:"framesByProcess"`
	Publications map[string]int64      `json:"publications"` // by quality
	Extra        map[string]int64      `json:"counts"`
}

// Target is what a target.bind bound.
type Target struct {
	BundleID            string `json:"bundleId"`
	PID                 int64  `json:"pid"`
	Generation          int64  `json:"generation"`
	SourceEpoch         int64  `json:"sourceEpoch"`
	ReconnectGeneration int64  `json:"reconnectGeneration"`
	PrimaryDisplayID    int64  `json:"primaryDisplayId"`
}

// Gap adds up the source gaps of one reason.
type Gap struct {
	Count    int64 `json:"count"`
	Rows     int64 `json:"rows"`
	Bytes    int64 `json:"bytes"`
	Messages int64 `json:"messages"`
}

// Process is a process and the number of frames that it contributed to.
type Process struct {
	PID    int64  `json:"pid"`
	Name   string `json:"name"`
	Frames int64  `json:"frames"`
}

// Display is one display's frames.
type Display struct {
	DisplayID     int64            `json:"displayId"`
	Frames        int64            `json:"frames"`
	ByQuality     map[string]int64 `json:"byQuality"`
	DroppedBefore int64            `json:"droppedBefore"` // frames known to be missing, from their seeds
	BelowRefresh  int64            `json:"belowRefresh"`  // valid, shorter than 0.95 of their refresh interval
	Skewed        int64            `json:"predecessorSkewed"`
	UnknownLosses int64            `json:"unknownLosses"` // frames before which others are missing, nobody knows how many
	Contradicted  int64            `json:"contradicted"`  // valid by their own word, with other figures than their native integers give; in no figure below

	// Of the valid frames, from their native integers, by nearest rank; nil where there is none.
	P50Ns *int64 `json:"p50FrameTimeNs"`
	P95Ns *int64 `json:"p95FrameTimeNs"`
	P99Ns *int64 `json:"p99FrameTimeNs"`
	MaxNs *int64 `json:"maxFrameTimeNs"`
	MinNs *int64 `json:"minFrameTimeNs"`
	SumNs int64  `json:"sumFrameTimeNs"`

	// Hitches by Apple's rule, over valid frames whose refresh interval is known.
	OverrunNs       int64    `json:"overrunNs"`
	HitchMsPerS     *float64 `json:"hitchMsPerS"` // nil where the frame times add up to nothing
	MissedRefreshes int64    `json:"missedRefreshes"`

	// AdjustmentTicks is a constant by which ends lie after the next frames' previous (wire.md); nil where there is none.
	AdjustmentTicks *int64 `json:"adjustmentTicks"`

	frameTimesNs []int64
	offset       adapter.PredecessorOffset
	lastEndMach  int64
	lastLife     [2]int64 // source epoch and reconnect generation of lastEndMach
}

// Of reads a session's log to its end. Lines that cannot be read are counted; other errors of the log are returned.
func Of(log interface{ Next(*ledger.Event) error }) (*Summary, error) {
	s := &Summary{Lines: map[ledger.Type]int64{}, Gaps: map[string]*Gap{}, Sources: map[string]int64{}, Publications: map[string]int64{}, Extra: map[string]int64{}}
	displays := map[int64]*Display{}
	processes := map[adapter.Contributor]int64{}
	var e ledger.Event
	for {
		err := log.Next(&e)
		var bad *ledger.LineError
		if errors.Is(err, io.EOF) {
			break
		} else if errors.As(err, &bad) {
			s.BadLines++
			continue
		} else if err != nil {
			return nil, err
		}
		s.Lines[e.Type()]++
		if s.FirstHostNs == 0 {
			s.FirstHostNs = e.HostNs
		}
		s.LastHostNs = max(s.LastHostNs, e.HostNs)
		switch v := e.Value.(type) {
		case *ledger.Start:
			s.SessionID, s.Name, s.Tool, s.Device, s.Evidence, s.NoHostClock = v.SessionID, v.Name, v.Tool, v.Device, string(v.Evidence), v.NoHostClock
		case *adapter.Binding:
			s.Targets = append(s.Targets, Target{v.Target.BundleID, v.Target.PID, v.Target.Generation, v.SourceEpoch, v.ReconnectGeneration, v.PrimaryDisplayID})
			s.PrimaryDisplayID = v.PrimaryDisplayID
			s.Epochs = max(s.Epochs, v.SourceEpoch)
		case *adapter.Record:
			d := displays[v.DisplayID]
			if d == nil {
				d = &Display{DisplayID: v.DisplayID, ByQuality: map[string]int64{}}
				displays[v.DisplayID] = d
			}
			d.add(v)
		case *adapter.Contributors:
			for _, p := range v.Processes {
				processes[p]++
			}
		case *ledger.SourceGap:
			g := s.Gaps[v.Reason]
			if g == nil {
				g = &Gap{}
				s.Gaps[v.Reason] = g
			}
			g.Count++
			g.Rows += v.Rows
			g.Bytes += v.Bytes
			g.Messages += v.Messages
		case *ledger.SourceState:
			s.Sources[v.State]++
		case *p95.Receipt:
			s.Publications[string(v.Quality)]++
		case *ledger.End:
			s.State, s.Reason = string(v.State), v.Reason
			maps.Copy(s.Extra, v.Extra)
		}
	}
	for p, frames := range processes {
		s.Contributors = append(s.Contributors, Process{p.PID, p.Name, frames})
	}
	slices.SortFunc(s.Contributors, func(a, b Process) int { return cmp.Or(cmp.Compare(b.Frames, a.Frames), cmp.Compare(a.PID, b.PID)) })
	for _, d := range displays {
		d.finish()
		s.Displays = append(s.Displays, d)
	}
	slices.SortFunc(s.Displays, func(a, b *Display) int {
		if (a.DisplayID == s.PrimaryDisplayID) != (b.DisplayID == s.PrimaryDisplayID) {
			if a.DisplayID == s.PrimaryDisplayID {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.DisplayID, b.DisplayID)
	})
	return s, nil
}

func (d *Display) add(r *adapter.Record) {
	d.Frames++
	d.ByQuality[r.Quality.String()]++
	if r.Fields&adapter.HasDroppedBefore != 0 {
		d.DroppedBefore += r.DroppedBefore
	} else if r.Quality == adapter.QualitySourceGap {
		d.UnknownLosses++
	}
	d.follow(r)
	frameTimeNs, ok := p95.FrameTimeNs(r)
	if !ok {
		if r.Quality == adapter.QualityValid {
			d.Contradicted++
		}
		return
	}
	d.frameTimesNs = append(d.frameTimesNs, frameTimeNs)
	d.SumNs += frameTimeNs
	if r.Fields&adapter.HasRefreshMultiple != 0 && r.RefreshMultipleMilli < 950 {
		d.BelowRefresh++
	}
	if r.Fields&adapter.HasPredecessorSkew != 0 {
		d.Skewed++
	}
	if overrunNs, missed, ok := p95.LatenessOf(r); ok {
		d.OverrunNs += overrunNs
		d.MissedRefreshes += missed
	}
}

// follow compares a frame's previous with the end before it, as the quality table does.
func (d *Display) follow(r *adapter.Record) {
	switch r.Quality {
	case adapter.QualityUnsupportedSchema, adapter.QualityDuplicate, adapter.QualityOutOfOrder:
		return
	}
	life := [2]int64{r.SourceEpoch, r.ReconnectGeneration}
	if d.lastEndMach > 0 && life == d.lastLife && r.PreviousMach > 0 {
		d.offset.Add(r.PreviousMach - d.lastEndMach)
	}
	d.lastEndMach, d.lastLife = r.EndMach, life
}

func (d *Display) finish() {
	if ticks, ok := d.offset.Adjustment(); ok {
		d.AdjustmentTicks = &ticks
	}
	n := len(d.frameTimesNs)
	if n == 0 {
		return
	}
	slices.Sort(d.frameTimesNs)
	at := func(percent int) *int64 {
		v := d.frameTimesNs[(percent*n+99)/100-1]
		return &v
	}
	d.P50Ns, d.P95Ns, d.P99Ns, d.MaxNs = at(50), at(95), at(99), at(100)
	d.MinNs = &d.frameTimesNs[0]
	if d.SumNs > 0 {
		hitch := float64(d.OverrunNs) / 1e6 / (float64(d.SumNs) / 1e9)
		d.HitchMsPerS = &hitch
	}
}

// FrameTimesNs are the valid frame times in ascending order.
func (d *Display) FrameTimesNs() []int64 { return d.frameTimesNs }

// OneDisplayOnly reports whether the release tells no display.
func (s *Summary) OneDisplayOnly() bool {
	return len(s.Displays) == 1 && s.Displays[0].DisplayID == 0 && s.Displays[0].Frames > 0
}

// Target is the target that was bound last, the zero Target where none was.
func (s *Summary) Target() Target {
	if len(s.Targets) == 0 {
		return Target{}
	}
	return s.Targets[len(s.Targets)-1]
}
