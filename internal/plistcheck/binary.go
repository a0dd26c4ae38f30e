package plistcheck

import (
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	trailerBytes = 32
	// unfoldedBytes is how much longer than its bound in bytes a document may unfold: an archive is visited twice, and shares some strings.
	unfoldedBytes = 4
)

// checkBinary visits the plain tree of a binary property list.
func checkBinary(b []byte, most Bounds) (w *walk, top uint64, err error) {
	if len(b) > most.Bytes {
		return nil, 0, tooLong(b, most)
	}
	if len(b) < 8+trailerBytes || string(b[:8]) != "bplist00" {
		return nil, 0, fmt.Errorf("expected a binary property list, found %d bytes beginning %q", len(b), b[:min(8, len(b))])
	}
	trailer := b[len(b)-trailerBytes:]
	w = &walk{
		most:        most,
		offsetSize:  int(trailer[6]),
		refSize:     int(trailer[7]),
		count:       binary.BigEndian.Uint64(trailer[8:]),
		objectsLeft: most.Objects,
		bytesLeft:   unfoldedBytes * most.Bytes,
	}
	table := binary.BigEndian.Uint64(trailer[24:])
	if w.offsetSize < 1 || w.offsetSize > 8 || w.refSize < 1 || w.refSize > 8 || table > uint64(len(b)-trailerBytes) ||
		w.count > (uint64(len(b)-trailerBytes)-table)/uint64(w.offsetSize) {
		return nil, 0, fmt.Errorf("property list: %d objects, offsets of %d bytes at byte %d and references of %d bytes do not fit its %d bytes",
			w.count, w.offsetSize, table, w.refSize, len(b))
	}
	w.data, w.offsets = b[:table], b[table:]
	top = binary.BigEndian.Uint64(trailer[16:])
	return w, top, w.visit(top, 0)
}

// walk visits the objects of a binary property list.
type walk struct {
	most                Bounds
	data, offsets       []byte // objects, and where each begins
	offsetSize, refSize int
	count               uint64
	objectsLeft         int // that may still be visited
	bytesLeft           int // of theirs: many may lie over the same ones

	objects []uint64 // references of the archived objects, in order: where UIDs lead, once they are known
}

func (w *walk) visit(ref uint64, depth int) error {
	if depth > w.most.Depth {
		return tooDeep(w.most)
	}
	if w.objectsLeft--; w.objectsLeft < 0 {
		return tooMany(w.most)
	}
	kind, body, err := w.object(ref)
	if err != nil {
		return err
	}
	if w.bytesLeft -= len(body); w.bytesLeft < 0 {
		return fmt.Errorf("property list: it unfolds to more than %d bytes", unfoldedBytes*w.most.Bytes)
	}
	switch kind {
	case 0x8:
		if uid := bigEndian(body); uid < uint64(len(w.objects)) {
			return w.visit(w.objects[uid], depth+1)
		}
	case 0xA, 0xD:
		for i := 0; i < len(body); i += w.refSize {
			if err := w.visit(bigEndian(body[i:i+w.refSize]), depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// object returns the kind (high half of its first byte) and the bytes of one object; those of a container are its references.
func (w *walk) object(ref uint64) (kind byte, body []byte, err error) {
	if ref >= w.count {
		return 0, nil, fmt.Errorf("property list: object %d of %d", ref, w.count)
	}
	at := bigEndian(w.offsets[int(ref)*w.offsetSize:][:w.offsetSize])
	if at >= uint64(len(w.data)) {
		return 0, nil, fmt.Errorf("property list: object %d begins at byte %d of %d", ref, at, len(w.data))
	}
	kind, low, rest := w.data[at]>>4, int(w.data[at]&0xF), w.data[at+1:]
	cut := func() (byte, []byte, error) {
		return 0, nil, fmt.Errorf("property list: object %d at byte %d is cut off", ref, at)
	}
	size, unit := uint64(0), 1
	switch kind {
	case 0x0: // null, false, true
		return kind, nil, nil
	case 0x1, 0x2, 0x3: // integer, real, date
		size = 1 << low
	case 0x8: // UID
		size = uint64(low) + 1
	case 0x6: // UTF-16 string
		unit = 2
	case 0x4, 0x5: // data, ASCII string
	case 0xA: // array
		unit = w.refSize
	case 0xD: // dictionary
		unit = 2 * w.refSize
	default:
		return 0, nil, fmt.Errorf("property list: object %d at byte %d has the unknown type %#x", ref, at, kind)
	}
	if kind >= 0x4 && kind != 0x8 {
		if size = uint64(low); low == 0xF { // the count does not fit: an integer object in front of the bytes holds it
			if len(rest) < 1 || rest[0]>>4 != 0x1 || rest[0]&0xF > 3 || len(rest) < 1+1<<(rest[0]&0xF) {
				return cut()
			}
			n := 1 << (rest[0] & 0xF)
			size, rest = bigEndian(rest[1:1+n]), rest[1+n:]
		}
	}
	if size > uint64(len(rest))/uint64(unit) {
		return cut()
	}
	return kind, rest[:size*uint64(unit)], nil
}

// archived finds the two lists of an archive: $objects, from now on followed by visit, and what is in $top, where decoding begins.
// visit has been through all of it. Keys must be plain: another spelling could show the decoders other lists than these.
func (w *walk) archived(top uint64) (roots []uint64, err error) {
	kind, refs := w.refs(top)
	if kind != 0xD {
		return nil, errors.New("expected an archive, found a property list that is no dictionary")
	}
	keys, values := refs[:len(refs)/2], refs[len(refs)/2:]
	for i, key := range keys {
		kind, name, err := w.object(key)
		if err != nil || kind != 0x5 {
			return nil, fmt.Errorf("expected an archive with plain keys, found one of type %#x", kind)
		}
		switch kind, list := w.refs(values[i]); {
		case string(name) == "$objects" && kind == 0xA:
			w.objects = list
		case string(name) == "$top" && kind == 0xD:
			roots = list[len(list)/2:]
		}
	}
	if w.objects == nil || roots == nil {
		return nil, errors.New("expected an archive, found a property list without $objects and $top")
	}
	return roots, nil
}

// refs returns an object's kind and, of an array or a dictionary (keys first), the references in it.
func (w *walk) refs(ref uint64) (kind byte, refs []uint64) {
	kind, body, err := w.object(ref)
	if err == nil && (kind == 0xA || kind == 0xD) {
		for ; len(body) > 0; body = body[w.refSize:] {
			refs = append(refs, bigEndian(body[:w.refSize]))
		}
	}
	return kind, refs
}

func bigEndian(b []byte) (v uint64) {
	for _, c := range b {
		v = v<<8 | uint64(c)
	}
	return v
}
