package lab27host

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/lab27"
	"github.com/framebridge/framebridge/ledger"
	"github.com/framebridge/framebridge/p95"
)

// Names of what stands in a session.
const (
	BundleDir      = "lab27" // the bundle, and beside its files
	MatchLinesFile = "match.jsonl"
	MatchFile      = "match.json"
)

// FindBundle is the directory of a bundle: path itself, or the one in the session at path.
func FindBundle(path string) (string, error) {
	for _, dir := range []string{filepath.Join(path, BundleDir), path} {
		for _, name := range lab27.BundleFiles {
			if name == lab27.EventsFile {
				continue // a session has one too
			}
			if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
				return dir, nil
			}
		}
	}
	return "", fmt.Errorf("%s: neither a bundle of Lab27 nor a session with one", path)
}

// readFile reads a regular file whole, which may have so many bytes and no more: what others wrote may be of any length.
func readFile(files fs.FS, name string, atMost int64) ([]byte, error) {
	info, err := fs.Lstat(files, name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: expected a regular file, found one of mode %s", name, info.Mode())
	}
	f, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, atMost+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if int64(len(text)) > atMost {
		return nil, fmt.Errorf("%s: %w: more than %d bytes", name, lab27.Bounds, atMost)
	}
	return text, nil
}

// ReadVerdict reads the verdict of the session at path, or one that stands in the directory path by itself. In a sealed session it must be
// the one that was sealed.
func ReadVerdict(path string) (v lab27.Verdict, err error) {
	dir := filepath.Join(path, BundleDir)
	text, err := readFile(os.DirFS(dir), MatchFile, lab27.MaxVerdictBytes)
	if errors.Is(err, fs.ErrNotExist) {
		dir = path
		text, err = readFile(os.DirFS(dir), MatchFile, lab27.MaxVerdictBytes)
	}
	if err != nil {
		return v, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return v, err
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return v, err
	}
	for _, dir := range []string{dir, real} {
		if err := checkSealed(filepath.Join(dir, MatchFile), text); err != nil {
			return v, err
		}
	}
	return lab27.ParseVerdict(text)
}

// checkSealed holds what was read of a file against the manifest of each sealed session in which the file lies.
func checkSealed(path string, text []byte) error {
	sum := sha256.Sum256(text)
	for session := filepath.Dir(path); ; session = filepath.Dir(session) {
		if isSealed(session) {
			m, err := ledger.ReadManifest(session)
			if err != nil {
				return fmt.Errorf("%s: %w", session, err)
			}
			name, err := filepath.Rel(session, path)
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(m.Files, func(f ledger.ManifestedFile) bool {
				return f.Name == filepath.ToSlash(name) && f.SHA256 == hex.EncodeToString(sum[:])
			}) {
				return fmt.Errorf("%s: %w: is not what %s was sealed with; run `framebridge verify %s`", name, lab27.Hash, session, session)
			}
		}
		if session == filepath.Dir(session) {
			return nil
		}
	}
}

// isSealed tells a sealed session from any other directory, which may have a manifest.json of another kind.
func isSealed(dir string) bool {
	there := func(name string) bool {
		_, err := os.Lstat(filepath.Join(dir, name))
		return err == nil
	}
	return there(ledger.ManifestName) && (there(ledger.EventsName) || there(ledger.CompressedName))
}

// life is what a session recorded in one source epoch.
type life struct {
	epoch    int64
	display  int64
	timebase adapter.Timebase
	frames   []lab27.Frame
	bridges  []p95.ClockBridge
	gaps     []int
}

// input makes a match's input of it.
func (l *life) input(r *lab27.Report, s lab27.Session) lab27.MatchInput {
	return lab27.MatchInput{Report: r, Session: s, Frames: l.frames, PrimaryDisplayID: l.display, Timebase: l.timebase, Bridges: l.bridges, Gaps: l.gaps}
}

// Input reads from a session what a match compares with a bundle. All of it is of the one source epoch in which the run ran: a phone's clocks
// begin anew with the next. A session in which that cannot be told is an error.
func Input(session string, r *lab27.Report) (in lab27.MatchInput, err error) {
	of, lives, err := readLives(session)
	if err != nil {
		return in, err
	}
	if len(lives) == 0 {
		return in, fmt.Errorf("%s: nothing was connected while it was recorded", session)
	}
	if len(lives) == 1 {
		return lives[0].input(r, of), nil
	}
	var found []*life
	for _, l := range lives {
		if r.Summary != nil && l.has(r.Summary.Before.ContinuousMach, r.Summary.After.ContinuousMach) {
			found = append(found, l)
		}
	}
	if len(found) != 1 {
		return in, fmt.Errorf("%s: %d source epochs were recorded, and %d of them have frames at the time of the run; a match takes one", session, len(lives), len(found))
	}
	return found[0].input(r, of), nil
}

// has reports whether frames of it ended between two mach continuous times.
func (l *life) has(fromMach, toMach int64) bool {
	for i := range l.frames {
		if end := l.frames[i].EndMach; end >= fromMach && end <= toMach {
			return true
		}
	}
	return false
}

// ReadSession reads how a session's log begins: which session it is. One that does not say cannot be told from another.
func ReadSession(session string) (s lab27.Session, err error) {
	log, err := ledger.OpenLog(session)
	if err != nil {
		return s, err
	}
	defer log.Close()
	return begin(log, session)
}

func begin(log *ledger.Log, session string) (s lab27.Session, err error) {
	var e ledger.Event
	if err := log.Next(&e); err != nil {
		return s, fmt.Errorf("%s: expected session.start as its first line: %w", session, err)
	}
	start, ok := e.Value.(*ledger.Start)
	if !ok {
		return s, fmt.Errorf("%s: expected session.start as its first line, found %s", session, e.Type())
	}
	return lab27.Session{ID: start.SessionID, UDID: start.Device.UDID, Evidence: string(start.Evidence), Simulated: start.Device.Simulated}, nil
}

// readLives reads a session's log. A line that cannot be read is a gap, as it is for the window.
func readLives(session string) (of lab27.Session, lives []*life, err error) {
	log, err := ledger.OpenLog(session)
	if err != nil {
		return of, nil, err
	}
	defer log.Close()
	if of, err = begin(log, session); err != nil {
		return of, nil, err
	}
	now := &life{} // before the first binding
	kept := 0
	for {
		var e ledger.Event
		err := log.Next(&e)
		var bad *ledger.LineError
		switch {
		case errors.Is(err, io.EOF):
			return of, lives, nil
		case errors.As(err, &bad) && bad.Fault == ledger.FaultTorn:
			return of, lives, nil // nothing was recorded after it
		case errors.As(err, &bad):
			now.gaps = append(now.gaps, len(now.frames))
			continue
		case err != nil:
			return of, nil, fmt.Errorf("%s: %w", session, err)
		}
		switch v := e.Value.(type) {
		case *adapter.Binding:
			if v.SourceEpoch != now.epoch {
				now = &life{epoch: v.SourceEpoch}
				lives = append(lives, now)
			}
			now.display, now.timebase = v.PrimaryDisplayID, v.Timebase
		case *adapter.Record:
			if kept++; kept > lab27.MaxFrames {
				return of, nil, fmt.Errorf("%s: %w: more than %d frames; record less around a run", session, lab27.Bounds, lab27.MaxFrames)
			}
			now.frames = append(now.frames, lab27.FrameOf(v))
		case *p95.ClockBridge:
			now.bridges = append(now.bridges, *v)
		case *ledger.SourceGap:
			now.gaps = append(now.gaps, len(now.frames))
		}
	}
}

// Match matches a bundle with a session, and leaves match.jsonl and match.json in dir.
func Match(session string, r *lab27.Report, dir string) (*lab27.Match, error) {
	in, err := Input(session, r)
	if err != nil {
		return nil, err
	}
	m, err := lab27.Qualify(in)
	if err != nil {
		return nil, err
	}
	verdict, err := m.Verdict.JSON()
	if err != nil {
		return nil, err
	}
	if err := writeWhole(filepath.Join(dir, MatchLinesFile), m.WriteLines); err != nil {
		return nil, err
	}
	return m, writeWhole(filepath.Join(dir, MatchFile), func(w io.Writer) error {
		_, err := w.Write(verdict)
		return err
	})
}
