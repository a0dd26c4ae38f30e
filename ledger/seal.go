package ledger

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/framebridge/framebridge/dtx/tap"
)

// errNotCompressed says that a session is sealed, but not as small as was asked for.
var errNotCompressed = errors.New("sealed without compression")

// finishSeal takes a session whose lines are all on disk from there to its end. The order matters to a process that is killed here:
// until the manifest is there Recover does all of this again, and from then on only the last step is left. The manifest comes back, beside
// an error too, once it is on disk.
func finishSeal(d disk, dir string, m *Manifest, known map[string]digest, compress bool) (*Manifest, error) {
	var notCompressed error
	proved := false
	held, err := listSession(dir)
	if err != nil {
		return nil, err
	}
	for _, s := range held.strange {
		return nil, fmt.Errorf("%s: a session holds files and directories only, and this is %s; remove it", filepath.Join(dir, s.name), s.kind)
	}
	for _, name := range held.files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		got, ok := known[name]
		if !ok {
			if got, err = digestFile(path, nil); err != nil {
				return nil, fmt.Errorf("hash %s: %w", path, err)
			}
		}
		entry := got.file(name)
		switch {
		case name == CompressedName:
			continue // of an attempt to seal that did not get as far as the manifest; made anew where it is wanted
		case name == EventsName && compress:
			packed, err := compressLog(d, dir, got)
			if err != nil {
				notCompressed = fmt.Errorf("%w: %w", errNotCompressed, err)
				break
			}
			proved = true
			inside := entry
			entry = packed.file(CompressedName)
			entry.Inside = &inside
		}
		m.Files = append(m.Files, entry)
	}
	if _, _, err := m.log(); err != nil {
		return nil, err
	}
	text, err := m.encode()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, ManifestName)
	if err := writeNew(d, dir, path, text, 0o444); err != nil {
		if _, missing := os.Lstat(path); missing != nil {
			return nil, err
		}
		return m, err // of syncing the directory
	}
	return m, errors.Join(notCompressed, tidy(d, dir, m, proved))
}

// tidy makes the files of a sealed session read-only and removes what it no longer needs: the form of the log that its manifest does not
// name, where the other holds it, what was never finished, and last the lock. proved says that the sealing has just read back the other.
func tidy(d disk, dir string, m *Manifest, proved bool) error {
	named, other, err := m.log()
	if err != nil {
		return err
	}
	gone := []string{ManifestName + unfinished, CompressedName + unfinished, other, lockName}
	if _, err := os.Lstat(filepath.Join(dir, other)); err == nil && !proved {
		if err := proveHeld(dir, named, other); err != nil {
			return fmt.Errorf("%s is not removed, since %s does not hold it: %w; put that back as it was sealed, or move this one elsewhere",
				filepath.Join(dir, other), named.Name, err)
		}
		if err := d.syncDir(dir); err != nil { // whoever wrote the manifest may have died before that
			return diskError("sync "+dir, err)
		}
	}
	var errs []error
	for _, f := range m.Files {
		path := filepath.Join(dir, filepath.FromSlash(f.Name))
		if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o222 != 0 {
			// Some file systems, and files of another owner, keep their mode: then the hashes alone protect them.
			if err := d.makeReadOnly(path); err != nil && !errors.Is(err, os.ErrPermission) {
				errs = append(errs, diskError("make read-only "+path, err))
			}
		}
	}
	removed := false
	for _, name := range gone {
		path := filepath.Join(dir, name)
		if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
			continue // without a try, which a read-only disk would refuse
		}
		if err := d.remove(path); err != nil {
			errs = append(errs, diskError("remove "+path, err))
			continue
		}
		removed = true
	}
	if removed {
		errs = append(errs, diskError("sync "+dir, d.syncDir(dir)))
	}
	return errors.Join(errs...)
}

// proveHeld looks whether the log that a manifest names is as it was sealed and has the lines of the other form beside it.
func proveHeld(dir string, named ManifestedFile, other string) error {
	path := filepath.Join(dir, named.Name)
	got, err := digestFile(path, nil)
	if err != nil {
		return err
	}
	if got.size != named.Size || got.file(named.Name).SHA256 != named.SHA256 {
		return fmt.Errorf("expected %d bytes with SHA-256 %s, found %d with %x", named.Size, named.SHA256, got.size, got.sha256)
	}
	holds, err := digestLines(path)
	if err != nil {
		return err
	}
	want, err := digestLines(filepath.Join(dir, other))
	if err == nil && holds != want {
		err = fmt.Errorf("expected lines of %d bytes with SHA-256 %x, found %d with %x", want.size, want.sha256, holds.size, holds.sha256)
	}
	return err
}

// digestLines is the digest of a log's lines, in whichever form they are.
func digestLines(path string) (digest, error) {
	if filepath.Base(path) == CompressedName {
		return digestCompressed(path, nil)
	}
	return digestFile(path, nil)
}

// compressLog writes events.jsonl.zst and reads it back, since the log itself will go.
func compressLog(d disk, dir string, inside digest) (digest, error) {
	path := filepath.Join(dir, CompressedName)
	in, err := openRegular(filepath.Join(dir, EventsName))
	if err != nil {
		return digest{}, err
	}
	defer in.Close()
	out, err := d.open(path+unfinished, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return digest{}, diskError("make "+path, err)
	}
	defer out.Close()
	counted := &hashedFile{appendFile: &appendFile{file: out, path: path}, sum: sha256.New()}
	packer, err := zstd.NewWriter(writerFunc(counted.write), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return digest{}, err
	}
	_, err = io.Copy(packer, in)
	if err = errors.Join(err, packer.Close()); err != nil {
		return digest{}, err
	}
	if err := out.Sync(); err != nil {
		return digest{}, diskError("sync "+path, err)
	}
	back, err := digestCompressed(path+unfinished, nil)
	if err != nil {
		return digest{}, fmt.Errorf("read back %s: %w", path, err)
	}
	if back != inside {
		return digest{}, fmt.Errorf("read back %s: expected %d bytes with SHA-256 %x, found %d with %x", path, inside.size, inside.sha256, back.size, back.sha256)
	}
	return counted.digest(), diskError("rename "+path, d.rename(path+unfinished, path))
}

type writerFunc func([]byte) error

func (w writerFunc) Write(b []byte) (int, error) {
	if err := w(b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Recover seals, as partial, a session whose recorder died: every whole line is kept, and session.end and the manifest say where a
// torn last line began. The torn bytes of the log go to events.torn, because session.end must follow; those of the wire stay where they
// are, since nothing follows them and their own length shows that they are cut.
//
// ErrSealed comes with the manifest of a session that needs nothing; a *HeldError says who is still recording.
func Recover(dir string, tool Tool, nowWallNs int64) (*Manifest, error) {
	return recoverSession(osDisk{}, dir, tool, nowWallNs)
}

func recoverSession(d disk, dir string, tool Tool, nowWallNs int64) (*Manifest, error) {
	if m, err := ReadManifest(dir); !errors.Is(err, os.ErrNotExist) {
		return alreadySealed(d, dir, m, err)
	}
	if _, err := os.Stat(filepath.Join(dir, EventsName)); err != nil {
		return nil, fmt.Errorf("recover %s: %w: %w", dir, ErrNothingRecorded, err)
	}
	lock, err := takeLock(d, filepath.Join(dir, lockName), nowWallNs, 0)
	if err != nil {
		return nil, fmt.Errorf("recover %s: %w", dir, err)
	}
	defer lock.release()
	// Whoever held the lock may have sealed the session just now.
	if m, err := ReadManifest(dir); !errors.Is(err, os.ErrNotExist) {
		return alreadySealed(d, dir, m, err)
	}
	m, err := recoverDir(d, dir, tool, "the recording process ended without sealing")
	if err != nil {
		return m, fmt.Errorf("recover %s: %w", dir, err)
	}
	return m, nil
}

// alreadySealed does what a process that was killed right after the manifest had left to do.
func alreadySealed(d disk, dir string, m *Manifest, err error) (*Manifest, error) {
	if err != nil {
		return nil, fmt.Errorf("recover %s: %w", dir, err)
	}
	if err := tidy(d, dir, m, false); err != nil {
		return m, fmt.Errorf("recover %s: %w", dir, err)
	}
	return m, fmt.Errorf("%s: %w", dir, ErrSealed)
}

// recoverDir seals what is on disk. The caller holds the lock.
func recoverDir(d disk, dir string, tool Tool, reason string) (*Manifest, error) {
	path := filepath.Join(dir, EventsName)
	in, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	scan, err := scanLog(NewReader(in))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if scan.start == nil {
		return nil, fmt.Errorf("%s: %w: it has no whole session.start line", path, ErrNothingRecorded)
	}
	if scan.torn {
		kept, err := keepTorn(d, dir, in, scan.wholeBytes)
		if err != nil {
			return nil, err
		}
		reason += fmt.Sprintf("; a torn last line at byte %d of %s, kept in %s", scan.wholeBytes, EventsName, kept)
	}
	var line []byte
	if scan.end == nil {
		scan.counts[TypeSessionEnd.index()]++
		scan.endAt = scan.wholeBytes
		scan.end = &End{State: StatePartial, Reason: reason, Counts: scan.counts}
		line = AppendLine(nil, &Event{Seq: scan.nextSeq, HostNs: scan.lastHostNs, Value: scan.end})
	}
	if err := appendDurably(d, path, scan.wholeBytes, line); err != nil {
		return nil, err
	}
	m, err := describe(dir, &scan, tool)
	if err != nil {
		return nil, err
	}
	return finishSeal(d, dir, m, nil, false)
}

// describe is what the files of a session that has its session.end tell about it.
func describe(dir string, s *scan, tool Tool) (*Manifest, error) {
	m := newManifest(s.start, tool, s.end.State, s.end.Reason, &s.counts)
	m.Rejected = s.rejected
	held, err := listSession(dir)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(held.files, func(name string) bool { return strings.HasPrefix(name, tornName) }) {
		m.TornEvent = &s.endAt // what was torn stood where session.end does now
	}
	m.TornWire, err = tornWire(filepath.Join(dir, WireName))
	return m, err
}

const tornName = "events.torn"

// keepTorn copies what stands behind the whole lines to a file of its own, under the first free name: an earlier recovery may have been
// killed in its turn.
func keepTorn(d disk, dir string, events *os.File, wholeBytes int64) (name string, err error) {
	const attempts = 1000 // more recoveries of one session were killed than anybody will see
	var out file
	for i := range attempts {
		name = tornName
		if i > 0 {
			name += strconv.Itoa(i + 1)
		}
		out, err = d.open(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if !errors.Is(err, os.ErrExist) {
			break
		}
	}
	if err != nil {
		return "", diskError("make "+tornName, err)
	}
	if _, err := events.Seek(wholeBytes, io.SeekStart); err != nil {
		return "", errors.Join(err, out.Close())
	}
	_, err = io.Copy(out, events)
	if err == nil {
		err = out.Sync()
	}
	if err := errors.Join(err, out.Close()); err != nil {
		return "", diskError("write "+name, err)
	}
	return name, diskError("sync "+dir, d.syncDir(dir))
}

// appendDurably cuts the file to size bytes, appends to it, and syncs it even where there is nothing to change: whoever wrote it may
// have died before that.
func appendDurably(d disk, path string, size int64, text []byte) error {
	f, err := d.open(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return diskError("open "+path, err)
	}
	if err = f.Truncate(size); err == nil && len(text) > 0 {
		_, err = f.Write(text)
	}
	if err == nil {
		err = f.Sync()
	}
	return diskError("write "+path, errors.Join(err, f.Close()))
}

// tornWire is where a torn last payload begins, nil where there is none.
func tornWire(path string) (*int64, error) {
	f, err := openRegular(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	w := tap.NewWireReader(f)
	for {
		_, err := w.Next()
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		if err != nil {
			at := w.Offset()
			return &at, nil
		}
	}
}

// scan is what one pass over an event log tells.
type scan struct {
	start      *Start // nil where the first line is no session.start
	end        *End   // nil where the last whole line is no session.end
	endAt      int64  // where that line begins
	counts     Counts
	rejected   int64
	nextSeq    int64
	lastHostNs int64
	wholeBytes int64 // of whole lines
	torn       bool
}

func scanLog(r *Reader) (scan, error) {
	var s scan
	var e Event
	for {
		err := r.Next(&e)
		var bad *LineError
		switch {
		case errors.Is(err, io.EOF):
			s.nextSeq = r.lastSeq + r.rejected + 1
			if !s.torn {
				s.wholeBytes = r.offset
			}
			return s, nil
		case errors.As(err, &bad):
			if bad.Fault == FaultTorn {
				s.torn, s.wholeBytes = true, bad.Offset
			} else {
				s.end = nil
			}
			if bad.Fault == FaultRejected || bad.Fault == FaultOrder {
				s.rejected++
			}
		case err != nil:
			return s, err
		default:
			s.counts[e.Type().index()]++
			s.lastHostNs = e.HostNs
			s.end = nil
			switch v := e.Value.(type) {
			case *Start:
				if s.start == nil && r.Line() == 1 {
					start := *v
					s.start = &start
				}
			case *End:
				end := *v
				s.end, s.endAt = &end, r.Offset()
			}
		}
	}
}
