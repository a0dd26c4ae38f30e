//go:build cgo

package sim

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/framebridge/framebridge/internal/sim/scene"
	"github.com/framebridge/framebridge/lab27"
	"github.com/framebridge/framebridge/lab27/app"
	"github.com/framebridge/framebridge/lab27/app/core"
)

// HasLab27 reports whether phones can carry the reference app.
const HasLab27 = true

const (
	// A drawable reaches the glass at the second refresh after its commit: the first is the one for which the render server composes it.
	pipelineRefreshes = 2
	// drawNs is what a clear pass takes before it is committed.
	drawNs = 300_000
	// readTicks is what reading a clock takes: 42 ns at 24 MHz.
	readTicks = 1

	lab27Poll = time.Second // as often as the app looks for a request

	// What the app uses, chosen well below what the cost gates allow between a run with the reference and one without.
	lab27DrawCPUNs, lab27HandlerCPUNs   = 150_000, 3_000
	lab27Footprint, lab27HandlersMemory = 42 << 20, 1 << 20
)

// proMotion are the products with a panel of 120 Hz.
var proMotion = []string{"iPhone14,2", "iPhone14,3", "iPhone15,2", "iPhone15,3", "iPhone16,1", "iPhone16,2", "iPhone17,1", "iPhone17,2", "iPhone18,1", "iPhone18,2"}

// lab27App is the app, its platform, and the phone's panel under it. Everything here runs while the phone's scene is locked: the panel's
// refreshes are the one time line from which FrameLifetime frames and presented times both come.
type lab27App struct {
	core.Files // of the phone, in Documents/lab27; one that fills up with leftover
	d          *Device
	root       string
	config     core.Config
	app        *core.App // nil while it does not run

	now       scene.Beat
	clock     uint64 // mach absolute, as whoever runs in the app sees it: now, or later once it has worked
	busyUntil uint64 // when the main thread is done with what it began
	front     bool
	nextPoll  time.Duration
	every     int64 // refreshes between beats of the display link
	lastDue   int64
	committed []drawable // not on glass yet
	shown     []drawable // on glass; their handlers come next
	cpuNs     uint64
	handlers  bool // the reference is on

	// Faults.
	system, drop, late, lose, surface int           // how many to come
	shift, bracket, ahead             time.Duration // from now on
	thermal                           int
	leftover                          int // bytes that the disk takes; negative: no end
	second                            bool
}

// drawable is a picture of the app's on its way. n is 0 for its label, which has no handler.
type drawable struct {
	n           int
	surface     uint64
	due         int64 // refresh
	late        int64
	dropped     bool
	presentedNs int64
}

func newReferenceApp(d *Device) (referenceApp, error) {
	dir, err := d.container(Lab27Bundle)
	if err != nil {
		return nil, err
	}
	a := &lab27App{d: d, root: filepath.Join(dir, documentsDir, "lab27"), leftover: -1}
	if a.Files, err = core.NewDirectory(a.root); err != nil {
		return nil, err
	}
	hz := 60
	if slices.Contains(proMotion, d.Product) {
		hz = 120
	}
	tb := d.Scene.Timebase
	a.config = core.Config{BundleID: Lab27Bundle, AppVersion: app.Version(), SourceDigest: app.SourceDigest(), DeviceModel: d.Product, OSVersion: d.OS,
		MaximumHz: uint32(hz), Simulated: true, TimebaseNumer: uint32(tb.Numer), TimebaseDenom: uint32(tb.Denom)}
	d.phone.Play(a, Lab27Bundle, hz)
	return a, nil
}

func (a *lab27App) close() { a.d.phone.With(0, func(scene.Beat) { a.Ended() }) }

// at is the moment of what happens next in the app.
func (a *lab27App) at(now scene.Beat) { a.now, a.clock = now, uint64(now.Absolute) }

// onMain has the main thread do something as soon as it is done with what it began.
func (a *lab27App) onMain(now scene.Beat, do func()) {
	a.at(now)
	a.clock = max(a.clock, a.busyUntil)
	do()
	a.busyUntil = a.clock
}

// Launched, Foreground, Ended and Refresh are what the phone's scene asks for.

func (a *lab27App) Launched(now scene.Beat, pid int64) {
	a.config.PID = int32(pid)
	started, err := core.New(a.config, a)
	if err != nil {
		a.d.lab.log.Error().Str("udid", a.d.UDID).Err(err).Msg("Lab27 does not start")
		return
	}
	a.app, a.busyUntil, a.cpuNs, a.handlers, a.every, a.nextPoll = started, 0, 0, false, 1, now.At+lab27Poll
	a.lastDue, a.committed, a.shown = now.N, nil, nil
	a.onMain(now, a.label)
}

func (a *lab27App) Foreground(now scene.Beat, in bool) {
	a.front = in
	if in || a.app == nil {
		return
	}
	for i := range a.committed {
		a.committed[i].dropped = true // nothing of the app reaches the glass any more
	}
	a.onMain(now, a.app.Background)
}

func (a *lab27App) Ended() {
	if a.app != nil {
		a.app.Close()
	}
	a.app, a.front = nil, false
}

func (a *lab27App) Refresh(now scene.Beat) scene.Picture {
	if a.app == nil {
		return scene.Picture{}
	}
	a.at(now)
	a.report()
	picture := a.flip()
	if a.busyUntil <= uint64(now.Absolute) {
		a.onMain(now, a.mainThread)
	}
	return picture
}

// flip puts on glass what is due.
func (a *lab27App) flip() scene.Picture {
	picture := scene.Picture{}
	for len(a.committed) > 0 && a.committed[0].due <= a.now.N {
		d := a.committed[0]
		a.committed = a.committed[1:]
		if !d.dropped {
			d.presentedNs = a.ns(a.now.Absolute)
			picture = scene.Picture{By: scene.TheApp, Surface: int64(d.surface), Late: d.late}
		}
		if d.n > 0 {
			a.shown = append(a.shown, d)
		}
	}
	if picture.By == scene.Nobody && a.system > 0 && a.front {
		a.system--
		picture.By = scene.AnotherApp
	}
	return picture
}

// report calls the handlers of what an earlier refresh showed. They run beside the main thread, however busy that is.
func (a *lab27App) report() {
	for _, d := range a.shown {
		if take(&a.lose) {
			continue
		}
		told := d.surface
		if take(&a.surface) {
			told += 1000
		}
		ns := d.presentedNs
		if ns > 0 {
			ns += int64(a.shift)
		}
		a.cpuNs += lab27HandlerCPUNs
		a.app.Presented(d.n, drawableID(d.n), told, ns)
	}
	a.shown = a.shown[:0]
}

// take takes one of what is left, if anything is.
func take(left *int) bool {
	if *left == 0 {
		return false
	}
	*left--
	return true
}

// mainThread does what the app's run loop does at a refresh: a beat of the display link, or of a timer.
func (a *lab27App) mainThread() {
	switch state := a.app.Status().State; state {
	case core.Running:
		if a.now.N%a.every == 0 {
			a.app.Tick()
		}
	case core.Draining:
		if a.app.Tick() != core.Draining && a.front {
			a.label()
		}
	default:
		if !a.front || a.now.At < a.nextPoll { // behind other apps it is suspended
			return
		}
		a.nextPoll = a.now.At + lab27Poll
		if a.second {
			a.addSecond()
		}
		if a.app.Poll() == core.Running && state != core.Running {
			a.label()
		}
	}
}

// label is the app's text appearing, or being hidden.
func (a *lab27App) label() { a.commit(drawable{surface: surfaceOf(0)}) }

// commit sends a picture on its way to the glass.
func (a *lab27App) commit(d drawable) {
	refresh := a.now.N + int64(a.clock-uint64(a.now.Absolute))/a.now.Period
	d.due = max(refresh+pipelineRefreshes+d.late, a.lastDue+1)
	a.lastDue = d.due
	a.committed = append(a.committed, d)
}

// surfaceOf has three surfaces take turns, as a layer's drawables do.
func surfaceOf(n int) uint64 { return 289 + uint64(n%3)*18 }

// drawableID counts on from where the label left off.
func drawableID(n int) uint64 { return 100 + uint64(n) }

func (a *lab27App) ns(ticks int64) int64 {
	tb := a.d.Scene.Timebase
	return ticks/tb.Denom*tb.Numer + ticks%tb.Denom*tb.Numer/tb.Denom
}

func (a *lab27App) ticks(ns int64) uint64 {
	tb := a.d.Scene.Timebase
	return uint64(ns/tb.Numer*tb.Denom + ns%tb.Numer*tb.Denom/tb.Numer)
}

// What follows is the platform that the core asks for.

func (a *lab27App) MachAbsolute() uint64 {
	a.clock += readTicks
	return a.clock
}

// MediaSeconds and MachContinuous are read between the two ends of a bracket; half of its width lies before either.
func (a *lab27App) MediaSeconds() float64 {
	a.clock += readTicks + a.ticks(int64(a.bracket)/2)
	return float64(a.ns(int64(a.clock))) / 1e9
}

func (a *lab27App) MachContinuous() uint64 {
	a.clock += readTicks
	continuous := a.clock + uint64(a.now.Continuous-a.now.Absolute)
	a.clock += a.ticks(int64(a.bracket) / 2)
	return continuous
}

func (a *lab27App) WallUnixNs() int64 { return a.d.lab.clock.start.Add(a.now.At + a.ahead).UnixNano() }

func (a *lab27App) Available() core.Available {
	return core.Available{Foreground: a.front, Canvas: true, MetalDevice: true, MetalQueue: true}
}

func (a *lab27App) ThermalState() int { return a.thermal }

func (a *lab27App) Usage() (cpuNs, footprint uint64, ok bool) {
	footprint = lab27Footprint
	if a.handlers {
		footprint += lab27HandlersMemory
	}
	return a.cpuNs, footprint, true
}

func (a *lab27App) SetRate(hz int) { a.every = int64(a.config.MaximumHz) / int64(hz) }

func (a *lab27App) Present(n int, _ string, reference bool) (uint64, bool) {
	a.cpuNs += lab27DrawCPUNs
	a.handlers = reference
	a.clock += a.ticks(drawNs)
	d := drawable{n: n, surface: surfaceOf(n), dropped: take(&a.drop)}
	if take(&a.late) {
		d.late = 1
	}
	if !reference {
		d.n = 0
	}
	a.commit(d)
	return drawableID(n), true
}

func (a *lab27App) DelayMain(ms int) { a.clock += a.ticks(int64(ms) * int64(time.Millisecond)) }

func (a *lab27App) ReleaseWorkload() bool { return true }

// Create makes a file on a disk that may be nearly full.
func (a *lab27App) Create(path string) (core.Output, error) {
	out, err := a.Files.Create(path)
	if err != nil {
		return nil, err
	}
	return &fillingFile{out, a}, nil
}

type fillingFile struct {
	core.Output
	a *lab27App
}

func (f *fillingFile) Write(b []byte) (int, error) {
	left := f.a.leftover
	if left < 0 {
		return f.Output.Write(b)
	}
	n, err := f.Output.Write(b[:min(len(b), left)])
	f.a.leftover -= n
	if err == nil && n < len(b) {
		err = syscall.ENOSPC
	}
	return n, err
}

func (a *lab27App) notified(name string) {
	if name != lab27.CancelNotification {
		return
	}
	a.d.phone.With(a.d.now(), a.cancel)
}

func (a *lab27App) cancel(now scene.Beat) {
	if a.app != nil {
		a.onMain(now, a.app.Cancel)
	}
}

func (a *lab27App) suffer(f Fault) (did string, err error) {
	a.d.phone.With(a.d.now(), func(now scene.Beat) { did, err = a.sufferNow(now, f) })
	return did, err
}

func (a *lab27App) sufferNow(now scene.Beat, f Fault) (string, error) {
	count := max(1, f.Count)
	switch f.Kind {
	case lab27System:
		a.system += count
		return fmt.Sprintf("SpringBoard shows %d frames", count), nil
	case lab27Drop:
		a.drop += count
		return fmt.Sprintf("%d drawables are dropped", count), nil
	case lab27Late:
		a.late += count
		return fmt.Sprintf("%d drawables are late", count), nil
	case lab27Lose:
		a.lose += count
		return fmt.Sprintf("%d handlers never come", count), nil
	case lab27Surface:
		a.surface += count
		return fmt.Sprintf("%d drawables are told with another surface", count), nil
	case lab27Shift:
		a.shift = f.Delay.lab()
		return "presented times are late by " + a.shift.String(), nil
	case lab27Bracket:
		a.bracket = f.Delay.lab()
		return "reading the clocks takes " + a.bracket.String(), nil
	case lab27Hot, lab27Cool:
		a.thermal = 0
		if f.Kind == lab27Hot {
			a.thermal = 2
		}
		if a.app != nil {
			a.onMain(now, func() { a.app.Thermal(a.thermal) })
		}
		return fmt.Sprintf("the thermal state is %d", a.thermal), nil
	case lab27Cancel:
		a.cancel(now)
		return "cancelled on the phone", nil
	case lab27Full:
		a.leftover = f.Count
		return fmt.Sprintf("the disk takes %d bytes more", f.Count), nil
	case lab27Second:
		a.second = true
		return "the next request is not alone", nil
	case lab27Ahead:
		a.ahead = f.Delay.lab()
		return "the calendar is ahead by " + a.ahead.String(), nil
	case lab27Replay:
		return a.replay()
	}
	return "", fmt.Errorf("%w: %s is not one of Lab27's", ErrFault, f.Kind)
}

// addSecond puts another request beside one that is pending.
func (a *lab27App) addSecond() {
	names, _ := a.List("pending")
	if len(names) == 0 {
		return
	}
	a.second = false
	r, err := lab27.NewRequest("second-"+names[0][:8], lab27.PurposeRehearsal, 100, a.config.AppVersion, a.config.SourceDigest, uuid.NewString(), time.Unix(0, a.WallUnixNs()))
	if err == nil {
		err = os.WriteFile(filepath.Join(a.root, "pending", r.FileName()), r.AppendJSON(nil), 0o600)
	}
	if err != nil {
		a.d.lab.log.Error().Err(err).Msg("second request")
	}
}

// replay puts the request that was consumed last into pending again.
func (a *lab27App) replay() (string, error) {
	names, err := a.List("consumed")
	if err != nil || len(names) == 0 {
		return "", errors.Join(fmt.Errorf("%w: no request was consumed yet", ErrFault), err)
	}
	changed := func(name string) int64 {
		i, err := os.Stat(filepath.Join(a.root, "consumed", name))
		if err != nil {
			return 0
		}
		return i.ModTime().UnixNano()
	}
	last := slices.MaxFunc(names, func(x, y string) int { return cmp.Compare(changed(x), changed(y)) })
	text, err := os.ReadFile(filepath.Join(a.root, "consumed", last))
	if err == nil {
		err = os.WriteFile(filepath.Join(a.root, "pending", last), text, 0o600)
	}
	return strings.TrimSuffix(last, ".json") + " is pending again", err
}
