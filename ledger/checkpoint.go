package ledger

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// Origin is the first line of every checkpoint and the name of every ledger's key. Which ledger it is, the key tells.
const Origin = "framebridge/ledger"

// maxEntries bounds a ledger: one entry a nanosecond for three days. tlog's arithmetic ends at 2^62.
const maxEntries = 1 << 48

// maxCheckpointBytes is the length of the longest signed checkpoint.
const maxCheckpointBytes = len(Origin) + 1 + len("281474976710656") + 1 + 44 + 1 + 1 + len(signatureLead) + signatureChars + 1

const (
	signatureLead  = "— " + Origin + " "
	signatureChars = 92 // base64 of the key's 4-byte hash and an Ed25519 signature of 64
)

// Checkpoint says that the first Size entries hash to Root.
type Checkpoint struct {
	Size int64
	Root tlog.Hash
}

// text is what is signed.
func (c Checkpoint) text() string {
	return Origin + "\n" + strconv.FormatInt(c.Size, 10) + "\n" + c.Root.String() + "\n"
}

// lead is everything of a signed checkpoint that is the same whoever signs it. A note can be altered without breaking its signature, so
// ours have one form only: lead, signature, newline.
func (c Checkpoint) lead() string { return c.text() + "\n" + signatureLead }

func (c Checkpoint) sign(s note.Signer) ([]byte, error) {
	signed, err := note.Sign(&note.Note{Text: c.text()}, s)
	if err != nil {
		return nil, fmt.Errorf("sign checkpoint: %w", err)
	}
	if _, n, err := leadingCheckpoint(signed); err != nil || n != len(signed) {
		return nil, fmt.Errorf("sign checkpoint: expected the form of an Ed25519 key named %s, found %.300q", Origin, signed)
	}
	return signed, nil
}

var (
	errCheckpoint = errors.New("checkpoint")
	errSignature  = errors.New("the signature is not good")
	errOtherKey   = errors.New("signed with another key")
)

// ParseCheckpoint reads a signed checkpoint, which must be byte for byte as this program writes it, and checks its signature.
func ParseCheckpoint(signed []byte, key note.Verifier) (Checkpoint, error) {
	c, n, err := leadingCheckpoint(signed)
	if err != nil {
		return Checkpoint{}, err
	}
	if n != len(signed) {
		return Checkpoint{}, fmt.Errorf("%w: %d bytes behind it", errCheckpoint, len(signed)-n)
	}
	return c, c.verify(signed, key)
}

// leadingCheckpoint reads the signed checkpoint that text begins with, and its length. It leaves the signature alone.
func leadingCheckpoint(text []byte) (c Checkpoint, n int, err error) {
	text = text[:min(len(text), maxCheckpointBytes)]
	lines := strings.SplitN(string(text), "\n", 4)
	if len(lines) < 4 || lines[0] != Origin {
		return c, 0, fmt.Errorf("%w: expected the origin %q, a size, a root and a signature, each on its line, found %.120q", errCheckpoint, Origin, text)
	}
	if c.Size, err = strconv.ParseInt(lines[1], 10, 64); err != nil || c.Size < 1 || c.Size > maxEntries {
		return c, 0, fmt.Errorf("%w: expected a number of entries, found %.40q", errCheckpoint, lines[1])
	}
	if c.Root, err = tlog.ParseHash(lines[2]); err != nil {
		return c, 0, fmt.Errorf("%w: expected a root hash in base64, found %.60q", errCheckpoint, lines[2])
	}
	lead := []byte(c.lead())
	n = len(lead) + signatureChars + 1
	if !bytes.HasPrefix(text, lead) {
		return c, 0, fmt.Errorf("%w: byte %d is not as this program writes it", errCheckpoint, differAt(text, lead))
	}
	if len(text) < n || text[n-1] != '\n' {
		return c, 0, fmt.Errorf("%w: expected a signature of %d characters and a newline", errCheckpoint, signatureChars)
	}
	return c, n, nil
}

// verify checks the signature of signed, whose lead is c's.
func (c Checkpoint) verify(signed []byte, key note.Verifier) error {
	encoded := string(signed[len(c.lead()) : len(signed)-1])
	signature, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || base64.StdEncoding.EncodeToString(signature) != encoded {
		return fmt.Errorf("%w: %w: expected base64, found %.100q", errCheckpoint, errSignature, encoded)
	}
	if hash := binary.BigEndian.Uint32(signature); hash != key.KeyHash() {
		return fmt.Errorf("%w: %w: expected key %08x, found %08x", errCheckpoint, errOtherKey, key.KeyHash(), hash)
	}
	if !key.Verify([]byte(c.text()), signature[4:]) {
		return fmt.Errorf("%w: %w", errCheckpoint, errSignature)
	}
	return nil
}

// Names within a ledger's directory.
const (
	entriesName     = "entries.jsonl"
	hashesName      = "hashes"
	checkpointsName = "checkpoints"
	keyName         = "key"
	publicKeyName   = "key.pub"
)

// ErrNoKey says that a ledger's private key is not where it was made, and was not given.
var ErrNoKey = errors.New("the ledger's key is not here; say which file has it with FRAMEBRIDGE_LEDGER_KEY")

// Key is a ledger's private key.
type Key struct {
	signer note.Signer
	public string
}

// Public is the verifier key, in the form of golang.org/x/mod/sumdb/note: what an auditor needs.
func (k *Key) Public() string { return k.public }

// ParseKey reads a private key in the form of golang.org/x/mod/sumdb/note; its name must be Origin.
func ParseKey(text string) (*Key, error) {
	text = strings.TrimSpace(text)
	signer, err := note.NewSigner(text)
	if err != nil {
		return nil, fmt.Errorf("private key: expected PRIVATE+KEY+%s+…, as in a ledger's file key: %w", Origin, err)
	}
	if signer.Name() != Origin {
		return nil, fmt.Errorf("private key: expected the name %s, found %.60q", Origin, signer.Name())
	}
	// The signer does not tell its public key, but the seed is in the text: PRIVATE+KEY+name+hash+seed.
	seed, err := base64.StdEncoding.DecodeString(strings.SplitN(text, "+", 5)[4])
	if err != nil {
		return nil, fmt.Errorf("private key: %w", err)
	}
	public, err := note.NewEd25519VerifierKey(Origin, ed25519.NewKeyFromSeed(seed[1:]).Public().(ed25519.PublicKey))
	if err != nil {
		return nil, fmt.Errorf("private key: %w", err)
	}
	return &Key{signer: signer, public: public}, nil
}

// ParsePublicKey reads a verifier key as Public gives it.
func ParsePublicKey(text string) (note.Verifier, error) {
	v, err := note.NewVerifier(strings.TrimSpace(text))
	if err != nil {
		return nil, fmt.Errorf("public key: expected %s+…, as in a ledger's file key.pub: %w", Origin, err)
	}
	if v.Name() != Origin {
		return nil, fmt.Errorf("public key: expected the name %s, found %.60q", Origin, v.Name())
	}
	return v, nil
}

// loadKey reads the ledger's own key, which nobody else may be able to read. os.ErrNotExist where there is none.
func loadKey(dir string) (*Key, error) {
	path := filepath.Join(dir, keyName)
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("%s: expected mode 0600, found %04o: others can sign in this ledger's name; chmod 600 it", path, mode)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	key, err := ParseKey(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return key, nil
}

// readPublicKey reads what stands in key.pub.
func readPublicKey(dir string) ([]byte, error) {
	f, err := openRegular(filepath.Join(dir, publicKeyName))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	const bound = 4096 // a key and its newline have 80 bytes
	return io.ReadAll(io.LimitReader(f, bound))
}

func makeKey(d disk, dir string) (*Key, error) {
	private, _, err := note.GenerateKey(rand.Reader, Origin)
	if err != nil {
		return nil, err
	}
	key, err := ParseKey(private)
	if err != nil {
		return nil, err
	}
	return key, writeNew(d, dir, filepath.Join(dir, keyName), []byte(private+"\n"), 0o600)
}
