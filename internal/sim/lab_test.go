package sim

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/framebridge/framebridge/dtx"
	"github.com/framebridge/framebridge/internal/sim/scene"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"
)

const (
	udid15 = "00008101-001E2D3C4B5A6978"
	udid16 = "00008110-000A1B2C3D4E5F60"
	udid17 = "00008120-0011223344556677"
	udid26 = "00008140-001122334455667E"
)

// keys are made once: making them takes longer than any test.
var keys *identities

func TestMain(m *testing.M) {
	if udid := os.Getenv(childTunnelVar); udid != "" {
		os.Exit(childTunnel(udid))
	}
	var err error
	if keys, err = newIdentities(time.Now()); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// startLab runs a lab for the length of a test, with USBMUXD_SOCKET_ADDRESS leading to it.
func startLab(t testing.TB, devices ...DeviceConfig) *Lab {
	t.Helper()
	return startConfig(t, Config{Speed: 1, Devices: devices})
}

func startConfig(t testing.TB, c Config) *Lab {
	t.Helper()
	log := zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.DebugLevel)
	l, err := newLab(c, keys, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	env, err := l.Listen("unix:" + shortPath(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("USBMUXD_SOCKET_ADDRESS", env)
	return l
}

// shortPath is the path of a socket that fits into the 107 bytes that the kernel allows; a test's own directory may not.
func shortPath(t testing.TB) string {
	dir, err := os.MkdirTemp("", "sim")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// rate is a scene of an app at hz for ever.
func rate(hz int) scene.Spec {
	s := scene.Default()
	s.Steps = []scene.Step{{For: time.Hour, Hz: hz}}
	return s
}

// dialMux is a raw connection to the lab's usbmuxd.
func dialMux(t testing.TB) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", strings.TrimPrefix(os.Getenv("USBMUXD_SOCKET_ADDRESS"), "UNIX://"))
	if err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	t.Cleanup(func() { conn.Close() })
	return conn
}

// askMux is one exchange with usbmuxd.
func askMux(t testing.TB, conn net.Conn, msg map[string]any) map[string]any {
	t.Helper()
	if err := writeMux(conn, 7, msg); err != nil {
		t.Fatal(err)
	}
	m, err := readMux(conn)
	if err != nil {
		t.Fatal(err)
	}
	if m.tag != 7 {
		t.Fatalf("tag %d, want the question's 7", m.tag)
	}
	return m.body
}

// plistBytes is a message as writePlist writes it.
func plistBytes(t testing.TB, msg map[string]any) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := writePlist(&b, msg); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// withTimeout ends a test's calls long before the test itself would be ended.
func withTimeout(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// apply does a fault and fails the test if the lab refuses.
func apply(t testing.TB, l *Lab, udid string, f Fault) Ack {
	t.Helper()
	ack, err := l.Apply(withTimeout(t), udid, f)
	if err != nil {
		t.Fatal(err)
	}
	return ack
}

// openInstruments is a DTX connection as the product makes it: the socket from go-ios, the rest from package dtx.
func openInstruments(t testing.TB, udid string) *dtx.Conn {
	t.Helper()
	conn, err := connectService(udid, instrumentsName)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	c, err := dtx.Connect(withTimeout(t), conn, func() int64 { return int64(time.Since(begin)) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func openChannel(t testing.TB, c *dtx.Conn, service string) *dtx.Channel {
	t.Helper()
	ch, err := c.OpenChannel(withTimeout(t), service)
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

func call(t testing.TB, ch *dtx.Channel, selector string, args ...any) any {
	t.Helper()
	v, err := ch.Call(withTimeout(t), selector, args...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
