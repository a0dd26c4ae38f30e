package device

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"howett.net/plist"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is what these tests give an exchange; silence must show as such soon after.
const patience = 300 * time.Millisecond

// muxd is what answers on usbmuxd's socket: it is handed each connection.
func muxd(t *testing.T, talk func(net.Conn)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mux")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() { ln.Close(); all.Wait() })
	t.Setenv("USBMUXD_SOCKET_ADDRESS", "UNIX://"+path)
	all.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				conn.SetDeadline(time.Now().Add(5 * time.Second))
				talk(conn)
			})
		}
	})
}

// muxMessage is an answer of usbmuxd's.
func muxMessage(v any) []byte {
	body, err := plist.Marshal(v, plist.XMLFormat)
	if err != nil {
		panic(err)
	}
	head := make([]byte, 16)
	binary.LittleEndian.PutUint32(head, uint32(16+len(body)))
	head[4], head[8], head[12] = 1, 8, 1
	return append(head, body...)
}

// readMux reads one request.
func readMux(conn net.Conn) map[string]any {
	head := make([]byte, 16)
	if _, err := io.ReadFull(conn, head); err != nil {
		return nil
	}
	body := make([]byte, binary.LittleEndian.Uint32(head)-16)
	io.ReadFull(conn, body)
	var m map[string]any
	plist.Unmarshal(body, &m)
	return m
}

func TestAHostileUsbmuxdIsAnErrorSoonAndNothingElse(t *testing.T) {
	for name, c := range map[string]struct {
		answer []byte // nil: it stays silent
		want   Code
	}{
		"silence":           {nil, NoAnswer},
		"garbage":           {[]byte(strings.Repeat("x", 64)), BadAnswer},
		"an endless length": {[]byte("\xff\xff\xff\x7f\x01\x00\x00\x00\x08\x00\x00\x00\x01\x00\x00\x00"), BadAnswer},
		"a short length":    {[]byte("\x03\x00\x00\x00\x01\x00\x00\x00\x08\x00\x00\x00\x01\x00\x00\x00"), BadAnswer},
		"half a message":    {muxMessage(map[string]any{"DeviceList": []any{}})[:20], ConnectionLost},
	} {
		t.Run(name, func(t *testing.T) {
			muxd(t, func(conn net.Conn) {
				readMux(conn)
				if c.answer == nil {
					io.Copy(io.Discard, conn)
					return
				}
				conn.Write(c.answer)
			})
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			began := time.Now()
			_, err := List(ctx)
			if err == nil || CodeOf(err) != c.want {
				t.Errorf("%v (code %q), want code %q", err, CodeOf(err), c.want)
			}
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}

func TestTheCallersOwnEndIsNoFaultOfThePhone(t *testing.T) {
	muxd(t, func(conn net.Conn) { io.Copy(io.Discard, conn) })
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := List(ctx); !errors.Is(err, context.Canceled) || CodeOf(err) != "" {
		t.Errorf("%v", err)
	}
}

func TestNoUsbmuxdNamesTheRemedy(t *testing.T) {
	t.Setenv("USBMUXD_SOCKET_ADDRESS", "UNIX://"+filepath.Join(t.TempDir(), "nobody"))
	_, err := List(context.Background())
	if CodeOf(err) != UsbmuxdAbsent || !strings.HasSuffix(err.Error(), "start a usbmuxd there, or unset USBMUXD_SOCKET_ADDRESS") {
		t.Errorf("%v", err)
	}
	for _, address := range []string{"a://b://c", "://", "UNIX://"} { // shapes at which go-ios would panic
		t.Setenv("USBMUXD_SOCKET_ADDRESS", address)
		if _, err := List(context.Background()); CodeOf(err) != UsbmuxdAbsent || !strings.Contains(err.Error(), "unset USBMUXD_SOCKET_ADDRESS") {
			t.Errorf("%q: %v", address, err)
		}
	}
}

// A usbmuxd that lists one phone and hands every connection to it on to lockdownd, which the test plays.
func withLockdown(t *testing.T, lockdownd func(net.Conn)) Entry {
	muxd(t, func(conn net.Conn) {
		switch m := readMux(conn); m["MessageType"] {
		case "Connect":
			conn.Write(muxMessage(map[string]any{"MessageType": "Result", "Number": 0}))
			lockdownd(conn)
		default:
			conn.Write(muxMessage(map[string]any{"MessageType": "Result", "Number": 3}))
		}
	})
	return Entry{UDID: "U", DeviceID: 1, Connection: "USB"}
}

func lockdownMessage(v any) []byte {
	body, err := plist.Marshal(v, plist.XMLFormat)
	if err != nil {
		panic(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

func TestAHostileLockdowndIsAnErrorSoonAndNothingElse(t *testing.T) {
	for name, c := range map[string]struct {
		answer []byte
		want   Code
		words  string
	}{
		"silence":             {nil, NoAnswer, "does not answer"},
		"no property list":    {append([]byte{0, 0, 0, 4}, "junk"...), BadAnswer, "property list"},
		"an endless length":   {[]byte{0xff, 0xff, 0xff, 0xff}, BadAnswer, "at most 1048576 bytes"},
		"facts that are none": {lockdownMessage(map[string]any{"Value": "text"}), BadAnswer, "expected a dictionary"},
		"locked":              {lockdownMessage(map[string]any{"Error": "PasswordProtected"}), Locked, "unlock the phone"},
		"trust withdrawn":     {lockdownMessage(map[string]any{"Error": "InvalidHostID"}), NotPaired, "idevicepair"},
		"another refusal":     {lockdownMessage(map[string]any{"Error": "SomethingNew"}), ServiceRefused, "SomethingNew"},
		"wrong types":         {lockdownMessage(map[string]any{"Value": map[string]any{"ProductVersion": 7, "DeviceName": []any{}}}), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			entry := withLockdown(t, func(conn net.Conn) {
				length := make([]byte, 4)
				if _, err := io.ReadFull(conn, length); err != nil {
					return
				}
				io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(length)))
				if c.answer == nil {
					io.Copy(io.Discard, conn)
					return
				}
				conn.Write(c.answer)
			})
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			facts, err := ReadFacts(ctx, entry)
			if CodeOf(err) != c.want || c.want != "" && !strings.Contains(err.Error(), c.words) {
				t.Errorf("%v (code %q), want code %q and %q", err, CodeOf(err), c.want, c.words)
			}
			if facts.OSVersion != "" || facts.Major() != 0 {
				t.Errorf("facts %+v from an answer without any", facts)
			}
		})
	}
}

func TestAPhoneWithoutAPairRecordIsNotPaired(t *testing.T) {
	entry := withLockdown(t, func(conn net.Conn) {
		length := make([]byte, 4)
		if _, err := io.ReadFull(conn, length); err == nil {
			io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(length)))
			conn.Write(lockdownMessage(map[string]any{"Value": map[string]any{"ProductVersion": "16.7", "FramebridgeSimulated": true}}))
		}
	})
	phone, err := Open(context.Background(), entry, Agent{})
	if CodeOf(err) != NotPaired || phone == nil || phone.OSVersion != "16.7" || !phone.Simulated {
		t.Errorf("%+v, %v", phone, err)
	}
}

func agentOf(t *testing.T, handler http.HandlerFunc) Agent {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	host, port, _ := net.SplitHostPort(strings.TrimPrefix(server.URL, "http://"))
	n, _ := strconv.Atoi(port)
	return Agent{Host: host, Port: n}
}

func TestWhatAnswersAsATunnelAgent(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		want   Code
	}{
		"a tunnel":                {200, `{"udid":"U","address":"fd00::1","rsdPort":58783,"userspaceTun":true,"userspaceTunPort":60106}`, ""},
		"none":                    {404, "tunnel not found", NeedsTunnel},
		"an error":                {500, "no", BadAnswer},
		"no JSON":                 {200, "<html>", BadAnswer},
		"another phone's":         {200, `{"udid":"V","address":"fd00::1","rsdPort":1}`, BadAnswer},
		"an address that is none": {200, `{"udid":"U","address":"localhost; rm","rsdPort":1}`, BadAnswer},
		"a port that is none":     {200, `{"udid":"U","address":"::1","rsdPort":0}`, BadAnswer},
		"an endless answer":       {200, `{"udid":"` + strings.Repeat("x", 1<<20), BadAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			a := agentOf(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/tunnel/U" {
					t.Errorf("asked for %s", r.URL.Path)
				}
				w.WriteHeader(c.status)
				io.WriteString(w, c.body)
			})
			tunnel, err := a.Find(context.Background(), "U")
			if CodeOf(err) != c.want || (err == nil) != (c.want == "") {
				t.Errorf("%+v, %v; want code %q", tunnel, err, c.want)
			}
			// Its port is taken: to run an agent there would fail.
			if remedy := "end what listens at " + a.String() + ", or set GO_IOS_AGENT_PORT to another port"; c.want == BadAnswer && !strings.HasSuffix(err.Error(), remedy) {
				t.Errorf("%v, want the remedy %q", err, remedy)
			}
		})
	}
	if _, err := (Agent{Host: "127.0.0.1", Port: 1}).Find(context.Background(), "U"); CodeOf(err) != NeedsTunnel {
		t.Errorf("nobody there: %v", err)
	}
	silent := agentOf(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := silent.Find(ctx, "U"); CodeOf(err) != NoAnswer {
		t.Errorf("silence: %v", err)
	}
}

func TestReleasesWithKernelTunnelsOnlyNeedAnotherAgent(t *testing.T) {
	userspace := agentOf(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "tunnel not found", http.StatusNotFound) })
	for _, c := range []struct {
		agent  Agent
		remedy string
	}{
		{Agent{Host: "127.0.0.1", Port: 1}, kernelTunnelRemedy},
		{userspace, "unlock the phone; if the agent at " + userspace.String() + " was started without --kernel, end it and run `" + kernelTunnelRemedy + "`"},
	} {
		_, err := (&rsdTransport{facts: Facts{UDID: "U", OSVersion: "17.2"}, agent: c.agent}).tunnel(context.Background())
		var p *Problem
		if !errors.As(err, &p) || p.Code != NeedsTunnel || p.Remedy != c.remedy || !strings.HasSuffix(p.What, "(iOS 17.2 has kernel tunnels only, which were never tested)") {
			t.Errorf("%v, want the remedy %q", err, c.remedy)
		}
	}
}

// Whatever a phone says to service discovery, it is an error soon, and nothing else.
func TestHostileServiceDiscovery(t *testing.T) {
	for name, c := range map[string]struct {
		answer []byte
		want   Code
	}{
		"silence":       {nil, NoAnswer},
		"no HTTP/2":     {[]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), BadAnswer},
		"an early end":  {[]byte{}, ConnectionLost},
		"a huge frame":  {[]byte{0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1}, BadAnswer},
		"other streams": {[]byte{0, 0, 1, 0, 0, 0, 0, 0, 7, 1}, BadAnswer},
		"wrong message": {append([]byte{0, 0, 24, 0, 0, 0, 0, 0, 1}, make([]byte, 24)...), BadAnswer},
		"ended streams": {[]byte{0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 2}, BadAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{})
			defer func() { ln.Close(); <-done }()
			go func() {
				defer close(done)
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				conn.SetDeadline(time.Now().Add(3 * time.Second))
				head := make([]byte, 20+24)
				if _, err := io.ReadFull(conn, head); err != nil || netip.AddrFrom16([16]byte(head)) != netip.MustParseAddr("fd00::1") || binary.LittleEndian.Uint32(head[16:]) != 58783 {
					t.Errorf("preamble % x, %v", head[:20], err)
				}
				if len(c.answer) > 0 {
					conn.Write(c.answer)
				}
				if c.answer == nil || len(c.answer) > 0 {
					io.Copy(io.Discard, conn)
				}
			}()
			_, port, _ := net.SplitHostPort(ln.Addr().String())
			n, _ := strconv.Atoi(port)
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			_, err = discover(ctx, Agent{Host: "127.0.0.1"}, Tunnel{UDID: "U", Address: "fd00::1", RSDPort: 58783, Userspace: true, UserspacePort: n})
			if CodeOf(err) != c.want {
				t.Errorf("%v (code %q), want code %q", err, CodeOf(err), c.want)
			}
		})
	}
}

func TestAServiceListIsReadWithCare(t *testing.T) {
	t1 := Tunnel{UDID: "U"}
	good := map[string]any{"Properties": map[string]any{"UniqueDeviceID": "U"}, "Services": map[string]any{
		"a": map[string]any{"Port": "50001"}, "b": map[string]any{"Port": "0"}, "c": map[string]any{"Port": "70000"}, "d": map[string]any{"Port": uint64(5)}, "e": "text"}}
	services, err := rsdServices(t1, good)
	if err != nil || len(services) != 1 || services["a"] != 50001 {
		t.Errorf("%v, %v; want a alone: the others have no port", services, err)
	}
	for _, bad := range []map[string]any{{}, {"Properties": "text"}, {"Properties": map[string]any{"UniqueDeviceID": "V"}}, {"Properties": map[string]any{"UniqueDeviceID": "U"}}} {
		if _, err := rsdServices(t1, bad); CodeOf(err) != BadAnswer {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

func TestReleasesAndTheirTunnels(t *testing.T) {
	for version, want := range map[string][2]bool{ // needs a tunnel; can have one by cable
		"15.8": {false, false}, "16.7.10": {false, false}, "17.0": {true, false}, "17.3.1": {true, false}, "17.4": {true, true}, "17.5": {true, true},
		"18.0": {true, true}, "26.0": {true, true}, "": {false, false}, "x.y": {false, false},
	} {
		f := Facts{OSVersion: version}
		if got := [2]bool{f.NeedsTunnel(), f.TunnelByCable()}; got != want {
			t.Errorf("%q: needs, by cable = %v, want %v", version, got, want)
		}
	}
}

func TestAnswersOfServicesAreReadWithCare(t *testing.T) {
	for _, v := range []any{nil, "text", []any{}, map[string]any{"pid": "x"}, map[string]any{"pid": uint64(1)}, map[string]any{"state_description": "Foreground Running"}} {
		if s, ok := appState(v); ok {
			t.Errorf("%v was read as %+v", v, s)
		}
	}
	s, ok := appState(map[string]any{"pid": uint64(7), "state_description": "Foreground Running", "displayID": "a"})
	if !ok || s != (AppState{BundleID: "a", PID: 7, Foreground: true}) {
		t.Errorf("%+v", s)
	}
	for bits, want := range map[uint64]AppState{1: {PID: 7, Ended: true}, 2: {PID: 7}, 4: {PID: 7}, 8: {PID: 7, Foreground: true}, 32: {PID: 7, Foreground: true}} {
		if s, ok := appState(map[string]any{"pid": uint64(7), "state": bits, "state_description": "Im Vordergrund"}); !ok || s != want {
			t.Errorf("state %d: %+v, want %+v", bits, s, want)
		}
	}
	for v, want := range map[any]int64{uint64(5): 5, int64(-5): -5, uint32(6): 6, 7.0: 7} {
		if n, ok := integer(v); !ok || n != want {
			t.Errorf("integer(%v) = %d, %v", v, n, ok)
		}
	}
	for _, v := range []any{nil, "5", 7.5, uint64(1) << 63, true} {
		if n, ok := integer(v); ok {
			t.Errorf("integer(%v) = %d", v, n)
		}
	}
}

func TestAProblemKeepsItsCauseAndSaysItsRemedy(t *testing.T) {
	err := fmt.Errorf("outside: %w", problem(Locked, os.ErrPermission, "unlock it", "%s is locked", "U"))
	if CodeOf(err) != Locked || !errors.Is(err, os.ErrPermission) || err.Error() != "outside: U is locked: permission denied — unlock it" {
		t.Errorf("%v", err)
	}
	if CodeOf(errors.New("x")) != "" || CodeOf(nil) != "" {
		t.Error("a code where there is none")
	}
}
