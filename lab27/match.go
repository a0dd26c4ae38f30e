package lab27

import (
	"slices"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/p95"
)

const (
	// ToleranceNs is how far apart the two sides of a pair may be, either way.
	ToleranceNs = 250_000
	// EdgeNs is what the reference window leaves out behind the first presentation and before the last.
	EdgeNs = 50_000_000
	// MaxFrames bounds what one match takes: an hour at 120 Hz and a tenth more.
	MaxFrames = 475_000
)

// Frame is one FrameLifetime of the session, as far as a match needs it. Mach times are continuous.
type Frame struct {
	RawSequence           int64
	EndMach, PreviousMach int64
	DisplayID, SurfaceID  int64 // 0 = not reported
	HasEnd                bool
	Valid                 bool // of quality valid: it has a frame time
	Unchained             bool // its quality says that frames may have been lost right before it
}

// FrameOf takes what a match needs of a record, whatever its quality: each is a frame that must be accounted for.
func FrameOf(r *adapter.Record) Frame {
	return Frame{
		RawSequence: r.RawSequence, EndMach: r.EndMach, PreviousMach: r.PreviousMach, DisplayID: r.DisplayID, SurfaceID: r.SurfaceID,
		HasEnd: r.Fields&adapter.HasEndMach != 0, Valid: r.Quality == adapter.QualityValid, Unchained: unchained(r),
	}
}

// unchained tells that a record's predecessor is not the frame that came before it. After a while in which nothing was drawn it is.
func unchained(r *adapter.Record) bool {
	switch r.Quality {
	case adapter.QualitySourceGap, adapter.QualityNoPredecessor:
		return true
	case adapter.QualityDiscontinuity:
		return r.QualityReason != adapter.ReasonTooLong
	}
	return false
}

// Session is which recording a match takes frames from, in its own words.
type Session struct {
	ID        string
	UDID      string // of its phone; "" = not known
	Evidence  string // E2, E3, E4
	Simulated bool
}

// MatchInput is what a match compares.
type MatchInput struct {
	Report           *Report // of the bundle
	Session          Session
	Frames           []Frame // of the session that ran around it, in order of arrival
	PrimaryDisplayID int64
	Timebase         adapter.Timebase  // the session's
	Bridges          []p95.ClockBridge // the session's
	// Gaps are where the session may have lost frames: how many of Frames came before each.
	Gaps []int
}

// ItemKind is what became of a frame or a presentation, in the contract's words.
type ItemKind uint8

const (
	Paired ItemKind = iota
	SurfaceMismatch
	EdgeCut
	EdgePair
	ExtraSystemFrame
	MissingFrame
	Ambiguous
	NotPresented
	OutOfOrder
)

var itemWords = [...]string{"paired", "surface-mismatch", "edge-cut", "edge", "extra-system-frame", "missing-frame", "ambiguous", "not-presented", "out-of-order"}

func (k ItemKind) String() string { return itemWords[k] }

// Item is one line of match.jsonl. Frame is an index into the input's frames, Presentation into the bundle's; -1 where there is none.
// An ambiguous one has either, and the candidates of the other side from First to Last.
type Item struct {
	Kind                ItemKind
	Frame, Presentation int
	DifferenceNs        int64 // FrameLifetime - presentedTime, of pairs
	Candidates          int
	First, Last         int
}

// Counts is how many there are of each. Where not said otherwise they lie inside the window.
type Counts struct {
	Frames           int `json:"frames"`          // of the primary display, anywhere
	FramesInside     int `json:"framesInside"`    // = paired + surfaceMismatch + extraSystemFrame + ambiguousFrames + edge cuts with the frame inside
	Presented        int `json:"presented"`       // positive presentedTimes, anywhere
	PresentedInside  int `json:"presentedInside"` // = paired + surfaceMismatch + missingFrame + ambiguousPresented + the other edge cuts
	OtherDisplay     int `json:"otherDisplay"`    // frames, anywhere; they take no part
	Unplaced         int `json:"unplaced"`        // frames without a usable end
	Paired           int `json:"paired"`
	SurfaceMismatch  int `json:"surfaceMismatch"`
	ExtraSystemFrame int `json:"extraSystemFrame"`
	MissingFrame     int `json:"missingFrame"`

	AmbiguousFrames    int `json:"ambiguousFrames"`
	AmbiguousPresented int `json:"ambiguousPresented"`
	EdgeCutFrames      int `json:"edgeCutFrames"`    // pairs with the frame inside and the presentation outside
	EdgeCutPresented   int `json:"edgeCutPresented"` // and the other way round
	NotPresented       int `json:"notPresented"`
	OutOfOrder         int `json:"outOfOrder"`  // times that do not rise, on either side
	SessionGaps        int `json:"sessionGaps"` // where the session may have lost frames of the window

	EdgePairs        int `json:"edgePairs"` // outside
	EdgeFrames       int `json:"edgeFrames"`
	EdgePresented    int `json:"edgePresented"`
	EdgeNotPresented int `json:"edgeNotPresented"`
}

// Window is a closed interval of mach continuous time.
type Window struct {
	FromNs int64 `json:"fromNs"`
	ToNs   int64 `json:"toNs"`
}

func (w *Window) holds(ns int64) bool { return w != nil && ns >= w.FromNs && ns <= w.ToNs }

// side is one of the two sorted lists: times on the mach continuous clock, and where each came from.
type side struct {
	ns    []int64
	index []int
}

func newSide(capacity int) side {
	return side{ns: make([]int64, 0, capacity), index: make([]int, 0, capacity)}
}

func (s *side) add(ns int64, index int) {
	s.ns = append(s.ns, ns)
	s.index = append(s.index, index)
}

// sort brings a list in order that did not come in order, which is a difference of its own. A list in order is left alone.
func (s *side) sort() {
	if slices.IsSorted(s.ns) {
		return
	}
	order := make([]int, len(s.ns))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(min(max(s.ns[a]-s.ns[b], -1), 1)) })
	sorted := newSide(len(order))
	for _, i := range order {
		sorted.add(s.ns[i], s.index[i])
	}
	*s = sorted
}

// span is the candidates of one element among the times of the other side: [low, high).
type span struct{ low, high int }

// move follows to a later element.
func (s *span) move(times []int64, ns int64) {
	for s.low < len(times) && times[s.low] < ns-ToleranceNs {
		s.low++
	}
	for s.high < len(times) && times[s.high] <= ns+ToleranceNs {
		s.high++
	}
}

// alone tells whether the i-th of times is the only one within reach of ns.
func alone(times []int64, i int, ns int64) bool {
	return (i == 0 || times[i-1] < ns-ToleranceNs) && (i+1 == len(times) || times[i+1] > ns+ToleranceNs)
}

// matcher is one merge in progress.
type matcher struct {
	in        *MatchInput
	window    *Window
	frames    side
	presented side
	items     []Item
	counts    Counts
}

// place puts both sides on the mach continuous clock.
func (m *matcher) place(offsetNs int64) {
	rows := m.in.Report.Presentations
	m.presented = newSide(len(rows))
	var disorder side // times that do not rise; frame i as i, presentation i as -1 - i
	lastNs := int64(-1 << 62)
	for i := range rows {
		if rows[i].PresentedNs == 0 {
			continue
		}
		ns := rows[i].PresentedNs + offsetNs
		if ns <= lastNs {
			disorder.add(ns, -1-i)
		}
		lastNs = max(lastNs, ns)
		m.presented.add(ns, i)
	}
	m.frames = newSide(len(m.in.Frames))
	lastNs = -1 << 62
	for i := range m.in.Frames {
		f := &m.in.Frames[i]
		if f.DisplayID != m.in.PrimaryDisplayID {
			m.counts.OtherDisplay++
			continue
		}
		ns, ok := machNs(m.in.Timebase, f.EndMach)
		if !f.HasEnd || !ok {
			m.counts.Unplaced++
			continue
		}
		if ns < lastNs {
			disorder.add(ns, i)
		}
		lastNs = max(lastNs, ns)
		m.frames.add(ns, i)
	}
	m.counts.Presented, m.counts.Frames = len(m.presented.ns), len(m.frames.ns)
	m.presented.sort()
	m.frames.sort()
	if n := len(m.presented.ns); n > 0 {
		if w := (Window{m.presented.ns[0] + EdgeNs, m.presented.ns[n-1] - EdgeNs}); w.FromNs <= w.ToNs {
			m.window = &w
		}
	}
	for i, ns := range disorder.ns {
		if at := disorder.index[i]; m.window.holds(ns) {
			m.counts.OutOfOrder++
			m.items = append(m.items, Item{Kind: OutOfOrder, Frame: max(at, -1), Presentation: max(-1-at, -1)})
		}
	}
}

// merge walks both lists once, in order of time.
func (m *matcher) merge() {
	var ofPresented, ofFrame span
	p, f := 0, 0
	for p < len(m.presented.ns) || f < len(m.frames.ns) {
		if f == len(m.frames.ns) || p < len(m.presented.ns) && m.presented.ns[p] <= m.frames.ns[f] {
			ofPresented.move(m.frames.ns, m.presented.ns[p])
			m.judgePresented(p, ofPresented)
			p++
		} else {
			ofFrame.move(m.presented.ns, m.frames.ns[f])
			m.judgeFrame(f, ofFrame)
			f++
		}
	}
}

func (m *matcher) judgePresented(p int, candidates span) {
	ns := m.presented.ns[p]
	inside := m.window.holds(ns)
	if inside {
		m.counts.PresentedInside++
	}
	f, n := candidates.low, candidates.high-candidates.low
	switch {
	case n == 1 && alone(m.presented.ns, p, m.frames.ns[f]):
		m.pair(p, f, inside)
	case !inside:
		m.counts.EdgePresented++
	case n == 0:
		m.counts.MissingFrame++
		m.items = append(m.items, Item{Kind: MissingFrame, Frame: -1, Presentation: m.presented.index[p]})
	default:
		m.counts.AmbiguousPresented++
		m.items = append(m.items, Item{Kind: Ambiguous, Frame: -1, Presentation: m.presented.index[p], Candidates: n, First: m.frames.index[f],
			Last: m.frames.index[candidates.high-1]})
	}
}

func (m *matcher) judgeFrame(f int, candidates span) {
	ns := m.frames.ns[f]
	inside := m.window.holds(ns)
	if inside {
		m.counts.FramesInside++
	}
	p, n := candidates.low, candidates.high-candidates.low
	switch {
	case n == 1 && alone(m.frames.ns, f, m.presented.ns[p]):
		// Its presentation has the pair.
	case !inside:
		m.counts.EdgeFrames++
	case n == 0:
		m.counts.ExtraSystemFrame++
		m.items = append(m.items, Item{Kind: ExtraSystemFrame, Frame: m.frames.index[f], Presentation: -1})
	default:
		m.counts.AmbiguousFrames++
		m.items = append(m.items, Item{Kind: Ambiguous, Frame: m.frames.index[f], Presentation: -1, Candidates: n, First: m.presented.index[p],
			Last: m.presented.index[candidates.high-1]})
	}
}

func (m *matcher) pair(p, f int, presentedInside bool) {
	item := Item{Frame: m.frames.index[f], Presentation: m.presented.index[p], DifferenceNs: m.frames.ns[f] - m.presented.ns[p]}
	frameInside := m.window.holds(m.frames.ns[f])
	surface, other := m.in.Report.Presentations[item.Presentation].SurfaceID, m.in.Frames[item.Frame].SurfaceID
	switch {
	case presentedInside && !frameInside:
		item.Kind = EdgeCut
		m.counts.EdgeCutPresented++
	case frameInside && !presentedInside:
		item.Kind = EdgeCut
		m.counts.EdgeCutFrames++
	case !frameInside:
		item.Kind = EdgePair
		m.counts.EdgePairs++
	case surface != 0 && other != 0 && surface != other:
		item.Kind = SurfaceMismatch
		m.counts.SurfaceMismatch++
	default:
		m.counts.Paired++
	}
	m.items = append(m.items, item)
}

// findNotPresented looks for submissions without a time between two that have one inside the window.
func (m *matcher) findNotPresented(offsetNs int64) {
	rows := m.in.Report.Presentations
	inside := false // the last presented one was
	for i := 0; i < len(rows); {
		if rows[i].PresentedNs > 0 {
			inside = m.window.holds(rows[i].PresentedNs + offsetNs)
			i++
			continue
		}
		end := i
		for end < len(rows) && rows[end].PresentedNs == 0 {
			end++
		}
		between := inside && end < len(rows) && m.window.holds(rows[end].PresentedNs+offsetNs)
		for ; i < end; i++ {
			if !between {
				m.counts.EdgeNotPresented++
				continue
			}
			m.counts.NotPresented++
			m.items = append(m.items, Item{Kind: NotPresented, Frame: -1, Presentation: i})
		}
	}
}
