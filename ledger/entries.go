package ledger

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// ErrNoLedger says that there is no ledger in a directory.
var ErrNoLedger = errors.New("no ledger here; make one with framebridge ledger init, or choose another --root")

// Entries reads the entries of a ledger in their order, also while another process appends.
type Entries struct {
	lineReader
	file *os.File
}

// OpenEntries opens the entries of the ledger in dir.
func OpenEntries(dir string) (*Entries, error) {
	f, err := openLedgerFile(dir, entriesName)
	if err != nil {
		return nil, err
	}
	return &Entries{lineReader: newLineReader(f), file: f}, nil
}

func openLedgerFile(dir, name string) (*os.File, error) {
	f, err := openRegular(filepath.Join(dir, name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w: %w", dir, ErrNoLedger, err)
	}
	return f, err
}

// Next returns one entry, and io.EOF at the end. A *LineError is a line that is no entry, after which reading goes on; one with
// FaultTorn is the end of an append that is under way or was interrupted. Whether entries are those that were signed, Verify says.
func (r *Entries) Next() (Entry, error) {
	line, err := r.next()
	switch {
	case errors.Is(err, errTorn):
		return Entry{}, r.fault(FaultTorn, err)
	case errors.Is(err, errTooLong):
		return Entry{}, r.fault(FaultRejected, err)
	case err != nil:
		return Entry{}, err
	}
	e, err := ParseEntry(line)
	if err != nil {
		return Entry{}, r.fault(FaultRejected, err)
	}
	return e, nil
}

// Close closes the file.
func (r *Entries) Close() error { return r.file.Close() }

// ReadEntry reads entry number n of the ledger in dir, and its line.
func ReadEntry(dir string, n int64) (e Entry, line []byte, err error) {
	entries, err := OpenEntries(dir)
	if err != nil {
		return Entry{}, nil, err
	}
	defer entries.Close()
	for {
		line, err := entries.next()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, errTorn):
			return Entry{}, nil, fmt.Errorf("%s: no entry %d: it has %d", entriesName, n, entries.Line())
		case err != nil && !errors.Is(err, errTooLong):
			return Entry{}, nil, err
		case entries.Line() != n+1:
			continue
		}
		if err == nil {
			e, err = ParseEntry(line)
		}
		if err == nil && e.Number != n {
			err = fmt.Errorf("expected entry %d, found %d", n, e.Number)
		}
		if err != nil {
			return Entry{}, nil, entries.fault(FaultRejected, err)
		}
		return e, append([]byte(nil), line...), nil
	}
}

// EntryNaming finds the first entry of the ledger in dir that names a file with that SHA-256, in hex. Lines that are no entries are
// read past: Verify finds them.
func EntryNaming(dir, sha256 string) (number int64, ok bool, err error) {
	entries, err := OpenEntries(dir)
	if err != nil {
		return 0, false, err
	}
	defer entries.Close()
	for {
		e, err := entries.Next()
		var bad *LineError
		switch {
		case errors.Is(err, io.EOF):
			return 0, false, nil
		case errors.As(err, &bad):
		case err != nil:
			return 0, false, err
		case slices.ContainsFunc(e.Files, func(f NamedFile) bool { return f.SHA256 == sha256 }):
			return e.Number, true, nil
		}
	}
}

// SessionEntry is the entry that names the sealed session in dir, for the ledger under root. Times and, where it belongs to one, the
// attempt are the caller's to fill in.
func SessionEntry(root, dir string) (Entry, error) {
	m, err := ReadManifest(dir)
	if err != nil {
		return Entry{}, fmt.Errorf("name session %s: %w", dir, err)
	}
	manifest, err := NameFile(root, filepath.Join(dir, ManifestName))
	if err != nil {
		return Entry{}, fmt.Errorf("name session %s: %w", dir, err)
	}
	body, err := json.Marshal(struct {
		Name      string `json:"name"`
		SessionID string `json:"sessionId"`
		State     State  `json:"state"`
		Manifest  string `json:"manifestSha256"`
	}{m.Name, m.SessionID, m.State, manifest.SHA256})
	if err != nil {
		return Entry{}, err
	}
	return Entry{Kind: KindRoundSession, Evidence: m.Evidence, Files: []NamedFile{manifest}, Body: body}, nil
}

// NameFile hashes a file and names it as an entry of the ledger under root does: relative to root where it lies below, so that root can
// be moved, else absolute.
func NameFile(root, path string) (NamedFile, error) {
	got, err := digestFile(path, nil)
	if err != nil {
		return NamedFile{}, err
	}
	name, err := filepath.Abs(path)
	if err != nil {
		return NamedFile{}, err
	}
	if root, err = filepath.Abs(root); err != nil {
		return NamedFile{}, err
	}
	if below, err := filepath.Rel(root, name); err == nil && filepath.IsLocal(below) {
		name = below
	}
	return NamedFile{Path: filepath.ToSlash(name), SHA256: hex.EncodeToString(got.sha256[:])}, nil
}

// LatestCheckpoint reads the last whole signed checkpoint of the ledger in dir: what an auditor keeps elsewhere, for VerifyOptions.Against.
func LatestCheckpoint(dir string) (signed []byte, err error) {
	f, err := openLedgerFile(dir, checkpointsName)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	signed, _, err = lastCheckpoint(f)
	if err == nil && signed == nil {
		err = fmt.Errorf("%s: no whole checkpoint in %s", dir, checkpointsName)
	}
	return signed, err
}
