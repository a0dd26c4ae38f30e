package sim

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"github.com/danielpaulus/go-ios/ios"
)

// dialPort is a raw connection to a device's port.
func dialPort(t testing.TB, l *Lab, udid string, port uint16) net.Conn {
	t.Helper()
	conn := dialMux(t)
	d := l.device(udid)
	var id uint64
	d.update(func() { id = d.muxID })
	if got := askMux(t, conn, map[string]any{"MessageType": "Connect", "DeviceID": id, "PortNumber": uint64(port<<8 | port>>8)}); got["Number"] != uint64(0) {
		t.Fatalf("connecting to port %d: %v", port, got)
	}
	return conn
}

func ask(t testing.TB, conn net.Conn, msg map[string]any) map[string]any {
	t.Helper()
	if err := writePlist(conn, msg); err != nil {
		t.Fatal(err)
	}
	answer, err := readPlist(conn)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// hostTLS is a host's side of TLS, as go-ios does it.
func hostTLS(t testing.TB, certificate, key []byte) *tls.Config {
	t.Helper()
	cert, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{cert}}
}

func startSession(hostID string) map[string]any {
	return map[string]any{"Request": "StartSession", "HostID": hostID, "SystemBUID": keys.systemBUID}
}

func TestLockdownRefusesInItsOwnWords(t *testing.T) {
	locked := DefaultDevice(udid16, "16.7")
	locked.State.Locked = true
	l := startLab(t, DefaultDevice(udid15, "15.8"), locked)
	conn, lockedConn := dialPort(t, l, udid15, lockdownPort), dialPort(t, l, udid16, lockdownPort)
	record := map[string]any{"HostID": "new", "HostCertificate": certPEM(keys.hostCert), "RootCertificate": certPEM(keys.rootCert), "DeviceCertificate": certPEM(keys.hostCert)}
	for _, c := range []struct {
		name string
		conn net.Conn
		msg  map[string]any
		want any
	}{
		{"type", conn, map[string]any{"Request": "QueryType"}, nil},
		{"a session of nobody", conn, startSession(""), "MissingHostID"},
		{"a session of a stranger", conn, startSession("4711"), "InvalidHostID"},
		{"a pairing of a stranger", conn, map[string]any{"Request": "ValidatePair", "PairRecord": map[string]any{"HostID": "4711"}}, "InvalidHostID"},
		{"a service without a session", conn, map[string]any{"Request": "StartService", "Service": imageMounterName}, "SessionInactive"},
		{"an end without a session", conn, map[string]any{"Request": "StopSession", "SessionID": "x"}, "SessionInactive"},
		{"a value that is not there", conn, map[string]any{"Request": "GetValue", "Key": "Weather"}, "MissingValue"},
		{"a value for trusted hosts only", conn, map[string]any{"Request": "GetValue", "Key": "SerialNumber"}, "MissingValue"},
		{"writing", conn, map[string]any{"Request": "SetValue", "Key": "DeviceName", "Value": "x"}, "SetProhibited"},
		{"nonsense", conn, map[string]any{"Request": "Dance"}, "InvalidRequest"},
		{"pairing with a record without certificates", conn, map[string]any{"Request": "Pair", "PairRecord": map[string]any{"HostID": "4711"}}, "InvalidPairRecord"},
		{"pairing before Trust is tapped", conn, map[string]any{"Request": "Pair", "PairRecord": record}, "PairingDialogResponsePending"},
		{"pairing with a locked phone", lockedConn, map[string]any{"Request": "Pair", "PairRecord": record}, "PasswordProtected"},
	} {
		if got := ask(t, c.conn, c.msg); got["Error"] != c.want || got["Request"] != c.msg["Request"] {
			t.Errorf("%s: %v, want error %v", c.name, got, c.want)
		}
	}
}

func TestDeveloperServicesNeedAnImageDeveloperModeAndNoTunnel(t *testing.T) {
	noImage, noMode := DefaultDevice(udid15, "15.8"), DefaultDevice(udid16, "16.7")
	noImage.State.DeveloperImage, noMode.State.DeveloperMode = false, false
	ready := DefaultDevice("00008110-000000000000000F", "16.7")
	l := startLab(t, noImage, noMode, DefaultDevice(udid17, "17.5"), ready)
	for _, c := range []struct{ udid, service, want string }{
		{udid15, instrumentsName, "InvalidService"},
		{udid15, imageMounterName, ""},
		{udid16, instrumentsName, "InvalidService"},
		{udid17, instrumentsName, "InvalidService"},
		{ready.UDID, instrumentsName, ""},
		{ready.UDID, "com.apple.instruments.remoteserver", "InvalidService"},
	} {
		port, word := l.device(c.udid).startService(c.service, nil)
		if word != c.want || (word == "") != (port >= firstServicePort) {
			t.Errorf("%s of %s: %q and port %d, want %q", c.service, c.udid, word, port, c.want)
		}
	}
}

func TestASessionEndsInPlainTextAndAnotherBeginsOnTheSameConnection(t *testing.T) {
	l := startLab(t, DefaultDevice(udid15, "15.8"))
	raw := dialPort(t, l, udid15, lockdownPort)
	var ids []any
	for range 3 {
		answer := ask(t, raw, startSession(keys.hostID))
		if answer["EnableSessionSSL"] != true {
			t.Fatalf("session: %v", answer)
		}
		ids = append(ids, answer["SessionID"])
		corked := &corkedConn{Conn: &recordReader{Conn: raw}}
		secure := tls.Client(corked, hostTLS(t, certPEM(keys.rootCert), keyPEM(keys.host)))
		if got := ask(t, secure, map[string]any{"Request": "GetValue", "Key": "PasswordProtected"}); got["Value"] != false {
			t.Errorf("in the session: %v", got)
		}
		if got := ask(t, secure, startSession(keys.hostID)); got["Error"] != "SessionActive" {
			t.Errorf("a session in a session: %v", got)
		}
		if got := ask(t, secure, map[string]any{"Request": "StopSession", "SessionID": "other"}); got["Error"] != "InvalidSessionID" {
			t.Errorf("the end of another session: %v", got)
		}
		if got := ask(t, secure, map[string]any{"Request": "StopSession", "SessionID": answer["SessionID"]}); got["Error"] != nil {
			t.Errorf("the end: %v", got)
		}
		// The client's goodbye and its next plain request leave in one piece: TLS must not swallow what follows it.
		corked.held = new(bytes.Buffer)
		if err := secure.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if err := writePlist(corked.held, map[string]any{"Request": "QueryType"}); err != nil {
			t.Fatal(err)
		}
		raw.SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := raw.Write(corked.held.Bytes()); err != nil {
			t.Fatal(err)
		}
		if n, err := secure.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Fatalf("after the session: %d bytes, %v, want the device's goodbye", n, err)
		}
		if got, err := readPlist(raw); err != nil || got["Type"] != "com.apple.mobile.lockdown" {
			t.Errorf("in plain text: %v, %v", got, err)
		}
	}
	if ids[0] == ids[1] || ids[1] == ids[2] {
		t.Errorf("session ids repeat: %v", ids)
	}
}

// corkedConn holds back what is written once held is set.
type corkedConn struct {
	net.Conn
	held *bytes.Buffer
}

func (c *corkedConn) Write(b []byte) (int, error) {
	if c.held != nil {
		return c.held.Write(b)
	}
	return c.Conn.Write(b)
}

func TestTLSWantsTheCertificateThatTheHostWasPairedWith(t *testing.T) {
	l := startLab(t, DefaultDevice(udid15, "15.8"))
	stranger, err := certify(time.Now(), &keys.device.PublicKey, nil, keys.device)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		conf *tls.Config
		ok   bool
	}{
		{"the root's, as libimobiledevice does", hostTLS(t, certPEM(keys.rootCert), keyPEM(keys.host)), true},
		{"the host's, as go-ios does", hostTLS(t, certPEM(keys.hostCert), keyPEM(keys.host)), true},
		{"TLS 1.2", func() *tls.Config {
			c := hostTLS(t, certPEM(keys.hostCert), keyPEM(keys.host))
			c.MaxVersion = tls.VersionTLS12
			return c
		}(), true},
		{"a stranger's", hostTLS(t, certPEM(stranger), keyPEM(keys.device)), false},
		{"none", &tls.Config{InsecureSkipVerify: true}, false},
	} {
		raw := dialPort(t, l, udid15, lockdownPort)
		ask(t, raw, startSession(keys.hostID))
		secure := tls.Client(raw, c.conf)
		err := writePlist(secure, map[string]any{"Request": "QueryType"})
		if err == nil {
			_, err = readPlist(secure)
		}
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestGoIOSKeepsItsSessionOverManyServices(t *testing.T) {
	startLab(t, DefaultDevice(udid15, "15.8"))
	device, err := ios.GetDevice(udid15)
	if err != nil {
		t.Fatal(err)
	}
	lockdown, err := ios.ConnectLockdownWithSession(device)
	if err != nil {
		t.Fatal(err)
	}
	defer lockdown.Close()
	first, err := lockdown.StartService(imageMounterName)
	if err != nil || !first.EnableServiceSSL {
		t.Fatalf("%+v, %v", first, err)
	}
	second, err := lockdown.StartService(installationProxyName)
	if err != nil || second.Port == first.Port {
		t.Errorf("a second service got %+v after %+v: %v", second, first, err)
	}
	again, err := lockdown.StartService(imageMounterName)
	if err != nil || again.Port != first.Port {
		t.Errorf("the first service again: %+v, %v", again, err)
	}
	if _, err := lockdown.StartService("com.apple.nothing"); err == nil {
		t.Error("a service that is not there was started")
	}
}

// byteConn is a connection from which a client's bytes come and into which answers vanish.
type byteConn struct {
	net.Conn
	*bytes.Reader
}

func (c byteConn) Read(b []byte) (int, error)       { return c.Reader.Read(b) }
func (c byteConn) Write(b []byte) (int, error)      { return len(b), nil }
func (c byteConn) SetDeadline(time.Time) error      { return nil }
func (c byteConn) SetWriteDeadline(time.Time) error { return nil }
func (c byteConn) Close() error                     { return nil }

func FuzzLockdown(f *testing.F) {
	for _, m := range []map[string]any{
		{"Request": "QueryType"}, {"Request": "GetValue", "Domain": "com.apple.international"}, startSession(keys.hostID),
		{"Request": "Pair", "PairRecord": map[string]any{"HostID": "x", "HostCertificate": []byte("-----BEGIN CERTIFICATE-----")}},
	} {
		var b bytes.Buffer
		if err := writePlist(&b, m); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Add([]byte("\x00\x00\x00\x10bplist00\xd1\x01\x01\x01"))
	l := stillLab(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		// Every end is a good one, as long as there is an end.
		_ = serveLockdown(t.Context(), l.devices[0], byteConn{Reader: bytes.NewReader(b)})
		_ = serveImageMounter(t.Context(), l.devices[0], byteConn{Reader: bytes.NewReader(b)})
		_ = serveInstallationProxy(t.Context(), l.devices[0], byteConn{Reader: bytes.NewReader(b)})
	})
}
