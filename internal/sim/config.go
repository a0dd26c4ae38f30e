package sim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/framebridge/framebridge/internal/sim/scene"
	"gopkg.in/yaml.v3"
)

// Bounds of a lab, with their reasons.
const (
	MaxDevices = 64  // more than a host has USB ports for
	MaxSpeed   = 100 // faster, and a phone's life would jump by seconds each time that it is looked after
	maxApps    = 200 // a phone lists them in one answer
	maxFaults  = 1000
)

// Config is a lab, as its YAML describes it; see Example.
type Config struct {
	Speed   int // how much faster than the host's clock everything goes
	Devices []DeviceConfig
}

// DeviceConfig is one phone of a lab.
type DeviceConfig struct {
	UDID, Name, Product, OS string

	Paired bool       // with this host
	Tunnel TunnelKind // that the lab's agent keeps; "" before iOS 17
	State  State
	Lab27  bool // carries the reference app
	Apps   []App
	Scene  scene.Spec
	Faults []Fault // the script
}

// App is an installed app.
type App struct {
	Bundle string `yaml:"bundle"`
	Name   string `yaml:"name"`
}

// DefaultDevice is a phone as it is where nothing else is said: paired, ready to be measured, showing an app at 60 Hz for ever.
func DefaultDevice(udid, os string) DeviceConfig {
	c := DeviceConfig{UDID: udid, Name: "iPhone", Product: "iPhone15,2", OS: os, Paired: true,
		State: State{DeveloperMode: true, DeveloperImage: true}, Scene: scene.Default()}
	switch major, _, _ := strings.Cut(os, "."); major { // products that these releases run on
	case "14", "15":
		c.Product = "iPhone8,1"
	case "16":
		c.Product = "iPhone10,3"
	}
	if release, err := scene.ParseOS(os); err == nil && release.Major >= firstTunnelMajor {
		c.Tunnel = TunnelUserspace
		if !tunnelsByCable(release) {
			c.Tunnel = TunnelKernel // agents make no other to iOS 17.0 to 17.3
		}
	}
	c.Apps = []App{{c.Scene.App.Bundle, c.Scene.App.Name}}
	return c
}

// ErrConfig is wrapped by every error about a lab's description.
var ErrConfig = errors.New("lab")

type yamlLab struct {
	Speed   *int         `yaml:"speed"`
	Devices []yamlDevice `yaml:"devices"`
}

type yamlDevice struct {
	UDID           string      `yaml:"udid"`
	Name           string      `yaml:"name"`
	Product        string      `yaml:"product"`
	OS             string      `yaml:"os"`
	Paired         *bool       `yaml:"paired"`
	Tunnel         TunnelKind  `yaml:"tunnel"`
	DeveloperMode  *bool       `yaml:"developerMode"`
	DeveloperImage *bool       `yaml:"developerImage"`
	Locked         bool        `yaml:"locked"`
	Lab27          bool        `yaml:"lab27"`
	Apps           []App       `yaml:"apps"`
	Scene          *scene.Spec `yaml:"scene"`
	Faults         []Fault     `yaml:"faults"`
}

// UnmarshalYAML reads a duration, and says where a bad one stands.
func (d *Duration) UnmarshalYAML(n *yaml.Node) error {
	if err := d.UnmarshalText([]byte(n.Value)); err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	return nil
}

// Parse reads a lab's YAML. Its errors name the line and what to write there.
func Parse(text []byte) (Config, error) {
	if len(text) > scene.MaxYAMLBytes {
		return Config{}, fmt.Errorf("%w: %d bytes, at most %d can be read: use loop: true in long scenes", ErrConfig, len(text), scene.MaxYAMLBytes)
	}
	var y yamlLab
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&y); err != nil {
		return Config{}, explain(err)
	}
	if err := dec.Decode(new(yaml.Node)); err != io.EOF {
		return Config{}, fmt.Errorf("%w: a second document follows the first: write one lab in a file", ErrConfig)
	}
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return Config{}, explain(err)
	}
	return y.config(root.Content[0])
}

var unknownField = regexp.MustCompile(`field (\S+) not found in type \S+`)

// explain brings the YAML package's errors into one line with a remedy.
func explain(err error) error {
	var several *yaml.TypeError
	switch {
	case err == io.EOF:
		return fmt.Errorf("%w: it is empty: begin with what labsim example prints", ErrConfig)
	case errors.As(err, &several):
		first := unknownField.ReplaceAllString(several.Errors[0], `unknown key "$1"`)
		return fmt.Errorf("%w: %s: see labsim example for the keys and their values", ErrConfig, first)
	}
	return fmt.Errorf("%w: %w", ErrConfig, err)
}

// lineOf is the line of what a path of keys and indices leads to, or of the last part of the path that there is.
func lineOf(n *yaml.Node, path ...any) int {
	for _, step := range path {
		next := -1
		switch step := step.(type) {
		case int:
			next = step
		case string:
			for i := 0; i+1 < len(n.Content); i += 2 {
				if n.Content[i].Value == step {
					next = i + 1
				}
			}
		}
		if n.Kind == yaml.AliasNode || next < 0 || next >= len(n.Content) {
			break
		}
		n = n.Content[next]
	}
	return n.Line
}

func (y yamlLab) config(root *yaml.Node) (Config, error) {
	c := Config{Speed: 1}
	wrong := func(format string, args []any, path ...any) error {
		return fmt.Errorf("%w: line %d: %s", ErrConfig, lineOf(root, path...), fmt.Sprintf(format, args...))
	}
	if y.Speed != nil {
		c.Speed = *y.Speed
	}
	if c.Speed < 1 || c.Speed > MaxSpeed {
		return c, wrong("speed %d: write a whole number from 1 to %d", []any{c.Speed, MaxSpeed}, "speed")
	}
	if len(y.Devices) < 1 || len(y.Devices) > MaxDevices {
		return c, wrong("%d devices: write 1 to %d", []any{len(y.Devices), MaxDevices}, "devices")
	}
	for i, yd := range y.Devices {
		d, key, err := yd.config()
		if err == nil && slices.ContainsFunc(c.Devices, func(o DeviceConfig) bool { return o.UDID == d.UDID }) {
			key, err = []any{"udid"}, fmt.Errorf("udid %s is taken by an earlier device: give each its own", d.UDID)
		}
		if err != nil {
			return c, wrong("%v", []any{err}, append([]any{"devices", i}, key...)...)
		}
		c.Devices = append(c.Devices, d)
	}
	return c, nil
}

// udidForm is that of phones since 2018, or of older ones.
var udidForm = regexp.MustCompile(`^([0-9A-F]{8}-[0-9A-F]{16}|[0-9a-f]{40})$`)

// config checks a device. An error comes with the path to the key that it is about.
func (y yamlDevice) config() (d DeviceConfig, key []any, err error) {
	if !udidForm.MatchString(y.UDID) {
		return d, []any{"udid"}, fmt.Errorf("udid %q: write 8 and 16 hex digits such as 00008110-000A1B2C3D4E5F60, or 40 such as older phones have", y.UDID)
	}
	if _, err := scene.ParseOS(y.OS); err != nil {
		return d, []any{"os"}, fmt.Errorf("os %w (in quotes, so that 26.0 does not become 26)", err)
	}
	d = DefaultDevice(y.UDID, y.OS)
	for _, text := range []struct {
		key, value string
		to         *string
	}{{"name", y.Name, &d.Name}, {"product", y.Product, &d.Product}} {
		if !plainText(text.value) {
			return d, []any{text.key}, fmt.Errorf("%s %q: write a plain text of at most %d bytes", text.key, text.value, maxText)
		}
		if text.value != "" {
			*text.to = text.value
		}
	}
	for _, flag := range []struct{ given, to *bool }{{y.Paired, &d.Paired}, {y.DeveloperMode, &d.State.DeveloperMode}, {y.DeveloperImage, &d.State.DeveloperImage}} {
		if flag.given != nil {
			*flag.to = *flag.given
		}
	}
	d.State.Locked = y.Locked
	switch y.Tunnel {
	case "":
	case TunnelUserspace, TunnelKernel, TunnelNone:
		if d.Tunnel == "" {
			return d, []any{"tunnel"}, fmt.Errorf("tunnel %s: there are none before iOS %d: leave it out", y.Tunnel, firstTunnelMajor)
		}
		d.Tunnel = y.Tunnel
	default:
		return d, []any{"tunnel"}, fmt.Errorf("tunnel %q: write %s, %s or %s", y.Tunnel, TunnelUserspace, TunnelKernel, TunnelNone)
	}
	if y.Scene != nil {
		d.Scene = *y.Scene
	}
	if len(y.Apps) > maxApps {
		return d, []any{"apps"}, fmt.Errorf("%d apps: write at most %d", len(y.Apps), maxApps)
	}
	d.Apps = slices.Clone(y.Apps)
	for i, app := range d.Apps {
		if app.Bundle == "" || app.Name == "" || !plainText(app.Bundle) || !plainText(app.Name) {
			return d, []any{"apps", i}, errors.New("an app needs a bundle and a name: write {bundle: com.example.app, name: Example}")
		}
	}
	// The scene's own app is always installed: the scene can start it.
	own := App{d.Scene.App.Bundle, d.Scene.App.Name}
	if !slices.ContainsFunc(d.Apps, func(a App) bool { return a.Bundle == own.Bundle }) {
		d.Apps = append(d.Apps, own)
	}
	if d.Lab27 = y.Lab27; y.Lab27 && !HasLab27 {
		return d, []any{"lab27"}, errNoLab27
	}
	if len(y.Faults) > maxFaults {
		return d, []any{"faults"}, fmt.Errorf("%d faults: write at most %d", len(y.Faults), maxFaults)
	}
	for i, f := range y.Faults {
		if _, err := f.kind(); err != nil {
			return d, []any{"faults", i}, err
		}
	}
	d.Faults = y.Faults
	return d, nil, nil
}

// maxText bounds names, which lockdownd and others repeat in their answers.
const maxText = 200

// plainText is text that a property list can carry.
func plainText(s string) bool {
	return len(s) <= maxText && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0xfffd })
}

// Example is a lab's YAML with everything explained.
const Example = `# A simulated lab: labsim run lab.yaml

speed: 1        # 1 to 100: everything goes so much faster. A program that measures with the host's own clock sees phones whose
                # clocks run so much too fast; framebridge demo, which shares the lab's process, takes the lab's clock instead.

devices:        # 1 to 64
  - udid: 00008110-000A1B2C3D4E5F60     # 8 and 16 hex digits, or 40
    os: "16.7"                          # in quotes. 14.0 to 26.99; from 17.0 on developer services are behind a tunnel
    # What follows may be left out; these are the defaults, but for name, apps, scene and faults.
    name: Anna
    product: iPhone10,3
    paired: true            # with this host; false: a host must pair, and labsim ctl trust accepts it
    developerMode: true
    developerImage: true    # mounted
    locked: false
    lab27: false            # true: carries the reference app, com.framebridge.lab27, for framebridge lab27
    apps:                   # installed, besides the scene's own
      - {bundle: com.example.camera, name: Camera}
    scene:                  # what happens on the phone, see below; default: an app at 60 Hz for ever
      drift_ppm: 20
      steps:
        - {for: 20s, hz: 60}
        - {for: 5s, hz: 60, jank: {every: 12, delay: 80ms}}
        - {event: background}
        - {for: 3s, idle: true}
        - {event: foreground}
        - {for: 1h, hz: 60}
    faults:                 # a script; at counts from the lab's begin, like the scene. labsim ctl does the same by command
      - {at: 10s, kind: lose, count: 2}
      - {at: 40s, kind: disconnect, for: 3s}
      - {at: 60s, kind: reboot, for: 5s}

  - udid: 00008140-001122334455667E
    os: "26.0"
    tunnel: userspace       # that the lab's tunnel agent keeps to it (labsim run --tunnels): userspace, kernel (address ::1), or none.
                            # From iOS 17.4 on others can make one over lockdownd's CoreDeviceProxy as well (framebridge tunnel).

  - udid: 00008101-001E2D3C4B5A6978
    os: "15.8"
`
