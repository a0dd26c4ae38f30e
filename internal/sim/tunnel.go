package sim

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/framebridge/framebridge/internal/sim/scene"
)

// TunnelKind is the kind of tunnel that the lab's agent keeps to a phone of iOS 17 or later.
type TunnelKind string

const (
	// TunnelUserspace leads over a port of this machine: each connection begins with the address and port in the phone that it is for.
	TunnelUserspace TunnelKind = "userspace"
	// TunnelKernel is one that the system routes to. The phone's address is this machine's ::1, so that no root is needed.
	TunnelKernel TunnelKind = "kernel"
	// TunnelNone leaves a phone of iOS 17.4 or later to those who make tunnels themselves, by CoreDeviceProxy.
	TunnelNone TunnelKind = "none"
)

// firstTunnelMajor is the first release whose developer services are behind a tunnel.
const firstTunnelMajor = 17

// tunnelsByCable reports whether a release has CoreDeviceProxy: iOS 17.4 and later.
func tunnelsByCable(os scene.OS) bool {
	return os.Major > firstTunnelMajor || os.Major == firstTunnelMajor && os.Minor >= 4
}

// makesTunnelsLocked reports whether lockdownd offers CoreDeviceProxy now.
func (d *Device) makesTunnelsLocked() bool {
	return tunnelsByCable(d.os) && d.lab.clock.elapsed() >= d.faults.gone
}

// tunnel is a way into a phone: an address of the phone's, at which service discovery and every service have a port.
type tunnel struct {
	d       *Device
	address netip.Addr
	rsdPort uint16
	ports   map[uint16]*remoteService
	dead    atomic.Bool // it stands, and nothing gets through

	// Of the agent's tunnels.
	userspacePort int            // on this machine; 0 where the system routes to address
	sockets       []net.Listener // that lead into it

	// Of CoreDeviceProxy's.
	hangUp   context.CancelFunc
	accepted sync.WaitGroup // connections; none is added once it has ended

	ended bool // guarded by d.mu
}

// Each tunnel begins its ports somewhere else, so that nobody gets away with using those of an earlier one.
const (
	portStep  = 64 // more than there are services
	portRange = 65536 - firstServicePort
)

// newTunnel lays out the next tunnel.
func (d *Device) newTunnel() *tunnel {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.made++
	seed := sha256.Sum256(fmt.Appendf(nil, "%s %d", d.UDID, d.made))
	t := &tunnel{d: d, address: tunnelAddress(seed), rsdPort: uint16(firstServicePort + d.made*portStep%portRange), ports: map[uint16]*remoteService{}}
	for i := range remoteServices {
		t.ports[t.rsdPort+1+uint16(i)] = &remoteServices[i]
	}
	t.dead.Store(d.lab.clock.elapsed() < d.faults.halfOpen)
	return t
}

// tunnelAddress is the phone's end of a tunnel: a unique local address ending in 1. The host's end is the next address.
func tunnelAddress(seed [32]byte) netip.Addr {
	a := [16]byte{0: 0xfd, 15: 1}
	copy(a[1:6], seed[:])
	return netip.AddrFrom16(a)
}

// open is what listens on a port of the phone inside the tunnel, or the reason why nothing does.
func (t *tunnel) open(port uint16) (opener, error) {
	if port == t.rsdPort {
		if t.d.refusesDiscovery() {
			return nil, fmt.Errorf("%s refuses service discovery", t.d.UDID)
		}
		return t.d.unlessHanging(rsdName, t.serveDiscovery), nil
	}
	s := t.ports[port]
	if s == nil || !t.d.offers(s.service) {
		return nil, fmt.Errorf("nothing listens on port %d of %s", port, t.address)
	}
	return t.d.unlessHanging(s.name, func(ctx context.Context, conn net.Conn) error { return s.serve(ctx, t.d, conn) }), nil
}

// offers reports whether a service is there now.
func (d *Device) offers(s service) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.offersLocked(s)
}

// enter connects a client to a port inside the tunnel.
func (t *tunnel) enter(conn net.Conn, port uint16) error {
	return t.d.connect(conn, t, func(ctx context.Context, conn net.Conn) error {
		open, err := t.open(port)
		if err != nil {
			return err
		}
		return open(ctx, conn)
	})
}

// preambleBytes: 16 of an IPv6 address, four of a little-endian port.
const preambleBytes = 20

func parsePreamble(b [preambleBytes]byte) (netip.AddrPort, error) {
	port := binary.LittleEndian.Uint32(b[16:])
	if port > 65535 {
		return netip.AddrPort{}, fmt.Errorf("port %d is none", port)
	}
	return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[:16])), uint16(port)), nil
}

// serveUserspace serves a client of the userspace port: it says where in the phone it wants to go, and is there.
func (t *tunnel) serveUserspace(conn net.Conn) error {
	return t.d.connect(conn, t, func(ctx context.Context, conn net.Conn) error {
		var b [preambleBytes]byte
		if _, err := io.ReadFull(conn, b[:]); err != nil {
			return fmt.Errorf("userspace tunnel: the address: %w", err)
		}
		to, err := parsePreamble(b)
		if err != nil {
			return fmt.Errorf("userspace tunnel: %w", err)
		}
		if to.Addr() != t.address {
			return fmt.Errorf("userspace tunnel: it leads to %s, not to %s", t.address, to.Addr())
		}
		open, err := t.open(to.Port())
		if err != nil {
			return err
		}
		return open(ctx, conn)
	})
}

// listenUserspace opens the port on this machine.
func (t *tunnel) listenUserspace(host string) error {
	ln, err := t.listen(host)
	if err != nil {
		return err
	}
	t.userspacePort = ln.Addr().(*net.TCPAddr).Port
	return t.d.lab.serve(ln, t.serveUserspace)
}

// kernelAddress stands for a phone's address that the system would route to.
var kernelAddress = netip.IPv6Loopback()

// listenKernel opens a socket for each port, which the system chooses.
func (t *tunnel) listenKernel() error {
	t.address, t.ports = kernelAddress, map[uint16]*remoteService{}
	for i := range len(remoteServices) + 1 {
		ln, err := t.listen(kernelAddress.String())
		if err != nil {
			return err
		}
		port := uint16(ln.Addr().(*net.TCPAddr).Port)
		if i == len(remoteServices) {
			t.rsdPort = port
		} else {
			t.ports[port] = &remoteServices[i]
		}
	}
	for _, ln := range t.sockets {
		port := uint16(ln.Addr().(*net.TCPAddr).Port)
		if err := t.d.lab.serve(ln, func(conn net.Conn) error { return t.enter(conn, port) }); err != nil {
			return err
		}
	}
	return nil
}

func (t *tunnel) listen(host string) (net.Listener, error) {
	ln, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err == nil {
		t.sockets = append(t.sockets, ln)
	}
	return ln, err
}

// tunnelRetry is how long the agent waits, in lab time, before it tries again to make a tunnel.
const tunnelRetry = time.Second

// keepTunnel lets the agent make and drop its tunnel as the phone's state has it, and ends tunnels that have been dead for long enough.
// Calls must not overlap.
func (d *Device) keepTunnel() {
	host, wanted := d.reviewTunnels()
	if !wanted {
		return
	}
	t := d.newTunnel()
	var err error
	if d.Tunnel == TunnelKernel {
		err = t.listenKernel()
	} else {
		err = t.listenUserspace(host)
	}
	d.lab.mu.Lock()
	defer d.lab.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil && d.addTunnelLocked(t) {
		d.told = t
		return
	}
	t.closeSocketsLocked()
	d.retry = d.lab.clock.elapsed() + tunnelRetry
	if err != nil && !d.lab.closed {
		d.lab.log.Error().Str("udid", d.UDID).Err(err).Msg("the agent cannot make a tunnel")
	}
}

// reviewTunnels ends the tunnels whose time has come, and says whether the agent wants to make one.
func (d *Device) reviewTunnels() (host string, wanted bool) {
	d.lab.mu.Lock()
	defer d.lab.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	now, f := d.lab.clock.elapsed(), d.faults
	d.endTunnelsLocked(func(t *tunnel) bool { return now < f.gone || t.dead.Load() && now >= f.halfOpen })
	able := d.os.Major >= firstTunnelMajor && d.Tunnel != TunnelNone && d.attached && len(d.hosts) > 0 && now >= f.gone && now >= f.refuse.until
	return d.lab.agent, able && d.lab.agent != "" && !d.lab.closed && d.told == nil && now >= d.retry
}

// addTunnelLocked makes a tunnel one that the phone has, unless the phone has gone meanwhile. d.mu must be held.
func (d *Device) addTunnelLocked(t *tunnel) bool {
	if !d.attached || d.lab.clock.elapsed() < d.faults.gone {
		return false
	}
	d.tunnels[t] = struct{}{}
	return true
}

// endTunnelsLocked ends those tunnels that which says, with every connection through them. The lab's mu and d.mu must be held.
func (d *Device) endTunnelsLocked(which func(*tunnel) bool) {
	for t := range d.tunnels {
		if !which(t) {
			continue
		}
		delete(d.tunnels, t)
		t.ended = true
		if d.told == t {
			d.told = nil
		}
		t.closeSocketsLocked()
		if t.hangUp != nil {
			t.hangUp()
		}
		for l := range d.links {
			if l.via == t {
				l.Close()
			}
		}
	}
}

// closeSocketsLocked closes the sockets that lead into the tunnel. The lab's mu must be held.
func (t *tunnel) closeSocketsLocked() {
	for _, ln := range t.sockets {
		t.d.lab.closeOneLocked(ln)
	}
}

func (d *Device) endTunnels(which func(*tunnel) bool) {
	d.lab.mu.Lock()
	defer d.lab.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.endTunnelsLocked(which)
}

// every is for endTunnels.
func every(*tunnel) bool { return true }
