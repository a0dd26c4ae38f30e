package capture

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/dtx/tap"
	"github.com/framebridge/framebridge/ledger"
	"github.com/framebridge/framebridge/p95"
)

// Identities are what the records of a wire file are marked with.
type Identities struct {
	SessionID string
	Policy    string
	Channel   int64
	// Binds are in the order of their times; each holds for the payloads that came after it.
	Binds []Bind
}

// Bind is a target.bind and its time.
type Bind struct {
	HostNs  int64
	Binding adapter.Binding
}

const decodeAlone = "decode the wire file alone, from another directory"

// ReadIdentities takes the identities from the event log that was recorded beside a wire file. A line that cannot be read and may have
// been one of them is an error: without it, records would carry another's.
func ReadIdentities(path string) (*Identities, error) {
	log, err := ledger.OpenLog(path)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	ids := &Identities{}
	seen := false
	var e ledger.Event
	for {
		err := log.Next(&e)
		var bad *ledger.LineError
		switch {
		case errors.Is(err, io.EOF):
			return ids, nil
		case errors.As(err, &bad) && (bad.Fault == ledger.FaultTorn || !identifies(bad.Type)):
			continue
		case bad != nil:
			return nil, fmt.Errorf("%w; it may have said to whom payloads belong; %s", bad, decodeAlone)
		case err != nil:
			return nil, err
		}
		switch v := e.Value.(type) {
		case *ledger.Start:
			ids.SessionID, ids.Policy = v.SessionID, v.Policy
		case *adapter.Binding:
			ids.Binds = append(ids.Binds, Bind{e.HostNs, *v})
		case *adapter.Record:
			if !seen {
				ids.Channel, seen = v.Source.Channel, true
			}
		}
	}
}

// identifies reports whether lines of that type tell identities, or may: "" is not known.
func identifies(t ledger.Type) bool {
	return t == "" || t == ledger.TypeSessionStart || t == ledger.TypeTargetBind
}

// Decode writes the lines that the payloads of a wire file make. Without identities (nil) the target is not known, each connection is
// an epoch, from 1, and there is no policy mark. The wire's torn tail is an error, after everything before it was decoded.
func Decode(wire io.Reader, timebase adapter.Timebase, ids *Identities, log Log) (*adapter.Adapter, error) {
	contract := adapter.SourceGoIOS
	binding := adapter.Binding{SourceEpoch: 1, Timebase: timebase}
	var sessionID, policy string
	var binds []Bind
	if ids != nil {
		contract.Channel, sessionID, policy, binds = ids.Channel, ids.SessionID, ids.Policy, ids.Binds
		if len(binds) == 0 {
			return nil, errors.New("the event log beside the wire file binds no target; " + decodeAlone)
		}
	}
	a := adapter.New(contract, sessionID, policy)
	r := NewRecorder(log, a, nil, false)
	if ids == nil {
		if err := a.Bind(binding); err != nil {
			return a, err
		}
	}
	in := tap.NewWireReader(wire)
	bound := ids == nil
	for first := true; ; first = false {
		at := in.Offset()
		w, err := in.Next()
		if errors.Is(err, io.EOF) {
			r.EndConnection(0)
			return a, r.Err()
		}
		if err != nil {
			r.EndConnection(0)
			return a, errors.Join(err, r.Err())
		}
		if len(w.Payload) == 0 {
			r.EndConnection(w.HostNs)
			if ids == nil && !first {
				binding.SourceEpoch++
				if err := a.Bind(binding); err != nil {
					return a, err
				}
			}
			continue
		}
		for len(binds) > 0 && binds[0].HostNs < w.HostNs {
			if err := a.Bind(binds[0].Binding); err != nil {
				return a, err
			}
			binds, bound = binds[1:], true
		}
		if !bound {
			return a, fmt.Errorf("the payload at byte %d of the wire file came at host time %d ns, before the first target.bind of the event log beside it, "+
				"at %d ns: the two are of different recordings, or the log has lost a line; %s", at, w.HostNs, binds[0].HostNs, decodeAlone)
		}
		r.Payload(w.HostNs, w.Payload)
		if r.Err() != nil {
			return a, r.Err()
		}
	}
}

// Lines is a Log that writes lines to a stream, numbered from 1.
type Lines struct {
	W   io.Writer
	seq int64
	buf []byte
}

func (l *Lines) Append(e *ledger.Event) error {
	l.seq++
	e.Seq = l.seq
	l.buf = ledger.AppendLine(l.buf[:0], e)
	_, err := l.W.Write(l.buf)
	return err
}

func (l *Lines) AppendWire(int64, []byte) error { return nil }

// BesideWire is the event log beside a wire file, "" where there is none.
func BesideWire(dir string) string {
	for _, name := range []string{ledger.EventsName, ledger.CompressedName} {
		if _, err := os.Stat(dir + "/" + name); err == nil {
			return dir
		}
	}
	return ""
}

// Import writes an imported recording into a session that has its session.start, and seals it. It has no arrivals: times are presentation times,
// and publications stand a second apart from the first record on, and one after the last.
func Import(recording *adapter.XctraceRecording, start ledger.Start, firstNs int64, session *ledger.Session) (*ledger.Manifest, error) {
	meter := p95.NewMeter(true)
	r := NewRecorder(session, adapter.New(adapter.SourceXctrace, start.SessionID, start.Policy), meter, false)
	r.lastNs = firstNs
	r.Bind(firstNs, recording.Binding())
	r.Foreground(firstNs, true, "import")
	nextNs := firstNs + int64(publishEvery)
	counts, err := recording.Records(start.SessionID, start.Policy, func(rec *adapter.Record) error {
		for ; rec.HostNs > nextNs && r.err == nil; nextNs += int64(publishEvery) {
			r.Publish(p95.Of(nextNs), nextNs)
		}
		(*rows)(r).Record(rec)
		return r.err
	})
	if err == nil {
		r.Publish(p95.Int{}, r.lastRecordNs+1)
		err = r.err
	}
	state, reason := ledger.StateComplete, ""
	if err != nil {
		state, reason = ledger.StatePartial, err.Error()
	}
	manifest, sealErr := session.Seal(r.lastNs, state, reason, extra(counts), false)
	return manifest, errors.Join(err, sealErr)
}
