package scene

import "time"

// Player is an app that draws by itself: what it shows while it is in front is its own decision and not the scene's. The Device calls it
// in order of time and while it is locked, so it must not call the Device.
type Player interface {
	// Launched begins a process life. The one before, if there was one, has ended.
	Launched(now Beat, pid int64)
	// Foreground says that the app has come to the front or left it. One that is launched begins behind.
	Foreground(now Beat, in bool)
	// Ended is the end of the process, at once and without a chance to do anything.
	Ended()
	// Refresh is called at each refresh of the built-in display while the process lives and the phone is awake. What it returns reaches
	// the glass at that moment; it is shown only while the app is in front.
	Refresh(Beat) Picture
}

// Beat is a moment of the built-in display.
type Beat struct {
	N                    int64 // of the refresh, or of the last one before
	Absolute, Continuous int64 // mach ticks
	Period               int64 // ticks from one refresh to the next
	At                   time.Duration
}

// Picture is what a Player puts on glass. The zero Picture is nothing new.
type Picture struct {
	By      Author
	Surface int64 // of one by the app
	Late    int64 // refreshes that it took longer than it should have
}

// Author tells whose a Picture is.
type Author uint8

// The authors.
const (
	Nobody Author = iota
	TheApp
	AnotherApp // SpringBoard, over the app
)

// playing is the Player and where it stands.
type playing struct {
	Player
	bundle string
	hz     int   // of the panel
	period int64 // ticks between refreshes
	alive  bool
	front  bool
	next   int64 // tick of its next refresh; never while there is none
}

// panelHz is the refresh rate of the fastest panel.
const panelHz = 120

// Play gives bundle to p, on a panel of 60 or 120 refreshes a second.
//
// A real panel's refresh is about a tick short of 1/120 s, and so it is here. Three frames at 60 Hz are then a quarter of a microsecond
// shorter than 50 ms, so that a match's window, which leaves out so much, does not end on a frame.
func (d *Device) Play(p Player, bundle string, hz int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.player = playing{Player: p, bundle: bundle, hz: hz, period: d.ticksPerSec/int64(hz) - panelHz/int64(hz), next: never}
	if q := d.app(bundle); q != nil {
		d.beginPlayer(q)
		d.followFront()
	}
}

// With calls f at device time at, with the Device locked as it is in a Player's methods. It comes after Play.
func (d *Device) With(at time.Duration, f func(now Beat)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.advance(d.ticks(at))
	f(d.beat(d.now))
}

func (d *Device) beat(tick int64) Beat {
	return Beat{N: tick / d.player.period, Absolute: d.absolute(tick), Continuous: d.mach(tick), Period: d.player.period, At: d.duration(tick)}
}

// beginPlayer begins a life of the player's process, if q is that.
func (d *Device) beginPlayer(q *Process) {
	p := &d.player
	if p.Player == nil || q.Bundle != p.bundle {
		return
	}
	p.alive = true
	p.Launched(d.beat(d.now), q.PID)
	d.planRefresh(d.now)
}

// endPlayer ends the player's process, if it lives.
func (d *Device) endPlayer() {
	p := &d.player
	if !p.alive {
		return
	}
	p.alive, p.front, p.next = false, false, never
	p.Ended()
	d.plan(&d.displays[0], d.now)
}

// followFront tells the player when it comes to the front or leaves it, and plans the display's frames anew: its own or the scene's.
func (d *Device) followFront() {
	p := &d.player
	if p.Player == nil {
		return
	}
	q := d.app(p.bundle)
	front := q != nil && q.Foreground
	if front == p.front {
		return
	}
	p.front = front
	p.Foreground(d.beat(d.now), front)
	d.plan(&d.displays[0], d.now)
}

// planRefresh plans the player's next refresh after t. The panel's refreshes do not depend on what happens.
func (d *Device) planRefresh(t int64) {
	p := &d.player
	p.next = never
	if p.alive && d.step.Event == "" {
		p.next = (t/p.period + 1) * p.period
	}
}

// refresh lets the player put something on glass at tick t, or a tick beside it.
func (d *Device) refresh(t int64) {
	p, x := &d.player, &d.displays[0]
	p.next += p.period
	glass := t + d.rng.Int64N(3) - 1
	now := d.beat(glass)
	now.N = t / p.period
	shown := p.Refresh(now)
	if shown.By == Nobody || !p.front {
		return
	}
	x.author, x.surface = shown.By, shown.Surface
	x.next, x.end, x.nextPeriod = t, glass, d.ticksPerSec/int64(p.hz)
	x.lifetime = (d.buffers()-1)*p.period + p.period*(5+d.rng.Int64N(30))/100 + shown.Late*p.period
	x.emit = x.end + d.us(200+d.rng.Int64N(160))
}
