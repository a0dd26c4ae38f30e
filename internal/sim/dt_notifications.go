package sim

import (
	"context"

	"github.com/framebridge/framebridge/internal/sim/scene"
)

// mobilenotifications: what happens to apps, as it happens.
const notificationsName = channelPrefix + "mobilenotifications"

type notifications struct {
	ch     *channel
	sender *sender
}

func openNotifications(ch *channel) channelHandler { return &notifications{ch: ch} }

func (h *notifications) close() { h.sender.stop() }

func (h *notifications) call(selector string, args []any) (any, error) {
	switch selector {
	case "setApplicationStateNotificationsEnabled:":
		on, _ := integer(arg(args, 0))
		h.sender.stop()
		h.sender = nil
		if on != 0 {
			var last int64
			for _, c := range h.ch.c.d.phone.Changes(0) {
				last = c.N
			}
			h.sender = h.ch.send(func(ctx context.Context) error { return h.tell(ctx, last) })
		}
		return nil, nil
	case "setMemoryNotificationsEnabled:":
		return nil, nil // there is always enough memory
	}
	return nil, errUnknownSelector
}

// tell sends every change of an app's state after change number last, but for those while the service hangs.
func (h *notifications) tell(ctx context.Context, last int64) error {
	d := h.ch.c.d
	for {
		wake := d.changes()
		for _, c := range d.phone.Changes(last) {
			last = c.N
			if n := d.notification(c); n != nil && !d.hangs(notificationsName) {
				if err := h.ch.call("applicationStateNotification:", n); err != nil {
					return err
				}
			}
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return nil
		}
	}
}

// appStates are SpringBoard's numbers and words for the states of an app.
var appStates = map[scene.ChangeKind]struct {
	number uint64
	words  string
}{
	scene.AppTerminated: {1, "Terminated"},
	scene.AppBackground: {4, "Background Running"},
	scene.AppForeground: {8, "Foreground Running"},
}

// notification is nil for a change that is no app's.
func (d *Device) notification(c scene.Change) map[string]any {
	s, app := appStates[c.Kind]
	if !app {
		return nil
	}
	return map[string]any{
		"appName": c.Process.Name, "execName": c.Process.Path, "displayID": c.Process.Bundle, "pid": c.Process.PID,
		"state": s.number, "state_description": s.words, "elevated_state": s.number, "elevated_state_description": s.words,
		"mach_absolute_time": c.Absolute, "timestamp": float64(d.lab.clock.wall().UnixNano()) / 1e9,
	}
}
