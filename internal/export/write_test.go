package export

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/framebridge/framebridge/internal/sessiontest"
	"github.com/framebridge/framebridge/ledger"
)

// events is the log of a short session.
func events(t testing.TB) []byte {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	sessiontest.Session{Seconds: 20}.Record(t, dir)
	text, err := os.ReadFile(filepath.Join(dir, "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestLinesThatCannotBeReadAreNamed(t *testing.T) {
	lines := bytes.SplitAfter(events(t), []byte("\n"))
	lines[9] = []byte("{\"seq\":10,\"hostNs\":1.5}\n")
	lines = slices.Delete(lines, 19, 20) // line 20 is lost
	text := bytes.Join(lines, nil)
	text = append(text, `{"seq":`...) // torn
	jsonl, _ := FormatOf("jsonl")
	path := filepath.Join(t.TempDir(), "out")
	result, err := Write(context.Background(), ledger.NewReader(bytes.NewReader(text)), jsonl, path)
	if err != nil || result.BadLines != 3 {
		t.Fatalf("%+v, %v", result, err)
	}
	var faults []string
	for line := range linesOf(t, open(t, filepath.Join(path, "bad_lines.jsonl"))) {
		row := map[string]any{}
		decode(t, line, &row)
		faults = append(faults, row["fault"].(string))
	}
	if want := []string{"line rejected", "lines missing", "torn last line"}; !slices.Equal(faults, want) {
		t.Errorf("faults %q, want %q", faults, want)
	}
	for _, f := range Formats {
		if _, err := Write(context.Background(), ledger.NewReader(bytes.NewReader(text)), f, filepath.Join(t.TempDir(), "out")); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
	}
}

func TestAnExportNeverTouchesWhatIsThere(t *testing.T) {
	text := events(t)
	for _, f := range Formats {
		for _, taken := range []string{"out", "out.unfinished"} {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, taken), []byte("mine"), 0o644); err != nil {
				t.Fatal(err)
			}
			_, err := Write(context.Background(), ledger.NewReader(bytes.NewReader(text)), f, filepath.Join(dir, "out"))
			if !errors.Is(err, os.ErrExist) {
				t.Errorf("%s, %s taken: %v", f.Name, taken, err)
			}
			left, _ := os.ReadDir(dir)
			kept, _ := os.ReadFile(filepath.Join(dir, taken))
			if len(left) != 1 || string(kept) != "mine" {
				t.Errorf("%s, %s taken: %v is there, and it holds %q", f.Name, taken, left, kept)
			}
		}
	}
}

// brokenLog fails after some events.
type brokenLog struct {
	Log
	left int
	fail func() error
}

func (b *brokenLog) Next(e *ledger.Event) error {
	if b.left--; b.left < 0 {
		return b.fail()
	}
	return b.Log.Next(e)
}

func TestAnExportThatFailsLeavesNothing(t *testing.T) {
	text := events(t)
	errDisk := errors.New("the disk is gone")
	for _, f := range Formats {
		dir := t.TempDir()
		broken := &brokenLog{ledger.NewReader(bytes.NewReader(text)), 1000, func() error { return errDisk }}
		if _, err := Write(context.Background(), broken, f, filepath.Join(dir, "out")); !errors.Is(err, errDisk) {
			t.Errorf("%s: %v", f.Name, err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		endless := &brokenLog{ledger.NewReader(bytes.NewReader(text)), 1000, func() error { cancel(); return nil }}
		if _, err := Write(ctx, endless, f, filepath.Join(dir, "out")); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", f.Name, err)
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("%s left %v", f.Name, left)
		}
	}
}

func TestNothingIsWrittenIntoASession(t *testing.T) {
	dir := t.TempDir()
	session := filepath.Join(dir, "run")
	sessiontest.Session{Seconds: 20, Compress: true}.Record(t, session)
	if err := os.Mkdir(filepath.Join(session, "lab27"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(session, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"run/x.csv", "run/lab27/x.csv", "link/x.csv", "link/../run/x.csv", "run/not/there/yet", "link/not/there/yet"} {
		if err := Outside(filepath.Join(dir, path)); !errors.Is(err, ErrInSession) {
			t.Errorf("%s: %v", path, err)
		}
	}
	t.Chdir(session)
	if err := Outside("x.csv"); !errors.Is(err, ErrInSession) {
		t.Errorf("in the session: %v", err)
	}
	for _, path := range []string{"../x.csv", "../run.csv", "../not/there/yet"} {
		if err := Outside(path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// A bundle of Lab27 has a file of the same name, and a pull into it must be able to go on.
func TestABundleIsNoSessionUnlessItIsInOne(t *testing.T) {
	const plan, bundle, session = "{\"schema\":\"lab27.plan/1\"}\n", "{\"event\":\"admitted\",\"mach\":7}\n", "{\"seq\":1,\"hostNs\":7,\"type\":\"session.start\"}\n"
	for name, c := range map[string]struct {
		files map[string]string
		in    bool
	}{
		"a bundle":                            {map[string]string{"plan.json": plan, "events.jsonl": bundle}, false},
		"a bundle whose events are not there": {map[string]string{"plan.json": plan, "events.jsonl": ""}, false},
		"a session":                           {map[string]string{"events.jsonl": session}, true},
		"a session with somebody's plan":      {map[string]string{"plan.json": plan, "events.jsonl": session}, true},
		"a session that begins with damage":   {map[string]string{"events.jsonl": bundle}, true},
		"a sealed session with one":           {map[string]string{"plan.json": plan, "events.jsonl.zst": "x"}, true},
	} {
		dir := t.TempDir()
		for file, text := range c.files {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := Outside(filepath.Join(dir, "x")); errors.Is(err, ErrInSession) != c.in {
			t.Errorf("%s: %v", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, "events.jsonl"), []byte(session), 0o644); err != nil {
			t.Fatal(err)
		}
		inside := filepath.Join(dir, "lab27")
		if err := os.Mkdir(inside, 0o755); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{"plan.json": plan, "events.jsonl": bundle} {
			if err := os.WriteFile(filepath.Join(inside, file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := Outside(filepath.Join(inside, "x")); !errors.Is(err, ErrInSession) {
			t.Errorf("%s, and a bundle in the session: %v", name, err)
		}
	}
}

func TestACompressedSessionGivesTheSameExport(t *testing.T) {
	dir := t.TempDir()
	plain, packed := filepath.Join(dir, "a", "run"), filepath.Join(dir, "b", "run")
	sessiontest.Session{Seconds: 20}.Record(t, plain)
	sessiontest.Session{Seconds: 20, Compress: true}.Record(t, packed)
	if _, err := os.Stat(filepath.Join(packed, "events.jsonl")); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("the session is not compressed")
	}
	for _, f := range Formats {
		a, b := contents(t, exported(t, plain, f.Name)), contents(t, exported(t, packed, f.Name))
		if a == "" || a != b {
			t.Errorf("%s: the exports differ", f.Name)
		}
	}
}

// contents is all that is in a file, or in the files of a directory, with their names.
func contents(t *testing.T, path string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(path, func(file string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(file)
		all.WriteString(strings.TrimPrefix(file, path) + "\n" + string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

func TestHelpNamesEveryColumn(t *testing.T) {
	help := Help()
	for _, table := range Tables {
		for _, c := range table.Columns {
			if !strings.Contains(help, "\n  "+c.Name+" ") {
				t.Errorf("%s.%s is not told", table.Name, c.Name)
			}
			if c.Doc == "" {
				t.Errorf("%s.%s has no words", table.Name, c.Name)
			}
		}
	}
}

// Whatever a log holds, it can be drawn: times at the ends of int64, displays and lanes without end.
func FuzzTrace(f *testing.F) {
	lines := bytes.SplitAfter(events(f), []byte("\n"))
	f.Add(bytes.Join(lines[:30], nil))
	f.Add([]byte(`{"seq":1,"hostNs":-9223372036854775808,"type":"source.gap","reason":"","rows":-1,"bytes":0,"messages":9223372036854775807}` + "\n" +
		`{"seq":2,"type":"display.frame-lifetime.raw","hostNs":5,"payload":{"displayId":-1,"endMach":9223372036854775807,"beginMach":-1,"presentationNs":9223372036854775807,` +
		`"quality":"valid","timebase":{"numer":0,"denom":0}}}` + "\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		trace, err := newTrace(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		tables := &tabulator{sink: trace, count: map[string]int64{}}
		if err := errors.Join(walk(context.Background(), ledger.NewReader(bytes.NewReader(text)), tables.event, tables.bad), trace.close()); err != nil {
			t.Error(err)
		}
	})
}
