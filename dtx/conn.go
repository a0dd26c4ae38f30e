package dtx

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// ErrClosed is what everything on a connection returns after its Close.
var ErrClosed = errors.New("DTX connection closed")

// writeTimeout bounds one write where the stream has write deadlines. A device takes in requests of a few hundred bytes at once;
// one that has not for ten seconds is gone, or has stopped reading for good.
const writeTimeout = 10 * time.Second

// Conn is the host's side of a DTX connection. One goroutine reads; Close ends it. All methods may be called by any goroutine.
//
// Whatever a device starts on an open channel is queued for that channel's Receive, in order, and never dropped: where a consumer
// falls behind by more than its queue, the connection stops reading until it catches up, so that the device waits too. That holds
// up the answers to calls as well, on every channel. Therefore a goroutine that must keep receiving should not also call, and a
// channel that is only there for calls should be told to Ignore what the device starts on it.
//
// Write deadlines are set by Conn if the stream has SetWriteDeadline; without it only Close frees a write that the peer does not
// take. Read deadlines are the caller's, and one that passes ends the connection.
type Conn struct {
	rwc          io.ReadWriteCloser
	clock        func() int64
	reader       *Reader
	startedCount int64 // of the reading goroutine: messages that the device has started
	writeTimeout time.Duration
	writing      chan struct{} // holds one token while somebody writes
	control      *Channel      // channel 0

	published chan struct{} // closed when the peer has published its capabilities
	failed    chan struct{} // closed when err is set; the stream is closed then
	closing   chan struct{} // closed by Close: nobody will receive any more
	ended     chan struct{} // closed when the reading goroutine is gone: nothing will be queued any more

	mu           sync.Mutex
	err          error // why the connection ended
	capabilities map[string]any
	lastID       uint32
	lastCode     int32
	channels     map[int32]*Channel         // by the code that the host opened them with
	waiters      map[answerKey]chan Message // calls without an answer yet
	stats        Stats
	blockedSince int64 // when the reading goroutine began to wait for a consumer, if blocked
	blocked      bool
}

type answerKey struct {
	channel int32
	id      uint32
}

// Stats counts what happened on a connection since it began.
type Stats struct {
	ReadStats
	BlockedNs      int64 // time in which the socket was left unread because a consumer's queue was full
	AcksSent       int64
	Ignored        int64 // device-started messages on channels that are told to ignore them
	UnknownChannel int64 // device-started messages on channels that nobody has opened, dropped
	StrayAnswers   int64 // answers that nobody waits for (any more), dropped
}

// Connect takes over rwc, publishes the host's capabilities and waits for the device's. It closes rwc if that fails or ctx ends first.
// clock gives the host time in ns: messages are stamped and blocked time is measured with it.
func Connect(ctx context.Context, rwc io.ReadWriteCloser, clock func() int64) (*Conn, error) {
	c := newConn(rwc, clock)
	go c.run()
	if err := c.handshake(ctx); err != nil {
		c.Close()
		return nil, fmt.Errorf("DTX handshake: %w", err)
	}
	return c, nil
}

func newConn(rwc io.ReadWriteCloser, clock func() int64) *Conn {
	c := &Conn{
		rwc: rwc, clock: clock, reader: NewReader(rwc, clock), writeTimeout: writeTimeout, writing: make(chan struct{}, 1),
		published: make(chan struct{}), failed: make(chan struct{}), closing: make(chan struct{}), ended: make(chan struct{}),
		channels: map[int32]*Channel{}, waiters: map[answerKey]chan Message{},
	}
	c.control = newChannel(c, 0, "the control channel")
	c.control.ignoring = true
	c.channels[0] = c.control
	return c
}

func (c *Conn) handshake(ctx context.Context) error {
	m, err := Dispatch(0, c.newID(), NotifyCapabilities, Capabilities())
	if err != nil {
		return err
	}
	if err := c.write(ctx, m); err != nil {
		return err
	}
	select {
	case <-c.published:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("expected %s from the device, found nothing: %w", NotifyCapabilities, context.Cause(ctx))
	case <-c.failed:
		return c.Err()
	}
}

// Capabilities returns what the device has published.
func (c *Conn) Capabilities() map[string]any { return c.capabilities }

// Control returns channel 0, on which everything that the device starts has been ignored until now.
func (c *Conn) Control() *Channel {
	c.control.ignore(false)
	return c.control
}

// OpenChannel opens a channel to the service with this identifier.
func (c *Conn) OpenChannel(ctx context.Context, identifier string) (*Channel, error) {
	c.mu.Lock()
	c.lastCode++
	ch := newChannel(c, c.lastCode, identifier)
	c.channels[ch.code] = ch // before the request: the device may start at once
	c.mu.Unlock()
	if _, err := c.call(ctx, 0, RequestChannel, Int32(ch.code), identifier); err != nil {
		c.mu.Lock()
		delete(c.channels, ch.code)
		c.mu.Unlock()
		ch.ignore(true) // the reading goroutine may be waiting for room in it
		return nil, fmt.Errorf("open channel %s: %w", identifier, err)
	}
	return ch, nil
}

// Stats may be called at any time; BlockedNs includes a wait that is still going on.
func (c *Conn) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.ReadStats = c.reader.Stats()
	if c.blocked {
		s.BlockedNs += c.clock() - c.blockedSince
	}
	return s
}

// Err returns why the connection has ended, nil while it has not.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close closes the stream and waits for the reading goroutine. Messages already queued can still be received.
func (c *Conn) Close() error {
	err := c.fail(ErrClosed)
	c.mu.Lock()
	select {
	case <-c.closing:
	default:
		close(c.closing)
	}
	c.mu.Unlock()
	<-c.ended
	return err
}

// fail ends the connection with its first error.
func (c *Conn) fail(err error) error {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return nil
	}
	c.err = err
	close(c.failed)
	c.mu.Unlock()
	return c.rwc.Close()
}

// run reads until the stream ends. What had been read before a failure is still delivered.
func (c *Conn) run() {
	defer close(c.ended)
	for {
		m, err := c.reader.Next()
		if err == io.EOF {
			err = fmt.Errorf("the device has closed the DTX connection: %w", err)
		}
		if err != nil {
			c.fail(err)
			return
		}
		if m.ExpectsReply && c.write(context.Background(), m.Ack()) == nil {
			c.count(&c.stats.AcksSent)
		}
		if m.Conversation%2 == 1 {
			c.answered(m)
		} else {
			c.started(m)
		}
	}
}

func (c *Conn) count(counter *int64) {
	c.mu.Lock()
	*counter++
	c.mu.Unlock()
}

// answered hands an answer to the call that waits for it.
func (c *Conn) answered(m Message) {
	key := answerKey{m.Channel, m.ID}
	c.mu.Lock()
	defer c.mu.Unlock()
	if waiter := c.waiters[key]; waiter != nil {
		delete(c.waiters, key)
		waiter <- m // it has room for one
	} else {
		c.stats.StrayAnswers++
	}
}

// started hands a message that the device has started to its channel, and waits where that is full.
func (c *Conn) started(m Message) {
	c.startedCount++
	m.Started = c.startedCount
	if m.Channel == 0 && c.publish(m) {
		return
	}
	c.mu.Lock()
	ch := c.channels[-m.Channel]
	c.mu.Unlock()
	if ch == nil {
		c.count(&c.stats.UnknownChannel)
		return
	}
	if ch.offer(m) {
		return
	}
	c.mu.Lock()
	c.blocked, c.blockedSince = true, c.clock()
	c.mu.Unlock()
	for open := true; open && !ch.offer(m); {
		select {
		case <-ch.space:
		case <-c.closing:
			open = false
		}
	}
	c.mu.Lock()
	c.blocked = false
	c.stats.BlockedNs += c.clock() - c.blockedSince
	c.mu.Unlock()
}

// publish keeps the device's capabilities, if m are they and the first.
func (c *Conn) publish(m Message) bool {
	select {
	case <-c.published:
		return false
	default:
	}
	if selector, err := m.Selector(); err != nil || selector != NotifyCapabilities {
		return false
	}
	args, err := m.Arguments()
	if err == nil && len(args) != 1 {
		err = fmt.Errorf("expected one argument, found %d", len(args))
	}
	if err != nil {
		c.fail(fmt.Errorf("%s: %w", NotifyCapabilities, err))
		return true
	}
	c.capabilities, _ = args[0].(map[string]any)
	close(c.published)
	return true
}

func (c *Conn) newID() uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastID++
	return c.lastID
}

// call sends a dispatch and waits for its answer.
func (c *Conn) call(ctx context.Context, channel int32, selector string, args ...any) (any, error) {
	m, err := Dispatch(channel, c.newID(), selector, args...)
	if err != nil {
		return nil, err
	}
	m.ExpectsReply = true
	key, answer := answerKey{channel, m.ID}, make(chan Message, 1)
	c.mu.Lock()
	c.waiters[key] = answer
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.waiters, key)
		c.mu.Unlock()
	}()
	if err := c.write(ctx, m); err != nil {
		return nil, err
	}
	select {
	case a := <-answer:
		return a.value()
	case <-ctx.Done():
		return nil, fmt.Errorf("no answer to message %d: %w", m.ID, context.Cause(ctx))
	case <-c.failed:
		select {
		case a := <-answer: // it came before the end
			return a.value()
		default:
			return nil, fmt.Errorf("no answer to message %d: %w", m.ID, c.Err())
		}
	}
}

// write writes one message. ctx ends the wait for others' writes; a write once begun is not cut short by it, since half a frame
// on the stream would end the connection.
func (c *Conn) write(ctx context.Context, m Message) error {
	b, err := AppendMessage(nil, m, MaxFragment)
	if err != nil {
		return err
	}
	select {
	case c.writing <- struct{}{}:
		defer func() { <-c.writing }()
	case <-ctx.Done():
	case <-c.failed:
	}
	if err := c.Err(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if stream, ok := c.rwc.(interface{ SetWriteDeadline(time.Time) error }); ok {
		_ = stream.SetWriteDeadline(time.Now().Add(c.writeTimeout)) // a stream that cannot after all is as one without
	}
	if _, err := c.rwc.Write(b); err != nil {
		c.fail(fmt.Errorf("write DTX message %d on channel %d (%d bytes): %w", m.ID, m.Channel, len(b), err))
		return c.Err() // what ended the connection: another failure, or Close, may have come first
	}
	return nil
}
