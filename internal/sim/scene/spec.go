package scene

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// Bounds of a scene, with their reasons.
const (
	MaxYAMLBytes = 1 << 20 // a scene is written by hand
	maxSteps     = 10_000
	maxHz        = 120 // the fastest panel of any iPhone
	maxNoise     = 10_000
	maxDriftPPM  = 1000 // ten times worse than the worst quartz
	// With the longest uptime, mach times of a 1/1 timebase stay far inside int64.
	maxDuration = 10_000 * time.Hour
	// Shorter steps could make a loop of them cost more than the time it shows.
	minStep = 10 * time.Millisecond
	// A phone that answers has been up for a while; begin times reach back from the first end.
	minUptime    = 10 * time.Second
	defaultDwell = 500 * time.Millisecond
)

// ErrSpec is wrapped by every error about a scene's text.
var ErrSpec = errors.New("scene")

// Timebase converts ticks of the mach clocks: ns = ticks * Numer / Denom.
type Timebase struct{ Numer, Denom int64 }

// App is an app that the phone can run.
type App struct {
	Bundle, Name string
	Running      bool // in the foreground when the scene begins
}

// Spec is a scene as written; see Doc for its YAML. The zero Spec is not usable: begin with Default, or read one.
type Spec struct {
	Seed     uint64 // 0: the caller chooses
	Timebase Timebase
	DriftPPB int64 // parts per billion, from drift_ppm
	Uptime   time.Duration
	Slept    time.Duration
	App      App
	Noise    int // events a second
	Loop     bool
	Steps    []Step
}

// Default is the scene of a phone that shows an app at 60 Hz for ever.
func Default() Spec {
	return Spec{
		Timebase: Timebase{125, 3},
		Uptime:   300 * time.Hour,
		App:      App{Bundle: "com.example.app", Name: "Example", Running: true},
		Noise:    20,
		Steps:    []Step{{For: maxDuration, Hz: 60}},
	}
}

// EventKind says what happens in a Step that is more than frames.
type EventKind string

// The kinds of event; see Doc.
const (
	EventLaunch     EventKind = "launch"
	EventRelaunch   EventKind = "relaunch"
	EventTerminate  EventKind = "terminate"
	EventBackground EventKind = "background"
	EventForeground EventKind = "foreground"
	EventDisplay2   EventKind = "display2"
	EventSleep      EventKind = "sleep"
	EventReboot     EventKind = "reboot"
)

// Step is one step of a scene. With Event "" it lasts For and shows frames or, with Idle, none. Sleep lasts For and reboot lasts For
// (written down:); other events take no time.
type Step struct {
	Event EventKind
	For   time.Duration

	Hz             int // of the built-in display, or of display 2
	FPS            int // 0: as Hz
	Idle           bool
	JankEvery      int // 0: no jank
	JankDelay      time.Duration
	Switch         []int // rates in turn; Hz is then the first
	Dwell          time.Duration
	RefreshUnknown bool

	On           bool   // display2
	Bundle, Name string // launch, relaunch, terminate; "" is the scene's app
}

func (s *Step) lasts() bool { return s.Event == "" || s.Event == EventSleep || s.Event == EventReboot }

// Parse reads a scene: its list of steps, its mapping, or a mapping with the one key "scene" that holds either.
func Parse(text []byte) (Spec, error) {
	var spec Spec
	root, err := rootNode(text)
	if err != nil {
		return Spec{}, err
	}
	if root.Kind == yaml.MappingNode && len(root.Content) == 2 && root.Content[0].Value == "scene" {
		root = root.Content[1]
	}
	if err := spec.UnmarshalYAML(root); err != nil {
		return Spec{}, err
	}
	return spec, nil
}

// ParseStep reads one step, such as "{event: reboot, down: 5s}".
func ParseStep(text []byte) (Step, error) {
	root, err := rootNode(text)
	if err != nil {
		return Step{}, err
	}
	return parseStep(root)
}

func rootNode(text []byte) (*yaml.Node, error) {
	if len(text) > MaxYAMLBytes {
		return nil, fmt.Errorf("%w: %d bytes, more than the %d a scene may have: use loop: true for a long one", ErrSpec, len(text), MaxYAMLBytes)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("%w: not YAML: %w", ErrSpec, err)
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return nil, fmt.Errorf("%w: empty: write at least one step, such as - {for: 10s, hz: 60}", ErrSpec)
	}
	return doc.Content[0], nil
}

// UnmarshalYAML reads a scene from inside a larger document: a list of steps or a mapping.
func (s *Spec) UnmarshalYAML(n *yaml.Node) error {
	*s = Default()
	n = resolve(n)
	if n.Kind == yaml.SequenceNode {
		return s.readSteps(n)
	}
	found := false
	err := eachKey(n, "a scene", map[string]func(*yaml.Node) error{
		"seed":      func(v *yaml.Node) error { return readUint(v, &s.Seed) },
		"timebase":  func(v *yaml.Node) error { return readTimebase(v, &s.Timebase) },
		"drift_ppm": func(v *yaml.Node) error { return readDrift(v, &s.DriftPPB) },
		"uptime":    func(v *yaml.Node) error { return readDuration(v, minUptime, &s.Uptime) },
		"slept":     func(v *yaml.Node) error { return readDuration(v, 0, &s.Slept) },
		"app":       s.readApp,
		"noise":     func(v *yaml.Node) error { return readInt(v, 0, maxNoise, &s.Noise) },
		"loop":      func(v *yaml.Node) error { return readBool(v, &s.Loop) },
		"steps":     func(v *yaml.Node) error { found = true; return s.readSteps(v) },
	})
	if err == nil && !found {
		err = wrong(n, "a scene without steps", "add steps: [{for: 10s, hz: 60}]")
	}
	return err
}

func (s *Spec) readApp(n *yaml.Node) error {
	return eachKey(n, "an app", map[string]func(*yaml.Node) error{
		"bundle":  func(v *yaml.Node) error { return readString(v, &s.App.Bundle) },
		"name":    func(v *yaml.Node) error { return readString(v, &s.App.Name) },
		"running": func(v *yaml.Node) error { return readBool(v, &s.App.Running) },
	})
}

func (s *Spec) readSteps(n *yaml.Node) error {
	n = resolve(n)
	if n.Kind != yaml.SequenceNode {
		return wrong(n, "steps are not a list", "write them as - {for: 10s, hz: 60}")
	}
	if len(n.Content) > maxSteps {
		return wrong(n, fmt.Sprintf("%d steps, more than %d", len(n.Content), maxSteps), "use loop: true")
	}
	s.Steps = make([]Step, 0, len(n.Content))
	shows := false
	for _, item := range n.Content {
		step, err := parseStep(item)
		if err != nil {
			return err
		}
		shows = shows || step.Event == ""
		s.Steps = append(s.Steps, step)
	}
	if !shows {
		return wrong(n, "no step says what the display shows", "add one such as - {for: 10s, hz: 60} or - {for: 10s, idle: true}")
	}
	return nil
}

func parseStep(n *yaml.Node) (Step, error) {
	var s Step
	n = resolve(n)
	seen := map[string]bool{}
	note := func(key string, read func(*yaml.Node) error) func(*yaml.Node) error {
		return func(v *yaml.Node) error { seen[key] = true; return read(v) }
	}
	keys := map[string]func(*yaml.Node) error{
		"event": func(v *yaml.Node) error { return readString(v, (*string)(&s.Event)) },
		"for":   func(v *yaml.Node) error { return readDuration(v, minStep, &s.For) },
		"down":  func(v *yaml.Node) error { return readDuration(v, minStep, &s.For) },
		"hz":    func(v *yaml.Node) error { return readInt(v, 1, maxHz, &s.Hz) },
		"fps":   func(v *yaml.Node) error { return readInt(v, 1, maxHz, &s.FPS) },
		"idle":  func(v *yaml.Node) error { return readBool(v, &s.Idle) },
		"jank": func(v *yaml.Node) error {
			if err := eachKey(v, "jank", map[string]func(*yaml.Node) error{
				"every": func(v *yaml.Node) error { return readInt(v, 1, math.MaxInt32, &s.JankEvery) },
				"delay": func(v *yaml.Node) error { return readDuration(v, time.Millisecond, &s.JankDelay) },
			}); err != nil {
				return err
			}
			if s.JankEvery == 0 || s.JankDelay == 0 || s.JankDelay > maxJank {
				return wrong(v, "jank needs every and a delay up to "+maxJank.String(), "write jank: {every: 12, delay: 80ms}")
			}
			return nil
		},
		"switch": func(v *yaml.Node) error { return readRates(v, &s.Switch) },
		"dwell":  func(v *yaml.Node) error { return readDuration(v, minStep, &s.Dwell) },
		"refresh": func(v *yaml.Node) error {
			s.RefreshUnknown = true
			if v = resolve(v); v.Value != "unknown" {
				return wrong(v, fmt.Sprintf("refresh: %q", v.Value), "the one choice is refresh: unknown; leave it out otherwise")
			}
			return nil
		},
		"on":     func(v *yaml.Node) error { return readBool(v, &s.On) },
		"bundle": func(v *yaml.Node) error { return readString(v, &s.Bundle) },
		"name":   func(v *yaml.Node) error { return readString(v, &s.Name) },
	}
	for k, read := range keys {
		keys[k] = note(k, read)
	}
	if err := eachKey(n, "a step", keys); err != nil {
		return Step{}, err
	}
	may, must, ok := stepKeys(s.Event)
	if !ok {
		return Step{}, wrong(n, fmt.Sprintf("unknown event %q", s.Event),
			"events are launch, relaunch, terminate, background, foreground, display2, sleep and reboot")
	}
	for k := range seen {
		if !slices.Contains(may, k) && !slices.Contains(must, k) && k != "event" {
			return Step{}, wrong(n, fmt.Sprintf("%q does not belong into this kind of step", k), "see the list of steps in labsim --help")
		}
	}
	for _, k := range must {
		if !seen[k] {
			return Step{}, wrong(n, fmt.Sprintf("%q is missing", k), "see the list of steps in labsim --help")
		}
	}
	return s, s.complete(n, seen)
}

// maxJank keeps a frame's lifetime inside the 32 bits of ticks that FrameUpdate has for it (178 s at 24 MHz, 4.2 s at 1/1).
const maxJank = 3 * time.Second

// stepKeys are the keys that a step with this event may and must have.
func stepKeys(e EventKind) (may, must []string, ok bool) {
	switch e {
	case "":
		return []string{"hz", "fps", "idle", "jank", "switch", "dwell", "refresh"}, []string{"for"}, true
	case EventLaunch, EventRelaunch, EventTerminate:
		return []string{"bundle", "name"}, nil, true
	case EventBackground, EventForeground:
		return nil, nil, true
	case EventDisplay2:
		return []string{"hz"}, []string{"on"}, true
	case EventSleep:
		return nil, []string{"for"}, true
	case EventReboot:
		return nil, []string{"down"}, true
	}
	return nil, nil, false
}

// complete fills in defaults and refuses what cannot be shown.
func (s *Step) complete(n *yaml.Node, seen map[string]bool) error {
	if s.Event == EventDisplay2 && s.Hz == 0 {
		s.Hz = 60
	}
	if s.Event != "" {
		return nil
	}
	if s.Idle {
		if len(seen) != 2 {
			return wrong(n, "an idle step shows no frames", "leave out everything but for: and idle: true")
		}
		return nil
	}
	if len(s.Switch) > 0 {
		if s.FPS != 0 {
			return wrong(n, "switch together with fps", "write one step for each rate")
		}
		s.Hz = s.Switch[0]
		if s.Dwell == 0 {
			s.Dwell = defaultDwell
		}
	}
	if s.Hz == 0 {
		return wrong(n, "a step without hz, switch or idle: true", "write hz: 60")
	}
	if s.FPS != 0 && s.Hz%s.FPS != 0 {
		return wrong(n, fmt.Sprintf("fps %d does not divide hz %d", s.FPS, s.Hz), "a frame stays for whole refreshes: choose a divisor")
	}
	return nil
}

func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

func wrong(n *yaml.Node, found, remedy string) error {
	return fmt.Errorf("%w: line %d: %s: %s", ErrSpec, n.Line, found, remedy)
}

// eachKey walks a mapping, refusing keys that are unknown or come twice.
func eachKey(n *yaml.Node, what string, read map[string]func(*yaml.Node) error) error {
	n = resolve(n)
	if n.Kind != yaml.MappingNode {
		return wrong(n, what+" is not a mapping", "write it as {key: value, ...}")
	}
	seen := make(map[string]bool, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		f, ok := read[k.Value]
		if !ok || k.Kind != yaml.ScalarNode {
			return wrong(k, fmt.Sprintf("unknown key %q in %s", k.Value, what), "see the list of keys in labsim --help")
		}
		if seen[k.Value] {
			return wrong(k, fmt.Sprintf("key %q twice in %s", k.Value, what), "keep one of them")
		}
		seen[k.Value] = true
		if err := f(v); err != nil {
			return err
		}
	}
	return nil
}

func readString(n *yaml.Node, dst *string) error {
	n = resolve(n)
	if n.Kind != yaml.ScalarNode || n.Value == "" || len(n.Value) > 200 || strings.ContainsRune(n.Value, 0) {
		return wrong(n, "a text of 1 to 200 bytes is missing", "write a plain word")
	}
	*dst = n.Value
	return nil
}

func readBool(n *yaml.Node, dst *bool) error {
	n = resolve(n)
	if n.Kind != yaml.ScalarNode || n.Value != "true" && n.Value != "false" {
		return wrong(n, fmt.Sprintf("%q is neither true nor false", n.Value), "write true or false")
	}
	*dst = n.Value == "true"
	return nil
}

func readInt(n *yaml.Node, min, max int, dst *int) error {
	n = resolve(n)
	v, err := strconv.Atoi(n.Value)
	if err != nil || n.Kind != yaml.ScalarNode || v < min || v > max {
		return wrong(n, fmt.Sprintf("%q is no whole number from %d to %d", n.Value, min, max), "write one")
	}
	*dst = v
	return nil
}

func readUint(n *yaml.Node, dst *uint64) error {
	n = resolve(n)
	v, err := strconv.ParseUint(n.Value, 10, 64)
	if err != nil || n.Kind != yaml.ScalarNode {
		return wrong(n, fmt.Sprintf("%q is no whole number of 0 or more", n.Value), "write one")
	}
	*dst = v
	return nil
}

func readDuration(n *yaml.Node, min time.Duration, dst *time.Duration) error {
	n = resolve(n)
	v, err := time.ParseDuration(n.Value)
	if err != nil || n.Kind != yaml.ScalarNode || v < min || v > maxDuration {
		return wrong(n, fmt.Sprintf("%q is no duration from %s to %s", n.Value, min, maxDuration), "write one such as 80ms, 10s or 2h")
	}
	*dst = v
	return nil
}

func readDrift(n *yaml.Node, dst *int64) error {
	n = resolve(n)
	v, err := strconv.ParseFloat(n.Value, 64)
	if err != nil || n.Kind != yaml.ScalarNode || !(math.Abs(v) <= maxDriftPPM) {
		return wrong(n, fmt.Sprintf("%q is no number from -%d to %d", n.Value, maxDriftPPM, maxDriftPPM), "write parts per million, such as 20")
	}
	*dst = int64(math.Round(v * 1000))
	return nil
}

// readTimebase takes clocks from 1 MHz to 1 GHz: slower ones could not tell refreshes apart, and no faster one is known.
func readTimebase(n *yaml.Node, dst *Timebase) error {
	n = resolve(n)
	numer, denom, _ := strings.Cut(n.Value, "/")
	a, err1 := strconv.ParseInt(numer, 10, 32)
	b, err2 := strconv.ParseInt(denom, 10, 32)
	if err1 != nil || err2 != nil || n.Kind != yaml.ScalarNode || a < 1 || b < 1 || a < b || a > 1000*b {
		return wrong(n, fmt.Sprintf("%q is no timebase", n.Value), "write ns per tick as a fraction from 1/1 to 1000/1, such as 125/3")
	}
	*dst = Timebase{a, b}
	return nil
}

func readRates(n *yaml.Node, dst *[]int) error {
	n = resolve(n)
	if n.Kind != yaml.SequenceNode || len(n.Content) < 2 || len(n.Content) > 100 {
		return wrong(n, "switch is no list of 2 to 100 rates", "write it as [120, 60, 80, 40]")
	}
	for _, item := range n.Content {
		var hz int
		if err := readInt(item, 1, maxHz, &hz); err != nil {
			return err
		}
		*dst = append(*dst, hz)
	}
	return nil
}
