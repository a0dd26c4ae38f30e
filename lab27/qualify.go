package lab27

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

const (
	// CutEveryNs is the distance of the publication cuts.
	CutEveryNs = 1_000_000_000
	// CutPhaseNs is how far behind the window's start, and each whole second from there, they lie: half a refresh at 120 Hz. The window
	// starts 50 ms behind a frame, which is six refreshes at 120 Hz and three at 60, and a second is a whole number of them too. Without
	// this, every cut would fall on a frame, and a nanosecond between the two sides would decide which window it belongs to.
	CutPhaseNs = 4_166_667
	// CutWindowNs is the native window that ends at a cut: (T - 10 s, T].
	CutWindowNs = 10_000_000_000
	// MaxP95DifferenceNs is how far the two P95 of a cut may be apart.
	MaxP95DifferenceNs = 1_000_000

	// maxWindowNs bounds the number of cuts: a window longer than an hour is no run's, and none of its cuts is compared.
	maxWindowNs = 3600 * 1_000_000_000

	minValues     = 5             // fewer give no P95 (p95-window.md)
	maxIntervalNs = 1_100_000_000 // a longer one is no frame time (raw-record.md)
)

// Cut is the same window seen from both sides: how many frame times it holds, and their P95 by nearest rank. Rank and P95 are 0 where
// there are fewer than five.
type Cut struct {
	AtNs                       int64
	FrameCount, ReferenceCount int
	FrameRank, ReferenceRank   int
	FrameP95Ns, ReferenceP95Ns int64
	Pass                       bool
}

// Reason is a cause of an unqualified verdict, and how often it is there.
type Reason struct {
	Reason string `json:"reason"`
	Count  int    `json:"count"`
}

// Verdict is match.json. What could not be computed is null.
type Verdict struct {
	Schema      string      `json:"schema"`
	SessionID   string      `json:"sessionId"` // whose frames were matched
	Evidence    string      `json:"evidence"`  // the session's; E2 where either side is simulated
	RunName     string      `json:"runName"`
	Nonce       string      `json:"nonce"`
	Purpose     Purpose     `json:"purpose"`
	Rehearsal   bool        `json:"rehearsal"` // it can never count
	DeviceModel string      `json:"deviceModel"`
	OSVersion   string      `json:"osVersion"`
	Simulated   bool        `json:"simulated"` // the bundle or the session says so
	Qualified   bool        `json:"qualified"`
	Verdict     string      `json:"verdict"` // qualified, unqualified
	Reasons     []Reason    `json:"reasons"`
	Meaning     string      `json:"meaning"`
	BundleState State       `json:"bundleState"`
	Problems    int         `json:"bundleProblems"`
	Clock       *ClockCheck `json:"clock"`  // null without a plan and a summary, and so are the next two
	Window      *Window     `json:"window"` // mach continuous ns; null where there is none
	Counts      *Counts     `json:"counts"`

	DifferenceMinNs *int64 `json:"differenceMinNs"` // FrameLifetime - presentedTime, of the pairs inside; null without one
	DifferenceMaxNs *int64 `json:"differenceMaxNs"`

	Cuts                 int    `json:"cuts"`
	CutsCompared         int    `json:"cutsCompared"` // with a P95 on both sides
	CutsFailed           int    `json:"cutsFailed"`
	WorstP95DifferenceNs *int64 `json:"worstP95DifferenceNs"` // null where none was compared, as the next two
	LastFrameP95Ns       *int64 `json:"lastFrameP95Ns"`       // of the last compared cut
	LastReferenceP95Ns   *int64 `json:"lastReferenceP95Ns"`

	Phases []PhaseIntervals `json:"phases"`
	Tail   *TailCase        `json:"tail"`
}

const VerdictSchema = "lab27.match/1"

const (
	referenceOffReason = "reference-off"
	timebaseReason     = "timebase-differs"

	simulatedEvidence = "E2" // a simulated device never yields more
)

// ErrUnqualified is the verdict as an error.
var ErrUnqualified = errors.New("unqualified")

// Err is nil for a qualified run, else its reasons, wrapped as ErrUnqualified.
func (v *Verdict) Err() error {
	if v.Qualified {
		return nil
	}
	reasons := make([]string, len(v.Reasons))
	for i, r := range v.Reasons {
		reasons[i] = fmt.Sprintf("%s %d", r.Reason, r.Count)
	}
	return fmt.Errorf("run %s: %w: %s; match.jsonl has each of them", v.RunName, ErrUnqualified, strings.Join(reasons, ", "))
}

// Match is a verdict with everything it rests on.
type Match struct {
	Verdict Verdict
	Items   []Item // in order of time, but for out-of-order (first) and not-presented (last)
	Cuts    []Cut

	in        *MatchInput
	frames    side
	presented side
	gaps      []int // of the input's, those inside
}

// Qualify matches a bundle against a session's frames. Nothing is adjusted, dropped or searched for: a difference stays one.
func Qualify(in MatchInput) (*Match, error) {
	if len(in.Frames) > MaxFrames {
		return nil, fmt.Errorf("lab27 match: %w: %d frames, at most %d; record less around the run", Bounds, len(in.Frames), MaxFrames)
	}
	r := in.Report
	m := &Match{in: &in, Verdict: Verdict{Schema: VerdictSchema, Meaning: Meaning, SessionID: in.Session.ID, Evidence: in.Session.Evidence,
		Simulated: in.Session.Simulated, BundleState: r.State, Problems: r.ProblemCount, Phases: r.Phases, Tail: r.Tail}}
	v := &m.Verdict
	if r.Plan != nil {
		q := &r.Plan.Request
		v.RunName, v.Nonce, v.Purpose, v.Rehearsal = q.RunName, q.Nonce, q.Purpose, q.Rehearsal()
		v.DeviceModel, v.OSVersion = r.Plan.DeviceModel, r.Plan.OSVersion
		v.Simulated = v.Simulated || r.Plan.Simulated
	}
	if v.Simulated {
		v.Evidence = simulatedEvidence
	}
	referenceOff, timebaseDiffers := false, false
	if r.Plan != nil && r.Summary != nil && r.clocksReadable() {
		referenceOff, timebaseDiffers = !r.Plan.Request.ReferenceEnabled, r.Plan.Timebase != in.Timebase
		clock := checkClocks(&r.Summary.Before, &r.Summary.After, r.Plan.Timebase, in.Bridges)
		v.Clock = &clock
		work := matcher{in: &in, items: make([]Item, 0, len(r.Presentations)+len(in.Frames)/8)}
		work.place(v.Clock.OffsetNs)
		work.merge()
		work.findNotPresented(v.Clock.OffsetNs)
		v.Window, v.Counts = work.window, &work.counts
		m.Items, m.frames, m.presented = work.items, work.frames, work.presented
		m.findGaps()
		m.compareCuts()
		m.measureDifferences()
	}
	v.Reasons = v.reasons(referenceOff, timebaseDiffers)
	v.Qualified = len(v.Reasons) == 0
	v.Verdict = verdictWord(v.Qualified)
	return m, nil
}

func verdictWord(qualified bool) string {
	if qualified {
		return "qualified"
	}
	return "unqualified"
}

// clocksReadable tells whether the brackets can be computed with at all.
func (r *Report) clocksReadable() bool {
	for _, b := range []*Bracket{&r.Summary.Before, &r.Summary.After} {
		for _, ticks := range []int64{b.AbsoluteBeforeMach, b.ContinuousMach, b.AbsoluteAfterMach} {
			if _, ok := machNs(r.Plan.Timebase, ticks); !ok {
				return false
			}
		}
	}
	return true
}

// reasons are what the verdict's own figures keep from qualifying, and two that it has no figures for.
func (v *Verdict) reasons(referenceOff, timebaseDiffers bool) []Reason {
	reasons := []Reason{}
	reason := func(name string, count int) {
		if count > 0 {
			reasons = append(reasons, Reason{name, count})
		}
	}
	once := func(name string, is bool) {
		if is {
			reason(name, 1)
		}
	}
	once("bundle-"+string(v.BundleState), v.BundleState != Complete)
	once("no-clock", v.Clock == nil)
	once(referenceOffReason, referenceOff)
	once(timebaseReason, timebaseDiffers)
	if v.Clock != nil {
		reason("bracket-too-wide", v.Clock.tooWide())
		once("brackets-disagree", v.Clock.DisagreementNs() > MaxBracketNs)
		once("media-time-differs", !v.Clock.MediaTimeAgrees)
		reason("clock-bridge-contradicts", v.Clock.BridgesContradicting)
		once("no-window", v.Window == nil)
		once("no-cut-compared", v.CutsCompared == 0)
	}
	if c := v.Counts; c != nil {
		reason(ExtraSystemFrame.String(), c.ExtraSystemFrame)
		reason(MissingFrame.String(), c.MissingFrame)
		reason(Ambiguous.String(), c.AmbiguousFrames+c.AmbiguousPresented)
		reason(EdgeCut.String(), c.EdgeCutFrames+c.EdgeCutPresented)
		reason(NotPresented.String(), c.NotPresented)
		reason(SurfaceMismatch.String(), c.SurfaceMismatch)
		reason(OutOfOrder.String(), c.OutOfOrder)
		reason("unplaced-frame", c.Unplaced)
		reason("session-gap", c.SessionGaps)
	}
	reason("cut-differs", v.CutsFailed)
	return reasons
}

// findGaps looks for where frames of the window may have been lost, which would have had to be accounted for: between two frames of which the
// first ends no later than the window and the second no earlier, the session has a gap, or the second does not follow the first.
func (m *Match) findGaps() {
	window, gaps := m.Verdict.Window, m.in.Gaps
	if window == nil {
		return
	}
	lastNs := int64(math.MinInt64)
	for i := range len(m.in.Frames) + 1 {
		ns, unchained := int64(math.MaxInt64), false // behind the last frame
		if i < len(m.in.Frames) {
			f := &m.in.Frames[i]
			end, ok := machNs(m.in.Timebase, f.EndMach)
			if !ok || !f.HasEnd || f.DisplayID != m.in.PrimaryDisplayID {
				continue
			}
			ns, unchained = end, f.Unchained
		}
		n := 0
		for n < len(gaps) && gaps[n] <= i {
			n++
		}
		if lastNs <= window.ToNs && ns >= window.FromNs {
			m.gaps = append(m.gaps, gaps[:n]...)
			if n == 0 && unchained {
				m.gaps = append(m.gaps, i)
			}
		}
		gaps, lastNs = gaps[n:], ns
	}
	m.Verdict.Counts.SessionGaps = len(m.gaps)
}

func (m *Match) measureDifferences() {
	v := &m.Verdict
	for i := range m.Items {
		if k := m.Items[i].Kind; k != Paired && k != SurfaceMismatch {
			continue
		}
		d := m.Items[i].DifferenceNs
		if v.DifferenceMinNs == nil {
			v.DifferenceMinNs, v.DifferenceMaxNs = new(d), new(d)
		}
		*v.DifferenceMinNs, *v.DifferenceMaxNs = min(*v.DifferenceMinNs, d), max(*v.DifferenceMaxNs, d)
	}
}

// timed is one frame time, at the end of its frame.
type timed struct{ atNs, valueNs int64 }

// rolling is a list of frame times, the part of it that the current window holds, and the values of that part in order of size. Moving
// on by a second costs the values that come and go, not those that stay.
type rolling struct {
	all       []timed
	low, high int
	sorted    []int64
}

// upTo moves the window (to - 10 s, to] forward and gives its size, rank and P95.
func (r *rolling) upTo(toNs int64) (n, rank int, p95Ns int64) {
	for ; r.high < len(r.all) && r.all[r.high].atNs <= toNs; r.high++ {
		i, _ := slices.BinarySearch(r.sorted, r.all[r.high].valueNs)
		r.sorted = slices.Insert(r.sorted, i, r.all[r.high].valueNs)
	}
	for ; r.low < r.high && r.all[r.low].atNs <= toNs-CutWindowNs; r.low++ {
		i, _ := slices.BinarySearch(r.sorted, r.all[r.low].valueNs)
		r.sorted = slices.Delete(r.sorted, i, i+1)
	}
	if n = len(r.sorted); n < minValues {
		return n, 0, 0
	}
	rank = rank95(n)
	return n, rank, r.sorted[rank-1]
}

// compareCuts computes the P95 of both sides at every cut of the window, each from its own times: FrameLifetime's end - previous in
// ticks, and the distance between one presentedTime and the next.
func (m *Match) compareCuts() {
	v := &m.Verdict
	if v.Window == nil || v.Window.ToNs-v.Window.FromNs > maxWindowNs {
		return
	}
	frames, reference := rolling{all: make([]timed, 0, len(m.frames.ns))}, rolling{all: make([]timed, 0, len(m.presented.ns))}
	for i, ns := range m.frames.ns {
		f := &m.in.Frames[m.frames.index[i]]
		if v.Window.holds(ns) && f.Valid && f.PreviousMach > 0 && f.PreviousMach < f.EndMach {
			frames.all = append(frames.all, timed{ns, scale(f.EndMach-f.PreviousMach, m.in.Timebase.Numer, m.in.Timebase.Denom)})
		}
	}
	for i, ns := range m.presented.ns {
		if i > 0 && v.Window.holds(ns) && ns-m.presented.ns[i-1] <= maxIntervalNs {
			reference.all = append(reference.all, timed{ns, ns - m.presented.ns[i-1]})
		}
	}
	worstNs, last := int64(0), Cut{} // of those that are compared
	for at := v.Window.FromNs + CutPhaseNs + CutEveryNs; at <= v.Window.ToNs; at += CutEveryNs {
		c := Cut{AtNs: at}
		c.FrameCount, c.FrameRank, c.FrameP95Ns = frames.upTo(at)
		c.ReferenceCount, c.ReferenceRank, c.ReferenceP95Ns = reference.upTo(at)
		difference := abs(c.FrameP95Ns - c.ReferenceP95Ns)
		c.Pass = c.FrameCount == c.ReferenceCount && c.FrameRank == c.ReferenceRank && difference <= MaxP95DifferenceNs
		v.Cuts++
		if !c.Pass {
			v.CutsFailed++
		}
		if c.FrameRank > 0 && c.ReferenceRank > 0 {
			v.CutsCompared++
			worstNs, last = max(worstNs, difference), c
		}
		m.Cuts = append(m.Cuts, c)
	}
	if v.CutsCompared > 0 {
		v.WorstP95DifferenceNs, v.LastFrameP95Ns, v.LastReferenceP95Ns = &worstNs, &last.FrameP95Ns, &last.ReferenceP95Ns
	}
}
