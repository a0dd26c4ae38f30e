package sim

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// The control socket carries JSON, a line each: a Command from the client, a Reply to each, in order.

// Command asks a lab to do a fault to a phone, or, without a kind, how its phones are.
type Command struct {
	Device string `json:"device,omitempty"` // udid; may be left out where there is one device
	Fault
	Within Duration `json:"within,omitzero"` // how long to wait for payload faults, in host time; default DefaultWithin
}

// DefaultWithin bounds how long a command waits for payloads that something can happen to.
const DefaultWithin = Duration(10 * time.Second)

// Reply answers a command: with an Ack, with the state of the phones, or with an error.
type Reply struct {
	Error   string         `json:"error,omitempty"`
	Ack     *Ack           `json:"ack,omitempty"`
	Devices []DeviceStatus `json:"devices,omitempty"`
}

// DeviceStatus is how a phone is.
type DeviceStatus struct {
	UDID           string   `json:"udid"`
	Name           string   `json:"name"`
	OS             string   `json:"os"`
	At             Duration `json:"at"` // lab time since the lab began
	Attached       bool     `json:"attached"`
	Up             bool     `json:"up"`
	Boot           int      `json:"boot"` // which life of the phone: 1, 2 …
	PairedHosts    int      `json:"pairedHosts"`
	DeveloperMode  bool     `json:"developerMode"`
	DeveloperImage bool     `json:"developerImage"`
	Locked         bool     `json:"locked"`
	Foreground     string   `json:"foreground"` // bundle of the app on the screen, "" for the home screen
	Taps           int      `json:"taps"`       // that are running
	Tunnels        int      `json:"tunnels"`    // the agent's, and those of CoreDeviceProxy
	Connections    int      `json:"connections"`
}

// maxCommandBytes bounds a command's line.
const maxCommandBytes = 64 << 10

// ListenControl opens the control socket, a unix socket at path.
func (l *Lab) ListenControl(path string) error {
	ln, err := listen("unix:" + path)
	if err != nil {
		return err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		ln.Close()
		return err
	}
	return l.serve(ln, l.serveControl)
}

func (l *Lab) serveControl(conn net.Conn) error {
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, maxCommandBytes)
	out := json.NewEncoder(conn)
	for lines.Scan() {
		if err := out.Encode(l.obey(lines.Bytes())); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (l *Lab) obey(line []byte) Reply {
	var c Command
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		return Reply{Error: fmt.Sprintf("a command is a JSON object in one line: %v", err)}
	}
	if c.Kind == "" {
		return Reply{Devices: l.Status()}
	}
	if c.Device == "" && len(l.devices) == 1 {
		c.Device = l.devices[0].UDID
	}
	if c.Within == 0 {
		c.Within = DefaultWithin
	}
	ctx, cancel := context.WithTimeout(l.ctx, time.Duration(c.Within))
	defer cancel()
	ack, err := l.Apply(ctx, c.Device, c.Fault)
	if err != nil {
		return Reply{Error: err.Error()}
	}
	return Reply{Ack: &ack}
}

// Status is how every phone is, in the order of the lab's description.
func (l *Lab) Status() []DeviceStatus {
	var out []DeviceStatus
	for _, d := range l.devices {
		s := d.status()
		st := DeviceStatus{UDID: d.UDID, Name: d.Name, OS: d.OS, At: Duration(l.clock.elapsed()), Up: s.Up, Boot: s.Boot}
		for _, p := range s.Processes {
			if p.Foreground {
				st.Foreground = p.Bundle
			}
		}
		d.update(func() {
			st.Attached, st.PairedHosts, st.Taps, st.Tunnels, st.Connections = d.attached, len(d.hosts), len(d.taps), len(d.tunnels), len(d.links)
			st.DeveloperMode, st.DeveloperImage, st.Locked = d.state.DeveloperMode, d.state.DeveloperImage, d.state.Locked
		})
		out = append(out, st)
	}
	return out
}

// ErrRefused is wrapped by what Do returns when the lab says no.
var ErrRefused = errors.New("the lab refuses")

// Do sends a command to the lab whose control socket is at path.
func Do(ctx context.Context, path string, c Command) (Reply, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return Reply{}, fmt.Errorf("%w: does a lab run? (labsim run LAB --control %s)", err, path)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	if err := json.NewEncoder(conn).Encode(c); err != nil {
		return Reply{}, err
	}
	var r Reply
	if err := json.NewDecoder(io.LimitReader(conn, 1<<20)).Decode(&r); err != nil {
		return Reply{}, fmt.Errorf("the lab's answer: %w", noEOF(err))
	}
	if r.Error != "" {
		return r, fmt.Errorf("%w: %s", ErrRefused, r.Error)
	}
	return r, nil
}
