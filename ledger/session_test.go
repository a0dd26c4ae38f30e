package ledger

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if role := os.Getenv("LEDGER_TEST_CHILD"); role != "" {
		runChild(role)
		return
	}
	goleak.VerifyTestMain(m)
}

func connected(hostNs int64) *Event {
	return &Event{HostNs: hostNs, Value: &SourceState{"connected", "test"}}
}

func mustAppend(t *testing.T, s *Session, e *Event) {
	t.Helper()
	if err := s.Append(e); err != nil {
		t.Fatal(err)
	}
}

func mustCreate(t *testing.T, d disk, dir string, keepWire bool) *Session {
	t.Helper()
	s, err := create(d, dir, 1000, testStart(), keepWire)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// startLine is what mustCreate writes.
var startLine = string(AppendLine(nil, &lines()[0].event))

const wantManifest = `{
 "schema": "framebridge.session-manifest/1",
 "name": "first",
 "sessionId": "5f0cb2a8-31d7-4f0e-9c9a-0b6a0a4c7d11",
 "state": "complete",
 "reason": "duration reached",
 "evidence": "E2",
 "tool": {
  "name": "framebridge",
  "version": "v0.1.0"
 },
 "counts": {
  "clock.bridge": 0,
  "display.frame-contributors": 0,
  "display.frame-lifetime.raw": 0,
  "p95.publication": 0,
  "session.end": 1,
  "session.start": 1,
  "source.gap": 0,
  "source.state": 1,
  "target.bind": 0,
  "target.state": 0
 },
 "rejectedLines": 0,
 "files": [
  {
   "name": "events.jsonl",
   "size": 842,
   "sha256": "81fe1937b2ca466dc6c1cceebdcdbf5c4fc64a53bbc9928c1fa812e48ffde390"
  },
  {
   "name": "lab27/match.json",
   "size": 3,
   "sha256": "ca3d163bab055381827226140568f3bef7eaac187cebd76878e0b63e9e442356"
  },
  {
   "name": "wire.bin",
   "size": 15,
   "sha256": "79a5a8dbb3c6154b6b82620d1ee1c23510ec6da68d0dd827eae9d571b1f2ad13"
  }
 ]
}
`

func TestSealedSessionHoldsItsLinesAndSaysWhatTheyAre(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "parents", "s")
	s := mustCreate(t, osDisk{}, dir, true)
	mustAppend(t, s, connected(5))
	if err := s.AppendWire(6, []byte("abc")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "lab27"), 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "lab27", "match.json"), []byte("{}\n"))
	m, err := s.Seal(2000, StateComplete, "duration reached", map[string]int64{"categoryTwins": 3}, false)
	if err != nil {
		t.Fatal(err)
	}
	end := `{"seq":3,"hostNs":2000,"type":"session.end","state":"complete","reason":"duration reached","counts":{"session.start":1,"target.bind":0,` +
		`"target.state":0,"clock.bridge":0,"display.frame-lifetime.raw":0,"display.frame-contributors":0,"source.gap":0,"source.state":1,` +
		`"p95.publication":0,"session.end":1},"extra":{"categoryTwins":3}}` + "\n"
	if got, want := readFile(t, filepath.Join(dir, EventsName)), startLine+stateLine(2)+end; got != want {
		t.Errorf("events.jsonl holds\n%s want\n%s", got, want)
	}
	if got, want := readFile(t, filepath.Join(dir, WireName)), "\x03\x00\x00\x00\x06\x00\x00\x00\x00\x00\x00\x00abc"; got != want {
		t.Errorf("wire.bin holds %q, want %q", got, want)
	}
	if got := readFile(t, filepath.Join(dir, ManifestName)); got != wantManifest {
		t.Errorf("manifest.json holds\n%s want\n%s", got, wantManifest)
	}
	for _, name := range []string{EventsName, WireName, ManifestName, "lab27/match.json"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != 0o444 {
			t.Errorf("%s: mode %v, %v; want read-only", name, info.Mode(), err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 4 {
		t.Errorf("the directory holds %v (%v), want the log, the wire, the manifest and lab27", entries, err)
	}
	if got, found, err := VerifySession(t.Context(), dir, nil); err != nil || len(found) != 0 || got.Files[0].SHA256 != m.Files[0].SHA256 {
		t.Errorf("verify: %v, %v", found, err)
	}

	if err := s.Append(connected(6)); !errors.Is(err, ErrSealed) {
		t.Errorf("append after the seal: %v, want ErrSealed", err)
	}
	if _, err := Recover(dir, Tool{}, 1); !errors.Is(err, ErrSealed) {
		t.Errorf("recover after the seal: %v, want ErrSealed", err)
	}
	if _, err := Create(dir, 1, testStart(), false); !errors.Is(err, ErrExists) {
		t.Errorf("create over a session: %v, want ErrExists", err)
	}
}

func TestLinesReachTheDiskOnlyWithASync(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	s := mustCreate(t, osDisk{}, dir, false)
	defer s.Seal(9, StatePartial, "test", nil, false)
	for i := range int64(3) {
		mustAppend(t, s, connected(i))
	}
	if got := readFile(t, filepath.Join(dir, EventsName)); got != startLine {
		t.Errorf("before the sync the disk holds %q", got)
	}
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	if got := readFile(t, filepath.Join(dir, EventsName)); strings.Count(got, "\n") != 4 {
		t.Errorf("after the sync the disk holds %q", got)
	}
}

func TestSyncIsDueAtEveryStateChangeAndTwiceASecond(t *testing.T) {
	s := mustCreate(t, osDisk{}, filepath.Join(t.TempDir(), "s"), true)
	defer s.Seal(9, StatePartial, "test", nil, false)
	const ms = 1_000_000
	due := func(nowMs int64, want bool, why string) {
		t.Helper()
		if got := s.SyncDue(nowMs * ms); got != want {
			t.Errorf("at %d ms %s: due %v, want %v", nowMs, why, got, want)
		}
		if want {
			if err := s.Sync(); err != nil {
				t.Fatal(err)
			}
		}
	}
	due(10_000, false, "with nothing pending")
	mustAppend(t, s, &Event{HostNs: 1, Value: &SourceGap{}})
	due(10_001, true, "with a line after a long silence")
	mustAppend(t, s, &Event{HostNs: 1, Value: &SourceGap{}})
	due(10_500, false, "499 ms after the last")
	due(10_501, true, "500 ms after the last")
	due(11_100, false, "with nothing pending")
	if err := s.AppendWire(1, nil); err != nil {
		t.Fatal(err)
	}
	due(11_101, true, "with wire alone pending")
	mustAppend(t, s, &Event{HostNs: 1, Value: &TargetState{true, "launch"}})
	due(11_102, true, "with a state change pending")
}

func TestAppendingGoesOnWhileTheDiskIsSlow(t *testing.T) {
	slow, release := make(chan struct{}), make(chan struct{})
	var armed atomic.Bool
	d := &faultDisk{onSync: func() {
		if armed.CompareAndSwap(true, false) {
			close(slow)
			<-release
		}
	}}
	s := mustCreate(t, d, filepath.Join(t.TempDir(), "s"), false)
	mustAppend(t, s, connected(1))
	armed.Store(true)
	synced := make(chan error)
	go func() { synced <- s.Sync() }()
	<-slow
	for i := range int64(1000) { // would never end if it waited for the disk
		mustAppend(t, s, connected(i))
	}
	close(release)
	if err := <-synced; err != nil {
		t.Fatal(err)
	}
	m, err := s.Seal(9, StateComplete, "test", nil, false)
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Counts[TypeSourceState]; got != 1001 {
		t.Errorf("%d lines, want 1001", got)
	}
}

func TestTooMuchPendingIsWrittenAndNotDropped(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	s := mustCreate(t, osDisk{}, dir, true)
	payload := bytes.Repeat([]byte{7}, 1<<20)
	for i := range int64(40) {
		if err := s.AppendWire(i, payload); err != nil {
			t.Fatal(err)
		}
		if pending := len(s.wire); pending > maxPendingBytes {
			t.Fatalf("%d bytes are pending, want at most %d", pending, maxPendingBytes)
		}
	}
	m, err := s.Seal(9, StateComplete, "test", nil, false)
	if err != nil {
		t.Fatal(err)
	}
	if want := int64(40 * (12 + 1<<20)); m.Files[1].Size != want {
		t.Errorf("wire.bin has %d bytes, want %d", m.Files[1].Size, want)
	}
}

func TestCompressedSessionReadsAsItsTwin(t *testing.T) {
	var text [2]string
	var seq [2]string
	for i, compress := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "s")
		s := mustCreate(t, osDisk{}, dir, false)
		for n := range int64(5000) {
			mustAppend(t, s, &Event{Value: testRecord(n, n)})
		}
		m, err := s.Seal(9000, StateComplete, "test", nil, compress)
		if err != nil {
			t.Fatal(err)
		}
		if _, found, err := VerifySession(t.Context(), dir, nil); err != nil || len(found) != 0 {
			t.Errorf("verify: %v, %v", found, err)
		}
		log, err := OpenLog(dir)
		if err != nil {
			t.Fatal(err)
		}
		seq[i] = told(t, log.Reader)
		if err := log.Close(); err != nil {
			t.Error(err)
		}
		f := m.Files[0]
		if !compress {
			text[0] = fmt.Sprint(f.Name, f.Size, f.SHA256)
			continue
		}
		if f.Name != CompressedName || f.Inside == nil || f.Size*4 > f.Inside.Size {
			t.Fatalf("the manifest names %+v", f)
		}
		text[1] = fmt.Sprint(f.Inside.Name, f.Inside.Size, f.Inside.SHA256)
		packed := sha256.Sum256([]byte(readFile(t, filepath.Join(dir, CompressedName))))
		if got := hex.EncodeToString(packed[:]); got != f.SHA256 {
			t.Errorf("manifest says %s, the file has %s", f.SHA256, got)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
			t.Errorf("the directory holds %v (%v), want the compressed log and the manifest", entries, err)
		}
	}
	if text[0] != text[1] || seq[0] != seq[1] {
		t.Errorf("twins differ: %s and %s", text[0], text[1])
	}
}

func TestLogStaysAsItIsWhereItsCompressedCopyDoesNotReadBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	s := mustCreate(t, &faultDisk{spoil: CompressedName + ".tmp"}, dir, false)
	m, err := s.Seal(9, StateComplete, "test", nil, true)
	if !errors.Is(err, errNotCompressed) || m == nil || m.State != StateComplete {
		t.Errorf("sealed %+v with %v, want a complete session that is not compressed", m, err)
	}
	checkSealed(t, dir)
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 || entries[0].Name() != EventsName {
		t.Errorf("the directory holds %v (%v), want the log and the manifest", entries, err)
	}
}

// stubbornDisk keeps the mode of every file, as a mount of another owner's does.
type stubbornDisk struct{ osDisk }

func (stubbornDisk) makeReadOnly(path string) error {
	return &os.PathError{Op: "chmod", Path: path, Err: syscall.EPERM}
}

func TestFileSystemThatKeepsModesDoesNotFailTheSealing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	s := mustCreate(t, stubbornDisk{}, dir, false)
	m, err := s.Seal(9, StateComplete, "test", nil, false)
	if err != nil || m == nil || m.State != StateComplete {
		t.Errorf("sealed %+v with %v, want a complete session", m, err)
	}
	if _, err := recoverSession(stubbornDisk{}, dir, Tool{}, 1); !errors.Is(err, ErrSealed) {
		t.Errorf("recover: %v, want ErrSealed", err)
	}
	checkSealed(t, dir)
}

func TestReasonThatIsLongAndNoUTF8CanBeSealed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	s := mustCreate(t, osDisk{}, dir, false)
	m, err := s.Seal(9, StatePartial, "open \xff\xfe: \u2028 "+strings.Repeat("x", 2<<20), nil, false)
	if err != nil || !strings.HasPrefix(m.Reason, "open \uFFFD: \u2028 xxx") {
		t.Errorf("sealed with reason %.20q, %v", m.Reason, err)
	}
	checkSealed(t, dir)
}

func TestVerifyNamesWhateverWasChanged(t *testing.T) {
	dir := filepath.Join(memoryDir(t), "s")
	s := mustCreate(t, osDisk{}, dir, true)
	if err := s.AppendWire(6, []byte("abc")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Seal(2000, StateComplete, "test", nil, false); err != nil {
		t.Fatal(err)
	}
	verify := func(why, where, what string) {
		t.Helper()
		_, found, err := VerifySession(t.Context(), dir, nil)
		if err != nil || len(found) != 1 || found[0].Where != where || !strings.Contains(found[0].What, what) {
			t.Errorf("%s: found %v (%v), want %s: … %s", why, found, err, where, what)
		}
	}
	for _, name := range []string{EventsName, WireName, ManifestName} {
		path := filepath.Join(dir, name)
		whole := []byte(readFile(t, path))
		restore := func() {
			if err := os.Chmod(path, 0o644); err != nil {
				t.Fatal(err)
			}
			writeFile(t, path, whole)
		}
		tool := bytes.Index(whole, []byte(`"tool"`)) // which program sealed it stands nowhere else: only an entry in the ledger protects that
		for i := range whole {
			if tool >= 0 && i > tool && i < tool+60 {
				continue
			}
			changed := bytes.Clone(whole)
			changed[i] ^= 1
			restore()
			writeFile(t, path, changed)
			_, found, err := VerifySession(t.Context(), dir, nil)
			if err != nil || len(found) == 0 {
				t.Errorf("%s: byte %d changed from %q: found %v (%v)", name, i, whole[i], found, err)
			}
		}
		if name != ManifestName {
			writeFile(t, path, whole[:len(whole)-1])
			verify("cut", name, fmt.Sprintf("expected %d bytes, found %d", len(whole), len(whole)-1))
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			verify("removed", name, "not there")
			writeFile(t, path, whole)
		}
		restore()
	}
	writeFile(t, filepath.Join(dir, "more"), nil)
	verify("added", "more", "does not name it")
}

func TestVerifyingASessionEndsWhenItIsNotWantedAnyMore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	s := mustCreate(t, osDisk{}, dir, false)
	for n := int64(1); n <= 2000; n++ { // 2 MB, read in 256 KiB each time
		mustAppend(t, s, &Event{Value: testRecord(n, n)})
	}
	if _, err := s.Seal(2001, StateComplete, "", nil, false); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	read := int64(0)
	m, found, err := VerifySession(ctx, dir, func(bytes int64) {
		read += bytes
		cancel()
	})
	if !errors.Is(err, context.Canceled) || m != nil || found != nil || read > 256<<10 {
		t.Errorf("%v, %v, %v after %d bytes, want %v after the first", m, found, err, read, context.Canceled)
	}
}

func TestCountsThatTheLogDoesNotHaveAreFound(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	s := mustCreate(t, osDisk{}, dir, false)
	if _, err := s.Seal(2000, StateComplete, "test", nil, false); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, ManifestName)
	forged := strings.Replace(readFile(t, path), `"target.bind": 0`, `"target.bind": 7`, 1)
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, []byte(forged))
	_, found, err := VerifySession(t.Context(), dir, nil)
	if want := `manifest.json: it says "target.bind": 7, and the log "target.bind": 0`; err != nil || len(found) != 1 || found[0].String() != want {
		t.Errorf("found %v (%v), want %s", found, err, want)
	}
}

func TestSecondRecorderIsToldWhoHoldsTheSessionAndSinceWhen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	child := startChild(t, "record", dir)
	child.waitFor(t, "synced")
	_, err := Recover(dir, Tool{}, 1)
	var held *HeldError
	if !errors.As(err, &held) || held.PID != child.cmd.Process.Pid || held.SinceWallNs != 1780000000000000000 {
		t.Fatalf("found %v, want the child's pid %d", err, child.cmd.Process.Pid)
	}
	if want := fmt.Sprintf("held by pid %d, since 2026-05-28T20:26:40Z", child.cmd.Process.Pid); !strings.Contains(err.Error(), want) {
		t.Errorf("said %q, want %q in it", err, want)
	}
	if h, err := Holder(dir); err != nil || h == nil || h.PID != held.PID {
		t.Errorf("Holder: %v, %v", h, err)
	}
	child.kill(t)
	if h, err := Holder(dir); err != nil || h != nil {
		t.Errorf("Holder after the kill: %v, %v; want nobody", h, err)
	}
	if m, err := Recover(dir, Tool{}, 1); err != nil || m.State != StatePartial {
		t.Errorf("recover after the kill: %+v, %v", m, err)
	}
	if h, err := Holder(dir); err != nil || h != nil {
		t.Errorf("Holder of a sealed session: %v, %v; want nobody", h, err)
	}
}

func TestKilledSessionKeepsEveryWholeLineAndSaysWhereTheTornOneBegan(t *testing.T) {
	for _, c := range []struct {
		name, tail string
		wire       string
	}{
		{"nothing torn", "", ""},
		{"torn line", `{"seq":3,"hostNs":5,"type":"sour`, ""},
		{"whole but for its newline", strings.TrimSuffix(stateLine(3), "\n"), ""},
		{"torn payload", "", "\x09\x00\x00\x00\x06\x00\x00\x00\x00\x00\x00\x00abc"},
		{"both", "{", "\x09"},
	} {
		dir := filepath.Join(t.TempDir(), "s")
		s := mustCreate(t, osDisk{}, dir, true)
		mustAppend(t, s, connected(5))
		if err := s.AppendWire(6, []byte("abc")); err != nil {
			t.Fatal(err)
		}
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.closeFiles(), s.lock.release()); err != nil { // as a kill does
			t.Fatal(err)
		}
		appendTo(t, filepath.Join(dir, EventsName), c.tail)
		appendTo(t, filepath.Join(dir, WireName), c.wire)

		m, err := Recover(dir, Tool{"framebridge", "v0.2.0"}, 1)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		reason := "the recording process ended without sealing"
		if c.tail != "" {
			// Two whole lines: session.start has 435 bytes, the state 78.
			reason += "; a torn last line at byte 513 of events.jsonl, kept in events.torn"
		}
		end := `{"seq":3,"hostNs":5,"type":"session.end","state":"partial","reason":"` + reason + `","counts":{"session.start":1,"target.bind":0,` +
			`"target.state":0,"clock.bridge":0,"display.frame-lifetime.raw":0,"display.frame-contributors":0,"source.gap":0,"source.state":1,` +
			`"p95.publication":0,"session.end":1},"extra":{}}` + "\n"
		if got, want := readFile(t, filepath.Join(dir, EventsName)), startLine+stateLine(2)+end; got != want {
			t.Errorf("%s: events.jsonl holds\n%s want\n%s", c.name, got, want)
		}
		if m.State != StatePartial || m.Reason != reason || m.Tool.Version != "v0.2.0" {
			t.Errorf("%s: manifest %+v", c.name, m)
		}
		if got := m.TornEvent != nil; got != (c.tail != "") || got && *m.TornEvent != 513 {
			t.Errorf("%s: tornEventAt %v", c.name, m.TornEvent)
		}
		if c.tail != "" {
			if got := readFile(t, filepath.Join(dir, "events.torn")); got != c.tail {
				t.Errorf("%s: events.torn holds %q, want %q", c.name, got, c.tail)
			}
		}
		if got := m.TornWire != nil; got != (c.wire != "") || got && *m.TornWire != 15 {
			t.Errorf("%s: tornWireAt %v", c.name, m.TornWire)
		}
		if got := readFile(t, filepath.Join(dir, WireName)); !strings.HasSuffix(got, "abc"+c.wire) {
			t.Errorf("%s: wire.bin holds %q", c.name, got)
		}
		if _, found, err := VerifySession(t.Context(), dir, nil); err != nil || len(found) != 0 {
			t.Errorf("%s: verify: %v, %v", c.name, found, err)
		}
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestDirectoryWithoutASessionIsNotRecovered(t *testing.T) {
	empty := t.TempDir()
	if _, err := Recover(empty, Tool{}, 1); !errors.Is(err, ErrNothingRecorded) {
		t.Errorf("an empty directory: %v, want ErrNothingRecorded", err)
	}
	if entries, err := os.ReadDir(empty); err != nil || len(entries) != 0 {
		t.Errorf("it was changed: %v, %v", entries, err)
	}
	torn := t.TempDir()
	writeFile(t, filepath.Join(torn, EventsName), []byte(startLine[:100]))
	if _, err := Recover(torn, Tool{}, 1); !errors.Is(err, ErrNothingRecorded) {
		t.Errorf("a torn session.start: %v, want ErrNothingRecorded", err)
	}
	if got := readFile(t, filepath.Join(torn, EventsName)); got != startLine[:100] {
		t.Errorf("it was changed: %q", got)
	}
}

func TestVanishedDirectoryEndsTheRecordingWithAClearError(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "s")
	s := mustCreate(t, osDisk{}, dir, false)
	mustAppend(t, s, connected(5))
	if err := os.Rename(dir, filepath.Join(parent, "moved")); err != nil {
		t.Fatal(err)
	}
	if err := s.Sync(); !errors.Is(err, ErrVanished) {
		t.Errorf("sync: %v, want ErrVanished", err)
	}
	if err := s.Append(connected(6)); !errors.Is(err, ErrVanished) {
		t.Errorf("append: %v, want ErrVanished", err)
	}
	if m, err := s.Seal(9, StateComplete, "test", nil, false); m != nil || !errors.Is(err, ErrVanished) {
		t.Errorf("seal: %v, %v; want ErrVanished", m, err)
	}
	m, err := Recover(filepath.Join(parent, "moved"), Tool{}, 1)
	if err != nil || m.Counts[TypeSourceState] != 1 {
		t.Errorf("recover where it was moved to: %+v, %v", m, err)
	}
}

func TestRootIsTheFlagThenTheEnvironmentThenTheHome(t *testing.T) {
	for _, c := range []struct{ flag, env, home, want string }{
		{"/f", "/e", "/h", "/f"},
		{"", "/e", "/h", "/e"},
		{"", "", "/h", "/h/.local/share/framebridge"},
	} {
		if got, err := Root(c.flag, c.env, c.home); err != nil || got != c.want {
			t.Errorf("Root(%q, %q, %q) is %q, %v; want %q", c.flag, c.env, c.home, got, err, c.want)
		}
	}
	if _, err := Root("", "", ""); !errors.Is(err, ErrNoRoot) {
		t.Errorf("found %v, want ErrNoRoot", err)
	}
}

func TestSessionNames(t *testing.T) {
	for _, name := range []string{"a", "A-1_b.c", "20261129T213805.123Z-00008110", strings.Repeat("x", 200)} {
		if err := CheckName(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", ".", "..", "-o", ".hidden", "a/b", "a b", "ä", "a\x00", strings.Repeat("x", 201)} {
		if err := CheckName(name); err == nil {
			t.Errorf("%q was accepted", name)
		}
	}
	wall := time.Date(2026, 11, 29, 22, 38, 5, 123_999_999, time.FixedZone("", 3600))
	for udid, want := range map[string]string{
		"00008110-000A1B2C3D4E5F60": "20261129T213805.123Z-00008110", "": "20261129T213805.123Z", "../../x": "20261129T213805.123Z-x",
	} {
		if got := DefaultName(wall, udid); got != want || CheckName(got) != nil {
			t.Errorf("DefaultName of %q is %q, want %q", udid, got, want)
		}
	}
}

func FuzzParseManifest(f *testing.F) {
	f.Add([]byte(wantManifest))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := ParseManifest(text)
		if err != nil {
			return
		}
		if again, err := m.encode(); err != nil || !bytes.Equal(again, text) {
			t.Fatalf("accepted, and written again as %s (%v)", again, err)
		}
	})
}

// child is this test binary run again as a process that can be killed.
type child struct {
	cmd   *exec.Cmd
	lines chan string
}

func startChild(t *testing.T, role string, args ...string) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), "LEDGER_TEST_CHILD="+role)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: cmd, lines: make(chan string, 1<<20)}
	go func() {
		defer close(c.lines)
		scanLines(out, c.lines)
	}()
	t.Cleanup(func() { c.cmd.Process.Kill() })
	return c
}

func (c *child) waitFor(t *testing.T, prefix string) string {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		select {
		case line, ok := <-c.lines:
			if !ok {
				t.Fatalf("the child ended before it said %q", prefix)
			}
			if strings.HasPrefix(line, prefix) {
				return line
			}
		case <-deadline:
			t.Fatalf("the child did not say %q", prefix)
		}
	}
}

// kill kills the process as kill -9 does, and returns what it had said and nobody read.
func (c *child) kill(t *testing.T) (said []string) {
	t.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for line := range c.lines {
		said = append(said, line)
	}
	c.cmd.Wait() // it says that it was killed
	return said
}
