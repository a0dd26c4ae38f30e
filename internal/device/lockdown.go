package device

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/danielpaulus/go-ios/ios"
)

// lockdown is a connection to the device's lockdownd, which tells facts and starts services.
type lockdown struct {
	udid string
	conn net.Conn
	dc   *ios.DeviceConnection // over conn, TLS in a session
}

func openLockdown(ctx context.Context, e Entry) (*lockdown, error) {
	conn, _, err := connectPort(ctx, e.DeviceID, ios.Ntohs(ios.Lockdownport))
	if err != nil {
		return nil, err
	}
	return &lockdown{udid: e.UDID, conn: conn, dc: ios.NewDeviceConnectionWithConn(conn)}, nil
}

func (l *lockdown) close() { l.conn.Close() }

// startSession pairs this connection with the host's identity; TLS is on from here.
func (l *lockdown) startSession(ctx context.Context, record ios.PairRecord) error {
	const what = "start a lockdown session"
	a, err := l.ask(ctx, what, map[string]any{"Request": "StartSession", "ProtocolVersion": "2", "HostID": record.HostID, "SystemBUID": record.SystemBUID})
	if err != nil || !a.EnableSessionSSL {
		return err
	}
	if err := guarded(func() error { return l.dc.EnableSessionSsl(record) }); err != nil {
		return l.explain(ctx, err, what)
	}
	return nil
}

type lockdownAnswer struct {
	Error            string
	Value            any
	Port             uint16
	EnableServiceSSL bool
	EnableSessionSSL bool
}

func (l *lockdown) ask(ctx context.Context, what string, request map[string]any) (lockdownAnswer, error) {
	var answer lockdownAnswer
	request["Label"] = "framebridge"
	err := askPlist(l.dc, request, &answer)
	if err == nil && answer.Error != "" {
		err = errors.New(answer.Error)
	}
	if err != nil {
		return answer, l.explain(ctx, err, what)
	}
	return answer, nil
}

// values are all values that lockdownd tells of the default domain; without a session only the harmless ones.
func (l *lockdown) values(ctx context.Context) (map[string]any, error) {
	a, err := l.ask(ctx, "read the device's facts", map[string]any{"Request": "GetValue"})
	if err != nil {
		return nil, err
	}
	m, ok := a.Value.(map[string]any)
	if !ok {
		return nil, problem(BadAnswer, nil, "", "lockdownd gave %T for the device's facts, expected a dictionary", a.Value)
	}
	return m, nil
}

// errInvalidService is lockdownd's answer for a service that it does not know: a developer service without a developer image.
var errInvalidService = errors.New("InvalidService")

func (l *lockdown) startService(ctx context.Context, name string) (port uint16, tls bool, err error) {
	a, err := l.ask(ctx, "start "+name, map[string]any{"Request": "StartService", "Service": name})
	if err != nil {
		return 0, false, err
	}
	if a.Port == 0 {
		return 0, false, problem(BadAnswer, nil, "", "lockdownd started %s without naming a port", name)
	}
	return a.Port, a.EnableServiceSSL, nil
}

// explain turns lockdownd's error words into what they mean for a person.
func (l *lockdown) explain(ctx context.Context, err error, what string) error {
	if err, explained := silence(ctx, err, "lockdownd"); explained {
		return err
	}
	has := func(word string) bool { return bytes.Contains([]byte(err.Error()), []byte(word)) }
	switch {
	case has("PasswordProtected"), has("DeviceLocked"):
		return problem(Locked, err, "unlock the phone", "%s is locked", l.udid)
	case has("InvalidHostID"), has("InvalidPairRecord"), has("MissingHostID"), has("UserDeniedPairing"), has("PairingDialogResponsePending"), has("SessionInactive"):
		return problem(NotPaired, err, pairRemedy(l.udid), "%s no longer trusts this host", l.udid)
	case has("InvalidService"), has("ServiceProhibited"):
		return fmt.Errorf("%s: %w", what, errInvalidService)
	}
	return problem(ServiceRefused, err, "", "cannot %s on %s", what, l.udid)
}

// CheckPairing is nil where the phone still believes this host's pairing. Open only sees that there is one.
func (p *Phone) CheckPairing(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, StepTimeout)
	defer cancel()
	l, err := openLockdown(ctx, p.plain.entry)
	if err != nil {
		return err
	}
	defer l.close()
	return l.startSession(ctx, p.plain.record)
}

// service starts a service over a lockdown session and opens a connection to it, TLS throughout where lockdownd wants TLS.
func (l *lockdown) service(ctx context.Context, e Entry, record ios.PairRecord, name string) (net.Conn, error) {
	port, useTLS, err := l.startService(ctx, name)
	if err != nil {
		return nil, err
	}
	conn, release, err := connectPort(ctx, e.DeviceID, port)
	if err != nil {
		return nil, err
	}
	dc := ios.NewDeviceConnectionWithConn(conn)
	if useTLS {
		if err := guarded(func() error { return dc.EnableSessionSsl(record) }); err != nil {
			conn.Close()
			err, _ = silence(ctx, fmt.Errorf("TLS with %s: %w", name, err), name)
			return nil, err
		}
	}
	release()
	return dc.Conn(), nil
}
