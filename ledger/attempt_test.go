package ledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

func testOptions() Options {
	return Options{Tool: Tool{"framebridge", "v0.1.0"}, SourceDigest: strings.Repeat("ab", 32), WallNs: 1780000000000000000, MonotonicNs: 1000}
}

func noteEntry(text string) Entry {
	body, err := json.Marshal(map[string]string{"text": text})
	if err != nil {
		panic(err)
	}
	return Entry{Kind: KindNote, WallNs: 1780000000000000001, MonotonicNs: 1001, Evidence: EvidenceE2, Body: body}
}

func mustOpen(t *testing.T, dir string) *Writer {
	t.Helper()
	w, _, err := OpenWriter(dir, testOptions())
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// makeLedger makes a ledger of that many entries, entry 0 included.
func makeLedger(t *testing.T, dir string, size int64) {
	t.Helper()
	w := mustOpen(t, dir)
	for w.Size() < size {
		if _, err := w.Append(noteEntry(fmt.Sprint("entry ", w.Size()))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func mustVerify(t *testing.T, dir string, options VerifyOptions) *Report {
	t.Helper()
	r, err := Verify(t.Context(), dir, options)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestEntriesHaveOneForm(t *testing.T) {
	e := Entry{Number: 17, Kind: KindRoundSession, WallNs: 1780000000000000001, MonotonicNs: 1001, Attempt: testSessionID, Evidence: EvidenceE4,
		Tool: Tool{"framebridge", "v0.1.0"}, SourceDigest: strings.Repeat("ab", 32),
		Files: []NamedFile{{"sessions/first/manifest.json", strings.Repeat("01", 32)}, {"/elsewhere/manifest.json", strings.Repeat("23", 32)}},
		Body:  json.RawMessage(`{"name":"first","round":2}`)}
	const want = `{"entry":17,"kind":"round.session","wallNs":1780000000000000001,"monotonicNs":1001,"attempt":"5f0cb2a8-31d7-4f0e-9c9a-0b6a0a4c7d11",` +
		`"evidence":"E4","tool":{"name":"framebridge","version":"v0.1.0"},` +
		`"sourceDigest":"abababababababababababababababababababababababababababababababab",` +
		`"files":[{"path":"sessions/first/manifest.json","sha256":"0101010101010101010101010101010101010101010101010101010101010101"},` +
		`{"path":"/elsewhere/manifest.json","sha256":"2323232323232323232323232323232323232323232323232323232323232323"}],` +
		`"body":{"name":"first","round":2}}`
	if got := string(appendEntry(nil, &e)); got != want {
		t.Errorf("written\n%s want\n%s", got, want)
	}
	back, err := ParseEntry([]byte(want))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(appendEntry(nil, &back)); got != want {
		t.Errorf("read and written again\n%s want\n%s", got, want)
	}
	for _, c := range []struct{ why, old, new string }{
		{"not as this program writes it", `,"kind"`, `, "kind"`},
		{"not as this program writes it", `"round.session"`, `"round\u002esession"`},
		{"column 3", `{"entry":17,"kind":"round.session"`, `{"kind":"round.session","entry":17`},
		{"column", `"evidence":"E4",`, `"evidence":"E4","more":1,`},
		{"duplicate key", `"evidence":"E4",`, `"evidence":"E4","evidence":"E4",`},
		{"kind", "round.session", "round.sessions"},
		{"attempt", "5f0cb2a8-31d7", "5F0cb2a8-31d7"},
		{"evidence", "E4", "E1"},
		{"sourceDigest", "ababab", "zzabab"},
		{"files", "sessions/first", "../first"},
		{"files", "sessions/first", "sessions//first"},
		{"files", "0101", "010"},
		{"body", `{"name":"first","round":2}`, `{"name":"first", "round":2}`},
		{"body", `{"name":"first","round":2}`, `[]`},
		{"missing", `"wallNs":1780000000000000001,`, ``},
		{"want an integer", `"entry":17`, `"entry":17.0`},
	} {
		line := strings.Replace(want, c.old, c.new, 1)
		if line == want {
			t.Fatalf("%q is not in the line", c.old)
		}
		if _, err := ParseEntry([]byte(line)); err == nil || c.why != "missing" && !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s instead of %s: found %v, want %q", c.new, c.old, err, c.why)
		}
	}
}

func TestSignatureHasOneForm(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	makeLedger(t, dir, 1)
	signed, err := LatestCheckpoint(dir)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ParsePublicKey(readFile(t, filepath.Join(dir, "key.pub")))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseCheckpoint(signed, key); err != nil {
		t.Fatal(err)
	}
	// Base64 of 68 bytes ends in a character of which two bits count for nothing, and "=": note.Open takes all four.
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	at := len(signed) - 3
	value := strings.IndexByte(digits, signed[at])
	for i := range 4 {
		other := bytes.Clone(signed)
		other[at] = digits[value&^3+i]
		if _, err := note.Open(other, note.VerifierList(key)); err != nil {
			t.Fatalf("note.Open refuses %q, so that this test shows nothing: %v", other[at], err)
		}
		if _, err := ParseCheckpoint(other, key); (err == nil) != bytes.Equal(other, signed) {
			t.Errorf("%q in the place of %q: %v", other[at], signed[at], err)
		}
	}
	for _, more := range []string{"\n", "x", string(signed[len(signed)-120:])} {
		if _, err := ParseCheckpoint(append(bytes.Clone(signed), more...), key); err == nil {
			t.Errorf("%q behind it was accepted", more)
		}
	}
}

func FuzzParseCheckpoint(f *testing.F) {
	private, public, err := note.GenerateKey(zeros{}, Origin)
	if err != nil {
		f.Fatal(err)
	}
	key, err := ParseKey(private)
	if err != nil {
		f.Fatal(err)
	}
	verifier, err := ParsePublicKey(public)
	if err != nil {
		f.Fatal(err)
	}
	signed, err := Checkpoint{17, tlog.Hash{1}}.sign(key.signer)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(signed)
	f.Fuzz(func(t *testing.T, text []byte) {
		if c, err := ParseCheckpoint(text, verifier); err == nil && !bytes.Equal(text, signed) {
			t.Fatalf("accepted as %+v", c)
		}
	})
}

func FuzzParseEntry(f *testing.F) {
	e := noteEntry("text")
	f.Add(appendEntry(nil, &e))
	e.Attempt, e.Files = testSessionID, []NamedFile{{"a/b", strings.Repeat("01", 32)}}
	f.Add(appendEntry(nil, &e))
	f.Fuzz(func(t *testing.T, line []byte) {
		if e, err := ParseEntry(line); err == nil && !bytes.Equal(appendEntry(nil, &e), line) {
			t.Fatalf("accepted, and written again as\n%s", appendEntry(nil, &e))
		}
	})
}

func TestLedgerHoldsWhatWasAppendedAndOthersCanCheckItsFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "root", "ledger")
	makeLedger(t, dir, 7)
	entries, err := OpenEntries(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer entries.Close()
	var lines [][]byte
	for n := int64(0); ; n++ {
		e, err := entries.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		_, line, err := ReadEntry(dir, n)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
		want := fmt.Sprintf(`{"text":"entry %d"}`, n)
		if n == 0 {
			want = fmt.Sprintf(`{"key":"%s"}`, strings.TrimSpace(readFile(t, filepath.Join(dir, "key.pub"))))
		}
		if e.Number != n || string(e.Body) != want || e.Tool != testOptions().Tool || e.SourceDigest != testOptions().SourceDigest {
			t.Errorf("entry %d is %s", n, line)
		}
	}
	if len(lines) != 7 {
		t.Fatalf("%d entries, want 7", len(lines))
	}

	// RFC 6962, by hand: leaves 0..6 are ((0 1)(2 3)) ((4 5) 6).
	leaf := func(i int) []byte { h := sha256.Sum256(append([]byte{0}, lines[i]...)); return h[:] }
	node := func(l, r []byte) []byte { h := sha256.Sum256(append(append([]byte{1}, l...), r...)); return h[:] }
	l01, l23, l45 := node(leaf(0), leaf(1)), node(leaf(2), leaf(3)), node(leaf(4), leaf(5))
	l0123 := node(l01, l23)
	stored := bytes.Join([][]byte{leaf(0), leaf(1), l01, leaf(2), leaf(3), l23, l0123, leaf(4), leaf(5), l45, leaf(6)}, nil)
	if got := readFile(t, filepath.Join(dir, "hashes")); got != string(stored) {
		t.Error("hashes are not those of the entries, each subtree behind its last leaf")
	}
	root := node(l0123, node(l45, leaf(6)))
	signed, err := LatestCheckpoint(dir)
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := note.NewVerifier(strings.TrimSpace(readFile(t, filepath.Join(dir, "key.pub"))))
	if err != nil {
		t.Fatal(err)
	}
	opened, err := note.Open(signed, note.VerifierList(verifier))
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("framebridge/ledger\n7\n%s\n", tlog.Hash(root)); opened.Text != want {
		t.Errorf("the checkpoint says %q, want %q", opened.Text, want)
	}
	if info, err := os.Stat(filepath.Join(dir, "key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key: %v, %v; want mode 0600", info.Mode(), err)
	}
	r := mustVerify(t, dir, VerifyOptions{Jobs: 2})
	if !r.OK() || r.Entries != 7 || r.Checkpoint.Size != 7 || r.Checkpoint.Root != tlog.Hash(root) {
		t.Errorf("verify: %+v", r)
	}
}

func TestSecondWriterIsToldWhoHoldsTheLedgerUntilTheHolderIsKilled(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	c := startChild(t, "append", dir)
	c.waitFor(t, "appended")
	_, _, err := OpenWriter(dir, testOptions())
	var held *HeldError
	if !errors.As(err, &held) || held.PID != c.cmd.Process.Pid || held.SinceWallNs != 1780000000000000000 {
		t.Fatalf("found %v, want the child's pid %d", err, c.cmd.Process.Pid)
	}
	if want := fmt.Sprintf("held by pid %d, since 2026-05-28T20:26:40Z", held.PID); !strings.Contains(err.Error(), want) {
		t.Errorf("said %q, want %q in it", err, want)
	}
	if r := mustVerify(t, dir, VerifyOptions{}); !r.OK() || r.Writer == nil || r.Writer.PID != held.PID {
		t.Errorf("verify beside the writer: %+v", r)
	}
	c.kill(t)
	w := mustOpen(t, dir)
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

func TestOnlyTheLedgersOwnKeySigns(t *testing.T) {
	dir, other := filepath.Join(t.TempDir(), "ledger"), filepath.Join(t.TempDir(), "ledger")
	makeLedger(t, dir, 2)
	makeLedger(t, other, 1)
	foreign, err := ParseKey(readFile(t, filepath.Join(other, "key")))
	if err != nil {
		t.Fatal(err)
	}
	options := testOptions()
	options.Key = foreign
	if _, _, err := OpenWriter(dir, options); !errors.Is(err, errOtherKey) || errors.Is(err, ErrDamaged) {
		t.Errorf("another key: %v, want a refusal", err)
	}
	private := readFile(t, filepath.Join(dir, "key"))
	own, err := ParseKey(private)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "key"), 0o640); err != nil {
		t.Fatal(err)
	}
	if _, _, err := OpenWriter(dir, testOptions()); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a key that others can read: %v, want a refusal", err)
	}
	if err := os.Remove(filepath.Join(dir, "key")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := OpenWriter(dir, testOptions()); !errors.Is(err, ErrNoKey) {
		t.Errorf("no key: %v, want ErrNoKey", err)
	}
	options.Key = own
	w, _, err := OpenWriter(dir, options)
	if err != nil {
		t.Fatalf("the key given from outside: %v", err)
	}
	if _, err := w.Append(noteEntry("more")); err != nil {
		t.Error(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "key")); !errors.Is(err, os.ErrNotExist) {
		t.Error("a key that was given from outside was kept")
	}
	if r := mustVerify(t, dir, VerifyOptions{Key: own.Public()}); !r.OK() || r.Entries != 3 {
		t.Errorf("verify: %+v", r)
	}
	if r := mustVerify(t, dir, VerifyOptions{Key: foreign.Public()}); len(r.Findings) == 0 {
		t.Error("verify with another key found nothing")
	}
}

func TestSealedSessionIsNamedByItsManifest(t *testing.T) {
	root := t.TempDir()
	dir := SessionDir(root, "first")
	if _, err := SessionEntry(root, dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no session: %v", err)
	}
	if _, _, err := recordThrough(osDisk{}, dir, false); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(readFile(t, filepath.Join(dir, "manifest.json"))))
	digest := fmt.Sprintf("%x", sum)
	for rootOf, path := range map[string]string{root: "sessions/first/manifest.json", t.TempDir(): dir + "/manifest.json"} {
		e, err := SessionEntry(rootOf, dir)
		if err != nil {
			t.Fatal(err)
		}
		body := `{"name":"first","sessionId":"5f0cb2a8-31d7-4f0e-9c9a-0b6a0a4c7d11","state":"complete","manifestSha256":"` + digest + `"}`
		if e.Kind != KindRoundSession || e.Evidence != EvidenceE2 || len(e.Files) != 1 || e.Files[0] != (NamedFile{path, digest}) || string(e.Body) != body {
			t.Errorf("entry %+v with body %s", e, e.Body)
		}
	}
}

func TestRefusedEntryLeavesTheLedgerAsItWas(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	w := mustOpen(t, dir)
	for _, e := range []Entry{
		{Kind: "round.seven", Evidence: EvidenceE2, Body: json.RawMessage("{}")},
		{Kind: KindNote, Evidence: EvidenceE2, Body: json.RawMessage("{} ")},
		{Kind: KindNote, Evidence: EvidenceE2, Body: json.RawMessage(`{"text":"` + strings.Repeat("x", 1<<20) + `"}`)},
		{Kind: KindNote, Evidence: EvidenceE2, Body: json.RawMessage(`{"a":1,"a":2}`)},
		{Kind: KindNote, Evidence: EvidenceE2, Body: json.RawMessage(`{"a":1e30}`)},
		{Kind: KindNote, Evidence: EvidenceE2, Body: json.RawMessage(`{}`), Files: []NamedFile{{"a\xff", strings.Repeat("01", 32)}}},
	} {
		if _, err := w.Append(e); err == nil {
			t.Errorf("%.100s was accepted", e.Body)
		}
	}
	if n, err := w.Append(noteEntry("good")); err != nil || n != 1 {
		t.Errorf("a good one after them: entry %d, %v; want 1", n, err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if r := mustVerify(t, dir, VerifyOptions{}); !r.OK() || r.Entries != 2 {
		t.Errorf("verify: %+v", r)
	}
}

func TestProofStandsAloneAndEveryChangedByteOfItIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	makeLedger(t, dir, 50)
	key, err := ParsePublicKey(readFile(t, filepath.Join(dir, "key.pub")))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int64{0, 1, 31, 32, 48, 49} {
		proof, err := ProveInclusion(dir, n)
		if err != nil {
			t.Fatal(err)
		}
		e, c, err := VerifyProof(proof, key)
		if err != nil || e.Number != n || c.Size != 50 {
			t.Errorf("entry %d: proved entry %d of %d, %v", n, e.Number, c.Size, err)
		}
		for i := range proof {
			for _, change := range []byte{1, 0x20, 0x80} {
				changed := bytes.Clone(proof)
				changed[i] ^= change
				if _, _, err := VerifyProof(changed, key); err == nil {
					t.Fatalf("entry %d: byte %d changed from %q to %q, and accepted", n, i, proof[i], changed[i])
				}
			}
		}
		if _, _, err := VerifyProof(append(proof, '\n'), key); err == nil {
			t.Error("a byte was added, and accepted")
		}
	}
	for _, n := range []int64{-1, 50} {
		if _, err := ProveInclusion(dir, n); err == nil || !strings.Contains(err.Error(), "entries 0 to 49") {
			t.Errorf("entry %d: %v", n, err)
		}
	}
	if _, err := ProveInclusion(t.TempDir(), 0); !errors.Is(err, ErrNoLedger) {
		t.Errorf("no ledger: %v", err)
	}
	other := filepath.Join(t.TempDir(), "ledger")
	makeLedger(t, other, 1)
	foreign, err := ParsePublicKey(readFile(t, filepath.Join(other, "key.pub")))
	if err != nil {
		t.Fatal(err)
	}
	proof, err := ProveInclusion(dir, 3)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := VerifyProof(proof, foreign); !errors.Is(err, errOtherKey) {
		t.Errorf("another ledger's key: %v", err)
	}
}

func FuzzVerifyProof(f *testing.F) {
	private, public, err := note.GenerateKey(zeros{}, Origin)
	if err != nil {
		f.Fatal(err)
	}
	key, err := ParseKey(private)
	if err != nil {
		f.Fatal(err)
	}
	verifier, err := ParsePublicKey(public)
	if err != nil {
		f.Fatal(err)
	}
	e := noteEntry("text")
	line := appendEntry(nil, &e)
	signed, err := Checkpoint{1, tlog.RecordHash(line)}.sign(key.signer)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(appendProof(nil, line, nil, signed))
	f.Add([]byte(proofHeader + "\n{}\n\n"))
	f.Fuzz(func(t *testing.T, proof []byte) {
		if e, c, err := VerifyProof(proof, verifier); err == nil && (e.Number != 0 || c.Size != 1) {
			t.Fatalf("proved entry %d of %d", e.Number, c.Size)
		}
	})
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
