package ledger

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
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
	m, found, err := VerifySession(dir, nil)
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
		if _, _, err := recordThrough(count, filepath.Join(t.TempDir(), "s"), compress); err != nil {
			t.Fatal(err)
		}
		for failAt := range count.done.Load() {
			for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EROFS, syscall.EIO} {
				for _, dead := range []bool{false, true} {
					name := fmt.Sprintf("compress %v, operation %d, %v, dead %v", compress, failAt, errno, dead)
					dir := filepath.Join(t.TempDir(), "s")
					d := &faultDisk{failAt: failAt, err: errno, dead: dead}
					synced, m, err := recordThrough(d, dir, compress)
					switch {
					case err == nil:
						t.Fatalf("%s: nobody noticed", name)
					case errno == syscall.ENOSPC && !errors.Is(err, ErrDiskFull), errno == syscall.EROFS && !errors.Is(err, ErrReadOnly):
						t.Errorf("%s: the error does not say so: %v", name, err)
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

// mountTmpfs mounts a tmpfs of that size, or skips the test where that is not permitted.
func mountTmpfs(t *testing.T, bytes int) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)); err != nil {
		t.Skipf("SKIPPED, NOT TESTED: a small or read-only disk, since mounting a tmpfs needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestFullDiskEndsTheRecordingAndStillSealsIt(t *testing.T) {
	disk := mountTmpfs(t, 512<<10)
	dir := filepath.Join(disk, "s")
	s, err := Create(dir, 1, testStart(), false)
	if err != nil {
		t.Fatal(err)
	}
	synced := int64(0)
	for n := int64(1); ; n++ {
		if n > 1000 {
			t.Fatal("1000 records of 1 KB fit on 512 KiB")
		}
		if err = s.Append(&Event{Value: testRecord(n, n)}); err == nil {
			err = s.Sync()
		}
		if err != nil {
			break
		}
		synced = s.Seq()
	}
	if !errors.Is(err, ErrDiskFull) || !strings.Contains(err.Error(), "events.jsonl") || !strings.Contains(err.Error(), "free some space") {
		t.Errorf("said %v", err)
	}
	m, err := s.Seal(99, StateComplete, "duration reached", nil, false)
	if m == nil || !errors.Is(err, ErrDiskFull) {
		t.Fatalf("seal: %v, %v; want a manifest and ErrDiskFull", m, err)
	}
	if whole := m.Counts[TypeSessionStart] + m.Counts[TypeRawRecord]; whole < synced || m.State != StatePartial ||
		!strings.HasPrefix(m.Reason, "duration reached; the disk failed: write "+dir+"/events.jsonl: ") {
		t.Errorf("%d whole lines of %d, %s, %q", whole, synced, m.State, m.Reason)
	}
	checkSealed(t, dir)
	if _, err := Create(filepath.Join(disk, "next"), 1, testStart(), false); !errors.Is(err, ErrDiskFull) {
		t.Errorf("another session on the full disk: %v, want ErrDiskFull", err)
	}
}

func TestReadOnlyDiskIsNamedAndWhatIsThereCanStillBeVerified(t *testing.T) {
	disk := mountTmpfs(t, 4<<20)
	sealed, killed := filepath.Join(disk, "sealed"), filepath.Join(disk, "killed")
	if _, _, err := recordThrough(osDisk{}, sealed, false); err != nil {
		t.Fatal(err)
	}
	s := mustCreate(t, osDisk{}, killed, false)
	if err := errors.Join(s.closeFiles(), s.lock.release()); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("", disk, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(filepath.Join(disk, "next"), 1, testStart(), false); !errors.Is(err, ErrReadOnly) {
		t.Errorf("create: %v, want ErrReadOnly", err)
	}
	if _, err := Recover(killed, Tool{}, 1); !errors.Is(err, ErrReadOnly) {
		t.Errorf("recover: %v, want ErrReadOnly", err)
	}
	if _, err := Recover(sealed, Tool{}, 1); !errors.Is(err, ErrSealed) {
		t.Errorf("recover a sealed session: %v, want ErrSealed", err)
	}
	checkSealed(t, sealed)
	if h, err := Holder(killed); err != nil || h != nil {
		t.Errorf("Holder: %v, %v; want nobody", h, err)
	}
	if err := syscall.Mount("", disk, "", syscall.MS_REMOUNT, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := Recover(killed, Tool{}, 1); err != nil {
		t.Errorf("recover when it is writable again: %v", err)
	}
	checkSealed(t, killed)
}
