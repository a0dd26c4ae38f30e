// Package replay recomputes a session's publications from the events that were recorded.
package replay

import (
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/ledger"
	"github.com/framebridge/framebridge/p95"
)

// Log yields a session's events; *ledger.Log is one.
type Log interface {
	Next(*ledger.Event) error
	Line() int64
}

// Difference is a publication that is not what was recorded.
type Difference struct {
	Line      int64
	Seq       int64
	Field     string
	Got, Want string // recorded, and recomputed
}

func (d *Difference) Error() string {
	return fmt.Sprintf("line %d (seq %d): %s was recorded as %s, the events give %s", d.Line, d.Seq, d.Field, d.Got, d.Want)
}

// Fault is something in the log that a recording of this program does not have: a refused bind, a line that cannot be read.
type Fault struct {
	Line int64
	Err  error
}

// Result says what a replay went through.
type Result struct {
	Events, Records, Publications int64
	Faults                        []Fault // at most MaxFaults
	FaultCount                    int64
	Torn                          bool // the last fault is a torn last line: its writer was killed, and nothing follows it
}

// MaxFaults bounds the faults that are kept.
const MaxFaults = 100

// maxSilence bounds how many publications are computed between two events: a month of seconds. A damaged time could ask for any number.
const maxSilence = 31 * 24 * 3600

func (r *Result) fault(line int64, err error) {
	r.FaultCount++
	if len(r.Faults) < MaxFaults {
		r.Faults = append(r.Faults, Fault{line, err})
	}
}

// Options choose what a replay yields.
type Options struct {
	// EveryNs, where positive, publishes at that interval from the first event on instead of where the recording did.
	EveryNs int64
	// Check compares with the recorded publications and ends with the first *Difference.
	Check bool
	// Publication is called with each recomputed publication and, where it stands for a recorded one, with its seq (else 0).
	Publication func(seq int64, r *p95.Receipt) error
}

// Run replays a log to its end.
func Run(log Log, o Options) (*Result, error) {
	result := &Result{}
	meter := p95.NewMeter(true)
	var e ledger.Event
	var receipt p95.Receipt
	var nextNs int64
	publish := func(seq, nowNs int64, dueNs p95.Int) error {
		meter.Publish(nowNs, dueNs, &receipt)
		result.Publications++
		if o.Publication == nil {
			return nil
		}
		return o.Publication(seq, &receipt)
	}
	for {
		err := log.Next(&e)
		var bad *ledger.LineError
		switch {
		case errors.Is(err, io.EOF):
			return result, nil
		case errors.As(err, &bad):
			result.fault(bad.Line, bad)
			result.Torn = bad.Fault == ledger.FaultTorn
			meter.Gap(p95.Int{})
			continue
		case err != nil:
			return result, err
		}
		result.Events++
		if o.EveryNs > 0 {
			if result.Events == 1 {
				nextNs = later(e.HostNs, o.EveryNs)
			}
			if silenceNs := uint64(e.HostNs) - uint64(nextNs); e.HostNs > nextNs && silenceNs/uint64(o.EveryNs) > maxSilence {
				return result, fmt.Errorf("line %d: %d ns without an event before it; at most %d publications are computed for one such silence", log.Line(), silenceNs, maxSilence)
			}
			for ; e.HostNs > nextNs; nextNs = later(nextNs, o.EveryNs) {
				if err := publish(0, nextNs, p95.Of(nextNs)); err != nil {
					return result, err
				}
			}
		}
		switch v := e.Value.(type) {
		case *adapter.Binding:
			if _, err := meter.Bind(*v, e.HostNs); err != nil {
				result.fault(log.Line(), err)
			}
		case *ledger.TargetState:
			meter.SetForeground(v.Foreground, e.HostNs)
		case *p95.ClockBridge:
			meter.Bridge(*v)
		case *adapter.Record:
			result.Records++
			meter.Record(v)
		case *ledger.SourceGap:
			meter.Gap(p95.Of(e.HostNs))
		case *p95.Receipt:
			if o.EveryNs > 0 {
				continue
			}
			recorded := *v
			if err := publish(e.Seq, recorded.HostNs, recorded.DueNs); err != nil {
				return result, err
			}
			if field, got, want := recorded.Diff(&receipt); o.Check && field != "" {
				return result, &Difference{log.Line(), e.Seq, field, got, want}
			}
		}
	}
}

// later is ns + byNs, and the end of time where there is no such time: nothing comes after it.
func later(ns, byNs int64) int64 {
	if ns > math.MaxInt64-byNs {
		return math.MaxInt64
	}
	return ns + byNs
}
