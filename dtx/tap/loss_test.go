package tap

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

func TestWhatIsSkippedIsCounted(t *testing.T) {
	row := "c040 6500 0202 "
	const seen, broken = "os-signpost time=01 name=01", "row-stream-broken rows=0 bytes=0"
	for _, c := range []struct {
		name    string
		payload []byte
		want    []string
	}{
		{"from the fault to the reset", stream("6400", definition, row, "7f00", row, row, "6400", definition, row),
			[]string{seen, broken, "row-stream-skipped rows=2 bytes=14", seen}},
		{"from the fault to the end", stream("6400", definition, row, "7f00", row, row), []string{seen, broken, "row-stream-skipped rows=2 bytes=14"}},
		{"a word's first byte lost", append(append(stream("6400", definition, row), 0x65), stream("0202", row, "6400", definition, row)...),
			[]string{seen, broken, "row-stream-skipped rows=2 bytes=9", seen}},
		{"resets that no table follows are skipped too", stream("6400", definition, row, "7f00", row, "6400", row, "6400 c040 6400", definition, row),
			[]string{seen, broken, "row-stream-skipped rows=2 bytes=20", seen}},
		{"a connection joined in a row", stream("c040 6501", row, "6400", definition, row), []string{broken, "row-stream-skipped rows=1 bytes=10", seen}},
		{"a connection joined where no fault shows", stream("c040 6500 6400", definition, row), []string{"row-stream-skipped rows=0 bytes=4", seen}},
		{"a connection joined where neither a fault nor a reset comes", stream("c040 6500"), []string{"row-stream-skipped rows=0 bytes=4"}},
		{"within a value", stream("8000 8000 8000"), []string{"row-stream-skipped rows=0 bytes=6"}},
		{"a connection without a payload", nil, nil},
		{"a connection that begins with its tables", stream(definition, row), []string{seen}},
		{"two losses", stream("6400", definition, row, "7f00 6400", definition, row, "8000 6800", row, "6400", definition, row),
			[]string{seen, broken, "row-stream-skipped rows=0 bytes=2", seen, broken, "row-stream-skipped rows=1 bytes=8", seen}},
	} {
		wantLines(t, c.name, decode(timeAndName, c.payload), c.want...)
		for at := range c.payload {
			wantLines(t, fmt.Sprintf("%s, torn at byte %d", c.name, at), decode(timeAndName, c.payload[:at], c.payload[at:]), c.want...)
		}
	}
}

func TestAGapSaysWhatWasWrongAndWhere(t *testing.T) {
	d, j := NewDecoder(timeAndName), &journal{}
	d.Decode(stream("6400", definition, "c040 6505"), j)
	d.Decode(stream("c040"), j)
	d.Flush(j)
	// The definition takes 17 words, so that the copy is the 20th word.
	wantLines(t, "details", j.details,
		"byte 38 of the row stream, 1 items on the stack: a copy of an item that is not on the stack; "+
			"rows are skipped until the next reset",
		"skipped from byte 38 of the row stream to its end at byte 42; no reset came")
}

func TestAWordThatOnlyLooksLikeAResetIsNotBelieved(t *testing.T) {
	row := "c040 6500 0202 "
	begin := stream("6400", definition, row, "7f00")
	const seen, broken = "os-signpost time=01 name=01", "row-stream-broken rows=0 bytes=0"
	for name, skipped := range map[string][]byte{
		// The bytes 64 bf bf bf ... read, from the 64 on as a high byte, as a reset and then words of a value, right over the true reset.
		"at the other alignment": stream("bf64 bfbf bfbf bfbf"),
		// A reset, two nulls, a value of one byte, and then nothing that could define a table.
		"at this alignment": stream("6400 6800 6800 c040 0102"),
	} {
		s := append(append(bytes.Clone(begin), skipped...), stream("6400", definition, row)...)
		wantLines(t, name, decode(timeAndName, s), seen, broken, fmt.Sprintf("row-stream-skipped rows=0 bytes=%d", 2+len(skipped)), seen)
	}
}

func TestALostDecoderSaysSo(t *testing.T) {
	d, j := NewDecoder(timeAndName), &journal{wants: timeAndName}
	for _, step := range []struct {
		words string
		lost  bool
	}{
		{"", false}, {"6400 " + definition, false}, {"c040", false}, {"7f00", true}, {"c040 6500 0202", true}, {"6400", true},
		{definition, false}, {"8000", false}, {"6800", true},
	} {
		d.Decode(stream(step.words), j)
		if d.Lost() != step.lost {
			t.Errorf("after %q: lost is %v", step.words, d.Lost())
		}
	}
	d.Flush(j)
	if d.Lost() {
		t.Error("lost at the start of a connection")
	}
	wantLines(t, "all", j.lines, "row-stream-broken rows=0 bytes=0", "row-stream-skipped rows=1 bytes=8",
		"row-stream-broken rows=0 bytes=0", "row-stream-skipped rows=0 bytes=2")
}

func TestFlushForgetsTheConnection(t *testing.T) {
	d, j := NewDecoder(timeAndName), &journal{wants: timeAndName}
	d.Decode(append(stream("6400", definition, "c040 8000"), 7), j)
	d.Flush(j)
	d.Decode(stream("c040 0202"), j)
	d.Flush(j)
	d.Decode(stream(definition, "c040 6500 0202"), j)
	d.Flush(j)
	wantLines(t, "all", j.lines, "row-stream-torn rows=0 bytes=3",
		"row-stream-broken rows=0 bytes=0", "row-stream-skipped rows=1 bytes=4", "os-signpost time=01 name=01")
}

// breaker calls Break in its rows for as long as times says.
type breaker struct {
	journal
	d     *Decoder
	times int
}

func (b *breaker) Row(r *Row) {
	b.journal.Row(r)
	if b.times > 0 {
		b.times--
		b.d.Break("this row makes no sense", b)
	}
}

func TestTheCallerCanBreakTheStream(t *testing.T) {
	row := "c040 6500 0202 "
	const seen, broken = "os-signpost time=01 name=01", "row-stream-broken rows=0 bytes=0"
	begin := stream("6400", definition, row)
	rest := stream(row, row, "6400", definition, row)

	d, b := NewDecoder(timeAndName), &breaker{journal: journal{wants: timeAndName}}
	d.Decode(append(begin, 0x00), b)
	d.Break("a payload is missing", b)
	// The missing payload had an odd length: what is left of its last word is a reset's second byte, and then tables.
	d.Decode(append([]byte{0x64}, stream(definition, row)...), b)
	d.Break("a payload is missing", b)
	d.Decode(rest[1:], b)
	wantLines(t, "between payloads", b.lines, seen, broken, "row-stream-skipped rows=0 bytes=0",
		seen, broken, "row-stream-skipped rows=2 bytes=11", seen)
	if b.details[0] != "a payload is missing" {
		t.Errorf("%q", b.details)
	}

	d, b = NewDecoder(timeAndName), &breaker{journal: journal{wants: timeAndName}, times: 1}
	b.d = d
	d.Decode(append(begin, rest...), b)
	wantLines(t, "inside a row", b.lines, seen, broken, "row-stream-skipped rows=2 bytes=12", seen)

	d, b = NewDecoder(timeAndName), &breaker{journal: journal{wants: timeAndName}}
	d.Decode(stream("6400", definition, "7f00", row, "6400"), b)
	d.Break("a payload is missing", b)
	d.Decode(stream(definition, row), b) // that reset was before the loss
	d.Decode(stream("6400", definition, row), b)
	wantLines(t, "while lost", b.lines, broken, broken, fmt.Sprintf("row-stream-skipped rows=2 bytes=%d", 2+6+2+34+6), seen)
}

// After any damage the decoder comes back with the next reset, tells of nothing in between, and panics never.
func TestDamageAnywhereIsAGapUntilTheNextReset(t *testing.T) {
	dec := NewDecoder(Want{"os-signpost": frameColumns})
	payloads := wirePayloads(t, "tap/ios26.wire")
	s, next := bytes.Join(payloads, nil), payloads[0]
	rows := digestOf(dec, next).rows
	for name, damage := range map[string]func(s []byte, at int) []byte{
		"bit 6 of":    func(s []byte, at int) []byte { s[at] ^= 0x40; return s },
		"bit 7 of":    func(s []byte, at int) []byte { s[at] ^= 0x80; return s },
		"all bits of": func(s []byte, at int) []byte { s[at] ^= 0xff; return s },
		"lost":        func(s []byte, at int) []byte { return append(s[:at], s[at+1:]...) },
		"lost from":   func(s []byte, at int) []byte { return s[:at] },
		"twice":       func(s []byte, at int) []byte { return append(s[:at+1], s[at:]...) },
	} {
		for at := range s {
			var sum tally
			dec.Decode(damage(bytes.Clone(s), at), &sum)
			before := sum
			dec.Decode(next, &sum)
			dec.Flush(&tally{}) // next ends in the middle of an opcode
			if sum.misplaced > 0 || sum.lost || rows < 3 || sum.rows-before.rows != rows {
				t.Fatalf("%s byte %d: %+v, and then %+v", name, at, before, sum)
			}
		}
	}
}

func TestMemoryIsBoundedWhateverComes(t *testing.T) {
	begin := string(stream("6400", definition))
	repeat := func(n int, words ...string) string { return strings.Repeat(string(stream(words...)), n) }
	value := func(n int) string { return repeat(n, "bfff") + repeat(1, "ffff") }
	const size = 1 << 20 // words
	for name, s := range map[string]string{
		"a value without end":       begin + value(size),
		"long values":               begin + strings.Repeat(value(500_000), 11), // 875 KB each
		"short values":              begin + value(0) + repeat(size, "ffff"),
		"nulls":                     begin + repeat(size, "6800"),
		"copies":                    begin + repeat(1, "c040") + repeat(size, "6500"),
		"structs of copies":         begin + strings.Repeat(repeat(1, "c040")+repeat(250, "6500")+repeat(1, "69fa"), size/256),
		"structs in structs":        begin + repeat(1, "c040") + repeat(size, "6901"),
		"wide structs":              begin + strings.Repeat(repeat(5000, "6800")+repeat(1, "a204 f000 69ff"), size/5000), // bytes 88 13: 5000
		"structs of values":         begin + strings.Repeat(repeat(250, "ffff")+repeat(1, "69fa"), size/256),
		"resets":                    begin + repeat(size/18, "6400 "+definition),
		"tables of all ids":         begin + strings.Repeat(repeat(1, definition), size/17),
		"faults":                    begin + repeat(size/20, "7f00 6400 "+definition),
		"faults, other alignment":   begin + strings.Repeat("\x00"+string(stream("7f00 6400", definition)), size/20),
		"resets that are never one": begin + repeat(1, "7f00") + repeat(size, "6464"),
	} {
		var before, after runtime.MemStats
		d, sum := NewDecoder(timeAndName), &tally{}
		payload := []byte(s)
		runtime.GC()
		runtime.ReadMemStats(&before)
		for len(payload) > 0 {
			n := min(len(payload), 128<<10)
			d.Decode(payload[:n], sum)
			payload = payload[n:]
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 32<<20 {
			t.Errorf("%s: %d bytes are in use", name, grown)
		}
		runtime.KeepAlive(d)
		runtime.KeepAlive(s)
	}
}

// The device lets its stack grow to about 5,000 items.
func TestAStackAsHighAsADeviceKeepsItIsNoFault(t *testing.T) {
	s := stream("6400", definition)
	for i := range 6000 {
		s = append(s, stream(fmt.Sprintf("%04x", 0x8000|i), strings.Repeat("bfff ", 198), "ffff")...) // 350 bytes
	}
	// Long copies of the items 1 - 1 and 6000 - 1 (bytes 70 17).
	s = append(s, stream("c040 65ff  9c05 f000 65ff  0202")...)
	wantLines(t, "row", decode(timeAndName, s),
		"os-signpost time=0003"+strings.Repeat("ff", 348)+" name=5dbf"+strings.Repeat("ff", 348))
}
