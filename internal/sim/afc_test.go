package sim

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/danielpaulus/go-ios/ios"
	"github.com/danielpaulus/go-ios/ios/afc"
	"github.com/danielpaulus/go-ios/ios/fileservice"
	"github.com/danielpaulus/go-ios/ios/house_arrest"
)

// pattern is n bytes that differ from place to place.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i>>8) ^ byte(i*7)
	}
	return b
}

func put(t *testing.T, c *afc.Client, path string, content []byte) {
	t.Helper()
	f, err := c.Open(path, afc.WRITE_ONLY_CREATE_TRUNC)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, c *afc.Client, path string) []byte {
	t.Helper()
	f, err := c.Open(path, afc.READ_ONLY)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func afcList(t *testing.T, c *afc.Client, path string) []string {
	t.Helper()
	list, err := c.List(path)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(list)
	return list
}

// documents opens the scene's app's files in each way that go-ios has.
func documents(t *testing.T, l *Lab, a agent) map[string]*afc.Client {
	t.Helper()
	old, err := house_arrest.New(goIOSDevice(t, udid16), "com.example.app")
	if err != nil {
		t.Fatal(err)
	}
	lockdown, err := house_arrest.New(goIOSDevice(t, udid26), "com.example.app")
	if err != nil {
		t.Fatal(err)
	}
	shim, err := ios.ConnectToShimService(mustDiscover(t, a.find(t, udid26)), "com.apple.mobile.house_arrest.shim.remote")
	if err != nil {
		t.Fatal(err)
	}
	writePlist(shim, map[string]any{"Command": "VendContainer", "Identifier": "com.example.app"})
	if answer, err := readPlist(shim); err != nil || answer["Status"] != "Complete" {
		t.Fatalf("%v, %v", answer, err)
	}
	clients := map[string]*afc.Client{udid16 + " lockdownd": old, udid26 + " lockdownd": lockdown, udid26 + " shim": afc.NewFromConn(shim)}
	for _, c := range clients {
		t.Cleanup(func() { c.Close() })
	}
	return clients
}

func TestGoIOSReadsAndWritesAnAppsFiles(t *testing.T) {
	l, a := startTunnels(t, DefaultDevice(udid16, "16.7"), DefaultDevice(udid26, "26.0"))
	for name, c := range documents(t, l, a) {
		t.Run(name, func(t *testing.T) {
			udid, _, _ := strings.Cut(name, " ")
			dir, err := l.Documents(udid, "com.example.app")
			if err != nil {
				t.Fatal(err)
			}
			if got := afcList(t, c, "/"); !slices.Equal(got, []string{"Documents", "Library", "tmp"}) {
				t.Errorf("container: %q", got)
			}
			if err := c.MkDir("/Documents/lab27/runs/one"); err != nil {
				t.Fatal(err)
			}
			long := pattern(3<<20 + 7) // more than one read gives
			put(t, c, "/Documents/lab27/runs/one/a.bin", long)
			put(t, c, "/Documents/lab27/runs/one/empty", nil)
			if got := get(t, c, "/Documents/lab27/runs/one/a.bin"); !bytes.Equal(got, long) {
				t.Errorf("read back %d bytes of %d, or others", len(got), len(long))
			}
			if got := get(t, c, "/Documents/lab27/runs/one/empty"); len(got) != 0 {
				t.Errorf("an empty file has %d bytes", len(got))
			}
			if got, err := os.ReadFile(filepath.Join(dir, "lab27", "runs", "one", "a.bin")); err != nil || !bytes.Equal(got, long) {
				t.Errorf("on this machine: %d bytes, %v", len(got), err)
			}
			// What the app writes, clients read.
			if err := os.WriteFile(filepath.Join(dir, "from-app"), []byte("hello"), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := get(t, c, "Documents/from-app"); string(got) != "hello" {
				t.Errorf("%q", got)
			}
			if got := afcList(t, c, "/Documents/lab27/runs/one"); !slices.Equal(got, []string{"a.bin", "empty"}) {
				t.Errorf("list: %q", got)
			}
			if i, err := c.Stat("/Documents/lab27/runs/one/a.bin"); err != nil || i.Size != int64(len(long)) || i.IsDir() || i.Type != "S_IFREG" {
				t.Errorf("stat: %+v, %v", i, err)
			}
			if i, err := c.Stat("/Documents/lab27"); err != nil || !i.IsDir() {
				t.Errorf("stat: %+v, %v", i, err)
			}
			var walked []string
			if err := c.WalkDir("/Documents", func(p string, _ afc.FileInfo, err error) error { walked = append(walked, p); return err }); err != nil || len(walked) != 6 {
				t.Errorf("walked %q, %v", walked, err)
			}
			for _, e := range []struct {
				what string
				err  error
				want string
			}{
				{"a directory that is not empty", c.Remove("/Documents/lab27"), "DirNotEmpty"},
				{"a file that is not there", c.Remove("/Documents/nothing"), "ObjectNotFound"},
				{"everything at once", c.RemoveAll("/"), "PermDenied"},
				{"everything that is not there", c.RemoveAll("/Documents/nothing"), "ObjectNotFound"},
				{"a file", c.Remove("/Documents/lab27/runs/one/empty"), ""},
				{"a directory", c.RemoveAll("/Documents/lab27"), ""},
			} {
				if (e.err == nil) != (e.want == "") || e.err != nil && !strings.Contains(e.err.Error(), e.want) {
					t.Errorf("removing %s: %v, want %q", e.what, e.err, e.want)
				}
			}
			if got := afcList(t, c, "/Documents"); !slices.Equal(got, []string{"from-app"}) {
				t.Errorf("left over: %q", got)
			}
			if f, err := c.Open("/Documents/nothing", afc.READ_ONLY); err == nil || !strings.Contains(err.Error(), "ObjectNotFound") {
				t.Errorf("%v, %v", f, err)
			}
			if f, err := c.Open("/Documents", afc.READ_ONLY); err == nil || !strings.Contains(err.Error(), "ObjectIsDir") {
				t.Errorf("%v, %v", f, err)
			}
			if i, err := c.DeviceInfo(); err != nil || i.BlockSize != 4096 || i.TotalBytes == 0 {
				t.Errorf("%+v, %v", i, err)
			}
		})
	}
}

func TestAFCGivesTheMediaDirectory(t *testing.T) {
	startLab(t, DefaultDevice(udid16, "16.7"))
	c, err := afc.New(goIOSDevice(t, udid16))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := afcList(t, c, "/"); !slices.Equal(got, []string{"DCIM"}) {
		t.Errorf("%q", got)
	}
	put(t, c, "note.txt", []byte("x"))
	if got := get(t, c, "/note.txt"); string(got) != "x" {
		t.Errorf("%q", got)
	}
}

func TestHouseArrestOpensInstalledAppsOnly(t *testing.T) {
	startLab(t, DefaultDevice(udid16, "16.7"))
	if c, err := house_arrest.New(goIOSDevice(t, udid16), "com.example.nothing"); err == nil || !strings.Contains(err.Error(), "ApplicationLookupFailed") {
		t.Errorf("%v, %v", c, err)
	}
	conn, err := connectService(udid16, houseArrestName)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if answer := ask(t, conn, map[string]any{"Command": "Dance"}); answer["Error"] != "UnknownCommand" {
		t.Errorf("%v", answer)
	}
}

// afcPeer speaks AFC packet by packet.
type afcPeer struct {
	t *testing.T
	io.ReadWriter
	n uint64
}

// ask sends a packet and returns the answer's operation, arguments and data.
func (p *afcPeer) ask(operation uint64, arguments, data []byte) (op uint64, args, rest []byte) {
	p.t.Helper()
	p.n++
	b := []byte("CFA6LPAA")
	for _, v := range []uint64{uint64(40 + len(arguments) + len(data)), uint64(40 + len(arguments)), p.n, operation} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	if _, err := p.Write(append(append(b, arguments...), data...)); err != nil {
		p.t.Fatal(err)
	}
	head := make([]byte, 40)
	if _, err := io.ReadFull(p, head); err != nil {
		p.t.Fatal(err)
	}
	le := binary.LittleEndian
	all, own := le.Uint64(head[8:]), le.Uint64(head[16:])
	if string(head[:8]) != "CFA6LPAA" || le.Uint64(head[24:]) != p.n {
		p.t.Fatalf("% x: want an answer to packet %d", head, p.n)
	}
	body := make([]byte, all-40)
	if _, err := io.ReadFull(p, body); err != nil {
		p.t.Fatal(err)
	}
	return le.Uint64(head[32:]), body[:own-40], body[own-40:]
}

// status is the status that a packet is answered with.
func (p *afcPeer) status(operation uint64, arguments, data []byte) uint64 {
	p.t.Helper()
	op, args, _ := p.ask(operation, arguments, data)
	if op != 1 || len(args) != 8 {
		p.t.Fatalf("answered with operation %d, % x", op, args)
	}
	return binary.LittleEndian.Uint64(args)
}

func numbers(v ...uint64) (b []byte) {
	for _, n := range v {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return b
}

func TestVendDocumentsGivesNothingButDocumentsAndNobodyLeavesTheApp(t *testing.T) {
	l := startLab(t, DefaultDevice(udid16, "16.7"))
	conn, err := connectService(udid16, houseArrestName)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ask(t, conn, map[string]any{"Command": "VendDocuments", "Identifier": "com.example.app"})
	p := &afcPeer{t: t, ReadWriter: conn}
	dir, err := l.Documents(udid16, "com.example.app")
	if err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(filepath.Dir(dir), "Library", "secret")
	if err := errors.Join(os.WriteFile(secret, []byte("s"), 0o600), os.WriteFile(filepath.Join(dir, "a"), []byte("abcdef"), 0o600),
		os.Symlink("/etc/passwd", filepath.Join(dir, "out"))); err != nil {
		t.Fatal(err)
	}
	path := func(s string) []byte { return append([]byte(s), 0) }
	open := func(mode uint64, s string) []byte { return append(numbers(mode), path(s)...) }
	const permDenied, notFound, invalid, notSupported, ioError = 10, 8, 7, 15, 20
	for _, c := range []struct {
		what      string
		operation uint64
		arguments []byte
		want      uint64
	}{
		{"list the container", 0x03, path("/"), permDenied},
		{"read what is not a document", 0x0d, open(1, "/Library/secret"), permDenied},
		{"climb out of Documents", 0x0d, open(1, "/Documents/../Library/secret"), permDenied},
		{"a name that begins alike", 0x09, path("/Documents2"), permDenied},
		{"remove Documents", 0x22, path("/Documents"), permDenied},
		{"rename to elsewhere", 0x18, append(path("/Documents/a"), path("/Library/a")...), permDenied},
		{"rename from elsewhere", 0x18, append(path("/Library/secret"), path("/Documents/s")...), permDenied},
		{"follow a link out of the app", 0x0d, open(1, "/Documents/out"), ioError},
		{"a file below a file", 0x0d, open(1, "/Documents/a/b"), notFound},
		{"a mode that is none", 0x0d, open(7, "/Documents/a"), invalid},
		{"no arguments", 0x0d, nil, invalid},
		{"a handle that nobody got", 0x0f, numbers(99, 1), invalid},
		{"an operation that is none", 0x77, nil, notSupported},
		{"rename", 0x18, append(path("/Documents/a"), path("/Documents/b")...), 0},
		{"make a directory with those above it", 0x09, path("/Documents/x/y/z"), 0},
	} {
		if got := p.status(c.operation, c.arguments, nil); got != c.want {
			t.Errorf("%s: status %d, want %d", c.what, got, c.want)
		}
	}
	if op, args, data := p.ask(0x0a, path("/Documents/out"), nil); op != 2 || len(args) != 0 || !bytes.Contains(data, []byte("st_ifmt\x00S_IFLNK\x00")) ||
		!bytes.Contains(data, []byte("LinkTarget\x00/etc/passwd\x00")) {
		t.Errorf("a link: operation %d, %q", op, data)
	}

	// One file, at any place.
	op, args, _ := p.ask(0x0d, open(2, "/Documents/b"), nil)
	if op != 0x0e || len(args) != 8 {
		t.Fatalf("opened: operation %d, % x", op, args)
	}
	h := binary.LittleEndian.Uint64(args)
	if got := p.status(0x11, numbers(h, 0, 2), nil); got != 0 { // seek
		t.Errorf("seek: %d", got)
	}
	if op, _, data := p.ask(0x0f, numbers(h, 3), nil); op != 2 || string(data) != "cde" {
		t.Errorf("read: %d %q", op, data)
	}
	if op, args, _ := p.ask(0x12, numbers(h), nil); op != 0x13 || !bytes.Equal(args, numbers(5)) {
		t.Errorf("tell: %d % x", op, args)
	}
	if got := p.status(0x10, numbers(h), []byte("XYZ")); got != 0 {
		t.Errorf("write: %d", got)
	}
	if got := p.status(0x15, numbers(h, 7), nil); got != 0 { // set size
		t.Errorf("set size: %d", got)
	}
	if got := p.status(0x15, numbers(h, 1<<30+1), nil); got != 13 {
		t.Errorf("a size past the bound: %d", got)
	}
	if op, _, data := p.ask(0x0f, numbers(h, 10), nil); op != 2 || len(data) != 0 {
		t.Errorf("read at the end: %d %q", op, data)
	}
	if got := p.status(0x14, numbers(h), nil); got != 0 {
		t.Errorf("close: %d", got)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "b")); err != nil || string(b) != "abcdeXY" {
		t.Errorf("%q, %v", b, err)
	}
	// Handles are bounded.
	for i := range 65 {
		op, args, _ := p.ask(0x0d, open(1, "/Documents/b"), nil)
		if i < 64 && op != 0x0e || i == 64 && (op != 1 || !bytes.Equal(args, numbers(3))) {
			t.Fatalf("file %d: operation %d, % x", i, op, args)
		}
	}
}

func TestAFCPacketsAreBounded(t *testing.T) {
	packet := func(all, own uint64) []byte { return append([]byte("CFA6LPAA"), numbers(all, own, 1, 3)...) }
	for _, c := range []struct {
		name string
		b    []byte
	}{
		{"another magic", append([]byte("CFA7LPAA"), numbers(40, 40, 1, 3)...)},
		{"shorter than its header", packet(40, 39)},
		{"shorter than its arguments", packet(40, 48)},
		{"arguments past the bound", packet(40+65537, 40+65537)},
		{"data past the bound", packet(40+1<<30+1, 40)},
	} {
		if p, err := readAFC(bytes.NewReader(c.b)); err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %+v, %v", c.name, p, err)
		}
	}
	if _, err := readAFC(bytes.NewReader(packet(48, 48))); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("half a packet: %v", err)
	}
}

func TestFilesEndWithTheLab(t *testing.T) {
	l := startLab(t, DefaultDevice(udid16, "16.7"))
	dir, err := l.Documents(udid16, "com.example.app")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Documents(udid16, "com.example.nothing"); !errors.Is(err, ErrNoApp) {
		t.Errorf("%v", err)
	}
	if _, err := l.Documents("nobody", "com.example.app"); err == nil {
		t.Error("a device that is not there has documents")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Dir(filepath.Dir(filepath.Dir(dir)))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if dir, err := l.Documents(udid16, "com.example.app"); err == nil {
		t.Errorf("after the end: %s", dir)
	}
}

func TestGoIOSPullsFilesThroughTheFileService(t *testing.T) {
	l, a := startTunnels(t, DefaultDevice(udid26, "26.0"))
	d := mustDiscover(t, a.find(t, udid26))
	dir, err := l.Documents(udid26, "com.example.app")
	if err != nil {
		t.Fatal(err)
	}
	long := pattern(3<<20 + 11)
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "runs"), 0o700), os.WriteFile(filepath.Join(dir, "runs", "long"), long, 0o600),
		os.WriteFile(filepath.Join(dir, "runs", "empty"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	c, err := fileservice.New(d, fileservice.DomainAppDataContainer, "com.example.app")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for path, want := range map[string][]string{".": {"Documents", "Library", "tmp"}, "Documents/runs": {"empty", "long"}, "Library": {}, "../../..": {"Documents", "Library", "tmp"}} {
		got, err := c.ListDirectory(path)
		slices.Sort(got)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v, want %q", path, got, err, want)
		}
	}
	for path, want := range map[string][]byte{"Documents/runs/long": long, "/Documents/runs/empty": {}} {
		var got bytes.Buffer
		if err := c.PullFile(path, &got); err != nil || !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s: %d bytes, %v, want %d", path, got.Len(), err, len(want))
		}
	}
	for _, path := range []string{"Documents/nothing", "Documents", "../../../etc/passwd"} {
		if err := c.PullFile(path, io.Discard); err == nil || !strings.Contains(err.Error(), "device error") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := c.ListDirectory("nothing"); err == nil || !strings.Contains(err.Error(), "device error") {
		t.Errorf("%v", err)
	}
	if err := c.PushFile("Documents/x", strings.NewReader("x"), 1, 0o644, 501, 501); err == nil || !strings.Contains(err.Error(), "not simulated") {
		t.Errorf("pushed: %v", err)
	}
	if _, err := fileservice.New(d, fileservice.DomainAppDataContainer, "com.example.nothing"); err == nil || !strings.Contains(err.Error(), "no such app") {
		t.Errorf("%v", err)
	}
	if _, err := fileservice.New(d, fileservice.DomainSystemCrashLogs, ""); err == nil || !strings.Contains(err.Error(), "domain 5") {
		t.Errorf("%v", err)
	}
}

func TestAFileIsFetchedOnceByWhoWasOfferedIt(t *testing.T) {
	l, a := startTunnels(t, DefaultDevice(udid26, "26.0"))
	d := mustDiscover(t, a.find(t, udid26))
	dir, err := l.Documents(udid26, "com.example.app")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "x"), []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	fetch := func(magic string, token, id uint64) []byte {
		conn, err := ios.ConnectToServiceTunnelIface(d, fileDataName)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		b := []byte(magic)
		for _, v := range []uint64{token, 0, id, 0} {
			b = binary.BigEndian.AppendUint64(b, v)
		}
		conn.Write(b)
		got, _ := io.ReadAll(conn)
		return got
	}
	offer := func() (token, id uint64) {
		t.Helper()
		answer, err := l.devices[0].offer(filepath.Dir(dir), "Documents/x")
		if err != nil {
			t.Fatal(err)
		}
		return answer["Response"].(uint64), answer["NewFileID"].(uint64)
	}
	token, id := offer()
	if got := fetch("rwb!FILE", token+1, id); len(got) != 0 {
		t.Errorf("with another token: %q", got)
	}
	if got := fetch("rwb?FILE", token, id); len(got) != 0 {
		t.Errorf("with another magic: %q", got)
	}
	if got := fetch("rwb!FILE", token, id); !bytes.HasSuffix(got, []byte("\x00\x00\x00\x07content")) || len(got) != 47 {
		t.Errorf("%q", got)
	}
	if got := fetch("rwb!FILE", token, id); len(got) != 0 {
		t.Errorf("again: %q", got)
	}
	token, id = offer()
	for range 64 {
		offer()
	}
	if got := fetch("rwb!FILE", token, id); len(got) != 0 {
		t.Errorf("64 offers later: %q", got)
	}
}

func TestFileServicesCanBeSlow(t *testing.T) {
	l := startLab(t, DefaultDevice(udid16, "16.7"))
	c, err := house_arrest.New(goIOSDevice(t, udid16), "com.example.app")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	apply(t, l, udid16, Fault{Kind: "slow", Service: houseArrestName, Delay: Duration(200 * time.Millisecond)})
	begin := time.Now()
	afcList(t, c, "/")
	if d := time.Since(begin); d < 200*time.Millisecond {
		t.Errorf("answered after %s", d)
	}
}

func FuzzAFC(f *testing.F) {
	packet := func(operation uint64, arguments []byte, data string) []byte {
		b := append([]byte("CFA6LPAA"), numbers(uint64(40+len(arguments)+len(data)), uint64(40+len(arguments)), 1, operation)...)
		return append(append(b, arguments...), data...)
	}
	open := packet(0x0d, append(numbers(4), "/Documents/a\x00"...), "")
	f.Add(slices.Concat(open, packet(0x10, numbers(1), "hello"), packet(0x11, numbers(1, 0, 0), ""), packet(0x0f, numbers(1, 5), ""), packet(0x14, numbers(1), "")))
	f.Add(slices.Concat(packet(0x09, []byte("Documents/x\x00"), ""), packet(0x03, []byte("Documents"), ""), packet(0x18, []byte("a\x00../../b\x00"), ""), packet(0x22, []byte("."), "")))
	f.Add(packet(0x10, nil, ""))
	d := stillLab(f).devices[0]
	top := f.TempDir()
	outside := filepath.Join(top, "outside")
	app := filepath.Join(top, "app")
	if err := errors.Join(os.WriteFile(outside, []byte("untouched"), 0o600), os.MkdirAll(filepath.Join(app, "Documents"), 0o700)); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if bytes.Contains(b, numbers(0x15)) {
			t.Skip("files of a gibibyte, again and again")
		}
		// Every end is a good one, as long as there is an end and nothing outside was touched.
		_ = talkAFC(t.Context(), d, afcName, byteConn{Reader: bytes.NewReader(b)}, app, "Documents")
		if got, err := os.ReadFile(outside); err != nil || string(got) != "untouched" {
			t.Errorf("%q, %v", got, err)
		}
		if err := errors.Join(os.RemoveAll(app), os.MkdirAll(filepath.Join(app, "Documents"), 0o700)); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzTunnelPreamble(f *testing.F) {
	f.Add([]byte("\xfd0123456789abcdef\x00\xc0\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) != preambleBytes {
			return
		}
		to, err := parsePreamble([preambleBytes]byte(b))
		port := binary.LittleEndian.Uint32(b[16:])
		if (err == nil) != (port <= 65535) || err == nil && (uint32(to.Port()) != port || to.Addr().As16() != [16]byte(b)) {
			t.Errorf("% x: %v, %v", b, to, err)
		}
	})
}
