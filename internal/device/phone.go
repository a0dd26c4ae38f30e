// Package device finds attached iPhones and hands out connections to their services through go-ios: usbmux, pairing, lockdown and TLS
// are its work, the sockets and their deadlines are ours (go-ios sets none, and an abandoned call would leak).
//
//	List, Find, WaitAttached   what is attached
//	Open                       one phone: its facts, and a way to its services
//	Phone.Connect              a connection to a named service by cable
//	Phone.OpenInstruments      a DTX connection, by cable or through a tunnel; on it MachTime, Processes, Launch, AppStates, the tap
//
// Every precondition that does not hold is a *Problem with a code and a remedy.
package device

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/danielpaulus/go-ios/ios"
)

// StepTimeout bounds one exchange with a phone. A healthy phone answers within milliseconds, one that wakes up within two seconds.
const StepTimeout = 8 * time.Second

// Facts are what a phone tells of itself.
type Facts struct {
	UDID         string `json:"udid"`
	Name         string `json:"name"`
	ProductType  string `json:"productType"`
	OSVersion    string `json:"osVersion"`
	BuildVersion string `json:"buildVersion"`
	Connection   string `json:"connection"` // USB or Network
	Simulated    bool   `json:"simulated"`  // the device says of itself that it is a simulation
}

// Major is the first number of the OS version, 0 where it cannot be read.
func (f Facts) Major() int {
	major, _, _ := strings.Cut(f.OSVersion, ".")
	n, err := strconv.Atoi(major)
	if err != nil {
		return 0
	}
	return n
}

// TunnelByCable reports whether the tunnel can be made over lockdown, without root: iOS 17.4 and later. 17.0 to 17.3 have another way.
func (f Facts) TunnelByCable() bool {
	_, rest, _ := strings.Cut(f.OSVersion, ".")
	minor, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(minor)
	return f.Major() > FirstTunnelRelease || f.Major() == FirstTunnelRelease && err == nil && n >= 4
}

// NeedsCable is why no tunnel can be made to a phone on Wi-Fi: it has no lockdownd there that starts one. nil where it is on a cable.
func (f Facts) NeedsCable() error {
	if f.Connection == "USB" {
		return nil
	}
	return problem(NeedsTunnel, nil, "plug it in by cable", "%s is connected by Wi-Fi, over which no tunnel can be made", f.UDID)
}

// simulatedKey is a lockdown value that only a simulated device has. It is asked of every device.
const simulatedKey = "FramebridgeSimulated"

// transport reaches the services of one phone.
type transport interface {
	// connect opens a connection to a service, ready for its protocol, without deadlines.
	connect(ctx context.Context, service string) (net.Conn, error)
	// instruments is the name under which this transport's phones offer DTX.
	instruments() string
}

// Phone is an attached phone. It holds no connection of its own.
type Phone struct {
	Facts
	plain     *usbmuxTransport // services that every release offers by cable
	developer transport        // instruments
}

// FirstTunnelRelease is the first major release whose developer services are reached through a tunnel only.
const FirstTunnelRelease = 17

// NeedsTunnel reports whether this release's developer services are behind a tunnel.
func (f Facts) NeedsTunnel() bool { return f.Major() >= FirstTunnelRelease }

// ReadFacts asks an attached phone who it is. It needs no pairing; the phone tells an unpaired host little more than its version.
func ReadFacts(ctx context.Context, e Entry) (Facts, error) {
	ctx, cancel := context.WithTimeout(ctx, StepTimeout)
	defer cancel()
	f := Facts{UDID: e.UDID, Connection: e.Connection}
	l, err := openLockdown(ctx, e)
	if err != nil {
		return f, err
	}
	defer l.close()
	values, err := l.values(ctx)
	if err != nil {
		return f, err
	}
	f.Name, _ = values["DeviceName"].(string)
	f.ProductType, _ = values["ProductType"].(string)
	f.OSVersion, _ = values["ProductVersion"].(string)
	f.BuildVersion, _ = values["BuildVersion"].(string)
	f.Simulated, _ = values[simulatedKey].(bool)
	return f, nil
}

// Open reads a phone's facts and finds the way to its services. The pairing is checked, nothing is kept open. agent is asked for the
// tunnel of releases that need one, and not before a service is wanted.
func Open(ctx context.Context, e Entry, agent Agent) (*Phone, error) {
	facts, err := ReadFacts(ctx, e)
	if err != nil {
		return nil, err
	}
	p := &Phone{Facts: facts}
	via := &usbmuxTransport{entry: e}
	if via.record, err = pairRecord(ctx, e.UDID); err != nil {
		return p, err
	}
	p.plain, p.developer = via, via
	if facts.NeedsTunnel() {
		p.developer = &rsdTransport{facts: facts, agent: agent}
	}
	return p, nil
}

// Connect opens a connection to a service that needs no tunnel.
func (p *Phone) Connect(ctx context.Context, service string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, StepTimeout)
	defer cancel()
	return p.plain.connect(ctx, service)
}

// usbmuxTransport reaches the services of iOS 14 to 16: usbmux, lockdown with a TLS session, a port for each service.
type usbmuxTransport struct {
	entry  Entry
	record ios.PairRecord
}

func (t *usbmuxTransport) instruments() string {
	return "com.apple.instruments.remoteserver.DVTSecureSocketProxy"
}

func (t *usbmuxTransport) connect(ctx context.Context, service string) (net.Conn, error) {
	l, err := openLockdown(ctx, t.entry)
	if err != nil {
		return nil, err
	}
	defer l.close()
	if err := l.startSession(ctx, t.record); err != nil {
		return nil, err
	}
	conn, err := l.service(ctx, t.entry, t.record, service)
	if errors.Is(err, errInvalidService) {
		if service == t.instruments() {
			return nil, problem(DeveloperImageMissing, err, imageRemedy(t.entry.UDID), "%s offers no instruments service: no developer disk image is mounted", t.entry.UDID)
		}
		return nil, problem(ServiceRefused, err, "", "%s does not offer %s", t.entry.UDID, service)
	}
	return conn, err
}

func imageRemedy(udid string) string { return "ios image auto --udid=" + udid }
