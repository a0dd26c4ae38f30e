package sim

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/framebridge/framebridge/internal/sim/scene"
)

// maxHosts bounds how many hosts a phone trusts at once. A real one forgets hosts too, after months.
const maxHosts = 64

// Device is one simulated phone: a scene that it lives through, what lockdownd keeps, and the faults that were done to it. Clients
// reach it only through ports, whatever carries their connections.
type Device struct {
	DeviceConfig
	lab   *Lab
	os    scene.OS
	phone *scene.Device
	lab27 referenceApp // nil where the phone carries none

	living sync.Mutex // serialises live, so that changes are reacted to once and in order
	seen   int64      // the last change of phone that was reacted to

	mu        sync.Mutex
	state     State
	plugged   bool // the cable is in
	attached  bool // plugged, and the phone is up: usbmuxd lists it
	muxID     uint64
	links     map[*link]struct{}
	ports     map[uint16]startedService
	tunnels   map[*tunnel]struct{}
	told      *tunnel       // the one that the agent tells of, nil where there is none
	made      int           // how many tunnels there have been
	retry     time.Duration // lab time before which the agent makes no tunnel
	hosts     map[string]*pairing
	dialog    bool          // the question whether to trust a host is on the screen
	trusts    bool          // somebody tapped Trust: the next host that pairs is believed
	returning time.Duration // lab time when the cable comes back in; never where only a command does it
	faults    faults
	taps      map[*runningTap]struct{}
	transfers map[uint64]transfer // files that may be fetched, by number
	lastFile  uint64
	changed   chan struct{} // closed and replaced when phone has changed
}

// never is a lab time that does not come.
const never = time.Duration(1<<63 - 1)

func newDevice(l *Lab, c DeviceConfig) (*Device, error) {
	if c.Lab27 {
		c.Apps = append(slices.Clone(c.Apps), App{Lab27Bundle, "Lab27"})
	}
	d := &Device{DeviceConfig: c, lab: l, state: c.State, plugged: true, attached: true, returning: never,
		links: map[*link]struct{}{}, ports: map[uint16]startedService{}, tunnels: map[*tunnel]struct{}{}, hosts: map[string]*pairing{},
		taps: map[*runningTap]struct{}{}, transfers: map[uint64]transfer{}, changed: make(chan struct{})}
	var err error
	if d.os, err = scene.ParseOS(c.OS); err != nil {
		return nil, err
	}
	seed := d.seed()
	d.phone = scene.New(c.Scene, d.os, binary.LittleEndian.Uint64(seed[:]))
	return d, nil
}

// pair makes the phone trust this host, as if somebody had done so before the lab began.
func (d *Device) pair(now time.Time) (file []byte, err error) {
	file, p, err := d.lab.ids.pairRecord(now, d.wifiMAC())
	if err != nil {
		return nil, err
	}
	d.hosts[p.hostID] = p
	return file, nil
}

// now is the phone's own time since its scene began.
func (d *Device) now() time.Duration { return d.phone.DeviceTime(d.lab.clock.elapsed()) }

// live lets the phone's time pass and draws the consequences: a phone that restarts leaves the bus, and comes back.
func (d *Device) live() {
	d.living.Lock()
	defer d.living.Unlock()
	d.phone.Advance(d.now())
	changes := d.phone.Changes(d.seen)
	for _, c := range changes {
		d.seen = c.N
		switch c.Kind {
		case scene.DeviceDown:
			d.update(func() { d.ports = map[uint16]startedService{} })
			d.attach(false, nil)
		case scene.DeviceUp:
			d.attach(true, nil)
		}
	}
	d.mu.Lock()
	back := d.returning <= d.lab.clock.elapsed()
	if len(changes) > 0 {
		close(d.changed)
		d.changed = make(chan struct{})
	}
	d.mu.Unlock()
	if back {
		d.replug()
	}
	d.keepTunnel()
}

func (d *Device) update(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

// changes is closed as soon as the phone's state changes.
func (d *Device) changes() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changed
}

// attach puts the phone on the bus or takes it away, with every connection. A phone that comes back has a new number.
func (d *Device) attach(up bool, andThen func()) {
	d.lab.mu.Lock()
	defer d.lab.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	if andThen != nil {
		andThen()
	}
	on := up && d.plugged
	if on == d.attached {
		return
	}
	d.attached = on
	if on {
		d.lab.numberLocked(d)
		d.lab.tellLocked(muxEntry(d, d.muxID))
		return
	}
	d.lab.tellLocked(map[string]any{"MessageType": "Detached", "DeviceID": d.muxID})
	d.endTunnelsLocked(every)
	for l := range d.links {
		l.Close()
	}
}

// unplug pulls the cable until lab time back.
func (d *Device) unplug(back time.Duration) {
	d.attach(false, func() { d.plugged, d.returning = false, back })
}

func (d *Device) replug() {
	d.attach(d.phone.Status(d.now()).Up, func() { d.plugged, d.returning = true, never })
}

// connect hands a client's connection, which comes through a tunnel where via is one, to what open found. It keeps the connection until
// one of the two is done with it.
func (d *Device) connect(conn net.Conn, via *tunnel, open opener) error {
	ctx, cancel := context.WithCancel(d.lab.ctx)
	defer cancel()
	l := &link{Conn: conn, d: d, via: via, closed: ctx.Done(), cancel: cancel}
	d.mu.Lock()
	if !d.attached || via != nil && via.ended {
		d.mu.Unlock()
		return fmt.Errorf("the way to %s has ended", d.UDID)
	}
	d.links[l] = struct{}{}
	d.mu.Unlock()
	defer d.update(func() { delete(d.links, l) })
	return open(ctx, l)
}

// link is a client's connection to a device: it ends with the cable or its tunnel, and stands still while the device does.
type link struct {
	net.Conn
	d      *Device
	via    *tunnel
	closed <-chan struct{}
	cancel context.CancelFunc
}

func (l *link) Close() error {
	l.cancel()
	return l.Conn.Close()
}

// lost reports whether what is sent on the link gets nowhere, in either direction.
func (l *link) lost() bool { return l.via != nil && l.via.dead.Load() }

func (l *link) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	for err == nil && l.lost() {
		n, err = l.Conn.Read(b)
	}
	return n, err
}

func (l *link) Write(b []byte) (int, error) {
	for {
		if l.lost() {
			return len(b), nil
		}
		wait := l.d.stalledFor()
		if wait <= 0 {
			return l.Conn.Write(b)
		}
		if err := sleep(l.closed, wait); err != nil {
			return 0, err
		}
	}
}

// sleep waits for host time d, unless done is closed before.
func sleep(done <-chan struct{}, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-done:
		return net.ErrClosed
	}
}

// State is what somebody has done to a phone, and can undo.
type State struct {
	DeveloperMode  bool // on every release before iOS 16, which has no such switch
	DeveloperImage bool // the developer disk image is mounted
	Locked         bool
	WiFi           bool // usbmuxd has it by Wi-Fi and not by cable
}

func (d *Device) locked() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state.Locked
}

func (d *Device) developerMode() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state.DeveloperMode
}

func (d *Device) imageMounted() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state.DeveloperImage
}

func (d *Device) pairingOf(hostID string) *pairing {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.hosts[hostID]
}

func (d *Device) forget(hostID string) {
	d.update(func() { delete(d.hosts, hostID) })
}

// askTrust answers a host that wants to pair: the first time the dialog comes up, and stays until somebody taps Trust.
func (d *Device) askTrust(p *pairing) (word string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.state.Locked:
		return errPasswordProtected
	case !d.trusts && d.hosts[p.hostID] == nil:
		d.dialog = true
		return errPairingPending
	case len(d.hosts) >= maxHosts:
		return errInvalidPairRecord
	}
	d.hosts[p.hostID] = p
	d.dialog, d.trusts = false, false
	return ""
}

// errNoDialog means that no host has asked for anything.
var errNoDialog = errors.New("no host waits to be trusted: let one pair first (idevicepair pair)")
