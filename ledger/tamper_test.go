package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"
)

// ledgerFiles are the three whose every byte is protected.
var ledgerFiles = []string{entriesName, hashesName, checkpointsName}

// copyLedger copies a ledger into a fresh directory, which the caller may damage. In memory where the system has a place for that.
func copyLedger(t *testing.T, from string) (dir string) {
	t.Helper()
	dir = filepath.Join(memoryDir(t), "ledger")
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, keyName), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// memoryDir is a temporary directory whose syncs cost nothing, for tests that are not about the disk.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "ledger-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// lineOf is the 1-based line in which byte at stands.
func lineOf(text []byte, at int) int { return 1 + bytes.Count(text[:at], []byte("\n")) }

// located says whether a finding names the place of a changed byte: the entry's line, the hash's index, the checkpoint's first byte.
func located(found []Finding, name string, whole []byte, at int) bool {
	want := ""
	switch name {
	case entriesName:
		want = fmt.Sprintf("entries.jsonl: entry %d, line %d,", lineOf(whole, at)-1, lineOf(whole, at))
	case hashesName:
		want = fmt.Sprintf("hashes: hash %d, byte %d", at/32, at/32*32)
	case checkpointsName:
		begin := bytes.LastIndex(whole[:at+1], []byte(Origin+"\n"))
		if again := bytes.LastIndex(whole[:min(len(whole), at+len(Origin)+1)], []byte(Origin+"\n")); again <= at {
			begin = again
		}
		want = fmt.Sprintf("checkpoints: of %d entries, byte %d", (lineOf(whole, at)-1)/5+1, begin)
	}
	for _, f := range found {
		if f.Where == want || strings.HasPrefix(f.Where, want) {
			return true
		}
	}
	return false
}

func TestEverySingleByteChangeIsFoundAndLocated(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	makeLedger(t, dir, 50)
	damaged := copyLedger(t, dir)
	random := rand.New(rand.NewPCG(1, 2))
	for _, name := range ledgerFiles {
		path := filepath.Join(damaged, name)
		whole := []byte(readFile(t, path))
		step := 1
		if !long {
			step = 127 // no period of any of the files
		}
		for at := 0; at < len(whole); at += step {
			changed := bytes.Clone(whole)
			for changed[at] == whole[at] {
				changed[at] = byte(random.Uint32())
			}
			writeFile(t, path, changed)
			r := mustVerify(t, damaged, VerifyOptions{Jobs: 1})
			found := append(r.Findings, r.Unfinished...)
			if !located(found, name, whole, at) {
				t.Fatalf("%s: byte %d changed from %q to %q: found %v", name, at, whole[at], changed[at], found)
			}
			if len(found) > 3 {
				t.Errorf("%s: byte %d changed from %q to %q: %d findings, want the one: %v", name, at, whole[at], changed[at], len(found), found)
			}
		}
		writeFile(t, path, whole)
	}
	if r := mustVerify(t, damaged, VerifyOptions{}); !r.OK() {
		t.Errorf("restored: %+v", r)
	}
}

func TestRandomByteChangesInALongerLedgerAreFound(t *testing.T) {
	size, changes := int64(200), 12
	if long {
		size, changes = 1000, 10_000
	}
	dir := filepath.Join(memoryDir(t), "ledger")
	makeLedger(t, dir, size)
	for i := range changes {
		name := ledgerFiles[i%3]
		path := filepath.Join(dir, name)
		whole := []byte(readFile(t, path))
		at := rand.IntN(len(whole))
		changed := bytes.Clone(whole)
		changed[at] ^= byte(1 + rand.IntN(255))
		writeFile(t, path, changed)
		r := mustVerify(t, dir, VerifyOptions{Jobs: 2})
		found := append(r.Findings, r.Unfinished...)
		if !located(found, name, whole, at) {
			t.Fatalf("%s: byte %d changed from %q to %q: found %v", name, at, whole[at], changed[at], found)
		}
		writeFile(t, path, whole)
	}
}

func TestRemovedInsertedSwappedAndCutEntriesAreFoundAndNamed(t *testing.T) {
	const size = 12
	dir := filepath.Join(t.TempDir(), "ledger")
	makeLedger(t, dir, size)
	damaged := copyLedger(t, dir)
	path := filepath.Join(damaged, entriesName)
	whole := readFile(t, path)
	lines := strings.SplitAfter(whole, "\n")[:size]
	join := func(parts ...[]string) string {
		var b strings.Builder
		for _, p := range parts {
			b.WriteString(strings.Join(p, ""))
		}
		return b.String()
	}
	forged := appendEntry(nil, &Entry{Number: 5, Kind: KindNote, Evidence: EvidenceE2, Body: []byte("{}")})
	check := func(what string, n int, text string) {
		t.Helper()
		writeFile(t, path, []byte(text))
		r := mustVerify(t, damaged, VerifyOptions{})
		found := append(r.Findings, r.Unfinished...)
		if len(found) == 0 || !strings.HasPrefix(found[0].Where, fmt.Sprintf("entries.jsonl: entry %d,", n)) || len(found) > 3 {
			t.Errorf("%s %d: found %v", what, n, found)
		}
	}
	for n := range size {
		check("removed", n, join(lines[:n], lines[n+1:]))
		check("forged one inserted before", n, join(lines[:n], []string{string(forged) + "\n"}, lines[n:]))
		check("empty line inserted before", n, join(lines[:n], []string{"\n"}, lines[n:]))
		check("cut before", n, join(lines[:n]))
		check("cut within", n, join(lines[:n])+lines[n][:20])
		if n != 5 {
			check("forged one in the place of", n, join(lines[:n], []string{string(forged) + "\n"}, lines[n+1:]))
		}
		for m := n + 1; m < size; m++ {
			check("swapped with a later one", n, join(lines[:n], lines[m:m+1], lines[n+1:m], lines[n:n+1], lines[m+1:]))
			if m < size {
				check("a later one once more before", n, join(lines[:n], lines[m:m+1], lines[n:]))
			}
		}
	}
	check("appended behind", size, whole+strings.Replace(string(forged), `"entry":5`, `"entry":13`, 1)+"\n")
}

func TestRemovedInsertedSwappedAndCutHashesAndCheckpointsAreFound(t *testing.T) {
	const size = 9
	dir := filepath.Join(t.TempDir(), "ledger")
	makeLedger(t, dir, size)
	damaged := copyLedger(t, dir)
	for _, name := range []string{hashesName, checkpointsName} {
		path := filepath.Join(damaged, name)
		whole := readFile(t, path)
		var parts []string
		if name == hashesName {
			for at := 0; at < len(whole); at += 32 {
				parts = append(parts, whole[at:at+32])
			}
		} else {
			parts = strings.SplitAfter(whole, "\n"+Origin+"\n")
			for i := range len(parts) - 1 {
				parts[i] = strings.TrimSuffix(parts[i], Origin+"\n")
				parts[i+1] = Origin + "\n" + parts[i+1]
			}
			if len(parts) != size || strings.Join(parts, "") != whole {
				t.Fatal("checkpoints were not cut where they begin")
			}
		}
		check := func(what string, n int, text string) {
			t.Helper()
			writeFile(t, path, []byte(text))
			r := mustVerify(t, damaged, VerifyOptions{})
			found := append(r.Findings, r.Unfinished...)
			if len(found) == 0 {
				t.Errorf("%s: %s %d: nothing found", name, what, n)
			}
		}
		join := func(lists ...[]string) string {
			all := ""
			for _, l := range lists {
				all += strings.Join(l, "")
			}
			return all
		}
		for n := range parts {
			check("removed", n, join(parts[:n], parts[n+1:]))
			check("repeated", n, join(parts[:n+1], parts[n:]))
			check("cut before", n, join(parts[:n]))
			check("cut within", n, join(parts[:n])+parts[n][:20])
			for m := n + 1; m < len(parts); m++ {
				check("swapped", n, join(parts[:n], parts[m:m+1], parts[n+1:m], parts[n:n+1], parts[m+1:]))
			}
		}
		writeFile(t, path, []byte(whole))
	}
}

// rewrite makes the ledger again from its entries, one of them changed, with good hashes and signatures, as one can who has the key.
func rewrite(t *testing.T, dir string, key *Key) {
	t.Helper()
	lines := strings.SplitAfter(readFile(t, filepath.Join(dir, entriesName)), "\n")
	lines = lines[:len(lines)-1]
	lines[4] = strings.Replace(lines[4], "entry 4", "entry x", 1)
	tree := &frontier{hashes: map[int64]tlog.Hash{}}
	var hashes, points []byte
	for _, line := range lines {
		stored, err := tree.stored(tlog.RecordHash([]byte(strings.TrimSuffix(line, "\n"))))
		if err != nil {
			t.Fatal(err)
		}
		for i := range stored {
			hashes = append(hashes, stored[i][:]...)
		}
		tree.add(stored)
		root, err := tree.root()
		if err != nil {
			t.Fatal(err)
		}
		signed, err := Checkpoint{tree.size, root}.sign(key.signer)
		if err != nil {
			t.Fatal(err)
		}
		points = append(points, signed...)
	}
	writeFile(t, filepath.Join(dir, entriesName), []byte(strings.Join(lines, "")))
	writeFile(t, filepath.Join(dir, hashesName), hashes)
	writeFile(t, filepath.Join(dir, checkpointsName), points)
}

func TestRewrittenHistoryIsCaughtByACheckpointThatWasKeptElsewhere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	makeLedger(t, dir, 10)
	older, err := LatestCheckpoint(dir)
	if err != nil {
		t.Fatal(err)
	}
	makeLedger(t, dir, 20)
	if r := mustVerify(t, dir, VerifyOptions{Against: older}); !r.OK() || r.Entries != 20 {
		t.Errorf("the honest ledger: %+v", r)
	}
	latest, err := LatestCheckpoint(dir)
	if err != nil {
		t.Fatal(err)
	}
	if r := mustVerify(t, dir, VerifyOptions{Against: latest}); !r.OK() {
		t.Errorf("against its own latest checkpoint: %+v", r)
	}
	key, err := ParseKey(readFile(t, filepath.Join(dir, "key")))
	if err != nil {
		t.Fatal(err)
	}
	forged := copyLedger(t, dir)
	rewrite(t, forged, key)
	if r := mustVerify(t, forged, VerifyOptions{}); !r.OK() {
		t.Fatalf("the rewritten ledger is not good in itself, so that this test shows nothing: %+v", r)
	}
	against := func(what, why, dir string, options VerifyOptions) {
		t.Helper()
		r := mustVerify(t, dir, options)
		if len(r.Findings) != 1 || r.Findings[0].Where != "the checkpoint kept elsewhere" || !strings.Contains(r.Findings[0].What, why) {
			t.Errorf("%s: found %v, want %q", what, r.Findings, why)
		}
	}
	against("rewritten", "the history was rewritten", forged, VerifyOptions{Against: older})
	cut := copyLedger(t, dir)
	for name, parts := range map[string]int{entriesName: 8, checkpointsName: 8 * 5} {
		lines := strings.SplitAfter(readFile(t, filepath.Join(dir, name)), "\n")
		writeFile(t, filepath.Join(cut, name), []byte(strings.Join(lines[:parts], "")))
	}
	writeFile(t, filepath.Join(cut, hashesName), []byte(readFile(t, filepath.Join(dir, hashesName))[:15*32])) // 8 leaves: 8 + 4 + 2 + 1
	if r := mustVerify(t, cut, VerifyOptions{}); !r.OK() || r.Entries != 8 {
		t.Fatalf("the cut ledger is not good in itself, so that this test shows nothing: %+v", r)
	}
	against("cut", "entries were cut off", cut, VerifyOptions{Against: older})
	against("changed", "byte 19", dir, VerifyOptions{Against: bytes.Replace(older, []byte("\n10\n"), []byte("\n+10\n"), 1)})
	foreign := filepath.Join(t.TempDir(), "ledger")
	makeLedger(t, foreign, 12)
	against("another ledger's", "signed with another key", foreign, VerifyOptions{Against: older})
	for _, name := range ledgerFiles {
		writeFile(t, filepath.Join(cut, name), nil)
	}
	against("wiped, with its key", "entries were cut off", cut, VerifyOptions{Against: older})
	if err := os.Remove(filepath.Join(cut, "key.pub")); err != nil {
		t.Fatal(err)
	}
	against("wiped", "no public key is here to check it with; give --key", cut, VerifyOptions{Against: older})
	against("wiped, and no checkpoint given", "give --key", cut, VerifyOptions{Against: []byte("root:x:0:0:root:/root:/bin/bash\n")})
	against("wiped, with the key given", "it speaks of 10 entries, and here are 0", cut, VerifyOptions{Against: older, Key: key.Public()})
}

func TestEveryChangedByteOfANamedFileIsFound(t *testing.T) {
	root := memoryDir(t)
	session := SessionDir(root, "first")
	if _, _, err := recordThrough(osDisk{}, session, false); err != nil {
		t.Fatal(err)
	}
	sealed, err := SessionEntry(root, session)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := filepath.Join(memoryDir(t), "plan.yaml")
	writeFile(t, elsewhere, []byte("rounds: 5\n"))
	plan, err := NameFile(root, elsewhere)
	if err != nil {
		t.Fatal(err)
	}
	// sha256sum's word for it.
	if want := (NamedFile{elsewhere, "5df1c87f27dd5c51afa8ba68adb10cb7e86f315e2882562bafcfb1996359e935"}); plan != want {
		t.Errorf("named %v, want %v", plan, want)
	}
	both := noteEntry("files")
	both.Files = []NamedFile{plan, sealed.Files[0]}
	w := mustOpen(t, Dir(root))
	for _, e := range []Entry{sealed, both} {
		if _, err := w.Append(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var seen Progress
	r := mustVerify(t, Dir(root), VerifyOptions{Jobs: 2, Progress: func(p Progress) { seen = p }})
	if !r.OK() || r.Files != 4 || seen != r.Progress { // the manifest, its two files, the plan
		t.Fatalf("verify: %+v, told %+v", r, seen)
	}
	for path, where := range map[string]string{
		filepath.Join(session, ManifestName): "sessions/first/manifest.json: named by entry 1",
		filepath.Join(session, EventsName):   "sessions/first/events.jsonl: named by entry 1",
		filepath.Join(session, WireName):     "sessions/first/wire.bin: named by entry 1",
		elsewhere:                            elsewhere + ": named by entry 2",
	} {
		whole := []byte(readFile(t, path))
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
		step := max(1, len(whole)/40)
		if long {
			step = 1 + len(whole)/2000
		}
		for at := 0; at < len(whole); at += step {
			changed := bytes.Clone(whole)
			changed[at] ^= 4
			writeFile(t, path, changed)
			r := mustVerify(t, Dir(root), VerifyOptions{})
			if len(r.Findings) != 1 || r.Findings[0].Where != where {
				t.Fatalf("%s: byte %d changed: found %v, want %s", path, at, r.Findings, where)
			}
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if r := mustVerify(t, Dir(root), VerifyOptions{}); len(r.Findings) != 1 || r.Findings[0].Where != where {
			t.Errorf("%s removed: found %v, want %s", path, r.Findings, where)
		}
		writeFile(t, path, whole)
	}
	writeFile(t, filepath.Join(session, "more"), nil)
	if r := mustVerify(t, Dir(root), VerifyOptions{}); len(r.Findings) != 1 || r.Findings[0].Where != "sessions/first/more: named by entry 1" {
		t.Errorf("a file was added to the session: found %v", r.Findings)
	}
}

func TestVerifyingALedgerEndsWhenItIsNotWantedAnyMore(t *testing.T) {
	root := t.TempDir()
	dir, long := Dir(root), filepath.Join(root, "long")
	writeFile(t, long, make([]byte, 4<<20))
	named, err := NameFile(root, long)
	if err != nil {
		t.Fatal(err)
	}
	w := mustOpen(t, dir)
	e := noteEntry("names a file")
	e.Files = []NamedFile{named}
	if _, err := w.Append(e); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	read := int64(0)
	r, err := Verify(ctx, dir, VerifyOptions{Progress: func(p Progress) {
		if read = p.Bytes; read > 0 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) || r != nil || read != 256<<10 {
		t.Errorf("%v, %v after %d bytes, want %v after the first 256 KiB", r, err, read, context.Canceled)
	}
}

func TestMissingFileOfALedgerIsFoundAndNotMadeAnew(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	makeLedger(t, dir, 3)
	for _, name := range ledgerFiles {
		damaged := copyLedger(t, dir)
		if err := os.Remove(filepath.Join(damaged, name)); err != nil {
			t.Fatal(err)
		}
		if r := mustVerify(t, damaged, VerifyOptions{}); len(r.Findings) == 0 || r.Findings[0].String() != name+": the file is not there" {
			t.Errorf("%s: found %v", name, r.Findings)
		}
		if _, _, err := OpenWriter(damaged, testOptions()); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: opened with %v, want ErrDamaged", name, err)
		}
		if r := mustVerify(t, damaged, VerifyOptions{}); len(r.Findings) == 0 {
			t.Errorf("%s: nothing is found when somebody has tried to append", name)
		}
	}
	if _, err := Verify(t.Context(), t.TempDir(), VerifyOptions{}); !errors.Is(err, ErrNoLedger) {
		t.Errorf("no ledger: %v, want ErrNoLedger", err)
	}
}

func TestChangedPublicKeyFileIsFound(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	makeLedger(t, dir, 3)
	path := filepath.Join(dir, "key.pub")
	whole := []byte(readFile(t, path))
	for at := range whole {
		changed := bytes.Clone(whole)
		changed[at] ^= 1
		writeFile(t, path, changed)
		if r := mustVerify(t, dir, VerifyOptions{}); len(r.Findings) != 1 || r.Findings[0].Where != "key.pub" {
			t.Errorf("byte %d changed: found %v", at, r.Findings)
		}
	}
}
