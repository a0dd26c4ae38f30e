package tunnel

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	goios "github.com/danielpaulus/go-ios/ios/tunnel"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/framebridge/framebridge/internal/device"
	"github.com/framebridge/framebridge/internal/sim"
)

// The test binary is also a worker, so that what is killed here is a process that does the real thing.
func TestMain(m *testing.M) {
	if udid := os.Getenv("FRAMEBRIDGE_TEST_WORKER"); udid != "" {
		ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM) // as main has it: signals alone end nothing
		if err := Work(ctx, udid, false, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const udid = "00008140-0000000000000001"

func startLab(t *testing.T, releases ...string) *sim.Lab {
	t.Helper()
	var phones []sim.DeviceConfig
	for i, os := range releases {
		phones = append(phones, sim.DefaultDevice(fmt.Sprintf("00008140-%016X", i+1), os))
	}
	lab, err := sim.New(sim.Config{Speed: 1, Devices: phones}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lab.Close() })
	address, err := lab.Listen("unix:" + filepath.Join(t.TempDir(), "usbmuxd"))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("USBMUXD_SOCKET_ADDRESS", address)
	return lab
}

// agent is a supervisor with its info API, and the pids of its workers.
type agent struct {
	*Supervisor
	device.Agent
	mu   sync.Mutex
	pids []*exec.Cmd
}

func (a *agent) kill(t *testing.T) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.pids[len(a.pids)-1].Process.Signal(syscall.SIGKILL); err != nil {
		t.Errorf("kill: %v", err)
	}
}

// stop has the worker hang.
func (a *agent) stop(t *testing.T) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.pids[len(a.pids)-1].Process.Signal(syscall.SIGSTOP); err != nil {
		t.Errorf("stop: %v", err)
	}
}

func startAgent(t *testing.T) *agent {
	t.Helper()
	a := &agent{}
	a.Supervisor = &Supervisor{Worker: func(ctx context.Context, udid string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), "FRAMEBRIDGE_TEST_WORKER="+udid)
		a.mu.Lock()
		a.pids = append(a.pids, cmd)
		a.mu.Unlock()
		return cmd
	}}
	ln, at, err := Listen(device.Agent{Host: "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	a.Agent = at
	ctx, end := context.WithCancel(zerolog.New(zerolog.NewTestWriter(t)).WithContext(context.Background()))
	var all sync.WaitGroup
	all.Go(func() { a.Run(ctx) })
	all.Go(func() {
		if err := Serve(ctx, ln, a.Supervisor); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { end(); all.Wait() })
	return a
}

// within waits until something holds.
func within(t *testing.T, patience time.Duration, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

func (a *agent) find() (device.Tunnel, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	return a.Agent.Find(ctx, udid)
}

func TestTunnelsComeBackWhateverEndsThem(t *testing.T) {
	lab := startLab(t, "26.0", "16.7")
	a := startAgent(t)
	var tunnel device.Tunnel
	up := func(what string) {
		t.Helper()
		was := tunnel
		within(t, 20*time.Second, what, func() (ok bool) {
			now, err := a.find()
			if err != nil || now == was {
				return false
			}
			entry, err := device.Find(context.Background(), udid)
			if err != nil {
				return false
			}
			phone, err := device.Open(context.Background(), entry, a.Agent)
			if err != nil {
				return false
			}
			found, err := phone.CheckTunnel(context.Background())
			if err == nil && !strings.Contains(found, "userspace tunnel") {
				t.Errorf("found %q", found)
			}
			tunnel = now
			return err == nil
		})
	}
	up("the first tunnel")

	// go-ios's own client reads the API.
	info, err := goios.TunnelInfoForDevice(udid, a.Agent.Host, a.Agent.Port)
	if err != nil || info.Udid != udid || info.Address != tunnel.Address || !info.UserspaceTUN || info.UserspaceTUNPort != tunnel.UserspacePort {
		t.Errorf("go-ios reads %+v, %v; there is %+v", info, err, tunnel)
	}
	if list, err := goios.ListRunningTunnels(a.Agent.Host, a.Agent.Port); err != nil || len(list) != 1 {
		t.Errorf("go-ios lists %+v, %v; want the one tunnel: iOS 16 needs none", list, err)
	}

	a.kill(t)
	up("a tunnel after its worker was killed")
	a.stop(t)
	up("a tunnel after its worker was stopped and hangs")
	if err := goios.StopTunnelForDevice(udid, a.Agent.Host, a.Agent.Port); err != nil {
		t.Errorf("DELETE: %v", err)
	}
	up("a tunnel after it was asked to be made anew")
	if _, err := lab.Apply(context.Background(), udid, sim.Fault{Kind: "disconnect", For: sim.Duration(2500 * time.Millisecond)}); err != nil {
		t.Fatal(err)
	}
	within(t, 10*time.Second, "no tunnel to a phone that is gone", func() bool {
		_, err := a.find()
		return device.CodeOf(err) == device.NeedsTunnel
	})
	up("a tunnel after the cable was put back")
	if _, err := lab.Apply(context.Background(), udid, sim.Fault{Kind: "tunnel-restart"}); err != nil {
		t.Fatal(err)
	}
	up("a tunnel after the phone ended it")
}

func TestASilentPhoneHoldsUpNoOtherAndOneThatIsGoneIsForgotten(t *testing.T) {
	lab := startLab(t, "26.0", "26.0")
	const second = "00008140-0000000000000002"
	fault := func(udid string, f sim.Fault) {
		if _, err := lab.Apply(context.Background(), udid, f); err != nil {
			t.Fatal(err)
		}
	}
	fault(udid, sim.Fault{Kind: "hang", Service: "lockdownd"})
	a := startAgent(t)
	up := func() bool { _, ok, _ := a.Tunnel(second); return ok }
	unknown := func() bool { _, ok, why := a.Tunnel(second); return !ok && why == nil }
	within(t, 8*time.Second, "a tunnel", up)
	for range 3 { // eight seconds of silence are begun anew meanwhile
		fault(second, sim.Fault{Kind: "disconnect"})
		within(t, 4*time.Second, "a phone that is gone is forgotten", unknown)
		time.Sleep(time.Second) // its worker has ended by now
		if !unknown() {
			_, ok, why := a.Tunnel(second)
			t.Errorf("a phone that is gone: tunnel %v, %v", ok, why)
		}
		fault(second, sim.Fault{Kind: "connect"})
		within(t, 5*time.Second, "a tunnel to a phone that is back", up)
	}
}

// go-ios waits for a phone's answer for ever, whatever becomes of the one who asked.
func TestAWorkerWhosePhoneIsSilentEndsWhenItIsNotWantedAnyMore(t *testing.T) {
	lab := startLab(t, "26.0")
	if _, err := lab.Apply(context.Background(), udid, sim.Fault{Kind: "hang", Service: "com.apple.internal.devicecompute.CoreDeviceProxy"}); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for name, c := range map[string]struct {
		end    func(*os.Process, io.Closer)
		within time.Duration
		says   string
	}{
		"its input ends, as when a recorder is killed": {func(_ *os.Process, in io.Closer) { in.Close() }, 2 * time.Second, ""},
		"SIGTERM": {func(p *os.Process, _ io.Closer) { p.Signal(syscall.SIGTERM) }, 2 * time.Second, ""},
		"nothing": {func(*os.Process, io.Closer) {}, 10 * time.Second, "no tunnel within 8s"},
	} {
		all.Go(func() {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), "FRAMEBRIDGE_TEST_WORKER="+udid)
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Error(err)
				return
			}
			if err := cmd.Start(); err != nil {
				t.Error(err)
				return
			}
			time.Sleep(time.Second) // it asks the phone by now
			c.end(cmd.Process, in)
			began := time.Now()
			stuck := time.AfterFunc(15*time.Second, func() { cmd.Process.Kill() })
			cmd.Wait()
			stuck.Stop()
			if took := time.Since(began); took > c.within {
				t.Errorf("%s: it ended after %s, want %s at most", name, took, c.within)
			}
			if !strings.Contains(stderr.String(), c.says) || stdout.Len() > 0 {
				t.Errorf("%s: it says %q and %q, want %q", name, stdout.String(), stderr.String(), c.says)
			}
		})
	}
	all.Wait()
}

func TestAPhoneOnWiFiIsToldToComeByCableAtOnce(t *testing.T) {
	began := time.Now()
	_, _, err := Ensure(context.Background(), device.Facts{UDID: udid, OSVersion: "26.0", Connection: "Network"}, device.Agent{Host: "127.0.0.1", Port: 1},
		func(context.Context, string) *exec.Cmd {
			t.Error("a worker for a phone that none can reach")
			return exec.Command("false")
		})
	if device.CodeOf(err) != device.NeedsTunnel || !strings.HasSuffix(err.Error(), "plug it in by cable") {
		t.Errorf("%v, want the remedy to plug it in", err)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("it took %s", took)
	}
}

func TestTheInfoAPI(t *testing.T) {
	startLab(t, "26.0")
	a := startAgent(t)
	ask := func(method, path string) (int, string) {
		request, _ := http.NewRequest(method, "http://"+a.Agent.String()+path, nil)
		response, err := http.DefaultTransport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		var body bytes.Buffer
		body.ReadFrom(response.Body)
		return response.StatusCode, body.String()
	}
	within(t, 20*time.Second, "a tunnel", func() bool { _, err := a.find(); return err == nil })
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/health", 200}, {"GET", "/ready", 200}, {"GET", "/tunnels", 200}, {"GET", "/tunnel/" + udid, 200}, {"GET", "/tunnel/nobody", 404},
		{"DELETE", "/tunnel/nobody", 404}, {"GET", "/shutdown", 404}, {"POST", "/tunnels", 405}, {"DELETE", "/tunnel/" + udid, 204},
	} {
		if status, body := ask(c.method, c.path); status != c.status {
			t.Errorf("%s %s: %d %s, want %d", c.method, c.path, status, body, c.status)
		}
	}
}

func TestATakenPortIsNamed(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	n, _ := strconv.Atoi(port)
	if _, _, err := Listen(device.Agent{Host: "127.0.0.1", Port: n}); device.CodeOf(err) != device.PortTaken || !strings.Contains(err.Error(), "GO_IOS_AGENT_PORT") {
		t.Errorf("%v", err)
	}
}

// Userspace tunnels are dialled at the agent's host, and go-ios listens for them at localhost alone.
func TestTunnelsAreNotToldOfWhereTheyCannotBeDialled(t *testing.T) {
	for host, refused := range map[string]bool{"127.0.0.1": false, "localhost": false, "0.0.0.0": true, "127.0.0.2": true, "::1": true, "": true, "192.0.2.1": true} {
		ln, _, err := Listen(device.Agent{Host: host})
		if (err != nil) != refused || refused && !strings.HasSuffix(err.Error(), "unset GO_IOS_AGENT_HOST") {
			t.Errorf("%q: %v, want refused: %v", host, err, refused)
		}
		if err == nil {
			ln.Close()
		}
	}
}

// Workers that say nothing, nonsense or another phone's tunnel are ended and started again with growing pauses.
func TestBadWorkersAreEndedAndStartedAgainWithGrowingPauses(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	defer startLab(t, "26.0").Close()
	var mu sync.Mutex
	var starts []time.Time
	var whys []string
	scripts := []string{`echo nonsense; cat`, `echo '{"udid":"another"}'; cat`, `echo "it cannot be" >&2; exit 3`, `exit 0`, `yes | head -c 100000; cat`}
	s := &Supervisor{Worker: func(ctx context.Context, _ string) *exec.Cmd {
		mu.Lock()
		defer mu.Unlock()
		script := scripts[min(len(starts), len(scripts)-1)]
		starts = append(starts, time.Now())
		return exec.CommandContext(ctx, "sh", "-c", script)
	}}
	s.Changed = func(_ string, tunnel *device.Tunnel, why error) {
		mu.Lock()
		defer mu.Unlock()
		if tunnel != nil {
			t.Errorf("a tunnel %+v from a bad worker", tunnel)
		} else if why != nil {
			whys = append(whys, why.Error())
		}
	}
	ctx, end := context.WithCancel(zerolog.New(io.Discard).WithContext(context.Background()))
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	within(t, 20*time.Second, "four ends of workers", func() bool { mu.Lock(); defer mu.Unlock(); return len(whys) >= 4 })
	end()
	<-done
	for i, want := range []string{"nonsense", "another", "exit status 3: it cannot be", "ended"} {
		if !strings.Contains(whys[i], want) {
			t.Errorf("end %d: %q, want one about %q", i, whys[i], want)
		}
	}
	for i, least := range []time.Duration{200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond} {
		if pause := starts[i+1].Sub(starts[i]); pause < least {
			t.Errorf("pause %d was %s, want %s or more", i, pause, least)
		}
	}
}
