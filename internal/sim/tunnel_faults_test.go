package sim

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/danielpaulus/go-ios/ios"
	goiostunnel "github.com/danielpaulus/go-ios/ios/tunnel"

	"github.com/framebridge/framebridge/dtx"
)

// way is one of the ways into a phone behind a tunnel.
type way struct {
	name string
	kind TunnelKind
}

var ways = []way{{"userspace", TunnelUserspace}, {"kernel", TunnelKernel}, {"CoreDeviceProxy", TunnelNone}}

// open makes the tunnel: the agent has it, or go-ios makes it.
func (w way) open(t *testing.T) (*Lab, goiostunnel.Tunnel) {
	t.Helper()
	l, a := startTunnels(t, withTunnel(udid26, "26.0", w.kind))
	if w.kind == TunnelNone {
		info, _ := startChildTunnel(t, udid26)
		return l, info
	}
	return l, a.find(t, udid26)
}

func TestServiceDiscoveryRefusesOnEveryWay(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			l, info := w.open(t)
			apply(t, l, udid26, Fault{Kind: "rsd-refuse"})
			begin := time.Now()
			if d, err := discover(info); err == nil || time.Since(begin) > 5*time.Second {
				t.Errorf("services %v after %s", d.Rsd, time.Since(begin))
			}
			apply(t, l, udid26, Fault{Kind: "clear"})
			mustDiscover(t, info)
		})
	}
}

func TestAMissingServiceIsLeftOutOfTheListAndNothingElse(t *testing.T) {
	l, a := startTunnels(t, DefaultDevice(udid26, "26.0"))
	for _, missing := range []string{dtServiceHubName, "com.apple.afc.shim.remote"} {
		apply(t, l, udid26, Fault{Kind: "service-missing", Service: missing})
		want := slices.DeleteFunc(slices.Clone(listed), func(s string) bool { return s == missing })
		d := mustDiscover(t, a.find(t, udid26))
		if got := names(d); !slices.Equal(got, want) {
			t.Errorf("without %s: %q", missing, got)
		}
		apply(t, l, udid26, Fault{Kind: "clear"})
	}
	apply(t, l, udid26, Fault{Kind: "service-missing", Service: dtServiceHubName, For: Duration(time.Nanosecond)})
	if got := names(mustDiscover(t, a.find(t, udid26))); !slices.Equal(got, listed) {
		t.Errorf("after its time: %q", got)
	}
}

// silent fails unless nothing comes of a connection for a while, not even its end.
func silent(t *testing.T, what string, ch *dtx.Channel) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if m, err := ch.Receive(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%s: %v, %v, want silence", what, m, err)
	}
}

func TestHalfOpenTunnelsStayAndCarryNothingUntilTheyEnd(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			l, info := w.open(t)
			d := mustDiscover(t, info)
			ch := startTap(t, dialHub(t, d))
			receive(t, ch)
			apply(t, l, udid26, Fault{Kind: "half-open"})
			for { // what was on its way
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				_, err := ch.Receive(ctx)
				cancel()
				if err != nil {
					break
				}
			}
			silent(t, "a connection that was there", ch)
			conn, err := ios.ConnectTUNDevice(info.Address, info.RsdPort, d)
			if err != nil {
				t.Fatalf("a new connection: %v", err)
			}
			defer conn.Close()
			conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
			conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
			if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("a new connection: %d bytes, %v, want silence", n, err)
			}
			proxy, err := connectService(udid26, coreDeviceProxyName)
			if err != nil {
				t.Fatal(err)
			}
			defer proxy.Close()
			proxy.Write(cdHello(1280))
			proxy.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
			if n, err := proxy.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("a new tunnel: %d bytes, %v, want silence", n, err)
			}
			apply(t, l, udid26, Fault{Kind: "clear"})
			if err := ended(t, ch); errors.Is(err, context.DeadlineExceeded) {
				t.Error("the old connection did not end")
			}
		})
	}
}

func TestAHalfOpenTunnelIsReplacedWhenItsTimeIsOver(t *testing.T) {
	l, a := startTunnels(t, DefaultDevice(udid26, "26.0"))
	was := a.find(t, udid26)
	apply(t, l, udid26, Fault{Kind: "half-open", For: Duration(300 * time.Millisecond)})
	if is := a.find(t, udid26); is.RsdPort != was.RsdPort {
		t.Errorf("meanwhile: %+v", is)
	}
	deadline := time.Now().Add(10 * time.Second)
	for waitTunnel(t, a, udid26).RsdPort == was.RsdPort {
		if time.Now().After(deadline) {
			t.Fatal("it is still there")
		}
		time.Sleep(5 * time.Millisecond)
	}
	different(t, was, waitTunnel(t, a, udid26))
	mustDiscover(t, waitTunnel(t, a, udid26))
}

func TestATunnelOfCoreDeviceProxyEndsWithARestart(t *testing.T) {
	for _, fault := range []string{"tunnel-restart", "disconnect"} {
		t.Run(fault, func(t *testing.T) {
			l, info := way{"CoreDeviceProxy", TunnelNone}.open(t)
			ch := startTap(t, dialHub(t, mustDiscover(t, info)))
			receive(t, ch)
			apply(t, l, udid26, Fault{Kind: fault})
			if err := ended(t, ch); errors.Is(err, context.DeadlineExceeded) {
				t.Error("the connection did not end")
			}
			apply(t, l, udid26, Fault{Kind: "connect"})
			again, _ := startChildTunnel(t, udid26)
			if again.Address == info.Address || again.RsdPort == info.RsdPort {
				t.Errorf("from %+v to %+v", info, again)
			}
			mustDiscover(t, again)
		})
	}
}

// timedOut runs f and says whether it has not come to an end after a while.
func timedOut(t *testing.T, f func() error) bool {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		if err == nil {
			return false
		}
		var timeout net.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("it ended with %v", err)
		}
		return true
	case <-time.After(10 * time.Second):
		t.Fatal("never ended")
		return true
	}
}

func TestServicesBehindTunnelsThatHangAcceptAndNeverAnswer(t *testing.T) {
	l, a := startTunnels(t, DefaultDevice(udid26, "26.0"))
	d := mustDiscover(t, a.find(t, udid26))
	// try is true where a first answer comes.
	try := func(conn net.Conn, hello []byte) error {
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(300 * time.Millisecond))
		if _, err := conn.Write(hello); err != nil {
			return err
		}
		_, err := io.ReadFull(conn, make([]byte, 1))
		return err
	}
	inside := func(port int, hello []byte) func() error {
		return func() error {
			conn, err := ios.ConnectTUNDevice(d.Address, port, d)
			if err != nil {
				return err
			}
			return try(conn, hello)
		}
	}
	preface := []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	checkin := plistBytes(t, map[string]any{"Request": "RSDCheckin", "Label": "x", "ProtocolVersion": "2"})
	for _, c := range []struct {
		service string
		call    func() error
	}{
		{"rsd", inside(a.find(t, udid26).RsdPort, preface)},
		{dtServiceHubName, inside(d.Rsd.GetPort(dtServiceHubName), nil)},
		{fileControlName, inside(d.Rsd.GetPort(fileControlName), preface)},
		{remoteLockdownName, inside(d.Rsd.GetPort(remoteLockdownName), checkin)},
		{"com.apple.afc.shim.remote", inside(d.Rsd.GetPort("com.apple.afc.shim.remote"), checkin)},
		{imageMounterName, inside(d.Rsd.GetPort(imageMounterName+".shim.remote"), checkin)}, // by the name that lockdownd knows
		{coreDeviceProxyName, func() error {
			// It hangs once TLS is there: go-ios would wait for TLS without a deadline.
			apply(t, l, udid26, Fault{Kind: "clear"})
			conn, err := connectService(udid26, coreDeviceProxyName)
			if err != nil {
				return err
			}
			apply(t, l, udid26, Fault{Kind: "hang", Service: coreDeviceProxyName})
			return try(conn, cdHello(1280))
		}},
		{"tunnel-agent", func() error {
			conn, err := net.Dial("tcp", net.JoinHostPort(a.host, strconv.Itoa(a.port)))
			if err != nil {
				return err
			}
			return try(conn, []byte("GET /tunnel/"+udid26+" HTTP/1.1\r\nHost: x\r\n\r\n"))
		}},
		{"tunnel-agent", func() error {
			conn, err := net.Dial("tcp", net.JoinHostPort(a.host, strconv.Itoa(a.port)))
			if err != nil {
				return err
			}
			return try(conn, []byte("GET /tunnels HTTP/1.1\r\nHost: x\r\n\r\n"))
		}},
	} {
		apply(t, l, udid26, Fault{Kind: "hang", Service: c.service})
		if !timedOut(t, c.call) {
			t.Errorf("%s answered while it hangs", c.service)
		}
		apply(t, l, udid26, Fault{Kind: "clear"})
		if c.service != coreDeviceProxyName && timedOut(t, c.call) {
			t.Errorf("%s does not answer any more", c.service)
		}
	}
}

func TestAServiceHubThatBeginsToHangAnswersNothingMoreOnItsConnections(t *testing.T) {
	l, a := startTunnels(t, DefaultDevice(udid26, "26.0"))
	c := dialHub(t, mustDiscover(t, a.find(t, udid26)))
	apply(t, l, udid26, Fault{Kind: "hang", Service: dtServiceHubName})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if ch, err := c.OpenChannel(ctx, deviceInfoName); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, %v", ch, err)
	}
	apply(t, l, udid26, Fault{Kind: "clear"})
	openChannel(t, c, deviceInfoName)
}

func TestAnAgentThatAnswersGarbageDoesSoForOnePhone(t *testing.T) {
	l, a := startTunnels(t, DefaultDevice(udid26, "26.0"), DefaultDevice(udid17, "17.5"))
	apply(t, l, udid26, Fault{Kind: "agent-garbage"})
	if info, err := goiostunnel.TunnelInfoForDevice(udid26, a.host, a.port); err == nil || !strings.Contains(err.Error(), "parse") {
		t.Errorf("%+v, %v", info, err)
	}
	if list, err := goiostunnel.ListRunningTunnels(a.host, a.port); err == nil || !strings.Contains(err.Error(), "parse") {
		t.Errorf("%+v, %v", list, err)
	}
	a.find(t, udid17)
	apply(t, l, udid26, Fault{Kind: "clear"})
	a.find(t, udid26)
}

func TestTunnelFaultsSayThatOldReleasesHaveNone(t *testing.T) {
	l := startLab(t, DefaultDevice(udid16, "16.7"))
	for _, f := range []Fault{{Kind: "tunnel-restart"}, {Kind: "tunnel-gone"}, {Kind: "half-open"}, {Kind: "rsd-refuse"}, {Kind: "agent-garbage"},
		{Kind: "service-missing", Service: dtServiceHubName}} {
		if ack, err := l.Apply(withTimeout(t), udid16, f); !errors.Is(err, ErrFault) || !strings.Contains(err.Error(), "iOS 17") {
			t.Errorf("%+v, %v", ack, err)
		}
	}
	if _, err := l.Apply(withTimeout(t), udid16, Fault{Kind: "service-missing", Service: lockdownName}); err == nil || !strings.Contains(err.Error(), dtServiceHubName) {
		t.Errorf("%v, want an example of a service that can be missing", err)
	}
}

func TestAStallHoldsUpTunnelsToo(t *testing.T) {
	l, a := startTunnels(t, DefaultDevice(udid26, "26.0"))
	ch := startTap(t, dialHub(t, mustDiscover(t, a.find(t, udid26))))
	receive(t, ch)
	apply(t, l, udid26, Fault{Kind: "stall", For: Duration(time.Hour)})
	for i := 0; ; i++ { // what was on its way
		ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
		_, err := ch.Receive(ctx)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}
		if err != nil || i > 10 {
			t.Fatalf("message %d: %v", i, err)
		}
	}
	apply(t, l, udid26, Fault{Kind: "clear"})
	receive(t, ch)
}
