package scene

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// diary is a Player that shows a picture at every fourth refresh, and writes down what happens to it.
type diary struct {
	lines []string
	glass []int64 // mach continuous
	by    Author
}

func (p *diary) Launched(now Beat, pid int64) {
	p.lines = append(p.lines, fmt.Sprint("launched ", now.At, " ", pid > 0))
}

func (p *diary) Foreground(now Beat, in bool) {
	p.lines = append(p.lines, fmt.Sprint("foreground ", now.At, " ", in))
}
func (p *diary) Ended() { p.lines = append(p.lines, "ended") }

func (p *diary) Refresh(now Beat) Picture {
	if now.N%4 != 0 {
		return Picture{}
	}
	p.glass = append(p.glass, now.Continuous)
	return Picture{By: p.by, Surface: 700}
}

const player = "com.example.player"

func TestAnAppThatDrawsByItselfHasTheDisplayWhileItIsInFront(t *testing.T) {
	d := New(load(t, "{slept: 5s, steps: [{for: 1h, hz: 60}]}"), ios18, 1)
	p := &diary{by: TheApp}
	d.Play(p, player, 120)
	var frames []Frame
	stop := d.Observe(0, func(ev *Event) {
		if ev.Frame != nil {
			f := *ev.Frame
			f.Contributors = slices.Clone(f.Contributors)
			frames = append(frames, f)
		}
	})
	defer stop()
	for _, s := range []struct {
		at   time.Duration
		step Step
	}{
		{2 * time.Second, Step{Event: EventLaunch, Bundle: player, Name: "Player"}},
		{4 * time.Second, Step{Event: EventSleep, For: 3 * time.Second}},
		{8 * time.Second, Step{Event: EventBackground}},
		{9 * time.Second, Step{Event: EventForeground, Bundle: player}},
		{10*time.Second + 10*time.Millisecond, Step{Event: EventTerminate, Bundle: player}},
	} {
		if s.step.Event == EventForeground {
			s.step = Step{Event: EventLaunch, Bundle: player}
		}
		if err := d.Do(s.at, s.step); err != nil {
			t.Fatal(err)
		}
	}
	d.Advance(12 * time.Second)
	want := []string{"launched 2s true", "foreground 2s true", "foreground 8s false", "foreground 9s true", "ended"}
	if !slices.Equal(p.lines, want) {
		t.Errorf("%q, want %q", p.lines, want)
	}
	// By refreshes of 199,999 ticks from the scene's begin: refresh 240 is the first after 2 s, 480 after 4 s, 960 after 8 s. In front
	// it is from 2 to 4, 7 to 8 and 9 to 10 s; asleep from 4 to 7 s, when nothing is refreshed.
	var own []Frame
	for i, f := range frames {
		if f.SurfaceID == 700 {
			own = append(own, f)
		}
		if i > 0 && f.Previous != frames[i-1].End {
			t.Errorf("frame %d: previous %d, the end before is %d", i, f.Previous, frames[i-1].End)
		}
	}
	if n := len(own); n != 60+30+30 {
		t.Errorf("%d frames of the app, want 120", n)
	}
	for i, f := range own {
		refresh := int64(199_999)
		if i == 0 || i == 90 {
			refresh = 399_999 // the scene's, from before: the app came to the front
		}
		if !slices.Contains(p.glass, f.End) || f.Refresh != refresh || f.Contributors[0].Name != "Player" {
			t.Fatalf("frame %+v: not one that the app was told of", f)
		}
	}
	for i := 1; i < 60; i++ {
		if step := own[i].End - own[i-1].End; step < 4*199_999-2 || step > 4*199_999+2 {
			t.Errorf("frame %d came after %d ticks, want 4 refreshes of 199,999", i, step)
		}
	}
	scene := len(frames) - len(own)
	if scene < 120+60+119-6 || scene > 120+60+119 { // 2 s before, 1 s in the background, 2 s after it ended
		t.Errorf("%d frames of the scene's", scene)
	}
	// While the phone slept the app's absolute clock stood still.
	var before, after Beat
	d = New(load(t, "{slept: 5s, steps: [{for: 1s, hz: 60}, {event: sleep, for: 3s}, {for: 1h, hz: 60}]}"), ios18, 1)
	d.Play(&diary{}, player, 120)
	d.With(time.Second/2, func(b Beat) { before = b })
	d.With(9*time.Second/2, func(b Beat) { after = b })
	if a, c := after.Absolute-before.Absolute, after.Continuous-before.Continuous; a != 24_000_000 || c != 96_000_000 {
		t.Errorf("the clocks moved on by %d and %d ticks, want 1 s and 4 s", a, c)
	}
}

func TestARestartEndsAnAppThatDrawsByItself(t *testing.T) {
	d := New(load(t, "{app: {bundle: "+player+", name: Player, running: true}, steps: [{for: 1h, hz: 60}]}"), ios18, 1)
	p := &diary{by: AnotherApp}
	d.Play(p, player, 60)
	frames := live(t, d, time.Second)
	// Every fourth refresh of a panel at 60 Hz.
	if len(frames) != 14 {
		t.Errorf("%d frames", len(frames))
	}
	for _, f := range frames {
		if f.Contributors[0].Name != "SpringBoard" || f.SurfaceID == 700 || f.Refresh != 399_999 {
			t.Errorf("%+v: want a frame of SpringBoard's", f)
		}
	}
	if err := d.Do(time.Second, Step{Event: EventReboot, For: time.Second}); err != nil {
		t.Fatal(err)
	}
	d.Advance(10 * time.Second)
	if want := []string{"launched 0s true", "foreground 0s true", "ended"}; !slices.Equal(p.lines, want) {
		t.Errorf("%q, want %q", p.lines, want)
	}
	if frames := live(t, d, 11*time.Second); len(frames) < 59 {
		t.Errorf("%d frames of the scene's a second after the restart", len(frames))
	}
}
