package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// A proof is text that stands alone: this line, the entry's line, the hashes beside its way up the tree, one a line, an empty line, and
// the signed checkpoint of the tree.
const proofHeader = "framebridge ledger proof v1"

// maxProofHashes is the height of the largest tree.
const maxProofHashes = 63

var errProof = errors.New("proof")

// ProveInclusion makes the proof that the ledger in dir holds its entry n, under its latest checkpoint.
func ProveInclusion(dir string, n int64) ([]byte, error) {
	signed, err := LatestCheckpoint(dir)
	if err != nil {
		return nil, err
	}
	c, _, err := leadingCheckpoint(signed)
	if err != nil {
		return nil, err
	}
	if n < 0 || n >= c.Size {
		return nil, fmt.Errorf("no entry %d: the latest checkpoint covers entries 0 to %d", n, c.Size-1)
	}
	_, line, err := ReadEntry(dir, n)
	if err != nil {
		return nil, err
	}
	f, err := openLedgerFile(dir, hashesName)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	path, err := tlog.ProveRecord(c.Size, n, hashFile{f})
	if err != nil {
		return nil, err
	}
	// Whoever gets the proof cannot tell which of the files is wrong; here it can still be said.
	if err := tlog.CheckRecord(path, c.Size, c.Root, n, tlog.RecordHash(line)); err != nil {
		return nil, fmt.Errorf("entry %d is not in the tree that the latest checkpoint signs: %w", n, ErrDamaged)
	}
	return appendProof(nil, line, path, signed), nil
}

func appendProof(dst, line []byte, path tlog.RecordProof, signed []byte) []byte {
	dst = append(dst, proofHeader+"\n"...)
	dst = append(append(dst, line...), '\n')
	for _, h := range path {
		dst = append(append(dst, h.String()...), '\n')
	}
	dst = append(dst, '\n')
	return append(dst, signed...)
}

// VerifyProof checks a proof with nothing but the ledger's public key, and returns what it proves: that this entry is in the ledger that
// the checkpoint describes.
func VerifyProof(proof []byte, key note.Verifier) (Entry, Checkpoint, error) {
	fail := func(format string, args ...any) (Entry, Checkpoint, error) {
		return Entry{}, Checkpoint{}, fmt.Errorf("%w: "+format, append([]any{errProof}, args...)...)
	}
	top, signed, ok := bytes.Cut(proof, []byte("\n\n"))
	lines := strings.Split(string(top), "\n")
	if !ok || lines[0] != proofHeader || len(lines) < 2 || len(lines) > 2+maxProofHashes {
		return fail("expected %q, an entry, at most %d hashes, an empty line and a checkpoint", proofHeader, maxProofHashes)
	}
	e, err := ParseEntry([]byte(lines[1]))
	if err != nil {
		return fail("line 2: %w", err)
	}
	var path tlog.RecordProof
	for i, text := range lines[2:] {
		h, err := tlog.ParseHash(text)
		if err != nil {
			return fail("line %d: expected a hash in base64, found %.60q", 3+i, text)
		}
		path = append(path, h)
	}
	c, err := ParseCheckpoint(signed, key)
	if err != nil {
		return fail("%w", err)
	}
	if at := differAt(proof, appendProof(nil, []byte(lines[1]), path, signed)); at >= 0 {
		return fail("byte %d is not as this program writes it", at)
	}
	if err := tlog.CheckRecord(path, c.Size, c.Root, e.Number, tlog.RecordHash([]byte(lines[1]))); err != nil {
		return fail("entry %d is not in the tree that the checkpoint of %d entries signs: %w", e.Number, c.Size, err)
	}
	return e, c, nil
}
