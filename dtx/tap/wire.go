package tap

import "io"

// WireRecord is one record of a wire file: a tap payload and the host's monotonic time at which it arrived. An empty payload marks a new connection,
// whose decoder starts afresh.
type WireRecord struct {
	HostNs  int64
	Payload []byte
}

// WireReader reads a wire file.
type WireReader struct{}

// NewWireReader reads records from r, which it buffers.
func NewWireReader(r io.Reader) *WireReader { return &WireReader{} }

// Next is the next record, or io.EOF at the end. The payload is valid until the next call.
func (r *WireReader) Next() (WireRecord, error) { return WireRecord{}, io.EOF }

// Offset is the byte offset at which the next record begins.
func (r *WireReader) Offset() int64 { return 0 }

// AppendWire appends one record to dst. An empty payload is the mark of a new connection.
func AppendWire(dst []byte, hostNs int64, payload []byte) []byte { return dst }
