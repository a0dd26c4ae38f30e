package dtx

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/danielpaulus/go-ios/ios/nskeyedarchiver"
	"howett.net/plist"
)

const (
	// maxArchive bounds an archived object. The largest of interest, a process list, takes some 100 KiB.
	maxArchive = 8 << 20
	// maxArchiveDepth bounds how deep objects nest (each container counts about three levels, being an object, a list and a reference).
	maxArchiveDepth = 256
	// maxArchiveObjects bounds how many objects an archive unfolds to, shared ones counted each time they are met.
	maxArchiveObjects = 1 << 20
)

// go-ios fills its class tables on first use, without a lock; from here it happens before any goroutine can race for it.
func init() {
	nskeyedarchiver.SetupDecoders()
	nskeyedarchiver.SetupEncoders()
}

// Archive encodes v, of the types that go-ios's archiver knows, as a binary NSKeyedArchiver document.
func Archive(v any) (b []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			b, err = nil, fmt.Errorf("archive %T: %v", v, r)
		}
	}()
	b, err = nskeyedarchiver.ArchiveBin(v)
	if err != nil {
		return nil, fmt.Errorf("archive %T: %w", v, err)
	}
	return b, nil
}

// Unarchive decodes a binary NSKeyedArchiver document to what go-ios makes of it: string, uint64, int64, float64, bool, []byte,
// []any, map[string]any, nil, and its own types for dates, errors, tap messages and the like.
func Unarchive(b []byte) (v any, err error) {
	defer func() {
		if r := recover(); r != nil {
			v, err = nil, fmt.Errorf("unarchive: %v", r)
		}
	}()
	if err := checkArchive(b); err != nil {
		return nil, fmt.Errorf("unarchive: %w", err)
	}
	objects, err := nskeyedarchiver.Unarchive(b)
	if err != nil {
		text, _, _ := strings.Cut(err.Error(), "\n") // a stack trace follows where go-ios itself recovered
		return nil, fmt.Errorf("unarchive: %s", text)
	}
	if len(objects) != 1 {
		return nil, fmt.Errorf("unarchive: expected one root object, found %d", len(objects))
	}
	if objects[0] == "$null" { // how an archive spells nil; go-ios takes it for a string
		return nil, nil
	}
	return objects[0], nil
}

// RemoteError is an ERROR answer: the NSError that the device sent.
type RemoteError struct {
	Domain      string
	Code        int64
	Description string
}

func (e *RemoteError) Error() string {
	if e.Domain == "" {
		return "device error: " + e.Description
	}
	return fmt.Sprintf("device error: %s (%s %d)", e.Description, e.Domain, e.Code)
}

// unarchiveError reads an archived NSError by its fields. go-ios's decoder gives up on negative codes and on a user info that
// holds any class unknown to it, and the text is lost with it; a device's reason for refusing is worth more than that.
func unarchiveError(b []byte) *RemoteError {
	unreadable := func(err error) *RemoteError { return &RemoteError{Description: fmt.Sprintf("unreadable (%v)", err)} }
	if err := checkArchive(b); err != nil {
		return unreadable(err)
	}
	var doc struct {
		Top     map[string]plist.UID `plist:"$top"`
		Objects []any                `plist:"$objects"`
	}
	if err := unmarshal(b, &doc); err != nil {
		return unreadable(err)
	}
	deref := func(v any) any {
		if uid, ok := v.(plist.UID); ok && uint64(uid) < uint64(len(doc.Objects)) {
			v = doc.Objects[uid]
		}
		if object, ok := v.(map[string]any); ok && object["NS.string"] != nil {
			return object["NS.string"] // a mutable string
		}
		return v
	}
	root, ok := deref(doc.Top["root"]).(map[string]any)
	if !ok || root["NSCode"] == nil {
		v, err := Unarchive(b)
		if err != nil {
			return unreadable(err)
		}
		return &RemoteError{Description: fmt.Sprint(v)}
	}
	e := &RemoteError{Description: "no description"}
	e.Domain, _ = deref(root["NSDomain"]).(string)
	switch code := deref(root["NSCode"]).(type) {
	case uint64:
		e.Code = int64(code)
	case int64:
		e.Code = code
	}
	info, _ := deref(root["NSUserInfo"]).(map[string]any)
	keys, _ := info["NS.keys"].([]any)
	values, _ := info["NS.objects"].([]any)
	for i := range min(len(keys), len(values)) {
		if text, ok := deref(values[i]).(string); ok && deref(keys[i]) == "NSLocalizedDescription" {
			e.Description = text
		}
	}
	return e
}

func unmarshal(b []byte, v any) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("property list: %v", r)
		}
	}()
	_, err = plist.Unmarshal(b, v)
	return err
}

// archiveError builds the archive of an NSError, which go-ios can read but not write.
func archiveError(e RemoteError) ([]byte, error) {
	class := func(names ...string) map[string]any { return map[string]any{"$classname": names[0], "$classes": names} }
	return plist.Marshal(map[string]any{
		"$version": 100000, "$archiver": "NSKeyedArchiver", "$top": map[string]any{"root": plist.UID(1)},
		"$objects": []any{
			"$null",
			map[string]any{"NSCode": e.Code, "NSDomain": plist.UID(2), "NSUserInfo": plist.UID(3), "$class": plist.UID(6)},
			e.Domain,
			map[string]any{"NS.keys": []plist.UID{4}, "NS.objects": []plist.UID{5}, "$class": plist.UID(7)},
			"NSLocalizedDescription", e.Description,
			class("NSError", "NSObject"), class("NSDictionary", "NSObject"),
		},
	}, plist.BinaryFormat)
}

// checkArchive refuses documents that the decoders behind it could not be recovered from: they recurse as deep as the bytes say,
// unfold shared objects once for each reference (a few hundred bytes can stand for 2^100 objects) and allocate what a count claims.
func checkArchive(b []byte) error {
	if len(b) > maxArchive {
		return fmt.Errorf("expected an archive of at most %d bytes, found %d", maxArchive, len(b))
	}
	if len(b) < 8+bplistTrailer || string(b[:8]) != "bplist00" {
		return fmt.Errorf("expected a binary property list, found %d bytes beginning %q", len(b), b[:min(8, len(b))])
	}
	trailer := b[len(b)-bplistTrailer:]
	w := archiveWalk{
		offsetSize: int(trailer[6]),
		refSize:    int(trailer[7]),
		count:      binary.BigEndian.Uint64(trailer[8:]),
		left:       maxArchiveObjects,
	}
	table := binary.BigEndian.Uint64(trailer[24:])
	if w.offsetSize < 1 || w.offsetSize > 8 || w.refSize < 1 || w.refSize > 8 || table > uint64(len(b)-bplistTrailer) ||
		w.count > (uint64(len(b)-bplistTrailer)-table)/uint64(w.offsetSize) {
		return fmt.Errorf("property list: %d objects, offsets of %d bytes at byte %d and references of %d bytes do not fit its %d bytes",
			w.count, w.offsetSize, table, w.refSize, len(b))
	}
	w.data, w.offsets = b[:table], b[table:]
	top := binary.BigEndian.Uint64(trailer[16:])
	if err := w.visit(top, 0); err != nil {
		return err
	}
	// The plain tree is sound. Once more from $top, now through the references between archived objects.
	roots, err := w.archived(top)
	if err != nil {
		return err
	}
	for _, ref := range roots {
		if err := w.visit(ref, 0); err != nil {
			return err
		}
	}
	return nil
}

const bplistTrailer = 32

// archiveWalk visits the objects of a binary property list.
type archiveWalk struct {
	data, offsets       []byte // objects, and where each begins
	offsetSize, refSize int
	count               uint64
	left                int // objects that may still be visited

	objects []uint64 // references of the archived objects, in order: where UIDs lead, once they are known
}

func (w *archiveWalk) visit(ref uint64, depth int) error {
	if depth > maxArchiveDepth {
		return fmt.Errorf("property list: objects nest more than %d deep, or in a circle", maxArchiveDepth)
	}
	if w.left--; w.left < 0 {
		return fmt.Errorf("property list: it unfolds to more than %d objects", maxArchiveObjects)
	}
	kind, body, err := w.object(ref)
	if err != nil {
		return err
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
func (w *archiveWalk) object(ref uint64) (kind byte, body []byte, err error) {
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
func (w *archiveWalk) archived(top uint64) (roots []uint64, err error) {
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
func (w *archiveWalk) refs(ref uint64) (kind byte, refs []uint64) {
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
