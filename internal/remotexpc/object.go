package remotexpc

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// Object types, as they stand in front of every object (little-endian u32).
const (
	typeNull         = 0x00001000
	typeBool         = 0x00002000
	typeInt64        = 0x00003000
	typeUint64       = 0x00004000
	typeDouble       = 0x00005000
	typeDate         = 0x00007000
	typeData         = 0x00008000
	typeString       = 0x00009000
	typeUUID         = 0x0000a000
	typeArray        = 0x0000e000
	typeDictionary   = 0x0000f000
	typeFileTransfer = 0x0001a000
)

const (
	// maxDepth bounds how deep objects nest. A service list nests four deep.
	maxDepth = 32
	// maxObjects bounds how many objects a message holds: a service list has a few thousand.
	maxObjects = 100_000
)

// UUID is a UUID object.
type UUID [16]byte

// Date is a date object, ns since 1970.
type Date int64

// FileTransfer announces a file of Size bytes, sent on a stream of its own.
type FileTransfer struct {
	MsgID uint64
	Size  uint64
}

// AppendObject appends v: nil, bool, int64, uint64, float64, Date, []byte, string, UUID, []any or map[string]any.
func AppendObject(b []byte, v any) ([]byte, error) { return appendObject(b, v, 0) }

func appendObject(b []byte, v any, depth int) ([]byte, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("objects nest more than %d deep", maxDepth)
	}
	u32 := func(n uint32) { b = binary.LittleEndian.AppendUint32(b, n) }
	u64 := func(n uint64) { b = binary.LittleEndian.AppendUint64(b, n) }
	switch v := v.(type) {
	case nil:
		u32(typeNull)
	case bool:
		u32(typeBool)
		if v {
			u32(1)
		} else {
			u32(0)
		}
	case int64:
		u32(typeInt64)
		u64(uint64(v))
	case uint64:
		u32(typeUint64)
		u64(v)
	case float64:
		u32(typeDouble)
		u64(math.Float64bits(v))
	case Date:
		u32(typeDate)
		u64(uint64(v))
	case []byte:
		u32(typeData)
		u32(uint32(len(v)))
		b = pad(append(b, v...), len(v))
	case string:
		u32(typeString)
		u32(uint32(len(v) + 1))
		b = pad(append(append(b, v...), 0), len(v)+1)
	case UUID:
		u32(typeUUID)
		b = append(b, v[:]...)
	case []any, map[string]any:
		return appendContainer(b, v, depth)
	default:
		return nil, fmt.Errorf("%T is no XPC object", v)
	}
	return b, nil
}

// appendContainer appends an array or a dictionary; its length counts what follows the length.
func appendContainer(b []byte, v any, depth int) (_ []byte, err error) {
	start := len(b)
	b = append(b, make([]byte, 12)...) // type, length, count
	kind, count := uint32(typeArray), 0
	switch v := v.(type) {
	case []any:
		count = len(v)
		for _, e := range v {
			if b, err = appendObject(b, e, depth+1); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		kind, count = typeDictionary, len(v)
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			b = pad(append(append(b, k...), 0), len(k)+1)
			if b, err = appendObject(b, v[k], depth+1); err != nil {
				return nil, err
			}
		}
	}
	binary.LittleEndian.PutUint32(b[start:], kind)
	binary.LittleEndian.PutUint32(b[start+4:], uint32(len(b)-start-8))
	binary.LittleEndian.PutUint32(b[start+8:], uint32(count))
	return b, nil
}

// pad brings what was appended in n bytes to a multiple of four.
func pad(b []byte, n int) []byte { return append(b, make([]byte, padding(n))...) }

func padding(n int) int { return (4 - n%4) % 4 }

// ParseObject reads one object and returns how many bytes it took.
func ParseObject(b []byte) (v any, n int, err error) {
	p := parser{rest: b, objects: maxObjects}
	v, err = p.object(0)
	n = len(b) - len(p.rest)
	if err != nil {
		return nil, n, fmt.Errorf("XPC object, byte %d: %w", n, err)
	}
	return v, n, nil
}

type parser struct {
	rest    []byte
	objects int // that may still come
}

func (p *parser) take(n uint64) ([]byte, error) {
	if n > uint64(len(p.rest)) {
		return nil, fmt.Errorf("expected %d bytes, found %d", n, len(p.rest))
	}
	b := p.rest[:n:n]
	p.rest = p.rest[n:]
	return b, nil
}

func (p *parser) u32() (uint32, error) {
	b, err := p.take(4)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

func (p *parser) u64() (uint64, error) {
	b, err := p.take(8)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b), nil
}

// sized takes a length, that many bytes, and the padding behind them.
func (p *parser) sized() ([]byte, error) {
	n, err := p.u32()
	if err != nil {
		return nil, err
	}
	b, err := p.take(uint64(n))
	if err != nil {
		return nil, err
	}
	_, err = p.take(uint64(padding(int(n))))
	return b, err
}

func (p *parser) object(depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("objects nest more than %d deep", maxDepth)
	}
	if p.objects--; p.objects < 0 {
		return nil, fmt.Errorf("more than %d objects", maxObjects)
	}
	kind, err := p.u32()
	if err != nil {
		return nil, err
	}
	switch kind {
	case typeNull:
		return nil, nil
	case typeBool:
		n, err := p.u32()
		return n != 0, err
	case typeInt64:
		n, err := p.u64()
		return int64(n), err
	case typeUint64:
		return p.u64()
	case typeDouble:
		n, err := p.u64()
		return math.Float64frombits(n), err
	case typeDate:
		n, err := p.u64()
		return Date(n), err
	case typeData:
		b, err := p.sized()
		return bytes.Clone(b), err
	case typeString:
		b, err := p.sized()
		text, _, _ := bytes.Cut(b, []byte{0})
		return string(text), err
	case typeUUID:
		b, err := p.take(16)
		if err != nil {
			return nil, err
		}
		return UUID(b), nil
	case typeArray, typeDictionary:
		return p.container(kind, depth)
	case typeFileTransfer:
		id, err := p.u64()
		if err != nil {
			return nil, err
		}
		inside, err := p.object(depth + 1)
		if err != nil {
			return nil, err
		}
		m, _ := inside.(map[string]any)
		size, ok := m["s"].(uint64)
		if !ok {
			return nil, fmt.Errorf("expected a file transfer with its size, found %T", inside)
		}
		return FileTransfer{MsgID: id, Size: size}, nil
	}
	return nil, fmt.Errorf("unknown type %#x", kind)
}

func (p *parser) container(kind uint32, depth int) (any, error) {
	if _, err := p.u32(); err != nil { // length in bytes: the count says the same
		return nil, err
	}
	count, err := p.u32()
	if err != nil {
		return nil, err
	}
	if kind == typeArray {
		var list []any
		for range count {
			v, err := p.object(depth + 1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	}
	dict := map[string]any{}
	for range count {
		end := bytes.IndexByte(p.rest, 0)
		if end < 0 {
			return nil, fmt.Errorf("a key without an end in %d bytes", len(p.rest))
		}
		key, _ := p.take(uint64(end))
		if _, err := p.take(uint64(1 + padding(end+1))); err != nil {
			return nil, err
		}
		v, err := p.object(depth + 1)
		if err != nil {
			return nil, fmt.Errorf("%.40q: %w", key, err)
		}
		dict[string(key)] = v
	}
	return dict, nil
}
