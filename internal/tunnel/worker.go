package tunnel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/danielpaulus/go-ios/ios"
	goios "github.com/danielpaulus/go-ios/ios/tunnel"

	"github.com/framebridge/framebridge/internal/device"
)

const (
	// probeEvery is how often a worker looks whether its tunnel still stands: go-ios closes its listener when the data plane dies.
	probeEvery   = 500 * time.Millisecond
	probeTimeout = 2 * time.Second
	// maxProbesFailed is how many looks in a row may fail: a system that is busy refuses a connection now and then.
	maxProbesFailed = 3
)

// Work makes a tunnel to one phone through go-ios, writes it to out as a line, and keeps it until in ends (nobody wants it any more) or
// the tunnel does. It is a process's whole work: go-ios leaves goroutines behind, and may panic in them.
func Work(ctx context.Context, udid string, kernel bool, in io.Reader, out io.Writer) error {
	ctx, unwanted := context.WithCancel(ctx)
	defer unwanted()
	go func() {
		io.Copy(io.Discard, in)
		unwanted()
	}()
	entry, err := device.Find(ctx, udid)
	if err != nil {
		return err
	}
	phone := ios.DeviceEntry{DeviceID: entry.DeviceID, Properties: ios.DeviceProperties{SerialNumber: udid, DeviceID: entry.DeviceID, ConnectionType: entry.Connection}}
	t, probe, err := open(ctx, phone, kernel)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(t); err != nil {
		return err
	}
	failed := 0
	for {
		select {
		case <-time.After(probeEvery):
		case <-ctx.Done():
			return nil
		}
		conn, err := net.DialTimeout("tcp", probe, probeTimeout)
		if err == nil {
			conn.Close()
			failed = 0
			continue
		}
		if failed++; failed == maxProbesFailed {
			return fmt.Errorf("the tunnel is gone: %w", err)
		}
	}
}

// open makes the tunnel; probe is an address that answers for as long as it stands.
func open(ctx context.Context, phone ios.DeviceEntry, kernel bool) (t device.Tunnel, probe string, err error) {
	facts, err := device.ReadFacts(ctx, device.Entry{UDID: phone.Properties.SerialNumber, DeviceID: phone.DeviceID, Connection: phone.Properties.ConnectionType})
	if err != nil {
		return t, "", err
	}
	var made goios.Tunnel
	port := 0
	switch {
	case facts.TunnelByCable() && !kernel:
		if port, err = freePort(); err != nil {
			return t, "", err
		}
		made, err = goios.ConnectUserSpaceTunnelLockdown(phone, port)
	case facts.TunnelByCable():
		made, err = goios.ConnectTunnelLockdown(phone)
	case kernel:
		made, err = manual(ctx, phone)
	default:
		err = errors.New("iOS 17.0 to 17.3 has kernel tunnels only: run `sudo framebridge tunnel --kernel`")
	}
	if err != nil {
		return t, "", err
	}
	t = device.Tunnel{UDID: phone.Properties.SerialNumber, Address: made.Address, RSDPort: made.RsdPort, Userspace: port > 0, UserspacePort: port}
	probe = net.JoinHostPort(t.Address, strconv.Itoa(t.RSDPort))
	if t.Userspace {
		probe = net.JoinHostPort("localhost", strconv.Itoa(port))
	}
	return t, probe, nil
}

// manual is go-ios's path to iOS 17.0 to 17.3: over the phone's network interface, with a pairing of its own.
func manual(ctx context.Context, phone ios.DeviceEntry) (goios.Tunnel, error) {
	pairs, err := goios.NewPairRecordManager(".")
	if err != nil {
		return goios.Tunnel{}, err
	}
	return goios.ManualPairAndConnectToTunnel(ctx, phone, pairs)
}

// freePort is a port that nobody listens on. go-ios wants to be told one, so another program may take it in between; then the worker fails
// and the next one tries another.
func freePort() (int, error) {
	ln, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		return 0, err
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port, nil
}
