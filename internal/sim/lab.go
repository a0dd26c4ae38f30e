// Package sim is a simulated device lab in one process: a usbmuxd with iPhones behind it that speak the real protocols, so that
// programs which know nothing of it (go-ios, libimobiledevice, framebridge) talk to it as to the real thing.
//
//	config.go                 a lab as YAML
//	lab.go, device.go         the lab and its phones; what happens to them in the course of time is package scene's
//	usbmux.go                 listing, listening, connecting, pair records
//	lockdown*.go, pairing.go  facts, pairing, sessions, services
//	tunnel.go, tunnel_api.go  tunnels to phones of iOS 17 and later, and the agent that tells of them
//	coredevice_proxy.go       the tunnel that a host makes for itself: IP packets over a lockdown service
//	rsd.go, remotexpc.go      what services there are behind a tunnel, and on which ports
//	services.go               which services there are, and how a connection gets to one
//	image_mounter.go, installation_proxy.go, notification_proxy.go, afc.go, file_service.go; files.go has the apps' files
//	lab27*.go                 the reference app, whose own C core draws on a phone's panel (with a C compiler only)
//	instruments.go            DTX, with one channel service in each dt_*.go; the tap's payloads are package tapenc's
//	faults.go, control.go     what goes wrong on command
//
// A device hands a connection to its services whatever carries it (Device.connect): usbmux, an agent's tunnel and IP packets lead to the
// same services. Every device says of itself that it is simulated (FramebridgeSimulated in lockdownd's default domain and in service discovery).
//
// Where nothing is known of a release, the lab chooses: machTimeInfo gives three values before iOS 16 and six from then on, and
// runningProcesses tells foregroundRunning from iOS 16 on, so that clients meet both.
package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"
)

// lifeStep is how often, in host time, a phone's life is looked after where nobody asks.
const lifeStep = 20 * time.Millisecond

// maxClients bounds the connections to the lab: 64 devices with a dozen connections each, and room for those that leak theirs.
const maxClients = 1024

// Lab is a running lab.
type Lab struct {
	log    zerolog.Logger
	clock  clock
	ids    *identities
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup

	devices []*Device // never changes; locked after mu

	mu        sync.Mutex
	nextMuxID uint64
	records   map[string][]byte // pair records of this host, by UDID
	listeners map[*muxClient]struct{}
	clients   map[net.Conn]struct{}
	open      map[io.Closer]struct{} // sockets that are listened on
	agent     string                 // host on which the tunnel agent listens, "" where there is none
	files     string                 // directory of the apps' files, "" where nobody has asked for any
	closed    bool
}

// New starts the phones of a lab; Listen lets programs reach them. The lab ends with Close.
func New(c Config, log zerolog.Logger) (*Lab, error) {
	ids, err := newIdentities(time.Now())
	if err != nil {
		return nil, fmt.Errorf("making keys: %w", err)
	}
	return newLab(c, ids, log)
}

func newLab(c Config, ids *identities, log zerolog.Logger) (*Lab, error) {
	if c.Speed < 1 || c.Speed > MaxSpeed {
		return nil, fmt.Errorf("%w: speed %d: expected 1 to %d", ErrConfig, c.Speed, MaxSpeed)
	}
	l := &Lab{log: log, clock: clock{start: time.Now(), speed: c.Speed}, ids: ids, nextMuxID: 1, records: map[string][]byte{},
		listeners: map[*muxClient]struct{}{}, clients: map[net.Conn]struct{}{}, open: map[io.Closer]struct{}{}}
	for _, dc := range c.Devices {
		d, err := newDevice(l, dc)
		if err != nil {
			return nil, fmt.Errorf("device %s: %w", dc.UDID, err)
		}
		if dc.Paired {
			if l.records[d.UDID], err = d.pair(l.clock.start); err != nil {
				return nil, fmt.Errorf("device %s: pairing: %w", dc.UDID, err)
			}
		}
		l.numberLocked(d)
		l.devices = append(l.devices, d)
	}
	if err := l.carryLab27(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(l.files))
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	for _, d := range l.devices {
		l.work.Go(func() { d.run(l.ctx) })
	}
	return l, nil
}

// run looks after a phone's life and follows its script until ctx ends.
func (d *Device) run(ctx context.Context) {
	for _, f := range d.Faults {
		d.lab.work.Go(func() {
			if sleep(ctx.Done(), d.lab.clock.host(f.At.lab())) != nil {
				return
			}
			ack, err := d.apply(ctx, f)
			if err != nil {
				d.lab.log.Warn().Str("udid", d.UDID).Str("fault", f.Kind).Err(err).Msg("scripted fault did not happen")
				return
			}
			d.lab.log.Info().Str("udid", d.UDID).Str("fault", f.Kind).Str("did", ack.Did).Msg("scripted fault")
		})
	}
	for sleep(ctx.Done(), lifeStep) == nil {
		d.live()
	}
}

// HostNs is a monotonic clock in ns that runs at the lab's speed. A program in the same process that measures with it, instead of the
// host's own clock, sees a faster lab as one that runs at the ordinary speed.
func (l *Lab) HostNs() int64 { return int64(l.clock.elapsed()) }

// Listen opens usbmuxd's socket at unix:PATH or host:port and returns the value of USBMUXD_SOCKET_ADDRESS that leads there.
func (l *Lab) Listen(address string) (env string, err error) {
	ln, err := listen(address)
	if err != nil {
		return "", err
	}
	if err := l.serve(ln, l.serveUsbmux); err != nil {
		return "", err
	}
	if ln.Addr().Network() == "unix" {
		return "UNIX://" + ln.Addr().String(), nil
	}
	return ln.Addr().String(), nil
}

// listen opens a socket. A unix socket that a killed process left behind is replaced; one that somebody answers is not.
func listen(address string) (net.Listener, error) {
	path, unix := strings.CutPrefix(address, "unix:")
	if !unix {
		ln, err := net.Listen("tcp", address)
		if err != nil {
			return nil, fmt.Errorf("%w: expected unix:PATH or host:port that is free", err)
		}
		return ln, nil
	}
	ln, err := net.Listen("unix", path)
	if !errors.Is(err, syscall.EADDRINUSE) {
		return ln, err
	}
	if conn, dialErr := net.Dial("unix", path); dialErr == nil {
		conn.Close()
		return nil, fmt.Errorf("%w: another lab runs there: end it or choose another path", err)
	}
	if info, statErr := os.Lstat(path); statErr != nil || info.Mode()&os.ModeSocket == 0 {
		return nil, err
	}
	if err := os.Remove(path); err != nil {
		return nil, err
	}
	return net.Listen("unix", path)
}

// serve accepts clients of ln until ln or the lab is closed.
func (l *Lab) serve(ln net.Listener, talk func(net.Conn) error) error {
	return l.keep(ln, func() {
		for {
			conn, err := ln.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				l.log.Error().Err(err).Msg("no more clients can be accepted")
				return
			}
			if !l.admit(conn) {
				conn.Close()
				continue
			}
			l.work.Go(func() { l.talk(conn, talk) })
		}
	})
}

// keep runs work until c, whose end ends it, is closed: by closeOneLocked or with the lab.
func (l *Lab) keep(c io.Closer, work func()) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		c.Close()
		return net.ErrClosed
	}
	l.open[c] = struct{}{}
	l.work.Go(work)
	return nil
}

func (l *Lab) closeOneLocked(c io.Closer) {
	delete(l.open, c)
	if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		l.log.Error().Err(err).Msg("closing")
	}
}

// talk serves a client that was admitted.
func (l *Lab) talk(conn net.Conn, serve func(net.Conn) error) {
	defer l.dismiss(conn)
	if err := serve(conn); err != nil && l.ctx.Err() == nil {
		l.log.Debug().Err(err).Msg("a connection ended")
	}
}

func (l *Lab) admit(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.clients) >= maxClients {
		return false
	}
	l.clients[conn] = struct{}{}
	return true
}

func (l *Lab) dismiss(conn net.Conn) {
	conn.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.clients, conn)
}

// Close ends everything and waits until it has ended.
func (l *Lab) Close() error {
	l.mu.Lock()
	l.closed = true
	l.cancel()
	var errs []error
	for c := range l.open {
		errs = append(errs, c.Close())
	}
	clear(l.open)
	for conn := range l.clients {
		conn.Close()
	}
	l.mu.Unlock()
	l.work.Wait()
	l.closeLab27()
	return errors.Join(append(errs, os.RemoveAll(l.files))...)
}

func (l *Lab) device(udid string) *Device {
	i := slices.IndexFunc(l.devices, func(d *Device) bool { return d.UDID == udid })
	if i < 0 {
		return nil
	}
	return l.devices[i]
}

func (l *Lab) deviceByMuxID(id uint64) *Device {
	for _, d := range l.devices {
		d.mu.Lock()
		found := d.attached && d.muxID == id
		d.mu.Unlock()
		if found {
			return d
		}
	}
	return nil
}

// numberLocked gives a device that comes onto the bus its number.
func (l *Lab) numberLocked(d *Device) {
	d.muxID = l.nextMuxID
	l.nextMuxID++
}

// attachedLocked describes the devices on the bus.
func (l *Lab) attachedLocked() []map[string]any {
	var out []map[string]any
	for _, d := range l.devices {
		d.mu.Lock()
		if d.attached {
			out = append(out, muxEntry(d, d.muxID))
		}
		d.mu.Unlock()
	}
	return out
}

func (l *Lab) attached() []map[string]any {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.attachedLocked()
}

// addListener tells c of every device on the bus, and from then on of every change.
func (l *Lab) addListener(c *muxClient) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listeners[c] = struct{}{}
	for _, entry := range l.attachedLocked() {
		c.events <- entry
	}
}

func (l *Lab) removeListener(c *muxClient) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.listeners, c)
}

// tellLocked sends an event to every listener, and gives up one that has not read the last muxEventQueue of them.
func (l *Lab) tellLocked(event map[string]any) {
	for c := range l.listeners {
		select {
		case c.events <- event:
		default:
			delete(l.listeners, c)
			close(c.events)
		}
	}
}

func (l *Lab) listenerList() []any {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := []any{}
	for c := range l.listeners {
		entry := map[string]any{"ConnType": uint64(0), "Blacklisted": false}
		for _, key := range []string{"BundleID", "ProgName", "ClientVersionString"} {
			if v := str(c.program, key); v != "" {
				entry[key] = v
			}
		}
		list = append(list, entry)
	}
	return list
}

func (l *Lab) pairRecord(udid string) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.records[udid]
}

// savePairRecord keeps a host's record of a device, or forgets it where file is nil. Like the real daemon it tells listeners of a new one.
func (l *Lab) savePairRecord(udid string, file []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if file == nil {
		delete(l.records, udid)
		return
	}
	l.records[udid] = file
	d := l.device(udid)
	d.mu.Lock()
	id := d.muxID
	d.mu.Unlock()
	l.tellLocked(map[string]any{"MessageType": "Paired", "DeviceID": id})
}
