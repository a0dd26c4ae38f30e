package input

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/framebridge/framebridge/ledger"
)

func pipe(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func written(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// soon fails where do waits for what never comes.
func soon(t *testing.T, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("still waiting after 10 s")
	}
}

func TestAFileIsReadToItsEnd(t *testing.T) {
	text := strings.Repeat("0123456789", 100_000)
	f, err := Open(context.Background(), written(t, text))
	if err != nil {
		t.Fatal(err)
	}
	if err := iotest.TestReader(f, []byte(text)); err != nil {
		t.Error(err)
	}
	if _, err := Open(context.Background(), "/nothing/there"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of a file that is not there: %v", err)
	}
}

func TestOpeningAPipeThatNobodyWritesIntoEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, cancel)
	soon(t, func() {
		if _, err := Open(ctx, pipe(t)); !errors.Is(err, context.Canceled) {
			t.Errorf("found %v", err)
		}
	})
}

func TestReadingAPipeThatSaysNoMoreEndsWithTheContext(t *testing.T) {
	path := pipe(t)
	silent, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if _, err := silent.WriteString("some"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, cancel)
	soon(t, func() {
		f, err := Open(ctx, path)
		if err != nil {
			t.Error(err)
			return
		}
		if text, err := io.ReadAll(f); string(text) != "some" || !errors.Is(err, context.Canceled) {
			t.Errorf("read %q, %v", text, err)
		}
	})
}

const event = `{"seq":1,"hostNs":5,"type":"source.state","state":"connected","cause":"test"}` + "\n"

// counted reads a log to its end.
func counted(ctx context.Context, path string) (events, bad int, err error) {
	log, err := OpenLog(ctx, path)
	if err != nil {
		return 0, 0, err
	}
	defer log.Close()
	for {
		var e ledger.Event
		err := log.Next(&e)
		var line *ledger.LineError
		switch {
		case errors.Is(err, io.EOF):
			return events, bad, nil
		case errors.As(err, &line):
			bad++
		case err != nil:
			return events, bad, err
		default:
			events++
		}
	}
}

func TestALogWithoutAnyEventIsNoLog(t *testing.T) {
	for name, c := range map[string]struct {
		text, want string // what the error says; "" where there is none
		events     int
		bad        int
	}{
		"events":                 {event, "", 1, 0},
		"a damaged first line":   {"garbage\n" + strings.Replace(event, `"seq":1`, `"seq":2`, 1), "", 1, 1},
		"missing first lines":    {strings.Replace(event, `"seq":1`, `"seq":4`, 1), "", 1, 1},
		"damaged behind":         {event + "garbage\n", "", 1, 1},
		"text":                   {"devices:\n  - one\n", "line 1", 0, 2},
		"bytes without newlines": {"\x7fELF\x02\x01\x01", "line 1", 0, 1},
		"lines of another log":   {`{"type":"frame","seq":1}` + "\n", "line 1", 0, 1},
		"nothing":                {"", "empty", 0, 0},
	} {
		events, bad, err := counted(context.Background(), written(t, c.text))
		if events != c.events || bad != c.bad || (err == nil) != (c.want == "") {
			t.Errorf("%s: %d events, %d bad lines, %v", name, events, bad, err)
		}
		if err != nil && (!errors.Is(err, ErrUnreadable) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestALogThatCannotBeReadOnIsUnreadable(t *testing.T) {
	path := filepath.Join(t.TempDir(), ledger.CompressedName)
	if err := os.WriteFile(path, []byte(event), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := counted(context.Background(), path); !errors.Is(err, ErrUnreadable) {
		t.Errorf("found %v", err)
	}
}

func TestReadingALogEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := counted(ctx, written(t, event)); !errors.Is(err, context.Canceled) {
		t.Errorf("a file: %v", err)
	}
	path := pipe(t)
	soon(t, func() {
		if _, _, err := counted(ctx, path); !errors.Is(err, context.Canceled) {
			t.Errorf("a pipe: %v", err)
		}
	})
}
