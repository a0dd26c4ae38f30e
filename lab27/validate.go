package lab27

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/framebridge/framebridge/adapter"
)

// State of a bundle.
type State string

const (
	Complete State = "complete" // the whole recipe ran, and everything agrees
	Partial  State = "partial"  // stopped early, or not sealed, or torn; what is there agrees
	Invalid  State = "invalid"  // it contradicts itself or the contract
)

var (
	ErrPartial = errors.New("the bundle is partial")
	ErrInvalid = errors.New("the bundle is invalid")
)

const (
	maxProblems = 100    // kept; all are counted
	giveUp      = 20_000 // every row can have one and more tell nothing new

	maxAheadNs = 1_000_000_000 // a handler may be called a little ahead of the time that it reports, but not a second
)

// Report is a bundle and what is to be said of it. Plan and Summary are nil where they cannot be read.
type Report struct {
	State        State
	Problems     []*Problem // the first of them
	ProblemCount int
	Bytes        int64 // of all files

	Plan          *Plan
	Events        []Event
	Submissions   []Submission
	Presentations []Presentation
	Summary       *Summary

	Phases []PhaseIntervals
	Tail   *TailCase // nil where nothing tells: the reference was off, or rows may be lacking

	torn bool // the only problems so far are a missing end
}

// PhaseIntervals is how a phase's frames really followed each other, from presentedTime alone. Figures are null where there is no interval.
type PhaseIntervals struct {
	Phase     string `json:"phase"`
	Intervals int    `json:"intervals"`
	MinNs     *int64 `json:"minNs"`
	MedianNs  *int64 `json:"medianNs"`
	P95Ns     *int64 `json:"p95Ns"` // nearest rank
	MaxNs     *int64 `json:"maxNs"`
}

// TailCase tells whether the delays that were asked for lengthened intervals on glass.
type TailCase struct {
	Delayed    int  `json:"delayed"`    // requests that were delayed
	Lengthened int  `json:"lengthened"` // of them, those whose frame came after an interval of at least half the delay
	Happened   bool `json:"happened"`   // every one of them, and there was one
}

// Err is nil for a complete bundle, else the first problem, wrapped as ErrPartial or ErrInvalid.
func (r *Report) Err() error {
	kind := ErrInvalid
	switch r.State {
	case Complete:
		return nil
	case Partial:
		kind = ErrPartial
	}
	if len(r.Problems) > 0 {
		return fmt.Errorf("%w (%d problems): %w", kind, r.ProblemCount, r.Problems[0])
	}
	return fmt.Errorf("%w: the app stopped: %s", kind, r.Summary.Reason)
}

func (r *Report) add(p *Problem) {
	r.ProblemCount++
	if len(r.Problems) < maxProblems {
		r.Problems = append(r.Problems, p)
	}
	r.torn = r.torn && (p.Kind == Torn || p.Kind == Unsealed)
}

func (r *Report) addf(kind Kind, file string, line int, offset int64, format string, args ...any) {
	r.add(&Problem{Kind: kind, File: file, Line: line, Byte: offset, Detail: fmt.Sprintf(format, args...)})
}

// Validate reads a bundle and judges it. want is the request that was sent, nil where it is not known.
func Validate(files fs.FS, want *Request) *Report {
	r := &Report{torn: true}
	reader := &bundleReader{report: r, files: files}
	reader.readPlan()
	reader.readEvents()
	reader.readRequests()
	reader.readPresented()
	reader.readSummary()
	if r.Bytes > MaxBundleBytes {
		r.addf(Bounds, SummaryFile, 0, 0, "the bundle has %d bytes, at most %d are allowed", r.Bytes, MaxBundleBytes)
	}
	if r.Summary != nil {
		reader.checkSeals()
	}
	if r.Plan != nil {
		r.checkPlan(want)
		r.checkEvents()
		r.checkSubmissions()
		r.checkPresentations()
		if r.Summary != nil && r.ProblemCount == 0 {
			r.checkSummary()
			r.checkBrackets()
		}
		r.measureIntervals()
		if r.Plan.Request.ReferenceEnabled && r.Summary != nil && !r.cut(2) && !r.cut(3) {
			r.measureTail()
		}
	}
	switch {
	case r.ProblemCount == 0 && r.Summary != nil && r.Plan != nil && r.Summary.State == string(Complete):
		r.State = Complete
	case r.torn:
		r.State = Partial
	default:
		r.State = Invalid
	}
	return r
}

// checkSeals compares every file with what the summary vouches for.
func (r *bundleReader) checkSeals() {
	for i, want := range r.report.Summary.Files {
		got, name := &r.found[i], BundleFiles[i]
		switch {
		case !isHex64(want.SHA256):
			r.report.addf(Schema, SummaryFile, 1, 0, "files.%s.sha256 %q is no SHA-256", name, want.SHA256)
		case !got.there:
			r.report.addf(Missing, name, 0, 0, "is not there, though the summary has %d bytes of it", want.Bytes)
		case got.bytes < want.Bytes:
			if !got.torn { // else its torn line is noted already
				r.report.addf(Torn, name, 0, got.bytes, "ends here, though the summary has %d bytes of it", want.Bytes)
			}
		case got.bytes > want.Bytes:
			r.report.addf(Hash, name, 0, want.Bytes, "has %d bytes, the summary has %d of it", got.bytes, want.Bytes)
		case got.sha256 != want.SHA256:
			r.report.addf(Hash, name, 0, 0, "its SHA-256 is %s, the summary says %s", got.sha256, want.SHA256)
		}
	}
}

func (r *Report) checkPlan(want *Request) {
	q := &r.Plan.Request
	if want != nil && !q.same(want) {
		r.addf(Other, PlanFile, 1, 0, "run %s, nonce %s, is not the run that was asked for: %s, nonce %s", q.RunName, q.Nonce, want.RunName, want.Nonce)
	}
	if r.Plan.AppVersion != q.AppVersion || r.Plan.SourceDigest != q.SourceDigest {
		r.addf(Other, PlanFile, 1, 0, "ran on version %s, source %s, though version %s, source %s was asked for", r.Plan.AppVersion, r.Plan.SourceDigest, q.AppVersion, q.SourceDigest)
	}
	if !slices.Equal(r.Plan.Phases, Phases(q.DurationPermille)) {
		r.addf(Phase, PlanFile, 1, 0, "the phases are not those of %s at %d permille", q.Recipe, q.DurationPermille)
	}
}

// stop is the stop event, nil where there is none.
func (r *Report) stop() *Event {
	for i := range r.Events {
		if r.Events[i].Name == "stop" {
			return &r.Events[i]
		}
	}
	return nil
}

// checkEvents holds the events against the one order in which they can come.
func (r *Report) checkEvents() {
	const (
		beforeAdmission = iota
		running
		stopped
		drained
		sealed
	)
	stage, phases, last := beforeAdmission, 0, int64(0)
	for i := range r.Events {
		e := &r.Events[i]
		next := stage
		switch e.Name {
		case "admitted":
			next = running
		case "stop":
			next = stopped
		case "drain":
			next = drained
		case "sealed":
			next = sealed
		case "phase":
			if phases == len(r.Plan.Phases) || e.Word != r.Plan.Phases[phases].Name {
				r.addf(Phase, EventsFile, e.Line, e.Byte, "phase %q is unknown or out of order", e.Word)
				return
			}
			phases++
		}
		inRun := e.Name == "phase" || e.Name == "thermal" || e.Name == "cancel" || e.Name == "background"
		if inRun && stage != running || !inRun && next != stage+1 {
			r.addf(Order, EventsFile, e.Line, e.Byte, "%s cannot come here", e.Name)
			return
		}
		if e.Mach < last {
			r.addf(Order, EventsFile, e.Line, e.Byte, "mach %d is earlier than the event before, %d", e.Mach, last)
		}
		stage, last = next, e.Mach
	}
	if r.Summary != nil && stage != sealed && !r.cut(1) {
		r.addf(Order, EventsFile, 0, 0, "do not end with sealed")
	}
}

// cut tells whether a file is known to lack its end, so that what its end would say is not missed again.
func (r *Report) cut(file int) bool {
	return slices.ContainsFunc(r.Problems, func(p *Problem) bool { return p.File == BundleFiles[file] && (p.Kind == Torn || p.Kind == Missing) })
}

func (r *Report) checkSubmissions() {
	var last *Submission
	stop := r.stop()
	inPhase := make([]int64, len(r.Plan.Phases))
	for i := range r.Submissions {
		s := &r.Submissions[i]
		bad := func(kind Kind, format string, args ...any) {
			r.addf(kind, RequestsFile, s.Line, s.Byte, format, args...)
		}
		if s.N != int64(i)+1 {
			bad(Order, "n is %d, want %d", s.N, i+1)
			return // every later row would say the same
		}
		if last != nil && s.Phase < last.Phase {
			bad(Phase, "phase %s after %s", r.phaseName(s.Phase), r.phaseName(last.Phase))
			return
		}
		if last != nil && s.RequestMach <= max(last.RequestMach, last.CommitMach) {
			bad(Order, "requestMach %d is not after the commit before", s.RequestMach)
		}
		inPhase[s.Phase]++
		plan := &r.Plan.Phases[s.Phase]
		if want := plan.delayOf(inPhase[s.Phase]); s.DelayMs != want {
			bad(Count, "delayMs %d in request %d of %s, want %d", s.DelayMs, inPhase[s.Phase], plan.Name, want)
		}
		switch {
		case s.CommitMach == 0:
			if i+1 < len(r.Submissions) || r.Summary != nil && r.Summary.State == string(Complete) {
				bad(Count, "was never committed")
			}
		case s.CommitMach < s.RequestMach:
			bad(Clock, "commitMach %d is before requestMach %d", s.CommitMach, s.RequestMach)
		case stop != nil && s.CommitMach > stop.Mach:
			bad(Clock, "commitMach %d is after the stop, %d", s.CommitMach, stop.Mach)
		case scale(s.CommitMach-s.RequestMach, r.Plan.Timebase.Numer, r.Plan.Timebase.Denom) < s.DelayMs*1_000_000-1000: // ticks are rounded
			bad(Clock, "was committed after %d ticks in spite of a delay of %d ms", s.CommitMach-s.RequestMach, s.DelayMs)
		}
		last = s
	}
}

func (r *Report) phaseName(i uint8) string { return r.Plan.Phases[i].Name }

func (r *Report) checkPresentations() {
	lastNs := int64(0)
	stop := r.stop()
	for i := range r.Presentations {
		p := &r.Presentations[i]
		bad := func(kind Kind, format string, args ...any) {
			r.addf(kind, PresentedFile, p.Line, p.Byte, format, args...)
		}
		if p.N != int64(i)+1 {
			bad(Order, "n is %d, want %d", p.N, i+1)
			return
		}
		if (p.Status == Presented) != (p.PresentedNs > 0) {
			bad(Count, "status %s with presentedTime %d ns", p.Status, p.PresentedNs)
		}
		if p.PresentedNs > 0 {
			if p.PresentedNs <= lastNs {
				bad(Order, "presentedTime %d ns is not after the one before, %d ns", p.PresentedNs, lastNs)
			}
			lastNs = p.PresentedNs
		}
		if (p.Status == NotReported) != (p.CallbackMach == 0) {
			bad(Count, "status %s with callbackMach %d", p.Status, p.CallbackMach)
		}
		if p.Status == NotReported && (p.DrawableID != 0 || p.SurfaceID != 0) {
			bad(Count, "status missing with a drawable or a surface")
		}
		if stop != nil && r.sinceNs(stop.Mach, p.CallbackMach) > MaxDrainNs {
			bad(Bounds, "its handler came %d ns after the stop, at most %d are allowed", r.sinceNs(stop.Mach, p.CallbackMach), MaxDrainNs)
		}
		if i >= len(r.Submissions) {
			if !r.cut(2) {
				bad(Count, "nothing was submitted under n %d", p.N)
			}
			continue
		}
		r.checkAgainstSubmission(p, &r.Submissions[i], bad)
	}
}

func (r *Report) checkAgainstSubmission(p *Presentation, s *Submission, bad func(Kind, string, ...any)) {
	if p.Phase != s.Phase {
		bad(Phase, "phase %s, submitted in %s", r.phaseName(p.Phase), r.phaseName(s.Phase))
	}
	if p.Status == NotReported {
		return
	}
	if p.DrawableID != s.DrawableID {
		bad(Count, "drawable %d, submitted as %d", p.DrawableID, s.DrawableID)
	}
	if p.CallbackMach < s.RequestMach {
		bad(Clock, "its handler came before its request")
	}
	if p.PresentedNs == 0 {
		return
	}
	requested, _ := machNs(r.Plan.Timebase, s.RequestMach)
	reported, _ := machNs(r.Plan.Timebase, p.CallbackMach)
	if p.PresentedNs < requested || p.PresentedNs > reported+maxAheadNs {
		bad(Clock, "presentedTime %d ns is before its request at %d ns, or long after its handler at %d ns", p.PresentedNs, requested, reported)
	}
}

// sinceNs is the time from one mach time to another, rounded up; negative where it runs backwards.
func (r *Report) sinceNs(from, to int64) int64 {
	return -scale(from-to, r.Plan.Timebase.Numer, r.Plan.Timebase.Denom)
}

// checkSummary holds the summary's figures against the rows. Only a bundle without a problem so far is worth it.
func (r *Report) checkSummary() {
	s, q := r.Summary, &r.Plan.Request
	bad := func(kind Kind, format string, args ...any) { r.addf(kind, SummaryFile, 1, 0, format, args...) }
	if s.RunName != q.RunName || s.Nonce != q.Nonce {
		bad(Other, "seals run %s, nonce %s; the plan is of run %s, nonce %s", s.RunName, s.Nonce, q.RunName, q.Nonce)
	}
	finished := s.Reason == "finished"
	if s.State != string(Complete) && s.State != string(Partial) || finished != (s.State == string(Complete)) || s.Reason == "" {
		bad(Count, "state %q with reason %q", s.State, s.Reason)
	}
	counts := [3]int64{}
	for i := range r.Presentations {
		counts[r.Presentations[i].Status]++
	}
	committed := int64(len(r.Submissions))
	if committed > 0 && r.Submissions[committed-1].CommitMach == 0 {
		committed--
	}
	for _, c := range []struct {
		name      string
		got, want int64
	}{
		{"submitted", s.Submitted, int64(len(r.Submissions))}, {"committed", s.Committed, committed},
		{"presented", s.Presented, counts[Presented]}, {"dropped", s.Dropped, counts[Dropped]}, {"outstanding", s.Outstanding, counts[NotReported]},
	} {
		if c.got != c.want {
			bad(Count, "%s is %d, the rows give %d", c.name, c.got, c.want)
		}
	}
	rows := s.Submitted
	if !q.ReferenceEnabled {
		rows = 0
	}
	if rows != s.Presented+s.Dropped+s.Outstanding {
		bad(Count, "submitted %d, but presented %d + dropped %d + outstanding %d", rows, s.Presented, s.Dropped, s.Outstanding)
	}
	if s.State == string(Complete) && (s.Outstanding > 0 || s.StrayCallbacks > 0 || s.Committed != s.Submitted) {
		bad(Count, "complete with %d outstanding, %d stray, %d not committed", s.Outstanding, s.StrayCallbacks, s.Submitted-s.Committed)
	}
	if s.State == string(Complete) && s.QueuePeak > MaxQueue {
		bad(Bounds, "complete with a callback queue of %d, at most %d are allowed", s.QueuePeak, MaxQueue)
	}
	if s.IdleRecovered != (s.Outstanding == 0 && s.WorkloadReleased) {
		bad(Count, "idle recovered %t with %d outstanding, workload released %t", s.IdleRecovered, s.Outstanding, s.WorkloadReleased)
	}
	if h := s.HandlerCost; (h != nil) != (s.Presented+s.Dropped > 0) || h != nil && (h.FirstNs > h.MaxNs || h.MeanNs > h.MaxNs || h.P95Ns > h.MaxNs) {
		bad(Count, "handlerCost does not fit %d handlers", s.Presented+s.Dropped)
	}
	if s.HasUsage && (s.FootprintPeak < s.FootprintStart || s.FootprintPeak < s.FootprintEnd) {
		bad(Count, "the footprint's peak %d is below its start or end", s.FootprintPeak)
	}
	r.checkActualPhases(bad)
}

// checkActualPhases holds the phases as they ran against the plan, the events and the requests.
func (r *Report) checkActualPhases(bad func(Kind, string, ...any)) {
	s := r.Summary
	stop, sealed := r.stop(), &r.Events[len(r.Events)-1] // both are there, or the events had a problem
	if stop.Word != s.Reason && stop.Word != "finished" || sealed.Word != s.State {
		bad(Count, "reason %q, state %q, but the events say %q, %q", s.Reason, s.State, stop.Word, sealed.Word)
	}
	drain := &r.Events[len(r.Events)-2]
	if drain.Number != s.Outstanding {
		bad(Count, "%d outstanding, but the events say %d", s.Outstanding, drain.Number)
	}
	var begun []*Event
	for i := range r.Events {
		if r.Events[i].Name == "phase" {
			begun = append(begun, &r.Events[i])
		}
	}
	if len(s.Phases) != len(begun) || s.State == string(Complete) && len(s.Phases) != len(r.Plan.Phases) {
		bad(Phase, "%d phases, the events have %d, the plan %d", len(s.Phases), len(begun), len(r.Plan.Phases))
		return
	}
	row := 0
	for i, p := range s.Phases {
		plan := &r.Plan.Phases[i]
		end := stop.Mach
		if i+1 < len(s.Phases) {
			end = s.Phases[i+1].StartMach
		}
		if p.Name != plan.Name || p.StartMach != begun[i].Mach || p.EndMach != end {
			bad(Phase, "phase %d: %s from %d to %d, the events say %s from %d to %d", i+1, p.Name, p.StartMach, p.EndMach, plan.Name, begun[i].Mach, end)
			return
		}
		tolerance := plan.intervalNs()
		if i > 0 {
			tolerance = max(tolerance, r.Plan.Phases[i-1].intervalNs())
		}
		length, whole := r.sinceNs(p.StartMach, p.EndMach), i+1 < len(s.Phases) || s.State == string(Complete)
		if length > plan.LengthNs+tolerance || whole && length < plan.LengthNs-tolerance {
			bad(Phase, "%s took %d ns, planned are %d, and %d may be lacking or over", p.Name, length, plan.LengthNs, tolerance)
		}
		first := row
		for row < len(r.Submissions) && int(r.Submissions[row].Phase) == i {
			q := &r.Submissions[row]
			last := i+1 == len(s.Phases) // it ends with the stop, which can come in the tick of a request
			if q.RequestMach < p.StartMach || q.RequestMach > p.EndMach || q.RequestMach == p.EndMach && !last {
				r.addf(Phase, RequestsFile, q.Line, q.Byte, "was requested at %d, outside its phase %s", q.RequestMach, p.Name)
			}
			row++
		}
		if p.Requests != int64(row-first) {
			bad(Count, "%s has %d requests, the rows give %d", p.Name, p.Requests, row-first)
		}
	}
	if row < len(r.Submissions) {
		r.addf(Phase, RequestsFile, r.Submissions[row].Line, r.Submissions[row].Byte, "belongs to a phase that did not run")
	}
}

// checkBrackets says what no clock can show. How wide and how far apart the brackets are is for the verdict to judge.
func (r *Report) checkBrackets() {
	before, after := &r.Summary.Before, &r.Summary.After
	for i, b := range []*Bracket{before, after} {
		_, ok := machNs(r.Plan.Timebase, max(b.AbsoluteAfterMach, b.ContinuousMach))
		if !ok || b.AbsoluteAfterMach < b.AbsoluteBeforeMach || b.ContinuousMach < b.AbsoluteBeforeMach {
			r.addf(Clock, SummaryFile, 1, 0, "bracket %d: absolute %d, continuous %d, absolute %d is no order of clocks", i+1, b.AbsoluteBeforeMach, b.ContinuousMach, b.AbsoluteAfterMach)
		}
	}
	if before.AbsoluteAfterMach > r.Events[0].Mach || after.AbsoluteBeforeMach < r.stop().Mach {
		r.addf(Clock, SummaryFile, 1, 0, "the brackets do not stand before and after the run")
	}
}

// measureIntervals says how frames really followed each other.
func (r *Report) measureIntervals() {
	perPhase := make([][]int64, len(r.Plan.Phases))
	var last *Presentation
	for i := range r.Presentations {
		p := &r.Presentations[i]
		if p.PresentedNs == 0 {
			continue
		}
		if last != nil && p.Phase == last.Phase {
			perPhase[p.Phase] = append(perPhase[p.Phase], p.PresentedNs-last.PresentedNs)
		}
		last = p
	}
	for i, intervals := range perPhase {
		ph := PhaseIntervals{Phase: r.Plan.Phases[i].Name, Intervals: len(intervals)}
		if n := len(intervals); n > 0 {
			slices.Sort(intervals)
			ph.MinNs, ph.MedianNs, ph.P95Ns, ph.MaxNs = &intervals[0], &intervals[(n-1)/2], &intervals[rank95(n)-1], &intervals[n-1]
		}
		r.Phases = append(r.Phases, ph)
	}
}

// measureTail says which of the delays lengthened the interval before their frame. A delay whose frame was not shown, or one of several in
// one interval, did not.
func (r *Report) measureTail() {
	tail := &TailCase{}
	lastNs := int64(0)
	waiting, waitingNs := 0, int64(0) // delayed submissions since the last presentation, and the delay of one
	for i := range r.Submissions {
		if delayMs := r.Submissions[i].DelayMs; delayMs > 0 {
			tail.Delayed++
			waiting++
			waitingNs = delayMs * 1_000_000
		}
		if i >= len(r.Presentations) || r.Presentations[i].PresentedNs == 0 {
			continue
		}
		ns := r.Presentations[i].PresentedNs
		if lastNs > 0 && waiting == 1 && ns-lastNs >= waitingNs/2 {
			tail.Lengthened++
		}
		lastNs, waiting = ns, 0
	}
	tail.Happened = tail.Delayed > 0 && tail.Lengthened == tail.Delayed
	r.Tail = tail
}

// rank95 is the nearest rank of the 95th percentile of n values, from 1.
func rank95(n int) int { return (95*n + 99) / 100 }

// Timebase is the bundle's; zero where there is no plan.
func (r *Report) Timebase() adapter.Timebase {
	if r.Plan == nil {
		return adapter.Timebase{}
	}
	return r.Plan.Timebase
}
