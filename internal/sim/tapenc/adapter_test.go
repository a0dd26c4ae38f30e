package tapenc_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"testing"
	"time"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/dtx/tap"
	"github.com/framebridge/framebridge/internal/sim/scene"
	"github.com/framebridge/framebridge/internal/sim/tapenc"
)

// told is a line of the truth. The optional members are nil where the release does not tell them.
type told struct {
	Name, Category                   string
	SwapID, FrameSeed                int64
	DisplayID, SurfaceID             int64
	BeginMach, EndMach, PreviousMach int64
	RefreshIntervalMach              int64
	BufferCount, SkipRequest         int64
	DisplayTargetMach, InputMach     *int64
	RenderBeginMach, RenderEndMach   *int64
	NativeID                         *int64
	Contributors                     []person
}

type person struct {
	PID  int64
	Name string
}

type frameKey struct{ seed, display int64 }

// collector puts records and the contributors told for them together.
type collector struct {
	t       *testing.T
	frames  []told
	people  map[frameKey][]person
	quality map[adapter.Quality]int
	gaps    []tap.Gap
}

func (c *collector) Record(r *adapter.Record) {
	c.quality[r.Quality]++
	if r.Fields&adapter.HasNatives != adapter.HasNatives {
		c.t.Errorf("record of seed %d lacks natives: %v", r.FrameSeed, r.PresentFields)
	}
	opt := func(has adapter.Fields, v int64) *int64 {
		if r.Fields&has == 0 {
			return nil
		}
		return &v
	}
	c.frames = append(c.frames, told{Name: r.Name, Category: r.Category, SwapID: r.SwapID, FrameSeed: r.FrameSeed, DisplayID: r.DisplayID,
		SurfaceID: r.SurfaceID, BeginMach: r.BeginMach, EndMach: r.EndMach, PreviousMach: r.PreviousMach,
		RefreshIntervalMach: r.RefreshIntervalMach, BufferCount: r.BufferCount, SkipRequest: r.SkipRequest,
		DisplayTargetMach: opt(adapter.HasDisplayTargetMach, r.DisplayTargetMach), InputMach: opt(adapter.HasInputMach, r.InputMach),
		RenderBeginMach: opt(adapter.HasRenderBeginMach, r.RenderBeginMach), RenderEndMach: opt(adapter.HasRenderEndMach, r.RenderEndMach),
		NativeID: opt(adapter.HasNativeID, r.NativeID)})
}

func (c *collector) Contributors(x *adapter.Contributors) {
	k := frameKey{x.FrameSeed, x.DisplayID}
	for _, p := range x.Processes {
		c.people[k] = append(c.people[k], person(p))
	}
}

func (c *collector) Gap(g tap.Gap) { c.gaps = append(c.gaps, g) }

// throughAdapter reads a wire file as the product does. After a restart the frames belong to another epoch.
func throughAdapter(t *testing.T, wire io.Reader, c *collector) {
	t.Helper()
	a := adapter.New(adapter.SourceGoIOS, "", "")
	bind := func(epoch int64) {
		if err := a.Bind(adapter.Binding{SourceEpoch: epoch, Timebase: adapter.Timebase{Numer: 125, Denom: 3}}); err != nil {
			t.Fatal(err)
		}
	}
	epoch := int64(1)
	bind(epoch)
	for r := tap.NewWireReader(wire); ; {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(rec.Payload) == 0 {
			a.EndConnection(c)
			epoch++
			bind(epoch)
			continue
		}
		a.Message(rec.HostNs, rec.Payload, c)
	}
	a.EndConnection(c)
	for i := range c.frames {
		f := &c.frames[i]
		f.Contributors = c.people[frameKey{f.FrameSeed, f.DisplayID}]
	}
}

const everything = `
noise: 200
steps:
  - {for: 4s, hz: 120}
  - {event: background}
  - {for: 2s, hz: 60, fps: 30}
  - {event: foreground}
  - {for: 4s, hz: 120, jank: {every: 12, delay: 80ms}}
  - {event: relaunch}
  - {for: 2s, idle: true}
  - {for: 3s, switch: [120, 60, 80, 40], dwell: 400ms}
  - {event: sleep, for: 2s}
  - {for: 2s, hz: 60, refresh: unknown}
  - {event: display2, on: true, hz: 60}
  - {for: 2s, hz: 120}
  - {event: display2, on: false}
  - {event: reboot, down: 1s}
  - {for: 3s, hz: 120}
`

func TestAdapterReadsFromEveryReleaseExactlyWhatTheSceneSays(t *testing.T) {
	spec, err := scene.Parse([]byte(everything))
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"15.8", "16.7", "17.5", "18.5", "26.0"} {
		t.Run(version, func(t *testing.T) {
			os, err := scene.ParseOS(version)
			if err != nil {
				t.Fatal(err)
			}
			var wire, truth bytes.Buffer
			n, err := tapenc.WriteWire(&wire, &truth, tapenc.WireConfig{Spec: spec, OS: os, Seed: 9, Duration: 25 * time.Second,
				Tap: tapenc.Config{Tear: true, Filter: tapenc.Filter{Logs: true}}})
			if err != nil {
				t.Fatal(err)
			}
			c := &collector{t: t, people: map[frameKey][]person{}, quality: map[adapter.Quality]int{}}
			throughAdapter(t, &wire, c)
			var want []told
			for lines := bufio.NewScanner(&truth); lines.Scan(); {
				var f told
				d := json.NewDecoder(bytes.NewReader(lines.Bytes()))
				d.DisallowUnknownFields()
				if err := d.Decode(&f); err != nil {
					t.Fatal(err)
				}
				want = append(want, f)
			}
			if int64(len(want)) != n || len(c.frames) != len(want) {
				t.Fatalf("%d frames written, %d lines of truth, %d records", n, len(want), len(c.frames))
			}
			for i := range want {
				if !reflect.DeepEqual(c.frames[i], want[i]) {
					got, _ := json.Marshal(c.frames[i])
					told, _ := json.Marshal(want[i])
					t.Fatalf("frame %d:\n got %s\ntold %s", i, got, told)
				}
			}
			for _, g := range c.gaps {
				if g.Reason != tap.ReasonTorn { // the tap ends inside a message, and so does its restart
					t.Errorf("gap in a whole stream: %+v", g)
				}
			}
			t.Logf("%d frames, by quality %v", len(want), c.quality)
			// Where the display is told: the first frame of each display and boot has no predecessor; the idle screen and the sleep
			// are too long; all others are valid.
			if version != "15.8" {
				wantQuality := map[adapter.Quality]int{adapter.QualityNoPredecessor: 3, adapter.QualityDiscontinuity: 2,
					adapter.QualityValid: len(want) - 5}
				if !reflect.DeepEqual(c.quality, wantQuality) {
					t.Errorf("qualities %v, want %v", c.quality, wantQuality)
				}
			}
		})
	}
}

func ExampleWriteWire() {
	spec, _ := scene.Parse([]byte("- {for: 10s, hz: 60}"))
	var wire, truth bytes.Buffer
	frames, err := tapenc.WriteWire(&wire, &truth, tapenc.WireConfig{Spec: spec, OS: scene.OS{Major: 26}, Seed: 1, Duration: 2 * time.Second})
	fmt.Println(frames, err)
	// Output: 119 <nil>
}
