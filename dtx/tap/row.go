package tap

import (
	"bytes"
)

// Want names, for each table of interest, the columns that its rows are read by. Rows of other tables are not reported.
type Want map[string][]string

// Handler receives what a Decoder finds, in stream order.
type Handler interface {
	// Row is called at the end of each row of a wanted table. The row, and every Value got from it, is valid only until Row returns.
	Row(*Row)
	// Gap says that rows may have been lost at this point of the stream.
	Gap(Gap)
}

// Reasons of a Gap.
const (
	// ReasonBroken: the stream made no sense here; what follows is skipped up to the next reset. Rows and Bytes are 0: the loss is not known yet.
	ReasonBroken = "row-stream-broken"
	// ReasonSkipped: what was passed over since ReasonBroken, reported at the reset (or the end of the stream) that ended it.
	ReasonSkipped = "row-stream-skipped"
	// ReasonTorn: the stream ended inside an opcode or a value. Bytes counts what had arrived of it.
	ReasonTorn = "row-stream-torn"
)

// Gap is a place where rows may have been lost.
type Gap struct {
	Reason string // one of the Reason constants
	Detail string // for people: what was expected, what was found, and where
	Rows   int64  // row ends passed over: exact where nothing is missing from the stream itself
	Bytes  int64  // bytes passed over
}

// Row is one row of a wanted table.
type Row struct {
	core  *core
	table *table
	base  uint
}

// Table is the name of the row's table.
func (r *Row) Table() string { return r.table.name }

// Value is the row's value in the i-th of the columns asked for in Want. It is null where the table has no such column.
func (r *Row) Value(i int) Value { return Value{} }

// Value is null, bytes, or a struct (a list of values). Its methods answer for every kind, so that a chain of At calls needs no checks between.
type Value struct {
	core *core
	node uint32
}

// IsNull reports whether the value is null.
func (v Value) IsNull() bool { return true }

// IsStruct reports whether the value is a struct.
func (v Value) IsStruct() bool { return false }

// ID tells whether two values are the same one: within one Decoder's life, values with equal IDs have equal content, and an ID
// is never used again, not even after a reset. Different IDs say nothing. Null is 0. What was worked out
// from a string that the device keeps on its stack can so be kept and found again without reading it.
func (v Value) ID() uint64 { return 0 }

// Uint64 is the little-endian number in the value's bytes. ok is false for null, a struct, and a number that needs more than 8 bytes.
func (v Value) Uint64() (n uint64, ok bool) { return 0, false }

// Bytes is the content as sent, possibly with one zero byte more (the stream counts bits). Nil for null and structs.
// It must not be changed or kept: copy what has to outlive the call.
func (v Value) Bytes() []byte { return nil }

// Text is the content up to the first NUL. Nil for null and structs. It must not be changed or kept; string(v.Text()) may be.
func (v Value) Text() []byte {
	b := v.Bytes()
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return b
}

// String is a copy of Text.
func (v Value) String() string { return string(v.Text()) }

// Len is the number of values in a struct, 0 for anything else.
func (v Value) Len() int { return 0 }

// At is the i-th value of a struct; null where there is none.
func (v Value) At(i int) Value { return Value{} }

// AppendData appends to dst a `data` or `uuid` value: plain bytes, or a struct of 8-byte chunks, which are joined. Where ok is false, it
// was neither, and dst comes back as it was.
func (v Value) AppendData(dst []byte) (data []byte, ok bool) { return dst, false }
