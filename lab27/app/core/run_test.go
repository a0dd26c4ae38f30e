//go:build cgo

package core_test

import (
	"errors"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/lab27"
	"github.com/framebridge/framebridge/lab27/app/core"
)

func validate(t *testing.T, p *phone, want lab27.State) *lab27.Report {
	t.Helper()
	r := lab27.Validate(p.bundle("run-1"), nil)
	if r.State != want {
		t.Fatalf("bundle is %s, want %s: %v", r.State, want, r.Err())
	}
	return r
}

func qualify(t *testing.T, p *phone, r *lab27.Report) lab27.Verdict {
	t.Helper()
	m, err := lab27.Qualify(lab27.MatchInput{Report: r, Frames: p.frames(), PrimaryDisplayID: 1, Timebase: adapter.Timebase{Numer: 125, Denom: 3}})
	if err != nil {
		t.Fatal(err)
	}
	return m.Verdict
}

func eventNames(r *lab27.Report) string {
	var names []string
	for _, e := range r.Events {
		names = append(names, e.Name)
	}
	return strings.Join(names, " ")
}

func TestRehearsalRunsItsPhasesAndQualifies(t *testing.T) {
	p := started(t, lab27.PurposeRehearsal, 100)
	if state := p.run(2000); state != core.Sealed || p.app.Status().Reason != "finished" || !p.released {
		t.Fatalf("%v, released %t", p.app.Status(), p.released)
	}
	want := request(t, lab27.PurposeRehearsal, 100)
	r := lab27.Validate(p.bundle("run-1"), &want)
	if r.State != lab27.Complete {
		t.Fatal(r.Err())
	}
	if got := eventNames(r); got != "admitted phase phase phase phase stop drain sealed" {
		t.Errorf("events %s", got)
	}
	// 2 s at 30 Hz and 4 s at 60 Hz, give or take the beat at each end. In the tail every twelfth request takes 80 ms and then waits
	// for its beat: 11 * 16.667 + 100 ms for twelve, 14 times in 4 s, and the rest of a fifteenth.
	for i, want := range []struct {
		name     string
		requests int64
	}{{"baseline", 61}, {"normal", 240}, {"tail", 179}, {"recovery", 240}} {
		if got := r.Summary.Phases[i]; got.Name != want.name || got.Requests < want.requests-1 || got.Requests > want.requests+1 {
			t.Errorf("phase %d: %+v, want %+v", i, got, want)
		}
	}
	if !r.Tail.Happened || r.Tail.Delayed != 14 {
		t.Errorf("tail %+v", r.Tail)
	}
	if s := r.Summary; s.FileWritesWhileRunning != 0 || s.QueuePeak < 1 || s.QueuePeak > 2 || !s.IdleRecovered || !s.WorkloadReleased {
		t.Errorf("summary %+v", s)
	}
	v := qualify(t, p, r)
	if !v.Qualified || v.Counts.Paired != v.Counts.FramesInside || v.Counts.Paired < 700 {
		t.Errorf("verdict %+v", v)
	}
}

func TestWholeRecipeQualifies(t *testing.T) {
	p := started(t, lab27.PurposeFormal, 1000)
	if state := p.run(20_000); state != core.Sealed {
		t.Fatalf("%+v", p.app.Status())
	}
	r := validate(t, p, lab27.Complete)
	v := qualify(t, p, r)
	if !v.Qualified || v.Counts.Paired != v.Counts.PresentedInside || v.Cuts != 139 || v.Rehearsal {
		t.Errorf("verdict %+v", v)
	}
	if r.Bytes > lab27.MaxBundleBytes/2 {
		t.Errorf("bundle of %d bytes", r.Bytes)
	}
}

func TestWithoutTheReferenceNoHandlerIsOwed(t *testing.T) {
	p := started(t, lab27.PurposeCostOff, 100)
	if state := p.run(2000); state != core.Sealed {
		t.Fatalf("%+v", p.app.Status())
	}
	r := validate(t, p, lab27.Complete)
	if s := r.Summary; s.Submitted < 700 || s.Presented+s.Dropped+s.Outstanding != 0 || s.HandlerCost != nil {
		t.Errorf("summary %+v", s)
	}
}

func TestWhatStopsARunIsRecordedAndItsBundleIsPartial(t *testing.T) {
	for _, c := range []struct {
		name   string
		cause  func(p *phone)
		reason string
		events string
	}{
		{"cancel", func(p *phone) { p.app.Cancel() }, "cancelled", "admitted phase cancel stop drain sealed"},
		{"background", func(p *phone) { p.app.Background() }, "background", "admitted phase background stop drain sealed"},
		{"serious heat", func(p *phone) { p.app.Thermal(2) }, "thermal", "admitted phase thermal stop drain sealed"},
		{"fair and then critical heat", func(p *phone) { p.app.Thermal(1); p.app.Thermal(3) }, "thermal", "admitted phase thermal thermal stop drain sealed"},
		{"no drawable", func(p *phone) { p.noMore = 21 }, "no-drawable", "admitted phase stop drain sealed"},
		{"a handler for what was never submitted", func(p *phone) { p.app.Presented(9999, 1, 0, 1) }, "stray-callback", "admitted phase stop drain sealed"},
		{"a handler that comes twice", func(p *phone) { p.app.Presented(1, 1, 0, 1) }, "stray-callback", "admitted phase stop drain sealed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := started(t, lab27.PurposeRehearsal, 100)
			p.run(20)
			c.cause(p)
			if state := p.run(200); state != core.Sealed || p.app.Status().Reason != c.reason || !p.released {
				t.Fatalf("%+v", p.app.Status())
			}
			r := validate(t, p, lab27.Partial)
			if r.ProblemCount != 0 || r.Summary.Reason != c.reason || eventNames(r) != c.events {
				t.Errorf("%d problems, reason %s, events %s", r.ProblemCount, r.Summary.Reason, eventNames(r))
			}
			if r.Summary.Submitted < 20 || r.Summary.Submitted > 21 || r.Summary.Presented != 20 {
				t.Errorf("summary %+v", r.Summary)
			}
		})
	}
}

func TestCancelBeforeTheFirstBeatSealsABundleWithoutPhases(t *testing.T) {
	p := started(t, lab27.PurposeRehearsal, 100)
	p.app.Cancel()
	p.run(10)
	if r := validate(t, p, lab27.Partial); r.ProblemCount != 0 || len(r.Summary.Phases) != 0 || r.Summary.HasUsage {
		t.Errorf("%d problems, summary %+v", r.ProblemCount, r.Summary)
	}
}

func TestDroppedAndLostPresentationsStayInEveryCount(t *testing.T) {
	p := started(t, lab27.PurposeRehearsal, 100)
	p.dropped, p.lost = map[int]bool{100: true, 101: true}, map[int]bool{200: true}
	p.run(2000)
	if r := validate(t, p, lab27.Partial); r.ProblemCount != 0 || r.Summary.Reason != "outstanding" || r.Summary.Dropped != 2 || r.Summary.Outstanding != 1 ||
		r.Summary.Submitted != r.Summary.Presented+3 || r.Summary.IdleRecovered || r.Presentations[199].Status != lab27.NotReported {
		t.Errorf("%d problems, summary %+v", r.ProblemCount, r.Summary)
	}
}

func TestHandlersHaveOneSecondAfterTheStop(t *testing.T) {
	for _, c := range []struct {
		name      string
		lateTicks uint64
		presented int64
	}{{"exactly one second", 0, 1}, {"a tick more", 1, 0}} {
		t.Run(c.name, func(t *testing.T) {
			p := started(t, lab27.PurposeRehearsal, 100)
			p.lost = map[int]bool{1: true}
			p.beat()
			p.drift = 0
			p.app.Cancel()
			stopped := p.now.Load()
			p.now.Store(stopped + 1000*msTicks - 1)
			if state := p.app.Tick(); state != core.Draining {
				t.Fatalf("state %v a tick before the second is over", state)
			}
			p.now.Store(stopped + 1000*msTicks + c.lateTicks)
			p.app.Presented(1, 1, 289, 64_000_500_000_000)
			if state := p.app.Tick(); state != core.Sealed {
				t.Fatalf("state %v when the second is over", state)
			}
			r := validate(t, p, lab27.Partial)
			if r.ProblemCount != 0 || r.Summary.Presented != c.presented || r.Summary.Outstanding != 1-c.presented {
				t.Errorf("%d problems: %v, summary %+v", r.ProblemCount, r.Err(), r.Summary)
			}
		})
	}
}

func TestHandlersThatComeAfterSealingChangeNothing(t *testing.T) {
	p := started(t, lab27.PurposeRehearsal, 100)
	p.run(20)
	p.app.Cancel()
	p.run(200)
	before := p.app.Status()
	p.app.Presented(3, 3, 289, 1)
	p.app.Tick()
	p.app.Cancel()
	p.app.Thermal(3)
	if after := p.app.Status(); after != before || after.State != core.Sealed {
		t.Errorf("%+v became %+v", before, after)
	}
	validate(t, p, lab27.Partial)
}

// step ticks without waiting for the panel, and answers each submission at once.
func (p *phone) step(presentedNs int64) core.State {
	p.now.Add(100)
	state := p.app.Tick()
	for _, s := range p.coming {
		p.app.Presented(s.n, s.drawable, math.MaxInt64, presentedNs)
	}
	p.coming = nil
	return state
}

func TestTenThousandRequestsArePossibleAndNoMore(t *testing.T) {
	p := started(t, lab27.PurposeStudy, 1000)
	for n := range 10_000 {
		p.step(65_000_000_000_000 + int64(n))
	}
	if s := p.app.Status(); s.State != core.Running || s.Submitted != 10_000 {
		t.Fatalf("at the bound: %+v", s)
	}
	if state := p.step(0); state != core.Draining {
		t.Fatalf("past the bound: %+v", p.app.Status())
	}
	p.step(0)
	if s := p.app.Status(); s.State != core.Sealed || s.Reason != "requests-bound" || s.Submitted != 10_000 || s.Presented != 10_000 {
		t.Errorf("%+v", s)
	}
	if r := lab27.Validate(p.bundle("run-1"), nil); len(r.Submissions) != 10_000 || len(r.Presentations) != 10_000 || errors.Is(r.Err(), lab27.Bounds) {
		t.Errorf("%d submissions, %d presentations: %v", len(r.Submissions), len(r.Presentations), r.Err())
	}
}

func TestTenThousandReportsArePossibleAndNoMore(t *testing.T) {
	for _, c := range []struct {
		reports int
		reason  string
	}{{10_000, "stray-callback"}, {10_001, "presented-bound"}} { // all but one repeat what was said
		p := started(t, lab27.PurposeStudy, 1000)
		p.beat()
		p.coming = nil
		for range c.reports {
			p.app.Presented(1, 1, 289, 64_000_500_000_000)
		}
		p.run(10)
		if s := p.app.Status(); s.State != core.Sealed || s.Reason != c.reason || s.Presented != 1 {
			t.Errorf("%d reports: %+v", c.reports, s)
		}
	}
}

func TestQueueHolds128Reports(t *testing.T) {
	for _, c := range []struct {
		waiting int
		state   core.State
	}{{128, core.Running}, {129, core.Draining}} {
		p := started(t, lab27.PurposeStudy, 1000)
		for range c.waiting {
			p.now.Add(1000)
			p.app.Tick()
		}
		coming := p.coming
		p.coming = nil
		for i, s := range coming {
			p.app.Presented(s.n, s.drawable, 289, int64(64_000_500_000_000+i))
		}
		p.now.Add(1000)
		if state := p.app.Tick(); state != c.state {
			t.Errorf("%d waiting: %+v", c.waiting, p.app.Status())
		}
		p.app.Cancel()
		p.deliver()
		p.run(200)
		r := lab27.Validate(p.bundle("run-1"), nil)
		if r.Summary == nil || r.Summary.QueuePeak != int64(c.waiting) || r.Summary.Presented < int64(c.waiting) {
			t.Errorf("%d waiting: %+v", c.waiting, r.Summary)
		}
	}
}

func TestBundleStaysWithin2MiBAndStopsTheRunThere(t *testing.T) {
	p := started(t, lab27.PurposeStudy, 1000)
	p.drawable = math.MaxInt64 - 20_000 // the longest rows there can be
	p.slept = 0
	p.now.Store(1_000_000_000_000_000_000)
	const bound, row = 2 << 20, 96 + 128 // what one more submission may need
	for i := range 500 {                 // and some events on top
		p.app.Thermal(i % 2)
	}
	last := p.app.Status()
	for p.step(math.MaxInt64) == core.Running {
		last = p.app.Status()
	}
	if last.BundleBytes > bound || last.BundleBytes+row <= bound || last.Submitted >= 10_000 {
		t.Errorf("ran until %+v", last)
	}
	for p.app.Status().State == core.Draining {
		p.step(math.MaxInt64)
	}
	if s := p.app.Status(); s.State != core.Sealed || s.Reason != "bundle-bound" || s.Submitted != last.Submitted || s.Presented != last.Submitted {
		t.Errorf("%+v", s)
	}
	total := 0
	for _, name := range p.names("runs/run-1") {
		b, _ := p.Read("runs/run-1/"+name, bound)
		total += len(b)
	}
	if total > bound || total < bound*9/10 {
		t.Errorf("%d bytes", total)
	}
}

func TestFlappingHeatEndsInAStopAndNotInALostEvent(t *testing.T) {
	p := started(t, lab27.PurposeStudy, 1000)
	p.beat()
	for i := range 5000 {
		p.app.Thermal(i % 2)
	}
	p.run(200)
	r := validate(t, p, lab27.Partial)
	if r.ProblemCount != 0 || r.Summary.Reason != "events-bound" || len(r.Events) != 4096-8+3 {
		t.Errorf("%d problems, %d events, %s", r.ProblemCount, len(r.Events), r.Summary.Reason)
	}
}

func TestPlatformWithoutUsageFiguresSaysNull(t *testing.T) {
	p := newPhone(t)
	p.noUsage = true
	p.send(request(t, lab27.PurposeRehearsal, 10))
	p.launch().Poll()
	p.run(2000)
	if r := validate(t, p, lab27.Complete); r.Summary.HasUsage {
		t.Errorf("%+v", r.Summary)
	}
}

// failing files stop working after so many writes, as a full disk or a kill would have it.
type failing struct {
	core.Files
	writes int
	whole  bool // the last write is whole; else half of it arrives
}

type failingOutput struct {
	core.Output
	f *failing
}

func (f *failing) Create(path string) (core.Output, error) {
	if f.writes <= 0 {
		return nil, os.ErrPermission
	}
	output, err := f.Files.Create(path)
	return failingOutput{output, f}, err
}

func (o failingOutput) Write(b []byte) (int, error) {
	if o.f.writes--; o.f.writes > 0 {
		return o.Output.Write(b)
	}
	n, err := o.Output.Write(b[:len(b)/2])
	return n, errors.Join(err, io.ErrShortWrite)
}

func TestDiskThatFailsWhileSealingNeverLeavesAWholeLookingBundle(t *testing.T) {
	sealed := 0
	for writes := 2; sealed == 0; writes++ {
		p := newPhone(t)
		p.Files = &failing{Files: p.Files, writes: writes}
		p.send(request(t, lab27.PurposeRehearsal, 20))
		p.launch().Poll()
		state := p.run(2000)
		r := lab27.Validate(p.bundle("run-1"), nil)
		switch state {
		case core.Sealed:
			sealed++
			if r.State != lab27.Complete {
				t.Errorf("after %d writes sealed, yet %s: %v", writes, r.State, r.Err())
			}
		case core.Failed:
			if r.State != lab27.Partial || p.app.Status().Reason != "write-failed" {
				t.Errorf("after %d writes %s: %v", writes, r.State, r.Err())
			}
		default:
			t.Fatalf("after %d writes %v", writes, state)
		}
		if writes > 100 {
			t.Fatal("no bundle was sealed with 100 writes")
		}
	}
}

func TestPlanThatCannotBeWrittenStartsNothing(t *testing.T) {
	p := newPhone(t)
	p.Files = &failing{Files: p.Files, writes: 1}
	p.send(request(t, lab27.PurposeRehearsal, 20))
	if state := p.launch().Poll(); state != core.Idle || p.app.Status().Refusal != "no-plan" {
		t.Errorf("%+v", p.app.Status())
	}
	if got := p.names("consumed"); !slices.Equal(got, []string{nonce + ".json"}) {
		t.Errorf("consumed %v", got)
	}
}
