package sim

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/danielpaulus/go-ios/ios"
	"github.com/danielpaulus/go-ios/ios/installationproxy"
	goios "github.com/danielpaulus/go-ios/ios/instruments"
	goiostunnel "github.com/danielpaulus/go-ios/ios/tunnel"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/dtx"
	"github.com/framebridge/framebridge/dtx/tap"
)

// agent is where a test's tunnel agent is.
type agent struct {
	host string
	port int
}

// startTunnels runs a lab with a tunnel agent, which go-ios finds too.
func startTunnels(t testing.TB, devices ...DeviceConfig) (*Lab, agent) {
	t.Helper()
	l := startLab(t, devices...)
	var a agent
	var err error
	if a.host, a.port, err = l.ListenTunnels("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GO_IOS_AGENT_HOST", a.host)
	t.Setenv("GO_IOS_AGENT_PORT", strconv.Itoa(a.port))
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return l, a
}

// find is go-ios's lookup of a tunnel.
func (a agent) find(t testing.TB, udid string) goiostunnel.Tunnel {
	t.Helper()
	info, err := goiostunnel.TunnelInfoForDevice(udid, a.host, a.port)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// discover is go-ios's way to the services behind a tunnel.
func discover(info goiostunnel.Tunnel) (ios.DeviceEntry, error) {
	d := ios.DeviceEntry{UserspaceTUN: info.UserspaceTUN, UserspaceTUNHost: "127.0.0.1", UserspaceTUNPort: info.UserspaceTUNPort}
	rsd, err := ios.NewWithAddrPortDevice(info.Address, info.RsdPort, d)
	if err != nil {
		return d, err
	}
	defer rsd.Close()
	services, err := rsd.Handshake()
	if err != nil {
		return d, err
	}
	if services.Udid != info.Udid {
		return d, fmt.Errorf("the phone says that it is %s, its tunnel %s", services.Udid, info.Udid)
	}
	entry, err := ios.GetDeviceWithAddress(info.Udid, info.Address, services)
	entry.UserspaceTUN, entry.UserspaceTUNHost, entry.UserspaceTUNPort = d.UserspaceTUN, d.UserspaceTUNHost, d.UserspaceTUNPort
	return entry, err
}

func mustDiscover(t testing.TB, info goiostunnel.Tunnel) ios.DeviceEntry {
	t.Helper()
	d, err := discover(info)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func withTunnel(udid, os string, kind TunnelKind) DeviceConfig {
	c := DefaultDevice(udid, os)
	c.Tunnel = kind
	return c
}

const (
	udid18 = "00008130-000000000000018A"
	udid27 = "00008150-00000000000000FF"
)

// listed is what service discovery lists of a phone with a mounted developer image.
var listed = []string{
	"com.apple.afc.shim.remote", "com.apple.coredevice.fileservice.control", "com.apple.coredevice.fileservice.data", "com.apple.instruments.dtservicehub",
	"com.apple.mobile.house_arrest.shim.remote", "com.apple.mobile.installation_proxy.shim.remote", "com.apple.mobile.lockdown.remote.trusted",
	"com.apple.mobile.mobile_image_mounter.shim.remote", "com.apple.mobile.notification_proxy.shim.remote",
}

func names(d ios.DeviceEntry) []string { return slices.Sorted(maps.Keys(d.Rsd.GetServices())) }

// processes is go-ios's process list over the hub.
func processes(d ios.DeviceEntry) ([]string, error) {
	info, err := goios.NewDeviceInfoService(d)
	if err != nil {
		return nil, err
	}
	defer info.Close()
	list, err := info.ProcessList()
	var out []string
	for _, p := range list {
		out = append(out, p.Name)
	}
	slices.Sort(out)
	return out, err
}

func TestGoIOSReachesOldAndNewPhonesInOneLab(t *testing.T) {
	_, a := startTunnels(t, DefaultDevice(udid15, "15.8"), DefaultDevice(udid16, "16.7"), DefaultDevice(udid17, "17.5"),
		withTunnel(udid18, "18.5", TunnelKernel), DefaultDevice(udid26, "26.0"), withTunnel(udid27, "26.1", TunnelNone))
	if list, err := ios.ListDevices(); err != nil || len(list.DeviceList) != 6 {
		t.Errorf("ios.ListDevices: %v, %v", list, err)
	}
	if !goiostunnel.IsAgentRunning() || !goiostunnel.WaitUntilAgentReady() {
		t.Error("go-ios finds no agent")
	}
	all, err := goiostunnel.ListRunningTunnels(a.host, a.port)
	if err != nil || len(all) != 3 {
		t.Errorf("tunnels %+v, %v: want those of 17.5, 18.5 and 26.0", all, err)
	}
	for _, udid := range []string{udid15, udid16, udid27, "nobody"} {
		if info, err := goiostunnel.TunnelInfoForDevice(udid, a.host, a.port); !errors.Is(err, goiostunnel.ErrTunnelNotFound) {
			t.Errorf("tunnel to %s: %+v, %v", udid, info, err)
		}
	}
	for _, udid := range []string{udid17, udid18, udid26} {
		info := a.find(t, udid)
		if kernel := udid == udid18; info.Udid != udid || info.UserspaceTUN == kernel || (info.Address == "::1") != kernel || kernel && info.UserspaceTUNPort != 0 {
			t.Errorf("%+v", info)
		}
		d := mustDiscover(t, info)
		if got := names(d); !slices.Equal(got, listed) {
			t.Errorf("services of %s: %q, want %q", udid, got, listed)
		}
		if got, err := processes(d); err != nil || !slices.Equal(got, []string{"Example", "SpringBoard", "backboardd"}) {
			t.Errorf("processes of %s: %q, %v", udid, got, err)
		}
	}
}

func TestPhonesOf17Point0HaveNoCoreDeviceProxyAndAKernelTunnel(t *testing.T) {
	_, a := startTunnels(t, DefaultDevice(udid17, "17.3"), DefaultDevice(udid18, "17.4"))
	if info := a.find(t, udid17); info.UserspaceTUN || info.Address != "::1" {
		t.Errorf("17.3: %+v", info)
	}
	if info := a.find(t, udid18); !info.UserspaceTUN {
		t.Errorf("17.4: %+v", info)
	}
	if _, err := connectService(udid17, coreDeviceProxyName); err == nil || !strings.Contains(err.Error(), "InvalidService") {
		t.Errorf("17.3: %v, want InvalidService", err)
	}
	conn, err := connectService(udid18, coreDeviceProxyName)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

// recorded collects the ends of frames of any release, and gaps.
type recorded struct {
	*adapter.Adapter
	ends []int64
	gaps []tap.Gap
}

func newRecorded(t *testing.T) *recorded {
	r := &recorded{Adapter: adapter.New(adapter.SourceGoIOS, "", "")}
	if err := r.Bind(adapter.Binding{SourceEpoch: 1, Timebase: adapter.Timebase{Numer: 125, Denom: 3}}); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *recorded) Record(x *adapter.Record)           { r.ends = append(r.ends, x.EndMach) }
func (r *recorded) Contributors(*adapter.Contributors) {}
func (r *recorded) Gap(g tap.Gap)                      { r.gaps = append(r.gaps, g) }

// dialHub is a DTX connection through a tunnel as the product makes it: a socket of go-ios's, the rest from package dtx.
func dialHub(t testing.TB, d ios.DeviceEntry) *dtx.Conn {
	t.Helper()
	conn, err := ios.ConnectTUNDevice(d.Address, d.Rsd.GetPort(dtServiceHubName), d)
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

func TestTheTapLosesNothingThroughTunnels(t *testing.T) {
	configs := []DeviceConfig{withTunnel(udid17, "17.5", TunnelUserspace), withTunnel(udid18, "18.5", TunnelKernel), withTunnel(udid26, "26.0", TunnelUserspace)}
	for i := range configs {
		configs[i].Scene = rate(120)
	}
	l, a := startTunnels(t, configs...)
	for i, c := range configs {
		t.Run(c.OS, func(t *testing.T) {
			t.Parallel()
			ch := startTap(t, dialHub(t, mustDiscover(t, a.find(t, c.UDID))))
			r, last := newRecorded(t), receive(t, ch).ID
			for len(r.ends) < 240 {
				m := receive(t, ch)
				if m.ID != last+1 {
					t.Fatalf("message %d after %d", m.ID, last)
				}
				last = m.ID
				if m.Type == dtx.TypeData && !strings.HasPrefix(string(m.Payload), "bplist") {
					r.Message(0, m.Payload, r)
				}
			}
			if len(r.gaps) > 0 {
				t.Errorf("gaps %v", r.gaps)
			}
			expectRun(t, r.ends, sceneEnds(t, c, l.devices[i], time.Minute))
		})
	}
}

func TestShimServicesSpeakAfterACheckIn(t *testing.T) {
	_, a := startTunnels(t, DefaultDevice(udid26, "26.0"))
	d := mustDiscover(t, a.find(t, udid26))
	for _, c := range []struct {
		service string
		request map[string]any
		key     string
		want    any
	}{
		{"com.apple.mobile.lockdown.remote.trusted", map[string]any{"Request": "GetValue", "Key": "ProductVersion"}, "Value", "26.0"},
		{"com.apple.mobile.lockdown.remote.trusted", map[string]any{"Request": "GetValue", "Key": "PasswordProtected"}, "Value", false}, // of trusted hosts only
		{"com.apple.mobile.lockdown.remote.trusted", map[string]any{"Request": "StartSession", "HostID": "x"}, "Error", "InvalidRequest"},
		{"com.apple.mobile.mobile_image_mounter.shim.remote", map[string]any{"Command": "LookupImage", "ImageType": "Personalized"}, "ImagePresent", true},
		{"com.apple.mobile.installation_proxy.shim.remote", map[string]any{"Command": "Lookup"}, "Status", "Complete"},
	} {
		conn, err := ios.ConnectToShimService(d, c.service)
		if err != nil {
			t.Fatal(err)
		}
		rw := ios.NewPlistCodecReadWriter(conn.Reader(), conn.Writer())
		var answer map[string]any
		if err := rw.Write(c.request); err != nil {
			t.Fatal(err)
		}
		if err := rw.Read(&answer); err != nil || answer[c.key] != c.want {
			t.Errorf("%s, %v: %v, %v, want %s %v", c.service, c.request, answer, err, c.key, c.want)
		}
		conn.Close()
	}
	// One that does not check in hears nothing.
	conn, err := ios.ConnectToServiceTunnelIface(d, "com.apple.mobile.installation_proxy.shim.remote")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	writePlist(conn, map[string]any{"Command": "Browse"})
	if answer, err := readPlist(conn); err == nil {
		t.Errorf("without a check-in: %v", answer)
	}
}

func TestServiceDiscoveryTellsWhoThePhoneIs(t *testing.T) {
	l, _ := startTunnels(t, DefaultDevice(udid26, "26.0"))
	hello := l.devices[0].told.handshake()
	p := hello["Properties"].(map[string]any)
	for key, want := range map[string]any{"UniqueDeviceID": udid26, "OSVersion": "26.0", "BuildVersion": "23A341", "ProductType": "iPhone15,2",
		"FramebridgeSimulated": true, "ChipID": uint64(0x8120), "UniqueChipID": uint64(0x001122334455667E)} {
		if p[key] != want {
			t.Errorf("%s is %v, want %v", key, p[key], want)
		}
	}
	hub := hello["Services"].(map[string]any)[dtServiceHubName].(map[string]any)
	if hub["Entitlement"] != "com.apple.private.dt.instruments.dtservicehub.client" || hub["Properties"].(map[string]any)["version"] != uint64(1) {
		t.Errorf("hub: %v", hub)
	}
	boot := p["BootSessionUUID"]
	apply(t, l, udid26, Fault{Kind: "reboot", For: Duration(50 * time.Millisecond)})
	waitAttached(t, l, true)
	if again := l.devices[0].properties()["BootSessionUUID"]; again == boot {
		t.Errorf("the boot session %v outlived a restart", boot)
	}
}

func TestDeveloperServicesAreListedWithAnImageAndDeveloperModeOnly(t *testing.T) {
	l, a := startTunnels(t, DefaultDevice(udid26, "26.0"))
	for _, pair := range [][2]string{{"image-missing", "image-mounted"}, {"developer-mode-off", "developer-mode-on"}} {
		hubPort := mustDiscover(t, a.find(t, udid26)).Rsd.GetPort(dtServiceHubName)
		apply(t, l, udid26, Fault{Kind: pair[0]})
		d := mustDiscover(t, a.find(t, udid26))
		want := slices.DeleteFunc(slices.Clone(listed), func(s string) bool { return strings.HasPrefix(s, "com.apple.coredevice") || s == dtServiceHubName })
		if got := names(d); !slices.Equal(got, want) {
			t.Errorf("%s: %q", pair[0], got)
		}
		conn, err := ios.ConnectTUNDevice(d.Address, hubPort, d)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := conn.Read(make([]byte, 1)); err == nil {
			t.Errorf("%s: the hub answers with %d bytes", pair[0], n)
		}
		conn.Close()
		apply(t, l, udid26, Fault{Kind: pair[1]})
		if got := names(mustDiscover(t, a.find(t, udid26))); !slices.Equal(got, listed) {
			t.Errorf("%s: %q", pair[1], got)
		}
	}
}

func TestAPhoneThatIsNotPairedHasNoTunnelUntilItIs(t *testing.T) {
	c := DefaultDevice(udid26, "26.0")
	c.Paired = false
	l, a := startTunnels(t, c)
	if info, err := goiostunnel.TunnelInfoForDevice(udid26, a.host, a.port); !errors.Is(err, goiostunnel.ErrTunnelNotFound) {
		t.Fatalf("%+v, %v", info, err)
	}
	device := goIOSDevice(t, udid26)
	_ = ios.Pair(device) // the dialog comes up
	apply(t, l, udid26, Fault{Kind: "trust"})
	if err := ios.Pair(device); err != nil {
		t.Fatal(err)
	}
	waitTunnel(t, a, udid26)
}

// waitTunnel is the agent's tunnel as soon as there is one.
func waitTunnel(t testing.TB, a agent, udid string) goiostunnel.Tunnel {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		info, err := goiostunnel.TunnelInfoForDevice(udid, a.host, a.port)
		if err == nil {
			return info
		}
		if !errors.Is(err, goiostunnel.ErrTunnelNotFound) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// different fails unless a tunnel differs from an earlier one in every part that leads somewhere.
func different(t *testing.T, was, is goiostunnel.Tunnel) {
	t.Helper()
	if is.RsdPort == was.RsdPort || is.UserspaceTUN && (is.Address == was.Address || is.UserspaceTUNPort == was.UserspaceTUNPort) {
		t.Errorf("from %+v to %+v", was, is)
	}
}

func TestTunnelsEndAndComeBackElsewhere(t *testing.T) {
	for _, kind := range []TunnelKind{TunnelUserspace, TunnelKernel} {
		for _, c := range []struct {
			name string
			do   func(t *testing.T, l *Lab, a agent)
		}{
			{"restart", func(t *testing.T, l *Lab, a agent) { apply(t, l, udid26, Fault{Kind: "tunnel-restart"}) }},
			{"gone for a while", func(t *testing.T, l *Lab, a agent) {
				apply(t, l, udid26, Fault{Kind: "tunnel-gone"})
				if info, err := goiostunnel.TunnelInfoForDevice(udid26, a.host, a.port); !errors.Is(err, goiostunnel.ErrTunnelNotFound) {
					t.Errorf("%+v, %v", info, err)
				}
				if conn, err := connectService(udid26, coreDeviceProxyName); err == nil {
					conn.Close()
					t.Error("lockdownd makes tunnels")
				}
				apply(t, l, udid26, Fault{Kind: "clear"})
			}},
			{"dropped through the API", func(t *testing.T, l *Lab, a agent) {
				if err := goiostunnel.StopTunnelForDevice(udid26, a.host, a.port); err != nil {
					t.Error(err)
				}
			}},
			{"cable", func(t *testing.T, l *Lab, a agent) {
				apply(t, l, udid26, Fault{Kind: "disconnect"})
				if info, err := goiostunnel.TunnelInfoForDevice(udid26, a.host, a.port); !errors.Is(err, goiostunnel.ErrTunnelNotFound) {
					t.Errorf("%+v, %v", info, err)
				}
				apply(t, l, udid26, Fault{Kind: "connect"})
			}},
			{"reboot", func(t *testing.T, l *Lab, a agent) {
				apply(t, l, udid26, Fault{Kind: "reboot", For: Duration(50 * time.Millisecond)})
			}},
		} {
			t.Run(string(kind)+" "+c.name, func(t *testing.T) {
				l, a := startTunnels(t, withTunnel(udid26, "26.0", kind))
				was := a.find(t, udid26)
				d := mustDiscover(t, was)
				ch := startTap(t, dialHub(t, d))
				receive(t, ch)
				c.do(t, l, a)
				if err := ended(t, ch); errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("the connection did not end: %v", err)
				}
				is := waitTunnel(t, a, udid26)
				different(t, was, is)
				if old, err := discover(was); err == nil {
					t.Errorf("the old tunnel still leads to %v", names(old))
				}
				receive(t, startTap(t, dialHub(t, mustDiscover(t, is))))
			})
		}
	}
}

func TestTheAgentAnswersAsGoIOSDoes(t *testing.T) {
	l, a := startTunnels(t, DefaultDevice(udid26, "26.0"))
	base := "http://" + net.JoinHostPort(a.host, strconv.Itoa(a.port))
	for _, c := range []struct {
		method, path string
		want         int
	}{
		{"GET", "/health", 200}, {"GET", "/ready", 200}, {"GET", "/tunnels", 200}, {"GET", "/tunnel/" + udid26, 200}, {"GET", "/tunnel/nobody", 404},
		{"POST", "/health", 405}, {"POST", "/tunnels", 405}, {"PUT", "/tunnel/" + udid26, 405}, {"DELETE", "/tunnel/nobody", 404},
		{"GET", "/shutdown", 404}, {"GET", "/health", 200},
	} {
		request, err := http.NewRequest(c.method, base+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != c.want {
			t.Errorf("%s %s: %s %s, want %d", c.method, c.path, response.Status, body, c.want)
		}
	}
	response, err := http.Get(base + "/tunnel/" + udid26)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var got map[string]any
	if err := json.NewDecoder(response.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	address, err := netip.ParseAddr(fmt.Sprint(got["address"]))
	if err != nil || !address.IsPrivate() || got["udid"] != udid26 || got["userspaceTun"] != true || len(got) != 5 {
		t.Errorf("%v, %v: want five members and a unique local address", got, err)
	}
	if _, _, err := l.ListenTunnels("127.0.0.1:0"); !errors.Is(err, errAgentTwice) {
		t.Errorf("a second agent: %v", err)
	}
}

func TestUserspaceTunnelsLeadOnlyWhereTheyAreSaidTo(t *testing.T) {
	_, a := startTunnels(t, DefaultDevice(udid26, "26.0"))
	info := a.find(t, udid26)
	right := netip.MustParseAddr(info.Address)
	for _, c := range []struct {
		name    string
		address netip.Addr
		port    uint32
	}{
		{"another address", right.Next(), uint32(info.RsdPort)},
		{"a port on which nothing listens", right, 1},
		{"a port past the last", right, 1<<16 + uint32(info.RsdPort)},
	} {
		conn, err := net.Dial("tcp", net.JoinHostPort(a.host, strconv.Itoa(info.UserspaceTUNPort)))
		if err != nil {
			t.Fatal(err)
		}
		sixteen := c.address.As16()
		conn.SetDeadline(time.Now().Add(10 * time.Second))
		conn.Write(append(sixteen[:], byte(c.port), byte(c.port>>8), byte(c.port>>16), byte(c.port>>24)))
		if n, err := conn.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("%s: %d bytes, %v, want the end", c.name, n, err)
		}
		conn.Close()
	}
}

func TestAppsAreBrowsedThroughAnyRelease(t *testing.T) {
	startTunnels(t, DefaultDevice(udid26, "26.0"))
	proxy, err := installationproxy.New(goIOSDevice(t, udid26)) // over lockdownd, which new phones offer too
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	if apps, err := proxy.BrowseUserApps(); err != nil || len(apps) != 1 {
		t.Errorf("%v, %v", apps, err)
	}
}

// A tunnel of go-ios's own over CoreDeviceProxy runs in a process of its own, since go-ios leaves goroutines behind.

const childTunnelVar = "SIM_TEST_TUNNEL_TO"

// childTunnel is that process: it makes the tunnel, prints it, and keeps it until standard input ends.
func childTunnel(udid string) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	d, err := ios.GetDevice(udid)
	if err != nil {
		return fail(err)
	}
	ln, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		return fail(err)
	}
	port := ln.Addr().(*net.TCPAddr).Port
	ln.Close()
	made, err := goiostunnel.ConnectUserSpaceTunnelLockdown(d, port)
	if err != nil {
		return fail(err)
	}
	made.UserspaceTUN, made.UserspaceTUNPort = true, port
	if err := json.NewEncoder(os.Stdout).Encode(made); err != nil {
		return fail(err)
	}
	io.Copy(io.Discard, os.Stdin)
	return 0
}

// startChildTunnel starts that process; kill ends it at once.
func startChildTunnel(t testing.TB, udid string) (info goiostunnel.Tunnel, kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childTunnelVar+"="+udid)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &info)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, line)
	}
	return info, func() { cmd.Process.Kill() }
}

func TestGoIOSMakesATunnelByCoreDeviceProxyWithoutRoot(t *testing.T) {
	c := withTunnel(udid26, "26.0", TunnelNone)
	c.Scene = rate(120)
	l := startLab(t, c)
	info, _ := startChildTunnel(t, udid26)
	if address := netip.MustParseAddr(info.Address); !address.IsPrivate() || info.Udid != udid26 {
		t.Errorf("%+v", info)
	}
	d := mustDiscover(t, info)
	if got := names(d); !slices.Equal(got, listed) {
		t.Errorf("services %q", got)
	}
	if got, err := processes(d); err != nil || len(got) != 3 {
		t.Errorf("processes %q, %v", got, err)
	}
	ch := startTap(t, dialHub(t, d))
	r := newRecorded(t)
	receive(t, ch)
	for len(r.ends) < 240 {
		if m := receive(t, ch); m.Type == dtx.TypeData && !strings.HasPrefix(string(m.Payload), "bplist") {
			r.Message(0, m.Payload, r)
		}
	}
	if len(r.gaps) > 0 {
		t.Errorf("gaps %v", r.gaps)
	}
	expectRun(t, r.ends, sceneEnds(t, c, l.devices[0], time.Minute))
	if n := l.Status()[0].Tunnels; n != 1 {
		t.Errorf("%d tunnels", n)
	}
}

func TestRestartsAndKilledTunnelsLeaveNothingBehind(t *testing.T) {
	l, a := startTunnels(t, DefaultDevice(udid26, "26.0"), withTunnel(udid18, "18.5", TunnelKernel))
	held := func() (n [4]int) {
		l.mu.Lock()
		n[0], n[1] = len(l.open), len(l.clients)
		l.mu.Unlock()
		for _, st := range l.Status() {
			n[2] += st.Tunnels
			n[3] += st.Connections
		}
		return n
	}
	before := held()
	for range 10 {
		for _, udid := range []string{udid26, udid18} {
			ch := startTap(t, dialHub(t, mustDiscover(t, waitTunnel(t, a, udid))))
			receive(t, ch)
			apply(t, l, udid, Fault{Kind: "tunnel-restart"})
			ended(t, ch)
		}
	}
	for range 3 {
		info, kill := startChildTunnel(t, udid26)
		ch := startTap(t, dialHub(t, mustDiscover(t, info)))
		receive(t, ch)
		kill()
		ended(t, ch)
	}
	http.DefaultClient.CloseIdleConnections()
	for deadline := time.Now().Add(10 * time.Second); held() != before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("sockets, clients, tunnels and connections: %v, they were %v", held(), before)
		}
	}
}
