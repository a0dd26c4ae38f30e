package dtx

import (
	"encoding/binary"
	"fmt"
)

// Int32 and Int64 are arguments that travel as plain numbers. Every other argument travels as an archived object.
type (
	Int32 int32
	Int64 int64
)

// The auxiliary is a dictionary of which only the values matter: keys are null in every message seen. go-ios's reader of it
// drops what it does not know with no more than a log line, hence this one.
const (
	auxHeaderSize = 16
	auxCapacity   = 0x1F0 // first word of the header: the sender's buffer size, the same in every capture

	auxString = 1
	auxBytes  = 2
	auxInt32  = 3
	auxInt64  = 6
	auxNull   = 10
)

// ParseAuxiliary reads the auxiliary that b begins with: nil, string, []byte (an archived object; it refers to b), Int32 or Int64
// for each argument. n is its length.
func ParseAuxiliary(b []byte) (args []any, n int, err error) {
	if len(b) < auxHeaderSize {
		return nil, 0, fmt.Errorf("auxiliary: expected a header of %d bytes, found %d", auxHeaderSize, len(b))
	}
	size := binary.LittleEndian.Uint64(b[8:])
	if size > uint64(len(b)-auxHeaderSize) {
		return nil, 0, fmt.Errorf("auxiliary: expected at most %d bytes of arguments, found %d", len(b)-auxHeaderSize, size)
	}
	end := auxHeaderSize + int(size)
	for n = auxHeaderSize; n < end; {
		_, keyLen, err := parseAuxValue(b[n:end])
		if err != nil {
			return nil, 0, fmt.Errorf("auxiliary: key %d at byte %d: %w", len(args), n, err)
		}
		n += keyLen
		v, valueLen, err := parseAuxValue(b[n:end])
		if err != nil {
			return nil, 0, fmt.Errorf("auxiliary: argument %d at byte %d: %w", len(args), n, err)
		}
		n += valueLen
		args = append(args, v)
	}
	return args, n, nil
}

func parseAuxValue(b []byte) (v any, n int, err error) {
	if len(b) < 4 {
		return nil, 0, fmt.Errorf("expected a type of 4 bytes, found %d", len(b))
	}
	kind, b := binary.LittleEndian.Uint32(b), b[4:]
	switch {
	case kind == auxNull:
		return nil, 4, nil
	case kind == auxInt32 && len(b) >= 4:
		return Int32(binary.LittleEndian.Uint32(b)), 8, nil
	case kind == auxInt64 && len(b) >= 8:
		return Int64(binary.LittleEndian.Uint64(b)), 12, nil
	case (kind == auxString || kind == auxBytes) && len(b) >= 4:
		size, b := binary.LittleEndian.Uint32(b), b[4:]
		if uint64(size) > uint64(len(b)) {
			return nil, 0, fmt.Errorf("expected at most %d bytes, found %d announced", len(b), size)
		}
		if kind == auxString {
			return string(b[:size]), 8 + int(size), nil
		}
		return b[:size:size], 8 + int(size), nil
	case kind == auxInt32, kind == auxInt64, kind == auxString, kind == auxBytes:
		return nil, 0, fmt.Errorf("a value of type %d is cut off after %d bytes", kind, len(b))
	}
	return nil, 0, fmt.Errorf("expected type 1, 2, 3, 6 or 10, found %d", kind)
}

// AppendAuxiliary appends args, each of a type that ParseAuxiliary returns.
func AppendAuxiliary(b []byte, args []any) ([]byte, error) {
	start := len(b)
	b = binary.LittleEndian.AppendUint64(b, auxCapacity)
	b = binary.LittleEndian.AppendUint64(b, 0) // size, known at the end
	for i, arg := range args {
		b = binary.LittleEndian.AppendUint32(b, auxNull) // key
		switch v := arg.(type) {
		case nil:
			b = binary.LittleEndian.AppendUint32(b, auxNull)
		case Int32:
			b = binary.LittleEndian.AppendUint32(b, auxInt32)
			b = binary.LittleEndian.AppendUint32(b, uint32(v))
		case Int64:
			b = binary.LittleEndian.AppendUint32(b, auxInt64)
			b = binary.LittleEndian.AppendUint64(b, uint64(v))
		case string:
			b = binary.LittleEndian.AppendUint32(b, auxString)
			b = binary.LittleEndian.AppendUint32(b, uint32(len(v)))
			b = append(b, v...)
		case []byte:
			b = binary.LittleEndian.AppendUint32(b, auxBytes)
			b = binary.LittleEndian.AppendUint32(b, uint32(len(v)))
			b = append(b, v...)
		default:
			return nil, fmt.Errorf("auxiliary: argument %d: expected nil, string, []byte, Int32 or Int64, found %T", i, arg)
		}
		if len(b)-start > MaxMessage {
			return nil, fmt.Errorf("auxiliary: argument %d makes it longer than a message may be (%d bytes)", i, MaxMessage)
		}
	}
	binary.LittleEndian.PutUint64(b[start+8:], uint64(len(b)-start-auxHeaderSize))
	return b, nil
}
