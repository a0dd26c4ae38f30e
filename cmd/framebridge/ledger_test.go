package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestSealedSessionsGoIntoTheLedgerAndCanBeProved(t *testing.T) {
	root := t.TempDir()
	t.Setenv("FRAMEBRIDGE_ROOT", root)
	startLab(t, "[{for: 1h, hz: 60}]", "16.7")
	must(t, "ledger", "init")
	must(t, "capture", "--bundle", "com.example.app", "--duration", "2s")
	must(t, "capture", "--bundle", "com.example.app", "--duration", "1s", "--no-ledger")
	if e := must(t, "ledger", "append-note", "first week"); !strings.Contains(e.stdout, "entry 2") {
		t.Errorf("append-note: %s, want entry 2: 0 opens the ledger, 1 is the session", e.stdout)
	}
	if e := must(t, "ledger", "log"); strings.Count(e.stdout, "\n") != 3 || !strings.Contains(e.stdout, "round.session") || !strings.Contains(e.stdout, "E2") {
		t.Errorf("log:\n%s", e.stdout)
	}
	if e := must(t, "ledger", "show", "1"); !strings.Contains(e.stdout, `"path":"sessions/`) || !strings.Contains(e.stdout, `manifest.json"`) {
		t.Errorf("show 1: %s", e.stdout)
	}
	if e := must(t, "ledger", "verify"); !strings.Contains(e.stdout, "3 entries") || !strings.Contains(e.stdout, "--against") {
		t.Errorf("verify: %s", e.stdout)
	}

	kept := filepath.Join(t.TempDir(), "checkpoint")
	write(t, kept, must(t, "ledger", "checkpoint").stdout)
	must(t, "ledger", "append-note", "second week")
	must(t, "ledger", "verify", "--against", kept)

	// The proof is checked where there is neither the ledger nor anything else of this host.
	away := t.TempDir()
	proof, key := filepath.Join(away, "proof"), filepath.Join(away, "key.pub")
	write(t, proof, must(t, "ledger", "prove", "1").stdout)
	public, err := os.ReadFile(filepath.Join(root, "ledger", "key.pub"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, key, string(public))
	t.Setenv("FRAMEBRIDGE_ROOT", away)
	for _, k := range []string{key, strings.TrimSpace(string(public))} {
		if e := must(t, "verify-proof", proof, "--key", k); !strings.Contains(e.stdout, "entry 1 (round.session)") {
			t.Errorf("verify-proof: %s", e.stdout)
		}
	}
	text, _ := os.ReadFile(proof)
	write(t, proof, strings.Replace(string(text), `"state":"complete"`, `"state":"partial"`, 1))
	if e := command(t, "verify-proof", proof, "--key", key); e.code != exitMismatch {
		t.Errorf("a forged proof: exit code %d, %s", e.code, e.stderr)
	}

	// Another ledger made from the same key is no continuation of the checkpoint.
	other := t.TempDir()
	if out, err := exec.Command("cp", "-r", root+"/ledger", other).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	for _, name := range []string{"entries.jsonl", "hashes", "checkpoints"} {
		os.Remove(filepath.Join(other, "ledger", name))
	}
	for range 4 {
		must(t, "ledger", "append-note", "rewritten", "--root", other)
	}
	must(t, "ledger", "verify", "--root", other)
	if e := command(t, "ledger", "verify", "--root", other, "--against", kept); e.code != exitMismatch {
		t.Errorf("a rewritten ledger against the kept checkpoint: exit code %d\n%s%s", e.code, e.stdout, e.stderr)
	}

	// A changed byte of a named session is found and named.
	t.Setenv("FRAMEBRIDGE_ROOT", root)
	events, err := filepath.Glob(filepath.Join(root, "sessions", "*", "events.jsonl"))
	if err != nil || len(events) != 2 {
		t.Fatalf("%v, sessions %v", err, events)
	}
	entry := must(t, "ledger", "show", "1").stdout
	for _, path := range events {
		if !strings.Contains(entry, filepath.Base(filepath.Dir(path))) {
			continue
		}
		log, _ := os.ReadFile(path)
		log = bytes.Replace(log, []byte(`"endMach":1`), []byte(`"endMach":2`), 1)
		log = bytes.Replace(log, []byte(`"endMach":2`), []byte(`"endMach":3`), 1)
		os.Chmod(path, 0o644)
		write(t, path, string(log))
		if e := command(t, "ledger", "verify"); e.code != exitMismatch || !strings.Contains(e.stdout, "events.jsonl") {
			t.Errorf("a changed session: exit code %d\n%s", e.code, e.stdout)
		}
	}
}

func TestKeyFromOutsideSignsWhateverAppends(t *testing.T) {
	root, away := t.TempDir(), t.TempDir()
	t.Setenv("FRAMEBRIDGE_ROOT", root)
	must(t, "ledger", "init")
	key, dir := filepath.Join(away, "key"), filepath.Join(away, "demo")
	must(t, "demo", "--duration", "2s", "-o", dir)
	if err := os.Rename(filepath.Join(root, "ledger", "key"), key); err != nil {
		t.Fatal(err)
	}
	if e := command(t, "recover", dir); e.code != exitFailed || !strings.Contains(e.stderr, "say which file has it with FRAMEBRIDGE_LEDGER_KEY") || !strings.Contains(e.stderr, "framebridge recover "+dir) {
		t.Errorf("without the key: exit code %d, %s", e.code, e.stderr)
	}
	t.Setenv("FRAMEBRIDGE_LEDGER_KEY", filepath.Join(away, "nothing"))
	if e := command(t, "recover", dir); e.code != exitUsage || !strings.Contains(e.stderr, "$FRAMEBRIDGE_LEDGER_KEY: open ") {
		t.Errorf("a file that is not there: exit code %d, %s", e.code, e.stderr)
	}
	t.Setenv("FRAMEBRIDGE_LEDGER_KEY", key)
	must(t, "recover", dir)
	startLab(t, "[{for: 1h, hz: 60}]", "16.7")
	must(t, "capture", "--bundle", "com.example.app", "--duration", "1s")
	must(t, "ledger", "append-note", "signed from outside")
	if e := must(t, "ledger", "verify"); !strings.Contains(e.stdout, "4 entries") {
		t.Errorf("verify: %s, want 4 entries: the opening, the demo, the capture and the note", e.stdout)
	}
	if _, err := os.Stat(filepath.Join(root, "ledger", "key")); err == nil {
		t.Error("the key from outside was kept in the ledger")
	}
}

// pipeWith is a named pipe that tells text once.
func pipeWith(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	go os.WriteFile(path, []byte(text), 0)
	return path
}

func TestAKeyFromAPipeSignsTheSessionOfEveryCommand(t *testing.T) {
	file := realRecording(t)
	root, dir := t.TempDir(), t.TempDir()
	t.Setenv("FRAMEBRIDGE_ROOT", root)
	must(t, "ledger", "init")
	key, err := os.ReadFile(filepath.Join(root, "ledger", "key"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(root, "ledger", "key")); err != nil {
		t.Fatal(err)
	}
	startLab(t, "[{for: 1h, hz: 60}]", "16.7")
	must(t, "demo", "--duration", "1s", "-o", filepath.Join(dir, "demo"))
	for i, args := range [][]string{
		{"capture", "--bundle", "com.example.app", "--duration", "1s", "-o", filepath.Join(dir, "capture")},
		{"import", "xctrace", file, "-o", filepath.Join(dir, "import")},
		{"recover", filepath.Join(dir, "demo")},
	} {
		t.Setenv("FRAMEBRIDGE_LEDGER_KEY", pipeWith(t, string(key)))
		e := command(t, args...)
		if want := fmt.Sprintf("entry %d of the ledger", i+1); e.code != 0 || !strings.Contains(e.stderr, want) {
			t.Errorf("%s: exit code %d, %s; want %s", args[0], e.code, e.stderr, want)
		}
	}
}

func TestSealedSessionThatTheLedgerLacksGetsItsEntryOnce(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "sessions", "demo")
	t.Setenv("FRAMEBRIDGE_ROOT", root)
	must(t, "demo", "--duration", "2s", "-o", dir)
	must(t, "recover", dir, "--no-ledger")
	if e := command(t, "ledger", "log"); e.code != exitUsage {
		t.Fatalf("there is a ledger, so that this test shows nothing: %s", e.stdout)
	}
	if e := must(t, "recover", dir); !strings.Contains(e.stdout, "sealed already") || !strings.Contains(e.stderr, "entry 1 of the ledger") {
		t.Errorf("recover: %s%s", e.stdout, e.stderr)
	}
	if e := must(t, "recover", dir); !strings.Contains(e.stderr, "entry 1 of the ledger in "+filepath.Join(root, "ledger")+" names it already") {
		t.Errorf("recover again: %s%s", e.stdout, e.stderr)
	}
	if e := must(t, "ledger", "log"); strings.Count(e.stdout, "\n") != 2 || !strings.Contains(e.stdout, "round.session") {
		t.Errorf("log:\n%s", e.stdout)
	}
}

func TestWhatIsTooLongForAProofIsNotReadToItsEnd(t *testing.T) {
	root := t.TempDir()
	t.Setenv("FRAMEBRIDGE_ROOT", root)
	must(t, "ledger", "init")
	for _, args := range [][]string{
		{"verify-proof", "/dev/zero", "--key", filepath.Join(root, "ledger", "key.pub")},
		{"verify-proof", "/dev/null", "--key", "/dev/zero"},
		{"ledger", "verify", "--against", "/dev/zero"},
	} {
		if e := command(t, args...); e.code != exitUsage || !strings.Contains(e.stderr, "/dev/zero: expected at most 2097152 bytes") {
			t.Errorf("%s: exit code %d, %s", args, e.code, e.stderr)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
