package export

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/framebridge/framebridge/internal/sessiontest"
	"github.com/framebridge/framebridge/ledger"
)

// recorded is a session of a minute, or of an hour in scripts/test-long.
func recorded(t *testing.T) (dir string, frames int) {
	t.Helper()
	seconds := int64(60)
	if os.Getenv("FRAMEBRIDGE_LONG") != "" {
		seconds = 3600
	}
	dir = filepath.Join(t.TempDir(), "run")
	m := sessiontest.Session{Seconds: seconds}.Record(t, dir)
	originNumbers = map[string]int{}
	return dir, int(m.Counts[ledger.TypeRawRecord])
}

func exported(t *testing.T, dir, format string) (path string) {
	t.Helper()
	f, ok := FormatOf(format)
	if !ok {
		t.Fatal(format)
	}
	log, err := ledger.OpenLog(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	path = filepath.Join(t.TempDir(), "out"+f.Suffix)
	if _, err := Write(context.Background(), log, f, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// readBack compares every table of an export with what events.jsonl holds.
func readBack(t *testing.T, dir string, frames int, columns func(table string) []string, rows func(table string) iter.Seq[[]any], same func(want, got any) bool) {
	t.Helper()
	var tables []string
	for _, c := range contract {
		tables = append(tables, c.table)
		if got, want := columns(c.table), names(c.columns); !slices.Equal(got, want) {
			t.Fatalf("columns of %s: %q, want %q", c.table, got, want)
		}
		n := compare(t, c.table, expected(t, dir, c.typ, c.columns, c.rows), rows(c.table), same)
		if n == 0 || c.table == "frames" && n != frames {
			t.Errorf("%d rows of %s, and %d frames were recorded", n, c.table, frames)
		}
	}
	seen := 0
	origins := func(yield func([]any) bool) {
		for row := range expected(t, dir, contract[0].typ, originColumns, withOrigins) {
			if row[0] == json.Number([]string{"1", "2", "3"}[seen]) {
				if seen++; !yield(row) {
					return
				}
			}
		}
	}
	if got, want := columns("origins"), names(originColumns); !slices.Equal(got, want) {
		t.Errorf("columns of origins: %q, want %q", got, want)
	}
	if n := compare(t, "origins", origins, rows("origins"), same); n != 2 { // one for each life of the app
		t.Errorf("%d origins, want 2", n)
	}
	none := func(func([]any) bool) {}
	compare(t, "bad_lines", none, rows("bad_lines"), same)
	for _, table := range Tables {
		if !slices.Contains(append(tables, "origins", "bad_lines"), table.Name) {
			t.Errorf("the table %s is not checked", table.Name)
		}
	}
}

func TestCSVReadsBackEqual(t *testing.T) {
	dir, frames := recorded(t)
	path := exported(t, dir, "csv")
	reader := func(table string) *csv.Reader { return csv.NewReader(open(t, filepath.Join(path, table+".csv"))) }
	columns := func(table string) []string {
		header, err := reader(table).Read()
		if err != nil {
			t.Fatal(err)
		}
		return header
	}
	rows := func(table string) iter.Seq[[]any] {
		return func(yield func([]any) bool) {
			r := reader(table)
			r.Read()
			for {
				record, err := r.Read()
				if errors.Is(err, io.EOF) {
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				var row []any
				for _, field := range record {
					row = append(row, field)
				}
				if !yield(row) {
					return
				}
			}
		}
	}
	readBack(t, dir, frames, columns, rows, func(want, got any) bool {
		switch w := want.(type) {
		case nil:
			return got == ""
		case bool:
			return got == map[bool]string{true: "true", false: "false"}[w]
		case json.Number:
			return got == string(w)
		}
		return got == want
	})
}

// encoding/csv does not tell an empty text from null.
func TestCSVTellsNullFromTheEmptyText(t *testing.T) {
	table := &Table{Columns: []Column{{Name: "a", Kind: Text}, {Name: "b", Kind: Text}, {Name: "c", Kind: Integer}, {Name: "d", Kind: Text}, {Name: "e", Kind: Text}, {Name: "f", Kind: Boolean}}}
	line := appendCSV(nil, table, []cell{{known: true}, {}, {}, {known: true, text: "say \"no\""}, {known: true, text: "a b"}, {known: true, n: 1}})
	if want := `"",,,"say ""no""",a b,true` + "\n"; string(line) != want {
		t.Errorf("%q, want %q", line, want)
	}
}

func TestJSONLinesReadBackEqual(t *testing.T) {
	dir, frames := recorded(t)
	path := exported(t, dir, "jsonl")
	lines := func(table string) iter.Seq[[]byte] { return linesOf(t, open(t, filepath.Join(path, table+".jsonl"))) }
	columns := func(table string) (keys []string) {
		for line := range lines(table) {
			d := json.NewDecoder(strings.NewReader(string(line)))
			d.Token()
			for d.More() {
				key, _ := d.Token()
				d.Token()
				keys = append(keys, key.(string))
			}
			break
		}
		return keys
	}
	rows := func(table string) iter.Seq[[]any] {
		return func(yield func([]any) bool) {
			keys := columns(table)
			for line := range lines(table) {
				object := map[string]any{}
				decode(t, line, &object)
				var row []any
				for _, key := range keys {
					row = append(row, object[key])
				}
				if !yield(row) {
					return
				}
			}
		}
	}
	readBack(t, dir, frames, columns, rows, equal)
}

func TestSQLiteReadsBackEqual(t *testing.T) {
	sqlite3 := program(t, "sqlite3", "sqlite3")
	dir, frames := recorded(t)
	path := exported(t, dir, "sqlite")
	query := func(sql string) iter.Seq[[]byte] { return output(t, "", sqlite3, "-readonly", "-json", path, sql) }
	text := func(sql string) (all string) {
		for line := range query(sql) {
			all += string(line)
		}
		return all
	}
	columns := func(table string) (names []string) {
		var list []struct{ Name, Type string }
		json.Unmarshal([]byte(text("PRAGMA table_info("+table+")")), &list)
		for _, c := range list {
			names = append(names, c.Name)
		}
		return names
	}
	rows := func(table string) iter.Seq[[]any] {
		return func(yield func([]any) bool) {
			keys := columns(table)
			for line := range query("SELECT * FROM " + table + " ORDER BY rowid") {
				object := map[string]any{}
				decode(t, []byte(strings.Trim(string(line), "[,]")), &object)
				var row []any
				for _, key := range keys {
					row = append(row, object[key])
				}
				if !yield(row) {
					return
				}
			}
		}
	}
	readBack(t, dir, frames, columns, rows, func(want, got any) bool {
		if w, ok := want.(bool); ok {
			want = map[bool]json.Number{true: "1", false: "0"}[w]
		}
		return want == got
	})
	for sql, want := range map[string]string{
		"PRAGMA integrity_check":                                                                      `[{"integrity_check":"ok"}]`,
		"SELECT count(*) n FROM pragma_table_list WHERE strict":                                       `[{"n":13}]`,
		"SELECT DISTINCT typeof(presentationNs) t FROM frames WHERE quality = 'valid'":                `[{"t":"integer"}]`,
		"EXPLAIN QUERY PLAN SELECT max(presentationNs) FROM frames WHERE presentationNs < 1000000000": "INDEX frames_by_presentation",
	} {
		if got := text(sql); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", sql, got, want)
		}
	}
}

// hyparquet is the reader of Parquet: plain JavaScript, with nothing of ours or of parquet-go in it.
const hyparquet = "hyparquet@1.33.0"

func TestParquetReadsBackEqual(t *testing.T) {
	node, npm := program(t, "node", "nodejs"), program(t, "npm", "npm")
	modules := t.TempDir()
	if out, err := exec.Command(npm, "install", "--prefix", modules, "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", hyparquet).CombinedOutput(); err != nil {
		t.Skipf("%s CANNOT BE INSTALLED, and Parquet is not read back: %v\n%s", strings.ToUpper(hyparquet), err, out)
	}
	script, err := os.ReadFile("testdata/rows.mjs")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(modules, "rows.mjs"), script, 0o644); err != nil {
		t.Fatal(err)
	}
	dir, frames := recorded(t)
	path := exported(t, dir, "parquet")
	read := func(table string) iter.Seq[[]byte] {
		return output(t, modules, node, "rows.mjs", filepath.Join(path, table+".parquet"))
	}
	columns := func(table string) (names []string) {
		for line := range read(table) {
			if names == nil {
				decode(t, line, &names)
			}
		}
		return names
	}
	rows := func(table string) iter.Seq[[]any] {
		return func(yield func([]any) bool) {
			header := true
			for line := range read(table) {
				var row []any
				if !header {
					decode(t, line, &row)
				}
				if !header && !yield(row) {
					return
				}
				header = false
			}
		}
	}
	readBack(t, dir, frames, columns, rows, equal)
}
