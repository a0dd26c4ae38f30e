package dtx

import (
	"context"
	"fmt"
	"sync"
)

const (
	// A channel's queue is full with this many messages or bytes. A tap that sends every 100 ms fills it in seconds, so that it
	// covers a consumer's short pause; beyond that the socket, and then the device, should do the waiting.
	maxQueued      = 64
	maxQueuedBytes = 8 << 20
)

// Channel is a channel that the host has opened.
type Channel struct {
	conn *Conn
	code int32
	name string

	mu          sync.Mutex
	queue       []Message
	queuedBytes int
	ignoring    bool
	ready       chan struct{} // holds a token when there may be something to receive
	space       chan struct{} // holds a token when an offer that was refused may succeed
}

func newChannel(c *Conn, code int32, name string) *Channel {
	return &Channel{conn: c, code: code, name: name, ready: make(chan struct{}, 1), space: make(chan struct{}, 1)}
}

// Code is the channel's code; messages that the device starts on it carry the negative of it.
func (ch *Channel) Code() int32 { return ch.code }

// Call sends a message with selector and args to the service and waits for its answer until ctx ends, which should therefore have a
// deadline. The answer is nil, an unarchived object (see Unarchive), or the bytes of a DATA answer; a refusal is a *RemoteError.
// Arguments are archived, except nil, Int32 and Int64.
func (ch *Channel) Call(ctx context.Context, selector string, args ...any) (any, error) {
	v, err := ch.conn.call(ctx, ch.code, selector, args...)
	if err != nil {
		return nil, fmt.Errorf("call %s on %s: %w", selector, ch.name, err)
	}
	return v, nil
}

// Send sends a message that asks for no answer.
func (ch *Channel) Send(ctx context.Context, selector string, args ...any) error {
	m, err := Dispatch(ch.code, ch.conn.newID(), selector, args...)
	if err == nil {
		err = ch.conn.write(ctx, m)
	}
	if err != nil {
		return fmt.Errorf("send %s on %s: %w", selector, ch.name, err)
	}
	return nil
}

// Receive returns the next message that the device has started on the channel, untouched but for being put together and inflated.
// Where it expected a reply it has been acknowledged already. After the connection's end the messages still queued come first, then
// the error that ended it.
func (ch *Channel) Receive(ctx context.Context) (Message, error) {
	for {
		if m, ok := ch.take(); ok {
			return m, nil
		}
		select {
		case <-ch.ready:
		case <-ctx.Done():
			return Message{}, fmt.Errorf("receive on %s: %w", ch.name, context.Cause(ctx))
		case <-ch.conn.ended:
			if m, ok := ch.take(); ok {
				return m, nil
			}
			return Message{}, fmt.Errorf("receive on %s: %w", ch.name, ch.conn.Err())
		}
	}
}

// Ignore drops what is queued and whatever the device starts on the channel from now on, counted and acknowledged.
func (ch *Channel) Ignore() { ch.ignore(true) }

func (ch *Channel) ignore(on bool) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.ignoring = on
	if on {
		for range ch.queue {
			ch.conn.count(&ch.conn.stats.Ignored)
		}
		ch.queue, ch.queuedBytes = nil, 0
		signal(ch.space)
	}
}

// offer queues m, or drops it if the channel ignores messages. It refuses if the queue is full; an empty one takes any message.
func (ch *Channel) offer(m Message) bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.ignoring {
		ch.conn.count(&ch.conn.stats.Ignored)
		return true
	}
	size := len(m.Aux) + len(m.Payload)
	if len(ch.queue) > 0 && (len(ch.queue) == maxQueued || ch.queuedBytes+size > maxQueuedBytes) {
		return false
	}
	ch.queue = append(ch.queue, m)
	ch.queuedBytes += size
	signal(ch.ready)
	return true
}

func (ch *Channel) take() (Message, bool) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if len(ch.queue) == 0 {
		return Message{}, false
	}
	m := ch.queue[0]
	ch.queue[0] = Message{}
	ch.queue = ch.queue[1:]
	ch.queuedBytes -= len(m.Aux) + len(m.Payload)
	signal(ch.space)
	if len(ch.queue) > 0 {
		signal(ch.ready) // for another goroutine that may be receiving
	}
	return m, true
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
