package device

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/framebridge/framebridge/internal/sim"
)

const bundle = "com.example.app"

// phoneWithFiles is a simulated phone of a release, the directory that holds its app's documents, and the lab.
func phoneWithFiles(t *testing.T, release string) (*Phone, string, *sim.Lab) {
	t.Helper()
	c := sim.DefaultDevice("00008101-00000000000000F1", release)
	lab, err := sim.New(sim.Config{Speed: 1, Devices: []sim.DeviceConfig{c}}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lab.Close() })
	address, err := lab.Listen("unix:" + filepath.Join(t.TempDir(), "mux"))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("USBMUXD_SOCKET_ADDRESS", address)
	var agent Agent
	if agent.Host, agent.Port, err = lab.ListenTunnels("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	dir, err := lab.Documents(c.UDID, bundle)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	entry, err := Find(ctx, c.UDID)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Open(ctx, entry, agent)
	if err != nil {
		t.Fatal(err)
	}
	return p, dir, lab
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

// pattern is n bytes that differ from their neighbours.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 31 >> 3)
	}
	return b
}

func TestAnAppsFilesAreReadByEitherService(t *testing.T) {
	for _, c := range []struct {
		name, release string
		open          func(context.Context, *Phone) (Files, error)
	}{
		{"AFC, iOS 15", "15.8", func(ctx context.Context, p *Phone) (Files, error) { return p.OpenDocuments(ctx, bundle) }},
		{"AFC, iOS 26", "26.0", func(ctx context.Context, p *Phone) (Files, error) { return p.OpenDocuments(ctx, bundle) }},
		{"file service, iOS 26", "26.0", func(ctx context.Context, p *Phone) (Files, error) { return p.OpenFileService(ctx, bundle) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, dir, _ := phoneWithFiles(t, c.release)
			long := pattern(3*copyChunk + 17)
			write(t, filepath.Join(dir, "runs/one/long"), long)
			write(t, filepath.Join(dir, "runs/one/empty"), nil)
			f, err := c.open(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			names, err := f.List(t.Context(), "runs/one")
			if slices.Sort(names); err != nil || !slices.Equal(names, []string{"empty", "long"}) {
				t.Errorf("%q, %v", names, err)
			}
			for name, want := range map[string][]byte{"runs/one/long": long, "runs/one/empty": nil} {
				var got bytes.Buffer
				if n, err := f.Copy(t.Context(), &got, name, int64(len(long))); err != nil || n != int64(len(want)) || !bytes.Equal(got.Bytes(), want) {
					t.Errorf("%s: %d bytes, %v; want %d", name, n, err, len(want))
				}
			}
			var got bytes.Buffer
			if _, err := f.Copy(t.Context(), &got, "runs/one/long", int64(len(long))-1); !errors.Is(err, ErrTooLong) || got.Len() >= len(long) {
				t.Errorf("a byte too long: %v, %d bytes", err, got.Len())
			}
			if _, err := f.Copy(t.Context(), &got, "runs/two/long", 1); err == nil || !strings.Contains(err.Error(), "runs/two/long on the phone") {
				t.Errorf("a file that is not there: %v", err)
			}
			// Nothing of that hurt the connection.
			if _, err := f.List(t.Context(), "runs"); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAFileOnThePhoneHasItsNameOnlyWhenItIsWhole(t *testing.T) {
	p, dir, _ := phoneWithFiles(t, "16.7")
	d, err := p.OpenDocuments(t.Context(), bundle)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Put(t.Context(), "lab27/pending/a.json", []byte("{}")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("into a directory that is not there: %v", err)
	}
	for range 2 { // it may be there
		if err := errors.Join(d.MakeDir(t.Context(), "lab27"), d.MakeDir(t.Context(), "lab27/pending")); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Put(t.Context(), "lab27/pending/a.json", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if names, err := d.List(t.Context(), "lab27/pending"); err != nil || !slices.Equal(names, []string{"a.json"}) {
		t.Errorf("%q, %v", names, err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "lab27/pending/a.json")); string(text) != "{}" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := d.List(t.Context(), "lab27/runs"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory that is not there: %v", err)
	}
	if err := d.Rename(t.Context(), "lab27/pending/b.json", "lab27/pending/c.json"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestWhatKeepsFilesFromBeingReadIsNamed(t *testing.T) {
	p, _, lab := phoneWithFiles(t, "26.0")
	if _, err := p.OpenDocuments(t.Context(), "no.such.app"); CodeOf(err) != AppMissing {
		t.Errorf("AFC of an app that is not there: %v", err)
	}
	if _, err := p.OpenFileService(t.Context(), "no.such.app"); CodeOf(err) != AppMissing {
		t.Errorf("files of an app that is not there: %v", err)
	}
	d, err := p.OpenDocuments(t.Context(), bundle)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := lab.Apply(t.Context(), p.UDID, sim.Fault{Kind: "hang", Service: houseArrestService, For: sim.Duration(time.Minute)}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := d.List(ctx, ""); CodeOf(err) != NoAnswer {
		t.Errorf("a service that hangs: %v", err)
	}
	if _, err := d.List(t.Context(), ""); CodeOf(err) != ConnectionLost {
		t.Errorf("after an exchange that was given up: %v", err)
	}
	old, _, _ := phoneWithFiles(t, "16.7")
	if _, err := old.OpenFileService(t.Context(), bundle); CodeOf(err) != ServiceRefused {
		t.Errorf("a file service of iOS 16: %v", err)
	}
}

func TestANotificationIsPostedWhenThePhoneHasReadIt(t *testing.T) {
	p, _, lab := phoneWithFiles(t, "15.8")
	if err := p.PostNotification(t.Context(), "com.example.note"); err != nil {
		t.Error(err)
	}
	if _, err := lab.Apply(t.Context(), p.UDID, sim.Fault{Kind: "hang", Service: notificationProxyService, For: sim.Duration(time.Minute)}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := p.PostNotification(ctx, "com.example.note"); CodeOf(err) != NoAnswer {
		t.Errorf("a proxy that hangs: %v", err)
	}
}

// Headers that claim too much, or belong to another question, are refused before anything is made for them.
func TestAFCAnswersAreBounded(t *testing.T) {
	head := func(all, own, number, operation uint64) []byte {
		b := []byte(afcMagic)
		for _, v := range []uint64{all, own, number, operation} {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
		return b
	}
	for name, b := range map[string][]byte{
		"no AFC":             bytes.Repeat([]byte("x"), afcHeaderBytes),
		"too much data":      head(40+maxAFCData+1, 40, 7, afcData),
		"too many arguments": head(40+maxAFCArguments+1, 40+maxAFCArguments+1, 7, afcData),
		"less than a header": head(39, 39, 7, afcData),
		"data before args":   head(40, 41, 7, afcData),
		"everything":         head(1<<64-1, 40, 7, afcData),
		"another's answer":   head(40, 40, 6, afcData),
		"a short status":     append(head(44, 44, 7, afcStatus), 0, 0, 0, 0),
		"cut off":            head(50, 40, 7, afcData),
	} {
		if _, _, _, err := readAFC(bytes.NewReader(b), 7); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	want := pattern(maxAFCData)
	operation, arguments, data, err := readAFC(bytes.NewReader(appendAFC(nil, 7, afcData, []byte("12345678"), want)), 7)
	if err != nil || operation != afcData || string(arguments) != "12345678" || !bytes.Equal(data, want) {
		t.Errorf("as much as is allowed: %d, %q, %d bytes, %v", operation, arguments, len(data), err)
	}
	if _, _, _, err := readAFC(bytes.NewReader(append(head(48, 48, 7, afcStatus), 8, 0, 0, 0, 0, 0, 0, 0)), 7); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("status 8: %v", err)
	}
}

func FuzzAFCAnswer(f *testing.F) {
	f.Add(appendAFC(nil, 1, afcStatus, make([]byte, 8), nil))
	f.Add(appendAFC(nil, 1, afcData, nil, []byte(".\x00..\x00a\x00")))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, arguments, data, err := readAFC(bytes.NewReader(b), 1)
		if err == nil && len(arguments)+len(data) > len(b)-afcHeaderBytes {
			t.Errorf("%d and %d bytes out of %d", len(arguments), len(data), len(b))
		}
	})
}

// A file service that says one thing and sends another.
func TestAFilesHeaderIsBounded(t *testing.T) {
	s := &FileService{who: "file service"}
	near, far := net.Pipe()
	defer near.Close()
	go func() {
		far.Write(pattern(10))
		far.Close()
	}()
	var got bytes.Buffer
	if n, err := s.piece(t.Context(), &got, near, 20); n != 10 || CodeOf(err) != ConnectionLost || got.Len() != 10 {
		t.Errorf("%d bytes, %v; want the 10 that came and a lost connection", n, err)
	}
}
