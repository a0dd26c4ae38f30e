package main

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/p95"
)

// windowFigures are of the meter alone, fed with records that are ready.
type windowFigures struct {
	At1200                    atK     `json:"at1200"`
	At4096                    atK     `json:"at4096"`
	AllocationsPerRecord      float64 `json:"allocationsPerRecord"`
	AllocationsPerPublication float64 `json:"allocationsPerPublication"`
}

// atK are those of a window that holds so many values.
type atK struct {
	Values        int64   `json:"values"`
	RecordNs      float64 `json:"recordNs"`      // through the window, beyond what the other display figures take
	OthersNs      float64 `json:"othersNs"`      // through the other display figures
	PublicationNs float64 `json:"publicationNs"` // with N at the last arrival, the other display figures included
}

const windowRecords = 1 << 16

// steady are records whose frames are as many in ten seconds as k, their times off by up to half a percent, one tick being one ns.
func steady(k int64) []adapter.Record {
	rng := rand.New(rand.NewPCG(1, uint64(k)))
	step := (10*secondNs + k - 1) / k
	refresh := step | 1 // odd, so that no multiple is halfway between two thousandths
	records := make([]adapter.Record, windowRecords)
	end := int64(100 * secondNs)
	for i := range records {
		end += step
		interval := step - step/200 + rng.Int64N(step/100)
		records[i] = adapter.Record{Fields: adapter.HasHostNs | adapter.HasRawSequence | adapter.HasSource | adapter.HasTarget | adapter.HasSourceEpoch |
			adapter.HasReconnectGeneration | adapter.HasNatives | adapter.HasDisplayID | adapter.HasTimebase | adapter.HasPresentationNs |
			adapter.HasFrameTime | adapter.HasRefreshMultiple | adapter.HasQuality,
			HostNs: end, RawSequence: int64(i + 1), Schema: adapter.RecordSchema, Source: adapter.SourceGoIOS, Target: steadyBinding.Target, SourceEpoch: 1,
			Policy: adapter.PolicyP95, DisplayID: 1, BeginMach: end - 2*step, EndMach: end, PreviousMach: end - interval, RefreshIntervalMach: refresh,
			BufferCount: 2, Timebase: steadyBinding.Timebase, PresentationNs: end, FrameTimeNs: interval,
			RefreshMultipleMilli: (2*1000*interval + refresh) / (2 * refresh), Quality: adapter.QualityValid, Decoded: true, Verified: true}
	}
	return records
}

var steadyBinding = adapter.Binding{Target: adapter.Target{BundleID: "com.example.app", PID: 266, Generation: 1}, SourceEpoch: 1, PrimaryDisplayID: 1,
	Timebase: adapter.Timebase{Numer: 1, Denom: 1}}

func measureWindow() *windowFigures {
	w := &windowFigures{}
	w.At1200, w.At4096 = w.at(steady(1200)), w.at(steady(4096))
	return w
}

// at measures with a window that is full; the first half of the records fills it.
func (w *windowFigures) at(records []adapter.Record) (f atK) {
	const rounds = 7
	var withs, withouts, publications []float64
	var receipt p95.Receipt
	for range rounds {
		for _, p95On := range [...]bool{false, true} {
			meter := p95.NewMeter(p95On)
			if _, err := meter.Bind(steadyBinding, 1); err != nil {
				panic(err) // a binding that is not one: a mistake in this file
			}
			meter.SetForeground(true, 1)
			half := len(records) / 2
			for i := range records[:half] {
				meter.Record(&records[i])
			}
			var before, between, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			began := time.Now()
			for i := half; i < len(records); i++ {
				meter.Record(&records[i])
			}
			took := float64(time.Since(began)) / float64(half)
			runtime.ReadMemStats(&between)
			last := records[len(records)-1].HostNs
			began = time.Now()
			for i := range int64(half) {
				meter.Publish(last+i, p95.Int{}, &receipt)
			}
			publishing := float64(time.Since(began)) / float64(half)
			runtime.ReadMemStats(&after)
			if !p95On {
				withouts = append(withouts, took)
				continue
			}
			withs, publications, f.Values = append(withs, took), append(publications, publishing), receipt.N.N
			w.AllocationsPerRecord = max(w.AllocationsPerRecord, float64(between.Mallocs-before.Mallocs)/float64(half))
			w.AllocationsPerPublication = max(w.AllocationsPerPublication, float64(after.Mallocs-between.Mallocs)/float64(half))
		}
	}
	f.OthersNs, f.PublicationNs = slices.Min(withouts), slices.Min(publications)
	f.RecordNs = slices.Min(withs) - f.OthersNs
	return f
}
