package sim

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/google/uuid"
)

// lockdownd listens on a fixed port; all other services get theirs from it.
const (
	lockdownName = "lockdownd"
	lockdownPort = 62078
)

// Words with which lockdownd refuses, as libimobiledevice and go-ios know them.
const (
	errInvalidHostID     = "InvalidHostID"
	errMissingHostID     = "MissingHostID"
	errInvalidPairRecord = "InvalidPairRecord"
	errPasswordProtected = "PasswordProtected"
	errPairingPending    = "PairingDialogResponsePending"
	errSessionActive     = "SessionActive"
	errSessionInactive   = "SessionInactive"
	errInvalidSessionID  = "InvalidSessionID"
	errInvalidService    = "InvalidService"
	errMissingValue      = "MissingValue"
	errSetProhibited     = "SetProhibited"
	errInvalidRequest    = "InvalidRequest"
)

// lockdownSession is one connection to lockdownd. raw is the connection itself, conn is raw or TLS over it while a session runs.
type lockdownSession struct {
	d         *Device
	raw, conn net.Conn
	id        string
	host      *pairing // whom the session belongs to, nil before StartSession
	tunnelled bool     // a tunnel is trusted from the begin, and leads to services by itself
}

func serveLockdown(ctx context.Context, d *Device, raw net.Conn) error {
	return (&lockdownSession{d: d, raw: raw, conn: raw}).serve(ctx)
}

func serveRemoteLockdown(ctx context.Context, d *Device, conn net.Conn) error {
	if err := checkIn(ctx, d, remoteLockdownName, conn); err != nil {
		return err
	}
	return (&lockdownSession{d: d, raw: conn, conn: conn, tunnelled: true}).serve(ctx)
}

func (s *lockdownSession) serve(ctx context.Context) error {
	for {
		request, err := readPlist(s.conn)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		name := str(request, "Request")
		answer := s.answer(request)
		answer["Request"] = name
		if err := s.d.beforeAnswer(ctx, lockdownName); err != nil {
			return err
		}
		if err := writePlist(s.conn, answer); err != nil {
			return err
		}
		if answer["Error"] != nil {
			s.d.lab.log.Debug().Str("udid", s.d.UDID).Str("request", name).Any("error", answer["Error"]).Msg("lockdownd refuses")
			continue
		}
		switch name {
		case "StartSession":
			err = s.enterTLS(ctx)
		case "StopSession":
			err = s.leaveTLS()
		}
		if err != nil {
			return err
		}
	}
}

func refusal(word string) map[string]any { return map[string]any{"Error": word} }

func (s *lockdownSession) answer(request map[string]any) map[string]any {
	switch str(request, "Request") {
	case "QueryType":
		return map[string]any{"Type": "com.apple.mobile.lockdown"}
	case "GetValue":
		return s.getValue(str(request, "Domain"), str(request, "Key"))
	case "SetValue", "RemoveValue":
		return refusal(errSetProhibited)
	}
	if s.tunnelled {
		return refusal(errInvalidRequest)
	}
	switch str(request, "Request") {
	case "Pair":
		return s.pair(request)
	case "ValidatePair":
		return s.validatePair(request)
	case "Unpair":
		record, _ := request["PairRecord"].(map[string]any)
		s.d.forget(str(record, "HostID"))
		return map[string]any{}
	case "StartSession":
		return s.startSession(request)
	case "StopSession":
		if s.id == "" {
			return refusal(errSessionInactive)
		}
		if str(request, "SessionID") != s.id {
			return refusal(errInvalidSessionID)
		}
		return map[string]any{}
	case "StartService":
		return s.startService(str(request, "Service"))
	}
	return refusal(errInvalidRequest)
}

func (s *lockdownSession) getValue(domain, key string) map[string]any {
	values := s.d.values(domain, s.host != nil || s.tunnelled)
	if key == "" {
		out := map[string]any{"Value": values}
		if domain != "" {
			out["Domain"] = domain
		}
		return out
	}
	value, known := values[key]
	if !known {
		return refusal(errMissingValue)
	}
	out := map[string]any{"Key": key, "Value": value}
	if domain != "" {
		out["Domain"] = domain
	}
	return out
}

// pair asks the person who holds the phone: the dialog stays until the lab is told to trust this host.
func (s *lockdownSession) pair(request map[string]any) map[string]any {
	record, _ := request["PairRecord"].(map[string]any)
	p, err := s.d.lab.ids.accept(record)
	if err != nil {
		return refusal(errInvalidPairRecord)
	}
	if word := s.d.askTrust(p); word != "" {
		return refusal(word)
	}
	return map[string]any{"EscrowBag": escrowBag}
}

func (s *lockdownSession) validatePair(request map[string]any) map[string]any {
	record, _ := request["PairRecord"].(map[string]any)
	if s.d.pairingOf(str(record, "HostID")) == nil {
		return refusal(errInvalidHostID)
	}
	return map[string]any{}
}

func (s *lockdownSession) startSession(request map[string]any) map[string]any {
	if word := s.d.sessionRefusal(); word != "" {
		return refusal(word)
	}
	if s.id != "" {
		return refusal(errSessionActive)
	}
	hostID := str(request, "HostID")
	if hostID == "" {
		return refusal(errMissingHostID)
	}
	if s.host = s.d.pairingOf(hostID); s.host == nil {
		return refusal(errInvalidHostID)
	}
	s.id = uuid.NewString()
	return map[string]any{"SessionID": s.id, "EnableSessionSSL": true}
}

func (s *lockdownSession) enterTLS(ctx context.Context) error {
	conn := tls.Server(&recordReader{Conn: s.raw}, s.host.tls())
	if err := conn.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("lockdown session: TLS: %w", err)
	}
	s.conn = conn
	return nil
}

// leaveTLS ends the session but not the connection, on which a client may start another.
func (s *lockdownSession) leaveTLS() error {
	conn := s.conn.(*tls.Conn)
	if err := conn.CloseWrite(); err != nil {
		return err
	}
	if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
		return fmt.Errorf("lockdown session: after StopSession expected the end of TLS, got %v", err)
	}
	// Go's TLS leaves a deadline behind that has passed, so that nothing can be written by accident.
	if err := s.raw.SetWriteDeadline(time.Time{}); err != nil {
		return err
	}
	s.conn, s.id, s.host = s.raw, "", nil
	return nil
}

func (s *lockdownSession) startService(name string) map[string]any {
	if s.host == nil {
		return refusal(errSessionInactive)
	}
	port, word := s.d.startService(name, s.host)
	if word != "" {
		return refusal(word)
	}
	return map[string]any{"Service": name, "Port": uint64(port), "EnableServiceSSL": true}
}

// recordReader hands out at most one TLS record at a time, so that TLS reads no byte of what follows its end.
type recordReader struct {
	net.Conn
	header  [5]byte // the length is in the last two
	pending []byte  // of the header, not handed out yet
	left    int     // of the record, header included
}

func (r *recordReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		if _, err := io.ReadFull(r.Conn, r.header[:]); err != nil {
			return 0, err
		}
		r.pending = r.header[:]
		r.left = len(r.header) + int(binary.BigEndian.Uint16(r.header[3:]))
	}
	var n int
	var err error
	if len(r.pending) > 0 {
		n = copy(p, r.pending)
		r.pending = r.pending[n:]
	} else {
		n, err = r.Conn.Read(p[:min(len(p), r.left)])
	}
	r.left -= n
	return n, err
}
