package ledger

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// What the disk can do to a recording or to the ledger; compare with errors.Is.
var (
	ErrDiskFull = errors.New("disk full: free some space, or choose another place with -o or --root")
	ErrReadOnly = errors.New("read-only file system: mount it writable, or choose another place with -o or --root")
	ErrVanished = errors.New("directory vanished: it was moved, deleted or unmounted while in use")
)

// disk is every file operation by which this package changes something: a seam, so that tests can make each of them fail.
type disk interface {
	open(path string, flag int, perm os.FileMode) (file, error)
	mkdir(path string) error
	mkdirAll(path string) error
	rename(from, to string) error
	remove(path string) error
	makeReadOnly(path string) error
	syncDir(path string) error
}

type file interface {
	io.Writer
	io.ReaderAt
	Sync() error
	Truncate(size int64) error
	Stat() (os.FileInfo, error)
	Fd() uintptr
	Close() error
}

// openRegular opens a file for reading, and nothing else: behind a link stand bytes that are not in the directory, and a pipe or a
// device may never end.
func openRegular(path string) (*os.File, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: expected a regular file, found %s", path, kindOf(info.Mode()))
	}
	return os.Open(path)
}

// kindOf names what is no regular file.
func kindOf(mode fs.FileMode) string {
	switch mode.Type() {
	case fs.ModeDir:
		return "a directory"
	case fs.ModeSymlink:
		return "a symbolic link"
	case fs.ModeNamedPipe:
		return "a named pipe"
	}
	return "a device or a socket"
}

type osDisk struct{}

func (osDisk) open(path string, flag int, perm os.FileMode) (file, error) {
	f, err := os.OpenFile(path, flag, perm)
	if err != nil {
		return nil, err // not f: a nil *os.File is a file that is not nil
	}
	return f, nil
}
func (osDisk) mkdir(path string) error        { return os.Mkdir(path, 0o755) }
func (osDisk) mkdirAll(path string) error     { return os.MkdirAll(path, 0o755) }
func (osDisk) rename(from, to string) error   { return os.Rename(from, to) }
func (osDisk) remove(path string) error       { return os.Remove(path) }
func (osDisk) makeReadOnly(path string) error { return os.Chmod(path, 0o444) }

// syncDir makes names in a directory durable: on Linux a new or renamed file may be forgotten until its directory is synced.
func (osDisk) syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// diskError says what was being done when err came, and names the condition where it is one that a person can mend.
func diskError(doing string, err error) error {
	if err == nil {
		return nil
	}
	for _, known := range []struct{ errno, kind error }{
		{syscall.ENOSPC, ErrDiskFull}, {syscall.EDQUOT, ErrDiskFull}, {syscall.EROFS, ErrReadOnly}, {syscall.ENOENT, ErrVanished}, {syscall.ESTALE, ErrVanished},
	} {
		if errors.Is(err, known.errno) && !errors.Is(err, known.kind) {
			return fmt.Errorf("%s: %w (%w)", doing, err, known.kind)
		}
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// appendFile is a file that only grows.
type appendFile struct {
	file file
	path string
	info os.FileInfo
}

func openAppendFile(d disk, path string, flag int) (*appendFile, error) {
	f, err := d.open(path, os.O_RDWR|os.O_APPEND|flag, 0o644)
	if err != nil {
		return nil, diskError("open "+path, err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(diskError("open "+path, err), f.Close())
	}
	return &appendFile{file: f, path: path, info: info}, nil
}

// sync makes durable what was written, and looks whether the file can still be found where it was opened: a deleted file accepts
// every write without a word.
func (f *appendFile) sync() error {
	if err := f.file.Sync(); err != nil {
		return diskError("sync "+f.path, err)
	}
	info, err := os.Stat(f.path)
	if err == nil && !os.SameFile(info, f.info) {
		err = errors.New("another file is in its place")
	}
	if err != nil {
		return fmt.Errorf("%s: %w (%w)", f.path, err, ErrVanished)
	}
	return nil
}

// append writes b whole and makes it durable.
func (f *appendFile) append(b []byte) error {
	if _, err := f.file.Write(b); err != nil {
		return diskError("write "+f.path, err)
	}
	return f.sync()
}

// unfinished ends the name of a file that is still being written and will be renamed.
const unfinished = ".tmp"

// writeNew makes a file whole or not at all: written beside its place, synced, renamed into it, and its directory synced.
func writeNew(d disk, dir, path string, content []byte, perm os.FileMode) error {
	tmp := path + unfinished
	if err := d.remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) { // of a process that was killed here
		return diskError("remove "+tmp, err)
	}
	f, err := d.open(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return diskError("make "+tmp, err)
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return diskError("write "+tmp, err)
	}
	if err := d.rename(tmp, path); err != nil {
		return diskError("rename "+tmp, err)
	}
	return diskError("sync "+dir, d.syncDir(dir))
}
