//go:build cgo

package core_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/framebridge/framebridge/lab27"
	"github.com/framebridge/framebridge/lab27/app/core"
)

const otherNonce = "00000000-0000-4000-8000-000000000000"

// refusals are the notes that the app left, by the nonce of the request.
func (p *phone) refusals() map[string]lab27.Refusal {
	p.t.Helper()
	notes := map[string]lab27.Refusal{}
	for _, name := range p.names("refused") {
		if !strings.HasSuffix(name, ".reason") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(p.root, "refused", name))
		if err != nil {
			p.t.Fatal(err)
		}
		note, err := lab27.ParseRefusal(data)
		if err != nil {
			p.t.Fatal(err)
		}
		notes[strings.TrimSuffix(note.File, ".json")] = note
	}
	return notes
}

func TestRequestIsConsumedBeforeItStarts(t *testing.T) {
	p := started(t, lab27.PurposeRehearsal, 100)
	if got := p.names("consumed"); !slices.Equal(got, []string{nonce + ".json"}) || len(p.names("pending")) != 0 {
		t.Errorf("consumed %v, pending %v", got, p.names("pending"))
	}
	if got := p.names("runs/run-1"); !slices.Equal(got, []string{"plan.json"}) {
		t.Errorf("run directory %v", got)
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		reason string
		before func(p *phone, r *lab27.Request)
	}{
		{"nonce-used", func(p *phone, r *lab27.Request) { p.put("consumed/"+r.FileName(), []byte("{}")) }},
		{"run-name-used", func(p *phone, r *lab27.Request) { p.MakeDirectory("runs/run-1") }},
		{"expired", func(p *phone, r *lab27.Request) { r.IssuedAt, r.ExpiresAt = wallStart.Add(-5*time.Minute), wallStart }},
		{"not-yet-valid", func(p *phone, r *lab27.Request) {
			r.IssuedAt, r.ExpiresAt = wallStart.Add(time.Minute+time.Second), wallStart.Add(2*time.Minute)
		}},
		{"other-build", func(p *phone, r *lab27.Request) { r.AppVersion = "1.1" }},
		{"other-build", func(p *phone, r *lab27.Request) { r.SourceDigest = strings.Repeat("0", 64) }},
		{"malformed", func(p *phone, r *lab27.Request) { r.Purpose = "fun" }},
		{"not-foreground", func(p *phone, r *lab27.Request) { p.available.Foreground = false }},
		{"no-canvas", func(p *phone, r *lab27.Request) { p.available.Canvas = false }},
		{"no-metal-device", func(p *phone, r *lab27.Request) { p.available.MetalDevice = false }},
		{"no-metal-queue", func(p *phone, r *lab27.Request) { p.available.MetalQueue = false }},
		{"other-workload", func(p *phone, r *lab27.Request) { p.available.OtherWorkload = true }},
		{"thermal", func(p *phone, r *lab27.Request) { p.thermal = 2 }},
	} {
		t.Run(c.reason, func(t *testing.T) {
			p := newPhone(t)
			r := request(t, lab27.PurposeRehearsal, 100)
			c.before(p, &r)
			p.send(r)
			if state := p.launch().Poll(); state != core.Idle {
				t.Fatalf("state %v", state)
			}
			if note := p.refusals()[nonce]; note.Reason != c.reason || note.AtUnixNs < wallStart.UnixNano() || p.app.Status().Refusal != c.reason {
				t.Errorf("note %+v, status %+v", note, p.app.Status())
			}
			if name := r.RefusalNote(p.names("refused")); name == "" {
				t.Errorf("no note among %v", p.names("refused"))
			}
			// What stood in the way is gone, and still nothing starts by itself.
			p.available = core.Available{Foreground: true, Canvas: true, MetalDevice: true, MetalQueue: true}
			p.thermal = 0
			if state := p.app.Poll(); state != core.Idle || len(p.names("pending")) != 0 {
				t.Errorf("state %v, pending %v", state, p.names("pending"))
			}
		})
	}
}

func TestRequestLivesUntilTheInstantItExpires(t *testing.T) {
	p := newPhone(t)
	p.drift = 0
	r := request(t, lab27.PurposeRehearsal, 100)
	r.IssuedAt, r.ExpiresAt = wallStart.Add(-time.Minute), wallStart.Add(time.Nanosecond)
	p.send(r)
	if state := p.launch().Poll(); state != core.Running {
		t.Errorf("a nanosecond before: %+v", p.app.Status())
	}
}

func TestThermalStateOneIsAdmitted(t *testing.T) {
	p := newPhone(t)
	p.thermal = 1
	p.send(request(t, lab27.PurposeRehearsal, 100))
	if state := p.launch().Poll(); state != core.Running {
		t.Errorf("%+v", p.app.Status())
	}
}

func TestTwoPendingRequestsAreBothRefusedAndNothingRuns(t *testing.T) {
	p := newPhone(t)
	first := request(t, lab27.PurposeRehearsal, 100)
	second := first
	second.Nonce, second.RunName = otherNonce, "run-2"
	p.send(first)
	p.send(second)
	if state := p.launch().Poll(); state != core.Idle {
		t.Fatalf("state %v", state)
	}
	notes := p.refusals()
	if notes[nonce].Reason != "two-pending" || notes[otherNonce].Reason != "two-pending" {
		t.Errorf("notes %+v", notes)
	}
	if p.app.Poll() != core.Idle || len(p.names("pending")) != 0 || len(p.names("runs")) != 0 {
		t.Errorf("pending %v, runs %v", p.names("pending"), p.names("runs"))
	}
}

func TestLastOfManyPendingRequestsDoesNotRunEither(t *testing.T) {
	p := newPhone(t)
	for i := range 17 { // one more than the app looks at in one go
		r := request(t, lab27.PurposeRehearsal, 100)
		r.Nonce = strings.Replace(nonce, "6b1f3c4e", "6b1f3c"+string("0123456789abcdefg"[i])+"0", 1)
		p.put("pending/"+r.FileName(), r.AppendJSON(nil))
	}
	p.launch()
	for range 4 {
		if state := p.app.Poll(); state != core.Idle {
			t.Fatalf("state %v", state)
		}
	}
	if len(p.names("pending")) != 0 || len(p.names("runs")) != 0 || len(p.names("refused")) != 34 {
		t.Errorf("pending %v, runs %v, %d refused", p.names("pending"), p.names("runs"), len(p.names("refused")))
	}
}

func TestNonceRunsAtMostOnceAcrossLaunches(t *testing.T) {
	p := started(t, lab27.PurposeRehearsal, 10)
	p.run(1000)
	replay := request(t, lab27.PurposeRehearsal, 10)
	replay.RunName = "run-2"
	p.send(replay)
	if state := p.app.Poll(); state != core.Sealed || p.app.Status().Refusal != "already-ran" {
		t.Errorf("in the same life: %+v", p.app.Status())
	}
	p.send(replay)
	if state := p.launch().Poll(); state != core.Idle || p.app.Status().Refusal != "nonce-used" {
		t.Errorf("in a new life: %+v", p.app.Status())
	}
	if got := p.names("runs"); !slices.Equal(got, []string{"run-1"}) {
		t.Errorf("runs %v", got)
	}
}

func TestRequestUnderAnotherNameThanItsNonceIsRefused(t *testing.T) {
	p := newPhone(t)
	r := request(t, lab27.PurposeRehearsal, 100)
	p.put("pending/"+otherNonce+".json", r.AppendJSON(nil))
	if p.launch().Poll() != core.Idle || p.refusals()[otherNonce].Reason != "file-name-is-not-the-nonce" {
		t.Errorf("%+v", p.app.Status())
	}
}

func TestUnfinishedAndHiddenFilesAreNoRequests(t *testing.T) {
	p := newPhone(t)
	p.put("pending/"+nonce+".json.part", []byte(`{"sch`))
	p.put("pending/.DS_Store", nil)
	if p.launch().Poll() != core.Idle || len(p.names("pending")) != 2 || p.app.Status().Refusal != "" {
		t.Fatalf("%+v, pending %v", p.app.Status(), p.names("pending"))
	}
	p.send(request(t, lab27.PurposeRehearsal, 100))
	if state := p.app.Poll(); state != core.Running {
		t.Errorf("%+v", p.app.Status())
	}
}

func TestPendingDuringARunWaitsUntilItIsOver(t *testing.T) {
	p := started(t, lab27.PurposeRehearsal, 10)
	p.beat()
	second := request(t, lab27.PurposeRehearsal, 10)
	second.Nonce, second.RunName = otherNonce, "run-2"
	p.send(second)
	if p.app.Poll() != core.Running || len(p.names("refused")) != 0 {
		t.Fatalf("refused %v", p.names("refused"))
	}
	p.run(1000)
	if p.app.Poll() != core.Sealed || p.refusals()[otherNonce].Reason != "already-ran" {
		t.Errorf("%+v", p.app.Status())
	}
	validate(t, p, lab27.Complete)
}

func TestRequestTooLongToReadIsRefused(t *testing.T) {
	for length, want := range map[int]string{4096: "malformed", 4097: "unreadable"} {
		p := newPhone(t)
		p.put("pending/"+nonce+".json", []byte(strings.Repeat(" ", length)))
		if p.launch().Poll() != core.Idle || p.refusals()[nonce].Reason != want {
			t.Errorf("%d bytes: %+v", length, p.app.Status())
		}
	}
}
