// Package sessiontest records synthetic sessions for tests: of any length, the same bytes each time, and with everything in them that a
// session can hold.
package sessiontest

import (
	"path/filepath"
	"testing"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/ledger"
	"github.com/framebridge/framebridge/p95"
)

// Session says what to record: frames of one display at 120 Hz, from a simulated phone.
type Session struct {
	Seconds  int64 // 20 or more, so that everything has its place
	Compress bool
}

// HostileName is a process name that does harm wherever it is not treated as text.
const HostileName = "</script><img src=x onerror=alert(1)>\"'=1+1,\n\u2028é 🎞"

const (
	secondNs       = 1_000_000_000
	hostZeroNs     = 90_000_000_000_000
	machZero       = 60_000_000_000_000
	machAfterBoot  = 240_000_000 // ten seconds
	machPerSecond  = 24_000_000
	machPerRefresh = 200_000
	perSecond      = 120
	perMessage     = perSecond / 2
	sessionID      = "5f0c3a52-8d7e-4b1c-9a53-0f6f6f3d2a11"
)

var timebase = adapter.Timebase{Numer: 125, Denom: 3}

// Record records the session in dir, which must not exist, and seals it.
func (s Session) Record(t testing.TB, dir string) *ledger.Manifest {
	t.Helper()
	start := ledger.Start{
		SessionID: sessionID, Name: filepath.Base(dir), Tool: ledger.Tool{Name: "framebridge", Version: "0.0.0-test"},
		Host:     ledger.Host{Name: "lab", OS: "linux", Arch: "amd64", CPUs: 2, PID: 7},
		Device:   ledger.Device{UDID: "00008110-0000000000000001", ProductType: "iPhone14,2", OSVersion: "26.0", Simulated: true},
		Evidence: ledger.EvidenceE2, Policy: adapter.PolicyP95, Clock: ledger.Clock{MonotonicNs: hostZeroNs, WallNs: 1_795_991_727_307_325_468},
	}
	session, err := ledger.Create(dir, hostZeroNs, start, false)
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{t: t, session: session, meter: p95.NewMeter(true), hostNs: hostZeroNs, endMach: machZero,
		binding: adapter.Binding{Target: adapter.Target{BundleID: "com.example.app", PID: 431, Generation: 1}, SourceEpoch: 1, PrimaryDisplayID: 1, Timebase: timebase}}
	r.begin()
	for i := range s.Seconds {
		r.happen(i, s.Seconds)
		r.second()
	}
	m, err := session.Seal(r.hostNs, ledger.StateComplete, "", map[string]int64{"categoryTwins": 2}, s.Compress)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

type recorder struct {
	t       testing.TB
	session *ledger.Session
	meter   *p95.Meter
	binding adapter.Binding

	hostNs      int64 // now
	recordNs    int64 // of the last record
	endMach     int64 // of the last frame
	seed        int64 // of the last frame
	rawSequence int64
	frame       int64           // number of the next one of the session
	unchained   adapter.Quality // of the next frame, where it is not valid
	dropped     int64           // before the next frame
	external    bool            // an external display is attached
}

func (r *recorder) append(value any) {
	if err := r.session.Append(&ledger.Event{HostNs: r.hostNs, Value: value}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *recorder) begin() {
	r.append(&ledger.SourceState{State: "connected"})
	r.bind()
	r.foreground(true, "launch")
}

// bind tells the binding as it is now. The next frame has no predecessor.
func (r *recorder) bind() {
	b := r.binding
	r.append(&b)
	if _, err := r.meter.Bind(b, r.hostNs); err != nil {
		r.t.Fatal(err)
	}
	r.unchained = adapter.QualityNoPredecessor
	r.bridge()
}

func (r *recorder) foreground(yes bool, by string) {
	r.append(&ledger.TargetState{Foreground: yes, By: by})
	r.meter.SetForeground(yes, r.hostNs)
}

func (r *recorder) bridge() {
	b := p95.ClockBridge{HostSendNs: r.hostNs - 2_000_000, HostReceiveNs: r.hostNs, DeviceContinuousMach: r.endMach, HasContinuous: true,
		DeviceAbsoluteMach: r.endMach - 1000, Timebase: timebase}
	r.append(&b)
	r.meter.Bridge(b)
}

// happen is what happens at the beginning of second i of n.
func (r *recorder) happen(i, n int64) {
	if i > 0 && i%5 == 0 {
		r.bridge()
	}
	switch i {
	case n * 4 / 20:
		r.append(&ledger.SourceGap{Reason: "stream-broken", Rows: 12, Bytes: 3456, Messages: 1})
		r.meter.Gap(p95.Of(r.hostNs))
		r.unchained, r.dropped = adapter.QualitySourceGap, 3
		r.seed += 3
		r.endMach += 3 * machPerRefresh
	case n * 6 / 20:
		r.foreground(false, "notification")
	case n * 7 / 20:
		r.foreground(true, "notification")
	case n * 9 / 20:
		r.append(&ledger.SourceState{State: "disconnected", Cause: "not-attached"})
		r.append(&ledger.SourceState{State: "reconnecting", Cause: "not-attached"})
		r.append(&ledger.SourceState{State: "connected"})
		r.binding.ReconnectGeneration++
		r.bind()
	case n * 10 / 20:
		r.unreadable()
	case n * 12 / 20:
		r.binding.Target = adapter.Target{BundleID: "com.example.app", PID: 577, Generation: 2}
		r.bind()
		r.foreground(true, "launch")
	case n * 14 / 20:
		r.binding.SourceEpoch, r.binding.ReconnectGeneration = 2, 0
		r.endMach, r.seed = machAfterBoot, 0
		r.bind()
	case n * 15 / 20:
		r.external = true
	case n * 16 / 20:
		r.external = false
	}
}

// second records a second of frames, which arrive in two messages, and the publication after them.
func (r *recorder) second() {
	for range perSecond / perMessage {
		r.hostNs += perMessage * secondNs / perSecond
		for range perMessage {
			r.next()
		}
	}
	r.hostNs += 1000
	var receipt p95.Receipt
	r.meter.Publish(r.hostNs, p95.Of(r.hostNs-500), &receipt)
	r.append(&receipt)
	r.hostNs -= 1000
}

// next is the next frame of the built-in display: mostly on time, every 97th late on glass and every 60th with a long lifetime.
func (r *recorder) next() {
	interval := machPerRefresh - 300 + r.frame%601
	switch r.frame % 97 {
	case 50:
		interval += machPerRefresh
	case 51:
		interval -= machPerRefresh / 2
	case 52:
		interval -= machPerRefresh / 2
	}
	previous := r.endMach
	r.endMach += interval
	r.seed++
	lifetime := 2*machPerRefresh - 5000 + r.frame%5000
	if r.frame%60 == 30 {
		lifetime += 3 * machPerRefresh
	}
	quality := adapter.QualityValid
	if r.unchained != adapter.QualityUnknown {
		quality = r.unchained
	}
	rec := r.blank()
	if quality == adapter.QualityValid && r.frame%211 == 7 { // the phone tells another previous than the end before
		const skew = -3
		previous += skew
		rec.PredecessorSkewMach, rec.Fields = skew, rec.Fields|adapter.HasPredecessorSkew
	}
	natives(&rec, 1, r.seed, previous, r.endMach, lifetime)
	judged(&rec, quality, r.dropped)
	r.unchained, r.dropped = adapter.QualityUnknown, 0
	r.contributors(1)
	r.put(&rec)
	if r.external && r.frame%2 == 0 {
		rec := r.blank()
		natives(&rec, 2, r.seed, previous-machPerRefresh, r.endMach, lifetime)
		judged(&rec, adapter.QualityValid, 0)
		r.put(&rec)
	}
	r.frame++
}

func (r *recorder) contributors(display int64) {
	c := adapter.Contributors{FrameSeed: r.seed, DisplayID: display, Processes: []adapter.Contributor{{PID: r.binding.Target.PID, Name: "Example"}}}
	switch r.frame % 30 {
	case 0:
		c.Processes = append(c.Processes, adapter.Contributor{PID: 45, Name: HostileName})
	case 1:
		c.Processes = append(c.Processes, adapter.Contributor{PID: 46}) // its name is not known
	case 2:
		c.Processes = nil
	}
	r.append(&c)
}

// unreadable is one frame of each kind that has no frame time: missing arguments, told again, too early, and after a pause.
func (r *recorder) unreadable() {
	r.hostNs += 1000
	missing := r.blank()
	missing.Fields |= adapter.HasSwapID | adapter.HasFrameSeed | adapter.HasDisplayID
	missing.SwapID, missing.FrameSeed, missing.DisplayID = 1<<62+1, -5, 1
	missing.PresentFields = []string{"frame_seed", "display_id"}
	judged(&missing, adapter.QualityUnsupportedSchema, 0)
	missing.QualityReason = adapter.ReasonArgumentMissing
	r.put(&missing)

	again := r.blank()
	natives(&again, 1, r.seed, r.endMach-machPerRefresh, r.endMach, 2*machPerRefresh)
	judged(&again, adapter.QualityDuplicate, 0)
	again.QualityReason = adapter.ReasonAlreadySeen
	r.put(&again)

	early := r.blank()
	natives(&early, 1, r.seed+1, r.endMach-3*machPerRefresh, r.endMach-2*machPerRefresh, 2*machPerRefresh)
	judged(&early, adapter.QualityOutOfOrder, 0)
	early.QualityReason = adapter.ReasonEndNotAfterLast
	r.put(&early)

	previous := r.endMach
	r.endMach += 2 * machPerSecond
	r.hostNs += 2 * secondNs
	r.seed += 2
	idle := r.blank()
	natives(&idle, 1, r.seed, previous, r.endMach, 3*machPerRefresh)
	judged(&idle, adapter.QualityDiscontinuity, 0)
	idle.QualityReason = adapter.ReasonTooLong
	r.put(&idle)
}

// blank is a record of the target that is bound, without anything of a frame.
func (r *recorder) blank() adapter.Record {
	r.rawSequence++
	return adapter.Record{
		Fields: adapter.HasHostNs | adapter.HasRawSequence | adapter.HasSource | adapter.HasTarget | adapter.HasSourceEpoch | adapter.HasReconnectGeneration |
			adapter.HasTimebase,
		HostNs: max(r.hostNs, r.recordNs+1), RawSequence: r.rawSequence, SessionID: sessionID, Schema: adapter.RecordSchema, Source: adapter.SourceGoIOS,
		Target: r.binding.Target, SourceEpoch: r.binding.SourceEpoch, ReconnectGeneration: r.binding.ReconnectGeneration, Policy: adapter.PolicyP95,
		Subsystem: "com.apple.coreanimation", Category: "IOMFBServer", Name: "FrameUpdate", Timebase: timebase,
	}
}

// natives sets what the phone tells of a frame.
func natives(r *adapter.Record, display, seed, previous, end, lifetime int64) {
	r.Fields |= adapter.HasNatives | adapter.HasDisplayID | adapter.HasSurfaceID | adapter.HasNativeID | adapter.HasRenderBeginMach | adapter.HasRenderEndMach
	r.SwapID, r.FrameSeed, r.DisplayID, r.SurfaceID = seed+100_000, seed, display, 200+seed%3
	r.BeginMach, r.EndMach, r.PreviousMach = end-lifetime, end, previous
	r.RefreshIntervalMach, r.BufferCount = machPerRefresh, 2
	r.RenderBeginMach, r.RenderEndMach = r.BeginMach+1000, r.BeginMach+90_000
	r.NativeID = seed<<32 | (seed*2_654_435_761)&0xffff_ffff | -1<<63 // all its bits matter, the highest too
	if seed%7 == 0 {
		r.Fields |= adapter.HasDisplayTargetMach | adapter.HasInputMach
		r.DisplayTargetMach, r.InputMach = end, r.BeginMach-50_000
	}
}

// judged sets the figures that follow from the natives.
func judged(r *adapter.Record, q adapter.Quality, dropped int64) {
	r.Fields |= adapter.HasQuality | adapter.HasDroppedBefore
	r.Quality, r.DroppedBefore, r.Decoded, r.Verified = q, dropped, true, true
	if r.Fields&adapter.HasEndMach != 0 {
		r.Fields |= adapter.HasPresentationNs | adapter.HasLifetime
		r.PresentationNs, _ = timebase.Ns(r.EndMach)
		r.LifetimeNs, _ = timebase.Ns(r.EndMach - r.BeginMach)
	}
	switch q {
	case adapter.QualityValid:
		interval := r.EndMach - r.PreviousMach
		r.Fields |= adapter.HasFrameTime | adapter.HasRefreshMultiple
		r.FrameTimeNs, _ = timebase.Ns(interval)
		milli, rest := interval/(machPerRefresh/1000), interval%(machPerRefresh/1000)
		if half := int64(machPerRefresh / 1000 / 2); rest > half || rest == half && milli%2 == 1 {
			milli++
		}
		r.RefreshMultipleMilli = milli
	case adapter.QualitySourceGap:
		r.QualityReason = adapter.ReasonPredecessorLater
	case adapter.QualityNoPredecessor:
		r.QualityReason = adapter.ReasonFirstOnDisplay
	}
}

func (r *recorder) put(rec *adapter.Record) {
	r.recordNs = rec.HostNs
	r.append(rec)
	r.meter.Record(rec)
}
