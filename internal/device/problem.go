package device

import (
	"errors"
	"fmt"
)

// Code names a precondition that does not hold, for programs.
type Code string

const (
	UsbmuxdAbsent         Code = "usbmuxd-absent"
	NotAttached           Code = "not-attached"
	NotPaired             Code = "not-paired"
	Locked                Code = "locked"
	NeedsTunnel           Code = "needs-tunnel"
	DeveloperModeOff      Code = "developer-mode-off"
	DeveloperImageMissing Code = "developer-image-missing"
	ServiceRefused        Code = "service-refused"
	NoAnswer              Code = "no-answer"
	BadAnswer             Code = "bad-answer"
	ConnectionLost        Code = "connection-lost"
	AppMissing            Code = "app-missing"
	PortTaken             Code = "port-taken"
)

// Problem is a precondition that does not hold: what was found, and the one thing that mends it.
type Problem struct {
	Code   Code
	What   string
	Remedy string // one command or one action of a person; "" where there is none but to try again
	Err    error  // what lay beneath, may be nil
}

func (p *Problem) Error() string {
	s := p.What
	if p.Err != nil {
		s += ": " + p.Err.Error()
	}
	if p.Remedy != "" {
		s += " — " + p.Remedy
	}
	return s
}

func (p *Problem) Unwrap() error { return p.Err }

// CodeOf is the code of the Problem in err's chain, or "" where there is none.
func CodeOf(err error) Code {
	var p *Problem
	if errors.As(err, &p) {
		return p.Code
	}
	return ""
}

// replugRemedy is for a phone that fell silent: it ends whatever hangs, tunnels too.
const replugRemedy = "unplug the phone and plug it in again"

// tunnelRemedy starts what tells of tunnels.
const tunnelRemedy = "framebridge tunnel"

func problem(code Code, err error, remedy, format string, args ...any) *Problem {
	return &Problem{Code: code, What: fmt.Sprintf(format, args...), Remedy: remedy, Err: err}
}
