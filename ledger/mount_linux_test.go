package ledger

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

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

func TestLedgerOnAFullOrReadOnlyOrVanishedDisk(t *testing.T) {
	disk := mountTmpfs(t, 256<<10)
	dir := filepath.Join(disk, "ledger")
	w := mustOpen(t, dir)
	acknowledged := w.Size()
	var err error
	for err == nil {
		var n int64
		if n, err = w.Append(noteEntry(strings.Repeat("x", 500))); err == nil {
			acknowledged = n + 1
		}
		if acknowledged > 1000 {
			t.Fatal("1000 entries of 1 KB fit on 256 KiB")
		}
	}
	if !errors.Is(err, ErrDiskFull) || !strings.Contains(err.Error(), "free some space") {
		t.Errorf("said %v", err)
	}
	if _, again := w.Append(noteEntry("more")); again != err {
		t.Errorf("the next append: %v, want the same error", again)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if r := mustVerify(t, dir, VerifyOptions{}); len(r.Findings) > 0 || r.Entries < acknowledged {
		t.Errorf("verify on the full disk: %+v", r)
	}
	if err := syscall.Mount("", disk, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, "size=1m"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := OpenWriter(dir, testOptions()); !errors.Is(err, ErrReadOnly) {
		t.Errorf("open on a read-only disk: %v, want ErrReadOnly", err)
	}
	if r := mustVerify(t, dir, VerifyOptions{}); len(r.Findings) > 0 || r.Entries < acknowledged {
		t.Errorf("verify on a read-only disk: %+v", r)
	}
	if _, err := ProveInclusion(dir, acknowledged-1); err != nil {
		t.Errorf("prove on a read-only disk: %v", err)
	}
	if err := syscall.Mount("", disk, "", syscall.MS_REMOUNT, "size=1m"); err != nil {
		t.Fatal(err)
	}
	checkAfterCrash(t, "with room again", dir, acknowledged)

	w = mustOpen(t, dir)
	if err := os.Rename(dir, filepath.Join(disk, "moved")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Append(noteEntry("text")); !errors.Is(err, ErrVanished) {
		t.Errorf("append to a directory that was moved away: %v, want ErrVanished", err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}
