package lab27_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/framebridge/framebridge/lab27"
)

func TestRequestIsWrittenAndReadBack(t *testing.T) {
	r, err := lab27.NewRequest("night-3_a.1", lab27.PurposeRehearsal, 100, "1.0 (7)", digest, nonce, wallStart.In(time.FixedZone("", 3600)))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"schema":"lab27.request/1","runName":"night-3_a.1","recipe":"p95-140.v1.rehearsal","durationPermille":100,"referenceEnabled":true,"purpose":"rehearsal",` +
		`"appVersion":"1.0 (7)","sourceDigest":"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","issuedAt":"2025-11-03T09:30:00Z",` +
		`"expiresAt":"2025-11-03T09:40:00Z","nonce":"6b1f3c4e-2a55-4d0c-9a7e-0f1e2d3c4b5a"}` + "\n"
	if got := string(r.AppendJSON(nil)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	back, err := lab27.ParseRequest([]byte(want))
	if err != nil || back != r {
		t.Errorf("read back %+v, %v", back, err)
	}
}

func TestPurposeDecidesReferenceAndWhetherARunCanCount(t *testing.T) {
	for _, c := range []struct {
		purpose            lab27.Purpose
		permille           int64
		recipe             string
		reference, neverIs bool
	}{
		{lab27.PurposeFormal, 1000, "p95-140.v1", true, false},
		{lab27.PurposeStudy, 1000, "p95-140.v1", true, false},
		{lab27.PurposeStudy, 999, "p95-140.v1.rehearsal", true, true},
		{lab27.PurposeCostOff, 1000, "p95-140.v1", false, false},
		{lab27.PurposeCostOn, 1000, "p95-140.v1", true, false},
		{lab27.PurposeRehearsal, 1000, "p95-140.v1", true, true},
		{lab27.PurposeRehearsal, 10, "p95-140.v1.rehearsal", true, true},
	} {
		r, err := lab27.NewRequest("run-1", c.purpose, c.permille, "1.0", digest, nonce, wallStart)
		if err != nil || r.Recipe != c.recipe || r.ReferenceEnabled != c.reference || r.Rehearsal() != c.neverIs {
			t.Errorf("%s at %d: %+v, %v", c.purpose, c.permille, r, err)
		}
	}
}

func TestRequestsThatTheHostRefusesToSend(t *testing.T) {
	good, err := lab27.NewRequest("run-1", lab27.PurposeFormal, 1000, "1.0", digest, nonce, wallStart)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want   string
		change func(r *lab27.Request)
	}{
		{`runName "": want`, func(r *lab27.Request) { r.RunName = "" }},
		{`runName "..": want`, func(r *lab27.Request) { r.RunName = ".." }},
		{`runName "a/b": want`, func(r *lab27.Request) { r.RunName = "a/b" }},
		{`runName "-a": want`, func(r *lab27.Request) { r.RunName = "-a" }},
		{`recipe "p95-140.v2": want`, func(r *lab27.Request) { r.Recipe = "p95-140.v2" }},
		{`a formal run takes the whole recipe`, func(r *lab27.Request) { r.Recipe, r.DurationPermille = lab27.RecipeRehearsal, 500 }},
		{`durationPermille 500: only`, func(r *lab27.Request) { r.DurationPermille = 500 }},
		{`durationPermille 9: want 10 to 1000`, func(r *lab27.Request) { r.DurationPermille = 9 }},
		{`purpose formal needs referenceEnabled`, func(r *lab27.Request) { r.ReferenceEnabled = false }},
		{`purpose "": want one of`, func(r *lab27.Request) { r.Purpose = "" }},
		{`appVersion "": want`, func(r *lab27.Request) { r.AppVersion = "" }},
		{`appVersion "1\"": want`, func(r *lab27.Request) { r.AppVersion = `1"` }},
		{`sourceDigest "abc": want`, func(r *lab27.Request) { r.SourceDigest = "abc" }},
		{`nonce "6B1F3C4E-2A55-4D0C-9A7E-0F1E2D3C4B5A": want a lower-case UUID`, func(r *lab27.Request) { r.Nonce = strings.ToUpper(nonce) }},
		{`lives for 10m0.000000001s, at most 10m0s`, func(r *lab27.Request) { r.ExpiresAt = r.IssuedAt.Add(10*time.Minute + 1) }},
		{`is not after issuedAt`, func(r *lab27.Request) { r.ExpiresAt = r.IssuedAt }},
		{`want years 2000 to 2199`, func(r *lab27.Request) { r.IssuedAt = time.Time{} }},
	} {
		r := good
		c.change(&r)
		if err := r.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

func TestRequestMustRunOnceAndAlone(t *testing.T) {
	r, err := lab27.NewRequest("run-1", lab27.PurposeFormal, 1000, "1.0", digest, nonce, wallStart)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		on   lab27.OnPhone
		want error
	}{
		{lab27.OnPhone{Pending: []string{".DS_Store"}, Consumed: []string{"00000000-0000-4000-8000-000000000000.json"}, Runs: []string{"run-10"}}, nil},
		{lab27.OnPhone{Pending: []string{"00000000-0000-4000-8000-000000000000.json"}}, lab27.ErrPending},
		{lab27.OnPhone{Pending: []string{"half.json.part"}}, lab27.ErrPending},
		{lab27.OnPhone{Consumed: []string{nonce + ".json"}}, lab27.ErrNonceUsed},
		{lab27.OnPhone{Refused: []string{"1762162200000000000-" + nonce + ".json"}}, lab27.ErrNonceUsed},
		{lab27.OnPhone{Runs: []string{"run-1"}}, lab27.ErrRunNameUsed},
	} {
		if err := r.CheckUnused(c.on); !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("%+v: %v, want %v", c.on, err, c.want)
		}
	}
}

func TestRefusalNoteIsFoundAndRead(t *testing.T) {
	r, err := lab27.NewRequest("run-1", lab27.PurposeFormal, 1000, "1.0", digest, nonce, wallStart)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"17-x.json.reason", "18-" + nonce + ".json", "18-" + nonce + ".json.reason"}
	if got := r.RefusalNote(names); got != names[2] || r.RefusalNote(names[:2]) != "" {
		t.Errorf("note %q", got)
	}
	note, err := lab27.ParseRefusal([]byte(`{"schema":"lab27.refusal/1","file":"` + nonce + `.json","reason":"expired","detail":"","atUnixNs":1762162200000000000}` + "\n"))
	if err != nil || note != (lab27.Refusal{File: nonce + ".json", Reason: "expired", AtUnixNs: 1_762_162_200_000_000_000}) {
		t.Errorf("%+v, %v", note, err)
	}
	if _, err := lab27.ParseRefusal([]byte(`{"schema":"lab27.refusal/1","file":"a","reason":"b","atUnixNs":1}`)); !errors.Is(err, lab27.Schema) {
		t.Errorf("without detail: %v", err)
	}
}

func TestRecipeIsFourPhasesIn140Seconds(t *testing.T) {
	want := []lab27.PlannedPhase{
		{Name: "baseline", StartNs: 0, LengthNs: 20_000_000_000, RequestedHz: 30},
		{Name: "normal", StartNs: 20_000_000_000, LengthNs: 40_000_000_000, RequestedHz: 60},
		{Name: "tail", StartNs: 60_000_000_000, LengthNs: 40_000_000_000, RequestedHz: 60, DelayMs: 80, DelayEvery: 12},
		{Name: "recovery", StartNs: 100_000_000_000, LengthNs: 40_000_000_000, RequestedHz: 60},
	}
	if got := lab27.Phases(1000); !slices.Equal(got, want) {
		t.Errorf("got %+v", got)
	}
	scaled := lab27.Phases(100)
	if scaled[3].StartNs != 10_000_000_000 || scaled[3].LengthNs != 4_000_000_000 || scaled[2].DelayMs != 80 {
		t.Errorf("a tenth: %+v", scaled)
	}
}

func FuzzRequest(f *testing.F) {
	r, err := lab27.NewRequest("run-1", lab27.PurposeStudy, 250, "1.0", digest, nonce, wallStart)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(r.AppendJSON(nil))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := lab27.ParseRequest(data)
		if err != nil {
			return
		}
		if back, err := lab27.ParseRequest(r.AppendJSON(nil)); err != nil || back != r {
			t.Fatalf("%+v became %+v, %v", r, back, err)
		}
	})
}
