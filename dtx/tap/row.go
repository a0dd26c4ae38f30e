package tap

import "bytes"

// Want names, for each table of interest, the columns that its rows are read by. Rows of other tables are passed over.
type Want map[string][]string

// Handler receives what a Decoder finds, in stream order.
type Handler interface {
	// Row is called at the end of each row of a wanted table. The row, and every Value got from it, is valid only until Row
	// returns.
	Row(*Row)
	// Gap says that rows may have been lost at this point of the stream.
	Gap(Gap)
}

// Reasons of a Gap.
const (
	// ReasonBroken: the stream made no sense here, or the caller said so (Break); everything is skipped until the next reset.
	// Rows and Bytes are 0: the loss is not known yet.
	ReasonBroken = "row-stream-broken"
	// ReasonSkipped: what was passed over since ReasonBroken (or since the start of a stream that was joined in its middle),
	// reported at the reset that ended it or at the end of the stream.
	ReasonSkipped = "row-stream-skipped"
	// ReasonTorn: the stream ended inside a word or a value. Bytes counts what had arrived of it.
	ReasonTorn = "row-stream-torn"
)

// Gap is a place where rows may have been lost.
type Gap struct {
	Reason string // one of the Reason constants
	Detail string // for people: what was expected, what was found, and where
	Rows   int64  // row ends passed over; what never arrived cannot be counted
	Bytes  int64  // bytes passed over
}

// Row is one row of a wanted table.
type Row struct {
	core  *core
	table *table
	base  uint // slot of the first column
}

// Table is the name of the row's table.
func (r *Row) Table() string { return r.table.name }

// Value is the row's value in the i-th of the columns asked for in Want, null where the device's table has no such column. Of
// two columns with one name it is the first.
func (r *Row) Value(i int) Value {
	column := r.table.columns[i]
	if column < 0 {
		return Value{}
	}
	return r.core.value(ref(r.core.slots[r.base+uint(column)]))
}

// Value is null, bytes, or a struct (a list of values, at most 8 deep). Every method answers for every kind, so that a chain of
// At needs no checks in between. The zero Value is null.
type Value struct {
	core *core
	node *node
}

// IsNull reports whether the value is null.
func (v Value) IsNull() bool { return v.node == nil || v.node.kind == kindNull }

// IsStruct reports whether the value is a struct.
func (v Value) IsStruct() bool { return v.node != nil && v.node.kind == kindStruct }

// ID tells whether two values are the same one: within one Decoder's life, values with equal IDs have equal content, and an ID
// is never used again, not even after a reset or Flush. Different IDs say nothing. Null is 0. What was worked out from a string
// that the device keeps on its stack can so be found again without reading the string.
func (v Value) ID() uint64 {
	if v.node == nil {
		return 0
	}
	return v.node.id
}

// Uint64 is the little-endian number in the value's bytes. ok is false for null, a struct, and a number that needs more than 8 bytes.
func (v Value) Uint64() (number uint64, ok bool) {
	if v.node == nil || v.node.kind != kindBytes {
		return 0, false
	}
	if v.node.count > 8 {
		return v.node.number, v.restIsZero()
	}
	return v.node.number, true
}

func (v Value) restIsZero() bool {
	for _, b := range v.Bytes()[8:] {
		if b != 0 {
			return false
		}
	}
	return true
}

// Bytes is the content as sent, possibly with one zero byte more (the stream counts in units of 14 bits). Nil for null and
// structs. It must not be changed or kept.
func (v Value) Bytes() []byte {
	if v.node == nil || v.node.kind != kindBytes {
		return nil
	}
	return v.core.text[v.node.textEnd-v.node.count : v.node.textEnd : v.node.textEnd]
}

// Text is the content up to the first NUL. Nil for null and structs. It must not be changed or kept.
func (v Value) Text() []byte {
	text := v.Bytes()
	if end := bytes.IndexByte(text, 0); end >= 0 {
		return text[:end]
	}
	return text
}

// String is a copy of Text.
func (v Value) String() string { return string(v.Text()) }

// Len is the number of values in a struct, 0 for anything else.
func (v Value) Len() int {
	if v.node == nil || v.node.kind != kindStruct {
		return 0
	}
	return int(v.node.count)
}

// At is the i-th value of a struct, null where there is none.
func (v Value) At(i int) Value {
	if v.node == nil || v.node.kind != kindStruct || uint(i) >= uint(v.node.count) {
		return Value{}
	}
	return v.core.value(v.core.children[v.node.childrenEnd-v.node.count+uint32(i)])
}

// AppendData appends a `data` or `uuid` value to dst: plain bytes as they are, or a struct of 8-byte chunks joined. A shorter
// chunk before the last is padded with zeros, as every short number is. Where ok is false the value was neither, and data is dst
// as it was.
func (v Value) AppendData(dst []byte) (data []byte, ok bool) {
	if !v.IsStruct() {
		return append(dst, v.Bytes()...), !v.IsNull()
	}
	data = dst
	for i := range v.Len() {
		chunk := v.At(i).Bytes()
		if len(chunk) == 0 || len(chunk) > 8 {
			return dst, false
		}
		data = append(data, chunk...)
		if i < v.Len()-1 {
			data = append(data, make([]byte, 8-len(chunk))...)
		}
	}
	return data, true
}
