package dtx

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Selectors on channel 0, and what both sides send with the first of them before anything else.
const (
	NotifyCapabilities = "_notifyOfPublishedCapabilities:"
	RequestChannel     = "_requestChannelWithCode:identifier:" // Int32 code, name; answered by an acknowledgement
)

// Capabilities is what a side of ours publishes: connection version 1, and no compression, so that the peer sends none.
func Capabilities() map[string]any {
	return map[string]any{"com.apple.private.DTXBlockCompression": uint64(0), "com.apple.private.DTXConnection": uint64(1)}
}

// Message is one whole message, as it was put together from its frames or as it shall be sent.
type Message struct {
	Type         MessageType
	Channel      int32  // as on the wire: -c where the device starts a message on the channel that the host opened as c; answers keep the code
	ID           uint32 // counted by the side that started the conversation
	Conversation uint32 // 0 starts, odd answers
	ExpectsReply bool
	Aux          []byte // as on the wire, header included; see Arguments
	Payload      []byte // as on the wire, or inflated
	HostNs       int64  // by the reader's clock, when its last byte had been read; unused in sending
	Started      int64  // of a message that Receive returns: its place among all that the device has started on the connection, from 1
}

// Dispatch makes a message that calls selector. nil, Int32 and Int64 arguments travel as such, others archived.
func Dispatch(channel int32, id uint32, selector string, args ...any) (Message, error) {
	m := Message{Type: TypeDispatch, Channel: channel, ID: id}
	var err error
	if m.Payload, err = Archive(selector); err != nil {
		return Message{}, err
	}
	if len(args) == 0 {
		return m, nil
	}
	values := make([]any, len(args))
	for i, arg := range args {
		switch arg.(type) {
		case nil, Int32, Int64:
			values[i] = arg
		default:
			if values[i], err = Archive(arg); err != nil {
				return Message{}, fmt.Errorf("%s argument %d: %w", selector, i, err)
			}
		}
	}
	m.Aux, err = AppendAuxiliary(nil, values)
	return m, err
}

// Ack makes the acknowledgement of m.
func (m Message) Ack() Message {
	return Message{Type: TypeAck, Channel: m.Channel, ID: m.ID, Conversation: m.Conversation + 1}
}

// Answer makes the answer to m that carries object.
func (m Message) Answer(object any) (Message, error) {
	a := m.Ack()
	a.Type = TypeObject
	var err error
	a.Payload, err = Archive(object)
	return a, err
}

// AnswerError makes the answer to m that refuses with an NSError.
func (m Message) AnswerError(e RemoteError) (Message, error) {
	a := m.Ack()
	a.Type = TypeError
	var err error
	a.Payload, err = archiveError(e)
	return a, err
}

// Selector returns the selector of a dispatch.
func (m Message) Selector() (string, error) {
	if m.Type != TypeDispatch {
		return "", fmt.Errorf("selector: expected a dispatch, found a message of type %s", m.Type)
	}
	v, err := m.Object()
	if err != nil {
		return "", fmt.Errorf("selector: %w", err)
	}
	s, ok := v.(string)
	if !ok {
		return "", fmt.Errorf("selector: expected a string, found %T", v)
	}
	return s, nil
}

// Object returns the archived object in the payload.
func (m Message) Object() (any, error) {
	if len(m.Payload) == 0 {
		return nil, errors.New("expected an archived object, found no payload")
	}
	return Unarchive(m.Payload)
}

// Arguments returns the arguments of a dispatch, archived ones unarchived.
func (m Message) Arguments() ([]any, error) {
	if len(m.Aux) == 0 {
		return nil, nil
	}
	args, n, err := ParseAuxiliary(m.Aux)
	if err != nil {
		return nil, err
	}
	if n != len(m.Aux) {
		return nil, fmt.Errorf("auxiliary: expected its end at byte %d, found %d bytes more", n, len(m.Aux)-n)
	}
	for i, arg := range args {
		if b, ok := arg.([]byte); ok && bytes.HasPrefix(b, []byte("bplist")) {
			if args[i], err = Unarchive(b); err != nil {
				return nil, fmt.Errorf("argument %d: %w", i, err)
			}
		}
	}
	return args, nil
}

// value is what an answer says: nil, the unarchived object, raw bytes, or the error that it is.
func (m Message) value() (any, error) {
	switch m.Type {
	case TypeAck:
		return nil, nil
	case TypeObject:
		if len(m.Payload) == 0 { // a method without a value
			return nil, nil
		}
		return Unarchive(m.Payload)
	case TypeData:
		return m.Payload, nil
	case TypeError:
		return nil, unarchiveError(m.Payload)
	}
	return nil, fmt.Errorf("expected an answer, found a message of type %s", m.Type)
}

// parseBody completes m, which has what the frame says, from the whole body. Aux and Payload refer to body unless it was compressed.
func parseBody(m Message, body []byte) (Message, error) {
	h, n, err := ParseBodyHeader(body)
	if err != nil {
		return Message{}, err
	}
	end := n + int(h.AuxLen)
	m.Type, m.Aux, m.Payload = h.Type, body[n:end:end], body[end:]
	if m.Type == TypeCompressed {
		m.Type = TypeData
		if m.Payload, err = inflate(m.Payload); err != nil {
			return Message{}, fmt.Errorf("%w: %w", ErrFraming, err)
		}
	}
	return m, nil
}

// AppendMessage appends m in one frame, or, where its body has more than piece bytes (1 to MaxFragment), in fragments of that size.
func AppendMessage(b []byte, m Message, piece int) ([]byte, error) {
	length := bodyHeaderSize + len(m.Aux) + len(m.Payload)
	if length > MaxMessage {
		return nil, fmt.Errorf("message of %d bytes: at most %d can be sent", length, MaxMessage)
	}
	frame := FrameHeader{Count: 1, Length: uint32(length), ID: m.ID, Conversation: m.Conversation, Channel: m.Channel}
	if m.ExpectsReply {
		frame.Flags = flagExpectsReply
	}
	parts := [3][]byte{
		AppendBodyHeader(nil, BodyHeader{Type: m.Type, AuxLen: uint32(len(m.Aux)), TotalLen: uint32(len(m.Aux) + len(m.Payload))}), m.Aux, m.Payload}
	if length <= piece {
		b = AppendFrameHeader(b, frame)
		return append(append(append(b, parts[0]...), parts[1]...), parts[2]...), nil
	}
	if piece < 1 || piece > MaxFragment || (length-1)/piece > 65533 {
		return nil, fmt.Errorf("message of %d bytes: cannot be sent in fragments of %d", length, piece)
	}
	frame.Count = uint16((length-1)/piece + 2) // fragment 0 has no piece
	b = AppendFrameHeader(b, frame)
	body := bytes.Join(parts[:], nil)
	for frame.Index = 1; frame.Index < frame.Count; frame.Index++ {
		n := min(piece, len(body))
		frame.Length = uint32(n)
		b = append(AppendFrameHeader(b, frame), body[:n]...)
		body = body[n:]
	}
	return b, nil
}

// Writer writes messages to a stream. It may be used by several goroutines.
type Writer struct {
	mu  sync.Mutex
	w   io.Writer
	buf []byte
}

func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// WriteMessage writes m in one call to the stream's Write, in fragments of MaxFragment where it is larger.
func (w *Writer) WriteMessage(m Message) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	b, err := AppendMessage(w.buf[:0], m, MaxFragment)
	if err != nil {
		return err
	}
	w.buf = b
	_, err = w.w.Write(b)
	return err
}
