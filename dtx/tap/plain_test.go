package tap

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// A second decoder, to compare the first one with: wire.md's table written out, over a stream that is all there. It is slow, and its
// values are slices of slices.

type plainItem struct {
	kind  int
	bytes []byte
	list  []plainItem
	depth int
}

func (v plainItem) number() (uint64, bool) {
	if v.kind != kindBytes {
		return 0, false
	}
	n := uint64(0)
	for i, b := range v.bytes {
		if i >= 8 && b != 0 {
			return 0, false
		}
		if i < 8 {
			n |= uint64(b) << (8 * i)
		}
	}
	return n, true
}

func (v plainItem) text() string {
	text, _, _ := strings.Cut(string(v.bytes), "\x00")
	return text
}

func (v plainItem) show(budget *int) string {
	if *budget--; *budget < 0 {
		return "..."
	}
	switch v.kind {
	case kindNull:
		return "null"
	case kindBytes:
		return hex.EncodeToString(v.bytes)
	}
	parts := []string{}
	for i := 0; i < len(v.list) && *budget >= 0; i++ {
		parts = append(parts, v.list[i].show(budget))
	}
	return "[" + strings.Join(parts, " ") + "]"
}

type plainTable struct {
	name    string
	columns []string
}

type plainMachine struct {
	stack  []plainItem
	tables map[byte]plainTable
}

// plainEvent is what one opcode or value came to.
type plainEvent int

const (
	plainNothing plainEvent = iota
	plainDefined
	plainRow
	plainReset
	plainFault
	plainEnd
)

// step reads one opcode or value at pos. next is where the following one is; the word of a fault is at next-2, and an unfinished
// word or value begins at pos.
func (m *plainMachine) step(stream []byte, pos int, want Want) (next int, event plainEvent, row string) {
	word := func() (uint16, bool) {
		if next+2 > len(stream) {
			return 0, false
		}
		next += 2
		return binary.LittleEndian.Uint16(stream[next-2:]), true
	}
	next = pos
	w, ok := word()
	if !ok {
		return next, plainEnd, ""
	}
	if w>>15 == 1 {
		var all strings.Builder
		for {
			fmt.Fprintf(&all, "%014b", w&0x3fff)
			if w>>14 == 3 {
				break
			}
			if w, ok = word(); !ok {
				return next, plainEnd, ""
			}
			if w>>15 == 0 {
				return next, plainFault, ""
			}
		}
		bits := all.String()
		value := make([]byte, len(bits)/8)
		for i := range value {
			for _, bit := range bits[8*i : 8*i+8] {
				value[i] = value[i]<<1 | byte(bit-'0')
			}
		}
		return next, m.push(plainItem{kind: kindBytes, bytes: value}), ""
	}
	arg := int(w & 0xff)
	switch w >> 8 {
	case 0x01:
		if len(m.stack) < 4 {
			return next, plainFault, ""
		}
		name, columns := m.stack[len(m.stack)-2], m.stack[len(m.stack)-1]
		t := plainTable{name: name.text()}
		if !plainName(t.name) || len(columns.list) == 0 || len(columns.list) > 256 {
			return next, plainFault, ""
		}
		for _, c := range columns.list {
			if !plainName(c.text()) {
				return next, plainFault, ""
			}
			t.columns = append(t.columns, c.text())
		}
		m.stack = m.stack[:len(m.stack)-4]
		m.tables[byte(arg)] = t
		return next, plainDefined, ""
	case 0x02:
		t, ok := m.tables[byte(arg)]
		base := len(m.stack) - len(t.columns)
		if !ok || base < 0 {
			return next, plainFault, ""
		}
		items := m.stack[base:]
		m.stack = m.stack[:base]
		wanted, ok := want[t.name]
		if !ok {
			return next, plainNothing, ""
		}
		row = t.name
		for _, column := range wanted {
			value := plainItem{}
			for i := len(items) - 1; i >= 0; i-- {
				if t.columns[i] == column {
					value = items[i]
				}
			}
			budget := 200
			row += " " + column + "=" + value.show(&budget)
		}
		return next, plainRow, row
	case 0x05:
		if len(m.stack) == 0 {
			return next, plainFault, ""
		}
		return next, plainNothing, ""
	case 0x64:
		*m = plainMachine{tables: map[byte]plainTable{}}
		return next, plainReset, ""
	case 0x65:
		from := len(m.stack) - 1 - arg
		if arg == 255 {
			n, ok := m.pop()
			if from = n - 1; !ok {
				return next, plainFault, ""
			}
		}
		if from < 0 || from >= len(m.stack) {
			return next, plainFault, ""
		}
		return next, m.push(m.stack[from]), ""
	case 0x68:
		return next, m.push(plainItem{}), ""
	case 0x69:
		if arg == 255 {
			n, ok := m.pop()
			if arg = n; !ok {
				return next, plainFault, ""
			}
		}
		base := len(m.stack) - arg
		if base < 0 {
			return next, plainFault, ""
		}
		s := plainItem{kind: kindStruct, list: append([]plainItem(nil), m.stack[base:]...), depth: 1}
		for _, v := range s.list {
			s.depth = max(s.depth, v.depth+1)
		}
		if s.depth > 8 {
			return next, plainFault, ""
		}
		m.stack = m.stack[:base]
		return next, m.push(s), ""
	case 0x6a, 0x6b:
		if w>>8 == 0x6b {
			arg = 1
		}
		if arg > len(m.stack) {
			return next, plainFault, ""
		}
		m.stack = m.stack[:len(m.stack)-arg]
		return next, plainNothing, ""
	}
	return next, plainFault, ""
}

func plainName(name string) bool {
	for _, r := range []byte(name) {
		if r < 32 || r > 126 {
			return false
		}
	}
	return len(name) >= 1 && len(name) <= 128
}

func (m *plainMachine) push(v plainItem) plainEvent {
	if len(m.stack) == 16384 {
		return plainFault
	}
	m.stack = append(m.stack, v)
	return plainNothing
}

func (m *plainMachine) pop() (int, bool) {
	if len(m.stack) == 0 {
		return 0, false
	}
	n, ok := m.stack[len(m.stack)-1].number()
	m.stack = m.stack[:len(m.stack)-1]
	return int(min(n, 1<<30)), ok
}

// plainSearch skips from start, two bytes at a time, to a reset after which a table definition follows without a fault. It returns
// the machine after that definition, and where the stream goes on (-1: nowhere); the row ends passed over before the reset, or
// before the end.
func plainSearch(stream []byte, start int) (m *plainMachine, next, resetAt, rows int) {
	for pos := start; pos+2 <= len(stream); pos += 2 {
		switch stream[pos+1] {
		case 0x02:
			rows++
		case 0x64:
			m, next := &plainMachine{}, pos
			for event := plainNothing; event < plainFault; {
				at := next
				switch next, event, _ = m.step(stream, at, nil); event {
				case plainReset:
					resetAt = at
				case plainDefined:
					return m, next, resetAt, rows
				case plainEnd:
					return nil, -1, 0, rows
				}
			}
			pos = next - 4 // so that the word of the fault is the next one looked at
		}
	}
	return nil, -1, 0, rows
}

// plainDecode is decode, by the plain decoder.
func plainDecode(want Want, stream []byte) (lines []string) {
	m, begun := &plainMachine{tables: map[byte]plainTable{}}, false
	for pos := 0; ; {
		at := pos
		var event plainEvent
		var row string
		pos, event, row = m.step(stream, at, want)
		switch event {
		case plainRow:
			lines = append(lines, row)
		case plainReset:
			if !begun && at > 0 {
				lines = append(lines, gapLine(ReasonSkipped, 0, int64(at)))
			}
			begun = true
		case plainDefined:
			begun = true
		case plainEnd:
			switch {
			case !begun && len(stream) > 0:
				lines = append(lines, gapLine(ReasonSkipped, 0, int64(len(stream))))
			case at < len(stream):
				lines = append(lines, gapLine(ReasonTorn, 0, int64(len(stream)-at)))
			}
			return lines
		case plainFault:
			bad := pos - 2
			lostAt := bad
			if !begun {
				lostAt = 0
			}
			lines = append(lines, gapLine(ReasonBroken, 0, 0))
			found, next, resetAt, rows := plainSearch(stream, bad)
			other, otherNext, otherReset, otherRows := plainSearch(stream, bad+1)
			if other != nil && (found == nil || otherNext < next) {
				found, next, resetAt, rows = other, otherNext, otherReset, otherRows
			}
			if found == nil {
				return append(lines, gapLine(ReasonSkipped, int64(rows), int64(len(stream)-lostAt)))
			}
			lines = append(lines, gapLine(ReasonSkipped, int64(rows), int64(resetAt-lostAt)))
			m, pos, begun = found, next, true
		}
	}
}

// split cuts a stream into payloads of 0 to 2*mean bytes.
func split(r *rand.Rand, stream []byte, mean int) (payloads [][]byte) {
	for len(stream) > 0 {
		n := min(r.IntN(2*mean+1), len(stream))
		payloads = append(payloads, stream[:n])
		stream = stream[n:]
	}
	return payloads
}

// randomStream is a stream of sensible words (tables, values, references, rows), or in half the cases nearly: now and then something
// is missing or makes no sense.
func randomStream(r *rand.Rand) []byte {
	var out []byte
	word := func(w int) { out = binary.LittleEndian.AppendUint16(out, uint16(w)) }
	define := func() { out = append(out, stream(definition)...) }
	wrong := max(0, r.IntN(10)-5) // in 1000 words
	height := 0
	word(0x6400)
	define()
	for range 1 + r.IntN(400) {
		if r.IntN(1000) < wrong {
			switch r.IntN(3) {
			case 0:
				word(r.IntN(1 << 16))
			case 1:
				out = append(out, byte(r.IntN(256)))
			case 2:
				out = out[:max(0, len(out)-1-r.IntN(5))]
			}
		}
		count := r.IntN(height + 1)
		switch r.IntN(40) {
		case 0:
			word(0x6400)
			define()
			height = 0
		case 1:
			define()
			out[len(out)-2] = byte(2 + r.IntN(2)) // the id
		case 2, 3, 4, 5, 6:
			if height >= 2 {
				word(0x0202)
				height -= 2
			}
		case 7, 8:
			word(0x6800)
			height++
		case 9: // a long copy
			if height > 0 {
				word(0xc040 + count%height<<6)
				word(0x65ff)
				height++
			}
		case 10: // a long struct
			word(0xc000 + count<<6)
			word(0x69ff)
			height += 1 - count
		case 11, 12:
			count = min(count, 2)
			fallthrough
		case 13:
			word(0x6900 + count)
			height += 1 - count
		case 14:
			word(0x6a00 + count%3)
			height -= count % 3
		case 15:
			word(0x6800)
			word(0x6b00)
		case 16:
			if height > 0 {
				word(0x0500)
			}
		case 17, 18, 19, 20, 21, 22:
			if height > 0 {
				word(0x6500 + count%height)
				height++
			}
		default:
			for r.IntN(3) > 0 {
				word(0x8000 | r.IntN(1<<14))
			}
			word(0xc000 | r.IntN(1<<14))
			height++
		}
	}
	return out
}

func TestAgreesWithThePlainDecoderOnRandomStreams(t *testing.T) {
	const n = 1_000
	rows, gaps := 0, 0
	for seed := range uint64(n) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := randomStream(r)
		want := plainDecode(timeAndName, s)
		for _, line := range want {
			if strings.HasPrefix(line, "os-signpost") {
				rows++
			} else {
				gaps++
			}
		}
		wantLines(t, fmt.Sprintf("seed %d, one payload", seed), decode(timeAndName, s), want...)
		wantLines(t, fmt.Sprintf("seed %d, torn", seed), decode(timeAndName, split(r, s, 1+r.IntN(20))...), want...)
		if t.Failed() {
			t.Fatalf("%x", s)
		}
	}
	if rows < 10*n || gaps < n/5 {
		t.Errorf("the streams are too dull to show anything: %d rows, %d gaps in %d streams", rows, gaps, n)
	}
}

func FuzzDecoder(f *testing.F) {
	f.Add(stream(workedExample), uint64(0))
	f.Add(stream("c040", workedExample, "0000 0202 6400", definition, "c040 6500 0202 8000"), uint64(1))
	f.Add(append([]byte{7}, stream("6464 6800", workedExample, "7f00 0202")...), uint64(2))
	for seed := range uint64(20) {
		f.Add(randomStream(rand.New(rand.NewPCG(seed, 2))), seed)
	}
	wants := Want{"os-signpost": {"time", "name", "message"}, "os-log": {"time"}}
	d := NewDecoder(wants)
	f.Fuzz(func(t *testing.T, s []byte, seed uint64) {
		if len(s) > 64<<10 {
			return // beyond that the plain decoder would need the bounds on memory too
		}
		want := plainDecode(wants, s)
		wantLines(t, "one payload", decodeWith(d, wants, s), want...)
		r := rand.New(rand.NewPCG(seed, 0))
		wantLines(t, "torn", decodeWith(d, wants, split(r, s, 1+r.IntN(50))...), want...)
	})
}
