// Package dtx speaks DTX, the message protocol of Apple's Instruments services, over any io.ReadWriteCloser: frames, messages,
// and (Conn) channels with calls, acknowledgements and device-started messages. It knows nothing of what the messages are about.
//
// The layers, one file each: frame.go (headers), auxiliary.go (arguments), archive.go (NSKeyedArchiver), inflate.go (compressed messages),
// message.go (a whole message, and how it is written), reader.go (bytes -> messages), conn.go and channel.go (the live connection).
// Reader, Writer and the constructors in message.go serve either side; Conn is the host's.
//
// Where the wire contract leaves room: a message in one frame may be larger than a fragment (go-ios sends such), up to MaxMessage;
// and compressed messages may hold uncompressed blocks (bv4-), which Apple's LZ4 encoder writes for data that does not shrink.
package dtx

import (
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	// MaxMessage bounds a message's body, on the wire and inflated. The largest seen, a process list, has under 1 MiB.
	MaxMessage = 128 << 20
	// MaxFragment bounds one fragment's piece of a body: Apple's side splits at 128 KiB.
	MaxFragment = 128 << 10

	frameHeaderSize = 32
	// maxFrameHeader bounds the header length that a frame may announce: 32 everywhere so far, with room for future fields.
	// Anything longer is a stream that has lost its place.
	maxFrameHeader = 256
	bodyHeaderSize = 16

	frameMagic = 0x1F3D5B79 // the bytes 79 5b 3d 1f

	flagExpectsReply = 1
)

// ErrFraming marks bytes that are not DTX, or that break one of its bounds. Nothing after them on the same stream can be trusted.
var ErrFraming = errors.New("bad DTX framing")

// FrameHeader is the header of one frame.
type FrameHeader struct {
	Index, Count uint16 // fragment Index of Count; 0 of 1 is a message in one frame
	// Length is the number of body bytes that follow, except in fragment 0 of several: there it is that of the whole message and nothing follows.
	Length       uint32
	ID           uint32 // message identifier, counted by the side that started the conversation
	Conversation uint32 // 0 starts a conversation, odd answers
	Channel      int32
	Flags        uint32 // bit 0: a reply is expected
}

// bodyLen is the number of bytes between this header and the next.
func (h FrameHeader) bodyLen() int {
	if h.Count > 1 && h.Index == 0 {
		return 0
	}
	return int(h.Length)
}

// ParseFrameHeader reads the header that b begins with and checks every bound that one header can break. n is the header's whole
// length, which is at least 32 and may exceed len(b): only its first 32 bytes need to be in b.
func ParseFrameHeader(b []byte) (h FrameHeader, n int, err error) {
	if len(b) < frameHeaderSize {
		return h, 0, fmt.Errorf("%w: expected a frame header of %d bytes, found %d", ErrFraming, frameHeaderSize, len(b))
	}
	if binary.LittleEndian.Uint32(b) != frameMagic {
		return h, 0, fmt.Errorf("%w: expected magic 79 5b 3d 1f, found % x", ErrFraming, b[:4])
	}
	headerLen := binary.LittleEndian.Uint32(b[4:])
	if headerLen < frameHeaderSize || headerLen > maxFrameHeader {
		return h, 0, fmt.Errorf("%w: expected a header length of %d to %d, found %d", ErrFraming, frameHeaderSize, maxFrameHeader, headerLen)
	}
	h = FrameHeader{
		Index:        binary.LittleEndian.Uint16(b[8:]),
		Count:        binary.LittleEndian.Uint16(b[10:]),
		Length:       binary.LittleEndian.Uint32(b[12:]),
		ID:           binary.LittleEndian.Uint32(b[16:]),
		Conversation: binary.LittleEndian.Uint32(b[20:]),
		Channel:      int32(binary.LittleEndian.Uint32(b[24:])),
		Flags:        binary.LittleEndian.Uint32(b[28:]),
	}
	least, most := uint64(bodyHeaderSize), uint64(MaxMessage)
	switch {
	case h.Index >= h.Count:
		return h, 0, fmt.Errorf("%w: expected a fragment index below the count %d, found %d", ErrFraming, h.Count, h.Index)
	case h.Index > 0:
		least, most = 1, MaxFragment
	case h.Count > 1:
		most = min(most, uint64(h.Count-1)*MaxFragment)
	}
	if uint64(h.Length) < least || uint64(h.Length) > most {
		return h, 0, fmt.Errorf("%w: expected a length of %d to %d in fragment %d of %d, found %d", ErrFraming, least, most, h.Index, h.Count, h.Length)
	}
	return h, int(headerLen), nil
}

// AppendFrameHeader appends h in 32 bytes.
func AppendFrameHeader(b []byte, h FrameHeader) []byte {
	b = binary.LittleEndian.AppendUint32(b, frameMagic)
	b = binary.LittleEndian.AppendUint32(b, frameHeaderSize)
	b = binary.LittleEndian.AppendUint16(b, h.Index)
	b = binary.LittleEndian.AppendUint16(b, h.Count)
	b = binary.LittleEndian.AppendUint32(b, h.Length)
	b = binary.LittleEndian.AppendUint32(b, h.ID)
	b = binary.LittleEndian.AppendUint32(b, h.Conversation)
	b = binary.LittleEndian.AppendUint32(b, uint32(h.Channel))
	return binary.LittleEndian.AppendUint32(b, h.Flags)
}

// MessageType says what a message's payload is.
type MessageType uint8

const (
	TypeAck        MessageType = 0 // acknowledgement: an answer without a value
	TypeData       MessageType = 1 // raw bytes
	TypeDispatch   MessageType = 2 // archived selector, arguments in the auxiliary
	TypeObject     MessageType = 3 // archived object
	TypeError      MessageType = 4 // archived NSError
	TypeBarrier    MessageType = 5
	TypePrimitive  MessageType = 6
	TypeCompressed MessageType = 7 // on the wire only: Reader delivers it inflated, as TypeData
	TypeProxied    MessageType = 8
)

func (t MessageType) String() string {
	names := [...]string{"acknowledgement", "data", "dispatch", "object", "error", "barrier", "primitive", "compressed", "proxied"}
	if int(t) < len(names) {
		return names[t]
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// BodyHeader begins the body of every message.
type BodyHeader struct {
	Type     MessageType
	Reserved [3]byte // 07 00 00 in compressed messages (they are written 0x0707), else seen as zeros
	AuxLen   uint32
	TotalLen uint32 // auxiliary and payload together
	Flags    uint32
}

// ParseBodyHeader reads the header that b, the whole body of a message, begins with. n is its length.
func ParseBodyHeader(b []byte) (h BodyHeader, n int, err error) {
	if len(b) < bodyHeaderSize {
		return h, 0, fmt.Errorf("%w: expected a message header of %d bytes, found %d", ErrFraming, bodyHeaderSize, len(b))
	}
	h = BodyHeader{
		Type:     MessageType(b[0]),
		Reserved: [3]byte(b[1:4]),
		AuxLen:   binary.LittleEndian.Uint32(b[4:]),
		TotalLen: binary.LittleEndian.Uint32(b[8:]),
		Flags:    binary.LittleEndian.Uint32(b[12:]),
	}
	if rest := len(b) - bodyHeaderSize; uint64(h.TotalLen) != uint64(rest) {
		return h, 0, fmt.Errorf("%w: expected the %d bytes behind the message header to be announced, found %d", ErrFraming, rest, h.TotalLen)
	}
	if h.AuxLen > h.TotalLen {
		return h, 0, fmt.Errorf("%w: expected an auxiliary of at most %d bytes, found %d", ErrFraming, h.TotalLen, h.AuxLen)
	}
	return h, bodyHeaderSize, nil
}

// AppendBodyHeader appends h in 16 bytes.
func AppendBodyHeader(b []byte, h BodyHeader) []byte {
	b = append(b, byte(h.Type), h.Reserved[0], h.Reserved[1], h.Reserved[2])
	b = binary.LittleEndian.AppendUint32(b, h.AuxLen)
	b = binary.LittleEndian.AppendUint32(b, h.TotalLen)
	return binary.LittleEndian.AppendUint32(b, h.Flags)
}
