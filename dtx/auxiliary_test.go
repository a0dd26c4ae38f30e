package dtx

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"strings"
	"testing"
)

// One argument of each kind, spelt by hand: key null, then the value.
const auxWire = "f001000000000000" + "4100000000000000" +
	"0a000000" + "03000000" + "feffffff" +
	"0a000000" + "06000000" + "0100000000000080" +
	"0a000000" + "02000000" + "03000000" + "aabbcc" +
	"0a000000" + "01000000" + "02000000" + "6869" +
	"0a000000" + "0a000000"

var auxArgs = []any{Int32(-2), Int64(-0x7FFFFFFFFFFFFFFF), []byte{0xAA, 0xBB, 0xCC}, "hi", nil}

func TestAuxiliaryOfEveryKindOfArgument(t *testing.T) {
	wire := must(hex.DecodeString(auxWire))
	if args, n, err := ParseAuxiliary(append(wire, 0xFF)); err != nil || n != len(wire) || !reflect.DeepEqual(args, auxArgs) {
		t.Errorf("parsed %#v, %d, %v", args, n, err)
	}
	if b, err := AppendAuxiliary(nil, auxArgs); err != nil || !bytes.Equal(b, wire) {
		t.Errorf("appended % x, %v", b, err)
	}
}

func TestAuxiliaryRefusesWhatItCannotRead(t *testing.T) {
	header := func(size byte) []byte { return []byte{0xF0, 1, 0, 0, 0, 0, 0, 0, size, 0, 0, 0, 0, 0, 0, 0} }
	for _, c := range []struct {
		name   string
		wire   []byte
		errHas string
	}{
		{"header cut off", header(0)[:15], "expected a header of 16 bytes, found 15"},
		{"size beyond the end", append(header(9), 10, 0, 0, 0, 10, 0, 0, 0), "expected at most 8 bytes of arguments, found 9"},
		{"key without value", append(header(4), 10, 0, 0, 0), "argument 0 at byte 20: expected a type of 4 bytes, found 0"},
		{"key cut off", append(header(3), 10, 0, 0), "key 0 at byte 16: expected a type of 4 bytes, found 3"},
		{"unknown type", append(header(8), 10, 0, 0, 0, 11, 0, 0, 0), "expected type 1, 2, 3, 6 or 10, found 11"},
		{"number cut off", append(header(11), 10, 0, 0, 0, 3, 0, 0, 0, 1, 2, 3), "a value of type 3 is cut off after 3 bytes"},
		{"long number cut off", append(header(12), 10, 0, 0, 0, 6, 0, 0, 0, 1, 2, 3, 4), "a value of type 6 is cut off after 4 bytes"},
		{"bytes beyond the end", append(header(13), 10, 0, 0, 0, 2, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 1), "expected at most 1 bytes, found 4294967295 announced"},
	} {
		if _, _, err := ParseAuxiliary(c.wire); err == nil || !strings.Contains(err.Error(), c.errHas) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.errHas)
		}
	}
	if _, err := AppendAuxiliary(nil, []any{1}); err == nil || !strings.Contains(err.Error(), "argument 0: expected nil, string, []byte, Int32 or Int64, found int") {
		t.Errorf("appending an int: %v", err)
	}
}

func FuzzAuxiliary(f *testing.F) {
	f.Add(must(hex.DecodeString(auxWire)))
	if b := capture("notify-published-capabilities.bin"); b != nil {
		f.Add(b[48 : 48+425])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		args, n, err := ParseAuxiliary(b)
		if err != nil {
			return
		}
		if n > len(b) || len(args) > n/8 {
			t.Fatalf("%d arguments in %d of %d bytes", len(args), n, len(b))
		}
		again, m, err := ParseAuxiliary(must(AppendAuxiliary(nil, args)))
		if err != nil || m > n || !reflect.DeepEqual(again, args) {
			t.Fatalf("%#v came back as %#v, %v", args, again, err)
		}
	})
}
