package ledger

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// mustSeal records and seals a session of one state change. The disk is real, and so is what is done to it.
func mustSeal(t *testing.T, compress bool) (dir string) {
	t.Helper()
	dir = filepath.Join(memoryDir(t), "s")
	s := mustCreate(t, osDisk{}, dir, false)
	mustAppend(t, s, connected(5))
	if _, err := s.Seal(2000, StateComplete, "test", nil, compress); err != nil {
		t.Fatal(err)
	}
	return dir
}

// inTime fails where do has not come back after ten seconds: it waits for somebody to write into a pipe.
func inTime(t *testing.T, what string, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatalf("%s hangs", what)
	}
}

func TestWhatIsNoFileOfASealedSessionIsFound(t *testing.T) {
	forged := filepath.Join(t.TempDir(), "forged.jsonl")
	writeFile(t, forged, []byte(startLine))
	for _, c := range []struct {
		name, where, what string
		put               func(dir string) error
	}{
		{"a link beside the compressed log", "events.jsonl", "expected files and directories only, found a symbolic link",
			func(dir string) error { return os.Symlink(forged, filepath.Join(dir, "events.jsonl")) }},
		{"a link to a directory", "lab27", "found a symbolic link",
			func(dir string) error { return os.Symlink(filepath.Dir(forged), filepath.Join(dir, "lab27")) }},
		{"a pipe", "events.jsonl", "found a named pipe",
			func(dir string) error { return syscall.Mkfifo(filepath.Join(dir, "events.jsonl"), 0o644) }},
		{"the log behind a link", "events.jsonl.zst", "found a symbolic link", func(dir string) error {
			path := filepath.Join(dir, "events.jsonl.zst")
			return errors.Join(os.Rename(path, path+".moved"), os.Symlink(path+".moved", path), os.Rename(path+".moved", dir+".moved"))
		}},
		{"a lock that holds something else", "lock", "`framebridge recover` removes it",
			func(dir string) error { return os.WriteFile(filepath.Join(dir, "lock"), []byte("anything"), 0o644) }},
		{"a lock that holds more than who held it", "lock", "`framebridge recover` removes it", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "lock"), []byte(`{"pid":7,"sinceWallNs":8,"more":"hidden"}`+"\n"), 0o644)
		}},
		{"something behind the lock's line", "lock", "`framebridge recover` removes it", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "lock"), []byte(`{"pid":7,"sinceWallNs":8}`+"\n   hidden"), 0o644)
		}},
		{"another log than the compressed one", "events.jsonl", "the manifest does not name it",
			func(dir string) error {
				return os.WriteFile(filepath.Join(dir, "events.jsonl"), []byte(startLine), 0o644)
			}},
		{"an unfinished manifest", "manifest.json.tmp", "`framebridge recover` removes it",
			func(dir string) error { return os.WriteFile(filepath.Join(dir, "manifest.json.tmp"), nil, 0o644) }},
	} {
		dir := mustSeal(t, true)
		if err := c.put(dir); err != nil {
			t.Fatal(err)
		}
		inTime(t, c.name, func() {
			_, found, err := VerifySession(t.Context(), dir, nil)
			if err != nil || len(found) != 1 || found[0].Where != c.where || !strings.Contains(found[0].What, c.what) {
				t.Errorf("%s: found %v (%v), want %s: … %s", c.name, found, err, c.where, c.what)
			}
		})
	}
}

// What a process leaves that is killed between the manifest and its last step: the lock, and of a log that it compressed the original.
func TestWhatAnInterruptedSealingLeftIsToldAndChangesNothing(t *testing.T) {
	root := t.TempDir()
	dir := SessionDir(root, "s")
	if _, _, err := recordThrough(osDisk{}, dir, true); err != nil {
		t.Fatal(err)
	}
	e, err := SessionEntry(root, dir)
	if err != nil {
		t.Fatal(err)
	}
	w := mustOpen(t, Dir(root))
	if _, err := w.Append(e); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	lines, err := OpenLines(dir)
	if err != nil {
		t.Fatal(err)
	}
	log, err := io.ReadAll(lines)
	if err = errors.Join(err, lines.Close()); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "events.jsonl"), log)
	const what = "an interrupted sealing left it, and what was sealed is as it was; `framebridge recover` removes it"
	for _, lock := range []string{"", `{"pid":7,"sinceWallNs":8}` + "\n", `{"pid":7,"sinceWallNs":8}` + "\n" + strings.Repeat(" ", 1000)} {
		writeFile(t, filepath.Join(dir, "lock"), []byte(lock))
		_, found, err := VerifySession(t.Context(), dir, nil)
		if want := []Finding{{"lock", what, true}, {"events.jsonl", what, true}}; err != nil || !slices.Equal(found, want) {
			t.Errorf("lock %.30q: found %v (%v), want %v", lock, found, err, want)
		}
		r := mustVerify(t, Dir(root), VerifyOptions{})
		if want := []Finding{{"sessions/s/events.jsonl: named by entry 1", what, true}, {"sessions/s/lock: named by entry 1", what, true}}; !r.OK() || !slices.Equal(r.Leftovers, want) {
			t.Errorf("lock %.30q: the ledger finds %v, left %v, want %v", lock, r.Findings, r.Leftovers, want)
		}
	}
	if _, err := Recover(dir, Tool{}, 9); !errors.Is(err, ErrSealed) {
		t.Errorf("recover: %v, want %v", err, ErrSealed)
	}
	checkSealed(t, dir)
}

func TestManifestThatIsNoFileIsNotRead(t *testing.T) {
	dir := mustSeal(t, false)
	path := filepath.Join(dir, ManifestName)
	if err := errors.Join(os.Remove(path), os.Symlink("/dev/zero", path)); err != nil {
		t.Fatal(err)
	}
	const want = "expected a regular file, found a symbolic link"
	if _, found, err := VerifySession(t.Context(), dir, nil); err != nil || len(found) != 1 || !strings.Contains(found[0].What, want) {
		t.Errorf("found %v (%v), want %s", found, err, want)
	}
	inTime(t, "hashing /dev/zero", func() {
		if _, err := NameFile(filepath.Dir(dir), path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("named with %v, want %s", err, want)
		}
	})
}

func TestSealedLogIsReadInTheFormThatItsManifestNames(t *testing.T) {
	for _, compress := range []bool{false, true} {
		dir := mustSeal(t, compress)
		other := map[bool]string{false: CompressedName, true: EventsName}[compress]
		writeFile(t, filepath.Join(dir, other), []byte(startLine))
		log, err := OpenLog(dir)
		if err != nil {
			t.Fatal(err)
		}
		// The sealed log has session.start, source.state and session.end; the file beside it the first of them.
		if got := told(t, log.Reader); got != "1 2 3" {
			t.Errorf("compressed %v: read %s, want 1 2 3", compress, got)
		}
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestSessionWithALinkInItIsNotSealed(t *testing.T) {
	dir := filepath.Join(memoryDir(t), "s")
	s := mustCreate(t, osDisk{}, dir, false)
	link := filepath.Join(dir, "lab27")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	if m, err := s.Seal(2000, StateComplete, "test", nil, false); m != nil || err == nil || !strings.Contains(err.Error(), "lab27: a session holds files and directories only") {
		t.Errorf("sealed %+v with %v, want a refusal that names the link", m, err)
	}
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	if _, err := Recover(dir, Tool{}, 1); err != nil {
		t.Errorf("recover without the link: %v", err)
	}
	checkSealed(t, dir)
}

func TestLockBehindALinkIsNotWrittenTo(t *testing.T) {
	dir := filepath.Join(memoryDir(t), "s")
	s := mustCreate(t, osDisk{}, dir, false)
	if err := errors.Join(s.closeFiles(), s.lock.release()); err != nil {
		t.Fatal(err)
	}
	elsewhere, lock := filepath.Join(t.TempDir(), "elsewhere"), filepath.Join(dir, "lock")
	writeFile(t, elsewhere, []byte("mine"))
	if err := errors.Join(os.Remove(lock), os.Symlink(elsewhere, lock)); err != nil {
		t.Fatal(err)
	}
	if m, err := Recover(dir, Tool{}, 1); err == nil {
		t.Errorf("recovered %+v", m)
	}
	if got := readFile(t, elsewhere); got != "mine" {
		t.Errorf("the file behind the link holds %q", got)
	}
}

func TestSessionReachedThroughALinkIsSealedWithItsFilesAndVerifies(t *testing.T) {
	parent := memoryDir(t)
	dir, link := filepath.Join(parent, "s"), filepath.Join(parent, "link")
	s := mustCreate(t, osDisk{}, dir, false)
	if err := errors.Join(s.closeFiles(), s.lock.release(), os.Symlink("s", link)); err != nil {
		t.Fatal(err)
	}
	m, err := Recover(link, Tool{}, 1)
	if err != nil || len(m.Files) != 1 || m.Files[0].Name != "events.jsonl" {
		t.Errorf("recovered %+v, %v; want events.jsonl in it", m, err)
	}
	checkSealed(t, link)
	checkSealed(t, dir)
}

func TestManifestNamesItsLogInOneForm(t *testing.T) {
	for _, files := range []string{"null", `[
  {
   "name": "wire.bin",
   "size": 15,
   "sha256": "79a5a8dbb3c6154b6b82620d1ee1c23510ec6da68d0dd827eae9d571b1f2ad13"
  }
 ]`, `[
  {
   "name": "events.jsonl",
   "size": 842,
   "sha256": "81fe1937b2ca466dc6c1cceebdcdbf5c4fc64a53bbc9928c1fa812e48ffde390"
  },
  {
   "name": "events.jsonl.zst",
   "size": 15,
   "sha256": "79a5a8dbb3c6154b6b82620d1ee1c23510ec6da68d0dd827eae9d571b1f2ad13"
  }
 ]`} {
		head, _, _ := strings.Cut(wantManifest, `"files": `)
		if _, err := ParseManifest([]byte(head + `"files": ` + files + "\n}\n")); err == nil || !strings.Contains(err.Error(), "expected either events.jsonl or events.jsonl.zst") {
			t.Errorf("files %s: %v, want a refusal", files, err)
		}
	}
}

func TestRecoveryNeverRemovesTheOnlyCopyOfALog(t *testing.T) {
	for _, compress := range []bool{false, true} {
		dir := mustSeal(t, compress)
		named, other := filepath.Join(dir, EventsName), filepath.Join(dir, CompressedName)
		if compress {
			named, other = other, named
		}
		log := readFile(t, filepath.Join(mustSeal(t, !compress), filepath.Base(other)))
		sealed := readFile(t, named)
		// As zstd --rm does, one way or the other.
		writeFile(t, other, []byte(log))
		if err := os.Remove(named); err != nil {
			t.Fatal(err)
		}
		_, err := Recover(dir, Tool{}, 1)
		if err == nil || errors.Is(err, ErrSealed) || !strings.Contains(err.Error(), other+" is not removed") || !strings.Contains(err.Error(), "put that back") {
			t.Errorf("compressed %v: recover without %s: %v, want an error that says what to do", compress, named, err)
		}
		if got := readFile(t, other); got != log {
			t.Errorf("compressed %v: the only copy of the log has %d bytes of %d", compress, len(got), len(log))
		}

		writeFile(t, named, []byte(sealed[:len(sealed)-1]+"x"))
		if _, err := Recover(dir, Tool{}, 1); err == nil || errors.Is(err, ErrSealed) {
			t.Errorf("compressed %v: recover beside a changed log: %v, want an error", compress, err)
		}
		if got := readFile(t, other); got != log {
			t.Errorf("compressed %v: the only whole copy of the log has %d bytes of %d", compress, len(got), len(log))
		}

		// Put back, it is proved to hold the other one, which then goes as after an interrupted sealing.
		writeFile(t, named, []byte(sealed))
		if _, err := Recover(dir, Tool{}, 1); !errors.Is(err, ErrSealed) {
			t.Errorf("compressed %v: recover when it is put back: %v, want ErrSealed", compress, err)
		}
		if _, err := os.Lstat(other); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("compressed %v: %s is still there (%v)", compress, other, err)
		}
		checkSealed(t, dir)
	}
}

func TestLogBesideASealedOneThatHoldsSomethingElseStays(t *testing.T) {
	dir := mustSeal(t, true)
	path := filepath.Join(dir, EventsName)
	writeFile(t, path, []byte(startLine))
	if _, err := Recover(dir, Tool{}, 1); err == nil || errors.Is(err, ErrSealed) || !strings.Contains(err.Error(), "move this one elsewhere") {
		t.Errorf("recover: %v, want an error that says what to do", err)
	}
	if got := readFile(t, path); got != startLine {
		t.Errorf("it holds %q", got)
	}
}

func TestLedgerWhoseFileIsAPipeIsNotRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	makeLedger(t, dir, 2)
	for _, name := range []string{"entries.jsonl", "hashes", "checkpoints", "key.pub", "lock"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.Rename(path, path+".moved"), syscall.Mkfifo(path, 0o644)); err != nil {
			t.Fatal(err)
		}
		inTime(t, name, func() {
			if _, err := Verify(t.Context(), dir, VerifyOptions{}); err == nil || !strings.Contains(err.Error(), name+": expected a regular file, found a named pipe") {
				t.Errorf("%s: %v, want a refusal", name, err)
			}
		})
		if err := os.Rename(path+".moved", path); err != nil {
			t.Fatal(err)
		}
	}
}
