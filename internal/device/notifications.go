package device

import (
	"context"

	"github.com/framebridge/framebridge/dtx"
)

// Notifications is the mobilenotifications service: apps as they come to the foreground, leave it and end.
type Notifications struct {
	in *Instruments
	ch *dtx.Channel
}

// Notifications opens the service and asks for the states of apps.
func (in *Instruments) Notifications(ctx context.Context) (*Notifications, error) {
	ch, err := in.open(ctx, "mobilenotifications")
	if err != nil {
		return nil, err
	}
	if _, err := in.call(ctx, ch, "setApplicationStateNotificationsEnabled:", true); err != nil {
		return nil, err
	}
	return &Notifications{in, ch}, nil
}

// AppState is a change of one app.
type AppState struct {
	BundleID   string
	PID        int64
	Foreground bool
	Ended      bool
}

// SpringBoard's bits for an app's state (BKSApplicationState in public headers), and its words for them. Obscured means that something is
// drawn over an app that is still in the foreground.
const (
	bitTerminated         = 1
	bitForeground         = 8
	bitForegroundObscured = 32

	wordsTerminated         = "Terminated"
	wordsForeground         = "Foreground Running"
	wordsForegroundObscured = "Foreground Running Obscured"
)

// Next waits for the next change of any app.
func (n *Notifications) Next(ctx context.Context) (AppState, error) {
	for {
		m, err := n.ch.Receive(ctx)
		if err != nil {
			return AppState{}, n.in.phone.explain(ctx, err, "mobilenotifications")
		}
		if selector, err := m.Selector(); err != nil || selector != "applicationStateNotification:" {
			continue
		}
		args, err := m.Arguments()
		if err != nil || len(args) == 0 {
			continue // other notifications come here too, and their shape changes with releases
		}
		if s, ok := appState(args[0]); ok {
			return s, nil
		}
	}
}

// appState reads a notification. The number says what the words say, in any language; releases without it have the words alone.
func appState(v any) (s AppState, ok bool) {
	m, _ := v.(map[string]any)
	pid, hasPID := integer(m["pid"])
	bits, hasBits := integer(m["state"])
	words, hasWords := m["state_description"].(string)
	s.BundleID, _ = m["displayID"].(string)
	s.PID = pid
	if hasBits {
		s.Foreground, s.Ended = bits&(bitForeground|bitForegroundObscured) != 0, bits == bitTerminated
	} else {
		s.Foreground, s.Ended = words == wordsForeground || words == wordsForegroundObscured, words == wordsTerminated
	}
	return s, hasPID && (hasBits || hasWords)
}
