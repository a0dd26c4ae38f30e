package tap

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// stream is words as wire.md writes them, in the order of the wire.
func stream(words ...string) []byte {
	var out []byte
	for _, word := range strings.Fields(strings.Join(words, " ")) {
		b, err := hex.DecodeString(word)
		if err != nil || len(b) != 2 {
			panic("not a word: " + word)
		}
		out = binary.LittleEndian.AppendUint16(out, binary.BigEndian.Uint16(b))
	}
	return out
}

// journal is a Handler that writes down all it is told.
type journal struct {
	wants   Want
	lines   []string
	details []string
}

func (j *journal) Row(r *Row) {
	line := r.Table()
	for i, name := range j.wants[r.Table()] {
		budget := 200
		line += " " + name + "=" + show(r.Value(i), &budget)
	}
	j.lines = append(j.lines, line)
}

func (j *journal) Gap(g Gap) {
	j.lines = append(j.lines, gapLine(g.Reason, g.Rows, g.Bytes))
	j.details = append(j.details, g.Detail)
}

func gapLine(reason string, rows, bytes int64) string {
	return fmt.Sprintf("%s rows=%d bytes=%d", reason, rows, bytes)
}

// show writes a value as hex, null or [list]. A few copies of copies can make a value of billions of parts, so it stops after a budget of parts.
func show(v Value, budget *int) string {
	if *budget--; *budget < 0 {
		return "..."
	}
	switch {
	case v.IsNull():
		return "null"
	case !v.IsStruct():
		return hex.EncodeToString(v.Bytes())
	}
	parts := []string{}
	for i := 0; i < v.Len() && *budget >= 0; i++ {
		parts = append(parts, show(v.At(i), budget))
	}
	return "[" + strings.Join(parts, " ") + "]"
}

// decode is what a decoder tells about a stream that comes in these payloads.
func decode(want Want, payloads ...[]byte) []string {
	return decodeWith(NewDecoder(want), want, payloads...)
}

func decodeWith(d *Decoder, want Want, payloads ...[]byte) []string {
	j := &journal{wants: want}
	for _, p := range payloads {
		d.Decode(p, j)
	}
	d.Flush(j)
	return j.lines
}

func wantLines(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\ngot  %s\nwant %s", what, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

// timeAndName is the worked example's table; its definition as wire.md has it.
var timeAndName = Want{"os-signpost": {"time", "name"}}

const definition = `6800 6800  9bdc b2d7 8da5 a76e 9c1b b737 d000  9d1a 96d6 d400  9b98 96d6 d400  6902 0102 `

// The worked example of wire.md, word for word.
const workedExample = `6400 ` + definition + `
	919c a616 b595 8c69 9999 9746 a5b5 e500
	bc43 9cba 86ec ce00  0500
	6501 0202
	a006 e060
	c040 65ff 0202`

type firstTimes struct {
	t     *testing.T
	times []uint64
	names []string
}

func (f *firstTimes) Row(r *Row) {
	number, ok := r.Value(0).Uint64()
	if !ok || r.Table() != "os-signpost" {
		f.t.Errorf("table %q, time %v, %v", r.Table(), number, ok)
	}
	f.times = append(f.times, number)
	f.names = append(f.names, r.Value(1).String())
}

func (f *firstTimes) Gap(g Gap) { f.t.Error(g) }

func TestWorkedExampleOfTheSpecification(t *testing.T) {
	f := &firstTimes{t: t}
	d := NewDecoder(timeAndName)
	d.Decode(stream(workedExample), f)
	d.Flush(f)
	if !slices.Equal(f.times, []uint64{16199036112369, 400000}) || !slices.Equal(f.names, []string{"FrameLifetime", "FrameLifetime"}) {
		t.Errorf("times %v, names %q", f.times, f.names)
	}
}

func TestEveryOpcode(t *testing.T) {
	begin := "6400 " + definition
	// c040, c080, c0c0 and c100 are the bytes 01 to 04.
	const broken, torn = "row-stream-broken rows=0 bytes=0", "row-stream-torn rows=0 bytes=%d"
	for _, c := range []struct {
		name, words string
		want        []string
	}{
		{"end of row takes its columns in order and leaves what is below", begin + "c040 c080 c0c0 0202 c100 0202", []string{
			"os-signpost time=02 name=03", "os-signpost time=01 name=04"}},
		{"a time stays as it is", begin + "c040 0500 c080 05ff 0202", []string{"os-signpost time=01 name=02"}},
		{"null", begin + "6800 c040 0202", []string{"os-signpost time=null name=01"}},
		{"the argument of null is ignored", begin + "68ff c040 0202", []string{"os-signpost time=null name=01"}},
		{"copy of the top", begin + "c040 6500 0202", []string{"os-signpost time=01 name=01"}},
		{"copy from below", begin + "c040 c080 c0c0 6502 0202", []string{"os-signpost time=03 name=01"}},
		{"long copy counts from the bottom", begin + "c040 c080 c0c0 c080 65ff 0202", []string{"os-signpost time=03 name=02"}},
		{"long copy of a null", begin + "6800 c040 65ff c080 0202", []string{"os-signpost time=null name=02"}},
		{"struct", begin + "c040 c080 6902 6800 0202", []string{"os-signpost time=[01 02] name=null"}},
		{"struct of one, three and none", begin + "c040 6901 c080 c0c0 6903 6900 0202", []string{"os-signpost time=[[01] 02 03] name=[]"}},
		{"long struct", begin + "c040 c080 c0c0 c0c0 69ff 6800 0202", []string{"os-signpost time=[01 02 03] name=null"}},
		{"a struct keeps what it holds when it is copied, and when its parts are gone", begin + "c040 c080 6902 6500 c0c0 6902 0202", []string{
			"os-signpost time=[01 02] name=[[01 02] 03]"}},
		{"drop", begin + "c040 c080 c0c0 6a02 c100 0202", []string{"os-signpost time=01 name=04"}},
		{"drop of none", begin + "c040 c080 6a00 0202", []string{"os-signpost time=01 name=02"}},
		{"drop has no long form", begin + strings.Repeat("c040 ", 257) + "6aff 0202 c040 0202", []string{
			"os-signpost time=01 name=01", broken, "row-stream-skipped rows=1 bytes=2"}},
		{"self check drops the top, whatever it is", begin + "c040 c080 c0c0 6b00 0202 6800 6b01", []string{"os-signpost time=01 name=02"}},
		{"reset empties the stack and forgets the tables", begin + "c040 6400 " + definition + "c080 6500 0202 6400 c040 c040 0202", []string{
			"os-signpost time=02 name=02", broken, "row-stream-skipped rows=1 bytes=2"}},
		{"the argument of reset is ignored", "6407 " + definition + "c080 6500 0202", []string{"os-signpost time=02 name=02"}},
		{"a table may be defined anew, with its columns in another order",
			begin + "c040 c080 0202 6800 6800  9bdc b2d7 8da5 a76e 9c1b b737 d000  9b98 96d6 d400  9d1a 96d6 d400 6902 0102 c040 c080 0202", []string{
				"os-signpost time=01 name=02", "os-signpost time=02 name=01"}},
		{"the same name under another id", begin + strings.Replace(definition, "0102", "01ff", 1) + "c040 c080 02ff", []string{"os-signpost time=01 name=02"}},
		{"rows of other tables are passed over", // table 3, "x", column "y"
			begin + "6800 6800 de00 de40 6901 0103 c040 0303", []string{broken, "row-stream-skipped rows=0 bytes=2"}},
		{"a column that the table lacks is null", "6400 6800 6800 9bdc b2d7 8da5 a76e 9c1b b737 d000 9d1a 96d6 d400 6901 0102 c040 0202", []string{
			"os-signpost time=01 name=null"}},

		{"opcode 0", begin + "0000", []string{broken, "row-stream-skipped rows=0 bytes=2"}},
		{"opcode 0x7f", begin + "7f00", []string{broken, "row-stream-skipped rows=0 bytes=2"}},
		{"time on an empty stack", begin + "0500", []string{broken, "row-stream-skipped rows=0 bytes=2"}},
		{"copy on an empty stack", begin + "6500", []string{broken, "row-stream-skipped rows=0 bytes=2"}},
		{"copy from below the stack", begin + "c040 6501", []string{broken, "row-stream-skipped rows=0 bytes=2"}},
		{"copy from far below the stack", begin + "c040 65fe", []string{broken, "row-stream-skipped rows=0 bytes=2"}},
		{"long copy of item 0 - 1", begin + "c040 c000 65ff", []string{broken, "row-stream-skipped rows=0 bytes=2"}},
		{"long copy of its own number", begin + "c040 c080 65ff", []string{broken, "row-stream-skipped rows=0 bytes=2"}},
		{"long copy with a null for a number", begin + "c040 6800 65ff", []string{broken, "row-stream-skipped rows=0 bytes=2"}},
		{"long copy with a struct for a number", begin + "c040 c040 6901 65ff", []string{broken, "row-stream-skipped rows=0 bytes=2"}},
		{"long copy with a huge number", begin + "c040 bfff bfff bfff bfff ffc0 65ff", []string{broken, "row-stream-skipped rows=0 bytes=2"}},
		{"long copy on an empty stack", begin + "65ff", []string{broken, "row-stream-skipped rows=0 bytes=2"}},
		{"struct of more than there is", begin + "c040 6902", []string{broken, "row-stream-skipped rows=0 bytes=2"}},
		{"long struct of more than there is", begin + "c040 c080 69ff", []string{broken, "row-stream-skipped rows=0 bytes=2"}},
		{"drop of more than there is", begin + "c040 6a02", []string{broken, "row-stream-skipped rows=0 bytes=2"}},
		{"self check on an empty stack", begin + "6b00", []string{broken, "row-stream-skipped rows=0 bytes=2"}},
		{"row of an unknown table", begin + "c040 c040 0203", []string{broken, "row-stream-skipped rows=1 bytes=2"}},
		{"row with too few items", begin + "c040 0202", []string{broken, "row-stream-skipped rows=1 bytes=2"}},
		{"definition with too few items", begin + "6800 de00 de40 6901 0103", []string{broken, "row-stream-skipped rows=0 bytes=2"}},
		{"definition without columns", begin + "6800 6800 de00 6900 0103", []string{broken, "row-stream-skipped rows=0 bytes=2"}},
		{"definition with a value for columns", begin + "6800 6800 de00 de40 0103", []string{broken, "row-stream-skipped rows=0 bytes=2"}},
		{"definition with a null for a column", begin + "6800 6800 de00 6800 6901 0103", []string{broken, "row-stream-skipped rows=0 bytes=2"}},
		{"definition without a name", begin + "6800 6800 6800 de40 6901 0103", []string{broken, "row-stream-skipped rows=0 bytes=2"}},
		{"definition with a name that is none", begin + "6800 6800 c040 de40 6901 0103", []string{broken, "row-stream-skipped rows=0 bytes=2"}},
		{"opcode inside a value", begin + "8000 6800", []string{broken, "row-stream-skipped rows=0 bytes=2"}},
		{"opcode inside a long value", begin + "8000 8000 8000 8000 8000 0202", []string{broken, "row-stream-skipped rows=1 bytes=2"}},
		{"a reset inside a value ends the loss that it shows", begin + "8000 6400 " + definition + "c040 6500 0202", []string{
			broken, "row-stream-skipped rows=0 bytes=0", "os-signpost time=01 name=01"}},

		{"the stream ends in a value", begin + "c040 8000 8000", []string{fmt.Sprintf(torn, 4)}},
		{"the stream ends in a long value", begin + "c040 8000 8000 8000 8000 8000 8000 8000", []string{fmt.Sprintf(torn, 14)}},
		{"the stream ends with a whole word", begin + "c040", nil},
		{"no stream", "", nil},
	} {
		wantLines(t, c.name, decode(timeAndName, stream(c.words)), c.want...)
	}
	wantLines(t, "the stream ends in a word", decode(timeAndName, append(stream(begin, "8000"), 0x40)), fmt.Sprintf(torn, 3))
}

func TestRowsOfOtherTablesAreNotReported(t *testing.T) {
	// Table 3, "x", with one column "y"; its row leaves the stack as it was.
	words := "6400 " + definition + "6800 6800 de00 de40 6901 0103  c040 c080 0203 6500 0202"
	wantLines(t, "rows", decode(timeAndName, stream(words)), "os-signpost time=01 name=01")
	wantLines(t, "rows", decode(Want{"x": {"y"}}, stream(words)), "x y=02")
	wantLines(t, "rows", decode(Want{"x": {}, "os-signpost": {"name"}}, stream(words)), "x", "os-signpost name=01")
}

// one decodes the words of a single item as the first column of a row, and hands it to check.
func one(t *testing.T, words string, check func(Value)) {
	t.Helper()
	seen := 0
	d := NewDecoder(timeAndName)
	d.Decode(stream("6400", definition, words, "6800 0202"), handlerFunc(func(r *Row) { seen++; check(r.Value(0)) }))
	if seen != 1 {
		t.Errorf("%s: %d rows", words, seen)
	}
}

type handlerFunc func(*Row)

func (f handlerFunc) Row(r *Row) { f(r) }
func (f handlerFunc) Gap(g Gap)  { panic(g.Detail) }

func TestValueIsAsManyWholeBytesAsItsBitsHold(t *testing.T) {
	for _, c := range []struct{ words, bytes string }{
		// 14, 28, 42, 56, 70, 84 and 98 bits make 1, 3, 5, 7, 8, 10 and 12 bytes. All ones, so that any bit in the wrong place shows.
		{"ffff", "ff"},
		{"bfff ffff", "ffffff"},
		{"bfff bfff ffff", "ffffffffff"},
		{"bfff bfff bfff ffff", "ffffffffffffff"},
		{"bfff bfff bfff bfff ffff", "ffffffffffffffff"},
		{"bfff bfff bfff bfff bfff ffff", "ffffffffffffffffffff"},
		{"bfff bfff bfff bfff bfff bfff ffff", "ffffffffffffffffffffffff"},
		{"c000", "00"},
		{"8000 c001", "000000"},
		{"8000 8000 8000 8000 c040", "0000000000000001"},
		// 0x0123456789abcdef in groups of 14 bits, by hand: 00000001001000 11010001010110 01111000100110 10101111001101 11101111(000000).
		{"8048 b456 9e26 abcd fbc0", "0123456789abcdef"},
		{"8048 b456 9e26 ebcd", "0123456789abcd"},
	} {
		one(t, c.words, func(v Value) {
			if got := hex.EncodeToString(v.Bytes()); got != c.bytes {
				t.Errorf("%s: %s, want %s", c.words, got, c.bytes)
			}
		})
	}
}

func TestNumbersAreLittleEndianAndNeverCutOff(t *testing.T) {
	for _, c := range []struct {
		words string
		want  uint64
		ok    bool
	}{
		{"ffff", 0xff, true},
		{"8048 f456", 0x452301, true}, // bytes 01 23 45
		{"8048 b456 9e26 ebcd", 0xcdab8967452301, true},
		{"8048 b456 9e26 abcd fbc0", 0xefcdab8967452301, true},
		{"8048 b456 9e26 abcd bbc0 c000", 0xefcdab8967452301, true}, // 10 bytes, the last two 0
		{"8048 b456 9e26 abcd bbc0 c010", 0xefcdab8967452301, false},
		{"6800", 0, false},
		{"c040 6901", 0, false},
		{"6900", 0, false},
	} {
		one(t, c.words, func(v Value) {
			if got, ok := v.Uint64(); ok != c.ok || ok && got != c.want {
				t.Errorf("%s: %#x, %v; want %#x, %v", c.words, got, ok, c.want, c.ok)
			}
		})
	}
}

func TestTextEndsAtTheFirstNUL(t *testing.T) {
	for words, want := range map[string]string{
		"9d1a 96d6 d400": "time", // and its NUL
		"9d00 c016":      "t",    // bytes 74 00 01
		"c000":           "",
		"6800":           "",
		"c040 6901":      "",
	} {
		one(t, words, func(v Value) {
			if v.String() != want {
				t.Errorf("%s: %q, want %q", words, v.String(), want)
			}
		})
	}
}

func TestValuesAnswerForEveryKind(t *testing.T) {
	one(t, "c040 6800 6902", func(v Value) {
		if v.IsNull() || !v.IsStruct() || v.Len() != 2 || v.Bytes() != nil || v.Text() != nil {
			t.Errorf("struct: %+v", v)
		}
		if v.At(0).IsNull() || v.At(0).IsStruct() || v.At(0).Len() != 0 || !v.At(1).IsNull() {
			t.Errorf("places: %+v, %+v", v.At(0), v.At(1))
		}
		for _, none := range []Value{v.At(2), v.At(-1), v.At(0).At(0), v.At(1).At(0), v.At(9).At(9), {}} {
			_, ok := none.Uint64()
			if ok || !none.IsNull() || none.IsStruct() || none.Len() != 0 || none.Bytes() != nil || none.ID() != 0 || none.String() != "" {
				t.Errorf("%+v is not null", none)
			}
		}
		if v.At(1).ID() != 0 || v.ID() == 0 || v.At(0).ID() == 0 || v.ID() == v.At(0).ID() {
			t.Errorf("IDs %d, %d, %d", v.ID(), v.At(0).ID(), v.At(1).ID())
		}
	})
}

func TestDataIsJoinedFromItsChunks(t *testing.T) {
	const chunk, short, null = "8048 b456 9e26 abcd fbc0 ", "ffff ", "6800 "
	for words, want := range map[string]string{
		chunk + "6901":                       "0123456789abcdef",
		chunk + chunk + "6902":               "0123456789abcdef0123456789abcdef",
		chunk + short + "6902":               "0123456789abcdefff",
		short + chunk + "6902":               "ff000000000000000123456789abcdef",
		chunk:                                "0123456789abcdef",
		"6900":                               "",
		null:                                 "no",
		chunk + null + "6902":                "no",
		chunk + chunk + "6901 6902":          "no",
		"8048 b456 9e26 abcd bbc0 c000 6901": "no", // a chunk of 10 bytes
	} {
		one(t, words, func(v Value) {
			got, ok := v.AppendData([]byte("kept"))
			if !ok && want == "no" && string(got) == "kept" {
				return
			}
			if !ok || string(got[:4]) != "kept" || hex.EncodeToString(got[4:]) != want {
				t.Errorf("%s: %q, %v; want %s", words, got, ok, want)
			}
		})
	}
}
