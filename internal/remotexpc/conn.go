// Package remotexpc speaks RemoteXPC: XPC messages in the DATA frames of HTTP/2, as services of iOS 17 and later do.
//
// go-ios has all of this too. It is not used here because its decoder allocates what a count claims, level by level, so that a hostile answer
// of some kilobytes takes all memory; and because the handshake must be bounded in bytes as well as in time.
package remotexpc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"golang.org/x/net/http2"
)

// Flags of a message.
const (
	FlagAlways        = 0x00000001
	FlagData          = 0x00000100
	FlagWantsReply    = 0x00010000
	FlagInitHandshake = 0x00400000
	// flagOpens is what the client's third message says; its meaning is not known.
	flagOpens = 0x00000200
)

const (
	wrapperMagic = 0x29b00b92
	bodyMagic    = 0x42133742
	bodyVersion  = 5

	wrapperBytes = 4 + 4 + 8 + 8 // magic, flags, body length, message id
	bodyBytes    = 4 + 4         // magic, version

	// MaxMessage bounds a message's body. The longest is the service list, some 50 KiB.
	MaxMessage = 1 << 20
	// maxFrame bounds an HTTP/2 frame.
	maxFrame = 1 << 20
)

// The two streams of a connection: requests and their answers on the first, what the device starts on the other.
const (
	ClientServer = 1
	ServerClient = 3
)

// Message is one message. Body is nil where there is none.
type Message struct {
	Flags uint32
	ID    uint64
	Body  map[string]any
}

// AppendMessage appends a message.
func AppendMessage(b []byte, m Message) ([]byte, error) {
	start := len(b)
	b = append(b, make([]byte, wrapperBytes)...)
	binary.LittleEndian.PutUint32(b[start:], wrapperMagic)
	binary.LittleEndian.PutUint32(b[start+4:], m.Flags)
	binary.LittleEndian.PutUint64(b[start+16:], m.ID)
	if m.Body == nil {
		return b, nil
	}
	b = binary.LittleEndian.AppendUint32(b, bodyMagic)
	b = binary.LittleEndian.AppendUint32(b, bodyVersion)
	b, err := AppendObject(b, m.Body)
	if err != nil {
		return nil, err
	}
	binary.LittleEndian.PutUint64(b[start+8:], uint64(len(b)-start-wrapperBytes))
	return b, nil
}

// ParseMessage reads a message from the beginning of b. n is 0 where b does not hold all of it yet.
func ParseMessage(b []byte) (m Message, n int, err error) {
	if len(b) < wrapperBytes {
		return m, 0, nil
	}
	if magic := binary.LittleEndian.Uint32(b); magic != wrapperMagic {
		return m, 0, fmt.Errorf("XPC message: expected the magic number %#x, found %#x", wrapperMagic, magic)
	}
	length := binary.LittleEndian.Uint64(b[8:])
	if length > MaxMessage {
		return m, 0, fmt.Errorf("XPC message: a body of %d bytes, at most %d are read", length, MaxMessage)
	}
	m.Flags, m.ID = binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint64(b[16:])
	n = wrapperBytes + int(length)
	if length == 0 {
		return m, n, nil
	}
	if len(b) < n {
		return m, 0, nil
	}
	body := b[wrapperBytes:n]
	if length < bodyBytes || binary.LittleEndian.Uint32(body) != bodyMagic || binary.LittleEndian.Uint32(body[4:]) != bodyVersion {
		return m, 0, fmt.Errorf("XPC message: expected a body that begins with %#x and version %d, found % x", bodyMagic, bodyVersion, body[:min(len(body), bodyBytes)])
	}
	v, _, err := ParseObject(body[bodyBytes:])
	if err != nil {
		return m, 0, err
	}
	dict, ok := v.(map[string]any)
	if !ok {
		return m, 0, fmt.Errorf("XPC message: expected a dictionary, found %T", v)
	}
	m.Body = dict
	return m, n, nil
}

// Conn is the client's side of a connection. It has no goroutine; deadlines are those of the stream beneath.
type Conn struct {
	rwc     io.ReadWriteCloser
	framer  *http2.Framer
	lastID  uint64
	pending map[uint32][]byte // of each stream, what is not a whole message yet
	opened  map[uint32]bool
}

// Dial makes a connection of a fresh stream: HTTP/2's preface and settings, and the three messages that open both streams.
func Dial(rwc io.ReadWriteCloser) (*Conn, error) {
	c := &Conn{rwc: rwc, framer: http2.NewFramer(rwc, rwc), pending: map[uint32][]byte{}, opened: map[uint32]bool{}}
	c.framer.SetMaxReadFrameSize(maxFrame)
	_, err := io.WriteString(rwc, http2.ClientPreface)
	if err == nil {
		err = c.framer.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 100},
			http2.Setting{ID: http2.SettingInitialWindowSize, Val: 2 * MaxMessage})
	}
	if err == nil {
		err = c.framer.WriteWindowUpdate(0, 2*MaxMessage)
	}
	for _, first := range []struct {
		stream uint32
		m      Message
	}{
		{ClientServer, Message{Flags: FlagAlways, Body: map[string]any{}}},
		{ServerClient, Message{Flags: FlagAlways | FlagInitHandshake}},
		{ClientServer, Message{Flags: FlagAlways | flagOpens}},
	} {
		if err == nil {
			err = c.write(first.stream, first.m)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("RemoteXPC: %w", err)
	}
	return c, nil
}

func (c *Conn) Close() error { return c.rwc.Close() }

// Send sends body as a message, with flags beside the usual ones.
func (c *Conn) Send(body map[string]any, flags uint32) error {
	c.lastID++
	return c.write(ClientServer, Message{Flags: FlagAlways | FlagData | flags, ID: c.lastID, Body: body})
}

func (c *Conn) write(stream uint32, m Message) error {
	b, err := AppendMessage(nil, m)
	if err != nil {
		return err
	}
	if !c.opened[stream] {
		c.opened[stream] = true
		if err := c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, EndHeaders: true}); err != nil {
			return err
		}
	}
	return c.framer.WriteData(stream, false, b)
}

// Receive returns the next message with a body, on whichever of the two streams.
func (c *Conn) Receive() (stream uint32, m Message, err error) {
	for {
		for _, stream := range []uint32{ClientServer, ServerClient} {
			for {
				m, n, err := ParseMessage(c.pending[stream])
				if err != nil {
					return 0, m, fmt.Errorf("RemoteXPC: %w", err)
				}
				if n == 0 {
					break
				}
				c.pending[stream] = c.pending[stream][n:]
				if m.Body != nil && len(m.Body) > 0 {
					return stream, m, nil
				}
			}
		}
		if err := c.readFrame(); err != nil {
			return 0, m, fmt.Errorf("RemoteXPC: %w", err)
		}
	}
}

func (c *Conn) readFrame() error {
	frame, err := c.framer.ReadFrame()
	if err != nil {
		return err
	}
	switch f := frame.(type) {
	case *http2.DataFrame:
		if f.StreamID != ClientServer && f.StreamID != ServerClient {
			return fmt.Errorf("data on stream %d, which nobody opened", f.StreamID)
		}
		if len(c.pending[f.StreamID])+len(f.Data()) > MaxMessage+wrapperBytes+maxFrame {
			return fmt.Errorf("more than a message is waiting on stream %d", f.StreamID)
		}
		c.pending[f.StreamID] = append(c.pending[f.StreamID], f.Data()...)
		if n := uint32(len(f.Data())); n > 0 { // what was read may be sent again
			if err := errors.Join(c.framer.WriteWindowUpdate(0, n), c.framer.WriteWindowUpdate(f.StreamID, n)); err != nil {
				return err
			}
		}
	case *http2.SettingsFrame:
		if !f.IsAck() {
			return c.framer.WriteSettingsAck()
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			return c.framer.WritePing(true, f.Data)
		}
	case *http2.GoAwayFrame:
		return fmt.Errorf("the device ends the connection (%s)", f.ErrCode)
	case *http2.RSTStreamFrame:
		return fmt.Errorf("the device ends stream %d (%s)", f.StreamID, f.ErrCode)
	}
	return nil
}
