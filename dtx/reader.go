package dtx

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
)

const (
	// maxHalf bounds how many messages may be half assembled at once, on all channels. A handful of channels are in use, and a
	// sender interleaves one message of each at most.
	maxHalf = 64
	// maxHalfBytes bounds what the half assembled hold together: as much as the largest message.
	maxHalfBytes = MaxMessage
	// growStep is allocated for a body before anything of it has arrived; from then on at most as much again as is there.
	growStep = 64 << 10
)

// Reader puts messages together from the frames of a stream.
type Reader struct {
	src    stampReader
	buf    *bufio.Reader
	head   [frameHeaderSize]byte
	offset int64 // of the next byte to be taken from buf, from the start of the stream
	err    error

	half      map[halfKey]*halfMessage
	halfBytes int

	messages, fragments atomic.Int64
}

type halfKey struct {
	channel int32
	id      uint32
}

type halfMessage struct {
	first FrameHeader
	next  uint16 // index of the fragment to come
	body  []byte
}

// ReadStats counts what a Reader has seen.
type ReadStats struct {
	Bytes     int64 // read from the stream
	Fragments int64 // frames that were no whole message
	Messages  int64
}

// NewReader reads from r, which it buffers. clock, where not nil, is asked once after each read from r and gives the messages their HostNs.
func NewReader(r io.Reader, clock func() int64) *Reader {
	reader := &Reader{src: stampReader{r: r, clock: clock}, half: map[halfKey]*halfMessage{}}
	reader.buf = bufio.NewReaderSize(&reader.src, growStep)
	return reader
}

// Stats may be called at any time by any goroutine.
func (r *Reader) Stats() ReadStats {
	return ReadStats{Bytes: r.src.bytes.Load(), Fragments: r.fragments.Load(), Messages: r.messages.Load()}
}

// Next returns the next message that is complete. It returns io.EOF where the stream ends between messages; any other error says
// where in the stream, and is ErrFraming where the bytes are to blame. After an error every call returns the same one.
func (r *Reader) Next() (Message, error) {
	for r.err == nil {
		at := r.offset
		m, ok, err := r.frame()
		switch {
		case err == io.EOF && len(r.half) == 0:
			r.err = err
		case err == io.EOF:
			r.err = fmt.Errorf("stream ends at byte %d with %d messages half assembled: %w", at, len(r.half), io.ErrUnexpectedEOF)
		case err != nil:
			r.err = fmt.Errorf("frame at byte %d: %w", at, err)
		case ok:
			r.messages.Add(1)
			return m, nil
		}
	}
	return Message{}, r.err
}

// frame reads one frame. ok says that it completed the message m.
func (r *Reader) frame() (m Message, ok bool, err error) {
	n, err := io.ReadFull(r.buf, r.head[:])
	r.offset += int64(n)
	if err != nil {
		return m, false, err // io.EOF if there was nothing
	}
	h, n, err := ParseFrameHeader(r.head[:])
	if err != nil {
		return m, false, err
	}
	skipped, err := r.buf.Discard(n - frameHeaderSize)
	r.offset += int64(skipped)
	if err != nil {
		return m, false, cutOff(err)
	}
	var body []byte
	if h.Count == 1 {
		body, err = r.read(nil, h.bodyLen())
	} else {
		r.fragments.Add(1)
		h, body, err = r.fragment(h)
	}
	if err != nil || body == nil {
		return m, false, err
	}
	m, err = parseBody(Message{Channel: h.Channel, ID: h.ID, Conversation: h.Conversation, ExpectsReply: h.Flags&flagExpectsReply != 0,
		HostNs: r.src.stamp}, body)
	return m, err == nil, err
}

// fragment adds one fragment to its message. It returns the first fragment's header and the whole body if that completed it.
func (r *Reader) fragment(h FrameHeader) (FrameHeader, []byte, error) {
	key := halfKey{h.Channel, h.ID}
	half := r.half[key]
	if h.Index == 0 {
		if half != nil {
			return h, nil, fmt.Errorf("%w: message %d on channel %d begins again after fragment %d of %d",
				ErrFraming, h.ID, h.Channel, half.next-1, half.first.Count)
		}
		if len(r.half) == maxHalf {
			return h, nil, fmt.Errorf("%w: more than %d messages are half assembled", ErrFraming, maxHalf)
		}
		r.half[key] = &halfMessage{first: h, next: 1}
		return h, nil, nil
	}
	if half == nil {
		return h, nil, fmt.Errorf("%w: fragment %d of message %d on channel %d came without fragment 0", ErrFraming, h.Index, h.ID, h.Channel)
	}
	if h.Index != half.next || h.Count != half.first.Count {
		return h, nil, fmt.Errorf("%w: message %d on channel %d: expected fragment %d of %d, found %d of %d",
			ErrFraming, h.ID, h.Channel, half.next, half.first.Count, h.Index, h.Count)
	}
	size, last := len(half.body)+h.bodyLen(), h.Index == h.Count-1
	if size > int(half.first.Length) || last && size != int(half.first.Length) {
		return h, nil, fmt.Errorf("%w: message %d on channel %d: expected %d bytes in %d fragments, found %d by fragment %d",
			ErrFraming, h.ID, h.Channel, half.first.Length, h.Count, size, h.Index)
	}
	if r.halfBytes+h.bodyLen() > maxHalfBytes {
		return h, nil, fmt.Errorf("%w: half assembled messages hold more than %d bytes", ErrFraming, maxHalfBytes)
	}
	var err error
	if half.body, err = r.read(half.body, h.bodyLen()); err != nil {
		return h, nil, err
	}
	r.halfBytes += h.bodyLen()
	half.next++
	if !last {
		return h, nil, nil
	}
	delete(r.half, key)
	r.halfBytes -= size
	return half.first, half.body, nil
}

// read appends the next n bytes of the stream to b, allocating only as they arrive.
func (r *Reader) read(b []byte, n int) ([]byte, error) {
	for n > 0 {
		step := min(n, max(len(b), growStep))
		b = slices.Grow(b, step)
		got, err := io.ReadFull(r.buf, b[len(b):len(b)+step])
		r.offset += int64(got)
		if err != nil {
			return nil, cutOff(err)
		}
		b = b[:len(b)+step]
		n -= step
	}
	return b, nil
}

// cutOff is err where the stream ended inside a frame.
func cutOff(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// stampReader notes when each read returned. All that is buffered behind it came with the last one, so that is when a message's last byte arrived.
type stampReader struct {
	r     io.Reader
	clock func() int64
	stamp int64
	bytes atomic.Int64
}

func (s *stampReader) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	if s.clock != nil {
		s.stamp = s.clock()
	}
	s.bytes.Add(int64(n))
	return n, err
}
