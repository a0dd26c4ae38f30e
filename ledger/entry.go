package ledger

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/framebridge/framebridge/internal/jsonline"
)

// Kind is what an entry of the attempt ledger says (ledger.md).
type Kind string

const (
	KindLedgerOpen   Kind = "ledger.open" // entry 0
	KindAttemptOpen  Kind = "attempt.open"
	KindAttemptAdmit Kind = "attempt.admit"
	KindRoundOpen    Kind = "round.open"
	KindRoundSession Kind = "round.session" // without an attempt: a session that was recorded outside of one
	KindRoundLab27   Kind = "round.lab27"
	KindRoundOracle  Kind = "round.oracle"
	KindRoundGate    Kind = "round.gate"
	KindRoundClose   Kind = "round.close"
	KindAttemptFail  Kind = "attempt.fail"
	KindAttemptClose Kind = "attempt.close"
	KindNote         Kind = "note"
)

var kinds = []Kind{KindLedgerOpen, KindAttemptOpen, KindAttemptAdmit, KindRoundOpen, KindRoundSession, KindRoundLab27, KindRoundOracle,
	KindRoundGate, KindRoundClose, KindAttemptFail, KindAttemptClose, KindNote}

// Entry is one line of entries.jsonl, and leaf Number of the tree.
type Entry struct {
	Number       int64 // 0, 1, 2 …
	Kind         Kind
	WallNs       int64  // Unix time
	MonotonicNs  int64  // this host's monotonic clock
	Attempt      string // UUID, "" where the entry belongs to none
	Evidence     Evidence
	Tool         Tool
	SourceDigest string // SHA-256 of the tool's source in hex, "" where it is not known
	Files        []NamedFile
	Body         json.RawMessage // what the kind carries: an object without white space
}

// NamedFile is a file that an entry vouches for. A session is named by its manifest.json, which names the rest.
type NamedFile struct {
	Path   string // with slashes; relative to the root where it lies below it, else absolute
	SHA256 string // hex
}

var errEntry = errors.New("entry")

func (e *Entry) check() error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{errEntry}, args...)...)
	}
	if e.Number < 0 {
		return fail("entry: expected 0 or more, found %d", e.Number)
	}
	if !slices.Contains(kinds, e.Kind) {
		return fail("kind: %.60q is not known", e.Kind)
	}
	if e.Attempt != "" {
		if id, err := uuid.Parse(e.Attempt); err != nil || id.String() != e.Attempt {
			return fail("attempt: expected a UUID in lower case, found %.60q", e.Attempt)
		}
	}
	if !e.Evidence.known() {
		return fail("evidence: expected E2, E3 or E4, found %.20q", e.Evidence)
	}
	if e.SourceDigest != "" && !isSHA256(e.SourceDigest) {
		return fail("sourceDigest: expected a SHA-256 in lower-case hex, found %.80q", e.SourceDigest)
	}
	for _, f := range e.Files {
		if path := filepath.FromSlash(f.Path); !utf8.ValidString(path) || filepath.Clean(path) != path || !filepath.IsLocal(path) && !filepath.IsAbs(path) {
			return fail("files: expected a clean path below the root, or an absolute one, found %.200q", f.Path)
		}
		if !isSHA256(f.SHA256) {
			return fail("files: expected a SHA-256 in lower-case hex for %.200q, found %.80q", f.Path, f.SHA256)
		}
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, e.Body); err != nil {
		return fail("body: %w", err)
	}
	if len(e.Body) == 0 || e.Body[0] != '{' || !bytes.Equal(compact.Bytes(), e.Body) {
		return fail("body: expected an object without white space, found %.60q", e.Body)
	}
	return nil
}

func isSHA256(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == 32 && hex.EncodeToString(b) == s
}

// appendEntry appends the entry's one form, without a newline. It is what the leaf hashes.
func appendEntry(dst []byte, e *Entry) []byte {
	dst = append(dst, `{"entry":`...)
	dst = strconv.AppendInt(dst, e.Number, 10)
	dst = appendText(dst, "kind", string(e.Kind))
	dst = appendInt(dst, "wallNs", e.WallNs)
	dst = appendInt(dst, "monotonicNs", e.MonotonicNs)
	dst = appendTextOrNull(dst, "attempt", e.Attempt)
	dst = appendText(dst, "evidence", string(e.Evidence))
	dst = append(dst, `,"tool":{"name":`...)
	dst = jsonline.AppendString(dst, e.Tool.Name)
	dst = appendText(dst, "version", e.Tool.Version)
	dst = append(dst, '}')
	dst = appendTextOrNull(dst, "sourceDigest", e.SourceDigest)
	dst = append(dst, `,"files":[`...)
	for i, f := range e.Files {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"path":`...)
		dst = jsonline.AppendString(dst, f.Path)
		dst = appendText(dst, "sha256", f.SHA256)
		dst = append(dst, '}')
	}
	dst = append(dst, `],"body":`...)
	dst = append(dst, e.Body...)
	return append(dst, '}')
}

func appendTextOrNull(dst []byte, key, v string) []byte {
	if v == "" {
		return append(appendKey(dst, key), "null"...)
	}
	return appendText(dst, key, v)
}

// ParseEntry reads an entry, which must be byte for byte as this program writes it.
func ParseEntry(line []byte) (Entry, error) {
	var e Entry
	var p Parser
	s := &p.scanner
	var kind, evidence string
	s.Start(line)
	for s.Next() {
		switch string(s.Key()) {
		case "entry":
			p.int(0, &e.Number)
		case "kind":
			p.text(1, &kind)
		case "wallNs":
			p.int(2, &e.WallNs)
		case "monotonicNs":
			p.int(3, &e.MonotonicNs)
		case "attempt":
			p.text(4, &e.Attempt)
		case "evidence":
			p.text(5, &evidence)
		case "tool":
			p.tool(6, &e.Tool)
		case "sourceDigest":
			p.text(7, &e.SourceDigest)
		case "files":
			ok := s.Array()
			for ok && s.Next() {
				var f NamedFile
				p.object(8, func(key []byte) {
					switch string(key) {
					case "path":
						p.text(0, &f.Path)
					case "sha256":
						p.text(1, &f.SHA256)
					}
				}, "path", "sha256")
				e.Files = append(e.Files, f)
			}
		case "body":
			e.Body = bytes.Clone(s.Raw())
		}
	}
	if err := s.End(); err != nil {
		return Entry{}, fmt.Errorf("%w: %w", errEntry, err)
	}
	e.Kind, e.Evidence = Kind(kind), Evidence(evidence)
	if err := e.check(); err != nil {
		return Entry{}, err
	}
	if at := differAt(line, appendEntry(nil, &e)); at >= 0 {
		return Entry{}, fmt.Errorf("%w: column %d is not as this program writes it", errEntry, at+1)
	}
	return e, nil
}
