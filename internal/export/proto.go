package export

import (
	"encoding/binary"
	"math"
)

// message is a protobuf message that is being written (protobuf.dev, "Encoding"): varints, doubles and what has a length.
type message []byte

const (
	wireVarint = 0
	wireFixed  = 1
	wireLength = 2
)

func (m message) key(field, wire uint64) message { return binary.AppendUvarint(m, field<<3|wire) }

func (m message) uint(field, v uint64) message {
	return binary.AppendUvarint(m.key(field, wireVarint), v)
}

// int is an int64 or an enum: two's complement, so that a negative one takes ten bytes.
func (m message) int(field uint64, v int64) message { return m.uint(field, uint64(v)) }

func (m message) double(field uint64, v float64) message {
	return binary.LittleEndian.AppendUint64(m.key(field, wireFixed), math.Float64bits(v))
}

func (m message) text(field uint64, v string) message {
	return append(binary.AppendUvarint(m.key(field, wireLength), uint64(len(v))), v...)
}

func (m message) message(field uint64, v message) message {
	return append(binary.AppendUvarint(m.key(field, wireLength), uint64(len(v))), v...)
}
