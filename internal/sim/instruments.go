package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/framebridge/framebridge/dtx"
)

// Instruments' server: DTX, with a channel for each service. This is its name from iOS 14 to 16, with TLS throughout; behind tunnels it is
// dtServiceHubName, without.
const instrumentsName = "com.apple.instruments.remoteserver.DVTSecureSocketProxy"

const channelPrefix = "com.apple.instruments.server.services."

// answerDelay is waited before each answer: go-ios loses an answer that arrives before its caller has begun to wait for it.
const answerDelay = 2 * time.Millisecond

// maxChannels bounds the channels of one connection; Xcode opens some forty.
const maxChannels = 256

// channelService is a service that a client opens a channel to.
type channelService struct {
	name string
	open func(ch *channel) channelHandler
}

// channelHandler serves one channel. call answers one call: with nil (an acknowledgement), a value or an error. close ends what it
// has running; the connection may be gone by then.
type channelHandler interface {
	call(selector string, args []any) (any, error)
	close()
}

var channelServices = []channelService{
	{deviceInfoName, openDeviceInfo},
	{processControlName, openProcessControl},
	{notificationsName, openNotifications},
	{sysmonTapName, openSysmonTap},
	{activityTapName, openActivityTap},
}

// maxPending bounds the answers that are on their way; a client that asks more waits.
const maxPending = 256

// instruments is one client's DTX connection.
type instruments struct {
	d        *Device
	name     string // of the service as the client knows it
	ctx      context.Context
	channels map[int32]*channel
	answers  sync.WaitGroup // that are on their way
	pending  chan struct{}  // holds a token for each of them

	mu     sync.Mutex // keeps identifiers in the order of writing
	conn   net.Conn
	lastID uint32 // of the messages that the device started
	buf    []byte
}

// channel is one channel that the client opened as code.
type channel struct {
	c       *instruments
	code    int32
	service string
	handler channelHandler
}

func serveInstruments(ctx context.Context, d *Device, conn net.Conn) error {
	return serveDTX(ctx, d, instrumentsName, conn)
}

func serveDTX(ctx context.Context, d *Device, name string, conn net.Conn) error {
	ctx, cancel := context.WithCancel(ctx)
	c := &instruments{d: d, name: name, ctx: ctx, conn: conn, channels: map[int32]*channel{}, pending: make(chan struct{}, maxPending)}
	defer func() {
		cancel()
		conn.Close() // so that nobody waits for a client that has stopped reading
		for _, ch := range c.channels {
			ch.handler.close()
		}
		c.answers.Wait()
	}()
	hello, err := dtx.Dispatch(0, 0, dtx.NotifyCapabilities, dtx.Capabilities())
	if err != nil {
		return err
	}
	if err := c.start(hello); err != nil {
		return err
	}
	r := dtx.NewReader(conn, nil)
	for {
		m, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if m.Conversation != 0 || m.Type != dtx.TypeDispatch {
			if m.Conversation == 0 && m.ExpectsReply {
				c.answer(m.Ack(), answerDelay)
			}
			continue
		}
		if err := c.dispatch(m); err != nil {
			return err
		}
	}
}

// dispatch serves one call. A service that is slow or hangs holds up no other.
func (c *instruments) dispatch(m dtx.Message) error {
	service := c.name
	ch := c.channels[m.Channel]
	if ch != nil {
		service = ch.service
	}
	if c.d.hangs(service) {
		return nil
	}
	value, err := c.call(ch, m)
	if !m.ExpectsReply {
		return nil
	}
	answer := m.Ack()
	var refused *dtx.RemoteError
	switch {
	case errors.As(err, &refused):
		if answer, err = m.AnswerError(*refused); err != nil {
			return err
		}
	case err != nil:
		return err
	case value != nil:
		answer.Type = dtx.TypeObject
		if answer.Payload, err = archive(value); err != nil {
			return err
		}
	}
	c.answer(answer, answerDelay+c.d.slowBy(service))
	return nil
}

func (c *instruments) call(ch *channel, m dtx.Message) (any, error) {
	selector, err := m.Selector()
	if err != nil {
		return nil, refuse("%v", err)
	}
	args, err := m.Arguments()
	if err != nil {
		return nil, refuse("%s: %v", selector, err)
	}
	switch {
	case m.Channel == 0:
		return nil, c.control(selector, args)
	case ch == nil:
		return nil, refuse("no channel has the code %d", m.Channel)
	}
	value, err := ch.handler.call(selector, args)
	if err == errUnknownSelector {
		return nil, refuse("%s does not respond to the selector %s", ch.service, selector)
	}
	return value, err
}

// control is channel 0.
func (c *instruments) control(selector string, args []any) error {
	switch selector {
	case dtx.NotifyCapabilities:
		return nil
	case dtx.RequestChannel:
		code, ok1 := arg(args, 0).(dtx.Int32)
		name, ok2 := arg(args, 1).(string)
		if !ok1 || !ok2 || code <= 0 || c.channels[int32(code)] != nil {
			return refuse("expected a new channel code above 0 and a name, found %v", args)
		}
		if len(c.channels) >= maxChannels {
			return refuse("more than %d channels", maxChannels)
		}
		for _, s := range channelServices {
			if s.name == name {
				ch := &channel{c: c, code: int32(code), service: name}
				ch.handler = s.open(ch)
				c.channels[ch.code] = ch
				return nil
			}
		}
		return refuse("no service is called %q", name)
	case "_channelCanceled:":
		if code, ok := arg(args, 0).(dtx.Int32); ok {
			if ch := c.channels[int32(code)]; ch != nil {
				ch.handler.close()
				delete(c.channels, ch.code)
			}
		}
		return nil
	}
	return refuse("the connection does not respond to the selector %s", selector)
}

var errUnknownSelector = errors.New("unknown selector")

// refuse is the error that the server answers with where it cannot do what was asked.
func refuse(format string, args ...any) error {
	return &dtx.RemoteError{Domain: "DTXMessage", Code: 1, Description: fmt.Sprintf(format, args...)}
}

func arg(args []any, i int) any {
	if i < len(args) {
		return args[i]
	}
	return nil
}

// integer is a number argument, plain or archived.
func integer(v any) (int64, bool) {
	switch v := v.(type) {
	case dtx.Int32:
		return int64(v), true
	case dtx.Int64:
		return int64(v), true
	case uint64:
		return int64(v), v < 1<<63
	case int64:
		return v, true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// answer writes an answer after a while. It carries the identifier of what it answers.
func (c *instruments) answer(m dtx.Message, after time.Duration) {
	select {
	case c.pending <- struct{}{}:
	case <-c.ctx.Done():
		return
	}
	c.answers.Go(func() {
		defer func() { <-c.pending }()
		if sleep(c.ctx.Done(), after) != nil {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if err := c.writeLocked(m, dtx.MaxFragment); err != nil {
			c.conn.Close() // its client would wait in vain
		}
	})
}

// start writes a message that the device starts, with the next identifier.
func (c *instruments) start(m dtx.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastID++
	m.ID = c.lastID
	return c.writeLocked(m, dtx.MaxFragment)
}

func (c *instruments) writeLocked(m dtx.Message, piece int) error {
	var err error
	if c.buf, err = dtx.AppendMessage(c.buf[:0], m, piece); err != nil {
		return err
	}
	_, err = c.conn.Write(c.buf)
	return err
}

// start sends a message on the channel. A channel that the client opened as c is -c for what the device starts.
func (ch *channel) start(m dtx.Message) error {
	m.Channel = -ch.code
	return ch.c.start(m)
}

// object sends a value.
func (ch *channel) object(v any) error {
	b, err := archive(v)
	if err != nil {
		return err
	}
	return ch.start(dtx.Message{Type: dtx.TypeObject, Payload: b})
}

// call calls a selector of the client's.
func (ch *channel) call(selector string, args ...any) error {
	m, err := dtx.Dispatch(0, 0, selector, args...)
	if err != nil {
		return err
	}
	return ch.start(m)
}

// sender is a goroutine of a channel that sends from time to time, until it is stopped or the connection ends.
type sender struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// send runs f until it returns; an error of it ends the whole connection, since the client would wait in vain.
func (ch *channel) send(f func(ctx context.Context) error) *sender {
	ctx, cancel := context.WithCancel(ch.c.ctx)
	s := &sender{cancel, make(chan struct{})}
	go func() {
		defer close(s.done)
		if err := f(ctx); err != nil && ctx.Err() == nil {
			ch.c.d.lab.log.Debug().Str("service", ch.service).Err(err).Msg("a channel ended")
			ch.c.conn.Close()
		}
	}()
	return s
}

// stop ends the sender and waits for it.
func (s *sender) stop() {
	if s != nil {
		s.cancel()
		<-s.done
	}
}
