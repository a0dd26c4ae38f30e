package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/danielpaulus/go-ios/ios"
	"github.com/danielpaulus/go-ios/ios/tunnel"
	"github.com/framebridge/framebridge/dtx"
	"github.com/framebridge/framebridge/internal/sim"
)

// binary is labsim as users run it, built once; without the race detector, since its cost is measured.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "labsim")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "labsim")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		panic(string(out))
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// labsim runs the command to its end.
func labsim(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.Command(binary, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// lab is a running labsim.
type lab struct {
	cmd     *exec.Cmd
	control string
	stop    func() *os.ProcessState
}

func startLab(t *testing.T, yaml string) *lab {
	t.Helper()
	dir, err := os.MkdirTemp("", "labsim") // short enough for the path of a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	file := filepath.Join(dir, "lab.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	l := &lab{control: filepath.Join(dir, "c")}
	l.cmd = exec.Command(binary, "run", file, "--listen", "unix:"+filepath.Join(dir, "s"), "--control", l.control)
	l.cmd.Stderr = os.Stderr
	out, err := l.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	l.stop = sync.OnceValue(func() *os.ProcessState {
		l.cmd.Process.Signal(syscall.SIGTERM)
		l.cmd.Wait()
		return l.cmd.ProcessState
	})
	t.Cleanup(func() { l.stop() })
	lines := bufio.NewReader(out)
	for _, name := range []string{"USBMUXD_SOCKET_ADDRESS", "GO_IOS_AGENT_HOST", "GO_IOS_AGENT_PORT"} {
		line, err := lines.ReadString('\n')
		value, ok := strings.CutPrefix(strings.TrimSpace(line), "export "+name+"=")
		if err != nil || !ok {
			t.Fatalf("labsim run said %q, %v, want %s", line, err, name)
		}
		t.Setenv(name, value)
	}
	return l
}

const oneDevice = "devices:\n  - udid: 00008110-000A1B2C3D4E5F60\n    os: \"16.7\"\n"

func TestRunAndCtl(t *testing.T) {
	l := startLab(t, oneDevice)
	if list, err := ios.ListDevices(); err != nil || len(list.DeviceList) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	out, errs, code := labsim(t, "ctl", "disconnect", "--for", "10m", "--control", l.control)
	var ack sim.Ack
	if err := json.Unmarshal([]byte(out), &ack); code != 0 || err != nil || ack.Did != "unplugged for 10m0s" {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	if list, err := ios.ListDevices(); err != nil || len(list.DeviceList) != 0 {
		t.Errorf("after the cable was pulled: %v, %v", list, err)
	}
	out, _, code = labsim(t, "ctl", "--control", l.control)
	var status []sim.DeviceStatus
	if err := json.Unmarshal([]byte(out), &status); code != 0 || err != nil || len(status) != 1 || status[0].Attached {
		t.Errorf("exit %d, %v: %s", code, err, out)
	}
	if _, errs, code := labsim(t, "ctl", "lose", "--control", l.control); code != exitRefused || !strings.Contains(errs, "no tap is running") {
		t.Errorf("exit %d: %s", code, errs)
	}
	if _, errs, code := labsim(t, "ctl", "stall", "--for", "soon", "--control", l.control); code != exitUsage || !strings.Contains(errs, "--for") {
		t.Errorf("exit %d: %s", code, errs)
	}
	if state := l.stop(); state.ExitCode() != 0 {
		t.Errorf("ended with %v after SIGTERM", state)
	}
	if _, errs, code := labsim(t, "ctl", "--control", l.control); code != exitFailed || !strings.Contains(errs, "does a lab run?") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

func TestMistakesAreNamedInOneLine(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("devices:\n  - udid: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	taken := filepath.Join(dir, "taken")
	if err := os.WriteFile(taken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"run"}, "expected one LAB.yaml, found 0 arguments"},
		{[]string{"run", filepath.Join(dir, "none.yaml")}, "labsim example prints a lab"},
		{[]string{"run", bad}, `bad.yaml: lab: line 2: udid "x"`},
		{[]string{"run", "--colour"}, "unknown flag: --colour (see --help)"},
		{[]string{"wire", "--os", "9.3", "--duration", "1s", "-o", filepath.Join(dir, "w")}, "is no iOS version"},
		{[]string{"wire", "--os", "26.0", "--duration", "0s", "-o", filepath.Join(dir, "w")}, "above zero"},
		{[]string{"wire", "--os", "26.0", "--duration", "1s", "-o", taken}, "choose another name"},
		{[]string{"wire", "--os", "26.0", "--duration", "1s", "--scene", bad, "-o", filepath.Join(dir, "w")}, "--scene"},
	} {
		_, errs, code := labsim(t, c.args...)
		if code != exitUsage || !strings.Contains(errs, c.want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%v: exit %d: %swant %q", c.args, code, errs, c.want)
		}
	}
}

func TestTheExampleRunsAsItIsPrinted(t *testing.T) {
	out, _, code := labsim(t, "example")
	if code != 0 {
		t.Fatalf("exit %d", code)
	}
	startLab(t, out)
	if list, err := ios.ListDevices(); err != nil || len(list.DeviceList) != 3 {
		t.Errorf("%v, %v", list, err)
	}
	if list, err := tunnel.ListRunningTunnels(ios.HttpApiHost(), ios.HttpApiPort()); err != nil || len(list) != 1 || list[0].Udid != "00008140-001122334455667E" {
		t.Errorf("tunnels %v, %v", list, err)
	}
}

func TestWireFilesOfEveryReleaseAreTheSameEachTime(t *testing.T) {
	dir := t.TempDir()
	for _, release := range []string{"15.8", "16.7", "17.5", "18.5", "26.0"} {
		var wires, truths [2][]byte
		for i := range wires {
			wire, truth := filepath.Join(dir, release+"wire"+string(rune('a'+i))), filepath.Join(dir, release+"truth"+string(rune('a'+i)))
			if _, errs, code := labsim(t, "wire", "--os", release, "--duration", "2s", "-o", wire, "--truth", truth, "--torn"); code != 0 {
				t.Fatalf("exit %d: %s", code, errs)
			}
			var err error
			if wires[i], err = os.ReadFile(wire); err != nil {
				t.Fatal(err)
			}
			if truths[i], err = os.ReadFile(truth); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(wires[0], wires[1]) || !bytes.Equal(truths[0], truths[1]) {
			t.Errorf("iOS %s: two runs differ", release)
		}
		// 2 s at 60 Hz, without the frames whose end has not been told yet.
		if n := bytes.Count(truths[0], []byte("\n")); n < 100 || n > 120 {
			t.Errorf("iOS %s: %d frames in 2 s at 60 Hz", release, n)
		}
	}
}

// dialDTX is a connection to a phone's instruments services, over usbmux or through the lab's tunnel.
func dialDTX(d ios.DeviceEntry, tunnelled bool) (net.Conn, error) {
	if !tunnelled {
		conn, err := ios.ConnectToService(d, "com.apple.instruments.remoteserver.DVTSecureSocketProxy")
		if err != nil {
			return nil, err
		}
		return conn.Conn(), nil
	}
	info, err := tunnel.TunnelInfoForDevice(d.Properties.SerialNumber, ios.HttpApiHost(), ios.HttpApiPort())
	if err != nil {
		return nil, err
	}
	d.UserspaceTUN, d.UserspaceTUNHost, d.UserspaceTUNPort = true, ios.HttpApiHost(), info.UserspaceTUNPort
	rsd, err := ios.NewWithAddrPortDevice(info.Address, info.RsdPort, d)
	if err != nil {
		return nil, err
	}
	defer rsd.Close()
	services, err := rsd.Handshake()
	if err != nil {
		return nil, err
	}
	return ios.ConnectTUNDevice(info.Address, services.GetPort("com.apple.instruments.dtservicehub"), d)
}

// Eight phones at 120 Hz, each with a tap, may cost a fifth of one core in all.
func TestEightPhonesAt120HzCostLittle(t *testing.T) {
	if testing.Short() {
		t.Skip("measures for ten seconds")
	}
	t.Run("16.7 over usbmux", func(t *testing.T) { eightPhones(t, "16.7", false) })
	t.Run("26.0 through userspace tunnels", func(t *testing.T) { eightPhones(t, "26.0", true) })
}

func eightPhones(t *testing.T, os string, tunnelled bool) {
	var yaml strings.Builder
	yaml.WriteString("devices:\n")
	for i := range 8 {
		fmt.Fprintf(&yaml, "  - udid: 00008110-00000000000000A%d\n    os: %q\n    scene: [{for: 1h, hz: 120}]\n", i, os)
	}
	l := startLab(t, yaml.String())
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	list, err := ios.ListDevices()
	if err != nil || len(list.DeviceList) != 8 {
		t.Fatalf("%v, %v", list, err)
	}
	counts := make([]int64, 8)
	var readers sync.WaitGroup
	for i, d := range list.DeviceList {
		conn, err := dialDTX(d, tunnelled)
		if err != nil {
			t.Fatal(err)
		}
		c, err := dtx.Connect(ctx, conn, func() int64 { return 0 })
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ch, err := c.OpenChannel(ctx, "com.apple.instruments.server.services.activitytracetap")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ch.Call(ctx, "setConfig:", map[string]any{"ur": uint64(100), "onlySignposts": uint64(1)}); err != nil {
			t.Fatal(err)
		}
		if _, err := ch.Call(ctx, "start"); err != nil {
			t.Fatal(err)
		}
		readers.Go(func() {
			for {
				m, err := ch.Receive(ctx)
				if err != nil {
					return
				}
				counts[i] += int64(len(m.Payload))
			}
		})
	}
	before, begin := cpuTime(t, l.cmd.Process.Pid), time.Now()
	time.Sleep(5 * time.Second)
	used, wall := cpuTime(t, l.cmd.Process.Pid)-before, time.Since(begin)
	l.stop()
	readers.Wait()
	share := 100 * used.Seconds() / wall.Seconds()
	t.Logf("%.1f %% of one core; %d bytes of payloads from the first phone in %s", share, counts[0], wall.Round(time.Millisecond))
	for i, n := range counts {
		if n < 5*120*50 { // a frame takes some 100 bytes
			t.Errorf("phone %d sent %d bytes", i, n)
		}
	}
	if share > 20 {
		t.Errorf("%.1f %% of one core, want at most 20", share)
	}
}
