package scene

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"
)

func TestSceneIsReadFromAListAMappingOrInsideALargerDocument(t *testing.T) {
	want := Default()
	want.Steps = []Step{
		{For: 10 * time.Second, Hz: 60},
		{For: 5 * time.Second, Hz: 120, JankEvery: 12, JankDelay: 80 * time.Millisecond},
		{For: 4 * time.Second, Hz: 120, Switch: []int{120, 60, 80, 40}, Dwell: 500 * time.Millisecond},
		{Event: EventReboot, For: 5 * time.Second},
		{Event: EventDisplay2, Hz: 60, On: true},
	}
	steps := `
- {for: 10s, hz: 60}
- {for: 5s, hz: 120, jank: {every: 12, delay: 80ms}}
- {for: 4s, hz: 120, switch: [120, 60, 80, 40]}
- {event: reboot, down: 5s}
- {event: display2, on: true}
`
	got, err := Parse([]byte(steps))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("list: %v\n got %+v\nwant %+v", err, got, want)
	}
	want.Seed, want.Timebase, want.DriftPPB, want.Noise, want.Loop = 7, Timebase{1, 1}, -1500, 0, true
	want.App = App{Bundle: "com.example.b", Name: "Example", Running: false}
	want.Uptime, want.Slept = time.Hour, 7403*time.Second
	mapping := "scene: {seed: 7, timebase: 1/1, drift_ppm: -1.5, noise: 0, loop: true, uptime: 1h, slept: 7403s, " +
		"app: {bundle: com.example.b, running: false}, steps: " + "[{for: 10s, hz: 60}, {for: 5s, hz: 120, jank: {every: 12, delay: 80ms}}, " +
		"{for: 4s, switch: [120, 60, 80, 40]}, {event: reboot, down: 5s}, {event: display2, on: true, hz: 60}]}"
	if got, err = Parse([]byte(mapping)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("mapping: %v\n got %+v\nwant %+v", err, got, want)
	}
	var outer struct {
		Name  string
		Scene Spec
	}
	if err := yaml.Unmarshal([]byte("name: a\n"+mapping), &outer); err != nil || !reflect.DeepEqual(outer.Scene, want) {
		t.Errorf("inside a document: %v", err)
	}
}

func TestBadSceneSaysWhatIsWrongWhereAndWhatToDo(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      "empty: write at least one step",
		"{":                                     "not YAML",
		"hello":                                 "line 1: a scene is not a mapping",
		"seed: 7":                               "line 1: a scene without steps: add steps:",
		"steps: 5":                              "steps are not a list",
		"[]":                                    "no step says what the display shows",
		"- {event: launch}":                     "no step says what the display shows",
		"- {for: 1s, hz: 60}\n- {fur: 1s}":      `line 2: unknown key "fur" in a step: see the list of keys in labsim --help`,
		"- {for: 1s, for: 2s, hz: 60}":          `key "for" twice`,
		"- {hz: 60}":                            `"for" is missing`,
		"- {for: 1s}":                           "a step without hz, switch or idle: true: write hz: 60",
		"- {for: 1s, hz: 0}":                    `"0" is no whole number from 1 to 120`,
		"- {for: 1s, hz: 121}":                  `"121" is no whole number from 1 to 120`,
		"- {for: 1, hz: 60}":                    `"1" is no duration from 10ms to 10000h0m0s: write one such as 80ms, 10s or 2h`,
		"- {for: 1ms, hz: 60}":                  `"1ms" is no duration from 10ms`,
		"- {for: 1s, hz: 60, fps: 25}":          "fps 25 does not divide hz 60",
		"- {for: 1s, hz: 60, idle: true}":       "an idle step shows no frames",
		"- {for: 1s, hz: 60, on: true}":         `"on" does not belong into this kind of step`,
		"- {for: 1s, hz: 60, jank: {every: 3}}": "jank needs every and a delay",
		"- {for: 1s, hz: 60, jank: {every: 3, delay: 10s}}": "jank needs every and a delay up to 3s",
		"- {for: 1s, switch: [60]}":                         "switch is no list of 2 to 100 rates",
		"- {for: 1s, switch: [60, 0]}":                      `"0" is no whole number`,
		"- {for: 1s, switch: [60, 30], fps: 30}":            "switch together with fps",
		"- {for: 1s, hz: 60, refresh: known}":               `refresh: "known": the one choice is refresh: unknown`,
		"- {event: fly}":                                    `unknown event "fly": events are launch, relaunch`,
		"- {event: reboot}":                                 `"down" is missing`,
		"- {event: display2}":                               `"on" is missing`,
		"{timebase: 3, steps: []}":                          `"3" is no timebase: write ns per tick as a fraction`,
		"{timebase: 1/3, steps: []}":                        `"1/3" is no timebase`,
		"{drift_ppm: 1001, steps: []}":                      `"1001" is no number from -1000 to 1000`,
		"{drift_ppm: NaN, steps: []}":                       `"NaN" is no number`,
		"{uptime: 1s, steps: []}":                           `"1s" is no duration from 10s`,
		"{noise: -1, steps: []}":                            `"-1" is no whole number from 0 to 10000`,
		"{app: x, steps: []}":                               "an app is not a mapping",
		"{loop: yes please, steps: []}":                     "is neither true nor false",
	} {
		_, err := Parse([]byte(text))
		if !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q:\n got %v\nwant ...%s...", text, err, want)
		}
	}
}

func TestSceneLargerThanItsBoundIsRefusedUnread(t *testing.T) {
	if _, err := Parse(make([]byte, MaxYAMLBytes+1)); !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), "1048577 bytes") {
		t.Errorf("%v", err)
	}
}

// A scene that can be read can be lived through.
func FuzzParse(f *testing.F) {
	f.Add("- {for: 10s, hz: 60}")
	f.Add("{loop: true, noise: 10000, timebase: 1000/1, drift_ppm: 20, steps: [{for: 10ms, hz: 120, jank: {every: 1, delay: 3s}}, {event: relaunch}]}")
	f.Add("[{event: reboot, down: 10ms}, {event: sleep, for: 1s}, {event: display2, on: true, hz: 1}, {for: 1s, switch: [1, 120], dwell: 10ms}]")
	f.Add("steps: &a [{for: 1s, idle: true}, *a]")
	f.Add("scene: {app: {bundle: a, name: b, running: false}, slept: 10000h, uptime: 10000h, steps: [{for: 1s, hz: 7, fps: 7, refresh: unknown}]}")
	f.Fuzz(func(t *testing.T, text string) {
		spec, err := Parse([]byte(text))
		if err != nil {
			if !errors.Is(err, ErrSpec) {
				t.Fatalf("not a scene error: %v", err)
			}
			return
		}
		d := New(spec, OS{26, 0}, 1)
		last := map[int64]Frame{}
		boot := 0
		d.Observe(0, func(ev *Event) {
			if ev.Boot != boot {
				boot = ev.Boot
				clear(last)
			}
			if f := ev.Frame; f != nil {
				if f.Begin <= 0 || f.End <= f.Begin || f.End <= last[f.DisplayID].End || ev.Mach < f.End {
					t.Fatalf("frame %+v at %d after %+v", *f, ev.Mach, last[f.DisplayID])
				}
				last[f.DisplayID] = *f
			}
		})
		d.Advance(2 * time.Second)
	})
}
