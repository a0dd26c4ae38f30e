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

const muxVariable = "USBMUXD_SOCKET_ADDRESS"

// muxAddress is where usbmuxd listens: $USBMUXD_SOCKET_ADDRESS (host:port, or UNIX:///absolute/path as libusbmuxd wants it), else
// the platform's own.
func muxAddress() (network, address string, err error) {
	// go-ios panics on an address such as "a://b://c", so the shape is checked before it is asked.
	if set := os.Getenv(muxVariable); strings.Count(set, "://") > 1 {
		return "", "", fmt.Errorf("%s is %q; expected host:port or UNIX:///absolute/path", muxVariable, set)
	}
	network, address = ios.GetSocketTypeAndAddress(ios.GetUsbmuxdSocket())
	return network, address, nil
}

// dialMux opens a connection to usbmuxd whose reads and writes end with ctx. release hands the connection over to a caller who sets
// deadlines himself.
func dialMux(ctx context.Context) (conn net.Conn, release func(), err error) {
	network, address, err := muxAddress()
	if err != nil {
		return nil, nil, problem(UsbmuxdAbsent, err, "unset "+muxVariable+", or set it to host:port or UNIX:///absolute/path", "no address for usbmuxd")
	}
	var d net.Dialer
	conn, err = d.DialContext(ctx, network, address)
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil, nil, ctx.Err()
	}
	if err != nil {
		remedy := usbmuxdRemedy
		if os.Getenv(muxVariable) != "" {
			remedy = "start a usbmuxd there, or unset " + muxVariable
		}
		return nil, nil, problem(UsbmuxdAbsent, err, remedy, "usbmuxd does not answer at %s", address)
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

// errUnreadable is in the chain of what is wrong with an answer's bytes.
var errUnreadable = errors.New("an answer that cannot be read")

// guarded turns a panic of a decoder's, or of go-ios's, into an error. They run in our goroutine, so that recovering here is enough for
// them, but for a stack or a memory that is exhausted: see decodePlist.
func guarded(exchange func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errUnreadable, r)
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

// silence turns a timeout into NoAnswer, a connection's end into ConnectionLost, bytes that cannot be read into BadAnswer and the caller's
// own end into his error, and leaves every other error alone; explained says whether it did any of that, or err was a Problem already.
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
	case errors.Is(err, errUnreadable): // before the words of its cause are taken for the connection's end
		return problem(BadAnswer, err, remedy, "%s answers with something else", who), true
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

func muxOver(conn net.Conn) *ios.UsbMuxConnection {
	return ios.NewUsbMuxConnection(ios.NewDeviceConnectionWithConn(conn))
}

// askMux is one exchange with usbmuxd.
func askMux(mux *ios.UsbMuxConnection, request, answer any) error {
	if err := mux.Send(request); err != nil {
		return err
	}
	return receiveMux(mux, answer)
}

// receiveMux reads one message of usbmuxd's. go-ios reads its bytes, up to 16 MiB, and would decode whatever they are.
func receiveMux(mux *ios.UsbMuxConnection, v any) error {
	m, err := mux.ReadMessage()
	if err != nil {
		return err
	}
	return decodePlist(m.Payload, v)
}

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
	if err := askMux(muxOver(conn), ios.NewReadDevices(), &list); err != nil {
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
	mux := muxOver(conn)
	var result ios.MuxResponse
	if err = askMux(mux, ios.NewListen(), &result); err == nil && !result.IsSuccessFull() {
		err = problem(BadAnswer, nil, muxRestartRemedy, "usbmuxd refuses to tell of attached devices (%d)", result.Number)
	}
	for err == nil {
		var m ios.AttachedMessage
		if err = receiveMux(mux, &m); err == nil && m.DeviceAttached() && m.Properties.SerialNumber == udid {
			return Entry{UDID: udid, DeviceID: m.DeviceID, Connection: m.DeviceEntry().ConnectionTypeLabel()}, nil
		}
	}
	if ctx.Err() != nil {
		return Entry{}, ctx.Err()
	}
	err, _ = silence(ctx, err, muxName)
	return Entry{}, err
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
	var stored ios.PairRecordData
	err = askMux(muxOver(conn), ios.ReadPair{MessageType: "ReadPairRecord", ProgName: "framebridge", LibUSBMuxVersion: 3, PairRecordID: udid}, &stored)
	if err == nil && stored.PairRecordData == nil {
		return record, problem(NotPaired, nil, pairRemedy(udid), "this host is not paired with %s", udid)
	}
	if err == nil {
		err = decodePlist(stored.PairRecordData, &record)
	}
	if err != nil {
		err, _ = silence(ctx, err, muxName)
	}
	return record, err
}

// connectPort opens a connection to a port of the device through usbmuxd.
func connectPort(ctx context.Context, deviceID int, port uint16) (net.Conn, func(), error) {
	conn, release, err := dialMux(ctx)
	if err != nil {
		return nil, nil, err
	}
	var result ios.MuxResponse
	err = askMux(muxOver(conn), map[string]any{"MessageType": "Connect", "ProgName": "framebridge", "kLibUSBMuxVersion": 3,
		"DeviceID": deviceID, "PortNumber": ios.Ntohs(port)}, &result)
	if err == nil && !result.IsSuccessFull() {
		err = fmt.Errorf("usbmuxd says %d", result.Number)
	}
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
