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

func (t *tabulator) emit(e *ledger.Event, table *Table, cells []cell) error {
	t.cells = cells
	t.count[table.Name]++
	return t.sink.row(e, table, cells)
}

func (t *tabulator) event(e *ledger.Event) error {
	row := t.cells[:0]
	switch v := e.Value.(type) {
	case *adapter.Record:
		id, err := t.origin(e, v)
		if err != nil {
			return err
		}
		return t.emit(e, &frames.Table, frames.append(t.cells[:0], &frame{v, e.Seq, id}))
	case *adapter.Contributors:
		c := contributor{Event: e, Contributors: v}
		if len(v.Processes) == 0 {
			return t.emit(e, &contributors.Table, contributors.append(row, &c))
		}
		for i, process := range v.Processes {
			c.position, c.process = p95.Of(int64(i)), process
			if err := t.emit(e, &contributors.Table, contributors.append(t.cells[:0], &c)); err != nil {
				return err
			}
		}
		return nil
	case *p95.Receipt:
		return t.emit(e, &publications.Table, publications.append(row, &publication{e, v}))
	case *ledger.SourceGap:
		return t.emit(e, &gaps.Table, gaps.append(row, &gap{e, v}))
	case *adapter.Binding:
		return t.emit(e, &targetBinds.Table, targetBinds.append(row, &bind{e, v}))
	case *ledger.TargetState:
		return t.emit(e, &targetStates.Table, targetStates.append(row, &state{e, v}))
	case *p95.ClockBridge:
		return t.emit(e, &clockBridges.Table, clockBridges.append(row, &bridge{e, v}))
	case *ledger.SourceState:
		return t.emit(e, &sourceStates.Table, sourceStates.append(row, &sourceState{e, v}))
	case *ledger.Start:
		return t.emit(e, &sessions.Table, sessions.append(row, &start{e, v}))
	case *ledger.End:
		if err := t.emit(e, &sessionEnds.Table, sessionEnds.append(row, &end{e, v})); err != nil {
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
		if err := t.emit(e, &counts.Table, counts.append(t.cells[:0], &count{e.Seq, "line", string(typ), v.Counts.Of(typ)})); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v.Extra)) {
		if err := t.emit(e, &counts.Table, counts.append(t.cells[:0], &count{e.Seq, "extra", name, v.Extra[name]})); err != nil {
			return err
		}
	}
	return nil
}

func (t *tabulator) bad(e *ledger.LineError) error {
	return t.emit(nil, &badLines.Table, badLines.append(t.cells[:0], e))
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
	return o.id, t.emit(e, &origins.Table, origins.append(t.cells[:0], &o))
}
