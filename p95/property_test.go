package p95_test

import (
	"math"
	"math/big"
	"testing"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/p95"
	"pgregory.net/rapid"
)

// pair feeds the same events to a meter with P95, to one without, and to the model.
type pair struct {
	on, off *p95.Meter
	model   *model
	// What a well-behaved source would say next.
	b              adapter.Binding
	seq, host, end int64
	now            int64
}

var boundaries = rapid.SampledFrom([]int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, 2, 1 << 31, 1 << 32, math.MaxInt64 - 1, math.MaxInt64})

// ticks are so many nanoseconds, rounded down.
func (p *pair) ticks(ns int64) int64 { return ns * p.b.Timebase.Denom / p.b.Timebase.Numer }

func (p *pair) bind(t *rapid.T) {
	b := p.b
	for range rapid.IntRange(0, 2).Draw(t, "changes") {
		switch rapid.IntRange(0, 8).Draw(t, "change") {
		case 0:
			b.Target.Generation++
		case 1:
			b.Target.PID = rapid.Int64Range(1, 3).Draw(t, "pid")
		case 2:
			b.Target.BundleID = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "bundle")
		case 3:
			b.SourceEpoch += rapid.Int64Range(-1, 2).Draw(t, "epoch")
		case 4:
			b.ReconnectGeneration += rapid.Int64Range(-1, 2).Draw(t, "reconnect")
		case 5:
			b.PrimaryDisplayID = rapid.Int64Range(0, 2).Draw(t, "display")
		case 6:
			b.Timebase = rapid.SampledFrom([]adapter.Timebase{{Numer: 125, Denom: 3}, {Numer: 1, Denom: 1}, {Numer: 1, Denom: 3}, {Numer: 1, Denom: 30_000}}).Draw(t, "timebase")
		case 7:
			b.Timebase.Numer = rapid.Int64Range(-1, 1).Draw(t, "numer")
		case 8:
			b.SourceEpoch = boundaries.Draw(t, "epoch")
		}
	}
	p.bindTo(t, b)
}

func (p *pair) bindTo(t *rapid.T, b adapter.Binding) {
	_, err := p.on.Bind(b, p.host)
	p.off.Bind(b, p.host)
	ok := p.model.bind(b, p.host)
	if ok != (err == nil) {
		t.Fatalf("bind %+v after %+v: got %v, the model says %t", b, p.b, err, ok)
	}
	if ok && b != p.b {
		p.b = b
		p.end = p.ticks(p.end%1_000_000_000 + 50_000_000_000)
	}
}

// frame is the next frame of a well-behaved source.
func (p *pair) frame(afterNs, frameNs, lifetimeNs int64) adapter.Record {
	p.seq++
	p.host += max(afterNs, 1)
	p.end += max(p.ticks(afterNs), 1)
	r := adapter.Record{Fields: math.MaxUint64, HostNs: p.host, RawSequence: p.seq, Schema: "perfowl.display-frame-event/2", Source: adapter.SourceGoIOS,
		Target: p.b.Target, SourceEpoch: p.b.SourceEpoch, ReconnectGeneration: p.b.ReconnectGeneration, Policy: "p95-window-segment.v2",
		DisplayID: p.b.PrimaryDisplayID, Timebase: p.b.Timebase, EndMach: p.end, PreviousMach: p.end - max(p.ticks(frameNs), 1),
		BeginMach: p.end - p.ticks(lifetimeNs), RefreshIntervalMach: p.ticks(8_333_333), BufferCount: 2, Quality: adapter.QualityValid, Decoded: true, Verified: true}
	figures(&r)
	return r
}

// figures makes a record's figures right, as far as they can be.
func figures(r *adapter.Record) {
	if ns := modelNs(r.EndMach, r.Timebase); ns != nil {
		r.PresentationNs = ns.Int64()
	}
	if ns := modelNs(r.EndMach-r.PreviousMach, r.Timebase); ns != nil {
		r.FrameTimeNs = ns.Int64()
	}
	r.Fields &^= adapter.HasRefreshMultiple
	if r.RefreshIntervalMach > 0 && r.EndMach > r.PreviousMach {
		r.Fields |= adapter.HasRefreshMultiple
		r.RefreshMultipleMilli = asInt(halfEven(new(big.Int).Mul(big.NewInt(r.EndMach-r.PreviousMach), big.NewInt(1000)), big.NewInt(r.RefreshIntervalMach))).N
	}
}

func (p *pair) record(r adapter.Record) {
	p.on.Record(&r)
	p.off.Record(&r)
	p.model.record(r)
}

func drawFrame(t *rapid.T, p *pair) adapter.Record {
	after := rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(8_000_000, 17_000_000), rapid.Int64Range(0, 12_000_000_000),
		rapid.SampledFrom([]int64{1_000_000_000, 10_000_000_000, 9_999_999_999})).Draw(t, "after")
	frame := rapid.OneOf(rapid.Int64Range(1, 20), rapid.Int64Range(8_000_000, 8_700_000), rapid.Int64Range(1, 1_100_000_002)).Draw(t, "frame")
	return p.frame(after, frame, rapid.Int64Range(-10, 60_000_000).Draw(t, "lifetime"))
}

// spoil changes a record in one of the ways in which records go wrong.
func spoil(t *rapid.T, r *adapter.Record) {
	n := func() int64 { return boundaries.Draw(t, "n") }
	near := func(was int64) int64 { return was + rapid.Int64Range(-2, 2).Draw(t, "by") }
	switch rapid.IntRange(0, 29).Draw(t, "spoil") {
	case 0:
		r.Fields &^= 1 << rapid.IntRange(0, 28).Draw(t, "field")
	case 1:
		r.Policy = rapid.SampledFrom([]string{"", "p95-window-segment.v1"}).Draw(t, "policy")
	case 2:
		r.DisplayID = rapid.Int64Range(0, 2).Draw(t, "display")
	case 3:
		r.Quality = adapter.Quality(rapid.IntRange(0, 7).Draw(t, "quality"))
		if r.Quality == adapter.QualityUnknown {
			r.Fields &^= adapter.HasQuality
		}
	case 4:
		r.Schema = "else"
	case 5:
		r.Source = rapid.SampledFrom([]adapter.Source{adapter.SourcePMD3, adapter.SourceXctrace, {}}).Draw(t, "source")
	case 6:
		r.Decoded = false
	case 7:
		r.Verified = false
	case 8:
		r.SourceEpoch = near(r.SourceEpoch)
	case 9:
		r.ReconnectGeneration = near(r.ReconnectGeneration)
	case 10:
		r.Target.Generation = near(r.Target.Generation)
	case 11:
		r.Timebase.Denom = near(r.Timebase.Denom)
	case 12:
		r.RawSequence = near(r.RawSequence)
	case 13:
		r.HostNs = near(r.HostNs)
	case 14:
		r.PresentationNs = near(r.PresentationNs)
	case 15:
		r.FrameTimeNs = near(r.FrameTimeNs)
	case 16:
		r.RefreshMultipleMilli = near(r.RefreshMultipleMilli)
	case 17:
		r.InexactFigures = true
	case 18:
		r.EndMach -= rapid.Int64Range(0, 3_000_000_000).Draw(t, "back")
		figures(r)
	case 19:
		r.PreviousMach = n()
	case 20:
		r.EndMach = n()
		figures(r)
	case 21:
		r.BeginMach = n()
	case 22:
		r.RefreshIntervalMach = n()
		figures(r)
	case 23:
		r.BufferCount = n()
	case 24:
		r.SkipRequest = n()
	case 25:
		r.HostNs = n()
	case 26:
		r.RawSequence = n()
	case 27:
		r.PreviousMach = near(r.PreviousMach)
		figures(r)
	case 28:
		r.RefreshIntervalMach = 0
		figures(r)
	case 29:
		r.PresentationNs = n()
	}
}

func (p *pair) publish(t *rapid.T, nowNs int64) {
	due := p95.Int{N: nowNs, Known: rapid.Bool().Draw(t, "due")}
	if !due.Known {
		due.N = 0
	}
	var got, off p95.Receipt
	p.on.Publish(nowNs, due, &got)
	p.off.Publish(nowNs, due, &off)
	want := p.model.publish(nowNs, due)
	p.now = max(p.now, nowNs)
	if field, g, w := got.Diff(&want); field != "" {
		t.Fatalf("%s: got %s, the model says %s", field, g, w)
	}
	if got != want {
		t.Fatalf("got %+v, the model says %+v", got, want)
	}
	// N below the latest arrival is a host regression only where the P95 knows an H; no live recorder writes one.
	beforeLatest := len(p.model.frames) > 0 && nowNs < p.model.frames[len(p.model.frames)-1].r.HostNs
	if got.Other != off.Other && !beforeLatest {
		t.Fatalf("other figures: %+v with P95, %+v without", got.Other, off.Other)
	}
	line := got.AppendJSON(nil, 1)
	if _, back, err := p95.ParseReceipt(line); err != nil || back != got {
		t.Fatalf("%s read back as %+v, %v", line, back, err)
	}
}

func TestMeterAgreesWithTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &pair{on: p95.NewMeter(true), off: p95.NewMeter(false), model: newModel(), host: 1_000_000_000_000, now: math.MinInt64}
		start := adapter.Binding{Target: adapter.Target{BundleID: "a", PID: 1, Generation: 1}, SourceEpoch: 1, PrimaryDisplayID: 1, Timebase: adapter.Timebase{Numer: 125, Denom: 3}}
		p.b.Timebase = start.Timebase
		if rapid.IntRange(0, 9).Draw(t, "bound") > 0 {
			p.bindTo(t, start)
			p.on.SetForeground(true, p.host)
			p.off.SetForeground(true, p.host)
			p.model.state(true, p.host)
		}
		var old []adapter.Record
		record := func(r adapter.Record) {
			p.record(r)
			old = append(old[max(0, len(old)-20):], r)
		}
		good := func(t *rapid.T) {
			for range rapid.IntRange(1, 12).Draw(t, "frames") {
				record(drawFrame(t, p))
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"good frames":      good,
			"more good frames": good,
			"steady frames": func(t *rapid.T) {
				every := rapid.SampledFrom([]int64{8_333_333, 16_666_666, 2_441_407}).Draw(t, "every")
				for range rapid.IntRange(1, 300).Draw(t, "frames") {
					record(p.frame(every, every, 20_000_000))
				}
			},
			"flood": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "really") > 0 {
					return
				}
				for i := range rapid.Int64Range(4000, 4200).Draw(t, "frames") {
					record(p.frame(rapid.SampledFrom([]int64{1_000_000, 2_441_407}).Draw(t, "every"), 1+i*7919%100_000, 20_000_000))
				}
			},
			"spoilt frame": func(t *rapid.T) {
				r := drawFrame(t, p)
				for range rapid.IntRange(1, 2).Draw(t, "faults") {
					spoil(t, &r)
				}
				record(r)
			},
			"old frames again": func(t *rapid.T) {
				for i := range old {
					p.record(old[i])
				}
			},
			"bind": p.bind,
			"state": func(t *rapid.T) {
				in := rapid.IntRange(0, 7).Draw(t, "in") > 0
				p.on.SetForeground(in, p.host)
				p.off.SetForeground(in, p.host)
				p.model.state(in, p.host)
			},
			"gap": func(t *rapid.T) {
				host := p95.Int{}
				if rapid.Bool().Draw(t, "readable") {
					host = known(p.host)
				}
				p.on.Gap(host)
				p.off.Gap(host)
				p.model.gap(host)
			},
			"bridge": func(t *rapid.T) {
				at := func(label string) int64 {
					return rapid.OneOf(rapid.Int64Range(p.host-100_000, p.host+1000), boundaries).Draw(t, label)
				}
				b := p95.ClockBridge{HostSendNs: at("sent"), HostReceiveNs: at("received"), HasContinuous: rapid.IntRange(0, 4).Draw(t, "continuous") > 0, Timebase: p.b.Timebase}
				b.DeviceContinuousMach = rapid.OneOf(rapid.Int64Range(p.end, p.end+p.ticks(4_000_000_000)), boundaries).Draw(t, "device")
				if rapid.IntRange(0, 9).Draw(t, "odd") == 0 {
					b.Timebase.Denom = rapid.Int64Range(-1, 2).Draw(t, "denom")
				}
				p.on.Bridge(b)
				p.off.Bridge(b)
				p.model.clockBridge(b)
			},
			"publish": func(t *rapid.T) {
				if rapid.IntRange(0, 29).Draw(t, "odd") == 0 {
					p.publish(t, boundaries.Draw(t, "now"))
					return
				}
				p.publish(t, rapid.OneOf(rapid.Just(max(p.host, p.now+1)), rapid.Int64Range(p.host-3, p.host+3), rapid.Int64Range(p.host, p.host+2_000_000_000),
					rapid.SampledFrom([]int64{p.host + 1_000_000_000, p.host + 1_000_000_001, p.host - 1_000_000_000, p.now})).Draw(t, "now"))
			},
			"": func(t *rapid.T) {
				if p.now < math.MaxInt64 {
					p.publish(t, max(p.host, p.now+1))
				}
			},
		})
	})
}
