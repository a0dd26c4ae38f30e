package lab27host

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/internal/sessiontest"
	"github.com/framebridge/framebridge/lab27"
	"github.com/framebridge/framebridge/ledger"
)

// logged is a line of an event log, as far as these tests look at it.
type logged struct {
	Type        string `json:"type"`
	SourceEpoch int64  `json:"sourceEpoch"`
	Payload     struct {
		EndMach int64 `json:"endMach"`
	} `json:"payload"`
}

// during is the report of a bundle whose brackets were taken at two mach continuous times.
func during(from, to int64) *lab27.Report {
	return &lab27.Report{Summary: &lab27.Summary{Before: lab27.Bracket{ContinuousMach: from}, After: lab27.Bracket{ContinuousMach: to}}}
}

// recorded is what a session of sessiontest says of itself.
var recorded = lab27.Session{ID: "5f0c3a52-8d7e-4b1c-9a53-0f6f6f3d2a11", UDID: "00008110-0000000000000001", Evidence: "E2", Simulated: true}

func TestAMatchTakesTheFramesOfTheEpochInWhichTheRunRan(t *testing.T) {
	session := filepath.Join(t.TempDir(), "s")
	sessiontest.Session{Seconds: 20}.Record(t, session)
	text, err := os.ReadFile(filepath.Join(session, "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	// Read with nothing of this project's: the ends of the frames of both epochs, and before how many of them each gap stands.
	ends, gaps, bridges, epoch := map[int64][]int64{}, map[int64][]int{}, map[int64]int{}, int64(0)
	for line := range strings.Lines(string(text)) {
		var l logged
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		switch l.Type {
		case "target.bind":
			epoch = l.SourceEpoch
		case "display.frame-lifetime.raw":
			ends[epoch] = append(ends[epoch], l.Payload.EndMach)
		case "source.gap":
			gaps[epoch] = append(gaps[epoch], len(ends[epoch]))
		case "clock.bridge":
			bridges[epoch]++
		}
	}
	if len(ends) != 2 || len(gaps[1]) != 1 || len(ends[2]) < 500 {
		t.Fatalf("%d epochs, gaps %v", len(ends), gaps)
	}
	for epoch, want := range ends {
		in, err := Input(session, during(want[10], want[200]))
		if err != nil {
			t.Fatal(err)
		}
		if len(in.Frames) != len(want) || in.Frames[10].EndMach != want[10] || len(in.Bridges) != bridges[epoch] || len(in.Gaps) != len(gaps[epoch]) ||
			in.Session != recorded || in.PrimaryDisplayID != 1 || in.Timebase.Numer != 125 || in.Timebase.Denom != 3 {
			t.Errorf("epoch %d: %d frames, %d bridges, gaps %v; want %d, %d, %v", epoch, len(in.Frames), len(in.Bridges), in.Gaps, len(want), bridges[epoch], gaps[epoch])
		}
		if epoch == 1 && in.Gaps[0] != gaps[1][0] {
			t.Errorf("the gap stands behind %d frames, want %d", in.Gaps[0], gaps[1][0])
		}
	}
	if s, err := ReadSession(session); err != nil || s != recorded {
		t.Errorf("%+v, %v", s, err)
	}
	for name, r := range map[string]*lab27.Report{"at no recorded time": during(1, 2), "in both": during(0, 1<<62), "of a run without clocks": {}} {
		if _, err := Input(session, r); err == nil || !strings.Contains(err.Error(), "2 source epochs") {
			t.Errorf("%s: %v", name, err)
		}
	}

	// A line that cannot be read may have been a frame; what was torn off at the end was never recorded.
	lines := bytes.SplitAfter(text, []byte("\n"))
	at, frames := 0, 0
	for i, line := range lines {
		if bytes.Contains(line, []byte(`"display.frame-lifetime.raw"`)) {
			if frames++; frames == 101 {
				at = i
			}
		}
	}
	lines[at] = []byte("{}\n")
	damaged := filepath.Join(t.TempDir(), "events.jsonl")
	if err := os.WriteFile(damaged, append(bytes.Join(lines, nil), `{"seq":`...), 0o644); err != nil {
		t.Fatal(err)
	}
	in, err := Input(damaged, during(ends[1][10], ends[1][200]))
	if err != nil || len(in.Frames) != len(ends[1])-1 || in.Gaps[0] != 100 {
		t.Errorf("%d frames, gaps %v, %v; want one frame less and a gap behind 100", len(in.Frames), in.Gaps, err)
	}
}

func TestWithoutAConnectionThereIsNothingToMatch(t *testing.T) {
	if _, err := Input(t.TempDir(), during(1, 2)); err == nil {
		t.Error("an empty directory is accepted")
	}
	if _, err := FindBundle(t.TempDir()); err == nil || !strings.Contains(err.Error(), "neither a bundle") {
		t.Errorf("%v", err)
	}
}

func TestASessionThatDoesNotSayWhichItIsIsNotMatched(t *testing.T) {
	for name, text := range map[string]string{
		"begins with damage":         "{}\n",
		"begins with something else": `{"seq":1,"hostNs":7,"type":"source.state","state":"connected","cause":""}` + "\n",
		"is empty":                   "",
	} {
		log := filepath.Join(t.TempDir(), "events.jsonl")
		if err := os.WriteFile(log, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Input(log, during(1, 2)); err == nil || !strings.Contains(err.Error(), "expected session.start as its first line") {
			t.Errorf("a session that %s: %v", name, err)
		}
	}
}

func TestASessionIsABundleOnlyWithTheFilesOfOne(t *testing.T) {
	session := filepath.Join(t.TempDir(), "s")
	sessiontest.Session{Seconds: 20}.Record(t, session)
	if dir, err := FindBundle(session); err == nil || !strings.Contains(err.Error(), "neither a bundle of Lab27 nor a session with one") {
		t.Errorf("%q, %v", dir, err)
	}
	bundle := filepath.Join(session, "lab27")
	if err := os.Mkdir(bundle, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bundle, "plan.json"), []byte("{}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{session, bundle} {
		if dir, err := FindBundle(path); err != nil || dir != bundle {
			t.Errorf("%s: %q, %v", path, dir, err)
		}
	}
}

func TestAPipeIsNoVerdict(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, MatchFile), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadVerdict(dir); err == nil || !strings.Contains(err.Error(), "match.json: expected a regular file") {
		t.Errorf("said %v", err)
	}
}

func TestAVerdictInASealedSessionIsTheOneThatWasSealed(t *testing.T) {
	m, err := lab27.Qualify(lab27.MatchInput{Report: &lab27.Report{State: lab27.Invalid}, Session: recorded})
	if err != nil {
		t.Fatal(err)
	}
	verdict, err := m.Verdict.JSON()
	if err != nil {
		t.Fatal(err)
	}
	put := func(dir string, text []byte) string {
		t.Helper()
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, MatchFile), text, 0o644)); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	read := func(path string) error {
		v, err := ReadVerdict(path)
		if err == nil && v.SessionID != recorded.ID {
			t.Errorf("%s: %+v", path, v)
		}
		return err
	}
	start := ledger.Start{SessionID: recorded.ID, Name: "s", Tool: ledger.Tool{Name: "framebridge", Version: "0.0.0-test"}, Host: ledger.Host{Name: "lab", OS: "linux", Arch: "amd64", CPUs: 2, PID: 7},
		Device: ledger.Device{UDID: recorded.UDID, Simulated: true}, Evidence: ledger.EvidenceE2, Policy: adapter.PolicyP95, Clock: ledger.Clock{MonotonicNs: 5, WallNs: 6}}
	dir := filepath.Join(t.TempDir(), "s")
	session, err := ledger.Create(dir, 5, start, false)
	if err != nil {
		t.Fatal(err)
	}
	inside := put(filepath.Join(dir, BundleDir), verdict)
	if err := read(dir); err != nil {
		t.Errorf("before the session is sealed: %v", err)
	}
	if _, err := session.Seal(7, ledger.StateComplete, "", nil, false); err != nil {
		t.Fatal(err)
	}
	elsewhere := put(filepath.Join(t.TempDir(), "m"), verdict)
	for _, path := range []string{dir, inside, elsewhere} {
		if err := read(path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	notes := put(filepath.Join(dir, "notes", "mine"), verdict)
	if err := read(notes); !errors.Is(err, lab27.Hash) || !strings.Contains(err.Error(), "notes/mine/match.json: ") {
		t.Errorf("put into the sealed session: %v", err)
	}
	bare := filepath.Join(t.TempDir(), "s")
	if err := errors.Join(os.CopyFS(bare, os.DirFS(dir)), os.RemoveAll(filepath.Join(bare, BundleDir))); err != nil {
		t.Fatal(err)
	}
	if err := read(put(bare, verdict)); !errors.Is(err, lab27.Hash) {
		t.Errorf("put into the top of a sealed session: %v", err)
	}
	link, linked := filepath.Join(t.TempDir(), "link"), filepath.Join(t.TempDir(), "s")
	if err := errors.Join(os.Symlink(inside, link), os.CopyFS(linked, os.DirFS(dir)), os.RemoveAll(filepath.Join(linked, BundleDir)),
		os.Symlink(elsewhere, filepath.Join(linked, BundleDir))); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, linked} {
		if err := read(path); err != nil {
			t.Errorf("%s, the sealed one behind a link: %v", path, err)
		}
	}
	altered := bytes.Replace(verdict, []byte(`"osVersion": ""`), []byte(`"osVersion": "18.5"`), 1)
	put(elsewhere, altered)
	put(inside, altered)
	for _, path := range []string{link, linked} {
		if err := read(path); !errors.Is(err, lab27.Hash) {
			t.Errorf("%s, altered behind a link: %v", path, err)
		}
	}
	for _, path := range []string{dir, inside} {
		if err := read(path); !errors.Is(err, lab27.Hash) || !strings.Contains(err.Error(), "framebridge verify") {
			t.Errorf("%s, altered: %v", path, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, ledger.ManifestName), []byte("{}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := read(dir); err == nil {
		t.Error("believed beside a manifest that cannot be read")
	}
	if err := read(put(t.TempDir(), make([]byte, lab27.MaxVerdictBytes+1))); !errors.Is(err, lab27.Bounds) {
		t.Errorf("longer than any: %v", err)
	}
	if err := read(t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no match: %v", err)
	}
}
