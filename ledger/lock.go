package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Exclusive locks are flock(2) on a file of their own, so that the kernel frees them however their holder dies, and so that the
// file can say who that is. Whether a lock is held is the kernel's word alone; the text is only for people.

// HeldError says that another process holds a lock.
type HeldError struct {
	Path        string
	PID         int   // 0 where the holder has not said yet
	SinceWallNs int64 // Unix time, ns
}

func (e *HeldError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("%s: held by another process, which has only just taken it", e.Path)
	}
	return fmt.Sprintf("%s: held by pid %d, since %s", e.Path, e.PID, time.Unix(0, e.SinceWallNs).UTC().Format(time.RFC3339))
}

type holder struct {
	PID         int   `json:"pid"`
	SinceWallNs int64 `json:"sinceWallNs"`
}

// maxHolderBytes bounds what is read of a lock file's first line.
const maxHolderBytes = 256

type lock struct {
	file file
	path string
}

// takeLock takes the lock or says who has it. The file is padded to reserveBytes, which giveReserve hands back.
func takeLock(d disk, path string, nowWallNs int64, reserveBytes int) (*lock, error) {
	f, err := d.open(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o644) // it is written over: never what a link leads to
	if err != nil {
		return nil, diskError("open the lock", err)
	}
	l := &lock{file: f, path: path}
	if err := l.take(nowWallNs, reserveBytes); err != nil {
		f.Close()
		return nil, err
	}
	return l, nil
}

func (l *lock) take(nowWallNs int64, reserveBytes int) error {
	err := syscall.Flock(int(l.file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	for range 10 {
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			break
		}
		if held := heldBy(l.file, l.path); held.PID != 0 {
			return held
		}
		// Nobody who is alive has written that he holds it: he is about to, or is Holder, which lets go at once.
		time.Sleep(time.Millisecond)
		err = syscall.Flock(int(l.file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return heldBy(l.file, l.path)
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w (the file system must know flock; some network mounts do not)", l.path, err)
	}
	text, err := json.Marshal(holder{PID: os.Getpid(), SinceWallNs: nowWallNs})
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if pad := reserveBytes - len(text); pad > 0 {
		text = append(text, bytes.Repeat([]byte{' '}, pad)...)
	}
	if err := l.file.Truncate(0); err != nil {
		return diskError("write the lock "+l.path, err)
	}
	if _, err := l.file.Write(text); err != nil {
		return diskError("write the lock "+l.path, err)
	}
	return nil
}

// giveReserve frees the space that the lock file kept.
func (l *lock) giveReserve() error {
	return diskError("shorten "+l.path, l.file.Truncate(0))
}

// release frees the lock. Closing is all that flock needs.
func (l *lock) release() error {
	return l.file.Close()
}

// heldBy reads who holds a lock. The first line of a lock whose holder has died, or has not written yet, names nobody alive.
func heldBy(f io.ReaderAt, path string) *HeldError {
	held := &HeldError{Path: path}
	text := make([]byte, maxHolderBytes)
	n, err := f.ReadAt(text, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return held
	}
	line, _, whole := bytes.Cut(text[:n], []byte("\n"))
	var h holder
	if !whole || json.Unmarshal(line, &h) != nil || h.PID <= 0 || errors.Is(syscall.Kill(h.PID, 0), syscall.ESRCH) {
		return held
	}
	held.PID, held.SinceWallNs = h.PID, h.SinceWallNs
	return held
}

// isLock reports whether a file is a lock as its holder leaves it: the line that names him and what was kept of the disk behind it, or
// nothing where that was given back.
func isLock(path string) bool {
	f, err := openRegular(path)
	if err != nil {
		return false
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, reserveBytes+1))
	if err != nil || len(text) > reserveBytes {
		return false
	}
	if len(text) == 0 {
		return true
	}
	line, pad, _ := bytes.Cut(text, []byte("\n"))
	var h holder
	if json.Unmarshal(line, &h) != nil {
		return false
	}
	again, err := json.Marshal(h)
	return err == nil && bytes.Equal(line, again) && len(bytes.Trim(pad, " ")) == 0
}

// Holder says who holds the lock of a session directory or ledger directory, nil where nobody does. It changes nothing, so it
// works on a read-only disk too.
func Holder(dir string) (*HeldError, error) {
	path := filepath.Join(dir, lockName)
	f, err := openRegular(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return heldBy(f, path), nil
	}
	return nil, err
}
