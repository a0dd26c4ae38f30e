package main

import (
	"bufio"
	"bytes"
	"context"
	encoding "encoding/binary" // binary is the program under test
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/internal/capture"
	"github.com/framebridge/framebridge/internal/sim"
	"github.com/framebridge/framebridge/internal/sim/scene"
	"github.com/framebridge/framebridge/internal/sim/tapenc"
	"github.com/framebridge/framebridge/ledger"
	"github.com/framebridge/framebridge/p95"
)

// buildOracle puts the oracle beside the program under test.
var buildOracle = sync.OnceValue(func() error {
	out, err := exec.Command("go", "build", "-o", filepath.Join(filepath.Dir(binary), oracleName), "../p95oracle").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
})

// verifies expects that a session verifies, and returns what was found out.
func verifies(t *testing.T, dir string) verification {
	t.Helper()
	if err := buildOracle(); err != nil {
		t.Fatal(err)
	}
	var v verification
	e := must(t, "verify", dir, "--json")
	if err := json.Unmarshal([]byte(e.stdout), &v); err != nil {
		t.Fatal(err)
	}
	if !v.OK || v.Oracle.Records == 0 || v.Oracle.Publications == 0 || v.Oracle.Compared < v.Oracle.Records*10 {
		t.Errorf("verify says ok and compared too little: %+v", v)
	}
	return v
}

func TestVerifyOfADemoSaysWhatIsProvedAndWhatIsNot(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "demo")
	must(t, "demo", "--duration", "4s", "-o", dir)
	v := verifies(t, dir)
	if v.Hashes.Files != 2 || v.State != "complete" || v.Evidence != "E2" || v.Replay.Publications != v.Oracle.Publications || len(v.Oracle.TakenAsGiven) < 20 {
		t.Errorf("%+v", v)
	}
	e := must(t, "verify", dir)
	for _, word := range []string{"hashes     ok", "oracle     ok", "replay     ok", "\nproved ", "\nnot proved ", "not physical truth", "only the hashes protect",
		"surfaceId", "processes[].pid", "evidence E2"} {
		if !strings.Contains(e.stdout, word) {
			t.Errorf("verify's words lack %q:\n%s", word, e.stdout)
		}
	}
	if lines := strings.Count(e.stdout, "\n"); lines > 30 {
		t.Errorf("%d lines are more than a screen", lines)
	}
	t.Run("flipped digits", func(t *testing.T) { everyFlipFails(t, dir) })
	t.Run("trouble", func(t *testing.T) { verifyTrouble(t, dir) })
}

// copySession copies a session's files so that they can be changed.
func copySession(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{ledger.EventsName, ledger.CompressedName, ledger.ManifestName} {
		if err := os.Chmod(filepath.Join(to, name), 0o644); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	return to
}

// everyFlipFails flips digits anywhere in the log, and in fields that the oracle computes: those have to be named.
func everyFlipFails(t *testing.T, dir string) {
	dir = copySession(t, dir)
	path := filepath.Join(dir, ledger.EventsName)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	flip := func(i int) (e ended, line int) {
		was := text[i]
		text[i] = '0' + (was-'0'+1)%10
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
		text[i] = was
		return command(t, "verify", dir), 1 + bytes.Count(text[:i], []byte("\n"))
	}
	for _, c := range []struct{ key, named string }{
		{`"valueMs":`, "valueMs"}, {`"windowLeftNs":`, "windowLeftNs"}, {`"rank":`, "rank"}, {`"ageLowerBoundNs":`, "clockBridge.ageLowerBoundNs"},
		{`"fps":`, "other.fps"}, {`"endMach":`, "payload.presentationNs"}, {`"previousMach":`, "payload.frameTimeMs"}, {`"lifetimeMs":`, "payload.lifetimeMs"},
	} {
		at := bytes.LastIndex(text, []byte(c.key))
		if at < 0 {
			t.Fatalf("no %s", c.key)
		}
		e, line := flip(at + len(c.key))
		if want := fmt.Sprintf("line %d ", line); e.code != exitMismatch || !strings.Contains(e.stdout, want) || !strings.Contains(e.stdout, c.named+": found") {
			t.Errorf("%s flipped in line %d: exit code %d\n%s%s", c.key, line, e.code, e.stdout, e.stderr)
		}
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		i := rng.IntN(len(text))
		for text[i] < '0' || text[i] > '9' {
			i = rng.IntN(len(text))
		}
		if e, line := flip(i); e.code != exitMismatch || !strings.Contains(e.stdout, "hashes     NOT") {
			t.Errorf("byte %d, line %d: exit code %d\n%s%s", i, line, e.code, e.stdout, e.stderr)
		}
	}
}

func verifyTrouble(t *testing.T, dir string) {
	expect := func(what string, e ended, code int, words ...string) {
		t.Helper()
		if e.code != code {
			t.Errorf("%s: exit code %d, want %d\n%s%s", what, e.code, code, e.stdout, e.stderr)
		}
		for _, word := range words {
			if !strings.Contains(e.stdout+e.stderr, word) {
				t.Errorf("%s: no %q in\n%s%s", what, word, e.stdout, e.stderr)
			}
		}
	}
	unsealed := copySession(t, dir)
	os.Remove(filepath.Join(unsealed, ledger.ManifestName))
	expect("unsealed", command(t, "verify", unsealed), exitUsage, "not sealed", "framebridge recover "+unsealed)
	expect("nothing there", command(t, "verify", t.TempDir()), exitUsage, "is no session")
	expect("no such oracle", command(t, "verify", dir, "--oracle", "/nonexistent/p95oracle"), exitUsage, "--oracle")
	expect("another program", command(t, "verify", dir, "--oracle", "true"), exitUsage, "expected one JSON object")
	expect("a program that fails", command(t, "verify", dir, "--oracle", "false"), exitUsage, "expected one JSON object")

	replaced := copySession(t, dir)
	if err := os.WriteFile(filepath.Join(replaced, "notes.txt"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	expect("a file more", command(t, "verify", replaced), exitMismatch, "notes.txt: the manifest does not name it", "oracle     ok")

	killed := copySession(t, dir)
	write(t, filepath.Join(killed, "lock"), "")
	expect("a sealing that was killed at its end", command(t, "verify", killed), exitOK, "hashes     ok", "\nleftover   lock: an interrupted sealing left it", "no byte of the session has changed")

	// What a damaged log is, the hashes say also where nothing else can read it.
	cut := copySession(t, dir)
	if err := os.Truncate(filepath.Join(cut, ledger.EventsName), 0); err != nil {
		t.Fatal(err)
	}
	expect("an empty log", command(t, "verify", cut), exitMismatch, "events.jsonl: expected ", " bytes, found 0", "unfinished ", "did not get to their end")
	if err := os.Remove(filepath.Join(cut, ledger.EventsName)); err != nil {
		t.Fatal(err)
	}
	expect("no log", command(t, "verify", cut), exitMismatch, "events.jsonl: the manifest names it, and it is not there", "unfinished open event log")
	if err := os.Symlink(filepath.Join(dir, ledger.EventsName), filepath.Join(cut, ledger.EventsName)); err != nil {
		t.Fatal(err)
	}
	expect("a log elsewhere", command(t, "verify", cut), exitMismatch, "events.jsonl: expected files and directories only, found a symbolic link")

	// The program alone, without its oracle anywhere.
	alone := filepath.Join(t.TempDir(), "framebridge")
	program, err := os.ReadFile(binary)
	if err == nil {
		err = os.WriteFile(alone, program, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(alone, "verify", dir)
	cmd.Env = append(os.Environ(), "PATH=/nonexistent")
	out, _ := cmd.CombinedOutput()
	expect("no oracle", ended{code: cmd.ProcessState.ExitCode(), stderr: string(out)}, exitDevice, "./scripts/build", "--oracle")

	// Whoever works with go run has no built oracle, and needs none.
	cmd = exec.Command("go", "run", ".", "verify", dir)
	cmd.Env = append(os.Environ(), "PATH="+withoutOracle())
	if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("oracle     ok")) {
		t.Errorf("go run: %v\n%s", err, out)
	}
}

// withoutOracle is PATH without directories that have an oracle.
func withoutOracle() string {
	var dirs []string
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if _, err := os.Stat(filepath.Join(dir, oracleName)); err != nil {
			dirs = append(dirs, dir)
		}
	}
	return strings.Join(dirs, string(filepath.ListSeparator))
}

func TestVerifyOfTheRealRecording(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "S")
	must(t, "import", "xctrace", realRecording(t), "-o", dir)
	if v := verifies(t, dir); v.Oracle.Records != 13 || v.Oracle.Publications != 1 {
		t.Errorf("%+v", v)
	}
}

// disturbance is a fault and how long to wait after it.
type disturbance struct {
	sim.Fault
	pause time.Duration
	short bool // in short tests too
}

// everyFault is what a lab can do to a phone while it is recorded, by cable and through a tunnel. Those that a recording feels only when
// it connects again stand before a disconnection.
var (
	instruments = "com.apple.instruments.server.services.deviceinfo"
	everyFault  = []disturbance{
		{sim.Fault{Kind: "torn", For: sim.Duration(2 * time.Second)}, 2500 * time.Millisecond, true},
		{sim.Fault{Kind: "lose", Count: 1}, 1500 * time.Millisecond, true},
		{sim.Fault{Kind: "duplicate", Count: 1}, 1500 * time.Millisecond, true},
		{sim.Fault{Kind: "corrupt", Count: 1}, 2 * time.Second, true},
		{sim.Fault{Kind: "scene", Step: "{for: 1s, hz: 60, jank: {every: 5, delay: 60ms}}"}, time.Second, true},
		{sim.Fault{Kind: "background"}, time.Second, true},
		{sim.Fault{Kind: "foreground"}, time.Second, true},
		{sim.Fault{Kind: "relaunch"}, 1500 * time.Millisecond, true},
		{sim.Fault{Kind: "terminate"}, time.Second, false},
		{sim.Fault{Kind: "launch"}, 1500 * time.Millisecond, false},
		{sim.Fault{Kind: "stall", For: sim.Duration(1500 * time.Millisecond)}, 3 * time.Second, false},
		{sim.Fault{Kind: "slow", Service: instruments, Delay: sim.Duration(300 * time.Millisecond), For: sim.Duration(6 * time.Second)}, time.Second, false},
		{sim.Fault{Kind: "scene", Step: "{event: display2, on: true, hz: 60}"}, time.Second, false},
		{sim.Fault{Kind: "scene", Step: "{for: 2s, idle: true}"}, 3 * time.Second, false},
		{sim.Fault{Kind: "image-missing"}, 0, false},
		{sim.Fault{Kind: "disconnect", For: sim.Duration(time.Second)}, 2500 * time.Millisecond, true},
		{sim.Fault{Kind: "image-mounted"}, 3 * time.Second, false},
		{sim.Fault{Kind: "developer-mode-off"}, 0, false},
		{sim.Fault{Kind: "refuse-session", For: sim.Duration(2 * time.Second)}, 0, false},
		{sim.Fault{Kind: "disconnect"}, time.Second, false},
		{sim.Fault{Kind: "connect"}, time.Second, false},
		{sim.Fault{Kind: "developer-mode-on"}, 5 * time.Second, false},
		{sim.Fault{Kind: "hang", Service: instruments, For: sim.Duration(2 * time.Second)}, 4 * time.Second, false},
		{sim.Fault{Kind: "wifi"}, time.Second, false},
		{sim.Fault{Kind: "cable"}, time.Second, false},
		{sim.Fault{Kind: "lock"}, time.Second, false},
		{sim.Fault{Kind: "unlock"}, time.Second, false},
		{sim.Fault{Kind: "clear"}, 0, false},
		{sim.Fault{Kind: "reboot", For: sim.Duration(2 * time.Second)}, 8 * time.Second, true},
		{sim.Fault{Kind: "unpair"}, 0, false},
		{sim.Fault{Kind: "trust"}, time.Second, false},
	}
	everyTunnelFault = []disturbance{
		{sim.Fault{Kind: "tunnel-restart"}, 4 * time.Second, false},
		{sim.Fault{Kind: "half-open", For: sim.Duration(2 * time.Second)}, 6 * time.Second, false},
		{sim.Fault{Kind: "rsd-refuse", For: sim.Duration(2 * time.Second)}, 0, false},
		{sim.Fault{Kind: "service-missing", Service: "com.apple.instruments.dtservicehub", For: sim.Duration(3 * time.Second)}, 0, false},
		{sim.Fault{Kind: "agent-garbage", For: sim.Duration(4 * time.Second)}, 0, false},
		{sim.Fault{Kind: "tunnel-gone", For: sim.Duration(time.Second)}, 8 * time.Second, false},
	}
)

func TestVerifyOfRecordingsWithEveryFault(t *testing.T) {
	tried := map[string]bool{}
	for _, d := range append(everyFault, everyTunnelFault...) {
		tried[d.Kind] = true
	}
	for line := range strings.Lines(sim.FaultHelp()) {
		// The faults of Lab27 runs disturb that app's own log, or what a qualification makes of it.
		if kind := strings.Fields(line)[0]; !tried[kind] && !strings.HasPrefix(kind, "lab27-") {
			t.Errorf("the fault %s is not tried", kind)
		}
	}
	t.Run("cable", func(t *testing.T) {
		lab, udids := startLab(t, "[{for: 1h, hz: 60}]", "16.7")
		recordDisturbed(t, lab, udids[0], everyFault)
	})
	t.Run("tunnel", func(t *testing.T) {
		if !long() {
			t.Skip("in scripts/test-long")
		}
		lab, udids := startLab(t, "[{for: 1h, hz: 120}]", "26.0")
		host, port, err := lab.ListenTunnels("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv("GO_IOS_AGENT_HOST", host)
		t.Setenv("GO_IOS_AGENT_PORT", strconv.Itoa(port))
		recordDisturbed(t, lab, udids[0], everyTunnelFault)
	})
}

// recordDisturbed records a phone while it is disturbed, and verifies the session.
func recordDisturbed(t *testing.T, lab *sim.Lab, udid string, script []disturbance) {
	var total time.Duration
	script = slices.DeleteFunc(slices.Clone(script), func(d disturbance) bool { return !d.short && !long() })
	for _, d := range script {
		total += d.pause
	}
	dir := filepath.Join(t.TempDir(), "faults")
	cmd := exec.Command(binary, "capture", "--udid", udid, "--bundle", "com.example.app", "--no-ledger", "--compress",
		"--duration", (total + 3*time.Second).String(), "-o", dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2500 * time.Millisecond)
	for _, d := range script {
		// The lab waits to see the payload after a lost one; by then the tap may have been set up again. Nobody may be there to trust.
		if ack, err := lab.Apply(context.Background(), udid, d.Fault); err != nil && d.Kind != "lose" && d.Kind != "trust" {
			t.Errorf("%s: %v", d.Kind, err)
		} else {
			t.Logf("%s: %s", d.Kind, ack.Did)
		}
		time.Sleep(d.pause)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("capture: %v\n%s", err, stderr.String())
	}
	v := verifies(t, dir)
	if v.Oracle.Publications < int64(total/time.Second) {
		t.Errorf("%d publications in %v", v.Oracle.Publications, total)
	}
	t.Logf("%d records, %d publications, %d figures; %d faults", v.Oracle.Records, v.Oracle.Publications, v.Oracle.Compared, len(script))

	// What a compressed log says is what its lines say: a changed byte of either is found.
	forged := copySession(t, dir)
	path := filepath.Join(forged, ledger.CompressedName)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)/2] ^= 1
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	if e := command(t, "verify", forged); e.code != exitMismatch && e.code != exitUsage {
		t.Errorf("a compressed log with a changed byte: exit code %d\n%s%s", e.code, e.stdout, e.stderr)
	}
}

// recordLong records so many seconds of 120 Hz through the real decoder, adapter and recorder, as fast as they can.
func recordLong(t *testing.T, dir string, seconds int, compress bool) (records int64) {
	t.Helper()
	const startNs = 90_000_000_000
	spec, err := scene.Parse([]byte("[{for: 10h, hz: 120, jank: {every: 37, delay: 40ms}}]"))
	if err != nil {
		t.Fatal(err)
	}
	release, err := scene.ParseOS("26.0")
	if err != nil {
		t.Fatal(err)
	}
	start := ledger.Start{SessionID: uuid.NewString(), Name: "long", Tool: tool, Evidence: ledger.EvidenceE2, Policy: adapter.PolicyP95,
		Device: ledger.Device{OSVersion: "26.0", Simulated: true}, Clock: ledger.Clock{MonotonicNs: startNs}}
	session, err := ledger.Create(dir, startNs, start, false)
	if err != nil {
		t.Fatal(err)
	}
	rec := capture.NewRecorder(session, adapter.New(adapter.SourceGoIOS, start.SessionID, start.Policy), p95.NewMeter(true), false)
	rec.Bind(startNs, adapter.Binding{Target: adapter.Target{BundleID: "com.example.app", PID: 266, Generation: 1}, SourceEpoch: 1, PrimaryDisplayID: 1,
		Timebase: adapter.Timebase{Numer: 125, Denom: 3}})
	rec.Foreground(startNs, true, "launch")

	read, write := io.Pipe()
	go func() {
		_, err := tapenc.WriteWire(write, io.Discard, tapenc.WireConfig{Spec: spec, OS: release, Duration: time.Duration(seconds) * time.Second, HostNs: startNs + 1})
		write.CloseWithError(err)
	}()
	wire := bufio.NewReaderSize(read, 1<<20)
	dueNs, hostNs := int64(startNs+1_000_000_000), int64(startNs)
	var head [12]byte
	for {
		if _, err := io.ReadFull(wire, head[:]); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		payload := make([]byte, encoding.LittleEndian.Uint32(head[:]))
		if _, err := io.ReadFull(wire, payload); err != nil {
			t.Fatal(err)
		}
		hostNs = int64(encoding.LittleEndian.Uint64(head[4:]))
		for ; hostNs >= dueNs; dueNs += 1_000_000_000 {
			rec.Publish(p95.Of(dueNs), dueNs)
		}
		rec.Payload(hostNs, payload)
	}
	if rec.Err() != nil {
		t.Fatal(rec.Err())
	}
	if _, err := session.Seal(rec.EndNs(hostNs), ledger.StateComplete, "", rec.Extra(), compress); err != nil {
		t.Fatal(err)
	}
	return rec.Totals().Frames
}

func TestVerifyOfACompressedSessionSeesWhatStandsBesideItAndWhereItEnds(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sealed")
	recordLong(t, dir, 3, true)
	if v := verifies(t, dir); v.Oracle.Publications != 3 {
		t.Errorf("%d publications, want 3", v.Oracle.Publications)
	}
	lines, err := ledger.OpenLines(dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(lines)
	if err = errors.Join(err, lines.Close()); err != nil {
		t.Fatal(err)
	}
	forged := filepath.Join(t.TempDir(), "forged.jsonl")
	write(t, forged, strings.Replace(string(text), `"valueMs":8.`, `"valueMs":9.`, 1))
	beside := copySession(t, dir)
	if err := os.Symlink(forged, filepath.Join(beside, ledger.EventsName)); err != nil {
		t.Fatal(err)
	}
	e := command(t, "verify", beside)
	for _, word := range []string{"events.jsonl: expected files and directories only, found a symbolic link", "oracle     ok", "replay     ok"} {
		if e.code != exitMismatch || !strings.Contains(e.stdout, word) {
			t.Errorf("a forged log beside it: exit code %d, want %q in\n%s%s", e.code, word, e.stdout, e.stderr)
		}
	}
	must(t, "replay", beside, "--check")
	if e := command(t, "replay", forged, "--check"); e.code != exitMismatch {
		t.Fatalf("the forged log is not wrong, so that this test shows nothing: exit code %d", e.code)
	}

	cut := copySession(t, dir)
	path := filepath.Join(cut, ledger.CompressedName)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, info.Size()/2); err != nil {
		t.Fatal(err)
	}
	e = command(t, "verify", cut)
	want := fmt.Sprintf("events.jsonl.zst: expected %d bytes, found %d", info.Size(), info.Size()/2)
	if e.code != exitMismatch || !strings.Contains(e.stdout, want) || strings.Contains(e.stdout+e.stderr, "killed") {
		t.Errorf("cut in half: exit code %d, want %q, and nothing of a killed oracle\n%s%s", e.code, want, e.stdout, e.stderr)
	}
}

// measured runs a command to its end and gives its CPU time and the most memory that it held, in MiB; 0 where there is no /proc.
func measured(t *testing.T, args ...string) (cpu time.Duration, peakMiB int64) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	peakKB := watchMemory(cmd.Process.Pid)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%q: %v\n%s", args, err, out.String())
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), <-peakKB >> 10
}

// watchMemory gives the most memory that a process held, in kB, when it has ended; 0 where there is no /proc. What wait tells counts the
// memory of this process too, which it had before it became another.
func watchMemory(pid int) <-chan int64 {
	peak := make(chan int64, 1)
	go func() {
		var most int64
		for {
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			_, rest, ok := bytes.Cut(status, []byte("VmHWM:"))
			if err != nil || !ok { // it has ended
				peak <- most
				return
			}
			var kB int64
			fmt.Sscan(string(rest), &kB)
			most = max(most, kB)
			time.Sleep(5 * time.Millisecond)
		}
	}()
	return peak
}

// An hour at 120 Hz verifies in seconds, in memory that does not grow with the session. In short tests the hour has a minute.
func TestVerifyOfAnHourTakesSecondsAndLittleMemory(t *testing.T) {
	if err := buildOracle(); err != nil {
		t.Fatal(err)
	}
	seconds := 60
	if long() {
		seconds = 3600
	}
	for _, compress := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), fmt.Sprint(compress))
		records := recordLong(t, dir, seconds, compress)
		var out bytes.Buffer
		cmd := exec.Command(binary, "verify", dir, "--json")
		cmd.Stdout, cmd.Stderr = &out, os.Stderr
		began := time.Now()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		peak := watchMemory(cmd.Process.Pid)
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%v\n%s", err, out.Bytes())
		}
		var v verification
		if err := json.Unmarshal(out.Bytes(), &v); err != nil || v.Oracle.Records != records || v.Oracle.Publications != int64(seconds) {
			t.Errorf("%d records and %d publications, want %d and %d (%v)", v.Oracle.Records, v.Oracle.Publications, records, seconds, err)
		}
		cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		mib := <-peak >> 10
		t.Logf("compressed %t: %d records in %.1f s, %.1f s of CPU, %d MiB", compress, records, time.Since(began).Seconds(), cpu.Seconds(), mib)
		if limit := time.Duration(seconds)*10*time.Millisecond + 2*time.Second; cpu > limit { // an idle machine takes a third of it
			t.Errorf("%v of CPU, at most %v are allowed", cpu, limit)
		}
		if mib > 96 {
			t.Errorf("%d MiB of memory, at most 96 are allowed", mib)
		}
	}
}
