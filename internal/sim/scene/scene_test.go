package scene

import (
	"errors"
	"fmt"
	"hash/fnv"
	"reflect"
	"strings"
	"testing"
	"time"
)

func load(t testing.TB, text string) Spec {
	t.Helper()
	s, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// live lets a phone live until at and gives its frames, with copies of what they point to.
func live(t testing.TB, d *Device, at time.Duration) []Frame {
	t.Helper()
	var frames []Frame
	stop := d.Observe(0, func(ev *Event) {
		if ev.Frame != nil {
			f := *ev.Frame
			f.Contributors = append([]Contributor(nil), f.Contributors...)
			frames = append(frames, f)
		}
	})
	defer stop()
	d.Advance(at)
	return frames
}

func on(display int64, frames []Frame) []Frame {
	var out []Frame
	for _, f := range frames {
		if f.DisplayID == display {
			out = append(out, f)
		}
	}
	return out
}

var ios18 = OS{18, 5}

// near reports whether got is want to within the 6 ticks by which two jittered ends may be off.
func near(got, want int64) bool { return got >= want-6 && got <= want+6 }

func TestSteadyRateShowsOneFrameEachRefreshInAnUnbrokenChain(t *testing.T) {
	// 24,000,000 ticks a second: 400,000 at 60 Hz.
	frames := live(t, New(load(t, "- {for: 10s, hz: 60}"), ios18, 1), 10*time.Second)
	if len(frames) != 599 { // the 600th reaches the glass at 10 s and is told a little later
		t.Errorf("%d frames", len(frames))
	}
	stalled := 0
	for i, f := range frames {
		if f.Refresh != 399_999 || f.Buffers != 2 || f.DisplayID != 1 {
			t.Fatalf("frame %d: %+v", i, f)
		}
		if f.Stalled != (f.End-f.Begin > 2*399_999) {
			t.Errorf("frame %d of lifetime %d: stalled %v", i, f.End-f.Begin, f.Stalled)
		}
		if f.Stalled {
			stalled++
		}
		if i == 0 {
			if f.Previous != 0 {
				t.Errorf("the first frame has a previous")
			}
			continue
		}
		last := frames[i-1]
		if f.Previous != last.End {
			t.Fatalf("frame %d: previous %d, last end %d", i, f.Previous, last.End)
		}
		if !near(f.End-f.Previous, 400_000) {
			t.Errorf("frame %d took %d ticks", i, f.End-f.Previous)
		}
		if f.Begin >= last.End {
			t.Errorf("frame %d begins after the end of the one before: lifetimes must overlap", i)
		}
		if f.FrameSeed != last.FrameSeed+1 || f.SwapID != last.SwapID+1 {
			t.Errorf("frame %d: a hole in seeds or swap ids", i)
		}
		if i > 2 && f.SurfaceID != frames[i-3].SurfaceID || f.SurfaceID == last.SurfaceID {
			t.Errorf("frame %d: surface %d is not the third's again", i, f.SurfaceID)
		}
	}
	if stalled == 0 {
		t.Error("no frame lived longer than its buffers allow")
	}
}

func TestJankDelaysEveryNthFrameByWholeRefreshes(t *testing.T) {
	// 80 ms are 9.6 refreshes of 200,000 ticks: ten, on top of the one every frame takes.
	frames := live(t, New(load(t, "- {for: 5s, hz: 120, jank: {every: 12, delay: 80ms}}"), ios18, 1), 5*time.Second)
	for i, f := range frames[1:] {
		want := int64(200_000)
		if (i+2)%12 == 0 {
			want = 2_200_000
			if !f.Stalled {
				t.Errorf("frame %d is late and not stalled", i+2)
			}
		}
		if !near(f.End-f.Previous, want) {
			t.Errorf("frame %d took %d ticks, want %d", i+2, f.End-f.Previous, want)
		}
	}
	if len(frames) < 300 {
		t.Errorf("%d frames", len(frames))
	}
}

func TestFpsBelowHzKeepsAFrameForSeveralRefreshes(t *testing.T) {
	for _, f := range live(t, New(load(t, "- {for: 2s, hz: 60, fps: 30}"), ios18, 1), 2*time.Second)[1:] {
		if !near(f.End-f.Previous, 800_000) || f.Refresh != 399_999 {
			t.Fatalf("%d ticks at a refresh interval of %d", f.End-f.Previous, f.Refresh)
		}
	}
}

func TestSwitchingRatesKeepsTheLowerRatesIntervalForOneFrameWhenItRises(t *testing.T) {
	frames := live(t, New(load(t, "- {for: 4s, switch: [120, 60, 80, 40], dwell: 1s}"), ios18, 1), 4*time.Second)
	count := map[int64]int{} // by rounded frame time
	var risen []int64
	for _, f := range frames[1:] {
		took := (f.End - f.Previous + 5000) / 10_000 * 10_000
		count[took]++
		if f.Refresh > took {
			risen = append(risen, f.Refresh)
		}
	}
	// A second each of 120, 60, 80 and 40 Hz.
	for took, want := range map[int64]int{200_000: 120, 400_000: 60, 300_000: 80, 600_000: 40} {
		if n := count[took]; n < want-2 || n > want+2 {
			t.Errorf("%d frames of %d ticks, want about %d", n, took, want)
		}
	}
	if !reflect.DeepEqual(risen, []int64{399_999}) { // 60 -> 80
		t.Errorf("refresh intervals longer than their frame: %v", risen)
	}
}

func TestIdleScreenShowsNothingAndTheNextFrameReachesBackOverIt(t *testing.T) {
	frames := live(t, New(load(t, "[{for: 1s, hz: 60}, {for: 3s, idle: true}, {for: 1s, hz: 60}]"), ios18, 1), 5*time.Second)
	gaps := 0
	for _, f := range frames[1:] {
		if took := f.End - f.Previous; took > 500_000 {
			gaps++
			if took < 72_000_000 || took > 73_000_000 { // 3 s and at most two refreshes
				t.Errorf("the frame after the idle screen took %d ticks", took)
			}
		}
	}
	if gaps != 1 || len(frames) < 117 || len(frames) > 120 {
		t.Errorf("%d gaps, %d frames", gaps, len(frames))
	}
}

func TestUnknownRefreshIntervalIsZero(t *testing.T) {
	for _, f := range live(t, New(load(t, "- {for: 1s, hz: 60, refresh: unknown}"), ios18, 1), time.Second) {
		if f.Refresh != 0 {
			t.Fatalf("refresh interval %d", f.Refresh)
		}
	}
}

func TestSecondDisplayHasAChainOfItsOwnAndTakesSeedsFromTheSameCounter(t *testing.T) {
	frames := live(t, New(load(t, `
- {for: 1s, hz: 120}
- {event: display2, on: true, hz: 30}
- {for: 2s, hz: 120}
- {event: display2, on: false}
- {for: 1s, hz: 120}
- {event: display2, on: true, hz: 30}
- {for: 1s, idle: true}
`), ios18, 1), 5*time.Second)
	second := on(2, frames)
	if n := len(second); n < 88 || n > 90 { // two seconds and one at 30 Hz
		t.Errorf("%d frames on display 2", n)
	}
	first := 0
	for i, f := range second {
		if f.Previous == 0 {
			first++
		} else if f.Previous != second[i-1].End || !near(f.End-f.Previous, 800_000) {
			t.Errorf("frame %d on display 2: %+v", i, f)
		}
	}
	if first != 2 {
		t.Errorf("%d frames on display 2 without a previous, want 2: it was switched on twice", first)
	}
	for i, f := range on(1, frames)[1:] {
		if f.Previous == 0 {
			t.Fatalf("display 1, frame %d: the other display broke its chain", i+1)
		}
	}
	for i, f := range frames[1:] {
		if f.FrameSeed != frames[i].FrameSeed+1 {
			t.Fatalf("seed %d after %d: the render server has one counter", f.FrameSeed, frames[i].FrameSeed)
		}
	}
}

func TestRebootStartsBothClocksPidsAndSeedsAnew(t *testing.T) {
	d := New(load(t, "[{for: 2s, hz: 60}, {event: reboot, down: 3s}, {for: 2s, hz: 60}]"), ios18, 1)
	before := d.Status(time.Second)
	// 300 h at 24 MHz, and a second.
	if before.Boot != 1 || !before.Up || before.Continuous != 25_920_024_000_000 || before.Absolute != before.Continuous {
		t.Errorf("before: %+v", before)
	}
	down := d.Status(4 * time.Second)
	if down.Up || down.Boot != 1 || down.Continuous != 0 || len(down.Processes) != 0 {
		t.Errorf("while down: %+v", down)
	}
	if err := d.Do(4*time.Second, Step{Event: EventLaunch}); !errors.Is(err, ErrDown) {
		t.Errorf("launch while down: %v", err)
	}
	after := d.Status(6 * time.Second)
	// One second after it came up with 9 to 13 s on its clocks.
	if after.Boot != 2 || !after.Up || after.Continuous < 240_000_000 || after.Continuous > 336_000_000 || after.Absolute != after.Continuous {
		t.Errorf("after: %+v", after)
	}
	for _, p := range after.Processes {
		if p.Bundle != "" {
			t.Errorf("app %s runs after a restart", p.Name)
		}
	}
	frames := live(t, New(load(t, "[{event: display2, on: true}, {for: 2s, hz: 60}, {event: reboot, down: 3s}, {for: 2s, hz: 60}]"), ios18, 1), 7*time.Second)
	if n := len(on(2, frames)); n < 118 || n > 120 {
		t.Errorf("%d frames on display 2, which the restart switched off after 2 s", n)
	}
	frames = on(1, frames)
	fresh := 0
	for i, f := range frames[1:] {
		if f.Previous == 0 {
			fresh++
			if f.End >= frames[i].End {
				t.Errorf("the clock goes on after the restart: %d after %d", f.End, frames[i].End)
			}
		}
	}
	if fresh != 1 {
		t.Errorf("%d first frames after the restart", fresh)
	}
	var kinds []string
	for _, c := range d.Changes(0) {
		kinds = append(kinds, fmt.Sprintf("%d %s %s", c.N, c.Kind, c.At))
	}
	if got := strings.Join(kinds, ", "); got != "1 foreground 0s, 2 down 2s, 3 up 5s" {
		t.Errorf("changes: %s", got)
	}
}

func TestSleepStopsAbsoluteTimeOnly(t *testing.T) {
	d := New(load(t, "{slept: 7403s, steps: [{for: 1s, hz: 60}, {event: sleep, for: 30s}, {for: 1s, hz: 60}]}"), ios18, 1)
	// 7,403 s are 177,672,000,000 ticks, 30 s are 720,000,000.
	for _, c := range []struct {
		at     time.Duration
		ahead  int64
		asleep bool
	}{
		{0, 177_672_000_000, false},
		{time.Second, 177_672_000_000, true},
		{11 * time.Second, 177_912_000_000, true},
		{31 * time.Second, 178_392_000_000, false},
		{32 * time.Second, 178_392_000_000, false},
	} {
		s := d.Status(c.at)
		if s.Continuous-s.Absolute != c.ahead || s.Asleep != c.asleep || !s.Up {
			t.Errorf("at %s: continuous is %d ahead, asleep %v; want %d, %v", c.at, s.Continuous-s.Absolute, s.Asleep, c.ahead, c.asleep)
		}
	}
}

func TestDriftMakesThePhonesClockRunAhead(t *testing.T) {
	fast, slow := New(load(t, "{drift_ppm: 20, steps: [{for: 1s, hz: 60}]}"), ios18, 1), New(load(t, "{drift_ppm: -2.5, steps: [{for: 1s, hz: 60}]}"), ios18, 1)
	// 20 millionths of 10,000 s are 0.2 s; 2.5 millionths of 1 s are 2,500 ns.
	if got := fast.DeviceTime(10_000 * time.Second); got != 10_000*time.Second+200*time.Millisecond {
		t.Errorf("20 ppm of 10,000 s: %s", got)
	}
	if got := slow.DeviceTime(time.Second); got != 999_997_500 {
		t.Errorf("-2.5 ppm of 1 s: %d", got)
	}
}

func TestTimebaseDecidesTheTicks(t *testing.T) {
	frames := live(t, New(load(t, "{timebase: 1/1, steps: [{for: 1s, hz: 100}]}"), ios18, 1), time.Second)
	if f := frames[5]; !near(f.End-f.Previous, 10_000_000) || f.Refresh != 9_999_999 {
		t.Errorf("at 1 ns a tick: %+v", f)
	}
}

func TestAppEventsChangePidsForegroundAndContributors(t *testing.T) {
	d := New(load(t, "- {for: 1h, hz: 60}"), ios18, 1)
	front := func(at time.Duration) Process {
		for _, p := range d.Status(at).Processes {
			if p.Foreground {
				return p
			}
		}
		t.Fatal("nothing is in front")
		return Process{}
	}
	first := front(0)
	if first.Bundle != "com.example.app" || first.Name != "Example" {
		t.Errorf("in front at first: %+v", first)
	}
	do := func(at time.Duration, s string) {
		t.Helper()
		step, err := ParseStep([]byte(s))
		if err == nil {
			err = d.Do(at, step)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	do(1*time.Second, "{event: background}")
	if p := front(1 * time.Second); p.Name != "SpringBoard" {
		t.Errorf("after background: %+v", p)
	}
	do(2*time.Second, "{event: foreground}")
	if p := front(2 * time.Second); p != first {
		t.Errorf("after foreground: %+v", p)
	}
	do(3*time.Second, "{event: relaunch}")
	second := front(3 * time.Second)
	if second.Bundle != first.Bundle || second.PID <= first.PID {
		t.Errorf("after relaunch: %+v", second)
	}
	do(4*time.Second, "{event: launch, bundle: com.example.other}")
	if p := front(4 * time.Second); p.Bundle != "com.example.other" || p.Name != "other" {
		t.Errorf("after the launch of another app: %+v", p)
	}
	d.Kill(5*time.Second, front(5*time.Second).PID)
	frames := live(t, d, 6*time.Second)
	last := frames[len(frames)-1]
	if c := last.Contributors; len(c) != 2 || c[0].Name != "SpringBoard" || c[1].Name != "backboardd" {
		t.Errorf("contributors on the home screen: %+v", c)
	}
	if err := d.Do(6*time.Second, Step{Event: EventTerminate, Bundle: "com.example.other"}); !errors.Is(err, ErrNotRunning) {
		t.Errorf("ending an app twice: %v", err)
	}
	var got []string
	for _, c := range d.Changes(1) {
		got = append(got, fmt.Sprintf("%s %s %v", c.At, c.Process.Name, c.Kind))
	}
	want := []string{"1s Example background", "2s Example foreground", "3s Example terminated", "3s Example foreground",
		"4s Example background", "4s other foreground", "5s other terminated"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("changes:\n got %q\nwant %q", got, want)
	}
}

func TestCommandThatLastsInterruptsTheSceneWhichThenGoesOn(t *testing.T) {
	d := New(load(t, "[{for: 4s, hz: 60}, {for: 10s, hz: 120}]"), ios18, 1)
	if err := d.Do(2*time.Second, Step{For: 3 * time.Second, Idle: true}); err != nil {
		t.Fatal(err)
	}
	frames := live(t, d, 8*time.Second)
	count := map[int64]int{}
	for _, f := range frames {
		count[(f.End-25_920_000_000_000)/24_000_000]++ // by second
	}
	// Seen from the third second on: idle until 5 s, two more seconds at 60 Hz, then 120 Hz.
	for sec, want := range map[int64][2]int{3: {0, 0}, 4: {0, 0}, 5: {58, 60}, 6: {59, 61}, 7: {117, 120}} {
		if n := count[sec]; n < want[0] || n > want[1] {
			t.Errorf("second %d: %d frames, want %d to %d", sec, n, want[0], want[1])
		}
	}
}

func TestLastStepHoldsAndALoopBeginsAgain(t *testing.T) {
	hold := live(t, New(load(t, "[{for: 1s, idle: true}, {for: 1s, hz: 60}, {event: background}]"), ios18, 1), 4*time.Second)
	if n := len(hold); n < 178 || n > 180 {
		t.Errorf("%d frames in the 3 s after the first step", n)
	}
	loop := live(t, New(load(t, "{loop: true, steps: [{for: 1s, idle: true}, {for: 1s, hz: 60}]}"), ios18, 1), 8*time.Second)
	if n := len(loop); n < 235 || n > 240 {
		t.Errorf("%d frames in 4 of 8 s", n)
	}
}

// fingerprint is a hash of everything that is emitted.
func fingerprint(t *testing.T, seed uint64, chunk time.Duration) uint64 {
	h := fnv.New64a()
	d := New(load(t, "{noise: 500, steps: [{for: 1s, hz: 120, jank: {every: 7, delay: 20ms}}, {event: reboot, down: 1s}, {for: 1s, switch: [80, 48]}]}"), ios18, seed)
	d.Observe(0, func(ev *Event) {
		fmt.Fprintln(h, ev.Boot, ev.Mach)
		if ev.Frame != nil {
			fmt.Fprintln(h, *ev.Frame)
		} else {
			fmt.Fprintln(h, *ev.Foreign.Source, *ev.Foreign.Process, ev.Foreign.Args, ev.Foreign.Identifier, ev.Foreign.Type)
		}
	})
	for at := time.Duration(0); at <= 3*time.Second; at += chunk {
		d.Advance(at)
	}
	return h.Sum64()
}

func TestSameSeedGivesTheSameTimelineHoweverItIsAskedFor(t *testing.T) {
	if fingerprint(t, 5, time.Millisecond) != fingerprint(t, 5, 250*time.Millisecond) {
		t.Error("two runs of one seed differ")
	}
	if fingerprint(t, 5, 250*time.Millisecond) == fingerprint(t, 6, 250*time.Millisecond) {
		t.Error("two seeds give the same timeline")
	}
}

func TestOSVersions(t *testing.T) {
	for text, want := range map[string]OS{"15.8": {15, 8}, "15.8.3": {15, 8}, "26.0": {26, 0}, "18": {18, 0}} {
		if got, err := ParseOS(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "13.7", "27.0", "x", "18.x", "18.-1"} {
		if _, err := ParseOS(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
