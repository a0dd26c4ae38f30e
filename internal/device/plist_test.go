package device

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"howett.net/plist"
)

// doubling is a binary property list of 220 bytes: 40 arrays, each of which holds the next one twice. A decoder makes 2^40 objects of it.
func doubling() []byte {
	b := []byte("bplist00")
	var offsets []byte
	for i := range byte(40) {
		offsets = append(offsets, byte(len(b)))
		b = append(b, 0xA2, i+1, i+1)
	}
	offsets = append(offsets, byte(len(b)))
	b = append(b, 0x10, 7)
	table := byte(len(b))
	trailer := make([]byte, 32)
	trailer[6], trailer[7], trailer[15], trailer[31] = 1, 1, 41, table
	return append(append(b, offsets...), trailer...)
}

// Each of these would take all memory or overflow the stack in the decoder, whoever sends it, and nothing there can be recovered from.
func TestMessagesThatWouldEndTheProcessAreBadAnswersWhoeverSendsThem(t *testing.T) {
	framed := func(b []byte) []byte { return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...) }
	muxFramed := func(b []byte) []byte {
		head := make([]byte, 16)
		binary.LittleEndian.PutUint32(head, uint32(16+len(b)))
		head[4], head[8], head[12] = 1, 8, 1
		return append(head, b...)
	}
	for what, bomb := range map[string][]byte{
		"objects that double":             doubling(),
		"XML of 140,000 levels":           []byte("<plist>" + strings.Repeat("<array>", 140_000)),
		"the text form of 900,000 levels": []byte(strings.Repeat("(", 900_000)),
		"XML of 900,000 levels":           []byte("<plist>" + strings.Repeat("<array>", 900_000)),
	} {
		for who, ask := range map[string]func(context.Context, *Phone) error{
			"usbmuxd ListDevices":    func(ctx context.Context, _ *Phone) error { _, err := List(ctx); return err },
			"usbmuxd Listen":         func(ctx context.Context, _ *Phone) error { _, err := WaitAttached(ctx, "U"); return err },
			"usbmuxd ReadPairRecord": func(ctx context.Context, _ *Phone) error { _, err := pairRecord(ctx, "U"); return err },
			"usbmuxd Connect":        func(ctx context.Context, _ *Phone) error { _, _, err := connectPort(ctx, 1, 1); return err },
			"a pair record":          func(ctx context.Context, _ *Phone) error { _, err := pairRecord(ctx, "U"); return err },
			"lockdownd GetValue":     func(ctx context.Context, p *Phone) error { _, err := ReadFacts(ctx, p.plain.entry); return err },
			"lockdownd StartSession": func(ctx context.Context, p *Phone) error { return p.CheckPairing(ctx) },
			"lockdownd StartService": func(ctx context.Context, p *Phone) error { return p.CheckDeveloperImage(ctx) },
			"the image mounter":      func(ctx context.Context, p *Phone) error { return p.CheckDeveloperImage(ctx) },
			"house_arrest":           func(ctx context.Context, p *Phone) error { _, err := p.OpenDocuments(ctx, "app"); return err },
			"notification proxy":     func(ctx context.Context, p *Phone) error { return p.PostNotification(ctx, "n") },
			"a check-in": func(ctx context.Context, p *Phone) error {
				conn, _, err := connectPort(ctx, 1, 5)
				if err != nil {
					return err
				}
				defer conn.Close()
				err, _ = silence(ctx, checkIn(conn), "a shim")
				return err
			},
		} {
			// Everybody answers as a phone without TLS does, until it is the turn of the one who does not.
			lockdownd := func(conn net.Conn) {
				for {
					request := readFramed(conn)
					switch kind, _ := request["Request"].(string); {
					case request == nil:
						return
					case who == "lockdownd "+kind:
						conn.Write(framed(bomb))
					case kind == "StartService":
						conn.Write(lockdownMessage(map[string]any{"Port": 5}))
					default:
						conn.Write(lockdownMessage(map[string]any{"Request": kind}))
					}
				}
			}
			muxd(t, func(conn net.Conn) {
				request := readMux(conn)
				switch kind, _ := request["MessageType"].(string); {
				case who == "usbmuxd "+kind:
					conn.Write(muxFramed(bomb))
				case kind == "ReadPairRecord":
					conn.Write(muxMessage(map[string]any{"PairRecordData": bomb}))
				case kind == "Connect" && request["PortNumber"] == uint64(0x7EF2): // 62078, lockdownd's, in the byte order of networks
					conn.Write(muxMessage(map[string]any{"MessageType": "Result", "Number": 0}))
					lockdownd(conn)
				case kind == "Connect":
					conn.Write(muxMessage(map[string]any{"MessageType": "Result", "Number": 0}))
					readFramed(conn)
					conn.Write(framed(bomb))
					io.Copy(io.Discard, conn)
				}
			})
			phone := &Phone{Facts: Facts{UDID: "U", OSVersion: "16.7"}, plain: &usbmuxTransport{entry: Entry{UDID: "U", DeviceID: 1, Connection: "USB"}}}
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			began := time.Now()
			if err := ask(ctx, phone); CodeOf(err) != BadAnswer {
				t.Errorf("%s from %s: %.300v (code %q), want code %q", what, who, err, CodeOf(err), BadAnswer)
			}
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("%s from %s: it took %s", what, who, took)
			}
			cancel()
		}
	}
}

// readFramed reads one message with its length before it.
func readFramed(conn net.Conn) (m map[string]any) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(conn, head); err != nil {
		return nil
	}
	body := make([]byte, binary.BigEndian.Uint32(head))
	io.ReadFull(conn, body)
	plist.Unmarshal(body, &m)
	return m
}
