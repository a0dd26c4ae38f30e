package lab27host

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/framebridge/framebridge/internal/capture"
	"github.com/framebridge/framebridge/internal/device"
	"github.com/framebridge/framebridge/internal/sim"
	"github.com/framebridge/framebridge/lab27"
	"github.com/framebridge/framebridge/ledger"
)

func (p *phoneLab) options(permille int64) Options {
	return Options{Request: p.request("run-1", permille), Via: ViaAFC, Stage: func(Stage) {},
		Capture: capture.Options{UDID: p.phone.UDID, Dir: filepath.Join(p.TempDir(), "session"), Agent: p.agent, Tool: ledger.Tool{Name: "test", Version: "0"}}}
}

func (p *phoneLab) names(dir string) (names []string) {
	p.Helper()
	entries, err := os.ReadDir(filepath.Join(p.root, dir))
	if err != nil {
		p.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestARunEndsAsASealedSessionWithItsBundleAndVerdict(t *testing.T) {
	p := newPhoneLab(t, "26.0")
	p.do("launch", sim.Fault{Bundle: BundleID}) // an earlier life, which must not take the request
	o := p.options(10)
	o.Via = ViaFileService
	var stages []string
	o.Stage = func(s Stage) {
		if !slices.Contains(stages, s.Name) {
			stages = append(stages, s.Name)
		}
	}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.Report.Err(), r.Match.Verdict.Err()); err != nil || !r.Pulled.Sealed || r.Recording.Manifest.State != ledger.StateComplete {
		t.Errorf("%v, %+v", err, r)
	}
	if got := strings.Join(stages, " "); got != "checking launching waiting running pulling matching" {
		t.Errorf("stages %q", got)
	}
	var sealed []string
	for _, f := range r.Recording.Manifest.Files {
		sealed = append(sealed, f.Name)
	}
	want := []string{"events.jsonl", "lab27/events.jsonl", "lab27/match.json", "lab27/match.jsonl", "lab27/plan.json", "lab27/presented.jsonl", "lab27/requests.jsonl", "lab27/summary.json"}
	if !slices.Equal(sealed, want) {
		t.Errorf("sealed %q", sealed)
	}
	if _, findings, err := ledger.VerifySession(t.Context(), o.Capture.Dir, nil); err != nil || len(findings) > 0 {
		t.Errorf("%v, %v", findings, err)
	}
}

func TestARunThatIsGivenUpIsCancelledOnThePhone(t *testing.T) {
	p := newPhoneLab(t, "16.7")
	o := p.options(100)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o.Stage = func(s Stage) {
		if s.Name == "running" {
			time.AfterFunc(500*time.Millisecond, cancel)
		}
	}
	r, err := Run(ctx, o)
	if err != nil || !r.Recording.Interrupted || r.Report.State != lab27.Partial || r.Report.Summary.Reason != "cancelled" || r.Match == nil {
		t.Errorf("%v, %+v", err, r)
	}
	if m := r.Recording.Manifest; m.State != ledger.StatePartial || m.Reason != "interrupted" {
		t.Errorf("%+v", m)
	}
}

// The phone says nothing while it is given up, and is back a moment later.
func TestARunIsCancelledOnAPhoneThatIsAwayForAMoment(t *testing.T) {
	p := newPhoneLab(t, "16.7")
	o := p.options(200)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o.Stage = func(s Stage) {
		if s.Name == "running" {
			time.AfterFunc(500*time.Millisecond, func() {
				p.do("disconnect", sim.Fault{For: sim.Duration(2 * time.Second)})
				cancel()
			})
		}
	}
	r, err := Run(ctx, o)
	if err != nil || r.Report == nil || r.Report.State != lab27.Partial || r.Report.Summary == nil || r.Report.Summary.Reason != "cancelled" {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestARequestThatIsGivenUpBeforeItIsTakenIsTakenBack(t *testing.T) {
	p := newPhoneLab(t, "16.7")
	o := p.options(100)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o.Stage = func(s Stage) {
		if s.Name == "waiting" { // the app leaves the foreground, where it does not look
			p.do("background", sim.Fault{})
			time.AfterFunc(500*time.Millisecond, cancel)
		}
	}
	r, err := Run(ctx, o)
	if !errors.Is(err, errWithdrawn) || !r.Recording.Interrupted || r.Pulled != nil {
		t.Errorf("%v, %+v", err, r)
	}
	if got := p.names("pending"); len(got) != 1 || got[0] != o.Request.FileName()+unfinished {
		t.Errorf("pending: %q", got)
	}
	// It is no request any more: neither for the app nor for the next run.
	p.do("launch", sim.Fault{Bundle: BundleID})
	time.Sleep(1500 * time.Millisecond)
	if got := p.names("runs"); len(got) != 0 {
		t.Errorf("runs: %q", got)
	}
	next := p.request("run-2", 10)
	if err := Check(t.Context(), p.open(ViaAFC).(*device.Documents), &next); err != nil {
		t.Error(err)
	}
}

func TestAnAppThatDoesNotDoItsPartIsGivenUp(t *testing.T) {
	if os.Getenv("FRAMEBRIDGE_LONG") == "" {
		t.Skip("SKIPPED: waits for as long as an app is given; set FRAMEBRIDGE_LONG")
	}
	t.Run("it does not take the request", func(t *testing.T) {
		p := newPhoneLab(t, "16.7")
		o := p.options(10)
		o.Stage = func(s Stage) {
			if s.Name == "waiting" {
				p.do("background", sim.Fault{})
			}
		}
		r, err := Run(t.Context(), o)
		if !errors.Is(err, ErrNotTaken) || r.Pulled != nil || r.Recording.Manifest.State != ledger.StatePartial || len(p.names("runs")) != 0 {
			t.Errorf("%v, %+v", err, r)
		}
	})
	t.Run("it ends during the run", func(t *testing.T) {
		p := newPhoneLab(t, "16.7")
		o := p.options(10)
		o.Stage = func(s Stage) {
			if s.Name == "running" {
				p.do("terminate", sim.Fault{Bundle: BundleID})
			}
		}
		r, err := Run(t.Context(), o)
		if !errors.Is(err, ErrNotSealed) || r.Pulled == nil || r.Pulled.Sealed || r.Report.State != lab27.Partial || r.Match.Verdict.Qualified {
			t.Errorf("%v, %+v", err, r)
		}
	})
	t.Run("another life of it takes the request", func(t *testing.T) {
		p := newPhoneLab(t, "16.7")
		o := p.options(10)
		o.Stage = func(s Stage) {
			if s.Name == "waiting" {
				p.do("relaunch", sim.Fault{Bundle: BundleID})
			}
		}
		r, err := Run(t.Context(), o)
		if !errors.Is(err, ErrOtherLife) || r.Report.State != lab27.Complete || r.Recording.Manifest.State != ledger.StatePartial {
			t.Errorf("%v, %+v", err, r)
		}
	})
}
