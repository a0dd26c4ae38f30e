package sim

import (
	"context"
	"errors"
	"fmt"
)

// The reference app Lab27 on a simulated phone. The app is the real one's C core (lab27/app/core), so it is there only where that could be
// compiled: see HasLab27. It draws on the phone's panel in lab27_app.go, and whatever is wrong with the two is told here.

// Lab27Bundle is the app's bundle id.
const Lab27Bundle = "com.framebridge.lab27"

// errNoLab27 is for descriptions that want the app of a program that lacks it.
var errNoLab27 = errors.New("lab27: this program was built without a C compiler, which leaves the app out: install gcc and build again")

// referenceApp is the app on one phone, whether it runs or not.
type referenceApp interface {
	notified(name string)           // of a Darwin notification
	suffer(f Fault) (string, error) // one of lab27Faults
	close()
}

// carryLab27 puts the app on the phones that carry it.
func (l *Lab) carryLab27() (err error) {
	for _, d := range l.devices {
		if d.Lab27 && err == nil {
			d.lab27, err = newReferenceApp(d)
		}
	}
	return err
}

func (l *Lab) closeLab27() {
	for _, d := range l.devices {
		if d.lab27 != nil {
			d.lab27.close()
		}
	}
}

// Kinds of fault.
const (
	lab27System  = "lab27-system-frame"
	lab27Drop    = "lab27-drop"
	lab27Late    = "lab27-late"
	lab27Lose    = "lab27-lose"
	lab27Surface = "lab27-surface"
	lab27Shift   = "lab27-shift"
	lab27Bracket = "lab27-bracket"
	lab27Hot     = "lab27-hot"
	lab27Cool    = "lab27-cool"
	lab27Cancel  = "lab27-cancel"
	lab27Full    = "lab27-disk-full"
	lab27Second  = "lab27-second"
	lab27Ahead   = "lab27-ahead"
	lab27Replay  = "lab27-replay"
)

func init() {
	for _, k := range []faultKind{
		{name: lab27System, takes: "count", help: "Lab27: SpringBoard shows frames of its own, at refreshes that the app leaves free"},
		{name: lab27Drop, takes: "count", help: "Lab27: its next drawables are dropped; their presentedTime is 0"},
		{name: lab27Late, takes: "count", help: "Lab27: its next drawables reach the glass a refresh late"},
		{name: lab27Lose, takes: "count", help: "Lab27: its next drawables are shown, and their handlers never come"},
		{name: lab27Surface, takes: "count", help: "Lab27: its next drawables are told with another surface than they have"},
		{name: lab27Shift, takes: "delay", needs: "delay", help: "Lab27: presentedTime is too late by delay, from now on"},
		{name: lab27Bracket, takes: "delay", needs: "delay", help: "Lab27: reading the phone's clocks takes delay, from now on"},
		{name: lab27Hot, help: "Lab27: the phone's thermal state is serious"},
		{name: lab27Cool, help: "Lab27: the phone's thermal state is nominal"},
		{name: lab27Cancel, help: "Lab27: somebody cancels the run on the phone"},
		{name: lab27Full, takes: "count", help: "Lab27: the phone's disk takes count bytes more of the app, and then nothing"},
		{name: lab27Second, help: "Lab27: the next request finds another one beside it"},
		{name: lab27Ahead, takes: "delay", needs: "delay", help: "Lab27: the phone's calendar is ahead by delay; requests live 10 minutes"},
		{name: lab27Replay, help: "Lab27: the request that was consumed last is pending again"},
	} {
		k.do = sufferLab27
		faultKinds = append(faultKinds, k)
	}
}

func sufferLab27(_ context.Context, d *Device, f Fault) (string, error) {
	if d.lab27 == nil {
		return "", fmt.Errorf("%w: there is no Lab27 on this phone: write lab27: true in its description", ErrFault)
	}
	return d.lab27.suffer(f)
}
