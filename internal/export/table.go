package export

import (
	"github.com/framebridge/framebridge/ledger"
	"github.com/framebridge/framebridge/p95"
)

// Kind is what a column holds.
type Kind uint8

const (
	Integer Kind = iota + 1 // 64 bits, signed
	Text
	Boolean
)

var kindNames = [...]string{Integer: "integer", Text: "text", Boolean: "boolean"}

func (k Kind) String() string { return kindNames[k] }

// Column is one column of a table.
type Column struct {
	Name     string
	Kind     Kind
	Nullable bool
	Doc      string
}

// Table is one table of an export.
type Table struct {
	Name    string
	Doc     string
	Columns []Column
}

// cell is one value of a row: null, or of its column's kind.
type cell struct {
	known bool
	n     int64 // of an integer; 1 is true
	text  string
}

// column is a column of rows that are made of a T.
type column[T any] struct {
	Column
	cell func(*T) cell
}

// rows is a table with what its rows are made of.
type rows[T any] struct {
	Table
	cells []func(*T) cell
}

func table[T any](name, doc string, columns ...column[T]) *rows[T] {
	r := &rows[T]{Table: Table{Name: name, Doc: doc}}
	for _, c := range columns {
		r.Columns = append(r.Columns, c.Column)
		r.cells = append(r.cells, c.cell)
	}
	return r
}

// append appends the cells of v's row.
func (r *rows[T]) append(dst []cell, v *T) []cell {
	for _, of := range r.cells {
		dst = append(dst, of(v))
	}
	return dst
}

func integer[T any](name, doc string, of func(*T) int64) column[T] {
	return column[T]{Column{name, Integer, false, doc}, func(v *T) cell { return cell{known: true, n: of(v)} }}
}

func maybeInteger[T any](name, doc string, of func(*T) p95.Int) column[T] {
	return column[T]{Column{name, Integer, true, doc}, func(v *T) cell {
		n := of(v)
		return cell{known: n.Known, n: n.N}
	}}
}

func text[T any](name, doc string, of func(*T) string) column[T] {
	return column[T]{Column{name, Text, false, doc}, func(v *T) cell { return cell{known: true, text: of(v)} }}
}

// maybeText is null where it is "".
func maybeText[T any](name, doc string, of func(*T) string) column[T] {
	return column[T]{Column{name, Text, true, doc}, func(v *T) cell {
		s := of(v)
		return cell{known: s != "", text: s}
	}}
}

func boolean[T any](name, doc string, of func(*T) bool) column[T] {
	return column[T]{Column{name, Boolean, false, doc}, func(v *T) cell {
		c := cell{known: true}
		if of(v) {
			c.n = 1
		}
		return c
	}}
}

// line is a row that is made of one event, whose value is a V.
type line[V any] struct {
	*ledger.Event
	v V
}

// seq and hostNs begin most rows.
func seq[V any]() column[line[V]] {
	return integer("seq", "the event's line in events.jsonl, from 1", func(l *line[V]) int64 { return l.Seq })
}

func hostNs[V any]() column[line[V]] {
	return integer("hostNs", "when it was processed, ns of the recording host's monotonic clock", func(l *line[V]) int64 { return l.HostNs })
}
