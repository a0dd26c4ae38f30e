package ledger

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// VerifyOptions say what to compare with, and how hard to work.
type VerifyOptions struct {
	Key      string         // the public key that the checkpoints must be signed with; "": the one that the ledger itself names
	Against  []byte         // a signed checkpoint that was kept elsewhere; nil: none
	Jobs     int            // signatures and files checked at a time, beside the reading; below 1: 1
	Progress func(Progress) // nil: nobody wants to know; called from several goroutines, one at a time
}

// Progress is how far a verification has come.
type Progress struct {
	Entries int64
	Files   int64 // that were hashed
	Bytes   int64 // of those files
}

// Report is what a verification found.
type Report struct {
	Progress
	Key        string     // the public key that the signatures were checked with
	Checkpoint Checkpoint // of all entries that were verified
	Findings   []Finding  // in the order of entries
	// Unfinished are the traces of an append that was interrupted: nothing in them had been acknowledged, and the next OpenWriter
	// finishes it or sets it aside.
	Unfinished []Finding
	// Leftovers are what interrupted sealings left in sessions that entries name: what was sealed is as it was.
	Leftovers []Finding
	// Writer is who held the lock when the verification began. What stood behind the last checkpoint was then left to him.
	Writer *HeldError
}

// OK says that nothing is wrong, and no append unfinished.
func (r *Report) OK() bool { return len(r.Findings) == 0 && len(r.Unfinished) == 0 }

// Verify reads the whole ledger in dir: that its entries hash into the tree as stored, that every checkpoint is signed and tells the root
// that its entries have (which makes each consistent with the one before), and that every file that an entry names still has its hash.
// It changes nothing, and its memory does not grow with the ledger. An error means that it could not look, or that ctx ended.
//
// Entries cut off the end together with their hashes and checkpoints leave a good, shorter ledger: only Against finds that.
//
// It works with Jobs goroutines, all of which have ended when it returns: 100,000 signatures take 5 s of one core, and named files as long
// as the disk wants.
func Verify(ctx context.Context, dir string, options VerifyOptions) (*Report, error) {
	v := &verification{ctx: ctx, dir: dir, options: options, tree: &frontier{hashes: map[int64]tlog.Hash{}}, named: map[NamedFile]bool{}}
	err := v.open()
	if err == nil {
		v.startJobs()
		err = v.run()
		v.endJobs()
	}
	for _, f := range v.files {
		err = errors.Join(err, f.Close())
	}
	if ctx.Err() != nil {
		err = ctx.Err() // some findings are that it ended
	}
	if err != nil {
		return nil, fmt.Errorf("verify %s: %w", dir, err)
	}
	v.report.Findings = v.findings.merged()
	slices.SortFunc(v.report.Leftovers, func(a, b Finding) int { return strings.Compare(a.Where, b.Where) })
	return &v.report, nil
}

type verification struct {
	ctx     context.Context
	dir     string
	options VerifyOptions
	report  Report
	key     note.Verifier // nil where no key could be found

	files       []*os.File
	entries     lineReader
	ahead       *entryLine    // read, and not used yet
	hashes      *bufio.Reader // in their order
	stored      hashFile      // the same, anywhere
	leaves      int64         // whose hashes are stored
	points      *bufio.Reader // the checkpoints
	pointsAt    int64         // bytes of them that were used
	pointsBytes int64         // bytes of them that were written

	tree *frontier // of the entries so far

	jobs     chan func()
	ended    sync.WaitGroup
	findings findings
	telling  sync.Mutex
	named    map[NamedFile]bool // that were checked
}

func (v *verification) open() error {
	if err := v.lookForWriter(); err != nil {
		return err
	}
	var sizes [3]int64
	var missing []string
	// In this order, since an append goes the other way: whatever comes while this reads stands behind the last checkpoint.
	for i, name := range []string{checkpointsName, hashesName, entriesName} {
		f, err := openRegular(filepath.Join(v.dir, name))
		if errors.Is(err, os.ErrNotExist) {
			missing = append(missing, name)
			f, err = os.Open(os.DevNull) // it reads as empty
		}
		if err != nil {
			return err
		}
		v.files = append(v.files, f)
		info, err := f.Stat()
		if err != nil {
			return err
		}
		sizes[i] = info.Size()
	}
	if len(missing) == len(sizes) {
		return ErrNoLedger
	}
	if sizes != [3]int64{} { // else it was killed while it was made, before its first entry
		for _, name := range missing {
			v.find(0, "missing", name, "the file is not there")
		}
	}
	if err := v.lookForWriter(); err != nil { // who came meanwhile
		return err
	}
	section := func(i int) *io.SectionReader { return io.NewSectionReader(v.files[i], 0, sizes[i]) }
	v.points = bufio.NewReaderSize(section(0), 64<<10)
	// Zeros at its end were never written: a loss of power left them, and what they belong to is not whole.
	end := make([]byte, min(sizes[0], int64(maxCheckpointBytes)))
	if _, err := v.files[0].ReadAt(end, sizes[0]-int64(len(end))); err != nil {
		return fmt.Errorf("read %s: %w", checkpointsName, err)
	}
	v.pointsBytes = sizes[0] - int64(len(end)-len(bytes.TrimRight(end, "\x00")))
	v.hashes, v.stored, v.leaves = bufio.NewReaderSize(section(1), 64<<10), hashFile{section(1)}, leavesIn(sizes[1]/tlog.HashSize)
	v.entries = newLineReader(section(2))
	return v.chooseKey()
}

func (v *verification) lookForWriter() error {
	if v.report.Writer != nil {
		return nil
	}
	writer, err := Holder(v.dir)
	v.report.Writer = writer
	return err
}

// chooseKey takes the key that was given, or whichever of those that the ledger names, in entry 0 and key.pub, has signed a checkpoint:
// one changed byte in one place must not make all signatures look wrong.
func (v *verification) chooseKey() error {
	var candidates []string
	public, err := readPublicKey(v.dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if v.options.Key != "" {
		if _, err := ParsePublicKey(v.options.Key); err != nil {
			return err
		}
		candidates = []string{strings.TrimSpace(v.options.Key)}
	} else {
		if e, _, err := ReadEntry(v.dir, 0); err == nil {
			candidates = append(candidates, keyOf(&e))
		}
		candidates = append(candidates, strings.TrimSpace(string(public)))
	}
	first, err := v.points.Peek(maxCheckpointBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	last, _, _ := lastCheckpoint(v.files[0]) // where there is none that will be found
	for _, text := range candidates {
		key, err := ParsePublicKey(text)
		if err == nil && (v.key == nil || isSigned(first, key) || isSigned(last, key)) {
			v.key, v.report.Key = key, text
			if isSigned(first, key) || isSigned(last, key) {
				break
			}
		}
	}
	switch {
	case v.pointsBytes == 0:
	case v.key == nil:
		v.find(0, "key", entriesName+": entry 0", "it names no public key, and %s holds none: no signature could be checked", publicKeyName)
	case string(public) != v.report.Key+"\n":
		v.find(0, "key", publicKeyName, "expected %s, found %.200q", v.report.Key, public)
	}
	return nil
}

func isSigned(text []byte, key note.Verifier) bool {
	c, n, err := leadingCheckpoint(text)
	return err == nil && c.verify(text[:n], key) == nil
}

// errEnd says that neither an entry nor its hash is there, so that nothing more can be computed.
var errEnd = errors.New("end")

// run walks entries, hashes and checkpoints in step, for as long as there are checkpoints. A last one that is not whole is a trace.
func (v *verification) run() error {
	for v.pointsBytes-v.pointsAt >= int64(len(Checkpoint{Size: v.tree.size + 1}.lead())+signatureChars+1) {
		if v.ctx.Err() != nil {
			return v.ctx.Err()
		}
		err := v.step(v.tree.size)
		if errors.Is(err, errEnd) {
			return v.against()
		}
		if err != nil {
			return err
		}
		v.tell(func(p *Progress) { p.Entries++ })
	}
	if err := v.unfinished(); err != nil {
		return err
	}
	return v.against()
}

// step verifies entry n with its hashes and its checkpoint. Of the three, two tell which one was changed, and then the rest is verified as
// if it had not been.
func (v *verification) step(n int64) error {
	entry, err := v.takeEntry(n)
	if err != nil {
		return err
	}
	trusted := entry != nil
	if !trusted {
		leaf, ok := v.leaf(n)
		if !ok {
			return errEnd
		}
		entry = &entryLine{leaf: leaf}
	}
	want, err := v.tree.stored(entry.leaf)
	if err != nil {
		return err
	}
	found := make([]tlog.Hash, 0, len(want))
	for range want {
		var h tlog.Hash
		if _, err := io.ReadFull(v.hashes, h[:]); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			v.find(n, "hash", fmt.Sprintf("%s: hash %d", hashesName, tlog.StoredHashIndex(0, n)+int64(len(found))), "the file ends before it")
			break
		} else if err != nil {
			return err
		}
		found = append(found, h)
	}
	if trusted && len(found) > 0 && found[0] != entry.leaf {
		other, err := v.tree.stored(found[0])
		if err != nil {
			return err
		}
		if v.leadsToCheckpoint(other) && !v.leadsToCheckpoint(want) {
			v.find(n, "entry", entry.where(n), "it hashes to %s, and what was signed to %s: the entry was changed", entry.leaf, found[0])
			want, trusted = other, false
		}
	}
	for i, h := range found {
		if h != want[i] {
			index := tlog.StoredHashIndex(0, n) + int64(i)
			v.find(n, "hash", fmt.Sprintf("%s: hash %d, byte %d", hashesName, index, index*tlog.HashSize), "expected %s, as the entries give it, found %s", want[i], h)
		}
	}
	v.tree.add(want)
	if err := v.checkpoint(n, entry); err != nil {
		return err
	}
	if trusted {
		v.namedFiles(n, entry.entry.Files)
	}
	return nil
}

// leadsToCheckpoint says whether appending a leaf, whose stored hashes are given, gives the root that the next checkpoint tells.
func (v *verification) leadsToCheckpoint(stored []tlog.Hash) bool {
	text, _ := v.points.Peek(maxCheckpointBytes)
	c, _, err := leadingCheckpoint(text)
	if err != nil || c.Size != v.tree.size+1 {
		return false
	}
	next := v.tree.clone()
	next.add(stored)
	root, err := next.root()
	return err == nil && root == c.Root
}

// leaf is the stored hash of entry n, if it is stored.
func (v *verification) leaf(n int64) (tlog.Hash, bool) {
	if n < 0 || n >= v.leaves {
		return tlog.Hash{}, false
	}
	h, err := v.stored.ReadHashes([]int64{tlog.StoredHashIndex(0, n)})
	if err != nil {
		return tlog.Hash{}, false
	}
	return h[0], true
}

// entryLine is a line of the entries.
type entryLine struct {
	text         []byte
	line, offset int64 // 0, 0 where there is none
	leaf         tlog.Hash
	entry        Entry
	err          error // why it is no entry
}

func (l *entryLine) where(n int64) string {
	if l.line == 0 {
		return fmt.Sprintf("%s: entry %d", entriesName, n)
	}
	return fmt.Sprintf("%s: entry %d, line %d, byte %d", entriesName, n, l.line, l.offset)
}

// nextLine reads a line, nil at the end. Its text stays good when ahead is asked for.
func (v *verification) nextLine() (*entryLine, error) {
	if l := v.ahead; l != nil {
		v.ahead = nil
		return l, nil
	}
	text, err := v.entries.next()
	switch {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil && !errors.Is(err, errTorn) && !errors.Is(err, errTooLong):
		return nil, err
	}
	l := &entryLine{text: bytes.Clone(text), line: v.entries.Line(), offset: v.entries.Offset(), err: err}
	if err == nil {
		l.leaf = tlog.RecordHash(l.text)
		l.entry, l.err = ParseEntry(l.text)
	}
	return l, nil
}

// takeEntry finds the line of entry n, nil where it is not there or is no entry, which it then reports.
func (v *verification) takeEntry(n int64) (*entryLine, error) {
	for {
		l, err := v.nextLine()
		if err != nil {
			return nil, err
		}
		if l == nil {
			v.find(n, "entry", fmt.Sprintf("%s: entry %d, byte %d", entriesName, n, v.entries.Offset()), "the file ends before it")
			return nil, nil
		}
		if l.err == nil && l.entry.Number == n {
			return l, nil
		}
		if leaf, ok := v.leaf(l.entry.Number); l.err == nil && ok && leaf == l.leaf { // an entry of this ledger, elsewhere
			if l.entry.Number < n {
				v.find(n, "entry", l.where(n), "entry %d stands here, out of its place or once more", l.entry.Number)
				continue
			}
			v.ahead = l
			v.find(n, "entry", l.where(n), "entry %d stands here: entries %d to %d are not in their place", l.entry.Number, n, l.entry.Number-1)
			return nil, nil
		}
		next, err := v.nextLine()
		if err != nil {
			return nil, err
		}
		v.ahead = next
		if leaf, ok := v.leaf(n); next != nil && ok && leaf == next.leaf {
			v.find(n, "entry", l.where(n), "a line was inserted before it")
			continue
		}
		why := l.err
		if why == nil {
			why = fmt.Errorf("its number is %d", l.entry.Number)
		}
		v.find(n, "entry", l.where(n), "%v: it was changed", why)
		return nil, nil
	}
}

// checkpoint verifies the checkpoint behind entry n, which is in the tree.
func (v *verification) checkpoint(n int64, entry *entryLine) error {
	root, err := v.tree.root()
	if err != nil {
		return err
	}
	want := Checkpoint{Size: n + 1, Root: root}
	v.report.Checkpoint = want
	for {
		text, err := v.points.Peek(2 * maxCheckpointBytes)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		where := fmt.Sprintf("%s: of %d entries, byte %d", checkpointsName, n+1, v.pointsAt)
		found, length, err := leadingCheckpoint(text)
		if err == nil && found == want {
			v.checkSignature(n, where, want, bytes.Clone(text[:length]))
			return v.skipPoints(length)
		}
		signed := v.key != nil && isSigned(text, v.key)
		switch {
		case len(text) == 0:
			v.find(n, "checkpoint", where, "the file ends before it")
			return nil
		case signed && found.Size == n+1:
			v.find(n, "root", entry.where(n), "entries and hashes give root %s, and the signed checkpoint of %d entries %s: they were changed together", root, n+1, found.Root)
			return v.skipPoints(length)
		case signed && found.Size > n+1:
			v.find(n, "checkpoint", where, "that of %d entries stands here: it is not in its place", found.Size)
			return nil
		case signed:
			v.find(n, "checkpoint", where, "that of %d entries stands here, out of its place or once more", found.Size)
			if err := v.skipPoints(length); err != nil {
				return err
			}
			continue
		}
		expected := want.lead() + "and a signature"
		at := differAt(text, []byte(expected))
		v.find(n, "checkpoint", where, "byte %d: expected %.60q, found %.60q: it was changed", v.pointsAt+int64(at), expected[at:], text[at:])
		// The next one begins where the origin's line stands again.
		length = len(text)
		if next := bytes.Index(text[1:], []byte(Origin+"\n")); next >= 0 {
			length = 1 + next
		}
		return v.skipPoints(length)
	}
}

func (v *verification) skipPoints(n int) error {
	v.pointsAt += int64(n)
	_, err := v.points.Discard(n)
	return err
}

func (v *verification) checkSignature(n int64, where string, c Checkpoint, signed []byte) {
	if v.key == nil {
		return
	}
	v.jobs <- func() {
		if err := c.verify(signed, v.key); err != nil {
			v.find(n, "checkpoint", where, "%v", err)
		}
	}
}

// unfinished looks at what stands behind the last checkpoint and its entry.
func (v *verification) unfinished() error {
	if v.report.Writer != nil {
		return nil
	}
	n := v.tree.size
	var hashes, lead []byte // that belong to a whole entry behind the last checkpoint
	l, err := v.nextLine()
	if err != nil {
		return err
	}
	switch {
	case l == nil:
	case errors.Is(l.err, errTorn):
		v.trace(l.where(n), "a torn entry of %d bytes", v.entries.offset-l.offset)
	case l.err == nil && l.entry.Number == n:
		v.trace(l.where(n), "the entry is whole, and its checkpoint is not")
		stored, err := v.tree.stored(l.leaf)
		if err != nil {
			return err
		}
		for i := range stored {
			hashes = append(hashes, stored[i][:]...)
		}
		next := v.tree.clone()
		next.add(stored)
		root, err := next.root()
		if err != nil {
			return err
		}
		lead = []byte(Checkpoint{Size: n + 1, Root: root}.lead())
		if more, err := v.nextLine(); err != nil {
			return err
		} else if more != nil {
			v.find(n+1, "entry", more.where(n+1), "no checkpoint knows of this line")
		}
	default:
		v.find(n, "entry", l.where(n), "no checkpoint knows of this line")
	}
	count := tlog.StoredHashCount(n)
	if err := v.unfinishedFile(n, fmt.Sprintf("%s: hash %d, byte %d", hashesName, count, count*tlog.HashSize), v.hashes, hashes, false); err != nil {
		return err
	}
	// A signature cannot be made here; its bytes may be any.
	return v.unfinishedFile(n, fmt.Sprintf("%s: of %d entries, byte %d", checkpointsName, n+1, v.pointsAt), v.points, lead, len(lead) > 0)
}

// unfinishedFile looks at the rest of a file: it must be the beginning of want, or, where open is set, begin with it. Zeros may follow.
func (v *verification) unfinishedFile(n int64, where string, rest io.Reader, want []byte, open bool) error {
	const boundBytes int64 = 2*int64(maxCheckpointBytes) + maxProofHashes*tlog.HashSize
	text, err := io.ReadAll(io.LimitReader(rest, boundBytes))
	if err != nil || len(text) == 0 {
		return err
	}
	at := differAt(text, want)
	if at < 0 || open && at == len(want) || len(bytes.Trim(text[at:], "\x00")) == 0 {
		v.trace(where, "%d bytes for entry %d", len(text), n)
	} else {
		v.find(n, "behind", where, "%d bytes further: not what an interrupted append leaves: %.60q", at, text[at:])
	}
	return nil
}

func (v *verification) trace(where, format string, args ...any) {
	v.report.Unfinished = append(v.report.Unfinished, Finding{Where: where, What: fmt.Sprintf(format, args...)})
}

// against compares with a checkpoint that was kept elsewhere.
func (v *verification) against() error {
	if v.options.Against == nil {
		return nil
	}
	n := v.tree.size
	const where = "the checkpoint kept elsewhere"
	if v.key == nil {
		v.find(n, "against", where, "no public key is here to check it with; give --key")
		return nil
	}
	c, err := ParseCheckpoint(v.options.Against, v.key)
	if err != nil {
		v.find(n, "against", where, "%v", err)
		return nil
	}
	if c.Size > n {
		v.find(n, "against", where, "it speaks of %d entries, and here are %d: entries were cut off", c.Size, n)
		return nil
	}
	root, err := v.tree.root()
	if err != nil {
		return err
	}
	proof, err := tlog.ProveTree(n, c.Size, v.stored)
	if err == nil {
		err = tlog.CheckTree(proof, n, root, c.Size, c.Root)
	}
	if err != nil {
		v.find(n, "against", where, "the first %d entries here are not those that it was signed for: the history was rewritten (%v)", c.Size, err)
	}
	return nil
}

// maxNamed bounds how many files are remembered as checked. Past it some are hashed again.
const maxNamed = 1 << 14

func (v *verification) namedFiles(n int64, files []NamedFile) {
	for _, f := range files {
		if v.named[f] {
			continue
		}
		if len(v.named) == maxNamed {
			clear(v.named)
		}
		v.named[f] = true
		v.jobs <- func() { v.namedFile(n, f) }
	}
}

func (v *verification) namedFile(n int64, f NamedFile) {
	path := filepath.FromSlash(f.Path)
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(v.dir), path)
	}
	where := func(name string) string { return fmt.Sprintf("%s: named by entry %d", name, n) }
	hashed := func(bytes int64) error {
		v.tell(func(p *Progress) { p.Bytes += bytes })
		return v.ctx.Err()
	}
	got, err := digestFile(path, hashed)
	if err != nil {
		v.find(n, "file", where(f.Path), "%v", err)
		return
	}
	v.tell(func(p *Progress) { p.Files++ })
	if sum := got.file(f.Path).SHA256; sum != f.SHA256 {
		v.find(n, "file", where(f.Path), "expected SHA-256 %s, found %s", f.SHA256, sum)
		return
	}
	if filepath.Base(path) != ManifestName {
		return
	}
	dir := filepath.Dir(path)
	inSession := func(name string) string { return where(filepath.ToSlash(filepath.Join(filepath.Dir(f.Path), name))) }
	m, err := ReadManifest(dir)
	if err == nil {
		err = verifyFiles(dir, m, hashed, func(name, format string, args ...any) {
			v.find(n, "file", inSession(name), format, args...)
		}, func(name string) {
			v.telling.Lock()
			defer v.telling.Unlock()
			v.report.Leftovers = append(v.report.Leftovers, leftover(inSession(name)))
		})
		v.tell(func(p *Progress) { p.Files += int64(len(m.Files)) })
	}
	if err != nil {
		v.find(n, "file", where(f.Path), "%v", err)
	}
}

func (v *verification) startJobs() {
	v.jobs = make(chan func(), 64)
	for range max(1, v.options.Jobs) {
		v.ended.Add(1)
		go func() {
			defer v.ended.Done()
			for job := range v.jobs {
				job()
			}
		}()
	}
}

func (v *verification) endJobs() {
	close(v.jobs)
	v.ended.Wait()
}

func (v *verification) tell(change func(*Progress)) {
	v.telling.Lock()
	defer v.telling.Unlock()
	change(&v.report.Progress)
	if v.options.Progress != nil {
		v.options.Progress(v.report.Progress)
	}
}

func (v *verification) find(n int64, class, where, format string, args ...any) {
	v.findings.add(found{n, n, class, Finding{Where: where, What: fmt.Sprintf(format, args...)}})
}
