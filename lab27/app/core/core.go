//go:build cgo

package core

// #cgo CFLAGS: -std=c11 -Wall -Wextra -Werror
// #include <stdlib.h>
// #include "cgo_platform.h"
// #include "lab27_request.h"
import "C"

import (
	"errors"
	"fmt"
	"runtime/cgo"
	"strings"
	"unsafe"
)

// State is what the app is doing.
type State int

const (
	Idle State = iota
	Running
	Draining
	Sealed
	Failed // the bundle could not be written
)

func (s State) String() string {
	return [...]string{"idle", "running", "draining", "sealed", "failed"}[s]
}

// Available is what admission asks about, beside the thermal state.
type Available struct {
	Foreground, Canvas, MetalDevice, MetalQueue, OtherWorkload bool
}

// Platform is the phone around the app. MachAbsolute is called from whatever goroutine calls App.Presented; all the rest from the one
// that drives the App.
type Platform interface {
	MachAbsolute() uint64   // ticks; stops while the phone sleeps
	MachContinuous() uint64 // ticks; goes on
	MediaSeconds() float64  // CACurrentMediaTime
	WallUnixNs() int64

	Available() Available
	ThermalState() int // 0 nominal to 3 critical
	Usage() (cpuNs, footprintBytes uint64, ok bool)

	SetRate(hz int) // what the display link is asked for; a request beyond the first means a new phase
	// Present draws and commits submission n. With reference, App.Presented is owed for it.
	Present(n int, phase string, reference bool) (drawableID uint64, ok bool)
	DelayMain(ms int) // blocks the main thread, so that time has passed when it returns
	ReleaseWorkload() bool

	Files
}

// Config is what the app knows of itself and of its device.
type Config struct {
	BundleID, AppVersion, SourceDigest string
	DeviceModel, OSVersion             string
	PID                                int32
	MaximumHz                          uint32
	Simulated                          bool
	TimebaseNumer, TimebaseDenom       uint32
}

// Status is how far the app has come.
type Status struct {
	State              State
	Reason             string // why the run stopped, or what failed
	Refusal            string // why the last request was refused
	RunName, Phase     string
	Submitted          int
	Presented, Dropped int
	BundleBytes        int // what the bundle comes to at most if it were sealed now
}

// App is one process life of the reference app. Presented may be called from any goroutine; everything else belongs to one.
type App struct {
	core     *C.lab27_core
	handle   cgo.Handle
	platform Platform
	phases   []string
	strings  []*C.char

	listed []string
	output Output
}

// New starts the app; Close it when no handler can come any more.
func New(config Config, platform Platform) (*App, error) {
	if config.TimebaseNumer < 1 || config.TimebaseDenom < 1 {
		return nil, fmt.Errorf("lab27 app: timebase %d/%d: both parts must be 1 or more", config.TimebaseNumer, config.TimebaseDenom)
	}
	memory := C.malloc(C.lab27_core_size())
	if memory == nil {
		return nil, errors.New("lab27 app: no memory for the core")
	}
	a := &App{platform: platform, phases: []string{"baseline", "normal", "tail", "recovery"}}
	a.handle = cgo.NewHandle(a)
	facts := C.lab27_app{
		bundle_id: a.cString(config.BundleID), app_version: a.cString(config.AppVersion), source_digest: a.cString(config.SourceDigest),
		device_model: a.cString(config.DeviceModel), os_version: a.cString(config.OSVersion),
		pid: C.int32_t(config.PID), maximum_hz: C.uint32_t(config.MaximumHz), simulated: C.bool(config.Simulated),
		timebase_numer: C.uint32_t(config.TimebaseNumer), timebase_denom: C.uint32_t(config.TimebaseDenom),
	}
	a.core = C.lab27_init_for_go(memory, C.uintptr_t(a.handle), &facts)
	return a, nil
}

// cString is s up to its first NUL, kept until Close.
func (a *App) cString(s string) *C.char {
	s, _, _ = strings.Cut(s, "\x00")
	c := C.CString(s)
	a.strings = append(a.strings, c)
	return c
}

// Close frees the core's memory. A run that was not sealed stays unsealed, as after a kill.
func (a *App) Close() {
	if a.output != nil {
		a.output.Close()
	}
	C.free(unsafe.Pointer(a.core))
	for _, s := range a.strings {
		C.free(unsafe.Pointer(s))
	}
	a.handle.Delete()
}

// Poll looks for a pending request and starts or refuses it.
func (a *App) Poll() State { return State(C.lab27_poll(a.core)) }

// Tick is one beat of the display link, or of the timer that drains handlers after a stop.
func (a *App) Tick() State { return State(C.lab27_tick(a.core)) }

// Presented is the handler of submission n. presentedNs is mach absolute time in ns, 0 where the drawable was dropped.
func (a *App) Presented(n int, drawableID, surfaceID uint64, presentedNs int64) {
	C.lab27_presented(a.core, C.uint32_t(n), C.uint64_t(drawableID), C.uint64_t(surfaceID), C.int64_t(presentedNs))
}

// Cancel stops a run at the user's or the host's word.
func (a *App) Cancel() { C.lab27_cancel(a.core) }

// Background says that the app has left the foreground, which stops a run.
func (a *App) Background() { C.lab27_background(a.core) }

// Thermal says that the thermal state has changed; 2 or more stops a run.
func (a *App) Thermal(state int) { C.lab27_thermal(a.core, C.int(state)) }

// Status tells how far the app has come.
func (a *App) Status() Status {
	s := C.lab27_get_status(a.core)
	return Status{
		State: State(s.state), Reason: C.GoString(s.reason), Refusal: C.GoString(s.refusal), RunName: C.GoString(s.run_name),
		Phase: C.GoString(s.phase), Submitted: int(s.submitted), Presented: int(s.presented), Dropped: int(s.dropped), BundleBytes: int(s.bundle_bytes),
	}
}

// ReadRequest is what the app makes of a request: when it was issued and when it expires, or what is wrong with it.
func ReadRequest(text []byte) (issuedUnixNs, expiresUnixNs int64, fault string) {
	var request C.lab27_request
	c := C.CBytes(text)
	defer C.free(c)
	if words := C.lab27_request_parse((*C.char)(c), C.size_t(len(text)), &request); words != nil {
		return 0, 0, C.GoString(words)
	}
	return int64(request.issued_unix_ns), int64(request.expires_unix_ns), ""
}
