package device

import (
	"context"
	"errors"

	"github.com/framebridge/framebridge/dtx"
)

// ProcessControl is the processcontrol service: launching, ending and finding apps.
type ProcessControl struct {
	in *Instruments
	ch *dtx.Channel
}

// ProcessControl opens the service.
func (in *Instruments) ProcessControl(ctx context.Context) (*ProcessControl, error) {
	ch, err := in.open(ctx, "processcontrol")
	if err != nil {
		return nil, err
	}
	ch.Ignore() // an app's output would come here
	return &ProcessControl{in, ch}, nil
}

// PIDOf is the pid of a running app, 0 where it does not run.
func (p *ProcessControl) PIDOf(ctx context.Context, bundleID string) (int64, error) {
	const selector = "processIdentifierForBundleIdentifier:"
	v, err := p.in.call(ctx, p.ch, selector, bundleID)
	if err != nil || v == nil {
		return 0, err
	}
	pid, ok := integer(v)
	if !ok || pid < 0 {
		return 0, badAnswer(selector, v, "a pid")
	}
	return pid, nil
}

// Launch starts an app in the foreground and returns its pid. With afresh a running one is ended first.
func (p *ProcessControl) Launch(ctx context.Context, bundleID string, afresh bool) (int64, error) {
	const selector = "launchSuspendedProcessWithDevicePath:bundleIdentifier:environment:arguments:options:"
	kill := uint64(0)
	if afresh {
		kill = 1
	}
	v, err := p.in.call(ctx, p.ch, selector, "/private/", bundleID, map[string]any{}, []any{},
		map[string]any{"StartSuspendedKey": uint64(0), "KillExisting": kill})
	var refused *dtx.RemoteError
	if errors.As(err, &refused) {
		return 0, problem(AppMissing, refused, "unlock the phone, and check the bundle id", "%s cannot be launched", bundleID)
	}
	if err != nil {
		return 0, err
	}
	pid, ok := integer(v)
	if !ok || pid <= 0 {
		return 0, badAnswer(selector, v, "a pid")
	}
	return pid, nil
}
