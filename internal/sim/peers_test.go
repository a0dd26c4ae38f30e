package sim

import (
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/danielpaulus/go-ios/ios"
	"github.com/danielpaulus/go-ios/ios/imagemounter"
	"github.com/danielpaulus/go-ios/ios/installationproxy"
	goios "github.com/danielpaulus/go-ios/ios/instruments"
)

// Programs that nobody here wrote, used as they are.

// connectService opens a service through go-ios: usbmux, pair record, lockdown session, TLS.
func connectService(udid, name string) (net.Conn, error) {
	device, err := ios.GetDevice(udid)
	if err != nil {
		return nil, err
	}
	conn, err := ios.ConnectToService(device, name)
	if err != nil {
		return nil, err
	}
	return conn.Conn(), nil
}

func goIOSDevice(t *testing.T, udid string) ios.DeviceEntry {
	t.Helper()
	d, err := ios.GetDevice(udid)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// tool runs one of libimobiledevice's tools.
func tool(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("SKIPPED, A PEER IS MISSING: %v (apt-get install -y libimobiledevice-utils)", err)
	}
	out, err := exec.CommandContext(withTimeout(t), path, args...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func mustTool(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := tool(t, name, args...)
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return out
}

func TestLibimobiledeviceTalksToTheLab(t *testing.T) {
	l := startLab(t, DefaultDevice(udid15, "15.8"), DefaultDevice(udid16, "16.7"), DefaultDevice(udid17, "26.0"))
	check := func(t *testing.T) {
		ids := strings.Fields(mustTool(t, "idevice_id", "-l"))
		slices.Sort(ids)
		if want := []string{udid15, udid16, udid17}; !slices.Equal(ids, want) {
			t.Errorf("idevice_id -l: %v, want %v", ids, want)
		}
		for _, c := range []struct{ udid, key, want string }{
			{udid15, "ProductVersion", "15.8"}, {udid16, "ProductVersion", "16.7"}, {udid17, "ProductVersion", "26.0"},
			{udid15, "ProductType", "iPhone8,1"}, {udid16, "BuildVersion", "20H19"}, {udid16, "FramebridgeSimulated", "true"},
			{udid16, "PasswordProtected", "false"},
		} {
			if got := mustTool(t, "ideviceinfo", "-u", c.udid, "-k", c.key); got != c.want {
				t.Errorf("ideviceinfo -u %s -k %s: %q, want %q", c.udid, c.key, got, c.want)
			}
		}
		if got := mustTool(t, "ideviceinfo", "-u", udid16, "-q", "com.apple.security.mac.amfi"); !strings.HasSuffix(got, "DeveloperModeStatus: true") {
			t.Errorf("amfi domain: %q", got)
		}
		if got := mustTool(t, "idevicename", "-u", udid15); got != "iPhone" {
			t.Errorf("idevicename: %q", got)
		}
		if got := mustTool(t, "ideviceimagemounter", "-u", udid15, "-l"); !strings.Contains(got, "ImagePresent: true") {
			t.Errorf("ideviceimagemounter -l: %q", got)
		}
	}
	t.Run("unix socket", check)
	env, err := l.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("USBMUXD_SOCKET_ADDRESS", env)
	t.Run("tcp", check)
}

func TestLibimobiledevicePairsOnceSomebodyTapsTrust(t *testing.T) {
	c := DefaultDevice(udid15, "15.8")
	c.Paired = false
	l := startLab(t, c)
	if out, err := tool(t, "idevicepair", "-u", udid15, "pair"); err == nil || !strings.Contains(out, "trust dialog") {
		t.Fatalf("pairing without a tap on Trust: %q, %v", out, err)
	}
	if out, err := tool(t, "ideviceinfo", "-u", udid15, "-k", "ProductVersion"); err == nil {
		t.Fatalf("an unpaired host got %q", out)
	}
	apply(t, l, udid15, Fault{Kind: "trust"})
	mustTool(t, "idevicepair", "-u", udid15, "pair")
	mustTool(t, "idevicepair", "-u", udid15, "validate")
	if got := mustTool(t, "ideviceinfo", "-u", udid15, "-k", "ProductVersion"); got != "15.8" {
		t.Errorf("after pairing: %q", got)
	}
	apply(t, l, udid15, Fault{Kind: "unpair"})
	if out, err := tool(t, "idevicepair", "-u", udid15, "validate"); err == nil {
		t.Errorf("the phone has forgotten this host, and still: %q", out)
	}
}

func TestGoIOSListsDevicesAndReadsTheirValues(t *testing.T) {
	startLab(t, DefaultDevice(udid15, "15.8"), DefaultDevice(udid17, "26.0"))
	list, err := ios.ListDevices()
	if err != nil || len(list.DeviceList) != 2 {
		t.Fatalf("ios.ListDevices: %v, %v", list, err)
	}
	if p := list.DeviceList[0].Properties; p.SerialNumber != udid15 || p.ConnectionType != "USB" || p.ProductID != 0x12a8 {
		t.Errorf("first device: %+v", p)
	}
	values, err := ios.GetValues(list.DeviceList[1])
	if err != nil {
		t.Fatal(err)
	}
	if v := values.Value; v.ProductVersion != "26.0" || v.UniqueDeviceID != udid17 || v.ProductType != "iPhone15,2" || v.UniqueChipID != 0x0011223344556677 {
		t.Errorf("values: %+v", v)
	}
	all, err := ios.GetValuesPlist(list.DeviceList[0])
	if err != nil || all["FramebridgeSimulated"] != true {
		t.Errorf("FramebridgeSimulated is %v, %v", all["FramebridgeSimulated"], err)
	}
}

func TestGoIOSPairsOnceSomebodyTapsTrust(t *testing.T) {
	c := DefaultDevice(udid15, "15.8")
	c.Paired = false
	l := startLab(t, c)
	device := goIOSDevice(t, udid15)
	listener := dialMux(t)
	askMux(t, listener, map[string]any{"MessageType": "Listen"})
	if err := ios.Pair(device); err == nil || !strings.Contains(err.Error(), "PairingDialog") {
		t.Fatalf("first pairing: %v", err)
	}
	apply(t, l, udid15, Fault{Kind: "trust"})
	if err := ios.Pair(device); err != nil {
		t.Fatal(err)
	}
	if v, err := ios.GetProductVersion(device); err != nil || v.String() != "15.8.0" {
		t.Errorf("after pairing: %v, %v", v, err)
	}
	for _, want := range []string{"Attached", "Paired"} {
		if m, err := readMux(listener); err != nil || m.body["MessageType"] != want || m.body["DeviceID"] != uint64(1) {
			t.Errorf("a listener heard %v, %v, want %s", m.body, err, want)
		}
	}
}

func TestGoIOSAsksTheImageMounter(t *testing.T) {
	l := startLab(t, DefaultDevice(udid16, "16.7"), DefaultDevice(udid17, "18.5"))
	look := func(udid string) int {
		t.Helper()
		m, err := imagemounter.NewImageMounter(goIOSDevice(t, udid))
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		list, err := m.ListImages()
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	if a, b := look(udid16), look(udid17); a != 1 || b != 1 {
		t.Errorf("%d and %d images mounted, want one each", a, b)
	}
	apply(t, l, udid16, Fault{Kind: "image-missing"})
	if n := look(udid16); n != 0 {
		t.Errorf("%d images after it was unmounted", n)
	}
	on, err := imagemounter.IsDevModeEnabled(goIOSDevice(t, udid16))
	if err != nil || !on {
		t.Errorf("developer mode: %v, %v", on, err)
	}
	apply(t, l, udid16, Fault{Kind: "developer-mode-off"})
	if on, err := imagemounter.IsDevModeEnabled(goIOSDevice(t, udid16)); err != nil || on {
		t.Errorf("developer mode after it was switched off: %v, %v", on, err)
	}
}

func TestGoIOSListsLaunchesAndKillsProcesses(t *testing.T) {
	c := DefaultDevice(udid16, "16.7")
	c.Apps = append(c.Apps, App{"com.example.camera", "Camera"})
	startLab(t, c)
	device := goIOSDevice(t, udid16)
	info, err := goios.NewDeviceInfoService(device)
	if err != nil {
		t.Fatal(err)
	}
	defer info.Close()
	pid := func(name string) uint64 {
		t.Helper()
		list, err := info.ProcessList()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list {
			if p.Name == name {
				return p.Pid
			}
		}
		return 0
	}
	for _, name := range []string{"backboardd", "SpringBoard", "Example"} {
		if pid(name) == 0 {
			t.Errorf("%s does not run", name)
		}
	}
	if err := info.NameForPid(pid("backboardd")); err != nil {
		t.Error(err)
	}
	if hw, err := info.HardwareInformation(); err != nil || hw["numberOfCpus"] != uint64(6) {
		t.Errorf("hardware: %v, %v", hw, err)
	}
	if _, err := info.NetworkInformation(); err != nil {
		t.Error(err)
	}

	control, err := goios.NewProcessControl(device)
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	launched, err := control.LaunchApp("com.example.camera", nil)
	if err != nil || launched == 0 || launched != pid("Camera") {
		t.Fatalf("launched with pid %d, the list says %d: %v", launched, pid("Camera"), err)
	}
	if again, err := control.LaunchApp("com.example.camera", nil); err != nil || again != launched {
		t.Errorf("launched again with pid %d instead of %d: %v", again, launched, err)
	}
	if anew, err := control.LaunchApp("com.example.camera", map[string]any{"KillExisting": uint64(1)}); err != nil || anew == launched || anew != pid("Camera") {
		t.Errorf("launched anew with pid %d, it was %d: %v", anew, launched, err)
	}
	if err := control.KillProcess(pid("Camera")); err != nil || pid("Camera") != 0 {
		t.Errorf("killed, and its pid is %d: %v", pid("Camera"), err)
	}
	if _, err := control.LaunchApp("com.example.nothing", nil); err == nil || !strings.Contains(err.Error(), "com.example.nothing") {
		t.Errorf("an app that is not installed: %v", err)
	}
}

func TestGoIOSListsApps(t *testing.T) {
	c := DefaultDevice(udid15, "15.8")
	c.Apps = append(c.Apps, App{"com.example.camera", "Camera"})
	startLab(t, c)
	proxy, err := installationproxy.New(goIOSDevice(t, udid15))
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	apps, err := proxy.BrowseUserApps()
	if err != nil || len(apps) != 2 || apps[0].CFBundleIdentifier() != "com.example.app" || apps[1].CFBundleName() != "Camera" {
		t.Errorf("user apps: %v, %v", apps, err)
	}
	if apps, err := proxy.BrowseSystemApps(); err != nil || len(apps) != 0 {
		t.Errorf("system apps: %v, %v", apps, err)
	}
}

func TestGoIOSReadsCPUUsage(t *testing.T) {
	l := startLab(t, DefaultDevice(udid15, "15.8"))
	tap, err := goios.NewSysmontapService(goIOSDevice(t, udid15), 100)
	if err != nil {
		t.Fatal(err)
	}
	usage := tap.ReceiveCPUUsage()
	for range 3 {
		select {
		case u := <-usage:
			if u.CPUCount != 6 || u.EndMachAbsTime == 0 || u.SystemCPUUsage.CPU_TotalLoad <= 0 {
				t.Errorf("sample %+v", u)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("no sample within 10 s")
		}
	}
	// go-ios panics where a sample comes while it closes its queue: so the cable is pulled first, and what was on its way is read.
	apply(t, l, udid15, Fault{Kind: "disconnect"})
	for quiet := false; !quiet; {
		select {
		case <-usage:
		case <-time.After(200 * time.Millisecond):
			quiet = true
		}
	}
	_ = tap.Close() // complains that the cable is out
}

func TestGoIOSSeesPhonesComeAndGo(t *testing.T) {
	l := startLab(t, DefaultDevice(udid15, "15.8"), DefaultDevice(udid16, "16.7"))
	next, stop, err := ios.Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	expect := func(kind, udid string) int {
		t.Helper()
		m, err := next()
		if err != nil {
			t.Fatal(err)
		}
		if m.MessageType != kind || udid != "" && m.Properties.SerialNumber != udid {
			t.Fatalf("%+v, want %s of %s", m, kind, udid)
		}
		return m.DeviceID
	}
	first := expect("Attached", udid15)
	expect("Attached", udid16)
	apply(t, l, udid15, Fault{Kind: "disconnect"})
	if id := expect("Detached", ""); id != first {
		t.Errorf("device %d left, it was %d", id, first)
	}
	if list, err := ios.ListDevices(); err != nil || len(list.DeviceList) != 1 {
		t.Errorf("listed while one is away: %v, %v", list, err)
	}
	apply(t, l, udid15, Fault{Kind: "connect"})
	if id := expect("Attached", udid15); id == first {
		t.Errorf("it came back with its old number %d", id)
	}
	apply(t, l, udid16, Fault{Kind: "reboot", For: Duration(100 * time.Millisecond)})
	expect("Detached", "")
	expect("Attached", udid16)
}
