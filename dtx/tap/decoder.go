// Package tap decodes the row stream of the activity trace tap (wire.md, "Row stream"), and reads and writes the wire
// files that keep its payloads.
//
// # Loss
//
// The stream is a stack machine's: after anything missing or wrong, every reference may mean another item. So nothing is
// reported from there to the next reset, which empties the stack and defines the tables again. At a fault the Handler gets a
// Gap with the reason, and at the reset that ends the skipping another one with what was skipped.
//
// Data words never look like a reset, but only at the right alignment: payloads end at any byte, so a lost one can leave the
// rest shifted by a byte. The stream is therefore searched at both alignments at once. A word that looks like a reset is tried:
// it is believed once a well-formed table definition has followed without a fault, which does not happen by chance at the
// wrong alignment. The first alignment that gets so far is the stream's. Nothing is lost by waiting for the definition, since
// no row can come before it.
//
// A connection begins with an empty stack, as after a reset, whether or not the device sends one there: rows cannot come
// before a definition, and references to what was missed are faults. If a stream was joined in its middle and the first reset
// comes before any fault, or none at all, what was before it is a Gap too.
package tap

import (
	"fmt"
	"slices"
)

// Decoder turns the DATA payloads of a tap connection into rows. It keeps its state from payload to payload, and must not be
// used by several goroutines at once.
type Decoder struct {
	core   *core // the stream's alignment; when lost, the one it had
	other  *core // when lost, one byte later
	offset int64 // of the next byte in the stream

	lost     bool
	lostAt   int64
	rowsLost int64 // before a Break while lost
}

// NewDecoder makes a decoder for the start of a connection.
func NewDecoder(want Want) *Decoder {
	own := make(Want, len(want))
	for table, columns := range want {
		own[table] = slices.Clone(columns)
	}
	return &Decoder{core: newCore(own), other: newCore(own)}
}

// Decode takes the connection's next payload, which may begin and end anywhere in the stream. It is not kept. A payload that
// begins with "bplist" is not part of the stream and must not be handed in.
func (d *Decoder) Decode(payload []byte, h Handler) {
	for p := payload; len(p) > 0; {
		n, s := d.core.read(p, d.offset, h)
		if d.lost && s != onDemand {
			if m, t := d.other.read(p[:n], d.offset, h); t == onTrust {
				d.core, d.other = d.other, d.core
				n, s = m, t
			}
		}
		d.offset += int64(n)
		switch {
		case s == onTrust:
			d.found(h)
		case s == onStart:
			detail := fmt.Sprintf("the first reset came at byte %d of the row stream, and no table before it", d.core.at)
			h.Gap(Gap{ReasonSkipped, detail, 0, d.core.at})
		case s == onDemand:
			d.lostAt = d.offset
			d.seekFrom(p[n-1])
		case s >= badOpcode:
			d.lose(d.core.lostAt)
			d.seekFrom(p[n-1])
			h.Gap(Gap{ReasonBroken, d.core.fault(s), 0, 0})
		}
		p = p[n:]
	}
}

// Break says that the caller knows better: part of the stream was lost or repeated on the way, or a row made no sense. Rows are
// skipped up to the next reset, and detail is reported like a fault's. It may be called between payloads and inside Handler.Row.
func (d *Decoder) Break(detail string, h Handler) {
	if d.lost {
		d.rowsLost += d.core.rowEnds
	} else {
		d.lose(d.offset)
	}
	d.core.begin(seek)
	d.core.broken = true
	// If the loss left half a word, its first byte is not known, and does not matter: a reset is known by its second.
	d.seekFrom(0)
	h.Gap(Gap{ReasonBroken, detail, 0, 0})
}

func (d *Decoder) lose(at int64) { d.lost, d.lostAt, d.rowsLost = true, at, 0 }

// seekFrom makes the other core search at the other alignment. half is the first byte of its first word.
func (d *Decoder) seekFrom(half byte) {
	d.other.begin(seek)
	d.other.half, d.other.hasHalf = half, true
	d.other.lastID = d.core.lastID
}

// found ends the search: d.core is the alignment that proved itself.
func (d *Decoder) found(h Handler) {
	d.lost = false
	detail := fmt.Sprintf("skipped from byte %d of the row stream to the reset at byte %d", d.lostAt, d.core.resetAt)
	// Where Break came between the bytes of the reset, it begins before the loss.
	h.Gap(Gap{ReasonSkipped, detail, d.rowsLost + d.core.rowsLost, max(0, d.core.resetAt-d.lostAt)})
}

// Flush ends the connection's stream: what is being skipped, or the torn end, is reported as a gap. The decoder is then ready for a new connection.
func (d *Decoder) Flush(h Handler) {
	c := d.core
	lost, lostAt, rows, end := d.lost, d.lostAt, d.rowsLost+c.rowEnds, d.offset
	torn, begun := c.tornBytes(), c.begun
	c.begin(live)
	d.lost, d.offset = false, 0
	switch {
	case lost:
		detail := fmt.Sprintf("skipped from byte %d of the row stream to its end at byte %d; no reset came", lostAt, end)
		h.Gap(Gap{ReasonSkipped, detail, rows, end - lostAt})
	case !begun && end > 0:
		detail := fmt.Sprintf("the row stream ended at byte %d, and neither a reset nor a table came", end)
		h.Gap(Gap{ReasonSkipped, detail, 0, end})
	case torn > 0:
		detail := fmt.Sprintf("the row stream ended at byte %d, in the middle of a word or a value", end)
		h.Gap(Gap{ReasonTorn, detail, 0, torn})
	}
}

// Lost reports whether rows are being skipped until the next reset. A new decoder has lost nothing.
func (d *Decoder) Lost() bool { return d.lost }
