package sim

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
)

// Files of phones are files of this machine, in a directory that ends with the lab:
//
//	UDID/Media                the camera's and other shared files
//	UDID/BUNDLE.data          an app's data container, with Documents, Library and tmp
const (
	documentsDir = "Documents"
	mediaDir     = "Media"
)

// ErrNoApp means that a phone does not have an app.
var ErrNoApp = errors.New("no such app is installed")

// Documents is the directory on this machine that holds an app's documents. Whoever plays the app reads and writes there; clients do through
// the phone's services.
func (l *Lab) Documents(udid, bundle string) (string, error) {
	d := l.device(udid)
	if d == nil {
		return "", fmt.Errorf("no device has the udid %q", udid)
	}
	dir, err := d.container(bundle)
	return filepath.Join(dir, documentsDir), err
}

// container is the directory of an app's data, made when somebody first asks.
func (d *Device) container(bundle string) (string, error) {
	if !slices.ContainsFunc(d.Apps, func(a App) bool { return a.Bundle == bundle }) {
		return "", fmt.Errorf("%w: %q", ErrNoApp, bundle)
	}
	return d.directory(url.PathEscape(bundle)+".data", documentsDir, "Library", "tmp")
}

func (d *Device) media() (string, error) { return d.directory(mediaDir, "DCIM") }

// directory makes a directory of the phone's with some in it, and returns its path.
func (d *Device) directory(name string, inside ...string) (string, error) {
	root, err := d.lab.filesDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, d.UDID, name)
	for _, sub := range inside {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// filesDir is where the lab keeps the phones' files.
func (l *Lab) filesDir() (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return "", os.ErrClosed
	}
	if l.files != "" {
		return l.files, nil
	}
	var err error
	l.files, err = os.MkdirTemp("", "labsim-files-")
	return l.files, err
}
