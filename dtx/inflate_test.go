package dtx

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
)

func lz4Message(total uint32, blocks ...[]byte) []byte {
	return append(bytes.Join(append([][]byte{binary.LittleEndian.AppendUint32(nil, total)}, blocks...), nil), "bv4$"...)
}

func lz4Block(inflated uint32, packed ...byte) []byte {
	b := binary.LittleEndian.AppendUint32([]byte("bv41"), inflated)
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(packed))), packed...)
}

func rawBlock(b string) []byte {
	return append(binary.LittleEndian.AppendUint32([]byte("bv4-"), uint32(len(b))), b...)
}

func TestInflateBlocksReferToTheOnesBefore(t *testing.T) {
	// block 2: no literals, match of 4+2 bytes 7 back, then the literal "!"
	payload := lz4Message(22, lz4Block(8, 0x80, 'A', 'B', 'C', 'D', 'E', 'F', 'G', 'H'), lz4Block(7, 0x02, 7, 0, 0x10, '!'), rawBlock("raw"),
		lz4Block(4, 0x00, 3, 0, 0x00)) // 4 bytes 3 back, out of the uncompressed block
	if out, err := inflate(payload); err != nil || string(out) != "ABCDEFGHBCDEFG!rawrawr" {
		t.Errorf("inflated %q, %v", out, err)
	}
}

func TestInflateRefusesBrokenPayloads(t *testing.T) {
	hello := lz4Block(5, 0x50, 'h', 'e', 'l', 'l', 'o')
	good := lz4Message(5, hello)
	for _, c := range []struct {
		name    string
		payload []byte
		errHas  string
	}{
		{"no size", []byte{1, 2, 3}, "expected its inflated size in 4 bytes, found 3"},
		{"size too large", lz4Message(128<<20+1, hello), "expected an inflated size of at most 134217728, found 134217729"},
		{"no end", good[:len(good)-4], "expected a block at byte 22, found 0 bytes"},
		{"unknown block", append([]byte{0, 0, 0, 0}, "bv42"...), `expected bv41, bv4- or bv4$ at byte 4, found "bv42"`},
		{"bytes behind the end", append(lz4Message(5, hello), 0), "expected its end at byte 23 with 5 bytes inflated, found it at 22 with 5"},
		{"too little inflated", lz4Message(6, hello), "with 6 bytes inflated, found it at 22 with 5"},
		{"too much inflated", lz4Message(4, hello), "claims 6 bytes for 5, with 10 present and 4 still to come"},
		{"block header cut off", lz4Message(5, hello)[:15], "block at byte 4 is cut off"},
		{"block cut off", lz4Message(5, hello)[:20], "claims 6 bytes for 5, with 4 present"},
		{"more than LZ4 can hold", lz4Message(100_000_000, lz4Block(100_000_000, 0x10, 'x')), "claims 2 bytes for 100000000"},
		{"empty block", lz4Message(0, lz4Block(0, bytes.Repeat([]byte{'0'}, 32)...)), "claims 32 bytes for 0"},
		{"match before the beginning", lz4Message(6, lz4Block(6, 0x11, 'x', 2, 0, 0x00)), "block at byte 4: "},
		{"block inflates to less than it says", lz4Message(6, lz4Block(6, 0x50, 'h', 'e', 'l', 'l', 'o')), "expected 6 bytes inflated, found 5"},
	} {
		if _, err := inflate(c.payload); err == nil || !strings.Contains(err.Error(), c.errHas) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.errHas)
		}
	}
}

// plainInflate is a second decoder of the same format, byte by byte, with nothing but its output as the dictionary.
func plainInflate(b []byte) (out []byte, ok bool) {
	defer func() {
		if recover() != nil {
			out, ok = nil, false
		}
	}()
	total := int(binary.LittleEndian.Uint32(b))
	for b = b[4:]; string(b[:4]) != "bv4$"; {
		size := int(binary.LittleEndian.Uint32(b[4:]))
		if string(b[:4]) == "bv4-" {
			out, b = append(out, b[8:8+size]...), b[8+size:]
			continue
		}
		if string(b[:4]) != "bv41" {
			return nil, false
		}
		packed := b[12:][:binary.LittleEndian.Uint32(b[8:])]
		b = b[12+len(packed):]
		length := func(n byte) int {
			sum := int(n)
			for more := n == 15; more; {
				sum += int(packed[0])
				more, packed = packed[0] == 255, packed[1:]
			}
			return sum
		}
		for end := len(out) + size; len(packed) > 0; {
			token := packed[0]
			packed = packed[1:]
			n := length(token >> 4)
			out, packed = append(out, packed[:n]...), packed[n:]
			if len(packed) == 0 {
				break
			}
			back := int(binary.LittleEndian.Uint16(packed))
			packed = packed[2:]
			n = length(token&15) + 4
			if back == 0 || len(out)+n > end {
				return nil, false
			}
			for range n {
				out = append(out, out[len(out)-back])
			}
		}
	}
	return out, len(b) == 4 && len(out) == total
}

func FuzzInflate(f *testing.F) {
	f.Add(lz4Message(22, lz4Block(8, 0x80, 'A', 'B', 'C', 'D', 'E', 'F', 'G', 'H'), lz4Block(7, 0x02, 7, 0, 0x10, '!'), rawBlock("raw"), lz4Block(4, 0x00, 3, 0, 0x00)))
	f.Add(lz4Message(300, lz4Block(300, 0x1F, 'x', 1, 0, 255, 24, 0x10, 'y')))
	f.Fuzz(func(t *testing.T, b []byte) {
		out, err := inflate(b)
		if err != nil {
			return
		}
		if plain, ok := plainInflate(b); !ok || !bytes.Equal(plain, out) {
			t.Fatalf("%d bytes inflated to %d, a plain decoder says %d (%v)", len(b), len(out), len(plain), ok)
		}
	})
}
