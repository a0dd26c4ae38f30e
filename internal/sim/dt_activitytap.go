package sim

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/framebridge/framebridge/dtx"
	"github.com/framebridge/framebridge/internal/sim/tapenc"
)

// activitytracetap: signposts, as rows in DATA messages.
const activityTapName = channelPrefix + "activitytracetap"

// Bounds of the update interval: the device's own default is 500 ms; every 10 ms is as fast as a frame at 100 Hz.
const (
	minTapInterval     = 10 * time.Millisecond
	defaultTapInterval = 500 * time.Millisecond
	maxTapInterval     = 10 * time.Second
)

// heartbeatEvery is how often, in lab time, the tap shows that it lives, rows or not.
const heartbeatEvery = time.Second

// tornPiece is the size of DTX fragments while messages are torn: smaller than a row, so that no row comes in one piece.
const tornPiece = 96

type activityTap struct {
	ch     *channel
	config tapenc.Config
	every  time.Duration
	tap    *runningTap
	sender *sender
}

func openActivityTap(ch *channel) channelHandler {
	return &activityTap{ch: ch, every: defaultTapInterval}
}

func (h *activityTap) close() { h.stop() }

func (h *activityTap) call(selector string, args []any) (any, error) {
	switch selector {
	case "setConfig:":
		config, ok := arg(args, 0).(map[string]any)
		if !ok {
			return nil, refuse("setConfig: expected a dictionary, found %T", arg(args, 0))
		}
		return nil, h.configure(config)
	case "start":
		h.stop()
		return nil, h.start()
	case "stop", "pause":
		h.stop()
		return nil, nil
	}
	return nil, errUnknownSelector
}

func (h *activityTap) configure(config map[string]any) error {
	predicate, _ := config["predicate"].(string)
	filter, err := parsePredicate(predicate)
	if err != nil {
		return refuse("setConfig: predicate: %v", err)
	}
	only, _ := integer(config["onlySignposts"])
	filter.Logs = only == 0
	h.config = tapenc.Config{Filter: filter}
	h.every = interval(config, defaultTapInterval, minTapInterval, maxTapInterval)
	return nil
}

// runningTap is a tap that sends.
type runningTap struct {
	tap  *tapenc.Tap
	sent atomic.Int64  // number of the last payload that was sent
	gone chan struct{} // closed when it sends no more
}

// inject makes a fault happen to the payloads that come after the returned one.
func (t *runningTap) inject(at time.Duration, f tapenc.Fault) (after int64, err error) {
	return t.sent.Load(), t.tap.Inject(at, f)
}

func (h *activityTap) start() error {
	d := h.ch.c.d
	tap, err := tapenc.Open(d.phone, d.now(), h.config)
	if err != nil {
		return refuse("start: %v", err)
	}
	h.tap = &runningTap{tap: tap, gone: make(chan struct{})}
	d.update(func() { d.taps[h.tap] = struct{}{} })
	running := h.tap
	h.sender = h.ch.send(func(ctx context.Context) error {
		defer close(running.gone)
		defer d.update(func() { delete(d.taps, running) })
		defer tap.Close()
		return h.run(ctx, running)
	})
	return nil
}

func (h *activityTap) stop() {
	h.sender.stop()
	h.sender, h.tap = nil, nil
}

// run sends what the tap has, every interval. Before anything else it sends the status object that the real one begins with.
func (h *activityTap) run(ctx context.Context, t *runningTap) error {
	d := h.ch.c.d
	if err := h.ch.object(tapMessage("DTActivityTraceTapMessage", map[string]any{"k": uint64(0)})); err != nil {
		return err
	}
	heartbeat, err := archive(tapMessage("DTTapHeartbeatMessage", map[string]any{"k": uint64(3)}))
	if err != nil {
		return err
	}
	beat := d.lab.clock.elapsed()
	stream := &tapStream{ch: h.ch}
	for {
		if sleep(ctx.Done(), d.lab.clock.host(h.every)) != nil {
			return nil
		}
		torn := d.tornNow()
		tear := tapenc.Fault{Kind: tapenc.FaultTear}
		if !torn {
			tear.Payloads = -1
		}
		if err := t.tap.Inject(d.now(), tear); err != nil {
			return err
		}
		payloads, err := t.tap.Collect(d.now())
		if errors.Is(err, tapenc.ErrGone) {
			return nil // the phone restarts; its connections are about to end
		}
		if err != nil {
			return err
		}
		if err := stream.send(payloads, torn); err != nil {
			return err
		}
		if len(payloads) > 0 {
			t.sent.Store(payloads[len(payloads)-1].N)
		}
		if now := d.lab.clock.elapsed(); now-beat >= heartbeatEvery {
			beat = now
			if err := h.ch.start(dtx.Message{Type: dtx.TypeData, Payload: heartbeat}); err != nil {
				return err
			}
		}
	}
}

// tapStream numbers payloads as DTX messages: one that was lost on the way has taken its identifier with it, one that comes twice
// comes with the same.
type tapStream struct {
	ch     *channel
	last   int64 // payload number
	lastID uint32
	torn   [2][]byte
}

func (s *tapStream) send(payloads []tapenc.Payload, torn bool) error {
	c := s.ch.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := 0; i < len(payloads); i++ {
		first := s.messageLocked(payloads[i])
		if !torn {
			if err := c.writeLocked(first, dtx.MaxFragment); err != nil {
				return err
			}
			continue
		}
		// Two messages of different identifiers come at a time, the fragments of one between those of the other.
		var second *dtx.Message
		if i+1 < len(payloads) && payloads[i+1].N != payloads[i].N {
			i++
			m := s.messageLocked(payloads[i])
			second = &m
		}
		if err := s.interleaveLocked(first, second); err != nil {
			return err
		}
	}
	return nil
}

func (s *tapStream) messageLocked(p tapenc.Payload) dtx.Message {
	if p.N > s.last {
		s.ch.c.lastID += uint32(p.N - s.last)
		s.last, s.lastID = p.N, s.ch.c.lastID
	}
	return dtx.Message{Type: dtx.TypeData, Channel: -s.ch.code, ID: s.lastID, Payload: p.Bytes}
}

// interleaveLocked writes the fragments of two messages in turn. The last one of second waits until first is complete, so that the
// messages become complete in their order.
func (s *tapStream) interleaveLocked(first dtx.Message, second *dtx.Message) error {
	var err error
	if s.torn[0], err = dtx.AppendMessage(s.torn[0][:0], first, tornPiece); err != nil {
		return err
	}
	s.torn[1] = s.torn[1][:0]
	if second != nil {
		if s.torn[1], err = dtx.AppendMessage(s.torn[1], *second, tornPiece); err != nil {
			return err
		}
	}
	c := s.ch.c
	c.buf = c.buf[:0]
	a, b := s.torn[0], s.torn[1]
	for len(a) > 0 {
		n, _, err := frameAt(a)
		if err != nil {
			return err
		}
		c.buf, a = append(c.buf, a[:n]...), a[n:]
		if len(b) == 0 {
			continue
		}
		n, last, err := frameAt(b)
		if err != nil {
			return err
		}
		if !last {
			c.buf, b = append(c.buf, b[:n]...), b[n:]
		}
	}
	c.buf = append(c.buf, b...)
	_, err = c.conn.Write(c.buf)
	return err
}

// frameAt is the length of the frame that b begins with, and whether it completes its message.
func frameAt(b []byte) (length int, last bool, err error) {
	h, n, err := dtx.ParseFrameHeader(b)
	if err != nil {
		return 0, false, err
	}
	if h.Count == 1 || h.Index > 0 {
		n += int(h.Length)
	}
	return n, h.Index == h.Count-1, nil
}
