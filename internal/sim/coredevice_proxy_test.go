package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// cdHello is a client's half of the handshake.
func cdHello(mtu int) []byte {
	body := fmt.Sprintf(`{"mtu":%d,"type":"clientHandshakeRequest"}`, mtu)
	return append([]byte{'C', 'D', 'T', 'u', 'n', 'n', 'e', 'l', 0, byte(len(body))}, body...)
}

// openProxy is a connection to CoreDeviceProxy after the handshake, and what the phone said.
func openProxy(t *testing.T, udid string, mtu int) (net.Conn, map[string]any) {
	t.Helper()
	conn, err := connectService(udid, coreDeviceProxyName)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	conn.Write(cdHello(mtu))
	head := make([]byte, 10)
	if _, err := io.ReadFull(conn, head); err != nil || string(head[:9]) != "CDTunnel\x00" {
		t.Fatalf("%q, %v", head, err)
	}
	body := make([]byte, head[9])
	if _, err := io.ReadFull(conn, body); err != nil {
		t.Fatal(err)
	}
	var said map[string]any
	if err := json.Unmarshal(body, &said); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return conn, said
}

func TestCoreDeviceProxyGrantsAnMTUWithinBounds(t *testing.T) {
	startLab(t, DefaultDevice(udid26, "26.0"))
	for _, c := range []struct{ asked, want int }{{1280, 1280}, {1500, 1500}, {0, 1280}, {-5, 1280}, {16001, 16000}} {
		_, said := openProxy(t, udid26, c.asked)
		p, _ := said["clientParameters"].(map[string]any)
		server, err := netip.ParseAddr(fmt.Sprint(said["serverAddress"]))
		client, err2 := netip.ParseAddr(fmt.Sprint(p["address"]))
		if p["mtu"] != float64(c.want) || said["type"] != "serverHandshakeResponse" || p["netmask"] != "ffff:ffff:ffff:ffff::" {
			t.Errorf("asked for %d: %v", c.asked, said)
		}
		if err != nil || err2 != nil || server.Next() != client || !server.IsPrivate() || said["serverRSDPort"].(float64) < 49152 {
			t.Errorf("addresses %v and %v in %v", server, client, said)
		}
	}
}

func TestCoreDeviceProxyEndsWithWhoeverSpeaksSomethingElse(t *testing.T) {
	startLab(t, DefaultDevice(udid26, "26.0"))
	for _, c := range []struct {
		name  string
		hello []byte
	}{
		{"no magic", []byte("CDFunnel\x00\x02{}")},
		{"no JSON", []byte("CDTunnel\x00\x02{]")},
		{"another request", []byte(`CDTunnel` + "\x00\x0e" + `{"type":"bye"}`)},
		{"a long one", append([]byte("CDTunnel\x10\x01"), make([]byte, 4097)...)},
		{"a version that is none", append(cdHello(1280), append([]byte{0x40}, make([]byte, 39)...)...)},
		{"a packet past the MTU", append(cdHello(1280), append([]byte{0x60, 0, 0, 0, 0x04, 0xd9}, make([]byte, 34)...)...)}, // 40 + 1241
	} {
		conn, err := connectService(udid26, coreDeviceProxyName)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(10 * time.Second))
		conn.Write(c.hello)
		if _, err := io.Copy(io.Discard, conn); os.IsTimeout(err) {
			t.Errorf("%s: the connection stays", c.name)
		}
		conn.Close()
	}
}

// syn is a packet that asks for a connection.
func syn(from, to netip.Addr, port uint16) []byte {
	b := make([]byte, 60)
	ip, seg := header.IPv6(b), header.TCP(b[40:])
	src, dst := tcpip.AddrFrom16(from.As16()), tcpip.AddrFrom16(to.As16())
	ip.Encode(&header.IPv6Fields{PayloadLength: 20, TransportProtocol: header.TCPProtocolNumber, HopLimit: 64, SrcAddr: src, DstAddr: dst})
	seg.Encode(&header.TCPFields{SrcPort: 40000, DstPort: port, SeqNum: 1, DataOffset: 20, Flags: header.TCPFlagSyn, WindowSize: 65535})
	sum := header.PseudoHeaderChecksum(header.TCPProtocolNumber, src, dst, 20)
	seg.SetChecksum(^checksum.Checksum(seg, sum))
	return b
}

// A client that vanishes in the middle of making a connection leaves nothing behind: the lab's Close waits for everything.
func TestPortsOfATunnelAnswerOrRefuseAndAVanishedClientIsForgotten(t *testing.T) {
	l := startLab(t, DefaultDevice(udid26, "26.0"))
	conn, said := openProxy(t, udid26, 1280)
	phone := netip.MustParseAddr(said["serverAddress"].(string))
	rsd := uint16(said["serverRSDPort"].(float64))
	for _, c := range []struct {
		port uint16
		want header.TCPFlags
	}{{rsd, header.TCPFlagSyn | header.TCPFlagAck}, {1, header.TCPFlagRst | header.TCPFlagAck}} {
		conn.Write(syn(phone.Next(), phone, c.port))
		packet, err := readPacket(conn, 1280)
		if err != nil {
			t.Fatal(err)
		}
		if got := header.TCP(packet[40:]); got.Flags() != c.want || got.SourcePort() != c.port || got.AckNumber() != 2 {
			t.Errorf("port %d answers with %v, want %v", c.port, got.Flags(), c.want)
		}
	}
	begin := time.Now()
	if err := l.Close(); err != nil || time.Since(begin) > 5*time.Second {
		t.Errorf("closed after %s: %v", time.Since(begin), err)
	}
}

func TestReadPacketTakesWholePacketsOnly(t *testing.T) {
	one := syn(netip.MustParseAddr("fd00::2"), netip.MustParseAddr("fd00::1"), 7)
	r := bytes.NewReader(append(append(bytes.Clone(one), one...), one[:59]...))
	for range 2 {
		if p, err := readPacket(r, 1280); err != nil || !bytes.Equal(p, one) {
			t.Fatalf("% x, %v", p, err)
		}
	}
	if p, err := readPacket(r, 1280); err != io.ErrUnexpectedEOF {
		t.Errorf("half a packet: % x, %v", p, err)
	}
}

func FuzzCoreDeviceProxy(f *testing.F) {
	hello := cdHello(1280)
	a, b := netip.MustParseAddr("fd00::2"), netip.MustParseAddr("fd00::1")
	f.Add(hello)
	f.Add(append(bytes.Clone(hello), syn(a, b, 49152)...))
	f.Add([]byte("CDTunnel\xff\xff"))
	d := stillLab(f).devices[0]
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		mtu, err := readCDRequest(r)
		if err != nil {
			return
		}
		if mtu < 1280 || mtu > 16000 {
			t.Fatalf("MTU %d", mtu)
		}
		tun := d.newTunnel()
		tun.address = b
		ctx, cancel := context.WithCancel(t.Context())
		tun.hangUp = cancel
		d.update(func() { d.addTunnelLocked(tun) })
		_ = tun.carry(ctx, byteConn{Reader: r}, mtu) // every end is a good one, as long as there is an end
	})
}
