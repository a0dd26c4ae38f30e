package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/internal/capture"
	"github.com/framebridge/framebridge/internal/sim/scene"
	"github.com/framebridge/framebridge/internal/sim/tapenc"
	"github.com/framebridge/framebridge/ledger"
	"github.com/framebridge/framebridge/p95"
)

// sceneSpec is one of the scenes of p95-window.md, Cost gates.
type sceneSpec struct {
	Name, What string
	Seconds    int   // of 120 Hz
	Records    int64 // where not all of them
	EachRecord bool  // a publication is computed after each record, and not encoded; else each second, and encoded
	Runs       int
	Gate, Aim  ratio
}

var scenes = []sceneSpec{
	{"a", "50,000 records, a publication computed after each", 420, 50_000, true, 25, ratio{115, 100}, ratio{110, 100}},
	{"b", "120 Hz for 600 s, a publication computed and encoded each second", 600, 0, false, 15, ratio{115, 100}, ratio{102, 100}},
	{"c", "120 Hz for 3600 s, a publication computed and encoded each second", 3600, 0, false, 7, ratio{115, 100}, ratio{102, 100}},
}

// mode is what of the figures a run computes.
type mode string

const (
	none mode = "none" // nothing is computed or published
	off  mode = "off"  // the other display figures
	on   mode = "on"   // the P95 too
)

const (
	startNs  = 90_000_000_000 // host time of the first payload's connection
	secondNs = 1_000_000_000
)

// input is a tap's payloads, made once for all runs of a scene.
type input struct{ wire []byte }

func newInput(s sceneSpec, release string) (*input, error) {
	spec, err := scene.Parse([]byte("[{for: 10h, hz: 120}]"))
	if err != nil {
		return nil, err
	}
	os, err := scene.ParseOS(release)
	if err != nil {
		return nil, err
	}
	var wire bytes.Buffer
	_, err = tapenc.WriteWire(&wire, io.Discard, tapenc.WireConfig{Spec: spec, OS: os, Duration: time.Duration(s.Seconds) * time.Second, HostNs: startNs + 1,
		Tap: tapenc.Config{Filter: tapenc.Filter{Subsystems: []string{"com.apple.coreanimation"}, Categories: []string{"IOMFBServer", "IOMFBServer.Stalls"}}}})
	return &input{wire.Bytes()}, err
}

// publications is about how many there are in a run of s.
func (in *input) publications(s sceneSpec) int64 { return max(s.Records, int64(s.Seconds)) + 1 }

// lines encodes a recording's lines, and keeps none.
type lines struct {
	line    []byte
	seq     int64
	records int64
	limit   int64  // of records; 0: none
	between func() // called where a record is about to be written, for the one before it
	lastNs  int64  // of the last record
}

func (l *lines) Append(e *ledger.Event) error {
	l.seq++
	e.Seq = l.seq
	l.line = ledger.AppendLine(l.line[:0], e)
	if r, ok := e.Value.(*adapter.Record); ok {
		if l.records > 0 && l.between != nil {
			l.between()
		}
		l.records++
		l.lastNs = r.HostNs
		if l.records == l.limit {
			return errEnough
		}
	}
	return nil
}

func (l *lines) AppendWire(int64, []byte) error { return nil }

var errEnough = fmt.Errorf("enough records")

// stopwatch times each publication without its encoding.
type stopwatch struct{ took []int64 }

// outcome is a run's figures, and what came out of it.
type outcome struct {
	figures runFigures
	records int64
}

// run takes the input through the pipeline once. With a stopwatch publications are timed one by one and never encoded, which makes the
// run's own times useless.
func (in *input) run(s sceneSpec, m mode, watch *stopwatch) (outcome, error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)

	out := &lines{line: make([]byte, 0, 8<<10), limit: s.Records}
	var meter *p95.Meter
	if m != none {
		meter = p95.NewMeter(m == on)
	}
	recorder := capture.NewRecorder(out, adapter.New(adapter.SourceGoIOS, "5f0cfb4e-0d0e-4c52-9a66-1d1b2c3d4e5f", adapter.PolicyP95), meter, false)
	recorder.Bind(startNs, adapter.Binding{Target: adapter.Target{BundleID: "com.example.app", PID: 266, Generation: 1}, SourceEpoch: 1, PrimaryDisplayID: 1,
		Timebase: adapter.Timebase{Numer: 125, Denom: 3}})
	recorder.Foreground(startNs, true, "launch")
	var receipt p95.Receipt
	publications := int64(0)
	compute := func(nowNs int64, dueNs p95.Int) {
		publications++
		if watch == nil {
			meter.Publish(nowNs, dueNs, &receipt)
			return
		}
		began := time.Now()
		meter.Publish(nowNs, dueNs, &receipt)
		watch.took = append(watch.took, int64(time.Since(began)))
	}
	if s.EachRecord && m != none {
		out.between = func() { compute(out.lastNs, p95.Int{}) }
	}

	cpu, wall := cpuNs(), time.Now()
	dueNs := int64(startNs + secondNs)
	for rest := in.wire; len(rest) > 0 && recorder.Err() == nil; {
		size, arrivalNs := binary.LittleEndian.Uint32(rest), int64(binary.LittleEndian.Uint64(rest[4:]))
		payload := rest[12 : 12+size]
		rest = rest[12+size:]
		for ; !s.EachRecord && m != none && arrivalNs >= dueNs; dueNs += secondNs {
			if watch != nil {
				compute(dueNs, p95.Of(dueNs))
				continue
			}
			publications++
			receipt = *recorder.Publish(p95.Of(dueNs), dueNs)
		}
		recorder.Payload(arrivalNs, payload)
	}
	o := outcome{figures: runFigures{Mode: m, WallNs: int64(time.Since(wall)), CPUNs: cpuNs() - cpu}, records: out.records}

	runtime.ReadMemStats(&after)
	o.figures.Allocations, o.figures.AllocatedBytes = int64(after.Mallocs-before.Mallocs), int64(after.TotalAlloc-before.TotalAlloc)
	runtime.GC()
	runtime.ReadMemStats(&after)
	o.figures.LiveBytes = int64(after.HeapAlloc) - int64(before.HeapAlloc)
	runtime.KeepAlive(recorder)
	o.figures.Publications = publications
	switch {
	case recorder.Err() != nil && recorder.Err() != errEnough:
		return o, recorder.Err()
	case out.records == 0, s.Records > 0 && out.records != s.Records:
		return o, fmt.Errorf("%d records came out, expected %d", out.records, s.Records)
	case m == on && (receipt.Quality != p95.Valid || receipt.N.N < 1150):
		return o, fmt.Errorf("the last publication is %s over %d values: this is not the work that was to be measured", receipt.Quality, receipt.N.N)
	}
	return o, nil
}

// cpuNs is this process's CPU time so far, all threads, user and system.
func cpuNs() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// figures are of the publications that were timed.
func (w *stopwatch) figures() publicationFigures {
	p := publicationFigures{Count: int64(len(w.took)), FirstNs: w.took[0]}
	for _, t := range w.took {
		p.MeanNs += float64(t) / float64(len(w.took))
	}
	sorted := slices.Sorted(slices.Values(w.took))
	p.P95Ns, p.MaxNs = sorted[(95*len(sorted)+99)/100-1], sorted[len(sorted)-1]
	return p
}
