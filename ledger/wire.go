package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// wire.bin keeps the tap's payloads as they came: little-endian u32 length, i64 hostNs, then the bytes, repeated; no header. Length 0
// marks a new connection.

const wireHeaderBytes = 4 + 8

// MaxWireBytes bounds one payload. A tap's messages stay well under a megabyte; a length beyond this is no length.
const MaxWireBytes = 64 << 20

// ErrWireTorn says that the file ends within a payload: the process that wrote it was killed.
var ErrWireTorn = errors.New("wire file ends within a payload")

// AppendWire appends one payload; an empty one marks a new connection.
func AppendWire(dst []byte, hostNs int64, payload []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(payload)))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(hostNs))
	return append(dst, payload...)
}

// WireReader reads a wire file payload by payload.
type WireReader struct {
	in      io.Reader
	header  [wireHeaderBytes]byte
	payload []byte
	offset  int64 // where the next payload's header begins
}

// NewWireReader reads from r, which should be buffered.
func NewWireReader(r io.Reader) *WireReader { return &WireReader{in: r} }

// Offset is where the next payload begins: after an error, the first byte that could not be read as one.
func (w *WireReader) Offset() int64 { return w.offset }

// Next returns a payload, valid until the next call, and io.EOF at the end. Empty means a new connection.
func (w *WireReader) Next() (hostNs int64, payload []byte, err error) {
	if _, err := io.ReadFull(w.in, w.header[:]); err != nil {
		return 0, nil, w.end(err)
	}
	length := binary.LittleEndian.Uint32(w.header[:])
	hostNs = int64(binary.LittleEndian.Uint64(w.header[4:]))
	if length > MaxWireBytes {
		return 0, nil, fmt.Errorf("wire file, byte %d: expected a length of at most %d, found %d; this is no wire file, or bytes are missing before it",
			w.offset, MaxWireBytes, length)
	}
	// The length is not believed before its bytes are there.
	const stepBytes = 1 << 20
	w.payload = w.payload[:0]
	for len(w.payload) < int(length) {
		n := min(stepBytes, int(length)-len(w.payload))
		w.payload = append(w.payload, make([]byte, n)...)
		if _, err := io.ReadFull(w.in, w.payload[len(w.payload)-n:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return 0, nil, w.end(err)
		}
	}
	w.offset += wireHeaderBytes + int64(length)
	return hostNs, w.payload, nil
}

func (w *WireReader) end(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("byte %d: %w", w.offset, ErrWireTorn)
	}
	return err
}
