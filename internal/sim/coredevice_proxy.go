package sim

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	packets "gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// CoreDeviceProxy makes a tunnel of its own connection: after a handshake it carries IPv6 packets, one behind the other, and nothing else.
// At the phone's end of them is an IP stack, on which service discovery and the services listen.
const coreDeviceProxyName = "com.apple.internal.devicecompute.CoreDeviceProxy"

// The handshake is a message of JSON in each direction: the magic, its length as big-endian u16, then itself.
const (
	cdTunnelMagic  = "CDTunnel"
	cdTunnelHeader = len(cdTunnelMagic) + 2
	// maxCDRequest bounds what a client says; go-ios says 42 bytes.
	maxCDRequest = 4 << 10
	// maxCDReply is what go-ios can read: it takes the length as a byte.
	maxCDReply = 255
)

// MTUs that may be agreed on: IPv6 demands the least, phones grant the most to Apple's own tools.
const (
	minMTU = 1280
	maxMTU = 16000
)

const (
	// packetQueue is how many packets may wait to be written; TCP repeats those that find no place.
	packetQueue = 1024
	// maxHandshakes bounds the TCP connections that are being made at a time.
	maxHandshakes = 64
	// packetBatch is how many bytes of packets are written at once.
	packetBatch = 64 << 10
)

type cdRequest struct {
	Type string `json:"type"`
	MTU  int64  `json:"mtu"`
}

type cdReply struct {
	Type             string       `json:"type"`
	ClientParameters cdParameters `json:"clientParameters"`
	ServerAddress    string       `json:"serverAddress"`
	ServerRSDPort    uint16       `json:"serverRSDPort"`
}

type cdParameters struct {
	Address string `json:"address"`
	Netmask string `json:"netmask"`
	MTU     int64  `json:"mtu"`
}

// readCDRequest reads the client's half of the handshake and grants the MTU that it asks for, within bounds.
func readCDRequest(r io.Reader) (mtu uint32, err error) {
	var head [cdTunnelHeader]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, err
	}
	if !bytes.HasPrefix(head[:], []byte(cdTunnelMagic)) {
		return 0, fmt.Errorf("expected %s, found %q", cdTunnelMagic, head[:len(cdTunnelMagic)])
	}
	n := binary.BigEndian.Uint16(head[len(cdTunnelMagic):])
	if n > maxCDRequest {
		return 0, fmt.Errorf("a request of %d bytes, at most %d are read", n, maxCDRequest)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return 0, noEOF(err)
	}
	var request cdRequest
	if err := json.Unmarshal(body, &request); err != nil {
		return 0, fmt.Errorf("the request: %w", err)
	}
	if request.Type != "clientHandshakeRequest" {
		return 0, fmt.Errorf("expected a clientHandshakeRequest, found %q", request.Type)
	}
	return uint32(min(max(request.MTU, minMTU), maxMTU)), nil
}

// reply is the phone's half of the handshake.
func (t *tunnel) reply(mtu uint32) ([]byte, error) {
	client := t.address.As16()
	client[15]++
	body, err := json.Marshal(cdReply{Type: "serverHandshakeResponse", ServerAddress: t.address.String(), ServerRSDPort: t.rsdPort,
		ClientParameters: cdParameters{Address: netip.AddrFrom16(client).String(), Netmask: "ffff:ffff:ffff:ffff::", MTU: int64(mtu)}})
	if err == nil && len(body) > maxCDReply {
		err = fmt.Errorf("a reply of %d bytes, clients read at most %d", len(body), maxCDReply)
	}
	return append(binary.BigEndian.AppendUint16([]byte(cdTunnelMagic), uint16(len(body))), body...), err
}

var errGone = errors.New("the phone has gone, or makes no tunnels now")

func serveCoreDeviceProxy(ctx context.Context, d *Device, conn net.Conn) error {
	mtu, err := readCDRequest(conn)
	if err != nil {
		return fmt.Errorf("CDTunnel: %w", err)
	}
	if err := d.beforeAnswer(ctx, coreDeviceProxyName); err != nil {
		return err
	}
	t := d.newTunnel()
	if t.dead.Load() {
		return swallow(conn)
	}
	ctx, t.hangUp = context.WithCancel(ctx)
	defer t.hangUp()
	raw := conn // beneath TLS, whose Close would wait for a client that does not read
	if secure, ok := conn.(interface{ NetConn() net.Conn }); ok {
		raw = secure.NetConn()
	}
	defer context.AfterFunc(ctx, func() { raw.Close() })()
	added := false
	d.update(func() { added = d.addTunnelLocked(t) })
	if !added {
		return errGone
	}
	answer, err := t.reply(mtu)
	if err == nil {
		_, err = conn.Write(answer)
	}
	if err == nil {
		err = t.carry(ctx, conn, mtu)
	}
	d.endTunnels(func(other *tunnel) bool { return other == t })
	return err
}

// carry gives the tunnel's address an IP stack, and takes packets to and from it until the client or the tunnel ends.
func (t *tunnel) carry(ctx context.Context, conn net.Conn, mtu uint32) error {
	wire := packets.New(packetQueue, mtu, "")
	s, err := t.newStack(wire)
	if err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		sent <- t.sendPackets(ctx, conn, wire)
		t.hangUp()
	}()
	err = t.receivePackets(conn, wire, int(mtu))
	t.hangUp()
	if sendErr := <-sent; err == nil {
		err = sendErr
	}
	t.d.endTunnels(func(other *tunnel) bool { return other == t }) // before the stack, so that nobody is accepted any more
	s.Destroy()
	t.accepted.Wait()
	return err
}

// newStack is the phone's end of the wire: TCP over IPv6, on which any port is asked for by open.
func (t *tunnel) newStack(wire stack.LinkEndpoint) (*stack.Stack, error) {
	const nic = 1
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
	})
	var err tcpip.Error
	if err = s.CreateNIC(nic, wire); err == nil {
		address := tcpip.ProtocolAddress{Protocol: ipv6.ProtocolNumber, AddressWithPrefix: tcpip.AddrFrom16(t.address.As16()).WithPrefix()}
		err = s.AddProtocolAddress(nic, address, stack.AddressProperties{})
	}
	if err != nil {
		s.Destroy()
		return nil, fmt.Errorf("the phone's IP stack: %s", err)
	}
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv6EmptySubnet, NIC: nic}})
	s.SetTransportProtocolHandler(tcp.ProtocolNumber, tcp.NewForwarder(s, 0, maxHandshakes, t.accept).HandlePacket)
	return s, nil
}

// accept serves a TCP connection that the client makes, or refuses it.
func (t *tunnel) accept(r *tcp.ForwarderRequest) {
	ended := false
	t.d.update(func() {
		if ended = t.ended; !ended {
			t.accepted.Add(1)
		}
	})
	if ended {
		r.Complete(true)
		return
	}
	defer t.accepted.Done()
	open, err := t.open(r.ID().LocalPort)
	if err != nil {
		t.d.lab.log.Debug().Str("udid", t.d.UDID).Err(err).Msg("connection refused")
		r.Complete(true)
		return
	}
	var queue waiter.Queue
	ep, tcpErr := r.CreateEndpoint(&queue)
	r.Complete(tcpErr != nil)
	if tcpErr != nil {
		return
	}
	conn := stackConn{gonet.NewTCPConn(&queue, ep)}
	if !t.d.lab.admit(conn) {
		conn.Close()
		return
	}
	t.d.lab.talk(conn, func(conn net.Conn) error { return t.d.connect(conn, t, open) })
}

// stackConn is a connection of the phone's IP stack. Unlike the stack's own, its Close also ends what waits on it.
type stackConn struct{ *gonet.TCPConn }

func (c stackConn) Close() error {
	c.SetDeadline(time.Unix(1, 0))
	return c.TCPConn.Close()
}

// receivePackets hands the client's packets to the IP stack until the client says goodbye.
func (t *tunnel) receivePackets(r io.Reader, wire *packets.Endpoint, mtu int) error {
	in := bufio.NewReaderSize(r, packetBatch)
	for {
		packet, err := readPacket(in, mtu)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("tunnel: %w", err)
		}
		if t.dead.Load() {
			continue
		}
		p := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(packet)})
		wire.InjectInbound(header.IPv6ProtocolNumber, p)
		p.DecRef()
	}
}

// readPacket reads one IPv6 packet; its header says how long it is.
func readPacket(r io.Reader, mtu int) ([]byte, error) {
	var head [header.IPv6MinimumSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	if head[0]>>4 != 6 {
		return nil, fmt.Errorf("expected an IPv6 packet, found version %d", head[0]>>4)
	}
	n := len(head) + int(binary.BigEndian.Uint16(head[4:]))
	if n > mtu {
		return nil, fmt.Errorf("a packet of %d bytes, the MTU is %d", n, mtu)
	}
	packet := make([]byte, n)
	copy(packet, head[:])
	_, err := io.ReadFull(r, packet[len(head):])
	return packet, noEOF(err)
}

// sendPackets writes the IP stack's packets to the client until ctx ends, as many at once as there are.
func (t *tunnel) sendPackets(ctx context.Context, w io.Writer, wire *packets.Endpoint) error {
	var out []byte
	for {
		out = out[:0]
		for p := wire.ReadContext(ctx); p != nil; p = wire.Read() {
			for _, part := range p.AsSlices() {
				out = append(out, part...)
			}
			p.DecRef()
			if len(out) >= packetBatch {
				break
			}
		}
		if len(out) == 0 {
			return nil // ctx has ended
		}
		if t.dead.Load() {
			continue
		}
		if _, err := w.Write(out); err != nil {
			return err
		}
	}
}
