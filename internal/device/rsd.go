package device

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/framebridge/framebridge/internal/remotexpc"
)

// rsdTransport reaches the developer services of iOS 17 and later: through a tunnel, by Remote Service Discovery. It asks the agent and the
// phone anew for every connection, since a tunnel that restarts has another address and other ports.
type rsdTransport struct {
	facts Facts
	agent Agent
}

// tunnel asks the agent for the phone's tunnel.
func (t *rsdTransport) tunnel(ctx context.Context) (Tunnel, error) {
	found, err := t.agent.Find(ctx, t.facts.UDID)
	var p *Problem
	switch {
	case !errors.As(err, &p) || p.Code != NeedsTunnel:
	case t.facts.TunnelByCable():
		if err := t.facts.NeedsCable(); err != nil {
			return found, err
		}
	default:
		p.What += " (iOS " + t.facts.OSVersion + " has kernel tunnels only, which were never tested)"
		p.Remedy = kernelTunnelRemedy
		if t.agent.Answers(ctx) {
			p.Remedy = "unlock the phone; if the agent at " + t.agent.String() + " was started without --kernel, end it and run `" + kernelTunnelRemedy + "`"
		}
	}
	return found, err
}

func (t *rsdTransport) instruments() string { return "com.apple.instruments.dtservicehub" }

// shimSuffix is what RSD calls services that speak as they did over lockdown, after a check-in.
const shimSuffix = ".shim.remote"

func (t *rsdTransport) connect(ctx context.Context, service string) (net.Conn, error) {
	tunnel, err := t.tunnel(ctx)
	if err != nil {
		return nil, err
	}
	services, err := discover(ctx, t.agent, tunnel)
	if err != nil {
		return nil, err
	}
	port, shim := services[service], false
	if port == 0 {
		port, shim = services[service+shimSuffix], true
	}
	if port == 0 && service == t.instruments() {
		return nil, problem(DeveloperImageMissing, nil, imageRemedy(t.facts.UDID), "%s lists no instruments service: its developer disk image is missing or outdated", t.facts.UDID)
	}
	if port == 0 {
		return nil, problem(ServiceRefused, nil, "", "%s does not offer %s", t.facts.UDID, service)
	}
	conn, err := t.agent.dial(ctx, tunnel, port)
	if err != nil || !shim {
		return conn, err
	}
	release := bound(ctx, conn)
	if err := checkIn(conn); err != nil {
		conn.Close()
		err, _ = silence(ctx, fmt.Errorf("check-in at %s: %w", service, err), service+" of "+t.facts.UDID)
		return nil, err
	}
	release()
	return conn, nil
}

// checkIn is what a shim service expects first. It answers, and tells that it starts.
func checkIn(conn net.Conn) error {
	var answer, starts map[string]any
	if err := askPlist(conn, map[string]any{"Label": "framebridge", "ProtocolVersion": "2", "Request": "RSDCheckin"}, &answer); err != nil {
		return err
	}
	return readPlist(conn, &starts)
}

// discover asks the phone at the other end of a tunnel for its services and their ports.
func discover(ctx context.Context, a Agent, t Tunnel) (map[string]int, error) {
	conn, err := a.dial(ctx, t, t.RSDPort)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer bound(ctx, conn)()
	x, err := remotexpc.Dial(conn)
	if err != nil {
		return nil, rsdError(ctx, t, err)
	}
	for {
		_, m, err := x.Receive()
		if err != nil {
			return nil, rsdError(ctx, t, err)
		}
		if m.Body["MessageType"] == "Handshake" {
			return rsdServices(t, m.Body)
		}
	}
}

func rsdError(ctx context.Context, t Tunnel, err error) error {
	if err, explained := silence(ctx, err, "service discovery of "+t.UDID); explained {
		return err
	}
	return problem(BadAnswer, err, "", "%s answers service discovery with something else", t.UDID)
}

// rsdServices reads a handshake: whose it is, and the port of each service.
func rsdServices(t Tunnel, handshake map[string]any) (map[string]int, error) {
	properties, _ := handshake["Properties"].(map[string]any)
	if udid, _ := properties["UniqueDeviceID"].(string); udid != t.UDID {
		return nil, problem(BadAnswer, nil, "end the tunnel agent, and run `"+tunnelRemedy+"`", "the tunnel to %s leads to another phone, %q", t.UDID, udid)
	}
	list, ok := handshake["Services"].(map[string]any)
	if !ok {
		return nil, problem(BadAnswer, nil, "", "%s lists no services", t.UDID)
	}
	services := map[string]int{}
	for name, v := range list {
		entry, _ := v.(map[string]any)
		text, _ := entry["Port"].(string)
		if port, err := strconv.Atoi(text); err == nil && !badPort(port) {
			services[name] = port
		}
	}
	return services, nil
}

// CheckTunnel asks whether there is a tunnel to the phone, and whether it leads to its services. Releases that need none pass.
func (p *Phone) CheckTunnel(ctx context.Context) (found string, err error) {
	via, needed := p.developer.(*rsdTransport)
	if !needed {
		return "not needed", nil
	}
	ctx, cancel := context.WithTimeout(ctx, StepTimeout)
	defer cancel()
	tunnel, err := via.tunnel(ctx)
	if err != nil {
		return "", err
	}
	services, err := discover(ctx, via.agent, tunnel)
	if err != nil {
		return "", err
	}
	kind := "kernel tunnel"
	if tunnel.Userspace {
		kind = "userspace tunnel"
	}
	return fmt.Sprintf("%s by %s, %d services", kind, via.agent, len(services)), nil
}
