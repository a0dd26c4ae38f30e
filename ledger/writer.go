package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/framebridge/framebridge/internal/jsonline"
)

// ErrDamaged says that a ledger's files do not fit together in a way that no interrupted append explains.
var ErrDamaged = errors.New("the ledger is damaged; framebridge ledger verify says where")

// Options are what a writer puts into every entry, and the key that it signs with.
type Options struct {
	Key          *Key // nil: the ledger's own, made on first use
	Tool         Tool
	SourceDigest string // SHA-256 of the tool's source in hex, "" where it is not known
	WallNs       int64  // now, Unix time
	MonotonicNs  int64  // now
}

// Writer appends to a ledger. There is one at a time, by lock. It is not for several goroutines.
//
// An append goes through three steps, each made durable before the next: the entry; the hashes; the checkpoint. Hashes and
// checkpoint follow from the entry and the key alone (Ed25519 signs without chance), so whatever an interrupted append left undone the
// next OpenWriter does. An entry counts from the moment that Append returns.
type Writer struct {
	disk    disk
	dir     string
	lock    *lock
	key     *Key
	options Options

	entries, hashes, checkpoints *appendFile
	tree                         *frontier
	err                          error // of an append that failed: what it left is for the next OpenWriter
}

// Recovery is what OpenWriter found left by an append that was interrupted.
type Recovery struct {
	RolledForward bool       // the last entry was whole; its hashes and checkpoint are there now
	SetAside      []SetAside // bytes that could not be used
}

// SetAside is a torn end of one of a ledger's files. It is in the ledger's file torn, a JSON object a line, with the bytes in base64.
type SetAside struct {
	File   string `json:"file"`
	Offset int64  `json:"offset"`
	WallNs int64  `json:"wallNs"` // when it was found
	Bytes  []byte `json:"bytes"`
}

const tornLogName = "torn"

// OpenWriter opens the ledger in dir for appending, and makes it, its key and entry 0 where there is none. A *HeldError says who else is
// writing.
func OpenWriter(dir string, options Options) (*Writer, *Recovery, error) {
	return openWriter(osDisk{}, dir, options)
}

func openWriter(d disk, dir string, options Options) (*Writer, *Recovery, error) {
	if err := d.mkdirAll(dir); err != nil {
		return nil, nil, diskError("make "+dir, err)
	}
	lock, err := takeLock(d, filepath.Join(dir, lockName), options.WallNs, 0)
	if err != nil {
		return nil, nil, err
	}
	w := &Writer{disk: d, dir: dir, lock: lock, options: options, key: options.Key}
	recovery, err := w.open()
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open ledger %s: %w", dir, err), w.Close())
	}
	return w, recovery, nil
}

func (w *Writer) open() (*Recovery, error) {
	create := os.O_CREATE
	for _, f := range []struct {
		name string
		to   **appendFile
	}{{checkpointsName, &w.checkpoints}, {entriesName, &w.entries}, {hashesName, &w.hashes}} {
		opened, err := openAppendFile(w.disk, filepath.Join(w.dir, f.name), create)
		if errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("%s is not there, and %s is (%w)", f.name, checkpointsName, ErrDamaged)
		}
		if err != nil {
			return nil, err
		}
		*f.to = opened
		if opened.info.Size() > 0 {
			create = 0
		}
	}
	last, lastEnd, err := lastCheckpoint(w.checkpoints.file)
	if err != nil {
		return nil, err
	}
	if err := w.loadKey(last); err != nil {
		return nil, err
	}
	if err := w.loadTree(last); err != nil {
		return nil, err
	}
	recovery, err := w.settle(lastEnd)
	if err != nil || w.tree.size > 0 {
		return recovery, err
	}
	body, err := json.Marshal(openBody{Key: w.key.Public()})
	if err != nil {
		return nil, err
	}
	_, err = w.Append(Entry{Kind: KindLedgerOpen, WallNs: w.options.WallNs, MonotonicNs: w.options.MonotonicNs, Evidence: EvidenceE2, Body: body})
	if err != nil {
		return nil, err
	}
	parent := filepath.Dir(w.dir)
	return recovery, diskError("sync "+parent, errors.Join(w.disk.syncDir(w.dir), w.disk.syncDir(parent)))
}

// openBody is what entry 0 carries: the key that signs every checkpoint.
type openBody struct {
	Key string `json:"key"`
}

// keyOf is the public key that entry 0 names, "" where it names none.
func keyOf(e *Entry) string {
	var body openBody
	if e.Kind != KindLedgerOpen || json.Unmarshal(e.Body, &body) != nil {
		return ""
	}
	return body.Key
}

// loadKey takes the key that was given, or the ledger's own, and makes that one as long as nothing is signed.
func (w *Writer) loadKey(last []byte) (err error) {
	if w.key == nil {
		w.key, err = loadKey(w.dir)
		switch {
		case errors.Is(err, os.ErrNotExist) && last == nil:
			if w.key, err = makeKey(w.disk, w.dir); err != nil {
				return err
			}
		case errors.Is(err, os.ErrNotExist):
			return fmt.Errorf("%s: %w", filepath.Join(w.dir, keyName), ErrNoKey)
		case err != nil:
			return err
		}
	}
	public := filepath.Join(w.dir, publicKeyName)
	if text, err := readPublicKey(w.dir); err == nil && strings.TrimSpace(string(text)) == w.key.Public() {
		return nil
	}
	if last != nil {
		return nil // Verify says what is wrong with key.pub; nothing here reads it
	}
	return writeNew(w.disk, w.dir, public, []byte(w.key.Public()+"\n"), 0o644)
}

// loadTree reads the frontier that the last checkpoint speaks of.
func (w *Writer) loadTree(last []byte) error {
	if last == nil {
		w.tree = &frontier{hashes: map[int64]tlog.Hash{}}
		return nil
	}
	key, err := ParsePublicKey(w.key.Public())
	if err != nil {
		return err
	}
	c, err := ParseCheckpoint(last, key)
	if errors.Is(err, errOtherKey) {
		return err
	}
	if err != nil {
		return fmt.Errorf("last checkpoint: %w (%w)", err, ErrDamaged)
	}
	tree, root, err := loadFrontier(c.Size, hashFile{w.hashes.file})
	if err != nil {
		return fmt.Errorf("%w (%w)", err, ErrDamaged)
	}
	if root != c.Root {
		return fmt.Errorf("expected root %s of %d entries, as the last checkpoint says, found %s (%w)", c.Root, c.Size, root, ErrDamaged)
	}
	w.tree = tree
	return nil
}

// settle finishes an append that was interrupted: where the entry was whole it makes its hashes and checkpoint whole, and a torn entry
// goes aside. lastEnd is where the last whole checkpoint ends.
func (w *Writer) settle(lastEnd int64) (*Recovery, error) {
	entriesEnd, behind, err := w.lastEntry()
	if err != nil {
		return nil, err
	}
	hashesEnd := tlog.StoredHashCount(w.tree.size) * tlog.HashSize
	recovery := &Recovery{}
	var entry, hashes, checkpoint []byte
	if line, whole := bytes.CutSuffix(behind, []byte("\n")); whole {
		e, err := ParseEntry(line)
		if err != nil || e.Number != w.tree.size {
			return nil, fmt.Errorf("%s: expected at most entry %d behind byte %d, found %.100q (%w)", entriesName, w.tree.size, entriesEnd, line, ErrDamaged)
		}
		if e.Number == 0 && keyOf(&e) != w.key.Public() {
			return nil, fmt.Errorf("entry 0: %w: expected %s, found %s", errOtherKey, w.key.Public(), keyOf(&e))
		}
		entry = behind
		if hashes, checkpoint, err = w.derive(line); err != nil {
			return nil, err
		}
		recovery.RolledForward = true
	}
	if err := w.settleFile(w.entries, entriesEnd, entry, recovery); err != nil {
		return nil, err
	}
	if err := w.settleFile(w.hashes, hashesEnd, hashes, recovery); err != nil {
		return nil, err
	}
	return recovery, w.settleFile(w.checkpoints, lastEnd, checkpoint, recovery)
}

// maxTailBytes bounds what one append can have left: the longest line.
const maxTailBytes = jsonline.MaxLineBytes + 1

// settleFile makes want stand in the file from byte at to its end. What is there already must be the beginning of it. Behind that,
// bytes that were never written may read as zeros after a loss of power; in the entries, whose next one nobody knows, anything without
// a newline is torn.
func (w *Writer) settleFile(f *appendFile, at int64, want []byte, recovery *Recovery) error {
	tail, err := io.ReadAll(io.NewSectionReader(f.file, at, maxTailBytes+1))
	if err != nil {
		return fmt.Errorf("read %s: %w", f.path, err)
	}
	common := len(want)
	if differ := differAt(want, tail); differ >= 0 {
		common = differ
	}
	if rest := tail[common:]; len(rest) > 0 {
		if len(tail) > maxTailBytes || f != w.entries && len(bytes.Trim(rest, "\x00")) > 0 {
			return fmt.Errorf("%s: byte %d is not what an interrupted append can have left there (%w)", f.path, at+int64(common), ErrDamaged)
		}
		aside := SetAside{File: filepath.Base(f.path), Offset: at + int64(common), WallNs: w.options.WallNs, Bytes: rest}
		if err := w.setAside(aside); err != nil {
			return err
		}
		recovery.SetAside = append(recovery.SetAside, aside)
		if err := f.file.Truncate(aside.Offset); err != nil {
			return diskError("cut "+f.path, err)
		}
	}
	return f.append(want[common:])
}

func (w *Writer) setAside(aside SetAside) error {
	line, err := json.Marshal(aside)
	if err != nil {
		return err
	}
	path := filepath.Join(w.dir, tornLogName)
	f, err := w.disk.open(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return diskError("open "+path, err)
	}
	_, err = f.Write(append(line, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return diskError("write "+path, err)
	}
	return diskError("sync "+w.dir, w.disk.syncDir(w.dir))
}

// lastEntry finds where the entry ends that the last checkpoint ends with, and what stands behind it: at most one line.
func (w *Writer) lastEntry() (end int64, behind []byte, err error) {
	info, err := w.entries.file.Stat()
	if err != nil {
		return 0, nil, err
	}
	// The newline before the last entry, that entry, and a whole one behind it.
	const window = 1 + 2*maxTailBytes
	from := max(0, info.Size()-window)
	text := make([]byte, info.Size()-from)
	if _, err := w.entries.file.ReadAt(text, from); err != nil {
		return 0, nil, fmt.Errorf("read %s: %w", w.entries.path, err)
	}
	begin := 0 // of what stands behind
	if w.tree.size > 0 {
		index := tlog.StoredHashIndex(0, w.tree.size-1)
		leaf, err := hashFile{w.hashes.file}.ReadHashes([]int64{index})
		if err != nil {
			return 0, nil, err
		}
		if begin = endOfLeaf(text, leaf[0]); begin == 0 {
			return 0, nil, fmt.Errorf("%s: expected entry %d, with leaf hash %s, as its last or last but one line (%w)",
				w.entries.path, w.tree.size-1, leaf[0], ErrDamaged)
		}
	}
	behind = text[begin:]
	if newline := bytes.IndexByte(behind, '\n'); newline >= 0 && newline < len(behind)-1 {
		return 0, nil, fmt.Errorf("%s: expected at most one entry behind byte %d, where the last checkpoint's part ends (%w)",
			w.entries.path, from+int64(begin), ErrDamaged)
	}
	return from + int64(begin), behind, nil
}

// endOfLeaf is where the line with that leaf hash ends, if it is one of the last two whole lines; else 0.
func endOfLeaf(text []byte, leaf tlog.Hash) int {
	end := bytes.LastIndexByte(text, '\n')
	for range 2 {
		if end < 0 {
			break
		}
		begin := bytes.LastIndexByte(text[:end], '\n') + 1
		if tlog.RecordHash(text[begin:end]) == leaf {
			return end + 1
		}
		end = begin - 1
	}
	return 0
}

// lastCheckpoint finds the last whole signed checkpoint and where it ends; nil and 0 where there is none.
func lastCheckpoint(f file) (signed []byte, end int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	const window = 2 * int64(maxCheckpointBytes) // a whole one, and a torn one behind it
	from := max(0, info.Size()-window)
	text := make([]byte, info.Size()-from)
	if _, err := f.ReadAt(text, from); err != nil {
		return nil, 0, fmt.Errorf("read %s: %w", checkpointsName, err)
	}
	// Every checkpoint begins with the origin's line, which is no other line of one.
	begin := []byte(Origin + "\n")
	for at := bytes.LastIndex(text, begin); at >= 0; at = bytes.LastIndex(text[:at], begin) {
		if _, n, err := leadingCheckpoint(text[at:]); err == nil {
			return text[at : at+n], from + int64(at+n), nil
		}
	}
	if from > 0 {
		return nil, 0, fmt.Errorf("%s: expected a whole checkpoint in its last %d bytes (%w)", checkpointsName, window, ErrDamaged)
	}
	return nil, 0, nil
}

// derive appends a line to the tree, and returns what follows from that: the stored hashes and the signed checkpoint.
func (w *Writer) derive(line []byte) (hashes, checkpoint []byte, err error) {
	stored, err := w.tree.stored(tlog.RecordHash(line))
	if err != nil {
		return nil, nil, err
	}
	for i := range stored {
		hashes = append(hashes, stored[i][:]...)
	}
	w.tree.add(stored)
	root, err := w.tree.root()
	if err != nil {
		return nil, nil, err
	}
	checkpoint, err = Checkpoint{Size: w.tree.size, Root: root}.sign(w.key.signer)
	return hashes, checkpoint, err
}

// Append makes an entry durable, with its hashes and a checkpoint, and returns its number. Number, Tool and SourceDigest are filled in.
// After an error of the disk the writer takes no more entries; the one that failed is finished or set aside by the next OpenWriter.
func (w *Writer) Append(e Entry) (number int64, err error) {
	if w.err != nil {
		return 0, w.err
	}
	e.Number, e.Tool, e.SourceDigest = w.tree.size, w.options.Tool, w.options.SourceDigest
	if err := e.check(); err != nil {
		return 0, err
	}
	line := appendEntry(nil, &e)
	if len(line) > jsonline.MaxLineBytes {
		return 0, fmt.Errorf("%w: %d bytes; at most %d can be read back", errEntry, len(line), jsonline.MaxLineBytes)
	}
	// A body may hold what the strict reader refuses.
	if _, err := ParseEntry(line); err != nil {
		return 0, err
	}
	hashes, checkpoint, err := w.derive(line)
	if err == nil {
		err = w.entries.append(append(line, '\n'))
	}
	if err == nil {
		err = w.hashes.append(hashes)
	}
	if err == nil {
		err = w.checkpoints.append(checkpoint)
	}
	if err != nil {
		w.err = fmt.Errorf("append entry %d: it does not count until the ledger is opened again, which finishes it or sets it aside: %w", e.Number, err)
		return 0, w.err
	}
	return e.Number, nil
}

// Size is the number of entries.
func (w *Writer) Size() int64 { return w.tree.size }

// Close frees the lock.
func (w *Writer) Close() error {
	var errs []error
	for _, f := range []*appendFile{w.entries, w.hashes, w.checkpoints} {
		if f != nil {
			errs = append(errs, f.file.Close())
		}
	}
	return errors.Join(append(errs, w.lock.release())...)
}
