package p95_test

import (
	"testing"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/p95"
)

// lab feeds a meter with frames that are right unless a test says otherwise. Its device ticks are nanoseconds, so that every expected
// value can be worked out on paper; tests of conversion bind 125/3.
type lab struct {
	*p95.Meter
	t       *testing.T
	binding adapter.Binding
	seq     int64
	hostNs  int64 // of the last event
	endMach int64 // of the last frame
	lastN   int64
}

const (
	second = 1_000_000_000
	// The first event of a lab is at hostStart + 1; its first frame arrives at hostStart + 8 ms and ends at deviceStart + 8 ms.
	hostStart   = 1_000 * second
	deviceStart = 50 * second
	frameNs     = 8_000_000
)

// newLab is bound, in the foreground, and has seen no frame.
func newLab(t *testing.T) *lab {
	l := unboundLab(t, true)
	l.bind(l.binding)
	l.SetForeground(true, hostStart+1)
	return l
}

func unboundLab(t *testing.T, withP95 bool) *lab {
	return &lab{Meter: p95.NewMeter(withP95), t: t, hostNs: hostStart, endMach: deviceStart, binding: adapter.Binding{
		Target: adapter.Target{BundleID: "com.example.app", PID: 431, Generation: 1}, SourceEpoch: 1, ReconnectGeneration: 0,
		PrimaryDisplayID: 1, Timebase: adapter.Timebase{Numer: 1, Denom: 1}}}
}

func (l *lab) bind(b adapter.Binding) {
	l.t.Helper()
	if _, err := l.Bind(b, hostStart+1); err != nil {
		l.t.Fatal(err)
	}
	l.binding = b
}

// next is the frame after the last one, 8 ms later, without a known refresh interval.
func (l *lab) next() adapter.Record {
	l.seq++
	l.hostNs += frameNs
	l.endMach += frameNs
	r := adapter.Record{Fields: adapter.HasHostNs | adapter.HasRawSequence | adapter.HasSource | adapter.HasTarget | adapter.HasSourceEpoch |
		adapter.HasReconnectGeneration | adapter.HasSwapID | adapter.HasFrameSeed | adapter.HasDisplayID | adapter.HasSurfaceID |
		adapter.HasBeginMach | adapter.HasEndMach | adapter.HasPreviousMach | adapter.HasRefreshIntervalMach | adapter.HasBufferCount |
		adapter.HasSkipRequest | adapter.HasTimebase | adapter.HasPresentationNs | adapter.HasFrameTime | adapter.HasQuality,
		HostNs: l.hostNs, RawSequence: l.seq, SessionID: "5f0c", Schema: "perfowl.display-frame-event/2", Source: adapter.SourceGoIOS,
		Target: l.binding.Target, SourceEpoch: l.binding.SourceEpoch, ReconnectGeneration: l.binding.ReconnectGeneration,
		Policy: "p95-window-segment.v2", SwapID: l.seq, FrameSeed: l.seq, DisplayID: l.binding.PrimaryDisplayID,
		BeginMach: l.endMach - 20_000_000, Timebase: l.binding.Timebase, BufferCount: 2, Quality: adapter.QualityValid, Decoded: true, Verified: true}
	at(l.endMach, frameNs)(&r)
	return r
}

// at gives a record an end and a frame time, in ticks that are nanoseconds.
func at(endMach, frameNs int64) func(*adapter.Record) {
	return func(r *adapter.Record) {
		r.EndMach, r.PreviousMach = endMach, endMach-frameNs
		r.PresentationNs, r.FrameTimeNs = endMach, frameNs
	}
}

func withQuality(q adapter.Quality) func(*adapter.Record) {
	return func(r *adapter.Record) {
		r.Quality = q
		r.Fields &^= adapter.HasFrameTime
		r.FrameTimeNs = 0
	}
}

func without(f adapter.Fields) func(*adapter.Record) {
	return func(r *adapter.Record) { r.Fields &^= f }
}

// frame records the next frame, changed by the edits.
func (l *lab) frame(edits ...func(*adapter.Record)) adapter.Record {
	r := l.next()
	for _, edit := range edits {
		edit(&r)
	}
	l.Record(&r)
	return r
}

func (l *lab) frames(n int) {
	for range n {
		l.frame()
	}
}

// publish publishes at the moment of the last event.
func (l *lab) publish() p95.Receipt { return l.publishAt(max(l.hostNs, l.lastN+1)) }

func (l *lab) publishAt(nowNs int64) (r p95.Receipt) {
	l.Publish(nowNs, p95.Int{}, &r)
	l.lastN = max(l.lastN, nowNs)
	return r
}

// outcome is what most tests look at.
type outcome struct {
	quality p95.Quality
	n       int64
	segment int64
	cleared p95.ClearReason
}

func (l *lab) expect(want outcome) {
	l.t.Helper()
	l.expectOf(l.publish(), want)
}

func (l *lab) expectOf(r p95.Receipt, want outcome) {
	l.t.Helper()
	if got := (outcome{r.Quality, r.N.N, r.Segment, r.LastClear.Reason}); got != want {
		l.t.Errorf("got %+v, want %+v", got, want)
	}
}

// expectNothingChanged runs change between two publications and expects the second to tell the same as the first.
func (l *lab) expectNothingChanged(change func()) {
	l.t.Helper()
	before := l.publish()
	change()
	after := l.publishAt(before.HostNs + 1)
	before.HostNs++
	if before.WindowRightNs.Known {
		before.WindowLeftNs.N++
		before.WindowRightNs.N++
	}
	if before.ClockBridge.AgeLowerBoundNs.Known {
		before.ClockBridge.AgeLowerBoundNs.N++
	}
	if field, got, want := after.Diff(&before); field != "" {
		l.t.Errorf("%s changed: got %s, want %s", field, got, want)
	}
}

func null() p95.Int      { return p95.Int{} }
func is(n int64) p95.Int { return p95.Int{N: n, Known: true} }
func rebound(edit func(*adapter.Binding)) func(l *lab) {
	return func(l *lab) {
		b := l.binding
		edit(&b)
		l.bind(b)
	}
}
