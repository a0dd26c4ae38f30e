// Package tap decodes the row stream of the activity trace tap.
package tap

// Decoder turns the DATA payloads of one tap connection into rows. It keeps its state between payloads. It is not safe for use by several goroutines.
type Decoder struct{}

type core struct{}

type table struct{ name string }

// NewDecoder makes a decoder at the start of a connection.
func NewDecoder(want Want) *Decoder { return &Decoder{} }

// Decode takes the next payload, in order. A payload that begins with "bplist" is no rows and must not be handed in. Payloads may be torn anywhere.
// The payload is not kept.
func (d *Decoder) Decode(payload []byte, h Handler) {}

// Break puts the decoder into the lost state because the caller knows that the stream is not whole (a payload lost or repeated): it is reported as
// a ReasonBroken gap with this detail, and rows are skipped up to the next reset. Also allowed inside Handler.Row.
func (d *Decoder) Break(detail string, h Handler) {}

// Flush ends the stream: it reports what is being skipped, or a torn opcode, as a gap. The decoder is then ready for a new connection.
func (d *Decoder) Flush(h Handler) {}

// Lost reports whether rows are being skipped until the next reset.
func (d *Decoder) Lost() bool { return false }
