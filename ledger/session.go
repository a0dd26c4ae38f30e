package ledger

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/framebridge/framebridge/dtx/tap"
	"github.com/framebridge/framebridge/internal/jsonline"
)

const (
	// syncEveryNs is how old unsynced lines may be when SyncDue asks for a sync: half of the second that the contract allows, so
	// that the recorder's tick and the disk have the other half.
	syncEveryNs = 500_000_000

	// maxPendingBytes bounds what waits in memory while a sync is under way: half a minute of one device with its wire. Past
	// it, appending waits for the disk; nothing is ever dropped.
	maxPendingBytes = 16 << 20

	// reserveBytes of the disk are kept in the lock file while recording, and given back before sealing, so that a session whose disk
	// is full can still be closed: session.end, the manifest and a torn line take well under this.
	reserveBytes = 64 << 10
)

var (
	// ErrExists says that a session's directory is already there.
	ErrExists = errors.New("already exists; a session needs a new directory")
	// ErrSealed says that a session is sealed. It is never opened for writing again.
	ErrSealed = errors.New("session is sealed")
	// ErrNothingRecorded says that a directory holds no session.start, and so nothing that could be sealed.
	ErrNothingRecorded = errors.New("no session was recorded here")
)

// Session is a session directory that is being recorded. One goroutine appends; another may call Sync meanwhile, so that a slow disk
// does not hold up who appends.
type Session struct {
	disk  disk
	dir   string
	start Start
	lock  *lock

	// mu guards what the recorder touches. It is never held while the disk works.
	mu           sync.Mutex
	seq          int64
	counts       Counts
	events, wire []byte // appended and not yet taken by a sync
	urgent       bool   // a state change is among them
	lastSyncNs   int64
	err          error // the first that the disk gave; from then on nothing is accepted

	// ioMu lets one write, or seal, run at a time. It is taken before mu.
	ioMu                   sync.Mutex
	spareEvents, spareWire []byte
	eventsFile, wireFile   *hashedFile // wireFile is nil where no wire is kept
	unsynced               bool
}

// hashedFile is an appendFile with the digest of what it holds.
type hashedFile struct {
	*appendFile
	size int64
	sum  hash.Hash
}

func createHashedFile(d disk, path string) (*hashedFile, error) {
	f, err := openAppendFile(d, path, os.O_CREATE|os.O_EXCL)
	if err != nil {
		return nil, err
	}
	return &hashedFile{appendFile: f, sum: sha256.New()}, nil
}

func (f *hashedFile) write(b []byte) error {
	n, err := f.file.Write(b)
	f.sum.Write(b[:n])
	f.size += int64(n)
	return diskError("write "+f.path, err)
}

func (f *hashedFile) digest() digest {
	d := digest{size: f.size}
	f.sum.Sum(d.sha256[:0])
	return d
}

// Create makes the session directory, which must not exist, takes its lock, and writes and syncs session.start. Parents are made when
// they are missing. Where it fails half way, what is there stays: nothing is ever deleted.
func Create(dir string, hostNs int64, start Start, keepWire bool) (*Session, error) {
	return create(osDisk{}, dir, hostNs, start, keepWire)
}

func create(d disk, dir string, hostNs int64, start Start, keepWire bool) (*Session, error) {
	if err := start.check(); err != nil {
		return nil, fmt.Errorf("session.start: %w", err)
	}
	parent := filepath.Dir(dir)
	if err := d.mkdirAll(parent); err != nil {
		return nil, diskError("make "+parent, err)
	}
	if err := d.mkdir(dir); errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("%s: %w", dir, ErrExists)
	} else if err != nil {
		return nil, diskError("make "+dir, err)
	}
	lock, err := takeLock(d, filepath.Join(dir, lockName), start.Clock.WallNs, reserveBytes)
	if err != nil {
		return nil, err
	}
	s := &Session{disk: d, dir: dir, start: start, lock: lock}
	if err := s.open(hostNs, keepWire); err != nil {
		s.closeFiles()
		lock.release()
		return nil, err
	}
	return s, nil
}

func (s *Session) open(hostNs int64, keepWire bool) (err error) {
	if s.eventsFile, err = createHashedFile(s.disk, filepath.Join(s.dir, EventsName)); err != nil {
		return err
	}
	if keepWire {
		if s.wireFile, err = createHashedFile(s.disk, filepath.Join(s.dir, WireName)); err != nil {
			return err
		}
	}
	if err := s.Append(&Event{HostNs: hostNs, Value: &s.start}); err != nil {
		return err
	}
	if err := s.Sync(); err != nil {
		return err
	}
	if err := s.disk.syncDir(s.dir); err != nil {
		return diskError("sync "+s.dir, err)
	}
	parent := filepath.Dir(s.dir)
	return diskError("sync "+parent, s.disk.syncDir(parent))
}

func (s *Session) closeFiles() error {
	var errs []error
	for _, f := range []*hashedFile{s.eventsFile, s.wireFile} {
		if f != nil {
			errs = append(errs, f.file.Close())
		}
	}
	return errors.Join(errs...)
}

// Dir is the session's directory.
func (s *Session) Dir() string { return s.dir }

// Seq is the number of lines appended so far.
func (s *Session) Seq() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seq
}

// Append gives the event its seq and appends its line. It waits for the disk only where too much is pending. After an error of the
// disk, in this call or in a Sync, it returns that error and appends nothing.
func (s *Session) Append(e *Event) error {
	full, err := s.appendEvent(e)
	if err == nil && full {
		err = s.write(false)
	}
	return err
}

func (s *Session) appendEvent(e *Event) (full bool, err error) {
	t := e.Type()
	at := t.index()
	if at < 0 {
		return false, fmt.Errorf("append to session: %T is not an event", e.Value)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return false, s.err
	}
	e.Seq = s.seq + 1
	before := len(s.events)
	s.events = AppendLine(s.events, e)
	if n := len(s.events) - before; n > jsonline.MaxLineBytes+1 {
		s.events = s.events[:before]
		return false, fmt.Errorf("append to session: a %s line of %d bytes; at most %d can be read back", t, n, jsonline.MaxLineBytes)
	}
	s.seq++
	s.counts[at]++
	switch t {
	case TypeSessionStart, TypeTargetBind, TypeTargetState, TypeSourceState:
		s.urgent = true
	}
	return s.isFull(), nil
}

// isFull is asked under mu.
func (s *Session) isFull() bool { return len(s.events)+len(s.wire) > maxPendingBytes }

// AppendWire keeps a payload of the tap, when the session keeps its wire; an empty one marks a new connection.
func (s *Session) AppendWire(hostNs int64, payload []byte) error {
	s.mu.Lock()
	err := s.err
	if err == nil && s.wireFile != nil {
		wire, err := tap.AppendWire(s.wire, tap.WireRecord{HostNs: hostNs, Payload: payload})
		if err != nil {
			s.mu.Unlock()
			return fmt.Errorf("append to wire: %w", err)
		}
		s.wire = wire
	}
	full := s.isFull()
	s.mu.Unlock()
	if err == nil && full {
		err = s.write(false)
	}
	return err
}

// SyncDue says whether it is time to call Sync: a state change waits, or lines do and the last sync was asked for half a second ago. The
// recorder asks on its tick, with its monotonic clock; true counts as asked for.
func (s *Session) SyncDue(nowNs int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting := len(s.events)+len(s.wire) > 0
	if !waiting || !s.urgent && nowNs-s.lastSyncNs < syncEveryNs {
		return false
	}
	s.urgent = false
	s.lastSyncNs = nowNs
	return true
}

// Sync writes everything appended so far and waits until it is on disk. It may run beside Append, which then only fills memory. An
// error is the session's end: what can be sealed is sealed by Seal.
func (s *Session) Sync() error { return s.write(true) }

func (s *Session) write(durable bool) error {
	s.ioMu.Lock()
	defer s.ioMu.Unlock()
	return s.writeLocked(durable)
}

func (s *Session) writeLocked(durable bool) error {
	s.mu.Lock()
	if s.err != nil {
		defer s.mu.Unlock()
		return s.err
	}
	events, wire := s.events, s.wire
	s.events, s.wire = s.spareEvents[:0], s.spareWire[:0]
	s.mu.Unlock()

	err := s.writeOut(events, wire, durable)
	s.spareEvents, s.spareWire = events, wire
	if err != nil {
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
	}
	return err
}

// writeOut writes the wire first: what the log tells can then always be decoded again.
func (s *Session) writeOut(events, wire []byte, durable bool) error {
	if s.wireFile != nil && len(wire) > 0 {
		if err := s.wireFile.write(wire); err != nil {
			return err
		}
	}
	if len(events) > 0 {
		if err := s.eventsFile.write(events); err != nil {
			return err
		}
	}
	s.unsynced = s.unsynced || len(events)+len(wire) > 0
	if !durable || !s.unsynced {
		return nil
	}
	if s.wireFile != nil {
		if err := s.wireFile.sync(); err != nil {
			return err
		}
	}
	if err := s.eventsFile.sync(); err != nil {
		return err
	}
	s.unsynced = false
	return nil
}

// Seal appends session.end (whose counts of types it fills in), writes the manifest, makes every file read-only and frees the lock. With
// compress, events.jsonl is replaced by events.jsonl.zst.
//
// Where the disk has failed, now or before, it seals what is on disk as partial. Then both the manifest and the error are returned, as they
// are where only the last steps behind the manifest failed, or the compressing: the session is sealed. A nil manifest means that it is not,
// and Recover may do it when the disk is mended.
func (s *Session) Seal(hostNs int64, state State, reason string, extra map[string]int64, compress bool) (*Manifest, error) {
	s.ioMu.Lock()
	defer s.ioMu.Unlock()
	defer s.lock.release()
	reason = readable(reason)
	failed := s.writeLocked(true)
	if errors.Is(failed, ErrSealed) {
		return nil, failed
	}
	failed = errors.Join(failed, s.lock.giveReserve())
	if failed == nil {
		failed = s.appendEnd(hostNs, state, reason, extra)
	}
	s.mu.Lock()
	s.err = fmt.Errorf("%s: %w", s.dir, ErrSealed)
	counts := s.counts
	s.mu.Unlock()

	known := map[string]digest{EventsName: s.eventsFile.digest()}
	if s.wireFile != nil {
		known[WireName] = s.wireFile.digest()
	}
	failed = errors.Join(failed, s.closeFiles())
	if failed == nil {
		m := newManifest(&s.start, s.start.Tool, state, reason, &counts)
		if m, failed = finishSeal(s.disk, s.dir, m, known, compress); failed == nil {
			return m, nil
		} else if m != nil {
			return m, fmt.Errorf("seal %s: %w", s.dir, failed)
		}
	}
	if errors.Is(failed, ErrVanished) {
		return nil, fmt.Errorf("seal %s: %w", s.dir, failed)
	}
	if reason != "" {
		reason += "; "
	}
	m, err := recoverDir(s.disk, s.dir, s.start.Tool, readable(fmt.Sprintf("%sthe disk failed: %v", reason, failed)))
	return m, fmt.Errorf("seal %s: %w", s.dir, errors.Join(failed, err))
}

func (s *Session) appendEnd(hostNs int64, state State, reason string, extra map[string]int64) error {
	counts := s.counts
	counts[TypeSessionEnd.index()]++
	end := &End{State: state, Reason: reason, Counts: counts, Extra: extra}
	if _, err := s.appendEvent(&Event{HostNs: hostNs, Value: end}); err != nil {
		return err
	}
	return s.writeLocked(true)
}

// readable makes of a reason, which may quote anything, text that a line and a manifest hold in the same form.
func readable(reason string) string {
	const reasonBytes = 4096 // several errors, each with a path
	return strings.ToValidUTF8(reason[:min(len(reason), reasonBytes)], "\uFFFD")
}

func newManifest(start *Start, tool Tool, state State, reason string, counts *Counts) *Manifest {
	m := &Manifest{Schema: ManifestSchema, Name: start.Name, SessionID: start.SessionID, State: state, Reason: reason,
		Evidence: start.Evidence, Tool: tool, Counts: map[Type]int64{}}
	for i, t := range types {
		m.Counts[t] = counts[i]
	}
	return m
}
