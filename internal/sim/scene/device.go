package scene

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

var (
	// ErrDown means that the phone is restarting: nothing can be asked of it until it is up.
	ErrDown = errors.New("the phone is restarting")
	// ErrAsleep means that the phone sleeps.
	ErrAsleep = errors.New("the phone is asleep")
	// ErrNotRunning means that an event is about an app that does not run.
	ErrNotRunning = errors.New("the app is not running")
)

// OS is an iOS version. It decides the form in which frames are told.
type OS struct{ Major, Minor int }

// ParseOS reads a version such as "18.5" or "15.8.3"; the simulator knows iOS 14 to 26.
func ParseOS(s string) (OS, error) {
	major, rest, _ := strings.Cut(s, ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, err := strconv.Atoi(major)
	b := 0
	if err == nil && minor != "" {
		b, err = strconv.Atoi(minor)
	}
	if err != nil || a < 14 || a > 26 || b < 0 || b > 99 {
		return OS{}, fmt.Errorf("%q is no iOS version from 14.0 to 26.99: write one such as 18.5", s)
	}
	return OS{a, b}, nil
}

func (o OS) String() string { return strconv.Itoa(o.Major) + "." + strconv.Itoa(o.Minor) }

// Status is what a phone's clocks and process list show at one moment.
type Status struct {
	Boot                 int // which life of the phone: 1, 2 …; grows when it comes up again
	Up                   bool
	Asleep               bool
	Continuous, Absolute int64 // mach ticks; 0 while it is down
	Processes            []Process
}

// ChangeKind says what a Change is.
type ChangeKind string

// The kinds of change.
const (
	AppForeground ChangeKind = "foreground"
	AppBackground ChangeKind = "background"
	AppTerminated ChangeKind = "terminated"
	DeviceDown    ChangeKind = "down"
	DeviceUp      ChangeKind = "up"
)

// Change is a change of an app's or the phone's state.
type Change struct {
	N        int64 // 1, 2, 3 …
	Kind     ChangeKind
	At       time.Duration // device time since the scene began
	Absolute int64         // mach absolute ticks; 0 of DeviceDown
	Process  Process       // of an app's change
}

// maxChanges is how many changes are kept for those who ask late.
const maxChanges = 4096

// never is later than everything: no scene gets there.
const never = math.MaxInt64

// Device is one phone living through a scene. Times given to it are device time since the scene began (see DeviceTime); it moves
// forward only when asked to, and never back. All methods are safe for concurrent use.
type Device struct {
	os   OS
	spec Spec

	mu          sync.Mutex
	rng         *rand.Rand
	ticksPerSec int64
	now         int64 // scene ticks: ticks of the phone's oscillator since the scene began

	// The boot that is running.
	boot       int
	bootTick   int64 // scene tick of mach continuous bootMach
	bootMach   int64
	slept      int64 // continuous - absolute, without the sleep that is going on
	processes  []Process
	backboardd Process
	nextPID    int64
	threads    [2]int64
	frameSeed  int64
	swapID     int64

	// The step that is running, and those that commands have put in front of others.
	index   int
	step    Step
	started int64
	until   int64
	waiting []interrupted

	displays  [2]display
	nextNoise int64
	foreign   foreign
	player    playing
	event     Event

	changes   []Change
	changed   int64
	observers []*observer
}

type interrupted struct {
	step             Step
	started, forMore int64
}

type observer struct{ see func(*Event) }

// New is a phone at the beginning of its scene. The seed is spec's own, or the one given when that is 0.
func New(spec Spec, os OS, seed uint64) *Device {
	if spec.Seed != 0 {
		seed = spec.Seed
	}
	d := &Device{os: os, spec: spec, rng: rand.New(rand.NewPCG(seed, 0x6672616d65)), nextNoise: never, index: -1, player: playing{next: never}}
	d.ticksPerSec = d.ticks(time.Second)
	for i := range d.displays {
		d.displays[i] = display{id: int64(i + 1), end: never, emit: never}
	}
	d.displays[0].on = true
	d.slept = d.ticks(spec.Slept)
	d.start(0, d.ticks(spec.Uptime)+d.slept)
	if spec.App.Running {
		d.launch(spec.App.Bundle, spec.App.Name)
	}
	d.nextStep(0)
	return d
}

// OS is the phone's iOS version.
func (d *Device) OS() OS { return d.os }

// Spec is the scene that the phone lives through.
func (d *Device) Spec() Spec { return d.spec }

// DeviceTime is how far the phone's clock has gone while the host's has gone by host.
func (d *Device) DeviceTime(host time.Duration) time.Duration {
	sec, rest := host/time.Second, host%time.Second
	ppb := time.Duration(d.spec.DriftPPB)
	return host + sec*ppb + rest*ppb/time.Second
}

// Advance lets the phone live on until device time at, and shows what happens to every observer.
func (d *Device) Advance(at time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.advance(d.ticks(at))
}

// Observe calls see with everything that is emitted from device time at on, until stop is called. It is called while the Device
// is locked: it must not call the Device.
func (d *Device) Observe(at time.Duration, see func(*Event)) (stop func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.advance(d.ticks(at))
	o := &observer{see}
	d.observers = append(d.observers, o)
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.observers = slices.DeleteFunc(d.observers, func(x *observer) bool { return x == o })
	}
}

// Status is the state at device time at, or at the time already reached if that is later.
func (d *Device) Status(at time.Duration) Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.advance(d.ticks(at))
	s := d.clock()
	if s.Up {
		s.Processes = append(slices.Clone(d.processes), d.backboardd)
	}
	return s
}

// Clock is Status without the processes.
func (d *Device) Clock(at time.Duration) Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.advance(d.ticks(at))
	return d.clock()
}

func (d *Device) clock() Status {
	s := Status{Boot: d.boot, Up: d.step.Event != EventReboot, Asleep: d.step.Event == EventSleep}
	if s.Up {
		s.Continuous, s.Absolute = d.mach(d.now), d.absolute(d.now)
	}
	return s
}

// Changes are the state changes after number n, oldest first; ask with the last one's N for more. Only the last 4,096 are kept.
func (d *Device) Changes(after int64) []Change {
	d.mu.Lock()
	defer d.mu.Unlock()
	i, _ := slices.BinarySearchFunc(d.changes, after+1, func(c Change, n int64) int { return int(c.N - n) })
	return slices.Clone(d.changes[i:])
}

// Do makes a step happen at device time at. One that lasts interrupts the scene, which then goes on where it was.
func (d *Device) Do(at time.Duration, s Step) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.advance(d.ticks(at))
	switch d.step.Event {
	case EventReboot:
		return ErrDown
	case EventSleep:
		return ErrAsleep
	}
	if (s.Event == EventTerminate || s.Event == EventForeground) && d.app(d.bundle(s)) == nil {
		return fmt.Errorf("%w: %s: launch it first", ErrNotRunning, d.bundle(s))
	}
	if !s.lasts() {
		d.happen(s, d.now)
		return nil
	}
	d.waiting = append(d.waiting, interrupted{d.step, d.started, d.until - d.now})
	d.enter(s, d.now, d.now+d.ticks(s.For))
	return nil
}

// Kill ends the process pid as a crash or the switcher would; killing anything but an app does nothing.
func (d *Device) Kill(at time.Duration, pid int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.advance(d.ticks(at))
	for _, p := range d.processes {
		if p.PID == pid && p.Bundle != "" {
			d.terminate(p.Bundle)
			return
		}
	}
}

func (d *Device) ticks(t time.Duration) int64 {
	tb := d.spec.Timebase
	sec, rest := int64(t/time.Second), int64(t%time.Second)
	perSec, over := int64(time.Second)*tb.Denom/tb.Numer, int64(time.Second)*tb.Denom%tb.Numer
	return sec*perSec + (sec*over+rest*tb.Denom)/tb.Numer
}

func (d *Device) duration(ticks int64) time.Duration {
	tb := d.spec.Timebase
	return time.Duration(ticks/tb.Denom*tb.Numer + ticks%tb.Denom*tb.Numer/tb.Denom)
}

// us is n microseconds in ticks.
func (d *Device) us(n int64) int64 { return n * d.ticksPerSec / 1_000_000 }

// mach is mach continuous time at a scene tick of the running boot.
func (d *Device) mach(tick int64) int64 { return d.bootMach + tick - d.bootTick }

func (d *Device) absolute(tick int64) int64 {
	slept := d.slept
	if d.step.Event == EventSleep {
		slept += tick - d.started
	}
	return d.mach(tick) - slept
}

// advance does, in order of time, everything up to tick until.
func (d *Device) advance(until int64) {
	for {
		t, what := d.until, -1
		for i := range d.displays {
			if d.displays[i].emit < t {
				t, what = d.displays[i].emit, i
			}
		}
		if d.nextNoise < t {
			t, what = d.nextNoise, len(d.displays)
		}
		if d.player.next < t {
			t, what = d.player.next, len(d.displays)+1
		}
		if t > until {
			break
		}
		d.now = max(d.now, t)
		switch {
		case what == -1:
			d.leave(t)
		case what < len(d.displays):
			d.emitFrame(&d.displays[what])
		case what == len(d.displays):
			d.emitForeign(t)
		default:
			d.refresh(t)
		}
	}
	d.now = max(d.now, until)
}

func (d *Device) show(tick int64, f *Frame, x *Foreign) {
	d.event = Event{Boot: d.boot, Mach: d.mach(tick), Frame: f, Foreign: x, Server: &d.backboardd}
	for _, o := range d.observers {
		o.see(&d.event)
	}
}

// start begins a life of the phone: at tick, with mach continuous time mach.
func (d *Device) start(tick, mach int64) {
	d.boot++
	d.bootTick, d.bootMach = tick, mach
	d.nextPID = 200 + d.rng.Int64N(100)
	d.backboardd = Process{PID: 60 + d.rng.Int64N(20), Name: "backboardd", Path: "/usr/libexec/backboardd"}
	d.processes = append(d.processes[:0], Process{PID: 34 + d.rng.Int64N(20), Name: "SpringBoard",
		Path: "/System/Library/CoreServices/SpringBoard.app/SpringBoard", Foreground: true})
	d.threads = [2]int64{0x400 + d.rng.Int64N(0x400), 0x1000 + d.rng.Int64N(0x4000)}
	d.frameSeed = 1 + d.rng.Int64N(1<<28)
	d.swapID = 1 + d.rng.Int64N(1<<24)
	for i := range d.displays {
		d.displays[i].restart(d.rng)
	}
}

// nextStep enters the step after the running one: at tick t, and on through those that take no time.
func (d *Device) nextStep(t int64) {
	for {
		d.index++
		if d.index == len(d.spec.Steps) {
			if !d.spec.Loop {
				last := len(d.spec.Steps) - 1
				for d.spec.Steps[last].Event != "" {
					last--
				}
				d.index = last // stays there for ever
				d.enter(d.spec.Steps[last], t, never)
				return
			}
			d.index = 0
		}
		if s := d.spec.Steps[d.index]; s.lasts() {
			d.enter(s, t, t+d.ticks(s.For))
			return
		} else {
			d.happen(s, t)
		}
	}
}

// enter begins a step that lasts.
func (d *Device) enter(s Step, t, until int64) {
	d.step, d.started, d.until = s, t, until
	if s.Event == EventReboot {
		for i := range d.displays {
			d.displays[i].emit = never // what was on its way is never told
		}
		d.endPlayer()
		d.change(DeviceDown, Process{}, t)
	}
	d.arrange(t)
}

// arrange plans the next frames and noise anew for the step that begins at t.
func (d *Device) arrange(t int64) {
	for i := range d.displays {
		d.plan(&d.displays[i], t)
	}
	d.planNoise(t)
	d.planRefresh(t)
}

// leave ends the running step at t.
func (d *Device) leave(t int64) {
	switch d.step.Event {
	case EventSleep:
		d.slept += t - d.started
	case EventReboot:
		d.slept = 0
		// A phone answers about ten seconds after its kernel's clock began.
		d.start(t, d.us(9_000_000+d.rng.Int64N(4_000_000)))
		d.displays[1].on = false
		d.step = Step{}
		d.change(DeviceUp, Process{}, t)
	}
	if n := len(d.waiting); n > 0 {
		w := d.waiting[n-1]
		d.waiting = d.waiting[:n-1]
		until := int64(never)
		if w.forMore < never-t {
			until = t + w.forMore
		}
		d.step, d.started, d.until = w.step, w.started, until
		d.arrange(t)
		return
	}
	d.step = Step{}
	d.nextStep(t)
}

// happen does a step that takes no time.
func (d *Device) happen(s Step, t int64) {
	d.now = max(d.now, t)
	switch s.Event {
	case EventLaunch, EventRelaunch:
		bundle := d.bundle(s)
		if s.Event == EventRelaunch {
			d.terminate(bundle)
		}
		name := s.Name
		if name == "" {
			name = d.spec.App.Name
			if bundle != d.spec.App.Bundle {
				name = bundle[strings.LastIndexByte(bundle, '.')+1:]
			}
		}
		d.launch(bundle, name)
	case EventTerminate:
		d.terminate(d.bundle(s))
	case EventBackground:
		d.toFront(&d.processes[0])
	case EventForeground:
		if p := d.app(d.bundle(s)); p != nil {
			d.toFront(p)
		}
	case EventDisplay2:
		x := &d.displays[1]
		x.hz = s.Hz
		if x.on != s.On {
			x.on = s.On
			x.lastEnd, x.grid = 0, 0
		}
		d.plan(x, t)
	}
}

func (d *Device) bundle(s Step) string {
	if s.Bundle != "" {
		return s.Bundle
	}
	return d.spec.App.Bundle
}

func (d *Device) app(bundle string) *Process {
	for i := range d.processes {
		if d.processes[i].Bundle == bundle {
			return &d.processes[i]
		}
	}
	return nil
}

func (d *Device) launch(bundle, name string) {
	if p := d.app(bundle); p != nil {
		d.toFront(p)
		return
	}
	d.nextPID += 1 + d.rng.Int64N(30)
	d.processes = append(d.processes, Process{PID: d.nextPID, Name: name, Bundle: bundle,
		Path: "/private/var/containers/Bundle/Application/" + name + ".app/" + name})
	d.beginPlayer(&d.processes[len(d.processes)-1])
	d.toFront(&d.processes[len(d.processes)-1])
}

func (d *Device) terminate(bundle string) {
	i := slices.IndexFunc(d.processes, func(p Process) bool { return p.Bundle == bundle })
	if i < 0 {
		return
	}
	p := d.processes[i]
	d.processes = slices.Delete(d.processes, i, i+1)
	wasFront := p.Foreground
	p.Foreground = false
	d.change(AppTerminated, p, d.now)
	if bundle == d.player.bundle {
		d.endPlayer()
	}
	if wasFront {
		d.toFront(&d.processes[0])
	}
}

// toFront gives the screen to p and takes it from the one that had it.
func (d *Device) toFront(p *Process) {
	for i := range d.processes {
		if q := &d.processes[i]; q.Foreground && q != p {
			q.Foreground = false
			d.change(AppBackground, *q, d.now)
		}
	}
	if !p.Foreground {
		p.Foreground = true
		d.change(AppForeground, *p, d.now)
	}
	d.followFront()
}

// change notes a change of state; SpringBoard's own are nobody's business.
func (d *Device) change(kind ChangeKind, p Process, tick int64) {
	if p.PID != 0 && p.Bundle == "" {
		return
	}
	d.changed++
	c := Change{N: d.changed, Kind: kind, At: d.duration(tick), Process: p}
	if kind != DeviceDown {
		c.Absolute = d.absolute(tick)
	}
	if len(d.changes) == maxChanges {
		d.changes = append(d.changes[:0], d.changes[maxChanges/2:]...)
	}
	d.changes = append(d.changes, c)
}
