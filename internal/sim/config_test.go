package sim

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestTheExampleIsALab(t *testing.T) {
	c, err := Parse([]byte(Example))
	if err != nil {
		t.Fatal(err)
	}
	if c.Speed != 1 || len(c.Devices) != 3 {
		t.Fatalf("speed %d, %d devices", c.Speed, len(c.Devices))
	}
	anna, behind, other := c.Devices[0], c.Devices[1], c.Devices[2]
	if anna.Name != "Anna" || anna.OS != "16.7" || !anna.Paired || anna.Tunnel != "" || anna.State != (State{DeveloperMode: true, DeveloperImage: true}) ||
		len(anna.Apps) != 2 || len(anna.Faults) != 3 || anna.Faults[1].For.lab() != 3*time.Second || anna.Scene.DriftPPB != 20_000 || len(anna.Scene.Steps) != 6 {
		t.Errorf("first device: %+v", anna)
	}
	if behind.OS != "26.0" || behind.Tunnel != TunnelUserspace {
		t.Errorf("a device behind a tunnel: %+v", behind)
	}
	if other.Name != "iPhone" || other.Product != "iPhone8,1" || !other.Paired || !other.State.DeveloperImage || len(other.Apps) != 1 {
		t.Errorf("a device of which only udid and os are told: %+v", other)
	}
}

func TestEveryMistakeInALabIsNamedWithItsLineAndARemedy(t *testing.T) {
	device := func(rest string) string {
		return "devices:\n  - udid: 00008101-001E2D3C4B5A6978\n    os: \"15.8\"\n" + rest
	}
	for _, c := range []struct{ yaml, want string }{
		{"", "it is empty: begin with what labsim example prints"},
		{"devices: [", "line 1"},
		{"speed: 0\ndevices: []", "line 1: speed 0: write a whole number from 1 to 100"},
		{"speed: fast\n", "line 1: cannot unmarshal !!str `fast` into int"},
		{"speed: 1\ndevices: []", "line 2: 0 devices: write 1 to 64"},
		{"speed: 1\n", "line 1: 0 devices: write 1 to 64"},
		{device("    colour: red\n"), `line 4: unknown key "colour": see labsim example`},
		{device("    os: \"16.7\"\n"), `line 4: mapping key "os" already defined at line 3`},
		{"devices:\n  - udid: 4711\n    os: \"15.8\"\n", `line 2: udid "4711": write 8 and 16 hex digits`},
		{"devices:\n  - os: \"15.8\"\n", `line 2: udid "": write 8 and 16 hex digits`},
		{"devices:\n  - udid: 00008101-001E2D3C4B5A6978\n    os: \"9.3\"\n", `line 3: os "9.3" is no iOS version from 14.0 to 26.99`},
		{device("") + strings.TrimPrefix(device(""), "devices:\n"), "line 4: udid 00008101-001E2D3C4B5A6978 is taken by an earlier device"},
		{device("    apps:\n      - {bundle: com.example.a, name: A}\n      - {bundle: com.example.b}\n"), "line 6: an app needs a bundle and a name"},
		{device("    name: " + strings.Repeat("x", 201) + "\n"), "line 4: name"},
		{device("    scene:\n      - {for: 10s, hz: 600}\n"), `line 5: "600" is no whole number from 1 to 120`},
		{device("    faults:\n      - {at: 1s, kind: lose}\n      - {at: 2s, kind: dance}\n"), `line 6: fault: unknown kind "dance"`},
		{device("    faults:\n      - {at: soon, kind: lose}\n"), `line 5: "soon" is no duration: write one such as 80ms`},
		{device("    faults:\n      - {at: 1s, kind: stall}\n"), "line 5: fault: stall needs for: add it"},
		{device("    tunnel: kernel\n"), "line 4: tunnel kernel: there are none before iOS 17: leave it out"},
		{strings.Replace(device("    tunnel: wire\n"), "15.8", "17.5", 1), `line 4: tunnel "wire": write userspace, kernel or none`},
		{device("    faults:\n      - {at: 1s, kind: service-missing, service: lockdownd}\n"), `line 5: fault: service discovery has no service "lockdownd"`},
		{device("---\ndevices: []\n"), "a second document follows"},
		{strings.Repeat("#", 1<<20+1), "1048577 bytes, at most 1048576"},
	} {
		_, err := Parse([]byte(c.yaml))
		if !errors.Is(err, ErrConfig) || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%.80q: %v, want %q", c.yaml, err, c.want)
		}
	}
}

func TestPhonesBehindTunnelsHaveTheKindThatAgentsMakeUnlessAnotherIsSaid(t *testing.T) {
	for _, c := range []struct {
		os, line string
		want     TunnelKind
	}{{"16.7", "", ""}, {"17.3", "", TunnelKernel}, {"17.4", "", TunnelUserspace}, {"26.0", "", TunnelUserspace}, {"17.0", "tunnel: userspace", TunnelUserspace},
		{"18.5", "tunnel: kernel", TunnelKernel}, {"26.0", "tunnel: none", TunnelNone}} {
		got, err := Parse(fmt.Appendf(nil, "devices:\n  - udid: 00008101-001E2D3C4B5A6978\n    os: %q\n    %s\n", c.os, c.line))
		if err != nil || got.Devices[0].Tunnel != c.want {
			t.Errorf("%s, %q: %+v, %v", c.os, c.line, got.Devices, err)
		}
	}
}

func TestFaultHelpNamesEveryKind(t *testing.T) {
	help := FaultHelp()
	for _, kind := range []string{"lose", "duplicate", "corrupt", "torn", "stall", "disconnect", "reboot", "image-missing", "developer-mode-off", "relaunch", "hang",
		"tunnel-restart", "tunnel-gone", "half-open", "rsd-refuse", "service-missing", "agent-garbage"} {
		if !strings.Contains(help, "  "+kind+" ") {
			t.Errorf("%s is not explained", kind)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(Example)
	f.Add("devices: [{udid: 00008101-001E2D3C4B5A6978, os: \"15.8\", scene: &a [{for: 1s, idle: true}], faults: [*a]}]")
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := Parse([]byte(text)); err == nil && (len(c.Devices) == 0 || c.Speed < 1) {
			t.Errorf("a lab without devices or speed: %+v", c)
		}
	})
}
