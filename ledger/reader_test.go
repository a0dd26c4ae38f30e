package ledger

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/framebridge/framebridge/internal/jsonline"
)

func stateLine(seq int64) string {
	return `{"seq":` + strconv.FormatInt(seq, 10) + `,"hostNs":5,"type":"source.state","state":"connected","cause":"test"}` + "\n"
}

// told is what a reader says of a log, one word an event or error: 7 is an event with seq 7, "hole@3:150" a fault at line 3, byte 150.
func told(t *testing.T, r *Reader) string {
	t.Helper()
	short := map[Fault]string{FaultRejected: "rejected", FaultHole: "hole", FaultOrder: "order", FaultTorn: "torn"}
	var words []string
	for {
		var e Event
		err := r.Next(&e)
		var bad *LineError
		switch {
		case errors.Is(err, io.EOF):
			return strings.Join(words, " ")
		case errors.As(err, &bad):
			words = append(words, short[bad.Fault]+"@"+strconv.FormatInt(bad.Line, 10)+":"+strconv.FormatInt(bad.Offset, 10))
		case err != nil:
			t.Fatal(err)
		default:
			words = append(words, strconv.FormatInt(e.Seq, 10))
		}
	}
}

func TestReaderGoesOnAfterALineThatIsNoGood(t *testing.T) {
	// stateLine(1) … stateLine(9) have 78 bytes each, stateLine(12) 79.
	for _, c := range []struct{ name, log, want string }{
		{"nothing", "", ""},
		{"whole", stateLine(1) + stateLine(2), "1 2"},
		{"garbage in the place of a line", stateLine(1) + "garbage\n" + stateLine(3), "1 rejected@2:78 3"},
		{"garbage between lines", stateLine(1) + "garbage\n\n" + stateLine(2) + stateLine(3), "1 rejected@2:78 rejected@3:86 2 3"},
		{"torn last line", stateLine(1) + stateLine(2)[:40], "1 torn@2:78"},
		{"whole but for its newline", stateLine(1) + strings.TrimSuffix(stateLine(2), "\n"), "1 torn@2:78"},
		{"a missing line", stateLine(1) + stateLine(3) + stateLine(4), "1 hole@2:78 3 4"},
		{"missing first lines", stateLine(4) + stateLine(5), "hole@1:0 4 5"},
		{"a line twice", stateLine(1) + stateLine(1) + stateLine(2), "1 order@2:78 2"},
		{"two lines swapped", stateLine(1) + stateLine(3) + stateLine(2) + stateLine(4), "1 hole@2:78 3 order@3:156 4"},
		{"a seq changed upwards", stateLine(1) + stateLine(12) + stateLine(3) + stateLine(4), "1 hole@2:78 12 3 4"},
		{"a seq changed downwards", stateLine(1) + stateLine(2) + stateLine(1) + stateLine(4), "1 2 order@3:156 4"},
	} {
		if got := told(t, NewReader(strings.NewReader(c.log))); got != c.want {
			t.Errorf("%s: told %q, want %q", c.name, got, c.want)
		}
	}
}

func TestLineLongerThanTheBoundIsRejectedWithoutBeingKept(t *testing.T) {
	long := strings.Repeat("x", 3*jsonline.MaxLineBytes) + "\n"
	r := NewReader(strings.NewReader(stateLine(1) + long + stateLine(3)))
	if got, want := told(t, r), "1 rejected@2:78 3"; got != want {
		t.Errorf("told %q, want %q", got, want)
	}
	if bound := 2 * jsonline.MaxLineBytes; cap(r.buffer) > bound {
		t.Errorf("the reader kept %d bytes, want at most %d", cap(r.buffer), bound)
	}
	exact := strings.TrimSuffix(stateLine(1), "}\n")
	exact += strings.Repeat(" ", jsonline.MaxLineBytes-len(exact)-1) + "}"
	if got := told(t, NewReader(strings.NewReader(exact+"\n"+stateLine(2)))); got != "1 2" {
		t.Errorf("a line of exactly %d bytes: told %q, want %q", len(exact), got, "1 2")
	}
	if got := told(t, NewReader(strings.NewReader(exact+" \n"+stateLine(2)))); got != "rejected@1:0 2" {
		t.Errorf("a line of %d bytes: told %q, want %q", len(exact)+1, got, "rejected@1:0 2")
	}
}

func TestLogIsReadCompressedOrNot(t *testing.T) {
	text := stateLine(1) + "garbage\n" + stateLine(3)
	plain, packed := t.TempDir(), t.TempDir()
	writeFile(t, filepath.Join(plain, EventsName), []byte(text))
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(packed, CompressedName), encoder.EncodeAll([]byte(text), nil))
	for _, path := range []string{plain, filepath.Join(plain, EventsName), packed, filepath.Join(packed, CompressedName)} {
		log, err := OpenLog(path)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := told(t, log.Reader), "1 rejected@2:78 3"; got != want {
			t.Errorf("%s: told %q, want %q", path, got, want)
		}
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := OpenLog(t.TempDir()); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "is no session") {
		t.Errorf("an empty directory: found %v", err)
	}
}

func TestDamagedCompressedLogIsAnErrorAndNoEnd(t *testing.T) {
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	packed := encoder.EncodeAll([]byte(strings.Repeat(stateLine(1), 1000)), nil)
	path := filepath.Join(t.TempDir(), CompressedName)
	writeFile(t, path, packed[:len(packed)-5])
	log, err := OpenLog(path)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	for {
		var e Event
		err := log.Next(&e)
		var bad *LineError
		if err == nil || errors.As(err, &bad) && bad.Fault != FaultTorn {
			continue
		}
		if errors.Is(err, io.EOF) {
			t.Error("the cut log ended like a whole one")
		}
		return
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte(stateLine(1) + stateLine(12) + "garbage\n" + stateLine(3) + stateLine(3)[:20]))
	f.Add([]byte("\n\n{}\n"))
	f.Fuzz(func(t *testing.T, log []byte) {
		r := NewReader(bytes.NewReader(log))
		lines := bytes.Count(log, []byte("\n"))
		events, refused, torn := 0, 0, 0
		for {
			var e Event
			err := r.Next(&e)
			var bad *LineError
			if errors.Is(err, io.EOF) {
				break
			}
			switch {
			case err == nil:
				events++
			case !errors.As(err, &bad):
				t.Fatal(err)
			case bad.Fault == FaultTorn:
				torn++
			case bad.Fault != FaultHole:
				refused++
			}
			if at := r.Offset(); at > 0 && log[at-1] != '\n' {
				t.Fatalf("offset %d is no line's first byte", at)
			}
		}
		if events+refused != lines || torn > 1 || (torn == 1) != (len(log) > 0 && log[len(log)-1] != '\n') {
			t.Fatalf("%d events, %d refused, %d torn of %d lines", events, refused, torn, lines)
		}
	})
}

func writeFile(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
}
