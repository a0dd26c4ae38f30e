package sim

import (
	"encoding/binary"
	"fmt"
	"io"

	"howett.net/plist"
)

// maxPlistBytes bounds a property list that a client sends: the longest real one is a pairing request with three certificates, some
// 6 KiB. It also keeps the depth to which the XML parser recurses far from the limit of a goroutine's stack.
const maxPlistBytes = 256 << 10

// readPlist reads one message of lockdownd and of the older services: a big-endian u32 length, then a property list of any format.
func readPlist(r io.Reader) (map[string]any, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxPlistBytes {
		return nil, fmt.Errorf("a message of %d bytes, at most %d are accepted", n, maxPlistBytes)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, fmt.Errorf("a message of %d bytes: %w", n, noEOF(err))
	}
	return parsePlist(body)
}

func parsePlist(body []byte) (map[string]any, error) {
	var msg map[string]any
	if _, err := plist.Unmarshal(body, &msg); err != nil {
		return nil, fmt.Errorf("a message of %d bytes is no dictionary in a property list: %w", len(body), err)
	}
	return msg, nil
}

// writePlist writes one such message in one piece.
func writePlist(w io.Writer, msg map[string]any) error {
	body, err := plist.Marshal(msg, plist.XMLFormat)
	if err != nil {
		return err
	}
	out := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body)))
	_, err = w.Write(append(out, body...))
	return err
}

// noEOF makes an end inside a message an error of its own: only an end between messages is a client's goodbye.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

func str(m map[string]any, key string) string {
	s, _ := m[key].(string)
	return s
}

// number is an integer of a property list, in whatever form the client wrote it.
func number(m map[string]any, key string) (uint64, bool) {
	switch v := m[key].(type) {
	case uint64:
		return v, true
	case int64:
		return uint64(v), v >= 0
	}
	return 0, false
}
