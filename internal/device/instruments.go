package device

import (
	"context"
	"errors"
	"fmt"

	"github.com/framebridge/framebridge/dtx"
	"github.com/framebridge/framebridge/internal/hostclock"
)

// servicePrefix stands before the name of every instruments service.
const servicePrefix = "com.apple.instruments.server.services."

// Instruments is a DTX connection to a phone's instruments services.
type Instruments struct {
	*dtx.Conn
	phone *Phone
}

// OpenInstruments opens a DTX connection of its own; its services are channels on it.
func (p *Phone) OpenInstruments(ctx context.Context) (*Instruments, error) {
	ctx, cancel := context.WithTimeout(ctx, StepTimeout)
	defer cancel()
	conn, err := p.developer.connect(ctx, p.developer.instruments())
	if err != nil {
		return nil, err
	}
	d, err := dtx.Connect(ctx, conn, hostclock.NowNs)
	if err != nil {
		return nil, p.explain(ctx, err, "instruments")
	}
	return &Instruments{Conn: d, phone: p}, nil
}

// open opens a channel to a service, bounded by StepTimeout.
func (in *Instruments) open(ctx context.Context, service string) (*dtx.Channel, error) {
	ctx, cancel := context.WithTimeout(ctx, StepTimeout)
	defer cancel()
	ch, err := in.OpenChannel(ctx, servicePrefix+service)
	if err != nil {
		return nil, in.phone.explain(ctx, err, service)
	}
	return ch, nil
}

// call asks a channel, bounded by StepTimeout.
func (in *Instruments) call(ctx context.Context, ch *dtx.Channel, selector string, args ...any) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, StepTimeout)
	defer cancel()
	v, err := ch.Call(ctx, selector, args...)
	if err != nil {
		return nil, in.phone.explain(ctx, err, selector)
	}
	return v, nil
}

// explain names the condition behind a failed exchange over DTX.
func (p *Phone) explain(ctx context.Context, err error, what string) error {
	var refused *dtx.RemoteError
	switch {
	case errors.As(err, &refused):
		return problem(ServiceRefused, err, "", "%s refuses %s", p.UDID, what)
	case errors.Is(err, dtx.ErrFraming):
		return problem(BadAnswer, err, "", "%s answers %s with bytes that are no DTX", p.UDID, what)
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case ctx.Err() != nil:
		return problem(NoAnswer, err, replugRemedy, "%s does not answer %s", p.UDID, what)
	}
	return problem(ConnectionLost, err, "", "the connection to %s ended", p.UDID)
}

// integer reads a number of an unarchived answer; a device's counters and pids fit int64.
func integer(v any) (int64, bool) {
	switch n := v.(type) {
	case uint64:
		return int64(n), n <= 1<<63-1
	case int64:
		return n, true
	case uint32:
		return int64(n), true
	case float64:
		return int64(n), n == float64(int64(n))
	}
	return 0, false
}

func badAnswer(selector string, v any, expected string) error {
	return problem(BadAnswer, nil, "", "%s: expected %s, found %s", selector, expected, shorten(fmt.Sprintf("%T %v", v, v)))
}

func shorten(s string) string {
	const most = 120
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
