package sim

import (
	"bytes"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/danielpaulus/go-ios/ios"
	"golang.org/x/net/http2"

	"github.com/framebridge/framebridge/internal/remotexpc"
)

// xpcClient speaks HTTP/2 frame by frame to service discovery, so that a test can do what no real client does.
type xpcClient struct {
	net.Conn
	*http2.Framer
}

// dialXPC connects to service discovery, and says nothing yet.
func dialXPC(t *testing.T, a agent) xpcClient {
	t.Helper()
	info := a.find(t, udid26)
	conn, err := ios.ConnectTUNDevice(info.Address, info.RsdPort, ios.DeviceEntry{UserspaceTUN: true, UserspaceTUNHost: a.host, UserspaceTUNPort: info.UserspaceTUNPort})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	f := http2.NewFramer(conn, conn)
	f.SetMaxReadFrameSize(1 << 20)
	return xpcClient{conn, f}
}

// begin sends what precedes the first stream.
func (c xpcClient) begin(settings ...http2.Setting) {
	io.WriteString(c.Conn, http2.ClientPreface)
	c.WriteSettings(settings...)
}

func (c xpcClient) headers(stream uint32) {
	c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, EndHeaders: true})
}

// open sends all that opens a connection.
func (c xpcClient) open(settings ...http2.Setting) {
	c.begin(settings...)
	c.headers(1)
	c.message(1, remotexpc.Message{Flags: 0x1, Body: map[string]any{}})
	c.headers(3)
	c.message(3, remotexpc.Message{Flags: 0x400001})
	c.message(1, remotexpc.Message{Flags: 0x201})
}

func (c xpcClient) message(stream uint32, m remotexpc.Message) {
	b, err := remotexpc.AppendMessage(nil, m)
	if err != nil {
		panic(err) // of the test's own messages
	}
	c.WriteData(stream, false, b)
}

// data returns what comes on a stream until the connection has been quiet for a while.
func (c xpcClient) data(t *testing.T, stream uint32) (got []byte) {
	t.Helper()
	for {
		c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		frame, err := c.ReadFrame()
		if os.IsTimeout(err) {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		if d, ok := frame.(*http2.DataFrame); ok && d.StreamID == stream {
			got = append(got, d.Data()...)
		}
	}
}

func TestTheOpeningMessagesAreAnsweredByTheirLikeAndThenComesTheHandshake(t *testing.T) {
	_, a := startTunnels(t, DefaultDevice(udid26, "26.0"))
	c := dialXPC(t, a)
	c.open()
	got := c.data(t, 1)
	var flags []uint32
	var bodies []map[string]any
	for len(got) > 0 {
		m, n, err := remotexpc.ParseMessage(got)
		if err != nil || n == 0 {
			t.Fatalf("%d bytes left: %v", len(got), err)
		}
		flags, bodies, got = append(flags, m.Flags), append(bodies, m.Body), got[n:]
	}
	if len(flags) != 3 || flags[0] != 1 || flags[1] != 0x201 || flags[2] != 0x101 || bodies[2]["MessageType"] != "Handshake" {
		t.Errorf("on the first stream: flags %#x, bodies %v", flags, bodies)
	}
}

func TestMessagesWaitForTheRoomThatAClientGives(t *testing.T) {
	_, a := startTunnels(t, DefaultDevice(udid26, "26.0"))
	c := dialXPC(t, a)
	c.open(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1000})
	first := c.data(t, 1)
	if len(first) != 1000 {
		t.Fatalf("%d bytes within a window of 1000", len(first))
	}
	c.WriteWindowUpdate(1, 500)
	if more := c.data(t, 1); len(more) != 500 {
		t.Errorf("%d bytes for 500 more", len(more))
	}
	// A larger initial window goes for streams that are open already.
	c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1200})
	if more := c.data(t, 1); len(more) != 200 {
		t.Errorf("%d bytes for 200 more by settings", len(more))
	}
}

func TestClientsThatBreakTheRulesOfHTTP2AreLeft(t *testing.T) {
	_, a := startTunnels(t, DefaultDevice(udid26, "26.0"))
	long, _ := remotexpc.AppendMessage(nil, remotexpc.Message{Flags: 1, Body: map[string]any{"x": make([]byte, remotexpc.MaxMessage)}})
	for _, c := range []struct {
		name string
		send func(c xpcClient)
	}{
		{"no preface", func(c xpcClient) { c.Write([]byte(strings.Repeat("x", len(http2.ClientPreface)))) }},
		{"a stream that nobody knows", func(c xpcClient) { c.begin(); c.headers(5) }},
		{"data before headers", func(c xpcClient) { c.begin(); c.WriteData(1, false, []byte("x")) }},
		{"a message that is too long", func(c xpcClient) { c.begin(); c.headers(1); c.WriteData(1, false, long[:40]) }},
		{"no XPC", func(c xpcClient) { c.begin(); c.headers(1); c.WriteData(1, false, make([]byte, 24)) }},
		{"a window past 31 bits", func(c xpcClient) { c.begin(); c.WriteWindowUpdate(0, 1<<31-1) }},
		{"goodbye", func(c xpcClient) { c.begin(); c.WriteGoAway(0, http2.ErrCodeNo, nil) }},
	} {
		x := dialXPC(t, a)
		c.send(x)
		if _, err := io.Copy(io.Discard, x.Conn); os.IsTimeout(err) {
			t.Errorf("%s: the connection stays", c.name)
		}
	}
}

func TestPingsAreAnswered(t *testing.T) {
	_, a := startTunnels(t, DefaultDevice(udid26, "26.0"))
	c := dialXPC(t, a)
	c.open()
	c.WritePing(false, [8]byte{1, 2, 3})
	for {
		frame, err := c.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if p, ok := frame.(*http2.PingFrame); ok {
			if !p.IsAck() || p.Data != [8]byte{1, 2, 3} {
				t.Errorf("%v", p)
			}
			return
		}
	}
}

func TestTheProductsClientUnderstandsServiceDiscovery(t *testing.T) {
	_, a := startTunnels(t, DefaultDevice(udid26, "26.0"))
	c := dialXPC(t, a)
	x, err := remotexpc.Dial(c.Conn)
	if err != nil {
		t.Fatal(err)
	}
	stream, m, err := x.Receive()
	if err != nil || stream != remotexpc.ClientServer || m.Body["MessageType"] != "Handshake" {
		t.Errorf("%v on %d, %v", m, stream, err)
	}
}

func FuzzRemoteXPC(f *testing.F) {
	var b bytes.Buffer
	b.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(&b, nil)
	framer.WriteSettings()
	for _, stream := range []uint32{1, 3} {
		framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, EndHeaders: true})
	}
	for i, m := range []remotexpc.Message{{Flags: 1, Body: map[string]any{}}, {Flags: 0x400001}, {Flags: 0x201},
		{Flags: 0x10101, Body: map[string]any{"Cmd": "CreateSession", "Domain": uint64(1), "Identifier": "com.example.nothing", "User": "mobile"}}} {
		p, err := remotexpc.AppendMessage(nil, m)
		if err != nil {
			f.Fatal(err)
		}
		framer.WriteData(uint32(1+i%2*2), false, p)
	}
	f.Add(b.Bytes())
	f.Add(b.Bytes()[:60])
	d := stillLab(f).devices[0]
	f.Fuzz(func(t *testing.T, b []byte) {
		// Every end is a good one, as long as there is an end.
		_ = d.newTunnel().serveDiscovery(t.Context(), byteConn{Reader: bytes.NewReader(b)})
		_ = serveFileControl(t.Context(), d, byteConn{Reader: bytes.NewReader(b)})
	})
}
