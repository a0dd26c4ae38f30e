package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/framebridge/framebridge/internal/sim"
)

const lab27Bundle = "com.framebridge.lab27"

// lab27Lab is a lab of phones that carry the reference app.
type lab27Lab struct {
	*testing.T
	*sim.Lab
	udids []string
}

func startLab27(t *testing.T, releases ...string) *lab27Lab {
	t.Helper()
	if !sim.HasLab27 {
		t.Skip("SKIPPED: built without a C compiler, the simulated lab has no Lab27 app")
	}
	var phones []sim.DeviceConfig
	l := &lab27Lab{T: t}
	for i, release := range releases {
		phone := sim.DefaultDevice(fmt.Sprintf("00008101-%016X", 0xA0+i), release)
		phone.Lab27 = true
		phone.Scene.Slept = 7403 * time.Second
		phones = append(phones, phone)
		l.udids = append(l.udids, phone.UDID)
	}
	var err error
	if l.Lab, err = sim.New(sim.Config{Speed: 1, Devices: phones}, zerolog.Nop()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	address, err := l.Listen("unix:" + filepath.Join(t.TempDir(), "usbmuxd"))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("USBMUXD_SOCKET_ADDRESS", address)
	host, port, err := l.ListenTunnels("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GO_IOS_AGENT_HOST", host)
	t.Setenv("GO_IOS_AGENT_PORT", fmt.Sprint(port))
	return l
}

func (l *lab27Lab) do(udid, kind string, f sim.Fault) {
	f.Kind = kind
	// A recording that has lost a payload sets up another tap, before the lab could see that any more were lost.
	if _, err := l.Apply(context.Background(), udid, f); err != nil && kind != "lose" {
		l.Errorf("%s: %s: %v", udid, kind, err)
	}
}

// documents is the app's Documents/lab27 of a phone, on this machine.
func (l *lab27Lab) documents(udid string) string {
	dir, err := l.Documents(udid, lab27Bundle)
	if err != nil {
		l.Error(err)
	}
	return filepath.Join(dir, "lab27")
}

// consumed waits until the app of a phone has begun a run.
func (l *lab27Lab) consumed(udid string) {
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if names, _ := os.ReadDir(filepath.Join(l.documents(udid), "consumed")); len(names) > 0 {
			return
		}
	}
	l.Errorf("%s: no run has begun", udid)
}

// lab27Result is what `lab27 run --json` says last.
type lab27Result struct {
	Type, Dir, State, Reason, Evidence string
	Bundle                             *struct {
		State, Reason string
		ProblemCount  int
		Problems      []struct{ Kind, File string }
		Tail          struct{ Happened bool }
	}
	Match *struct {
		Qualified bool
		Reasons   []struct {
			Reason string
			Count  int
		}
		Counts  map[string]int
		Clock   struct{ OffsetNs int64 }
		Window  *struct{ FromNs, ToNs int64 }
		Meaning string
	}
}

// reasons are those of the verdict, in one line.
func (r *lab27Result) reasons() string {
	var words []string
	for _, reason := range r.Match.Reasons {
		words = append(words, reason.Reason)
	}
	return strings.Join(words, " ")
}

// lastResult reads the result that ends a run's output.
func lastResult(t *testing.T, e ended) *lab27Result {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(e.stdout), "\n")
	var r lab27Result
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &r); err != nil || r.Type != "result" {
		t.Fatalf("no result: exit code %d\n%s%s", e.code, e.stdout, e.stderr)
	}
	return &r
}

// everyFramePaired matches a session by itself, with nothing of this project's: it reads presented.jsonl and events.jsonl, and pairs the
// nearest frame with each presentation of the window. want is how many it must be at least.
func everyFramePaired(t *testing.T, r *lab27Result, want int) {
	t.Helper()
	var presented, frames []int64
	text, err := os.ReadFile(filepath.Join(r.Dir, "lab27", "presented.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(strings.SplitN(string(text), "\n", 2)[1]) {
		var row []json.RawMessage // n, phase, callbackMach, drawableId, surfaceId, presentedTime, status
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		seconds, ok := new(big.Rat).SetString(string(row[5]))
		ns := new(big.Rat).Mul(seconds, big.NewRat(1_000_000_000, 1))
		if !ok || !ns.IsInt() {
			t.Fatalf("presentedTime %s", row[5])
		}
		if at := ns.Num().Int64(); at > 0 {
			presented = append(presented, at+r.Match.Clock.OffsetNs)
		}
	}
	list, _ := records(t, r.Dir)
	for _, rec := range list {
		frames = append(frames, rec.Payload.EndMach/3*125+rec.Payload.EndMach%3*125/3)
	}
	from, to := presented[0]+50_000_000, presented[len(presented)-1]-50_000_000
	inside := func(list []int64) (in []int64) {
		for _, ns := range list {
			if ns >= from && ns <= to {
				in = append(in, ns)
			}
		}
		return in
	}
	p, f := inside(presented), inside(frames)
	if len(p) != len(f) || len(p) < want {
		t.Fatalf("%d presentations and %d frames in the window, want as many and %d or more", len(p), len(f), want)
	}
	for i := range p {
		if d := p[i] - f[i]; d < -250_000 || d > 250_000 {
			t.Fatalf("presentation %d of the window is %d ns from its frame", i, d)
		}
	}
	if r.Match.Counts["paired"] != len(p) || *r.Match.Window != struct{ FromNs, ToNs int64 }{from, to} {
		t.Errorf("%+v in %+v, want %d in [%d, %d]", r.Match.Counts, r.Match.Window, len(p), from, to)
	}
}

// The phones of iOS 15 and 16 have panels of 60 Hz, that of iOS 26 one of 120 Hz, and its files come by the file service.
func TestARunIsPulledCheckedAndMatchedWithEveryFrameOfTheWindowPaired(t *testing.T) {
	l := startLab27(t, "15.8", "16.7", "26.0")
	permille, purpose, frames := "100", "rehearsal", 700
	if long() {
		permille, purpose, frames = "1000", "study", 7000
	}
	root := t.TempDir()
	var all sync.WaitGroup
	for i, udid := range l.udids {
		via := []string{"afc", "afc", "fileservice"}[i]
		dir := filepath.Join(root, udid)
		all.Go(func() {
			e := command(t, "lab27", "run", "--udid", udid, "--purpose", purpose, "--permille", permille, "--via", via, "-o", dir, "--json")
			if e.code != exitOK {
				t.Errorf("%s: exit code %d\n%s%s", udid, e.code, e.stdout, e.stderr)
				return
			}
			r := lastResult(t, e)
			if !r.Match.Qualified || r.State != "complete" || r.Evidence != "E2" || r.Bundle.State != "complete" || !r.Bundle.Tail.Happened ||
				!strings.Contains(r.Match.Meaning, "it is not an optical measurement") {
				t.Errorf("%s: %+v", udid, r)
			}
			for _, phase := range []string{"baseline", "normal", "tail", "recovery"} {
				if !strings.Contains(e.stdout, `"phase":"`+phase+`"`) {
					t.Errorf("%s: no word of %s", udid, phase)
				}
			}
			everyFramePaired(t, r, frames)
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	// Each step by itself says the same, and the sealed session stays as it was.
	dir := filepath.Join(root, l.udids[2])
	must(t, "replay", dir, "--check")
	if e := must(t, "lab27", "check", dir); !strings.Contains(e.stdout, "bundle   complete (finished)") {
		t.Errorf("check: %s", e.stdout)
	}
	again := filepath.Join(t.TempDir(), "again")
	must(t, "lab27", "match", dir, "-o", again)
	for _, name := range []string{"match.json", "match.jsonl"} {
		was, _ := os.ReadFile(filepath.Join(dir, "lab27", name))
		is, err := os.ReadFile(filepath.Join(again, name))
		if err != nil || !bytes.Equal(was, is) {
			t.Errorf("%s is not what it was in the session: %v", name, err)
		}
	}
	runs := strings.Fields(must(t, "lab27", "pull", "--udid", l.udids[2]).stdout)
	if len(runs) != 1 {
		t.Fatalf("runs on the phone: %q", runs)
	}
	pulled := filepath.Join(t.TempDir(), "pulled")
	must(t, "lab27", "pull", runs[0], "--udid", l.udids[2], "-o", pulled, "--via", "fileservice")
	if e := command(t, "lab27", "match", dir, "--bundle", pulled, "-o", filepath.Join(t.TempDir(), "m")); e.code != exitOK {
		t.Errorf("match of a pulled bundle: %d\n%s", e.code, e.stderr)
	}
	if e := command(t, "lab27", "match", filepath.Join(root, l.udids[0]), "--bundle", pulled, "-o", filepath.Join(t.TempDir(), "m")); e.code != exitMismatch || !strings.Contains(e.stderr, "missing-frame") {
		t.Errorf("match with another phone's session: %d\n%s", e.code, e.stderr)
	}
}

func TestEachDisturbanceOfARunIsCountedAndKept(t *testing.T) {
	type outcome struct {
		code    int
		bundle  string
		reasons string // that must be among the verdict's; "" for a run that is qualified all the same
		count   string // of the verdict
		want    int
	}
	micros := func(n int) sim.Fault { return sim.Fault{Delay: sim.Duration(time.Duration(n) * time.Microsecond)} }
	cases := []struct {
		name         string
		before       string // a fault before the run begins
		during       string // and one a second after
		fault        sim.Fault
		outcome      outcome
		wholeSession bool // the session is complete, whatever became of the run
	}{
		{"nothing", "", "", sim.Fault{}, outcome{exitOK, "complete", "", "extraSystemFrame", 0}, true},
		{"system frames", "", "lab27-system-frame", sim.Fault{Count: 2}, outcome{exitMismatch, "complete", "extra-system-frame", "extraSystemFrame", 2}, true},
		{"a dropped drawable", "", "lab27-drop", sim.Fault{}, outcome{exitMismatch, "complete", "not-presented", "notPresented", 1}, true},
		{"late drawables", "", "lab27-late", sim.Fault{Count: 3}, outcome{exitOK, "complete", "", "missingFrame", 0}, true},
		{"a handler that never comes", "", "lab27-lose", sim.Fault{}, outcome{exitPartial, "partial", "extra-system-frame", "extraSystemFrame", 1}, true},
		{"a contradicting surface", "", "lab27-surface", sim.Fault{}, outcome{exitMismatch, "complete", "surface-mismatch", "surfaceMismatch", 1}, true},
		{"an offset of 0.3 ms", "lab27-shift", "", micros(300), outcome{exitMismatch, "complete", "missing-frame", "paired", 0}, true},
		{"a pair cut by the edge", "lab27-shift", "", micros(100), outcome{exitMismatch, "complete", "edge-cut", "edgeCutFrames", 1}, true},
		{"a bracket of 0.11 ms", "lab27-bracket", "", micros(110), outcome{exitMismatch, "complete", "bracket-too-wide", "missingFrame", 0}, true},
		{"sleep between the brackets", "", "scene", sim.Fault{Step: "{event: sleep, for: 500ms}"}, outcome{exitMismatch, "complete", "brackets-disagree", "edgeCutFrames", 0}, true},
		{"a second display", "", "scene", sim.Fault{Step: "{event: display2, on: true}"}, outcome{exitOK, "complete", "", "missingFrame", 0}, true},
		{"payloads lost on the way", "", "lose", sim.Fault{}, outcome{exitMismatch, "complete", "session-gap", "notPresented", 0}, true},
		{"heat", "", "lab27-hot", sim.Fault{}, outcome{exitPartial, "partial", "bundle-partial", "missingFrame", 0}, true},
		{"the background", "", "background", sim.Fault{}, outcome{exitPartial, "partial", "bundle-partial", "extraSystemFrame", 0}, true},
		{"a cancel on the phone", "", "lab27-cancel", sim.Fault{}, outcome{exitPartial, "partial", "bundle-partial", "missingFrame", 0}, true},
	}
	releases := make([]string, len(cases))
	for i := range releases {
		releases[i] = []string{"16.7", "26.0"}[i%2]
		if cases[i].name == "a contradicting surface" {
			releases[i] = "16.7" // iOS 26 tells none
		}
	}
	l := startLab27(t, releases...)
	root := t.TempDir()
	var all sync.WaitGroup
	for i, c := range cases {
		udid, dir := l.udids[i], filepath.Join(root, fmt.Sprint(i))
		all.Go(func() {
			if c.before != "" {
				l.do(udid, c.before, c.fault)
			}
			if c.during != "" {
				all.Go(func() {
					l.consumed(udid)
					time.Sleep(time.Second)
					l.do(udid, c.during, c.fault)
				})
			}
			e := command(t, "lab27", "run", "--udid", udid, "--purpose", "rehearsal", "--permille", "40", "-o", dir, "--json")
			r := lastResult(t, e)
			if r.Match == nil || r.Bundle == nil {
				t.Errorf("%s: exit code %d, %+v\n%s", c.name, e.code, r, e.stderr)
				return
			}
			if e.code != c.outcome.code || r.Bundle.State != c.outcome.bundle || r.Match.Qualified != (c.outcome.reasons == "") || !strings.Contains(r.reasons(), c.outcome.reasons) ||
				(r.State == "complete") != c.wholeSession {
				t.Errorf("%s: exit code %d, session %s, bundle %s (%s), reasons %q\n%s", c.name, e.code, r.State, r.Bundle.State, r.Bundle.Reason, r.reasons(), e.stderr)
			}
			counts := r.Match.Counts
			if counts[c.outcome.count] != c.outcome.want {
				t.Errorf("%s: %s is %d, want %d; %v", c.name, c.outcome.count, counts[c.outcome.count], c.outcome.want, counts)
			}
			// No frame and no presentation falls out of the sums.
			if counts["framesInside"] != counts["paired"]+counts["surfaceMismatch"]+counts["extraSystemFrame"]+counts["ambiguousFrames"]+counts["edgeCutFrames"] ||
				counts["presentedInside"] != counts["paired"]+counts["surfaceMismatch"]+counts["missingFrame"]+counts["ambiguousPresented"]+counts["edgeCutPresented"] {
				t.Errorf("%s: the counts do not add up: %v", c.name, counts)
			}
			if c.name == "a second display" && counts["otherDisplay"] < 60 {
				t.Errorf("%s: %d frames of it are counted", c.name, counts["otherDisplay"])
			}
		})
	}
	all.Wait()
}

func TestWhatKeepsARunFromStartingIsNamedWithItsRemedy(t *testing.T) {
	l := startLab27(t, "16.7", "16.7", "16.7", "16.7")
	without := sim.DefaultDevice("00008101-00000000000000FF", "16.7")
	root := t.TempDir()
	var all sync.WaitGroup
	run := func(udid, fault string, f sim.Fault, code int, words ...string) {
		all.Go(func() {
			if fault != "" {
				l.do(udid, fault, f)
			}
			e := command(t, "lab27", "run", "--udid", udid, "--purpose", "rehearsal", "--permille", "20", "-o", filepath.Join(root, udid))
			for _, word := range words {
				if e.code != code || !strings.Contains(e.stderr, word) {
					t.Errorf("%s: exit code %d, want %d and %q in\n%s", fault, e.code, code, word, e.stderr)
				}
			}
		})
	}
	run(l.udids[0], "lab27-second", sim.Fault{}, exitDevice, "two-pending", "send one at a time")
	run(l.udids[1], "lab27-ahead", sim.Fault{Delay: sim.Duration(11 * time.Minute)}, exitDevice, "expired", "set the phone's clock")
	run(l.udids[2], "lab27-hot", sim.Fault{}, exitDevice, "thermal", "let the phone cool down")
	run(without.UDID, "", sim.Fault{}, exitDevice, "is not attached")
	all.Wait()
	// Each refusal leaves a session that says so, without a bundle.
	if e := must(t, "summary", filepath.Join(root, l.udids[0])); !strings.Contains(e.stdout, "partial") || !strings.Contains(e.stdout, "two-pending") {
		t.Errorf("summary: %s", e.stdout)
	}
	if _, err := os.Stat(filepath.Join(root, l.udids[0], "lab27")); !os.IsNotExist(err) {
		t.Errorf("a bundle of a run that was refused: %v", err)
	}

	// A request that nobody took stands in the way of the next, and a nonce runs once.
	udid := l.udids[3]
	sent := must(t, "lab27", "request", "--udid", udid, "--purpose", "rehearsal", "--permille", "20").stdout
	if e := command(t, "lab27", "request", "--udid", udid); e.code != exitDevice || !strings.Contains(e.stderr, "another request is pending") {
		t.Errorf("a second request: %d %s", e.code, e.stderr)
	}
	if e := command(t, "lab27", "run", "--udid", udid, "-o", filepath.Join(root, "waiting")); e.code != exitDevice || !strings.Contains(e.stderr, "launch the app to have it run or refused") {
		t.Errorf("a run beside a request: %d %s", e.code, e.stderr)
	}
	l.do(udid, "launch", sim.Fault{Bundle: lab27Bundle})
	l.consumed(udid)
	var request struct{ RunName string }
	if err := json.Unmarshal([]byte(sent), &request); err != nil {
		t.Fatal(err)
	}
	if e := command(t, "lab27", "run", "--udid", udid, "--name", request.RunName, "-o", filepath.Join(root, "again")); e.code != exitDevice || !strings.Contains(e.stderr, "run name was used") {
		t.Errorf("a used name: %d %s", e.code, e.stderr)
	}
	// It is there before the run is over, and whole afterwards.
	dir := filepath.Join(root, "pulled")
	if e := command(t, "lab27", "pull", request.RunName, "--udid", udid, "-o", dir); e.code != exitPartial || !strings.Contains(e.stderr, "is not sealed") {
		t.Errorf("pull of a run under way: %d %s", e.code, e.stderr)
	}
	time.Sleep(4 * time.Second)
	must(t, "lab27", "pull", request.RunName, "--udid", udid, "-o", dir)
	// The same command again finds all of it, and goes on where it was interrupted.
	if e := must(t, "lab27", "pull", request.RunName, "--udid", udid, "-o", dir); !strings.Contains(e.stdout, "summary.json") {
		t.Errorf("pull once more: %s", e.stdout)
	}
	sealed, err := os.ReadFile(filepath.Join(dir, "summary.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"presented.jsonl", "summary.json"} {
		if err := os.Rename(filepath.Join(dir, name), filepath.Join(dir, name+".part")); err != nil {
			t.Fatal(err)
		}
	}
	if e := command(t, "lab27", "check", dir); e.code != exitPartial || !strings.Contains(e.stdout, "nothing tells how many were presented") {
		t.Errorf("check of an interrupted pull: %d %s", e.code, e.stdout)
	}
	var bundle map[string]any
	if err := json.Unmarshal([]byte(command(t, "lab27", "check", dir, "--json").stdout), &bundle); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"presented", "dropped", "outstanding", "tail"} {
		if value, told := bundle[name]; !told || value != nil {
			t.Errorf("%s of a bundle without a summary: %v", name, value)
		}
	}
	must(t, "lab27", "pull", request.RunName, "--udid", udid, "-o", dir)
	if text, err := os.ReadFile(filepath.Join(dir, "summary.json")); err != nil || !bytes.Equal(text, sealed) {
		t.Errorf("pull after an interruption: %v", err)
	}
	// A session is no bundle, and nothing is left where none was matched.
	t.Chdir(t.TempDir())
	for _, args := range [][]string{{"lab27", "check"}, {"lab27", "match"}} {
		if e := command(t, append(args, filepath.Join(root, l.udids[0]))...); e.code != exitUsage || !strings.Contains(e.stderr, "neither a bundle of Lab27 nor a session with one") {
			t.Errorf("%s of a session without a bundle: %d %s", args[1], e.code, e.stderr)
		}
	}
	if left, err := os.ReadDir("."); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	asked := filepath.Join(root, "request.json")
	if err := os.WriteFile(asked, []byte(sent), 0o644); err != nil {
		t.Fatal(err)
	}
	must(t, "lab27", "check", dir, "--request", asked)
}

// interrupted starts a run and interrupts it when what is waited for has come.
func interrupted(t *testing.T, wait func(), args ...string) ended {
	t.Helper()
	cmd := exec.Command(binary, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	wait()
	cmd.Process.Signal(os.Interrupt)
	cmd.Wait()
	return ended{code: cmd.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String()}
}

func TestCtrlCCancelsTheRunOnThePhoneTooAndKeepsWhatThereIs(t *testing.T) {
	l := startLab27(t, "16.7", "26.0")
	root := t.TempDir()
	var all sync.WaitGroup
	all.Go(func() {
		udid, dir := l.udids[0], filepath.Join(root, "under-way")
		e := interrupted(t, func() { l.consumed(udid); time.Sleep(2 * time.Second) },
			"lab27", "run", "--udid", udid, "--purpose", "rehearsal", "--permille", "200", "-o", dir, "--json")
		r := lastResult(t, e)
		if e.code != exitPartial || r.State != "partial" || r.Reason != "interrupted" || r.Bundle == nil || r.Bundle.State != "partial" || r.Bundle.Reason != "cancelled" ||
			!strings.Contains(e.stderr, "with what there is of the run") {
			t.Errorf("exit code %d, %+v\n%s", e.code, r, e.stderr)
		}
		// All that was shown is there and paired; only that it is not the whole run keeps it from qualifying.
		if r.Match == nil || r.reasons() != "bundle-partial" || r.Match.Counts["paired"] < 50 {
			t.Errorf("%+v", r.Match)
		}
	})
	all.Go(func() {
		udid, dir := l.udids[1], filepath.Join(root, "before")
		pending := func() {
			for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
				if names, _ := os.ReadDir(filepath.Join(l.documents(udid), "pending")); len(names) > 0 {
					return
				}
			}
			t.Error("no request comes")
		}
		e := interrupted(t, pending, "lab27", "run", "--udid", udid, "--purpose", "rehearsal", "--permille", "200", "-o", dir, "--json")
		r := lastResult(t, e)
		if e.code != exitPartial || r.Reason != "interrupted" {
			t.Errorf("exit code %d, %+v\n%s", e.code, r, e.stderr)
		}
		// Either it was taken back in time, or what had begun was cancelled: in neither case does anything run now.
		time.Sleep(2 * time.Second)
		names, _ := os.ReadDir(filepath.Join(l.documents(udid), "runs"))
		if withdrawn := r.Bundle == nil; withdrawn != (len(names) == 0) || !withdrawn && r.Bundle.Reason != "cancelled" {
			t.Errorf("%d runs on the phone, %+v", len(names), r.Bundle)
		}
	})
	all.Wait()
}

func TestACableThatIsPulledDuringARunLeavesItsLogToBeFetchedAndItsMatchUnqualified(t *testing.T) {
	l := startLab27(t, "16.7")
	udid, dir := l.udids[0], filepath.Join(t.TempDir(), "run")
	var all sync.WaitGroup
	all.Go(func() {
		l.consumed(udid)
		time.Sleep(1500 * time.Millisecond)
		l.do(udid, "disconnect", sim.Fault{For: sim.Duration(1500 * time.Millisecond)})
	})
	e := command(t, "lab27", "run", "--udid", udid, "--purpose", "rehearsal", "--permille", "60", "-o", dir, "--json")
	all.Wait()
	r := lastResult(t, e)
	if e.code != exitMismatch || r.Bundle == nil || r.Bundle.State != "complete" || !strings.Contains(r.reasons(), "missing-frame") || !strings.Contains(r.reasons(), "session-gap") {
		t.Errorf("exit code %d, %+v\n%s", e.code, r, e.stderr)
	}
}

// runOf is the name of a session's run.
func runOf(t *testing.T, session string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(session, "lab27", "plan.json"))
	if err != nil {
		t.Fatal(err)
	}
	var plan struct{ Request struct{ RunName string } }
	if err := json.Unmarshal(text, &plan); err != nil {
		t.Fatal(err)
	}
	return plan.Request.RunName
}

func TestCostAndStudyOfRuns(t *testing.T) {
	l := startLab27(t, "16.7", "16.7")
	root := t.TempDir()
	off, on := filepath.Join(root, "off"), filepath.Join(root, "on")
	another := filepath.Join(root, "another") // another phone's
	run := func(udid, purpose, dir string) {
		e := command(t, "lab27", "run", "--udid", udid, "--purpose", purpose, "--permille", "30", "-o", dir, "--json")
		if r := lastResult(t, e); e.code != exitOK || (r.Match == nil) != (dir == off) {
			t.Errorf("%s: exit code %d, %+v\n%s", dir, e.code, r, e.stderr)
		}
	}
	var all sync.WaitGroup
	all.Go(func() {
		run(l.udids[0], "cost-off", off)
		run(l.udids[0], "cost-on", on)
	})
	all.Go(func() { run(l.udids[1], "cost-on", another) })
	all.Wait()
	if t.Failed() {
		return
	}
	var verdict struct {
		Pass, Rehearsal, Simulated bool
		SamePhone                  *bool
		Gates                      []struct {
			Name string
			Pass bool
		}
	}
	if err := json.Unmarshal([]byte(must(t, "lab27", "cost", off, on, "--json").stdout), &verdict); err != nil || !verdict.Pass || !verdict.Rehearsal || !verdict.Simulated ||
		verdict.SamePhone == nil || !*verdict.SamePhone || len(verdict.Gates) != 12 {
		t.Errorf("%v, %+v", err, verdict)
	}
	if e := command(t, "lab27", "cost", off, another); e.code != exitMismatch || !strings.Contains(e.stdout, "FAIL  same-phone") {
		t.Errorf("of two phones: %d\n%s", e.code, e.stdout)
	}
	if e := must(t, "lab27", "cost", off, filepath.Join(another, "lab27")); !strings.Contains(e.stdout, "same phone is not known") || !strings.Contains(e.stdout, "simulated") {
		t.Errorf("of a bundle: %s", e.stdout)
	}
	if e := command(t, "lab27", "cost", on, off); e.code != exitMismatch || !strings.Contains(e.stdout, "FAIL  purposes") {
		t.Errorf("the wrong way round: %d\n%s", e.code, e.stdout)
	}

	data := os.Getenv("FRAMEBRIDGE_DATA")
	if data == "" {
		data = "../../../shared/data"
	}
	args := []string{"lab27", "study", on, "--json"}
	surfaces := filepath.Join(data, "xctrace", "displayed-surfaces-interval.xml")
	_, err := os.Stat(surfaces)
	if err == nil {
		args = append(args, "--surfaces", on+"="+surfaces)
	}
	var study struct {
		Meaning string
		Runs    []struct {
			Session string
			Match   struct {
				Qualified, Simulated bool
				SessionID, Evidence  string
			}
			Candidates []struct {
				Name      string
				Intervals int
			}
		}
	}
	if err := json.Unmarshal([]byte(must(t, args...).stdout), &study); err != nil || len(study.Runs) != 1 || !study.Runs[0].Match.Qualified || !study.Runs[0].Match.Simulated || study.Runs[0].Match.Evidence != "E2" ||
		len(study.Runs[0].Match.SessionID) != 36 || study.Runs[0].Session != "on" || study.Meaning == "" {
		t.Errorf("%v, %+v", err, study)
	}
	if err == nil && (len(study.Runs[0].Candidates) != 1 || study.Runs[0].Candidates[0].Name != "displayed-surfaces-interval, Display 1" || study.Runs[0].Candidates[0].Intervals != 12) {
		t.Errorf("candidates %+v", study.Runs[0].Candidates) // the real export has 12 rows of one display
	}
	page := filepath.Join(root, "study.md")
	must(t, "lab27", "study", on, "-o", page)
	if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), "| qualified |") || !strings.Contains(string(text), "it is not an optical measurement") {
		t.Errorf("%v\n%s", err, text)
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"a request of any length":              {[]string{"lab27", "check", on, "--request", "/dev/zero"}, "expected at most 4096 bytes"},
		"a pull to a file":                     {[]string{"lab27", "pull", runOf(t, on), "--udid", l.udids[0], "-o", page}, "give a directory"},
		"a pull below a file":                  {[]string{"lab27", "pull", runOf(t, on), "--udid", l.udids[0], "-o", filepath.Join(page, "x")}, "give a directory"},
		"a study of a session without a match": {[]string{"lab27", "study", off}, "no match to tabulate"},
		"a report that is there":               {[]string{"lab27", "study", on, "-o", page}, "give another name"},
		"a report into a session":              {[]string{"lab27", "study", on, "-o", filepath.Join(on, "study.md")}, "is a session's directory"},
		"a match into a session":               {[]string{"lab27", "match", on, "-o", filepath.Join(on, "lab27", "m")}, "is a session's directory"},
		"a match where something is":           {[]string{"lab27", "match", on, "-o", root}, "give another name"},
		"a pull into a session":                {[]string{"lab27", "pull", "x", "-o", filepath.Join(on, "lab27")}, "is a session's directory"},
		"surfaces of no run":                   {[]string{"lab27", "study", on, "--surfaces", "x=y"}, "one of the runs"},
		"no bundle":                            {[]string{"lab27", "check", root}, "neither a bundle"},
		"an unknown service":                   {[]string{"lab27", "pull", "--via", "ftp"}, "fileservice"},
		"an unknown purpose":                   {[]string{"lab27", "request", "--purpose", "fun"}, "cost-off"},
		"a formal run that is scaled":          {[]string{"lab27", "run", "--purpose", "formal", "--permille", "10"}, "whole recipe"},
		"a run that is not there":              {[]string{"lab27", "pull", "nope", "--udid", l.udids[0]}, "there are: cost-off-"},
		"a bad request":                        {[]string{"lab27", "check", on, "--request", page}, "study.md"},
	} {
		if e := command(t, c.args...); e.code != exitUsage || !strings.Contains(e.stderr, c.want) || strings.Count(strings.TrimSpace(e.stderr), "\n") > 0 {
			t.Errorf("%s: exit code %d, %q; want 2 and one line with %q", name, e.code, e.stderr, c.want)
		}
	}
	// A verdict that was altered in a sealed session is not tabulated.
	verdictFile := filepath.Join(another, "lab27", "match.json")
	if text, err := os.ReadFile(verdictFile); err != nil || os.WriteFile(verdictFile, bytes.Replace(text, []byte("cost-on-"), []byte("cost-up-"), 1), 0o644) != nil {
		t.Fatal(err)
	}
	if e := command(t, "lab27", "study", another); e.code != exitUsage || !strings.Contains(e.stderr, "framebridge verify") {
		t.Errorf("study of an altered verdict: %d %s", e.code, e.stderr)
	}
	written := filepath.Join(root, "request.json")
	must(t, "lab27", "request", "-o", written, "--purpose", "rehearsal", "--permille", "10")
	if e := command(t, "lab27", "check", on, "--request", written); e.code != exitMismatch || !strings.Contains(e.stderr, "is not the run that was asked for") {
		t.Errorf("check against another request: %d %s", e.code, e.stderr)
	}
	if !slices.Contains(strings.Fields(must(t, "lab27", "--help").stdout), "optical") {
		t.Error("the help does not say what a match is worth")
	}
}
