package device

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/danielpaulus/go-ios/ios"
	"golang.org/x/net/http2"
)

// Agent is where a tunnel agent tells of its tunnels: go-ios's info API, which `framebridge tunnel` serves too.
type Agent struct {
	Host string
	Port int
}

// DefaultAgent is the agent that $GO_IOS_AGENT_HOST and $GO_IOS_AGENT_PORT name, else 127.0.0.1:60105, as go-ios has it.
func DefaultAgent() Agent { return Agent{Host: ios.HttpApiHost(), Port: ios.HttpApiPort()} }

func (a Agent) String() string { return net.JoinHostPort(a.Host, strconv.Itoa(a.Port)) }

// Tunnel leads to one phone. Its JSON is that of go-ios's info API.
type Tunnel struct {
	UDID    string `json:"udid"`
	Address string `json:"address"` // the phone's, in the tunnel
	RSDPort int    `json:"rsdPort"`
	// Userspace says that the agent carries connections: they are dialled at UserspacePort of the agent's host, and begin with the
	// address and port that they are for. Otherwise the system routes to Address.
	Userspace     bool `json:"userspaceTun"`
	UserspacePort int  `json:"userspaceTunPort"`
}

// maxAgentAnswer bounds what is read of an agent: a tunnel takes some 150 bytes.
const maxAgentAnswer = 64 << 10

// agentTimeout bounds the agent's answer: it is on this host, or near.
const agentTimeout = 3 * time.Second

// Find asks the agent for a phone's tunnel.
func (a Agent) Find(ctx context.Context, udid string) (Tunnel, error) {
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	var t Tunnel
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+a.String()+"/tunnel/"+url.PathEscape(udid), nil)
	if err != nil {
		return t, problem(NeedsTunnel, err, "", "no address of a tunnel agent")
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return t, problem(NeedsTunnel, nil, tunnelRemedy, "no tunnel agent answers at %s", a)
	} else if err != nil {
		return t, a.fault(ctx, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAgentAnswer))
	switch {
	case err != nil:
		return t, a.fault(ctx, err)
	case response.StatusCode == http.StatusNotFound:
		why, _, _ := strings.Cut(strings.TrimSpace(string(body)), "\n")
		return t, problem(NeedsTunnel, errors.New(shorten(why)), "unlock the phone; the agent tries again", "the tunnel agent at %s has no tunnel to %s", a, udid)
	case response.StatusCode != http.StatusOK:
		return t, problem(BadAnswer, nil, a.endIt(), "the tunnel agent at %s answers %s", a, response.Status)
	}
	if err := json.Unmarshal(body, &t); err != nil {
		return t, problem(BadAnswer, err, a.endIt(), "what answers at %s is no tunnel agent", a)
	}
	if _, err := netip.ParseAddr(t.Address); err != nil || t.UDID != udid || badPort(t.RSDPort) || t.Userspace && badPort(t.UserspacePort) {
		return t, problem(BadAnswer, nil, a.endIt(), "the tunnel agent at %s gives a tunnel that leads nowhere: %+v", a, t)
	}
	return t, nil
}

// endIt is the remedy for what is no good agent: its port is taken until it ends.
func (a Agent) endIt() string {
	return "end what listens at " + a.String() + ", or set GO_IOS_AGENT_PORT to another port"
}

// fault is an agent that does not answer, or not as one.
func (a Agent) fault(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	if silent(ctx, err) {
		return problem(NoAnswer, err, "end it, and run `"+tunnelRemedy+"`", "the tunnel agent at %s does not answer", a)
	}
	return problem(BadAnswer, err, a.endIt(), "what answers at %s is no tunnel agent", a)
}

// Probe is nil where something at the phone's end of a tunnel still talks: its service discovery begins HTTP/2 as soon as it is greeted.
func (a Agent) Probe(ctx context.Context, t Tunnel) error {
	conn, err := a.dial(ctx, t, t.RSDPort)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer bound(ctx, conn)()
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return err
	}
	if err := http2.NewFramer(conn, conn).WriteSettings(); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, make([]byte, 1))
	return err
}

// Answers reports whether an agent is there at all.
func (a Agent) Answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", a.String())
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

func badPort(port int) bool { return port < 1 || port > 65535 }

// dial opens a connection to a port of the phone through the tunnel.
func (a Agent) dial(ctx context.Context, t Tunnel, port int) (net.Conn, error) {
	if badPort(port) {
		return nil, problem(BadAnswer, nil, "", "port %d of %s is none", port, t.UDID)
	}
	var d net.Dialer
	address := net.JoinHostPort(t.Address, strconv.Itoa(port))
	if t.Userspace {
		address = net.JoinHostPort(a.Host, strconv.Itoa(t.UserspacePort))
	}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		if err, explained := silence(ctx, err, "the tunnel to "+t.UDID); explained {
			return nil, err
		}
		return nil, problem(ConnectionLost, err, "", "the tunnel to %s is broken", t.UDID)
	}
	if t.Userspace {
		preamble := netip.MustParseAddr(t.Address).As16() // Find has parsed it
		head := append(preamble[:], byte(port), byte(port>>8), 0, 0)
		release := bound(ctx, conn)
		_, err := conn.Write(head)
		release()
		if err != nil {
			conn.Close()
			return nil, problem(ConnectionLost, err, "", "the tunnel to %s is broken", t.UDID)
		}
	}
	return conn, nil
}
