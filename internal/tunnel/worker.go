package tunnel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/danielpaulus/go-ios/ios"
	goios "github.com/danielpaulus/go-ios/ios/tunnel"

	"github.com/framebridge/framebridge/internal/device"
)

// Work makes a tunnel to one phone through go-ios, writes it to out as a line, and keeps it until in ends: nobody wants it any more. Whether
// it still leads anywhere is for the supervisor to see. It is a process's whole work: go-ios leaves goroutines behind, and may panic in them.
func Work(ctx context.Context, udid string, kernel bool, in io.Reader, out io.Writer) error {
	ctx, unwanted := context.WithCancel(ctx)
	defer unwanted()
	go func() {
		io.Copy(io.Discard, in)
		unwanted()
	}()
	made, failed := make(chan device.Tunnel, 1), make(chan error, 1)
	go func() { // go-ios heeds no context and sets no deadline: it is left behind where it hangs
		if t, err := open(ctx, udid, kernel); err != nil {
			failed <- err
		} else {
			made <- t
		}
	}()
	select {
	case t := <-made:
		if err := json.NewEncoder(out).Encode(t); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	case err := <-failed:
		return err
	case <-time.After(startTimeout):
		return fmt.Errorf("no tunnel within %s", startTimeout)
	case <-ctx.Done():
		return nil
	}
}

func open(ctx context.Context, udid string, kernel bool) (t device.Tunnel, err error) {
	entry, err := device.Find(ctx, udid)
	if err != nil {
		return t, err
	}
	facts, err := device.ReadFacts(ctx, entry)
	if err != nil {
		return t, err
	}
	phone := ios.DeviceEntry{DeviceID: entry.DeviceID, Properties: ios.DeviceProperties{SerialNumber: udid, DeviceID: entry.DeviceID, ConnectionType: entry.Connection}}
	var made goios.Tunnel
	port := 0
	switch {
	case facts.TunnelByCable() && !kernel:
		if port, err = freePort(); err != nil {
			return t, err
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
		return t, err
	}
	return device.Tunnel{UDID: udid, Address: made.Address, RSDPort: made.RsdPort, Userspace: port > 0, UserspacePort: port}, nil
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
	ln, err := net.Listen("tcp", net.JoinHostPort(workerHost, "0"))
	if err != nil {
		return 0, err
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port, nil
}
