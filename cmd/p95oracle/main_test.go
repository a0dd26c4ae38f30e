package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The oracle's value is that it shares nothing with what it checks.
func TestOracleImportsTheStandardLibraryOnly(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(out)); got != "github.com/framebridge/framebridge/cmd/p95oracle" {
		t.Errorf("the oracle is built of these besides the standard library:\n%s", got)
	}
}

func runOn(t *testing.T, stdin []byte, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(args, bytes.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

func TestExitCodesAndOutput(t *testing.T) {
	dir := t.TempDir()
	text := smallSession()
	log := filepath.Join(dir, "events.jsonl")
	if err := os.WriteFile(log, text, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{dir}, {log}, {"-"}} {
		code, stdout, stderr := runOn(t, text, args...)
		var r report
		if err := json.Unmarshal([]byte(stdout), &r); err != nil || code != exitEqual || stderr != "" {
			t.Fatalf("%v: %d %q %v\n%s", args, code, stderr, err, stdout)
		}
		if !r.Equal || r.Records != 14 || r.Publications != 4 || r.Counts[typeBridge] != 3 || r.Compared < 300 || len(r.TakenAsGiven) == 0 {
			t.Errorf("%v: %+v", args, r)
		}
	}
	forged := bytes.Replace(text, []byte(`"rank":8`), []byte(`"rank":7`), 1)
	if bytes.Equal(forged, text) {
		forged = bytes.Replace(text, []byte(`"rank":7`), []byte(`"rank":8`), 1)
	}
	code, stdout, _ := runOn(t, forged, "-")
	var r report
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || code != exitMismatch || r.Total != 1 || r.Mismatches[0].Field != "rank" {
		t.Errorf("a forged rank: %d %v %+v", code, err, r)
	}
	os.Rename(log, log+".zst")
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "usage: p95oracle SESSION"},
		{[]string{"a", "b"}, "usage: p95oracle SESSION"},
		{[]string{filepath.Join(dir, "nothing")}, "no such file"},
		{[]string{t.TempDir()}, "no such file"},
		{[]string{dir}, "zstd -dc"},
		{[]string{"-"}, "the log is empty"},
	} {
		if code, stdout, stderr := runOn(t, nil, c.args...); code != exitUnreadable || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%q: %d %q %q, want 2 and %q", c.args, code, stdout, stderr, c.want)
		}
	}
}

// What is not a number but belongs to the log's order: each is told, at its line.
func TestLogsThatNoRecorderWrites(t *testing.T) {
	lines := bytes.SplitAfter(smallSession(), []byte("\n"))
	lines = lines[:len(lines)-1]
	without := func(i int) [][]byte { return append(append([][]byte{}, lines[:i]...), lines[i+1:]...) }
	with := func(i int, line string) [][]byte {
		l := append([][]byte{}, lines...)
		l[i] = []byte(line)
		return l
	}
	record := 6 // its index; lines 1 to 6 are start, publication, bind, bridge, state and source.state
	for name, c := range map[string]struct {
		log  [][]byte
		want mismatch
	}{
		"no session.start":  {without(0), mismatch{Line: 1, Seq: 2, Type: typePublication, Field: "type"}},
		"a line missing":    {without(record), mismatch{Line: 7, Seq: 8, Type: typeRecord, Field: "seq"}},
		"no session.end":    {without(len(lines) - 1), mismatch{Line: int64(len(lines)) - 1}},
		"a line twice":      {with(record+1, string(lines[record])), mismatch{Line: 8, Field: "seq"}},
		"an unreadable one": {with(record, `{"seq":7,"payload":{"endMach":007}}`+"\n"), mismatch{Line: 7, Field: "payload.endMach"}},
		"an empty one":      {with(record, "\n"), mismatch{Line: 7}},
		"a torn end":        {with(len(lines)-1, `{"seq":`), mismatch{Line: int64(len(lines))}},
		"an endless one":    {with(record, `{"seq":7,"x":"`+strings.Repeat("x", 2*maxLineBytes)+"\"}\n"), mismatch{Line: 7}},
		"a retrograde bind": {with(record, strings.Replace(string(lines[2]), `{"seq":3`, `{"seq":7`, 1)[:0]+`{"seq":7,"hostNs":1,"type":"target.bind","bundleId":"com.example.app",`+
			`"pid":400,"generation":1,"sourceEpoch":0,"reconnectGeneration":0,"primaryDisplayId":1,"timebase":{"numer":125,"denom":3}}`+"\n"),
			mismatch{Line: 7, Seq: 7, Type: typeBind}},
	} {
		r, err := newOracle().read(bytes.NewReader(bytes.Join(c.log, nil)))
		if err != nil || r.Equal {
			t.Errorf("%s: %v, not found", name, err)
			continue
		}
		found := false
		for _, m := range r.Mismatches {
			m.Got, m.Want = "", ""
			found = found || m == c.want
		}
		if !found {
			t.Errorf("%s: want %+v among %+v", name, c.want, r.Mismatches)
		}
	}
}

func TestMismatchesAreListedUpToABoundAndCountedBeyond(t *testing.T) {
	text := bytes.ReplaceAll(longSession(), []byte(`"lifetimeMs":`), []byte(`"lifetimeMs":1`))
	r, err := newOracle().read(bytes.NewReader(text))
	if err != nil || len(r.Mismatches) != maxListed || r.Total != 2400 {
		t.Errorf("%v: %d listed of %d, want %d of 2400", err, len(r.Mismatches), r.Total, maxListed)
	}
}
