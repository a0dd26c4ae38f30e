//go:build cgo

package core

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Output is a file being written; Close returns when it is on disk.
type Output = io.WriteCloser

// Files is the app's Documents/lab27, in which pending, consumed, refused and runs exist. Paths are relative, with '/'.
type Files interface {
	List(directory string) ([]string, error)
	Exists(path string) (bool, error)
	Read(path string, atMost int) ([]byte, error) // fails for a longer file
	MakeDirectory(path string) error              // fails where it exists
	Move(from, to string) error                   // fails where to exists
	Create(path string) (Output, error)           // fails where it exists
}

// Directory is Files in a directory of this machine.
type Directory string

// NewDirectory makes what the app expects to find.
func NewDirectory(root string) (Directory, error) {
	for _, name := range []string{"pending", "consumed", "refused", "runs"} {
		if err := os.MkdirAll(filepath.Join(root, name), 0o755); err != nil {
			return "", fmt.Errorf("lab27 app's documents: %w", err)
		}
	}
	return Directory(root), nil
}

func (d Directory) at(path string) string { return filepath.Join(string(d), filepath.FromSlash(path)) }

func (d Directory) List(directory string) ([]string, error) {
	entries, err := os.ReadDir(d.at(directory))
	names := make([]string, len(entries))
	for i, entry := range entries {
		names[i] = entry.Name()
	}
	return names, err
}

func (d Directory) Exists(path string) (bool, error) {
	_, err := os.Lstat(d.at(path))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (d Directory) Read(path string, atMost int) ([]byte, error) {
	f, err := os.Open(d.at(path))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, int64(atMost)+1))
	if err == nil && len(data) > atMost {
		err = fmt.Errorf("%s: longer than %d bytes", path, atMost)
	}
	return data, err
}

func (d Directory) MakeDirectory(path string) error { return os.Mkdir(d.at(path), 0o755) }

// Move links and unlinks, since a rename would replace what is there.
func (d Directory) Move(from, to string) error {
	if err := os.Link(d.at(from), d.at(to)); err != nil {
		return err
	}
	return os.Remove(d.at(from))
}

func (d Directory) Create(path string) (Output, error) {
	f, err := os.OpenFile(d.at(path), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	return syncedFile{f}, nil
}

type syncedFile struct{ *os.File }

func (f syncedFile) Close() error { return errors.Join(f.Sync(), f.File.Close()) }
