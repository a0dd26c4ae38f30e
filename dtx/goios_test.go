package dtx

import (
	"bytes"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/danielpaulus/go-ios/ios"
	goios "github.com/danielpaulus/go-ios/ios/dtx_codec"
	"github.com/danielpaulus/go-ios/ios/nskeyedarchiver"
)

// onePort makes go-ios find every service at one port.
type onePort int

func (p onePort) GetPort(string) int                          { return int(p) }
func (p onePort) GetService(int) string                       { return "" }
func (p onePort) GetServices() map[string]ios.RsdServiceEntry { return nil }

// discard takes what the device starts on a channel. Negative codes never get here: go-ios hands them to its global dispatcher.
type discard struct{}

func (discard) Dispatch(goios.Message) {}

// go-ios's client is a foreign reader and writer of the same bytes: what it says to a device made of our Reader and Writer, and what
// it makes of the answers, checks both without our own word for it.
func TestGoIosTalksToADeviceMadeOfReaderAndWriter(t *testing.T) {
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skipf("SKIPPED, NOT TESTED: go-ios needs an IPv6 loopback: %v", err)
	}
	defer l.Close()
	type request struct {
		m        Message
		selector string
		args     []any
	}
	requests, acks, served := make(chan request, 10), make(chan Message, 10), make(chan error, 1)
	big := strings.Repeat("0123456789abcdef", 20_000) // its answer takes three fragments
	go func() {
		served <- func() error {
			conn, err := l.Accept()
			if err != nil {
				return err
			}
			defer conn.Close()
			r, w := NewReader(conn, nil), NewWriter(conn)
			if err := w.WriteMessage(must(Dispatch(0, 1, NotifyCapabilities, Capabilities()))); err != nil {
				return err
			}
			for {
				m, err := r.Next()
				if err != nil {
					return nil // go-ios closes
				}
				if m.Type == TypeAck {
					acks <- m
					continue
				}
				req := request{m: m}
				if req.selector, err = m.Selector(); err != nil {
					return err
				}
				if req.args, err = m.Arguments(); err != nil {
					return err
				}
				requests <- req
				answer := m.Ack()
				switch req.selector {
				case "machTimeInfo":
					answer = must(m.Answer([]any{uint64(1536005260807), uint64(125), uint64(3)}))
				case "big":
					answer = must(m.Answer(big))
				case "refuse":
					answer = must(m.AnswerError(RemoteError{"DTXMessage", 2, "not today"}))
				}
				time.Sleep(100 * time.Millisecond) // go-ios loses an answer that comes before it waits, and 5 ms were not enough on a busy machine
				if m.ExpectsReply {
					err = w.WriteMessage(answer)
				}
				if req.selector == "start" {
					note := must(Dispatch(-m.Channel, 1000, "note:", "hi", Int32(-3), Int64(1<<40)))
					note.ExpectsReply = true
					err = w.WriteMessage(note)
				}
				if err != nil {
					return err
				}
			}
		}()
	}()

	conn, err := goios.NewTunnelConnection(ios.DeviceEntry{Address: "::1", Rsd: onePort(l.Addr().(*net.TCPAddr).Port)}, "any")
	if err != nil {
		t.Fatal(err)
	}
	ch := conn.RequestChannelIdentifier("com.apple.instruments.server.services.deviceinfo", discard{})
	if r := <-requests; r.selector != RequestChannel || r.m.Channel != 0 || !r.m.ExpectsReply || len(r.args) != 2 || r.args[0] != Int32(1) ||
		r.args[1] != "com.apple.instruments.server.services.deviceinfo" {
		t.Errorf("channel request was read as %+v", r)
	}

	m, err := ch.MethodCall("machTimeInfo", "an argument", uint64(7))
	if err != nil || len(m.Payload) != 1 || len(m.Payload[0].([]any)) != 3 || m.Payload[0].([]any)[0] != uint64(1536005260807) {
		t.Errorf("go-ios read the answer as %v, %v", m.Payload, err)
	}
	if r := <-requests; r.selector != "machTimeInfo" || r.m.Channel != 1 || len(r.args) != 2 || r.args[0] != "an argument" || r.args[1] != uint64(7) {
		t.Errorf("call was read as %+v", r)
	}

	m, err = ch.MethodCall("big")
	if err != nil || len(m.Payload) != 1 || m.Payload[0] != big {
		t.Errorf("go-ios read an answer in fragments with %d values, %v", len(m.Payload), err)
	}
	<-requests

	if _, err = ch.MethodCall("refuse"); err == nil || !strings.Contains(err.Error(), "not today (Error code: 2, Domain: DTXMessage)") {
		t.Errorf("go-ios read the refusal as %v", err)
	}
	<-requests

	if err := ch.MethodCallAsync("start"); err != nil {
		t.Fatal(err)
	}
	if r := <-requests; r.selector != "start" || r.m.ExpectsReply {
		t.Errorf("message without reply was read as %+v", r)
	}
	if ack := <-acks; ack.ID != 1000 || ack.Conversation != 1 || ack.Channel != -1 {
		t.Errorf("go-ios's acknowledgement was read as %+v", ack)
	}
	conn.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// go-ios's encoder and ours must produce the same bytes for the same call.
func TestDispatchHasTheBytesThatGoIosSends(t *testing.T) {
	arguments := goios.NewPrimitiveDictionary()
	arguments.AddInt32(17)
	arguments.AddNsKeyedArchivedObject("com.apple.instruments.server.services.activitytracetap")
	theirs, err := goios.Encode(9, 0, 4, true, goios.Methodinvocation, must(nskeyedarchiver.ArchiveBin(RequestChannel)), arguments)
	if err != nil {
		t.Fatal(err)
	}
	m := must(Dispatch(4, 9, RequestChannel, Int32(17), "com.apple.instruments.server.services.activitytracetap"))
	m.ExpectsReply = true
	if ours := must(AppendMessage(nil, m, MaxFragment)); !bytes.Equal(ours, theirs) {
		t.Errorf("ours   % x\ntheirs % x", ours, theirs)
	}
}
