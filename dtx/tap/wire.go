package tap

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A wire file is records of a length (u32), the host's monotonic time in ns (i64), both little-endian, and that many bytes of tap
// payload. It has no header. Length 0 marks a new connection.
const (
	wireHeaderBytes = 12

	// MaxPayloadBytes bounds a payload: the longest DTX message that is accepted.
	MaxPayloadBytes = 128 << 20

	// wireBufferBytes is what a reader allocates at once, whatever a length claims. Payloads are a few KB.
	wireBufferBytes = 64 << 10
)

// ErrTornWire: the file ends inside a record. A recording that was cut off looks like this; the records before it are whole.
var ErrTornWire = errors.New("wire file is torn")

// WireRecord is one record of a wire file: a payload and when it arrived. Without a payload it marks a new connection, whose
// decoder starts afresh.
type WireRecord struct {
	HostNs  int64
	Payload []byte
}

// AppendWire appends a record to dst. Without a payload it is the mark of a new connection, so an empty message must not be recorded.
func AppendWire(dst []byte, r WireRecord) ([]byte, error) {
	if len(r.Payload) > MaxPayloadBytes {
		return dst, fmt.Errorf("wire record: the payload has %d bytes, at most %d are allowed", len(r.Payload), MaxPayloadBytes)
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(r.Payload)))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(r.HostNs))
	return append(dst, r.Payload...), nil
}

// WireReader reads a wire file record by record.
type WireReader struct {
	r       *bufio.Reader
	offset  int64
	payload []byte
}

// NewWireReader reads from r, through a buffer.
func NewWireReader(r io.Reader) *WireReader {
	return &WireReader{r: bufio.NewReaderSize(r, wireBufferBytes)}
}

// Offset is where in the file the next record begins, or after an error, the one that could not be read.
func (w *WireReader) Offset() int64 { return w.offset }

// Next returns the next record, whose payload is valid until Next is called again. The error is io.EOF after the last record, and
// wraps ErrTornWire where the file ends inside one.
func (w *WireReader) Next() (WireRecord, error) {
	var header [wireHeaderBytes]byte
	n, err := io.ReadFull(w.r, header[:])
	if err == io.EOF {
		return WireRecord{}, io.EOF
	}
	if err != nil {
		return WireRecord{}, w.fail(err, n, wireHeaderBytes)
	}
	length := binary.LittleEndian.Uint32(header[:])
	if length > MaxPayloadBytes {
		return WireRecord{}, fmt.Errorf("wire record at byte %d: its length is %d, at most %d is possible; this is no wire file, or it is damaged "+
			"from there on", w.offset, length, MaxPayloadBytes)
	}
	w.payload = w.payload[:0]
	for len(w.payload) < int(length) {
		// Memory grows with what is there, not with what the length claims.
		have := len(w.payload)
		w.payload = append(w.payload, make([]byte, min(int(length)-have, max(have, wireBufferBytes)))...)
		n, err := io.ReadFull(w.r, w.payload[have:])
		if err != nil {
			return WireRecord{}, w.fail(err, wireHeaderBytes+have+n, wireHeaderBytes+int(length))
		}
	}
	w.offset += wireHeaderBytes + int64(length)
	return WireRecord{HostNs: int64(binary.LittleEndian.Uint64(header[4:])), Payload: w.payload}, nil
}

func (w *WireReader) fail(err error, have, want int) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: the record at byte %d has %d bytes, and %d of them are there; what comes before it is whole",
			ErrTornWire, w.offset, want, have)
	}
	return fmt.Errorf("wire record at byte %d: %w", w.offset, err)
}
