package sim

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"

	"golang.org/x/net/http2"

	"github.com/framebridge/framebridge/internal/remotexpc"
)

// RemoteXPC, the device's side: XPC messages in the DATA frames of two HTTP/2 streams that the client opens.

const (
	// xpcWindow is how much a client may send before any of it is read: a message and more.
	xpcWindow = 2 * remotexpc.MaxMessage
	// maxXPCFrame bounds a frame that a client sends. go-ios puts each message's body into one, whatever its length.
	maxXPCFrame = 1 << 20
	// xpcPiece is the longest DATA frame that every client of HTTP/2 takes.
	xpcPiece = 16 << 10
	// initialXPCWindow is how much may be sent where a client says nothing else.
	initialXPCWindow = 65535
)

// xpcConn is a RemoteXPC connection of one client. It has no goroutine: frames are read where a message is waited for, or room to send.
type xpcConn struct {
	framer  *http2.Framer
	streams map[uint32]*xpcStream
	room    int64 // to send, on the whole connection
	initial int64 // room of a new stream
	lastID  uint64
}

// xpcStream is a stream that the client has opened.
type xpcStream struct {
	got      []byte // not a whole message yet
	room     int64  // to send
	answered bool   // the device has opened its side too
}

// acceptXPC does what comes before the first message: HTTP/2's preface and settings, then three messages of the client, each answered by its like.
func acceptXPC(conn net.Conn) (*xpcConn, error) {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(conn, preface); err != nil {
		return nil, err
	}
	if string(preface) != http2.ClientPreface {
		return nil, fmt.Errorf("expected HTTP/2's preface, found %q", preface)
	}
	c := &xpcConn{framer: http2.NewFramer(conn, conn), streams: map[uint32]*xpcStream{}, room: initialXPCWindow, initial: initialXPCWindow}
	c.framer.SetMaxReadFrameSize(maxXPCFrame)
	// go-ios takes the window as the longest frame that it reads.
	err := c.framer.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 100}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: xpcWindow})
	if err == nil {
		err = c.framer.WriteWindowUpdate(0, xpcWindow)
	}
	for range 3 {
		if err != nil {
			return nil, err
		}
		var id uint32
		var m remotexpc.Message
		if id, m, err = c.next(); err == nil {
			err = c.write(id, m)
		}
	}
	return c, err
}

// receive returns the next message with content.
func (c *xpcConn) receive() (remotexpc.Message, error) {
	for {
		_, m, err := c.next()
		if err != nil || len(m.Body) > 0 {
			return m, err
		}
	}
}

// next returns the next message; io.EOF is a client's goodbye.
func (c *xpcConn) next() (stream uint32, m remotexpc.Message, err error) {
	for {
		for _, id := range []uint32{remotexpc.ClientServer, remotexpc.ServerClient} {
			s := c.streams[id]
			if s == nil {
				continue
			}
			m, n, err := remotexpc.ParseMessage(s.got)
			if err != nil {
				return 0, m, err
			}
			if n > 0 {
				s.got = s.got[n:]
				return id, m, nil
			}
		}
		if err := c.readFrame(); err != nil {
			return 0, m, err
		}
	}
}

// send sends body as a message.
func (c *xpcConn) send(stream uint32, body map[string]any) error {
	c.lastID++
	return c.write(stream, remotexpc.Message{Flags: remotexpc.FlagAlways | remotexpc.FlagData, ID: c.lastID, Body: body})
}

func (c *xpcConn) write(id uint32, m remotexpc.Message) error {
	b, err := remotexpc.AppendMessage(nil, m)
	if err != nil {
		return err
	}
	s := c.streams[id]
	if s == nil {
		return fmt.Errorf("the client has not opened stream %d", id)
	}
	if !s.answered {
		s.answered = true
		if err := c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true}); err != nil {
			return err
		}
	}
	for len(b) > 0 {
		room := min(c.room, s.room, xpcPiece, int64(len(b)))
		if room <= 0 {
			if err := c.readFrame(); err != nil {
				return err
			}
			continue
		}
		if err := c.framer.WriteData(id, false, b[:room]); err != nil {
			return err
		}
		b = b[room:]
		c.room -= room
		s.room -= room
	}
	return nil
}

func (c *xpcConn) readFrame() error {
	frame, err := c.framer.ReadFrame()
	if err != nil {
		return err
	}
	switch f := frame.(type) {
	case *http2.HeadersFrame:
		if f.StreamID != remotexpc.ClientServer && f.StreamID != remotexpc.ServerClient {
			return fmt.Errorf("the client opens stream %d, expected %d and %d", f.StreamID, remotexpc.ClientServer, remotexpc.ServerClient)
		}
		if c.streams[f.StreamID] == nil {
			c.streams[f.StreamID] = &xpcStream{room: c.initial}
		}
	case *http2.DataFrame:
		return c.readData(f)
	case *http2.SettingsFrame:
		return c.readSettings(f)
	case *http2.WindowUpdateFrame:
		return c.grow(f.StreamID, int64(f.Increment))
	case *http2.PingFrame:
		if !f.IsAck() {
			return c.framer.WritePing(true, f.Data)
		}
	case *http2.GoAwayFrame:
		return io.EOF
	case *http2.RSTStreamFrame:
		return fmt.Errorf("the client ends stream %d (%s)", f.StreamID, f.ErrCode)
	}
	return nil
}

func (c *xpcConn) readData(f *http2.DataFrame) error {
	s := c.streams[f.StreamID]
	if s == nil {
		return fmt.Errorf("data on stream %d, which nobody has opened", f.StreamID)
	}
	if len(s.got)+len(f.Data()) > xpcWindow {
		return fmt.Errorf("more than %d bytes wait on stream %d", xpcWindow, f.StreamID)
	}
	s.got = append(s.got, f.Data()...)
	if f.Length == 0 {
		return nil
	}
	return errors.Join(c.framer.WriteWindowUpdate(0, f.Length), c.framer.WriteWindowUpdate(f.StreamID, f.Length))
}

func (c *xpcConn) readSettings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	if v, ok := f.Value(http2.SettingInitialWindowSize); ok {
		more := int64(v) - c.initial
		c.initial = int64(v)
		for id := range c.streams {
			if err := c.grow(id, more); err != nil {
				return err
			}
		}
	}
	return c.framer.WriteSettingsAck()
}

// grow gives a stream, or with 0 the connection, more room.
func (c *xpcConn) grow(stream uint32, more int64) error {
	room := &c.room
	if stream != 0 {
		s := c.streams[stream]
		if s == nil {
			return nil
		}
		room = &s.room
	}
	if *room += more; *room > math.MaxInt32 {
		return fmt.Errorf("the window of stream %d grows past what HTTP/2 allows", stream)
	}
	return nil
}
