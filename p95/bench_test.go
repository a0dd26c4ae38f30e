package p95

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/framebridge/framebridge/adapter"
)

// The cost of the window: records at a steady pace that keeps k values in ten seconds, with frame times in the patterns that are
// best and worst for a sorted structure.

const (
	benchRecords  = 1 << 16
	benchInterval = 200_000 // ticks: 120 Hz
)

var benchBinding = adapter.Binding{Target: adapter.Target{BundleID: "com.example.app", PID: 431, Generation: 1}, SourceEpoch: 1, PrimaryDisplayID: 1,
	Timebase: adapter.Timebase{Numer: 125, Denom: 3}}

// benchPatterns give the i-th frame time in ticks.
var benchPatterns = []struct {
	name  string
	ticks func(i int, rng *rand.Rand) int64
}{
	{"same", func(int, *rand.Rand) int64 { return benchInterval }},
	{"near120Hz", func(_ int, rng *rand.Rand) int64 { return benchInterval - 500 + rng.Int64N(1000) }},
	{"distinct", func(_ int, rng *rand.Rand) int64 { return 1 + rng.Int64N(26_000_000) }},
	{"ascending", func(i int, _ *rand.Rand) int64 { return 1 + int64(i)*390 }},
	{"descending", func(i int, _ *rand.Rand) int64 { return 1 + int64(benchRecords-i)*390 }},
	{"extremes", func(i int, _ *rand.Rand) int64 { return 13_000_000 + int64(i)*190*int64(1-2*(i%2)) }},
	// Leaves are filled in one place and emptied in another, so that they split and merge as often as they can.
	{"sawtooth", func(i int, _ *rand.Rand) int64 { return 1 + int64(i%97)*260_000 + int64(i/97) }},
}

type benchFrame struct{ end, ticks, presentationNs, frameTimeNs, multiple int64 }

func benchFrames(k int, ticks func(int, *rand.Rand) int64) []benchFrame {
	rng := rand.New(rand.NewPCG(1, 2))
	timebase := benchBinding.Timebase
	frames := make([]benchFrame, benchRecords)
	step := (240_000_000 + int64(k) - 1) / int64(k) // ticks; 240,000,000 are ten seconds
	for i := range frames {
		f := &frames[i]
		f.end, f.ticks = 60_000_000_000+int64(i+1)*step, ticks(i, rng)
		f.presentationNs, _ = timebase.Ns(f.end)
		f.frameTimeNs, _ = timebase.Ns(f.ticks)
		f.multiple = natural{lo: uint64(f.ticks)}.times(1000).over(benchInterval).N
	}
	return frames
}

// benchStream hands out a record after another, and binds anew when the frames are used up.
type benchStream struct {
	frames []benchFrame
	next   int
	b      adapter.Binding
	meter  *Meter
	hostNs int64
	record adapter.Record
}

func newBenchStream(p95 bool, frames []benchFrame) *benchStream {
	s := &benchStream{frames: frames, b: benchBinding, meter: NewMeter(p95), next: len(frames)}
	s.record = adapter.Record{
		Fields: validFields | adapter.HasSource | adapter.HasFrameTime | adapter.HasRefreshMultiple, Schema: adapter.RecordSchema, Source: adapter.SourceGoIOS,
		Target: s.b.Target, SourceEpoch: 1, Policy: adapter.PolicyP95, DisplayID: 1, RefreshIntervalMach: benchInterval, BufferCount: 2,
		Timebase: s.b.Timebase, Quality: adapter.QualityValid, Decoded: true, Verified: true,
	}
	return s
}

// advance makes the next record, and restarts with a window that is full.
func (s *benchStream) advance() {
	if s.next == len(s.frames) {
		s.next = 0
		s.b.ReconnectGeneration++
		s.record.ReconnectGeneration = s.b.ReconnectGeneration
		s.meter.Bind(s.b, s.hostNs)
		s.meter.SetForeground(true, s.hostNs)
	}
	f := &s.frames[s.next]
	s.next++
	s.hostNs += 1_000_000
	r := &s.record
	r.HostNs, r.RawSequence = s.hostNs, r.RawSequence+1
	r.EndMach, r.PreviousMach, r.BeginMach = f.end, f.end-f.ticks, f.end-500_000
	r.PresentationNs, r.FrameTimeNs, r.RefreshMultipleMilli = f.presentationNs, f.frameTimeNs, f.multiple
}

func (s *benchStream) fill(b *testing.B, k int) {
	var out Receipt
	for range k {
		s.advance()
		s.meter.Record(&s.record)
	}
	s.meter.Publish(s.hostNs, Int{}, &out)
	if s.meter.p95 && (out.Quality != Valid || out.N.N < int64(k)-1) {
		b.Fatalf("the window is to hold %d values: %+v", k, out)
	}
}

func BenchmarkRecord(b *testing.B) {
	for _, k := range []int{1200, 4096} {
		for _, pattern := range benchPatterns {
			frames := benchFrames(k, pattern.ticks)
			for _, p95 := range []bool{false, true} {
				b.Run(fmt.Sprintf("k=%d/%s/p95=%t", k, pattern.name, p95), func(b *testing.B) {
					s := newBenchStream(p95, frames)
					s.fill(b, k)
					b.ReportAllocs()
					for b.Loop() {
						s.advance()
						s.meter.Record(&s.record)
					}
				})
			}
		}
	}
}

// BenchmarkRecordAndPublish is a publication after each record: the difference from BenchmarkRecord is the publication.
func BenchmarkRecordAndPublish(b *testing.B) {
	for _, k := range []int{1200, 4096} {
		for _, pattern := range benchPatterns {
			frames := benchFrames(k, pattern.ticks)
			// A batch arrives every 100 ms; just before one is late by a second, the window is 9 s of what is held.
			for _, lagNs := range []int64{20_000, 100_000_000, 1_000_000_000} {
				b.Run(fmt.Sprintf("k=%d/%s/lag=%dus", k, pattern.name, lagNs/1000), func(b *testing.B) {
					s := newBenchStream(true, frames)
					s.fill(b, k)
					var out Receipt
					b.ReportAllocs()
					for b.Loop() {
						s.advance()
						s.meter.Record(&s.record)
						s.meter.Publish(s.hostNs+lagNs, Int{}, &out)
					}
				})
			}
		}
	}
}
