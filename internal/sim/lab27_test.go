//go:build cgo

package sim

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/internal/sim/scene"
	"github.com/framebridge/framebridge/lab27"
	"github.com/framebridge/framebridge/lab27/app"
)

const lab27Nonce = "6b1f3c4e-2a55-4d0c-9a7e-0f1e2d3c4b5a"

// carrying is a phone of a fast lab that carries the app, and what its display shows.
type carrying struct {
	*testing.T
	lab     *Lab
	d       *Device
	root    string // Documents/lab27
	request lab27.Request
	frames  []lab27.Frame
}

func newCarrying(t *testing.T, permille int64, steps string) *carrying {
	t.Helper()
	c := DefaultDevice("00008101-00000000000000AA", "18.5")
	c.Lab27 = true
	if steps != "" {
		spec, err := scene.Parse([]byte(steps))
		if err != nil {
			t.Fatal(err)
		}
		c.Scene = spec
	}
	lab, err := newLab(Config{Speed: 10, Devices: []DeviceConfig{c}}, keys, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lab.Close() })
	documents, err := lab.Documents(c.UDID, Lab27Bundle)
	if err != nil {
		t.Fatal(err)
	}
	p := &carrying{T: t, lab: lab, d: lab.device(c.UDID), root: filepath.Join(documents, "lab27")}
	stop := p.d.phone.Observe(0, func(ev *scene.Event) {
		if f := ev.Frame; f != nil {
			p.frames = append(p.frames, lab27.Frame{RawSequence: int64(len(p.frames) + 1), EndMach: f.End, PreviousMach: f.Previous, DisplayID: f.DisplayID,
				SurfaceID: f.SurfaceID, HasEnd: true, Valid: f.Previous > 0})
		}
	})
	t.Cleanup(stop)
	if p.request, err = lab27.NewRequest("run-1", lab27.PurposeRehearsal, permille, app.Version(), app.SourceDigest(), lab27Nonce, lab.clock.wall()); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *carrying) do(kind string, f Fault) {
	p.Helper()
	f.Kind = kind
	if _, err := p.lab.Apply(context.Background(), p.d.UDID, f); err != nil {
		p.Fatal(err)
	}
}

func (p *carrying) send() {
	p.Helper()
	if err := os.WriteFile(filepath.Join(p.root, "pending", p.request.FileName()), p.request.AppendJSON(nil), 0o600); err != nil {
		p.Fatal(err)
	}
}

// wait waits, up to a minute of the lab's, until a file is there.
func (p *carrying) wait(name string) {
	p.Helper()
	for end := p.lab.clock.elapsed() + time.Minute; ; time.Sleep(2 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(p.root, name)); err == nil {
			return
		}
		if p.lab.clock.elapsed() > end {
			p.Fatalf("%s does not come", name)
		}
	}
}

// sleep lets so much of the lab's time pass.
func (p *carrying) sleep(d time.Duration) { time.Sleep(p.lab.clock.host(d)) }

// start launches the app and sends it the request.
func (p *carrying) start() {
	p.Helper()
	p.do("launch", Fault{Bundle: Lab27Bundle})
	p.send()
	p.wait("consumed/" + p.request.FileName())
}

func (p *carrying) bundle() fs.FS { return os.DirFS(filepath.Join(p.root, "runs", "run-1")) }

// match waits until the run is sealed and its last frames are told, and judges it.
func (p *carrying) match() *lab27.Match {
	p.Helper()
	p.wait("runs/run-1/" + lab27.SummaryFile)
	p.sleep(time.Second)
	var frames []lab27.Frame
	p.d.phone.With(p.d.now(), func(scene.Beat) { frames = append(frames, p.frames...) })
	m, err := lab27.Qualify(lab27.MatchInput{Report: lab27.Validate(p.bundle(), &p.request), Frames: frames, PrimaryDisplayID: 1, Timebase: adapter.Timebase{Numer: 125, Denom: 3}})
	if err != nil {
		p.Fatal(err)
	}
	return m
}

// reasons are a verdict's, in one line.
func reasons(v *lab27.Verdict) string {
	var words []string
	for _, r := range v.Reasons {
		words = append(words, r.Reason)
	}
	return strings.Join(words, " ")
}

func TestADescriptionPutsTheReferenceAppOnAPhone(t *testing.T) {
	c, err := Parse([]byte("devices:\n  - udid: 00008110-000A1B2C3D4E5F60\n    os: \"16.7\"\n    lab27: true\n    faults: [{at: 1s, kind: lab27-drop, count: 2}]\n"))
	if err != nil || !c.Devices[0].Lab27 || c.Devices[0].Faults[0].Kind != lab27Drop {
		t.Fatalf("%+v, %v", c, err)
	}
	l := startConfig(t, c)
	if _, err := l.Documents(udid16, Lab27Bundle); err != nil {
		t.Error(err)
	}
	other := startLab(t, DefaultDevice(udid16, "16.7"))
	if _, err := other.Apply(t.Context(), udid16, Fault{Kind: lab27Drop}); err == nil || !strings.Contains(err.Error(), "lab27: true") {
		t.Errorf("a phone without it: %v", err)
	}
}

func TestARunOfTheReferenceAppQualifiesOnThePhysicalTimeLine(t *testing.T) {
	p := newCarrying(t, 100, "{slept: 7403s, steps: [{for: 1h, hz: 60}]}")
	p.start()
	m := p.match()
	v := &m.Verdict
	if err := v.Err(); err != nil {
		t.Fatal(err)
	}
	// 2 s at 30 Hz and twice 4 s at 60 Hz are 60 + 240 + 240 requests. In the tail twelve of them take 11 intervals and a delay of 80 ms,
	// which the display link stretches to 5 intervals: 16 of 1/60 s, of which 4 s have 15. So about 720 are made, and the two edges of
	// 50 ms cut off 2 or 3 of them at 30 Hz and 4 at 60 Hz.
	if v.Counts.Paired < 710 || v.Counts.Paired > 716 || v.Counts.EdgePairs < 6 || v.Counts.EdgePairs > 7 || v.Counts.FramesInside != v.Counts.Paired || v.Counts.PresentedInside != v.Counts.Paired || !v.Tail.Happened {
		t.Errorf("%+v, %+v", v.Counts, v.Tail)
	}
	// The label that goes when the run begins and comes back when it is over are frames of the app without a drawable, outside the window.
	if v.Counts.EdgeFrames < 2 {
		t.Errorf("%d frames at the edges without a presentation", v.Counts.EdgeFrames)
	}
	if hour := int64(3600 * 1_000_000_000); v.Clock.OffsetNs < 7403*1_000_000_000-100 || v.Clock.OffsetNs > 7403*1_000_000_000+100 || v.Window.FromNs < 300*hour {
		t.Errorf("offset %d ns, window %+v", v.Clock.OffsetNs, v.Window)
	}
	if *v.DifferenceMinNs < -100 || *v.DifferenceMaxNs > 100 {
		t.Errorf("pairs are %d to %d ns apart", *v.DifferenceMinNs, *v.DifferenceMaxNs)
	}
}

func TestEachDisturbanceOfTheReferenceAppIsFoundAndNothingElse(t *testing.T) {
	during := func(kind string, f Fault) func(*carrying) {
		return func(p *carrying) {
			p.start()
			p.sleep(time.Second)
			p.do(kind, f)
		}
	}
	before := func(kind string, f Fault) func(*carrying) {
		return func(p *carrying) {
			p.do(kind, f)
			p.start()
		}
	}
	for _, c := range []struct {
		name    string
		how     func(*carrying)
		reasons string
		count   func(*lab27.Counts) int
		want    int
	}{
		{"system frames", during(lab27System, Fault{Count: 3}), "extra-system-frame cut-differs", func(c *lab27.Counts) int { return c.ExtraSystemFrame }, 3},
		{"a dropped drawable", during(lab27Drop, Fault{}), "not-presented", func(c *lab27.Counts) int { return c.NotPresented }, 1},
		{"a lost handler", during(lab27Lose, Fault{}), "bundle-partial extra-system-frame not-presented cut-differs", func(c *lab27.Counts) int { return c.ExtraSystemFrame }, 1},
		{"another surface", during(lab27Surface, Fault{Count: 2}), "surface-mismatch", func(c *lab27.Counts) int { return c.SurfaceMismatch }, 2},
		{"late drawables", during(lab27Late, Fault{Count: 5}), "", func(c *lab27.Counts) int { return c.ExtraSystemFrame + c.MissingFrame }, 0},
		{"times that are a little off", before(lab27Shift, Fault{Delay: Duration(100 * time.Microsecond)}), "edge-cut",
			func(c *lab27.Counts) int { return c.EdgeCutFrames + c.EdgeCutPresented }, 1},
		{"a wide bracket", before(lab27Bracket, Fault{Delay: Duration(110 * time.Microsecond)}), "bracket-too-wide", func(c *lab27.Counts) int { return c.MissingFrame }, 0},
		{"another display", during("scene", Fault{Step: "{event: display2, on: true}"}), "", func(c *lab27.Counts) int { return min(c.OtherDisplay, 20) }, 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newCarrying(t, 50, "")
			c.how(p)
			v := p.match().Verdict
			if got := reasons(&v); got != c.reasons || v.Qualified != (c.reasons == "") || c.count(v.Counts) != c.want {
				t.Errorf("reasons %q, want %q; counts %+v", got, c.reasons, v.Counts)
			}
		})
	}
}

func TestTimesThatAreFarOffAndSleepLeaveNothingPaired(t *testing.T) {
	t.Run("0.3 ms", func(t *testing.T) {
		t.Parallel()
		p := newCarrying(t, 50, "")
		p.do(lab27Shift, Fault{Delay: Duration(300 * time.Microsecond)})
		p.start()
		v := p.match().Verdict
		if got := reasons(&v); got != "extra-system-frame missing-frame" || v.Counts.Paired != 0 || v.Counts.MissingFrame != v.Counts.PresentedInside || v.Counts.ExtraSystemFrame != v.Counts.FramesInside {
			t.Errorf("%q, %+v", got, v.Counts)
		}
	})
	t.Run("sleep between the brackets", func(t *testing.T) {
		t.Parallel()
		p := newCarrying(t, 50, "")
		p.start()
		p.sleep(2 * time.Second)
		p.do("scene", Fault{Step: "{event: sleep, for: 3s}"})
		v := p.match().Verdict
		if got := reasons(&v); !strings.Contains(got, "brackets-disagree") || v.Clock.DisagreementNs() < 2_990_000_000 || v.Counts.FramesInside == 0 {
			t.Errorf("%q, %+v", got, v.Clock)
		}
	})
}

func TestRunsThatEndEarlyAreSealedPartialWithTheirReason(t *testing.T) {
	for _, c := range []struct{ kind, reason string }{
		{lab27Cancel, "cancelled"}, {lab27Hot, "thermal"}, {"background", "background"},
	} {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			p := newCarrying(t, 50, "")
			p.start()
			p.sleep(2 * time.Second)
			p.do(c.kind, Fault{})
			p.wait("runs/run-1/" + lab27.SummaryFile)
			r := lab27.Validate(p.bundle(), &p.request)
			if r.State != lab27.Partial || r.ProblemCount != 0 || r.Summary.Reason != c.reason || r.Summary.Submitted < 40 {
				t.Errorf("%s: %v", r.State, r.Err())
			}
		})
	}
	t.Run("a full disk", func(t *testing.T) {
		t.Parallel()
		p := newCarrying(t, 20, "")
		p.start()
		p.do(lab27Full, Fault{Count: 5000})
		p.wait("runs/run-1/" + lab27.RequestsFile) // 140 rows of 40 bytes: more than there is room for
		p.sleep(time.Second)
		r := lab27.Validate(p.bundle(), &p.request)
		if r.State != lab27.Partial || r.Summary != nil || r.Problems[0].Kind != lab27.Torn || r.Problems[0].Byte == 0 {
			t.Errorf("%s: %v", r.State, r.Err())
		}
	})
	t.Run("the process ends", func(t *testing.T) {
		t.Parallel()
		p := newCarrying(t, 20, "")
		p.start()
		p.do("terminate", Fault{Bundle: Lab27Bundle})
		p.sleep(4 * time.Second)
		if r := lab27.Validate(p.bundle(), &p.request); r.State != lab27.Partial || r.Plan == nil || r.Summary != nil {
			t.Errorf("%s: %v", r.State, r.Err())
		}
	})
}

func TestLibimobiledevicePostsTheNotificationThatCancelsARun(t *testing.T) {
	p := newCarrying(t, 999, "") // 14 s of the host's: longer than a tool takes on a busy machine
	env, err := p.lab.Listen("unix:" + shortPath(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("USBMUXD_SOCKET_ADDRESS", env)
	p.start()
	if out := mustTool(t, "idevicenotificationproxy", "-u", p.d.UDID, "post", "com.example.other", lab27.CancelNotification); !strings.Contains(out, lab27.CancelNotification) {
		t.Errorf("it says %q", out)
	}
	p.wait("runs/run-1/" + lab27.SummaryFile)
	if r := lab27.Validate(p.bundle(), &p.request); r.State != lab27.Partial || r.Summary.Reason != "cancelled" {
		t.Errorf("%s: %v", r.State, r.Err())
	}
}

func TestRequestsThatTheReferenceAppRefuses(t *testing.T) {
	for _, c := range []struct {
		reason string
		before func(*carrying)
	}{
		{"two-pending", func(p *carrying) { p.do(lab27Second, Fault{}) }},
		{"expired", func(p *carrying) { p.do(lab27Ahead, Fault{Delay: Duration(11 * time.Minute)}) }},
		{"thermal", func(p *carrying) { p.do(lab27Hot, Fault{}) }},
		{"nonce-used", func(p *carrying) {
			p.start()
			p.do(lab27Cancel, Fault{})
			p.do("relaunch", Fault{Bundle: Lab27Bundle})
			p.do(lab27Replay, Fault{})
		}},
	} {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			p := newCarrying(t, 50, "")
			c.before(p)
			if c.reason != "nonce-used" {
				p.do("launch", Fault{Bundle: Lab27Bundle})
				p.send()
			}
			var note lab27.Refusal
			for end := p.lab.clock.elapsed() + time.Minute; note.Reason == "" && p.lab.clock.elapsed() < end; time.Sleep(2 * time.Millisecond) {
				entries, _ := os.ReadDir(filepath.Join(p.root, "refused"))
				var names []string
				for _, e := range entries {
					names = append(names, e.Name())
				}
				if name := p.request.RefusalNote(names); name != "" {
					text, _ := os.ReadFile(filepath.Join(p.root, "refused", name))
					note, _ = lab27.ParseRefusal(text) // half written, it is read again
				}
			}
			if note.Reason != c.reason {
				t.Errorf("refused for %q", note.Reason)
			}
		})
	}
}
