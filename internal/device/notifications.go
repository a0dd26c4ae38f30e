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

// The states as SpringBoard words them; obscured means that something is drawn over an app that is still in the foreground.
const (
	stateForeground         = "Foreground Running"
	stateForegroundObscured = "Foreground Running Obscured"
	stateTerminated         = "Terminated"
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

func appState(v any) (s AppState, ok bool) {
	m, _ := v.(map[string]any)
	pid, hasPID := integer(m["pid"])
	words, hasWords := m["state_description"].(string)
	s.BundleID, _ = m["displayID"].(string)
	s.PID, s.Ended = pid, words == stateTerminated
	s.Foreground = words == stateForeground || words == stateForegroundObscured
	return s, hasPID && hasWords
}
