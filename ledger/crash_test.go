package ledger

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// long says that the full sizes of the acceptance tests are wanted; scripts/test-long sets it.
var long = os.Getenv("FRAMEBRIDGE_LONG") != ""

// runChild is the other process of the tests that kill one.
func runChild(role string) {
	var err error
	switch role {
	case "record":
		err = recordForever(os.Args[1])
	case "append":
		err = appendForever(os.Args[1])
	default:
		err = fmt.Errorf("unknown role %q", role)
	}
	fmt.Fprintln(os.Stderr, "child:", err)
	os.Exit(1)
}

// scanLines sends each whole line: one that was torn by the kill was not said.
func scanLines(r io.Reader, to chan<- string) {
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		to <- strings.TrimSuffix(line, "\n")
	}
}

// recordForever records as fast as it can, and says after each sync how many lines are safe.
func recordForever(dir string) error {
	s, err := Create(dir, 1, testStart(), true)
	if err != nil {
		return err
	}
	for n := int64(1); ; n++ {
		if err := s.AppendWire(n, []byte("payload")); err != nil {
			return err
		}
		if err := s.Append(&Event{Value: testRecord(n, n)}); err != nil {
			return err
		}
		if n%7 == 0 {
			if err := s.Sync(); err != nil {
				return err
			}
			fmt.Println("synced", s.Seq())
		}
	}
}

// appendForever appends to a ledger as fast as it can, and says what was acknowledged.
func appendForever(dir string) error {
	w, recovery, err := OpenWriter(dir, testOptions())
	if err != nil {
		return err
	}
	fmt.Println("opened", w.Size(), recovery.RolledForward, len(recovery.SetAside))
	for {
		n, err := w.Append(noteEntry(strings.Repeat("text", int(w.Size()%50))))
		if err != nil {
			return err
		}
		fmt.Println("appended", n)
	}
}

func TestSessionKilledAtAnyMomentKeepsEverySyncedLine(t *testing.T) {
	kills := 15
	if long {
		kills = 250
	}
	tornEvents := 0
	for i := range kills {
		dir := filepath.Join(t.TempDir(), "s")
		c := startChild(t, "record", dir)
		c.waitFor(t, "synced")
		time.Sleep(time.Duration(rand.Int64N(int64(20 * time.Millisecond))))
		said := c.kill(t)
		synced := int64(8)
		for _, line := range said {
			if _, err := fmt.Sscanf(line, "synced %d", &synced); err != nil {
				t.Fatal(err)
			}
		}
		m, err := Recover(dir, Tool{}, 1)
		if err != nil {
			t.Fatalf("kill %d: %v", i, err)
		}
		if m.TornEvent != nil {
			tornEvents++
		}
		if whole := m.Counts[TypeSessionStart] + m.Counts[TypeRawRecord]; whole < synced || m.Rejected != 0 {
			t.Errorf("kill %d: %d whole lines and %d rejected, want the %d that were synced", i, whole, m.Rejected, synced)
		}
		checkSealed(t, dir)
	}
	t.Logf("%d kills, %d of them tore a line", kills, tornEvents)
}

// checkSealed says whether a session is sealed as it should be, whatever happened to it.
func checkSealed(t *testing.T, dir string) {
	t.Helper()
	m, found, err := VerifySession(t.Context(), dir, nil)
	if err != nil || len(found) != 0 {
		t.Errorf("verify: %v, %v", found, err)
		return
	}
	log, err := OpenLog(dir)
	if err != nil {
		t.Error(err)
		return
	}
	defer log.Close()
	var e Event
	for seq := int64(1); ; seq++ {
		err := log.Next(&e)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || e.Seq != seq {
			t.Errorf("line %d: seq %d, %v", seq, e.Seq, err)
			return
		}
	}
	if end, ok := e.Value.(*End); !ok || end.State != m.State {
		t.Errorf("the log ends with %+v, the manifest says %s", e.Value, m.State)
	}
}

// recordThrough records a short session through d: two syncs of ten lines, then the seal.
func recordThrough(d disk, dir string, compress bool) (synced int64, m *Manifest, err error) {
	s, err := create(d, dir, 1, testStart(), true)
	if err != nil {
		return 0, nil, err
	}
	for n := int64(1); n <= 20; n++ {
		if err := errors.Join(s.AppendWire(n, []byte("payload")), s.Append(&Event{Value: testRecord(n, n)})); err != nil {
			break
		}
		if n%10 == 0 && s.Sync() == nil {
			synced = s.Seq()
		}
	}
	m, err = s.Seal(99, StateComplete, "test", nil, compress)
	return synced, m, err
}

func TestWriteErrorAtEveryOperationLosesNoSyncedLine(t *testing.T) {
	for _, compress := range []bool{false, true} {
		count := &faultDisk{}
		if _, _, err := recordThrough(count, filepath.Join(memoryDir(t), "s"), compress); err != nil {
			t.Fatal(err)
		}
		for failAt := range count.done.Load() {
			for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EROFS, syscall.EIO} {
				for _, dead := range []bool{false, true} {
					name := fmt.Sprintf("compress %v, operation %d, %v, dead %v", compress, failAt, errno, dead)
					dir := filepath.Join(memoryDir(t), "s")
					d := &faultDisk{failAt: failAt, err: errno, dead: dead}
					synced, m, err := recordThrough(d, dir, compress)
					switch {
					case err == nil:
						t.Fatalf("%s: nobody noticed", name)
					case errno == syscall.ENOSPC && !errors.Is(err, ErrDiskFull), errno == syscall.EROFS && !errors.Is(err, ErrReadOnly):
						t.Errorf("%s: the error does not say so: %v", name, err)
					}
					if _, unsealed := os.Lstat(filepath.Join(dir, ManifestName)); (m == nil) != (unsealed != nil) {
						t.Errorf("%s: the manifest returned is %+v, and that on disk: %v", name, m, unsealed)
					}
					if m == nil {
						// What could not be sealed then is sealed when the disk is mended, unless nothing was recorded.
						m, err = Recover(dir, Tool{}, 1)
						if errors.Is(err, ErrNothingRecorded) && synced == 0 {
							continue
						}
						if err != nil && !errors.Is(err, ErrSealed) {
							t.Errorf("%s: recover: %v", name, err)
							continue
						}
					} else if _, err := Recover(dir, Tool{}, 1); !errors.Is(err, ErrSealed) {
						t.Errorf("%s: recover a sealed session: %v", name, err)
					}
					if whole := m.Counts[TypeSessionStart] + m.Counts[TypeRawRecord]; whole < synced {
						t.Errorf("%s: %d whole lines, want the %d that were synced", name, whole, synced)
					}
					checkSealed(t, dir)
					if t.Failed() {
						return
					}
				}
			}
		}
	}
}

func TestKillAtEveryOperationOfARecoveryLeavesTheNextOneToFinish(t *testing.T) {
	torn := func() string {
		dir := filepath.Join(t.TempDir(), "s")
		s := mustCreate(t, osDisk{}, dir, true)
		mustAppend(t, s, connected(5))
		if err := errors.Join(s.Sync(), s.closeFiles(), s.lock.release()); err != nil {
			t.Fatal(err)
		}
		appendTo(t, filepath.Join(dir, EventsName), `{"seq":3,"host`)
		return dir
	}
	count := &faultDisk{}
	if _, err := recoverSession(count, torn(), Tool{}, 1); err != nil {
		t.Fatal(err)
	}
	for failAt := range count.done.Load() {
		dir := torn()
		if _, err := recoverSession(&faultDisk{failAt: failAt, err: syscall.EIO, dead: true}, dir, Tool{}, 1); err == nil {
			t.Fatalf("operation %d: nobody noticed", failAt)
		}
		m, err := Recover(dir, Tool{}, 1)
		if err != nil && !errors.Is(err, ErrSealed) {
			t.Fatalf("operation %d: %v", failAt, err)
		}
		if m.TornEvent == nil || *m.TornEvent != 513 || m.Counts[TypeSourceState] != 1 {
			t.Errorf("operation %d: torn at %v, counts %v", failAt, m.TornEvent, m.Counts)
		}
		kept, err := filepath.Glob(filepath.Join(dir, "events.torn*"))
		if err != nil {
			t.Fatal(err)
		}
		whole := false
		for _, path := range kept {
			whole = whole || readFile(t, path) == `{"seq":3,"host`
		}
		if !whole {
			t.Errorf("operation %d: the torn bytes are in none of %v", failAt, kept)
		}
		checkSealed(t, dir)
	}
}

// checkAfterCrash says whether a ledger whose writer died holds every entry that was acknowledged, names nothing worse than an unfinished
// append, and is whole again when it has been opened.
func checkAfterCrash(t *testing.T, name, dir string, acknowledged int64) {
	t.Helper()
	before, err := Verify(t.Context(), dir, VerifyOptions{})
	if errors.Is(err, ErrNoLedger) && acknowledged == 0 {
		return // it had not come so far as to make all three files
	}
	if err != nil {
		t.Errorf("%s: verify: %v", name, err)
		return
	}
	if len(before.Findings) > 0 || before.Entries < acknowledged {
		t.Errorf("%s: %d entries, found %v; want the %d that were acknowledged, and no more than an unfinished append", name, before.Entries, before.Findings, acknowledged)
	}
	w, recovery, err := OpenWriter(dir, testOptions())
	if err != nil {
		t.Errorf("%s: open again: %v", name, err)
		return
	}
	if settled := recovery.RolledForward || len(recovery.SetAside) > 0; settled != (len(before.Unfinished) > 0) {
		t.Errorf("%s: recovery %+v of %v", name, recovery, before.Unfinished)
	}
	n, err := w.Append(noteEntry("after the crash"))
	if err = errors.Join(err, w.Close()); err != nil || n < acknowledged {
		t.Errorf("%s: the next entry is %d (%v), want %d or more", name, n, err, acknowledged)
	}
	if r, err := Verify(t.Context(), dir, VerifyOptions{}); err != nil || !r.OK() || r.Entries != n+1 {
		t.Errorf("%s: verify when it was opened again: %+v, %v", name, r, err)
	}
}

func TestLedgerWriterKilledAtAnyMomentLosesNoAcknowledgedEntry(t *testing.T) {
	kills := 15
	if long {
		kills = 250
	}
	dir := ""
	for i := range kills {
		if i%5 == 0 {
			dir = filepath.Join(t.TempDir(), "ledger")
		}
		c := startChild(t, "append", dir)
		c.waitFor(t, "appended")
		time.Sleep(time.Duration(rand.Int64N(int64(20 * time.Millisecond))))
		said := c.kill(t)
		acknowledged := int64(2)
		for _, line := range said {
			if _, err := fmt.Sscanf(line, "appended %d", &acknowledged); err != nil {
				t.Fatal(err)
			}
			acknowledged++
		}
		checkAfterCrash(t, fmt.Sprint("kill ", i), dir, acknowledged)
	}
}

func TestWriteErrorAtEveryOperationLosesNoAcknowledgedEntry(t *testing.T) {
	appendThrough := func(d disk, dir string) (acknowledged int64, err error) {
		w, _, err := openWriter(d, dir, testOptions())
		if err != nil {
			return 0, err
		}
		for w.err == nil && w.Size() < 5 {
			if n, err := w.Append(noteEntry("text")); err == nil {
				acknowledged = n + 1
			}
		}
		return acknowledged, errors.Join(w.err, w.Close())
	}
	count := &faultDisk{}
	if _, err := appendThrough(count, filepath.Join(memoryDir(t), "ledger")); err != nil {
		t.Fatal(err)
	}
	for failAt := range count.done.Load() {
		for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EROFS, syscall.EIO} {
			for _, dead := range []bool{false, true} {
				name := fmt.Sprintf("operation %d, %v, dead %v", failAt, errno, dead)
				dir := filepath.Join(memoryDir(t), "ledger")
				acknowledged, err := appendThrough(&faultDisk{failAt: failAt, err: errno, dead: dead}, dir)
				switch {
				case err == nil:
					t.Fatalf("%s: nobody noticed", name)
				case errno == syscall.ENOSPC && !errors.Is(err, ErrDiskFull), errno == syscall.EROFS && !errors.Is(err, ErrReadOnly):
					t.Errorf("%s: the error does not say so: %v", name, err)
				}
				checkAfterCrash(t, name, dir, acknowledged)
				if t.Failed() {
					return
				}
			}
		}
	}
}

func TestAppendCutAtEveryByteIsNamedAndThenFinishedOrSetAside(t *testing.T) {
	whole := filepath.Join(memoryDir(t), "ledger")
	makeLedger(t, whole, 7)
	sizes := map[string]int64{}
	for _, name := range ledgerFiles {
		sizes[name] = int64(len(readFile(t, filepath.Join(whole, name))))
	}
	makeLedger(t, whole, 8) // the entry completes a subtree of height 3
	for i, name := range ledgerFiles {
		text := readFile(t, filepath.Join(whole, name))
		step := int64(1)
		if !long {
			step = 7
		}
		for cut := sizes[name]; cut <= int64(len(text)); cut += step {
			for _, zeros := range []int{0, 9} {
				zeros = min(zeros, len(text)-int(cut)) // a loss of power can leave them where bytes were to be written
				dir := copyLedger(t, whole)
				for _, later := range ledgerFiles[i+1:] {
					if err := os.Truncate(filepath.Join(dir, later), sizes[later]); err != nil {
						t.Fatal(err)
					}
				}
				writeFile(t, filepath.Join(dir, name), []byte(text[:cut]+strings.Repeat("\x00", zeros)))
				title := fmt.Sprintf("%s cut at byte %d, %d zeros", name, cut, zeros)
				want := int64(8)
				if name == entriesName && cut < int64(len(text)) {
					want = 7
				}
				r := mustVerify(t, dir, VerifyOptions{})
				complete := name == checkpointsName && cut == int64(len(text)) || name == entriesName && cut == sizes[name] && zeros == 0
				if len(r.Findings) != 0 || (len(r.Unfinished) == 0) != complete || r.Entries < 7 {
					t.Fatalf("%s: verify: %+v", title, r)
				}
				w, recovery, err := OpenWriter(dir, testOptions())
				if err != nil {
					t.Fatalf("%s: %v", title, err)
				}
				if w.Size() != want || recovery.RolledForward != (want == 8 && !complete) {
					t.Errorf("%s: %d entries, want %d; %+v", title, w.Size(), want, recovery)
				}
				if torn := text[sizes[name]:cut] + strings.Repeat("\x00", zeros); name == entriesName && want == 7 && torn != "" {
					if len(recovery.SetAside) != 1 || string(recovery.SetAside[0].Bytes) != torn || recovery.SetAside[0].Offset != sizes[name] ||
						!strings.Contains(readFile(t, filepath.Join(dir, "torn")), `"offset":`+fmt.Sprint(sizes[name])) {
						t.Errorf("%s: set aside %+v, want %q", title, recovery.SetAside, torn)
					}
				}
				if err := w.Close(); err != nil {
					t.Error(err)
				}
				if r := mustVerify(t, dir, VerifyOptions{}); !r.OK() || r.Entries != want {
					t.Errorf("%s: verify when it was opened again: %+v", title, r)
				}
				if want == 8 && readFile(t, filepath.Join(dir, checkpointsName)) != readFile(t, filepath.Join(whole, checkpointsName)) {
					t.Errorf("%s: the checkpoint made again differs from the one that was", title)
				}
				if t.Failed() {
					return
				}
				if err := os.RemoveAll(dir); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

func TestDamageThatNoCrashExplainsIsNotSigned(t *testing.T) {
	whole := filepath.Join(memoryDir(t), "ledger")
	makeLedger(t, whole, 6)
	text := func(name string) string { return readFile(t, filepath.Join(whole, name)) }
	lines := strings.SplitAfter(text(entriesName), "\n")
	e := noteEntry("forged")
	forged := func(n int64) string {
		e.Number = n
		return string(appendEntry(nil, &e)) + "\n"
	}
	points := strings.SplitAfter(text(checkpointsName), "\n")
	cut := strings.Join(points[:25], "") // the last of six is gone
	for _, c := range []struct{ what, name, text string }{
		{"two entries behind the last checkpoint", entriesName, text(entriesName) + forged(6) + forged(7)},
		{"a line that is no entry", entriesName, text(entriesName) + "garbage\n"},
		{"an entry with the wrong number", entriesName, text(entriesName) + forged(7)},
		{"the last entry missing", entriesName, strings.Join(lines[:5], "")},
		{"the last entry changed", entriesName, strings.Join(lines[:5], "") + forged(5)},
		{"hashes behind the tree", hashesName, text(hashesName) + "x"},
		{"a hash missing", hashesName, text(hashesName)[:10*32-1]},
		{"the last hash changed", hashesName, text(hashesName)[:9*32] + strings.Repeat("x", 32)},
		{"text behind the last checkpoint", checkpointsName, text(checkpointsName) + "x"},
		{"the last signature changed", checkpointsName, cut + points[25] + points[26] + points[27] + points[28] + strings.Replace(points[29], " ", " A", 1)},
		{"a root changed", checkpointsName, cut + points[25] + points[26] + "x" + points[27][1:] + points[28] + points[29]},
	} {
		dir := copyLedger(t, whole)
		writeFile(t, filepath.Join(dir, c.name), []byte(c.text))
		if _, _, err := OpenWriter(dir, testOptions()); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: opened with %v, want ErrDamaged", c.what, err)
		}
		if got := readFile(t, filepath.Join(dir, c.name)); got != c.text {
			t.Errorf("%s: the file was changed", c.what)
		}
		if h, err := Holder(dir); err != nil || h != nil {
			t.Errorf("%s: the lock is held: %v, %v", c.what, h, err)
		}
	}
}

// TestLedgerOfAHundredThousandEntries measures what grows with a ledger. The short form shows that it runs, and its figures mean nothing.
func TestLedgerOfAHundredThousandEntries(t *testing.T) {
	size := int64(2000)
	if long {
		size = 100_000
	}
	dir := filepath.Join(t.TempDir(), "ledger") // on a disk: durability is part of what is measured
	w := mustOpen(t, dir)
	const sample = 500
	var first, last time.Duration
	slowest := time.Duration(0)
	for w.Size() < size {
		n := w.Size()
		began := time.Now()
		if _, err := w.Append(noteEntry("one of many")); err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		slowest = max(slowest, took)
		switch {
		case n <= sample:
			first += took
		case n >= size-sample:
			last += took
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	first, last = first/sample, last/sample
	beside := int64(0)
	for _, name := range []string{hashesName, checkpointsName} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		beside += info.Size()
	}

	peak := 0.0
	began := time.Now()
	r := mustVerify(t, dir, VerifyOptions{Jobs: 2, Progress: func(p Progress) {
		if p.Entries%500 == 0 {
			peak = max(peak, heapMiB())
		}
	}})
	took := time.Since(began)
	if !r.OK() || r.Entries != size {
		t.Fatalf("verify: %+v", r)
	}
	t.Logf("%d entries: append %v at the start, %v at the end, %v at most; %.1f MB beside the entries; verify %v with two jobs, %.1f MiB of heap",
		size, first, last, slowest, float64(beside)/1e6, took, peak)
	if !long {
		return
	}
	if first > 5*time.Millisecond || last > 5*time.Millisecond {
		t.Errorf("append takes %v at the start and %v at the end, want under 5 ms", first, last)
	}
	if took > 10*time.Second {
		t.Errorf("verify takes %v, want under 10 s", took)
	}
	if peak > 64 {
		t.Errorf("verify uses %.1f MiB, want under 64", peak)
	}
	if beside > 30_000_000 {
		t.Errorf("%d bytes beside the entries, want at most 30 MB", beside)
	}
}

// heapMiB is how much memory is in use.
func heapMiB() float64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}
