package ledger

import (
	"os"
	"path/filepath"
	"sync/atomic"
)

// faultDisk fails the n-th operation that changes something, counted from 0; from then on every one when dead is set, as after a kill.
type faultDisk struct {
	osDisk
	failAt int64
	err    error
	dead   bool
	done   atomic.Int64 // operations so far

	onSync func() // runs before each sync of a file
	spoil  string // files of that name get other bytes than those that were written
}

func (d *faultDisk) fails() bool {
	n := d.done.Add(1) - 1
	return d.err != nil && (n == d.failAt || d.dead && n > d.failAt)
}

func (d *faultDisk) try(op func() error) error {
	if d.fails() {
		return d.err
	}
	return op()
}

func (d *faultDisk) open(path string, flag int, perm os.FileMode) (file, error) {
	if d.fails() {
		return nil, &os.PathError{Op: "open", Path: path, Err: d.err}
	}
	f, err := d.osDisk.open(path, flag, perm)
	if err != nil {
		return nil, err
	}
	return &faultFile{file: f, disk: d, spoilt: d.spoil != "" && filepath.Base(path) == d.spoil}, nil
}
func (d *faultDisk) mkdir(path string) error {
	return d.try(func() error { return d.osDisk.mkdir(path) })
}
func (d *faultDisk) mkdirAll(path string) error {
	return d.try(func() error { return d.osDisk.mkdirAll(path) })
}
func (d *faultDisk) rename(from, to string) error {
	return d.try(func() error { return d.osDisk.rename(from, to) })
}
func (d *faultDisk) remove(path string) error {
	return d.try(func() error { return d.osDisk.remove(path) })
}
func (d *faultDisk) makeReadOnly(path string) error {
	return d.try(func() error { return d.osDisk.makeReadOnly(path) })
}
func (d *faultDisk) syncDir(path string) error {
	return d.try(func() error { return d.osDisk.syncDir(path) })
}

type faultFile struct {
	file
	disk   *faultDisk
	spoilt bool
}

// Write, when it fails, leaves half of what it was given, as a disk does that fills up and a process that dies.
func (f *faultFile) Write(b []byte) (int, error) {
	if f.disk.fails() {
		n, err := f.file.Write(b[:len(b)/2])
		if err != nil {
			return n, err
		}
		return n, f.disk.err
	}
	if f.spoilt {
		b = append([]byte{b[0] ^ 1}, b[1:]...)
	}
	return f.file.Write(b)
}

func (f *faultFile) Sync() error {
	if f.disk.onSync != nil {
		f.disk.onSync()
	}
	return f.disk.try(f.file.Sync)
}

func (f *faultFile) Truncate(size int64) error {
	return f.disk.try(func() error { return f.file.Truncate(size) })
}
