package ledger

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"unicode/utf8"
)

// ManifestSchema names the form of manifest.json.
const ManifestSchema = "framebridge.session-manifest/1"

// Manifest is what sealing says about a session.
type Manifest struct {
	Schema    string           `json:"schema"`
	Name      string           `json:"name"`
	SessionID string           `json:"sessionId"`
	State     State            `json:"state"`
	Reason    string           `json:"reason"`
	Evidence  Evidence         `json:"evidence"`
	Tool      Tool             `json:"tool"` // that sealed it
	Counts    map[Type]int64   `json:"counts"`
	Rejected  int64            `json:"rejectedLines"`         // whole lines that cannot be read; 0 unless the disk lost something
	TornEvent *int64           `json:"tornEventAt,omitempty"` // byte offset in events.jsonl where a torn last line began; its bytes are in events.torn
	TornWire  *int64           `json:"tornWireAt,omitempty"`  // byte offset in wire.bin of a torn last payload, which is left there
	Files     []ManifestedFile `json:"files"`                 // every file but this one, by name
}

// ManifestedFile is one file of a sealed session.
type ManifestedFile struct {
	Name   string `json:"name"` // relative to the session directory, with slashes
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	// Inside is what a compressed file holds.
	Inside *ManifestedFile `json:"inside,omitempty"`
}

// maxManifestBytes bounds what is read of a manifest: a session has tens of files, and a bundle some more.
const maxManifestBytes = 4 << 20

// encode is the one form that a manifest has on disk.
func (m *Manifest) encode() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(m); err != nil {
		return nil, fmt.Errorf("encode manifest: %w", err)
	}
	return b.Bytes(), nil
}

// ParseManifest reads a manifest, which must be byte for byte as this program writes it.
func ParseManifest(text []byte) (*Manifest, error) {
	var m Manifest
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	if m.Schema != ManifestSchema {
		return nil, fmt.Errorf("manifest: expected schema %q, found %.60q", ManifestSchema, m.Schema)
	}
	again, err := m.encode()
	if err != nil {
		return nil, err
	}
	if at := differAt(text, again); at >= 0 {
		return nil, fmt.Errorf("manifest: byte %d is not as this program writes it; the file was changed", at)
	}
	for _, f := range m.Files {
		if !filepath.IsLocal(filepath.FromSlash(f.Name)) {
			return nil, fmt.Errorf("manifest: file name %.100q leads out of the session", f.Name)
		}
	}
	if _, _, err := m.log(); err != nil {
		return nil, err
	}
	return &m, nil
}

// log is the file that holds the session's lines, and the name that they would have in the other form.
func (m *Manifest) log() (named ManifestedFile, other string, err error) {
	forms := 0
	for _, f := range m.Files {
		switch f.Name {
		case EventsName:
			forms, named, other = forms+1, f, CompressedName
		case CompressedName:
			forms, named, other = forms+1, f, EventsName
		}
	}
	if forms != 1 {
		return ManifestedFile{}, "", fmt.Errorf("manifest: expected either %s or %s among its files, found %d of them", EventsName, CompressedName, forms)
	}
	return named, other, nil
}

// differAt is the first byte in which two texts differ, -1 where they are equal.
func differAt(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	if len(a) == len(b) {
		return -1
	}
	return min(len(a), len(b))
}

// ReadManifest reads a session's manifest; os.ErrNotExist where the session is not sealed.
func ReadManifest(dir string) (*Manifest, error) {
	f, err := openRegular(filepath.Join(dir, ManifestName))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxManifestBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxManifestBytes {
		return nil, fmt.Errorf("manifest: longer than %d bytes", maxManifestBytes)
	}
	return ParseManifest(text)
}

// digest is what a manifest says of bytes.
type digest struct {
	size   int64
	sha256 [sha256.Size]byte
}

func (d digest) file(name string) ManifestedFile {
	return ManifestedFile{Name: name, Size: d.size, SHA256: hex.EncodeToString(d.sha256[:])}
}

// watched is a reader that tells how many bytes came, and fails where what is told wants no more. saw may be nil.
type watched struct {
	io.Reader
	saw func(bytes int64) error
}

func (w watched) Read(b []byte) (int, error) {
	n, err := w.Reader.Read(b)
	if w.saw != nil {
		if err := w.saw(int64(n)); err != nil {
			return 0, err
		}
	}
	return n, err
}

// digestOf reads r to its end.
func digestOf(r io.Reader) (digest, error) {
	h := sha256.New()
	buf := make([]byte, 256<<10)
	var d digest
	for {
		n, err := r.Read(buf)
		h.Write(buf[:n])
		d.size += int64(n)
		if errors.Is(err, io.EOF) {
			h.Sum(d.sha256[:0])
			return d, nil
		}
		if err != nil {
			return digest{}, err
		}
	}
}

func digestFile(path string, saw func(bytes int64) error) (digest, error) {
	f, err := openRegular(path)
	if err != nil {
		return digest{}, err
	}
	defer f.Close()
	return digestOf(watched{f, saw})
}

// contents is what a session directory holds, each list in a manifest's order.
type contents struct {
	files    []string // that a manifest names: every regular file but itself and those left over
	leftover []string // the lock, and what an interrupted sealing did not finish
	strange  []strangeFile
}

// strangeFile is neither a file nor a directory: its bytes, if it has any, are not in the session.
type strangeFile struct{ name, kind string }

func (c *contents) isStrange(name string) bool {
	return slices.ContainsFunc(c.strange, func(s strangeFile) bool { return s.name == name })
}

func listSession(dir string) (*contents, error) {
	root, err := filepath.EvalSymlinks(dir) // WalkDir does not enter a link
	if err != nil {
		return nil, err
	}
	var c contents
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if !utf8.ValidString(name) {
			return fmt.Errorf("%q: a manifest can only name it in UTF-8; rename it", path)
		}
		if !entry.Type().IsRegular() {
			c.strange = append(c.strange, strangeFile{name, kindOf(entry.Type())})
			return nil
		}
		switch name {
		case lockName, ManifestName + unfinished, CompressedName + unfinished:
			c.leftover = append(c.leftover, name)
		case ManifestName:
		default:
			c.files = append(c.files, name)
		}
		return nil
	})
	slices.Sort(c.files)
	return &c, err
}

// VerifySession compares a sealed session with its manifest: that the same files are there, their sizes and hashes, and the counts of
// lines. It tells progress, which may be nil, how many bytes of the files came. An error means that it could not look, or that ctx ended;
// findings are what it saw, the leftovers last.
func VerifySession(ctx context.Context, dir string, progress func(bytes int64)) (*Manifest, []Finding, error) {
	m, err := ReadManifest(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, fmt.Errorf("%s is not sealed: it has no %s: %w", dir, ManifestName, err)
	}
	if err != nil {
		return nil, []Finding{{Where: ManifestName, What: err.Error()}}, nil
	}
	var found, leftovers []Finding
	report := func(where, format string, args ...any) {
		found = append(found, Finding{Where: where, What: fmt.Sprintf(format, args...)})
	}
	err = verifyFiles(dir, m, func(bytes int64) error {
		if progress != nil {
			progress(bytes)
		}
		return ctx.Err()
	}, report, func(where string) { leftovers = append(leftovers, leftover(where)) })
	if err == nil && len(found) == 0 { // what a damaged log tells says nothing more
		err = verifyManifest(dir, m, func(int64) error { return ctx.Err() }, report)
	}
	if ctx.Err() != nil {
		return nil, nil, ctx.Err() // some findings are that it ended
	}
	return m, append(found, leftovers...), err
}

func leftover(where string) Finding {
	return Finding{Where: where, What: "an interrupted sealing left it, and what was sealed is as it was; `framebridge recover` removes it", Leftover: true}
}

// verifyFiles compares the files of a session with what its manifest says of them. It tells left of those which a process that was killed
// right after the manifest had not removed yet; what they hold must be what it left, so that nothing can be hidden there.
func verifyFiles(dir string, m *Manifest, saw func(bytes int64) error, report func(where, format string, args ...any), left func(where string)) error {
	held, err := listSession(dir)
	if err != nil {
		return err
	}
	for _, s := range held.strange {
		report(s.name, "expected files and directories only, found %s", s.kind)
	}
	for _, name := range held.leftover {
		path := filepath.Join(dir, name)
		if name == lockName && isLock(path) {
			left(name)
		} else {
			report(name, "it is not what a sealing leaves behind its manifest; `framebridge recover` removes it")
		}
	}
	listed := map[string]bool{}
	for _, f := range m.Files {
		listed[f.Name] = true
		if held.isStrange(f.Name) {
			continue
		}
		if !slices.Contains(held.files, f.Name) {
			report(f.Name, "the manifest names it, and it is not there")
			continue
		}
		got, err := digestFile(filepath.Join(dir, filepath.FromSlash(f.Name)), saw)
		if err != nil {
			return err
		}
		compare(report, f, got.file(f.Name))
	}
	named, other, err := m.log()
	if err != nil {
		return err
	}
	for _, name := range held.files {
		if listed[name] {
			continue
		}
		if name == other && named.Inside != nil {
			got, err := digestFile(filepath.Join(dir, name), saw)
			if err != nil {
				return err
			}
			if got.file(named.Inside.Name) == *named.Inside {
				left(name)
				continue
			}
		}
		report(name, "the manifest does not name it")
	}
	return nil
}

func compare(report func(where, format string, args ...any), want, got ManifestedFile) {
	if got.Size != want.Size {
		report(want.Name, "expected %d bytes, found %d", want.Size, got.Size)
	} else if got.SHA256 != want.SHA256 {
		report(want.Name, "expected SHA-256 %s, found %s", want.SHA256, got.SHA256)
	}
}

// verifyManifest reads the log as anybody would, and compares what it tells with what the manifest says of it, and with what is
// inside a compressed one.
func verifyManifest(dir string, m *Manifest, saw func(bytes int64) error, report func(where, format string, args ...any)) error {
	lines, err := OpenLines(dir)
	if err != nil {
		return err
	}
	defer lines.Close()
	scan, err := scanLog(NewReader(watched{lines, saw}))
	if err != nil {
		report(EventsName, "%v", err)
		return nil
	}
	if scan.start == nil || scan.end == nil {
		report(EventsName, "expected session.start first and session.end last")
		return nil
	}
	told, err := describe(dir, &scan, m.Tool)
	if err != nil {
		return err
	}
	told.Files = m.Files
	said, err := m.encode()
	if err != nil {
		return err
	}
	text, err := told.encode()
	if err != nil {
		return err
	}
	if at := differAt(said, text); at >= 0 {
		report(ManifestName, "it says %s, and the log %s", lineAt(said, at), lineAt(text, at))
	}
	for _, f := range m.Files {
		if f.Inside == nil {
			continue
		}
		inside, err := digestCompressed(filepath.Join(dir, filepath.FromSlash(f.Name)), saw)
		if err != nil {
			report(f.Name, "%v", err)
			continue
		}
		compare(report, *f.Inside, inside.file(f.Inside.Name))
	}
	return nil
}

func lineAt(text []byte, at int) []byte {
	begin := bytes.LastIndexByte(text[:at], '\n') + 1
	line, _, _ := bytes.Cut(text[begin:], []byte("\n"))
	return bytes.Trim(line, " ,")
}

func digestCompressed(path string, saw func(bytes int64) error) (digest, error) {
	f, err := openRegular(path)
	if err != nil {
		return digest{}, err
	}
	defer f.Close()
	d, err := newDecoder(watched{f, saw})
	if err != nil {
		return digest{}, err
	}
	defer d.Close()
	return digestOf(d)
}
