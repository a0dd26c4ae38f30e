package export

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/ledger"
	"github.com/framebridge/framebridge/p95"
)

// Log yields a session's events; *ledger.Log is one.
type Log interface {
	Next(*ledger.Event) error
}

// walk reads the log to its end. It hands each event to event, and what is wrong with a line to bad. Other errors of the log end it.
func walk(ctx context.Context, log Log, event func(*ledger.Event) error, bad func(*ledger.LineError) error) error {
	const eventsPerLook = 4096 // some milliseconds
	var e ledger.Event
	for i := 0; ; i++ {
		if i%eventsPerLook == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		err := log.Next(&e)
		var lineError *ledger.LineError
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.As(err, &lineError):
			err = bad(lineError)
		case err == nil:
			err = event(&e)
		}
		if err != nil {
			return err
		}
	}
}

// sink takes the rows of all tables, each table's in the order of the log. A row is only valid during the call.
type sink interface {
	// row takes a row that was made of e, nil for a line that cannot be read.
	row(e *ledger.Event, t *Table, cells []cell) error
	close() error
}

// tabulator turns events into rows.
type tabulator struct {
	sink  sink
	count map[string]int64 // rows by table
	cells []cell

	// The origins told last; an origin that was forgotten meanwhile gets another row. 16 are more than a session alternates between:
	// two categories, and one life of the target or the source after another.
	origins [16]origin
	lastID  int64
}

// emit hands on a row of a table that is made of v; e is the event that it comes from, nil for a line that cannot be read.
func emit[T any](t *tabulator, e *ledger.Event, table *rows[T], v *T) error {
	t.cells = table.append(t.cells[:0], v)
	t.count[table.Name]++
	return t.sink.row(e, &table.Table, t.cells)
}

func (t *tabulator) event(e *ledger.Event) error {
	switch v := e.Value.(type) {
	case *adapter.Record:
		id, err := t.origin(e, v)
		if err != nil {
			return err
		}
		return emit(t, e, frames, &frame{v, e.Seq, id})
	case *adapter.Contributors:
		c := contributor{Event: e, Contributors: v}
		if len(v.Processes) == 0 {
			return emit(t, e, contributors, &c)
		}
		for i, process := range v.Processes {
			c.position, c.process = p95.Of(int64(i)), process
			if err := emit(t, e, contributors, &c); err != nil {
				return err
			}
		}
		return nil
	case *p95.Receipt:
		return emit(t, e, publications, &publication{e, v})
	case *ledger.SourceGap:
		return emit(t, e, gaps, &gap{e, v})
	case *adapter.Binding:
		return emit(t, e, targetBinds, &bind{e, v})
	case *ledger.TargetState:
		return emit(t, e, targetStates, &state{e, v})
	case *p95.ClockBridge:
		return emit(t, e, clockBridges, &bridge{e, v})
	case *ledger.SourceState:
		return emit(t, e, sourceStates, &sourceState{e, v})
	case *ledger.Start:
		return emit(t, e, sessions, &start{e, v})
	case *ledger.End:
		if err := emit(t, e, sessionEnds, &end{e, v}); err != nil {
			return err
		}
		return t.counts(e, v)
	}
	return nil
}

var eventTypes = []ledger.Type{ledger.TypeSessionStart, ledger.TypeTargetBind, ledger.TypeTargetState, ledger.TypeClockBridge, ledger.TypeRawRecord,
	ledger.TypeContributors, ledger.TypeSourceGap, ledger.TypeSourceState, ledger.TypePublication, ledger.TypeSessionEnd}

func (t *tabulator) counts(e *ledger.Event, v *ledger.End) error {
	for _, typ := range eventTypes {
		if err := emit(t, e, counts, &count{e.Seq, "line", string(typ), v.Counts.Of(typ)}); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v.Extra)) {
		if err := emit(t, e, counts, &count{e.Seq, "extra", name, v.Extra[name]}); err != nil {
			return err
		}
	}
	return nil
}

func (t *tabulator) bad(e *ledger.LineError) error {
	return emit(t, nil, badLines, e)
}

// origin is the number of the record's origin, which is told first where it is new.
func (t *tabulator) origin(e *ledger.Event, r *adapter.Record) (id int64, err error) {
	o := originOf(r)
	for back := range int64(len(t.origins)) {
		at := t.lastID - back
		if at < 1 {
			break
		}
		o.id = at
		if t.origins[at%int64(len(t.origins))] == o {
			return at, nil
		}
	}
	t.lastID++
	o.id = t.lastID
	t.origins[o.id%int64(len(t.origins))] = o
	return o.id, emit(t, e, origins, &o)
}
