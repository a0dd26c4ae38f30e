package device

import (
	"context"
	"fmt"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/dtx"
)

// tapIntervalMs is how often the tap is asked to send. Its default of 500 would leave little of the second after which a source counts
// as stale.
const tapIntervalMs = 100

// Tap is the activitytracetap service, sending.
type Tap struct {
	in *Instruments
	ch *dtx.Channel
}

// FramesOnly asks the device for nothing but what frames come under.
const FramesOnly = `(subsystem == "com.apple.coreanimation" AND (category == "IOMFBServer" OR category == "IOMFBServer.Stalls"))`

// StartTap opens the service and starts it. The predicate is an NSPredicate that the device applies; "" asks for every signpost there is.
func (in *Instruments) StartTap(ctx context.Context, timebase adapter.Timebase, predicate string) (*Tap, error) {
	ch, err := in.open(ctx, "activitytracetap")
	if err != nil {
		return nil, err
	}
	config := map[string]any{
		"onlySignposts": uint64(1), "signpostsAndLogs": uint64(0), "bm": uint64(0), "ur": uint64(tapIntervalMs),
		"targetPID": int64(-3), "combineDataScope": uint64(0), "enableHTTPArchiveLogging": uint64(0), "pidToInjectCombineDYLIB": "-1",
		"trackPidToExecNameMapping": true, "trackExpiredPIDs": true,
		"machTimebaseNumer": uint64(timebase.Numer), "machTimebaseDenom": uint64(timebase.Denom),
	}
	if predicate != "" {
		config["predicate"] = predicate
	}
	for _, step := range []struct {
		selector string
		args     []any
	}{{"setConfig:", []any{config}}, {"start", nil}} {
		if _, err := in.call(ctx, ch, step.selector, step.args...); err != nil {
			return nil, fmt.Errorf("activitytracetap: %w", err)
		}
	}
	return &Tap{in, ch}, nil
}

// Channel is the code of the tap's channel.
func (t *Tap) Channel() int64 { return int64(t.ch.Code()) }

// Receive waits for the next message of the tap: rows, a heartbeat or a status object.
func (t *Tap) Receive(ctx context.Context) (dtx.Message, error) {
	m, err := t.ch.Receive(ctx)
	if err != nil && ctx.Err() == nil {
		return m, t.in.phone.explain(ctx, err, "activitytracetap")
	}
	return m, err
}
