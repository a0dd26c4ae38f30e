package dtx

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/pierrec/lz4/v4"
)

const (
	lz4Window = 64 << 10 // how far back a block may refer, over block borders too
	// lz4MaxRatio is what the LZ4 block format can reach: each byte of a long match's length stands for 255 bytes of output.
	// A block that claims more is refused before its output is allocated.
	lz4MaxRatio = 255
)

// inflate undoes the compression of a message's payload. What it allocates is bounded by what has arrived, times lz4MaxRatio.
func inflate(b []byte) ([]byte, error) {
	if len(b) < 4 {
		return nil, fmt.Errorf("compressed payload: expected its inflated size in 4 bytes, found %d", len(b))
	}
	total := int64(binary.LittleEndian.Uint32(b))
	if total > MaxMessage {
		return nil, fmt.Errorf("compressed payload: expected an inflated size of at most %d, found %d", MaxMessage, total)
	}
	out := []byte{}
	for at := 4; ; {
		block := b[at:]
		if len(block) < 4 {
			return nil, fmt.Errorf("compressed payload: expected a block at byte %d, found %d bytes", at, len(block))
		}
		magic := string(block[:4])
		if magic == "bv4$" {
			if len(block) != 4 || int64(len(out)) != total {
				return nil, fmt.Errorf("compressed payload: expected its end at byte %d with %d bytes inflated, found it at %d with %d",
					len(b)-4, total, at, len(out))
			}
			return out, nil
		}
		header := 12
		if magic == "bv4-" {
			header = 8
		} else if magic != "bv41" {
			return nil, fmt.Errorf("compressed payload: expected bv41, bv4- or bv4$ at byte %d, found %q", at, magic)
		}
		if len(block) < header {
			return nil, fmt.Errorf("compressed payload: block at byte %d is cut off", at)
		}
		inflated, packed := int64(binary.LittleEndian.Uint32(block[4:])), int64(binary.LittleEndian.Uint32(block[header-4:]))
		block = block[header:]
		// An empty block says nothing, and the assembly behind lz4 writes through a nil slice when given one to fill.
		if inflated < 1 || packed > int64(len(block)) || inflated > packed*lz4MaxRatio || inflated > total-int64(len(out)) {
			return nil, fmt.Errorf("compressed payload: block at byte %d claims %d bytes for %d, with %d present and %d still to come",
				at, packed, inflated, len(block), total-int64(len(out)))
		}
		done := len(out)
		out = slices.Grow(out, int(inflated))[:done+int(inflated)]
		if magic == "bv4-" {
			copy(out[done:], block[:packed])
		} else if n, err := lz4.UncompressBlockWithDict(block[:packed], out[done:], out[max(0, done-lz4Window):done]); err != nil {
			return nil, fmt.Errorf("compressed payload: block at byte %d: %w", at, err)
		} else if int64(n) != inflated {
			return nil, fmt.Errorf("compressed payload: block at byte %d: expected %d bytes inflated, found %d", at, inflated, n)
		}
		at += header + int(packed)
	}
}
