package dtx

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestFrameHeaderFieldsAreWhereTheContractPutsThem(t *testing.T) {
	wire := []byte{
		0x79, 0x5B, 0x3D, 0x1F, 0x20, 0, 0, 0, 2, 0, 3, 0, 0x00, 0x01, 0, 0,
		0x04, 0x03, 0x02, 0x01, 5, 0, 0, 0, 0xF7, 0xFF, 0xFF, 0xFF, 1, 0, 0, 0}
	want := FrameHeader{Index: 2, Count: 3, Length: 256, ID: 0x01020304, Conversation: 5, Channel: -9, Flags: 1}
	if h, n, err := ParseFrameHeader(wire); h != want || n != 32 || err != nil {
		t.Errorf("parsed %+v, %d, %v", h, n, err)
	}
	if b := AppendFrameHeader(nil, want); !bytes.Equal(b, wire) {
		t.Errorf("appended % x", b)
	}
}

func TestBodyHeaderFieldsAreWhereTheContractPutsThem(t *testing.T) {
	wire := []byte{7, 7, 0, 0, 2, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0x80}
	want := BodyHeader{Type: TypeCompressed, Reserved: [3]byte{7, 0, 0}, AuxLen: 2, TotalLen: 5, Flags: 0x80000001}
	if h, n, err := ParseBodyHeader(append(wire, 1, 2, 3, 4, 5)); h != want || n != 16 || err != nil {
		t.Errorf("parsed %+v, %d, %v", h, n, err)
	}
	if b := AppendBodyHeader(nil, want); !bytes.Equal(b, wire) {
		t.Errorf("appended % x", b)
	}
}

func TestFrameHeaderBounds(t *testing.T) {
	for _, c := range []struct {
		name   string
		header FrameHeader
		errHas string // empty: accepted
	}{
		{"smallest message", FrameHeader{Count: 1, Length: 16}, ""},
		{"no room for a message header", FrameHeader{Count: 1, Length: 15}, "expected a length of 16 to 134217728 in fragment 0 of 1, found 15"},
		{"largest message", FrameHeader{Count: 1, Length: 128 << 20}, ""},
		{"larger than that", FrameHeader{Count: 1, Length: 128<<20 + 1}, "found 134217729"},
		{"length that is negative when signed", FrameHeader{Count: 1, Length: 0xFFFFFFFF}, "found 4294967295"},
		{"count 0", FrameHeader{Count: 0, Length: 16}, "expected a fragment index below the count 0, found 0"},
		{"index at count", FrameHeader{Index: 3, Count: 3, Length: 16}, "expected a fragment index below the count 3, found 3"},
		{"largest fragment", FrameHeader{Index: 1, Count: 2, Length: 128 << 10}, ""},
		{"larger fragment", FrameHeader{Index: 1, Count: 2, Length: 128<<10 + 1}, "expected a length of 1 to 131072 in fragment 1 of 2, found 131073"},
		{"empty fragment", FrameHeader{Index: 1, Count: 2}, "found 0"},
		{"whole fits into its fragments", FrameHeader{Count: 3, Length: 2 * 128 << 10}, ""},
		{"whole exceeds its fragments", FrameHeader{Count: 3, Length: 2*128<<10 + 1}, "expected a length of 16 to 262144 in fragment 0 of 3, found 262145"},
		{"many fragments do not lift the bound", FrameHeader{Count: 65535, Length: 128<<20 + 1}, "expected a length of 16 to 134217728"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := ParseFrameHeader(AppendFrameHeader(nil, c.header))
			if c.errHas == "" && err != nil || c.errHas != "" && (!errors.Is(err, ErrFraming) || !strings.Contains(err.Error(), c.errHas)) {
				t.Errorf("error %v, want %q", err, c.errHas)
			}
		})
	}
}

func TestFrameHeaderLengthIsHonouredAndBounded(t *testing.T) {
	for length, ok := range map[byte]bool{0: false, 31: false, 32: true, 40: true, 255: true} {
		b := AppendFrameHeader(nil, FrameHeader{Count: 1, Length: 16})
		b[4] = length
		_, n, err := ParseFrameHeader(b)
		if ok != (err == nil) || ok && n != int(length) {
			t.Errorf("header length %d: %d, %v", length, n, err)
		}
	}
	b := AppendFrameHeader(nil, FrameHeader{Count: 1, Length: 16})
	copy(b[4:], []byte{1, 1, 0, 0})
	if _, _, err := ParseFrameHeader(b); err == nil || !strings.Contains(err.Error(), "expected a header length of 32 to 256, found 257") {
		t.Errorf("header length 257: %v", err)
	}
}

func TestBodyHeaderMustAgreeWithTheBody(t *testing.T) {
	for _, c := range []struct {
		aux, total uint32
		errHas     string
	}{
		{3, 3, ""},
		{4, 3, "expected an auxiliary of at most 3 bytes, found 4"},
		{0, 2, "expected the 3 bytes behind the message header to be announced, found 2"},
		{0, 0xFFFFFFFF, "found 4294967295"},
	} {
		b := append(AppendBodyHeader(nil, BodyHeader{AuxLen: c.aux, TotalLen: c.total}), 1, 2, 3)
		_, _, err := ParseBodyHeader(b)
		if c.errHas == "" && err != nil || c.errHas != "" && (!errors.Is(err, ErrFraming) || !strings.Contains(err.Error(), c.errHas)) {
			t.Errorf("auxiliary %d of %d: error %v, want %q", c.aux, c.total, err, c.errHas)
		}
	}
}

func FuzzFrameHeader(f *testing.F) {
	addCaptures(f)
	f.Add(AppendFrameHeader(nil, FrameHeader{Index: 1, Count: 2, Length: 5, Channel: -1}))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, n, err := ParseFrameHeader(b)
		if err != nil {
			return
		}
		if n < 32 || n > 256 || h.Length > 128<<20 || h.bodyLen() > int(h.Length) {
			t.Fatalf("accepted %+v with a header of %d bytes", h, n)
		}
		again := AppendFrameHeader(nil, h)
		copy(again[4:8], b[4:8]) // we always write 32
		if !bytes.Equal(again, b[:32]) {
			t.Fatalf("% x came back as % x", b[:32], again)
		}
	})
}
