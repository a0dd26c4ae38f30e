// Package export writes a recorded session in the forms of other tools: tables for spreadsheets, databases and data frames, and a trace
// for ui.perfetto.dev. Nothing is judged, rounded or left out on the way: integers stay integers, and null stays null.
//
// | file | decides |
// |---|---|
// | tables.go | what the tables are: every column, with its meaning and where it comes from |
// | walk.go | how the events of a log become their rows |
// | lines.go, sqlite.go, parquet.go, perfetto.go | how rows are written in one format |
// | help.go | how all that is told to people |
//
// Everything streams: memory does not grow with the session.
package export

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/framebridge/framebridge/lab27"
	"github.com/framebridge/framebridge/ledger"
)

// Format is a form in which a session can be exported.
type Format struct {
	Name   string
	Suffix string // of what it makes, where no other name is given
	Doc    string

	directory bool // it makes a directory, with a file for each table
	open      func(path string) (sink, error)
}

// Formats are all formats.
var Formats = []Format{
	{"csv", "-csv", "a directory with a file for each table. Lines end with a newline; the first one names the columns. Null is empty,\n" +
		"and an empty text is \"\". Texts stand as the phone told them: a spreadsheet may take one for a formula.", true, newCSV},
	{"jsonl", "-jsonl", "a directory with a file for each table, and in it an object for each row, with every column.", true, newJSONL},
	{"sqlite", ".sqlite", "one database with strict tables, booleans as 0 and 1, and an index on frames.presentationNs.", false, newSQLite},
	{"parquet", "-parquet", "a directory with a file for each table: INT64, BOOLEAN and UTF-8 columns, Snappy.", true, newParquet},
	{"perfetto", ".perfetto-trace", "one trace for ui.perfetto.dev, on the host's clock: for each display a slice over each frame's lifetime (in as\n" +
		"many lanes as overlap) and its frame time; the P95; a slice for each publication; an instant for everything else. All columns of a\n" +
		"row are arguments of its slice or instant. Left out: contributors and counts. A frame stands where the clock bridge puts it, with\n" +
		"one offset for each source epoch; its own times are among its arguments. A counter is 0 where there is no value.", false, newTrace},
}

// FormatOf finds a format by its name.
func FormatOf(name string) (f Format, ok bool) {
	for _, f := range Formats {
		if f.Name == name {
			return f, true
		}
	}
	return Format{}, false
}

// Result is what an export wrote.
type Result struct {
	Format   string           `json:"format"`
	Path     string           `json:"path"`
	Rows     map[string]int64 `json:"rows"`     // by table
	BadLines int64            `json:"badLines"` // lines of the log that cannot be read, told in a table of their own
}

// Write exports a log to path, which must not exist. It writes beside path, under the name with .unfinished, and renames at the end: what
// has the name is whole. Where it fails, or ctx ends, nothing is left.
func Write(ctx context.Context, log Log, f Format, path string) (result *Result, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("export to %s: %w", path, err)
		}
	}()
	if err := f.create(path); err != nil { // so that nobody else takes the name
		return nil, err
	}
	defer func() {
		if err != nil {
			os.Remove(path)
		}
	}()
	unfinished := path + ".unfinished"
	if err := f.create(unfinished); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(unfinished)
		}
	}()
	s, err := f.open(unfinished)
	if err != nil {
		return nil, err
	}
	t := &tabulator{sink: s, count: map[string]int64{}}
	for _, table := range Tables {
		t.count[table.Name] = 0
	}
	err = walk(ctx, log, t.event, t.bad)
	if err = errors.Join(err, s.close()); err != nil {
		return nil, err
	}
	// Not os.Rename, which refuses to replace a directory even when it is empty.
	if err := syscall.Rename(unfinished, path); err != nil {
		return nil, err
	}
	return &Result{Format: f.Name, Path: path, Rows: t.count, BadLines: t.count[badLines.Name]}, nil
}

// create makes an empty file or directory that is not there yet.
func (f *Format) create(path string) error {
	if f.directory {
		return os.Mkdir(path, 0o755)
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	return file.Close()
}

// ErrInSession says that a path leads into a session. Its files are what was recorded, and nothing else is written there.
var ErrInSession = errors.New("is a session's directory; reports, exports and other sessions are written elsewhere: give -o, or run this in another directory")

// Outside returns ErrInSession where path would lie within a session, its own or another. Directories on the way may be missing.
func Outside(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) && path != filepath.Dir(path) {
		return Outside(filepath.Dir(path))
	}
	if err != nil {
		return err
	}
	for {
		for _, name := range []string{ledger.EventsName, ledger.CompressedName} {
			if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.Mode().IsRegular() && !isBundle(dir) {
				return fmt.Errorf("%s %w", dir, ErrInSession)
			}
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return nil
		}
		dir = parent
	}
}

// isBundle tells a bundle of Lab27, which has events.jsonl too, from a session: its plan is beside, and its events are no session's. Where
// they cannot be read it is a session.
func isBundle(dir string) bool {
	plan, err := os.Stat(filepath.Join(dir, lab27.PlanFile))
	if err != nil || !plan.Mode().IsRegular() {
		return false
	}
	events, err := os.Open(filepath.Join(dir, lab27.EventsFile))
	if err != nil {
		return false
	}
	defer events.Close()
	const ofSession = `{"seq":` // how each line of a session's begins
	begin := make([]byte, len(ofSession))
	n, err := io.ReadFull(events, begin)
	return (err == nil || err == io.EOF || err == io.ErrUnexpectedEOF) && string(begin[:n]) != ofSession
}
