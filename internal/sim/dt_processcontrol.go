package sim

import (
	"slices"

	"github.com/framebridge/framebridge/dtx"
	"github.com/framebridge/framebridge/internal/sim/scene"
)

// processcontrol: launching and ending apps.
const processControlName = channelPrefix + "processcontrol"

// Errors of processcontrol. go-ios tries again where it sees launchNotNow.
const (
	processControlDomain = "com.apple.dt.deviceprocesscontrolservice"
	launchNotNow         = 2
	launchNoSuchApp      = 4
)

type processControl struct{ d *Device }

func openProcessControl(ch *channel) channelHandler { return processControl{ch.c.d} }

func (processControl) close() {}

func (h processControl) call(selector string, args []any) (any, error) {
	pid, _ := integer(arg(args, 0))
	switch selector {
	case "launchSuspendedProcessWithDevicePath:bundleIdentifier:environment:arguments:options:":
		bundle, _ := arg(args, 1).(string)
		options, _ := arg(args, 4).(map[string]any)
		kill, _ := integer(options["KillExisting"])
		return h.launch(bundle, kill != 0)
	case "processIdentifierForBundleIdentifier:":
		bundle, _ := arg(args, 0).(string)
		return uint64(h.pid(bundle)), nil
	case "killPid:":
		h.d.phone.Kill(h.d.now(), pid)
		h.d.live()
		return nil, nil
	case "startObservingPid:", "stopObservingPid:", "resumePid:", "suspendPid:":
		if !slices.ContainsFunc(h.d.status().Processes, func(p scene.Process) bool { return p.PID == pid }) {
			return nil, refuse("no process has the pid %v", arg(args, 0))
		}
		return nil, nil
	case "requestDisableMemoryLimitsForPid:":
		return true, nil
	}
	return nil, errUnknownSelector
}

// launch brings an app to the foreground and tells its pid.
func (h processControl) launch(bundle string, killExisting bool) (any, error) {
	i := slices.IndexFunc(h.d.Apps, func(a App) bool { return a.Bundle == bundle })
	if i < 0 {
		return nil, &dtx.RemoteError{Domain: processControlDomain, Code: launchNoSuchApp, Description: "no app has the bundle identifier " + bundle}
	}
	if h.d.locked() {
		return nil, &dtx.RemoteError{Domain: processControlDomain, Code: launchNotNow, Description: "the device is locked"}
	}
	event := scene.EventLaunch
	if killExisting {
		event = scene.EventRelaunch
	}
	if _, err := h.d.step(h.d.appStep(event, bundle)); err != nil {
		return nil, &dtx.RemoteError{Domain: processControlDomain, Code: launchNotNow, Description: err.Error()}
	}
	return uint64(h.pid(bundle)), nil
}

// pid is 0 for an app that does not run.
func (h processControl) pid(bundle string) int64 {
	for _, p := range h.d.status().Processes {
		if p.Bundle == bundle {
			return p.PID
		}
	}
	return 0
}
