package scene

import "math/rand/v2"

// display is one panel and what is planned for it. grid and end are scene ticks.
type display struct {
	id      int64
	on      bool
	hz      int // of display 2; the built-in one follows the step
	shown   int64
	grid    int64 // the ideal tick of the last shown frame; 0 before the first
	period  int64 // ticks between refreshes at the last shown frame
	lastEnd int64 // mach continuous; 0 before the first

	surfaces [3]int64
	frame    Frame

	// The frame that comes next: where it belongs, when it is on glass, when it is told (never: none is planned).
	next, end, emit  int64
	lifetime         int64
	nextPeriod, late int64
	author           Author // of a player's; Nobody's are the scene's
	surface          int64
}

// restart forgets everything shown; a new boot hands out new surfaces.
func (x *display) restart(rng *rand.Rand) {
	x.shown, x.grid, x.lastEnd, x.period = 0, 0, 0, 0
	first := 0x100 + rng.Int64N(0x100)
	x.surfaces = [3]int64{first, first + 18, first + 36}
}

// buffers is the buffer_count of this release's frames: the iOS 15 log that is known says 3, everything later 2.
func (d *Device) buffers() int64 {
	if d.os.Major < 16 {
		return 3
	}
	return 2
}

// rate is the display's refresh rate for the frame after the one at x.grid; 0 when nothing new will be shown.
func (d *Device) rate(x *display) int {
	switch s := &d.step; {
	case s.Event != "" || !x.on:
		return 0
	case x.id != 1:
		return x.hz
	case s.Idle, d.player.front:
		return 0
	case len(s.Switch) > 0:
		return s.Switch[max(0, x.grid-d.started)/d.ticks(s.Dwell)%int64(len(s.Switch))]
	default:
		return s.Hz
	}
}

// plan decides on the next frame, as seen at tick t. A frame that is on glass already is left alone: it only has to be told.
func (d *Device) plan(x *display, t int64) {
	if x.emit != never && (x.end <= t || x.author != Nobody) {
		return
	}
	x.emit, x.author = never, Nobody
	hz := d.rate(x)
	if hz == 0 {
		return
	}
	s := &d.step
	period := d.ticksPerSec / int64(hz)
	refreshes := int64(1)
	x.late = 0
	if x.id == 1 {
		if s.FPS > 0 {
			refreshes = int64(hz / s.FPS)
		}
		if s.JankEvery > 0 && (x.shown+1)%int64(s.JankEvery) == 0 {
			x.late = (d.ticks(s.JankDelay) + period - 1) / period
		}
	}
	x.nextPeriod = period
	x.next = x.grid + (refreshes+x.late)*period
	if x.next <= t { // nothing was shown for a while: the refreshes begin anew
		x.next = t + period/2 + d.rng.Int64N(period/2)
	}
	x.end = x.next + d.rng.Int64N(7) - 3
	// A frame's content is begun while the frame before it waits for the glass. One in 200 takes longer than its buffers allow and
	// is shown in time nevertheless.
	b := d.buffers()
	x.lifetime = (b-1)*period + period*(5+d.rng.Int64N(30))/100
	if d.rng.Int64N(200) == 0 {
		x.lifetime = b*period + period*(2+d.rng.Int64N(60))/100
	}
	x.lifetime += x.late * period
	x.emit = x.end + d.us(200+d.rng.Int64N(160))
}

// emitFrame tells the frame that was planned, and plans the next.
func (d *Device) emitFrame(x *display) {
	d.frameSeed++
	d.swapID++
	f := &x.frame
	contributors := f.Contributors[:0]
	end := d.mach(x.end)
	*f = Frame{
		DisplayID: x.id, FrameSeed: d.frameSeed & 0xffffffff, SwapID: d.swapID & 0xffffffff,
		SurfaceID: x.surfaces[x.shown%3],
		Begin:     end - x.lifetime, End: end, Previous: x.lastEnd,
		Buffers: d.buffers(), Thread: d.threads[0],
		Reasons: uint32(1 + d.rng.Int64N(0xff)), Counter: d.rng.Uint32(),
	}
	// When the rate rises, the first frame was still asked for at the lower one: its interval is shorter than its refresh interval.
	refresh := x.nextPeriod - 1
	if x.period > x.nextPeriod {
		refresh = x.period - 1
	}
	if x.author == TheApp {
		f.SurfaceID = x.surface
	}
	f.Stalled = x.lifetime > f.Buffers*refresh
	if !(x.id == 1 && d.step.RefreshUnknown) {
		f.Refresh = refresh
	}
	if d.rng.Int64N(97) == 0 {
		f.Skip = 1
	}
	if d.rng.Int64N(16) == 0 {
		f.Thread = d.threads[1]
	}
	if d.rng.Int64N(4) != 0 {
		f.DisplayTarget = d.mach(x.next)
	}
	f.Base = f.Begin
	if d.rng.Int64N(64) == 0 {
		f.Base -= d.us(20 + d.rng.Int64N(200))
	}
	if d.rng.Int64N(32) != 0 {
		f.RenderBegin = f.Begin + d.us(40+d.rng.Int64N(100))
		f.RenderEnd = f.Begin + x.lifetime/2
		f.Ready = f.RenderEnd
		f.GPUBegin, f.GPUEnd = f.RenderBegin+d.us(10), f.RenderEnd
		f.ProcessBegin, f.ProcessEnd = f.Begin+d.us(5), f.RenderBegin
	}
	f.Contributors = contributors
	d.contribute(x, f)
	x.shown++
	x.grid, x.period, x.lastEnd = x.next, x.nextPeriod, end
	d.show(x.emit, f, nil)
	x.emit = never
	d.plan(x, d.now)
}

// contribute names the processes with content in f: the app in front (SpringBoard, on its own home screen and on other displays),
// at times SpringBoard's status bar, and the render server.
func (d *Device) contribute(x *display, f *Frame) {
	front := &d.processes[0]
	app := d.app(d.player.bundle)
	switch {
	case x.author == TheApp && app != nil:
		front = app // also when it has left the front since
	case x.id == 1 && x.author != AnotherApp:
		for i := range d.processes {
			if d.processes[i].Foreground {
				front = &d.processes[i]
			}
		}
	}
	add := func(p *Process) {
		f.Contributors = append(f.Contributors, Contributor{PID: p.PID, Name: p.Name,
			EarliestCommit: f.Begin - d.us(300+d.rng.Int64N(3000)), Previous: x.lastEnd, Target: f.DisplayTarget})
	}
	add(front)
	if d.rng.Int64N(8) == 0 && front.Bundle != "" {
		add(&d.processes[0])
	}
	f.Contributors = append(f.Contributors, Contributor{PID: d.backboardd.PID, Name: d.backboardd.Name, EarliestCommit: f.Begin + d.us(1)})
	if front.Bundle != "" && d.rng.Int64N(4) == 0 {
		f.Input = f.Begin - d.us(1000+d.rng.Int64N(12000))
	}
}
