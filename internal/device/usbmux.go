package device

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/danielpaulus/go-ios/ios"
)

// muxAddress is where usbmuxd listens: $USBMUXD_SOCKET_ADDRESS (host:port, or UNIX:///absolute/path as libusbmuxd wants it), else
// the platform's own.
func muxAddress() (network, address string, err error) {
	// go-ios panics on an address such as "a://b://c", so the shape is checked before it is asked.
	if set := os.Getenv("USBMUXD_SOCKET_ADDRESS"); strings.Count(set, "://") > 1 {
		return "", "", fmt.Errorf("USBMUXD_SOCKET_ADDRESS is %q; expected host:port or UNIX:///absolute/path", set)
	}
	network, address = ios.GetSocketTypeAndAddress(ios.GetUsbmuxdSocket())
	return network, address, nil
}

// dialMux opens a connection to usbmuxd whose reads and writes end with ctx. release hands the connection over to a caller who sets
// deadlines himself.
func dialMux(ctx context.Context) (conn net.Conn, release func(), err error) {
	network, address, err := muxAddress()
	if err != nil {
		return nil, nil, problem(UsbmuxdAbsent, err, "", "no address for usbmuxd")
	}
	var d net.Dialer
	conn, err = d.DialContext(ctx, network, address)
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil, nil, ctx.Err()
	}
	if err != nil {
		return nil, nil, problem(UsbmuxdAbsent, err, usbmuxdRemedy, "usbmuxd does not answer at %s", address)
	}
	return conn, bound(ctx, conn), nil
}

// bound makes every read and write of conn fail when ctx ends or its deadline passes; the returned function lifts that.
func bound(ctx context.Context, conn net.Conn) (release func()) {
	if deadline, ok := ctx.Deadline(); ok {
		conn.SetDeadline(deadline)
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	return func() {
		if stop() {
			conn.SetDeadline(time.Time{})
		}
	}
}

// guarded runs one exchange of go-ios's and turns a panic on a hostile answer into an error. Its synchronous calls run in our
// goroutine, so that recovering here is enough for them.
func guarded(exchange func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = problem(BadAnswer, fmt.Errorf("%v", r), "", "an answer that cannot be read")
		}
	}()
	return exchange()
}

// silent reports whether err is a timeout. go-ios does not wrap what it reports, so that an error also counts as one where the time is up.
func silent(ctx context.Context, err error) bool {
	deadline, bounded := ctx.Deadline()
	var ne net.Error
	return ctx.Err() != nil || bounded && !time.Now().Before(deadline) || errors.As(err, &ne) && ne.Timeout()
}

// silence turns a timeout into NoAnswer, a connection's end into ConnectionLost and the caller's own end into his error, and leaves every
// other error alone; explained says whether it did any of that, or err was a Problem already.
func silence(ctx context.Context, err error, who string) (_ error, explained bool) {
	remedy := replugRemedy
	if who == muxName {
		remedy = muxRestartRemedy
	}
	switch {
	case CodeOf(err) != "":
		return err, true
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err(), true
	case silent(ctx, err):
		return problem(NoAnswer, err, remedy, "%s does not answer", who), true
	case lost(err):
		return problem(ConnectionLost, err, remedy, "%s ended the connection", who), true
	}
	return err, false
}

// lost reports whether err is a connection's end, in words too: go-ios does not wrap it.
func lost(err error) bool {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, net.ErrClosed) {
		return true
	}
	text := err.Error()
	return strings.Contains(text, "EOF") || strings.Contains(text, "reset by peer") || strings.Contains(text, "broken pipe")
}

const muxName = "usbmuxd"

// Entry is an attached device as usbmuxd lists it.
type Entry struct {
	UDID       string
	DeviceID   int
	Connection string // USB or Network
}

// List asks usbmuxd for the attached devices.
func List(ctx context.Context) ([]Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, StepTimeout)
	defer cancel()
	conn, _, err := dialMux(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	var list ios.DeviceList
	err = guarded(func() (err error) {
		list, err = ios.NewUsbMuxConnection(ios.NewDeviceConnectionWithConn(conn)).ListDevices()
		return err
	})
	if err != nil {
		if err, explained := silence(ctx, err, muxName); explained {
			return nil, err
		}
		return nil, problem(BadAnswer, err, muxRestartRemedy, "what answers as usbmuxd is none")
	}
	entries := make([]Entry, 0, len(list.DeviceList))
	for _, d := range list.DeviceList {
		entries = append(entries, Entry{UDID: d.Properties.SerialNumber, DeviceID: d.DeviceID, Connection: d.ConnectionTypeLabel()})
	}
	return entries, nil
}

// Find is the entry of one device. With udid "" it is the only device attached. A phone on USB and on Wi-Fi at once is taken on USB.
func Find(ctx context.Context, udid string) (Entry, error) {
	all, err := List(ctx)
	if err != nil {
		return Entry{}, err
	}
	var found []Entry
	var names []string
	for _, e := range all {
		if udid == "" || e.UDID == udid {
			if n := len(found); n > 0 && found[n-1].UDID == e.UDID {
				if e.Connection == "USB" {
					found[n-1] = e
				}
				continue
			}
			found = append(found, e)
		}
		names = append(names, e.UDID)
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return Entry{}, problem(NotAttached, nil, "give the UDID of one", "%d devices are attached: %s", len(found), strings.Join(names, ", "))
	case len(names) == 0 && appleOnBus(os.DirFS("/")) > 0:
		return Entry{}, problem(NotAttached, nil, usbRightsRemedy, "an Apple device is on the USB bus, but usbmuxd does not list it")
	case len(names) == 0:
		return Entry{}, problem(NotAttached, nil, "plug the phone in by cable and unlock it", "no device is attached")
	}
	return Entry{}, problem(NotAttached, nil, "plug it in by cable and unlock it", "device %s is not attached (attached: %s)", udid, strings.Join(names, ", "))
}

// WaitAttached returns when usbmuxd lists the device, or when ctx ends. It listens for attach messages, so it costs nothing while
// the device is away.
func WaitAttached(ctx context.Context, udid string) (Entry, error) {
	conn, _, err := dialMux(ctx)
	if err != nil {
		return Entry{}, err
	}
	defer conn.Close()
	var entry Entry
	err = guarded(func() error {
		next, err := ios.NewUsbMuxConnection(ios.NewDeviceConnectionWithConn(conn)).Listen()
		if err != nil {
			return err
		}
		for {
			msg, err := next()
			if err != nil {
				return err
			}
			if msg.DeviceAttached() && msg.Properties.SerialNumber == udid {
				entry = Entry{UDID: udid, DeviceID: msg.DeviceID, Connection: msg.DeviceEntry().ConnectionTypeLabel()}
				return nil
			}
		}
	})
	if err != nil && ctx.Err() != nil {
		return Entry{}, ctx.Err()
	}
	return entry, err
}

// pairRecord reads this host's pairing with the device from usbmuxd.
func pairRecord(ctx context.Context, udid string) (ios.PairRecord, error) {
	ctx, cancel := context.WithTimeout(ctx, StepTimeout)
	defer cancel()
	conn, _, err := dialMux(ctx)
	if err != nil {
		return ios.PairRecord{}, err
	}
	defer conn.Close()
	var record ios.PairRecord
	err = guarded(func() (err error) {
		record, err = ios.NewUsbMuxConnection(ios.NewDeviceConnectionWithConn(conn)).ReadPair(udid)
		return err
	})
	if err != nil {
		if err, explained := silence(ctx, err, muxName); explained {
			return record, err
		}
		return record, problem(NotPaired, nil, pairRemedy(udid), "this host is not paired with %s", udid)
	}
	return record, nil
}

// connectPort opens a connection to a port of the device through usbmuxd.
func connectPort(ctx context.Context, deviceID int, port uint16) (net.Conn, func(), error) {
	conn, release, err := dialMux(ctx)
	if err != nil {
		return nil, nil, err
	}
	err = guarded(func() error {
		return ios.NewUsbMuxConnection(ios.NewDeviceConnectionWithConn(conn)).Connect(deviceID, port)
	})
	if err != nil {
		conn.Close()
		if err, explained := silence(ctx, err, muxName); explained {
			return nil, nil, err
		}
		return nil, nil, problem(ConnectionLost, err, "plug it in again", "the device refused a connection, or is gone")
	}
	return conn, release, nil
}

func pairRemedy(udid string) string {
	return "unlock the phone, run `idevicepair -u " + udid + " pair`, and tap Trust"
}
