package plistcheck

import (
	"encoding/binary"
	"runtime"
	"strings"
	"testing"

	"howett.net/plist"
)

var bounds = Bounds{Bytes: 1 << 20, Depth: 64, Objects: 1 << 14}

// document writes a binary property list of these objects, the first of which is the root. References are two bytes, offsets four.
func document(objects ...string) []byte {
	b := []byte("bplist00")
	var offsets []byte
	for _, o := range objects {
		offsets = binary.BigEndian.AppendUint32(offsets, uint32(len(b)))
		b = append(b, o...)
	}
	trailer := make([]byte, 32)
	trailer[6], trailer[7] = 4, 2
	binary.BigEndian.PutUint64(trailer[8:], uint64(len(objects)))
	binary.BigEndian.PutUint64(trailer[24:], uint64(len(b)))
	return append(append(b, offsets...), trailer...)
}

// array is the object of an array of these references.
func array(refs ...int) string {
	b := []byte{0xA0 | byte(len(refs))}
	for _, r := range refs {
		b = binary.BigEndian.AppendUint16(b, uint16(r))
	}
	return string(b)
}

// levels are n arrays, each of which holds the next one as often as asked, and a number in the last.
func levels(n, times int) []byte {
	var objects []string
	for i := range n {
		refs := make([]int, times)
		for j := range refs {
			refs[j] = i + 1
		}
		objects = append(objects, array(refs...))
	}
	return document(append(objects, "\x10\x07")...)
}

// overlapping are texts of UTF-16, 1,000 characters each, that all lie over the same bytes: a decoder copies each.
func overlapping(texts int) []byte {
	root := "\xAF\x11" + string(binary.BigEndian.AppendUint16(nil, uint16(texts)))
	for i := range texts {
		root += string(binary.BigEndian.AppendUint16(nil, uint16(i+1)))
	}
	objects := []string{root}
	for range texts {
		objects = append(objects, "\x6F\x11\x03\xE8") // its characters are what follows it
	}
	return document(append(objects, strings.Repeat("\x00a", 1000))...)
}

// nested are n arrays in XML, each in the one before.
func nested(n int) []byte {
	return []byte("<plist>" + strings.Repeat("<array>", n) + strings.Repeat("</array>", n) + "</plist>")
}

// empty are n dictionaries in one array.
func empty(n int) []byte {
	return []byte("<plist><array>" + strings.Repeat("<dict/>", n) + "</array></plist>")
}

func TestMessagesThatWouldTakeTheMemoryOrTheStackAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		message []byte
		errHas  string // "" where it may pass
	}{
		"8,191 arrays and 8,192 numbers of 14 objects": {levels(13, 2), ""},
		"twice as many of 15":                          {levels(14, 2), "unfolds to more than 16384 objects"},
		"2^40 numbers of 41":                           {levels(40, 2), "unfolds to more than 16384 objects"},
		"a number in 64 arrays":                        {levels(64, 1), ""},
		"a number in 65 arrays":                        {levels(65, 1), "nest more than 64 deep"},
		"an array in itself":                           {document(array(0)), "nest more than 64 deep, or in a circle"},
		"2,000 texts that share 2,000 bytes":           {overlapping(2000), ""},
		"2,500 texts that share 2,000 bytes":           {overlapping(2500), "unfolds to more than 4194304 bytes"},
		"a reference to an object that is none":        {document(array(7)), "object 7 of 1"},
		"63 elements in the root":                      {nested(63), ""},
		"64 elements in the root":                      {nested(64), "nest more than 64 deep"},
		"140,000 elements, never closed":               {[]byte("<plist>" + strings.Repeat("<array>", 140_000)), "nest more than 64 deep"},
		"16,384 elements":                              {empty(16_382), ""},
		"16,385 elements":                              {empty(16_383), "unfolds to more than 16384 objects"},
		"a byte more than 1 MiB of XML":                {append([]byte("<plist/>"), make([]byte, 1<<20-7)...), "expected at most 1048576 bytes, found 1048577"},
		"a byte more than 1 MiB of binary":             {append([]byte("bplist00"), make([]byte, 1<<20-7)...), "expected at most 1048576 bytes, found 1048577"},
		"the text form, whose arrays are parentheses":  {[]byte(strings.Repeat("(", 100_000)), "neither binary nor XML"},
		"the same behind an element of another name":   {[]byte("<x/>" + strings.Repeat("(", 100_000)), "expected the element plist"},
		"XML that ends early":                          {[]byte("<plist><dict><key>a</key>"), "cannot be read at byte 25 of 25"},
		"what follows the root":                        {[]byte("<plist><dict></dict></plist>\n\x00"), ""},
		"nothing":                                      {nil, "cannot be read at byte 0 of 0"},
	} {
		err := Message(c.message, bounds)
		if (err == nil) != (c.errHas == "") || err != nil && !strings.Contains(err.Error(), c.errHas) {
			t.Errorf("%s: error %v, want %q", name, err, c.errHas)
		}
		if err != nil && strings.Contains(err.Error(), "EOF") {
			t.Errorf("%s: %v would be taken for the connection's end", name, err)
		}
	}
}

// What passes the check is decoded, and comes to no more than the bounds say.
func FuzzMessage(f *testing.F) {
	for _, b := range [][]byte{
		levels(5, 2), levels(40, 2), levels(65, 1), document(array(0)), overlapping(3), nested(3), nested(64), empty(3), []byte("((("), []byte("<x/>((("),
		[]byte("<plist><dict><key>a</key><data>AA==</data><key>b</key><integer>-1</integer></dict></plist>"), document("\xD1\x00\x01\x00\x02", "\x51a", "\x83\x00\x00\x00\x01"),
	} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if Message(b, bounds) != nil {
			return
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		v, err := decode(b)
		runtime.ReadMemStats(&after)
		if spent := after.TotalAlloc - before.TotalAlloc; spent > 64<<20 {
			t.Errorf("decoding %d bytes took %d bytes of memory", len(b), spent)
		}
		if deep, objects := measure(v); err == nil && (deep > 64 || objects > 1<<14) {
			t.Errorf("it nests %d deep and has %d objects", deep, objects)
		}
	})
}

// decode may panic where an object is cut off, which can be recovered from.
func decode(b []byte) (v any, err error) {
	defer func() { recover() }()
	_, err = plist.Unmarshal(b, &v)
	return v, err
}

func measure(v any) (deep, objects int) {
	var within []any
	switch v := v.(type) {
	case []any:
		within = v
	case map[string]any:
		for _, e := range v {
			within = append(within, e)
		}
	}
	for _, e := range within {
		d, n := measure(e)
		deep, objects = max(deep, d+1), objects+n
	}
	return deep, objects + 1
}
