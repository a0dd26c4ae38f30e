package dtx

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func wallClock() int64 { return time.Now().UnixNano() }

// device is the other side of a connection under test.
type device struct {
	*Reader
	*Writer
	net.Conn
}

func newDevice(c net.Conn) *device { return &device{NewReader(c, nil), NewWriter(c), c} }

// publish is the device's part of the handshake, with the bytes of a real device where they are there.
func (d *device) publish() error {
	wire := capture("notify-published-capabilities.bin")
	if wire == nil {
		wire = must(AppendMessage(nil, must(Dispatch(0, 2, NotifyCapabilities, Capabilities())), MaxFragment))
	}
	_, err := d.Conn.Write(wire)
	return err
}

// serve answers what the host asks until the connection ends: channel requests with an acknowledgement, the rest by answer.
// Acknowledgements by the host go to acks.
func (d *device) serve(answer func(m Message, selector string) []Message, acks chan<- Message) {
	for {
		m, err := d.Next()
		if err != nil {
			return
		}
		if m.Type == TypeAck {
			acks <- m
			continue
		}
		selector, _ := m.Selector()
		if selector == RequestChannel {
			d.WriteMessage(m.Ack())
			continue
		}
		for _, a := range answer(m, selector) {
			d.WriteMessage(a)
		}
	}
}

func socketPair(t *testing.T) (host, dev net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if host, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if dev, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return host, dev
}

// connect makes a connection to a device that serves with answer.
func connect(t *testing.T, answer func(m Message, selector string) []Message) (*Conn, *device, chan Message) {
	t.Helper()
	host, dev := socketPair(t)
	d, acks := newDevice(dev), make(chan Message, 1000)
	if err := d.publish(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.serve(answer, acks)
	}()
	c, err := Connect(t.Context(), host, wallClock)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		dev.Close()
		<-done
	})
	return c, d, acks
}

func noAnswer(Message, string) []Message { return nil }

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits for what another goroutine is about to do.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not happen within 10 s", what)
		}
	}
}

func TestHandshakePublishesOursAndReturnsTheirs(t *testing.T) {
	got := make(chan Message, 1)
	c, _, _ := connect(t, func(m Message, _ string) []Message { got <- m; return nil })
	m := <-got
	selector, _ := m.Selector()
	args, err := m.Arguments()
	want := []any{map[string]any{"com.apple.private.DTXBlockCompression": uint64(0), "com.apple.private.DTXConnection": uint64(1)}}
	if selector != "_notifyOfPublishedCapabilities:" || m.Channel != 0 || m.ExpectsReply || err != nil || !reflect.DeepEqual(args, want) {
		t.Errorf("published %q with %v, %v in %+v", selector, args, err, m)
	}
	if capture("notify-published-capabilities.bin") == nil {
		t.Skip("SKIPPED, NOT TESTED: the capabilities of a real device: their capture is missing")
	}
	if v := c.Capabilities()["com.apple.private.DTXBlockCompression"]; v != uint64(2) {
		t.Errorf("the device's block compression is %v, want 2", v)
	}
}

func TestHandshakeEndsWithItsContext(t *testing.T) {
	host, dev := socketPair(t)
	defer dev.Close()
	_, err := Connect(within(t, 20*time.Millisecond), host, wallClock)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "DTX handshake: expected _notifyOfPublishedCapabilities: from the device, found nothing") {
		t.Errorf("error %v", err)
	}
	if _, err := host.Write([]byte{0}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the stream is still open: %v", err)
	}
}

func TestHandshakeWithSomethingThatIsNotDTX(t *testing.T) {
	host, dev := socketPair(t)
	defer dev.Close()
	dev.Write([]byte("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"))
	_, err := Connect(t.Context(), host, wallClock)
	if !errors.Is(err, ErrFraming) || !strings.Contains(err.Error(), "frame at byte 0: bad DTX framing: expected magic 79 5b 3d 1f, found 48 54 54 50") {
		t.Errorf("error %v", err)
	}
}

func TestChannelsAreRequestedByCodeAndIdentifier(t *testing.T) {
	host, dev := socketPair(t)
	d := newDevice(dev)
	defer dev.Close()
	d.publish()
	c, err := Connect(t.Context(), host, wallClock)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	must(d.Next()) // the host's capabilities
	for code := Int32(1); code <= 2; code++ {
		opened := make(chan error)
		go func() {
			ch, err := c.OpenChannel(within(t, 10*time.Second), "com.apple.instruments.server.services.deviceinfo")
			if err == nil && ch.Code() != int32(code) {
				err = fmt.Errorf("channel has code %d", ch.Code())
			}
			opened <- err
		}()
		m := must(d.Next())
		args, err := m.Arguments()
		want := []any{code, "com.apple.instruments.server.services.deviceinfo"}
		if s, _ := m.Selector(); s != "_requestChannelWithCode:identifier:" || m.Channel != 0 || m.Conversation != 0 || !m.ExpectsReply || err != nil || !reflect.DeepEqual(args, want) {
			t.Errorf("request %s %v, %v in %+v", s, args, err, m)
		}
		select {
		case err := <-opened:
			t.Fatalf("open before it was answered: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
		d.WriteMessage(m.Ack())
		if err := <-opened; err != nil {
			t.Fatal(err)
		}
	}
}

func TestRefusedChannelIsAnErrorWithTheDevicesText(t *testing.T) {
	host, dev := socketPair(t)
	d := newDevice(dev)
	defer dev.Close()
	d.publish()
	c, err := Connect(t.Context(), host, wallClock)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go func() {
		must(d.Next())
		d.WriteMessage(must(must(d.Next()).AnswerError(RemoteError{"DTXMessage", 1, "Unable to publish channel"})))
		d.WriteMessage(dataMessage(-1, 9, 10)) // and sends on it all the same
	}()
	_, err = c.OpenChannel(within(t, 10*time.Second), "nothing.of.that.name")
	var refusal *RemoteError
	if !errors.As(err, &refusal) || refusal.Code != 1 ||
		err.Error() != "open channel nothing.of.that.name: device error: Unable to publish channel (DTXMessage 1)" {
		t.Errorf("error %v", err)
	}
	eventually(t, "counting the message on it", func() bool { s := c.Stats(); return s.UnknownChannel+s.Ignored == 1 })
}

func TestCallsReturnWhatTheDeviceAnswers(t *testing.T) {
	c, _, _ := connect(t, func(m Message, selector string) []Message {
		data := m.Ack()
		data.Type, data.Payload = TypeData, []byte("raw")
		barrier := m.Ack()
		barrier.Type = TypeBarrier
		switch selector {
		case "machTimeInfo":
			return []Message{must(m.Answer([]any{uint64(1536005260807), uint64(125), uint64(3), uint64(1713684132688)}))}
		case "echo:with:and:":
			args := must(m.Arguments())
			return []Message{must(m.Answer([]any{fmt.Sprintf("%T %v", args[0], args[0]), args[1], args[2]}))}
		case "start":
			return []Message{m.Ack()}
		case "raw":
			return []Message{data}
		case "launch":
			return []Message{must(m.AnswerError(RemoteError{"NSPOSIXErrorDomain", -3, "No such process"}))}
		case "barrier":
			return []Message{barrier}
		}
		return nil
	})
	ch, err := c.OpenChannel(within(t, 10*time.Second), "svc")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		selector string
		args     []any
		value    any
		err      string
	}{
		{"machTimeInfo", nil, []any{uint64(1536005260807), uint64(125), uint64(3), uint64(1713684132688)}, ""},
		{"echo:with:and:", []any{Int32(-5), "text", map[string]any{"k": uint64(1)}}, []any{"dtx.Int32 -5", "text", map[string]any{"k": uint64(1)}}, ""},
		{"start", nil, nil, ""},
		{"raw", nil, []byte("raw"), ""},
		{"launch", nil, nil, "call launch on svc: device error: No such process (NSPOSIXErrorDomain -3)"},
		{"barrier", nil, nil, "call barrier on svc: expected an answer, found a message of type barrier"},
		{"bad:", []any{make(chan int)}, nil, "call bad: on svc: bad: argument 0: archive chan int: "},
	} {
		v, err := ch.Call(within(t, 10*time.Second), want.selector, want.args...)
		if !reflect.DeepEqual(v, want.value) || (err == nil) != (want.err == "") || err != nil && !strings.HasPrefix(err.Error(), want.err) {
			t.Errorf("%s returned %#v, %v, want %#v, %q", want.selector, v, err, want.value, want.err)
		}
	}
}

func TestManyCallsAtOnceEachGetTheirOwnAnswer(t *testing.T) {
	var held []Message
	c, _, _ := connect(t, func(m Message, selector string) []Message { // answers in pairs, the later first
		if selector != "double:" {
			return nil
		}
		n := must(m.Arguments())[0].(Int32)
		held = append([]Message{must(m.Answer(uint64(2 * n)))}, held...)
		if len(held) < 2 {
			return nil
		}
		out := held
		held = nil
		return out
	})
	var wg sync.WaitGroup
	for i := range 20 {
		ch, err := c.OpenChannel(within(t, 10*time.Second), "svc")
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			if v, err := ch.Call(within(t, 10*time.Second), "double:", Int32(i)); err != nil || v != uint64(2*i) {
				t.Errorf("double %d is %v, %v", i, v, err)
			}
		})
	}
	wg.Wait()
}

func TestCallWhoseContextEndsLeavesNothingAndItsLateAnswerIsCounted(t *testing.T) {
	asked := make(chan Message, 1)
	c, d, _ := connect(t, func(m Message, selector string) []Message {
		if selector == "slow" {
			asked <- m
		}
		return nil
	})
	ch, err := c.OpenChannel(within(t, 10*time.Second), "svc")
	if err != nil {
		t.Fatal(err)
	}
	_, err = ch.Call(within(t, 20*time.Millisecond), "slow")
	if !errors.Is(err, context.DeadlineExceeded) || err.Error() != "call slow on svc: no answer to message 3: context deadline exceeded" {
		t.Errorf("error %v", err)
	}
	c.mu.Lock()
	waiting := len(c.waiters)
	c.mu.Unlock()
	if waiting != 0 {
		t.Errorf("%d calls still wait", waiting)
	}
	m := <-asked
	d.WriteMessage(m.Ack())
	d.WriteMessage(Message{Type: TypeObject, Channel: 77, ID: 99, Conversation: 3}) // nobody ever asked
	eventually(t, "counting both stray answers", func() bool { return c.Stats().StrayAnswers == 2 })
	if err := c.Err(); err != nil {
		t.Errorf("the connection ended: %v", err)
	}
}

func TestEveryMessageThatExpectsAReplyIsAcknowledged(t *testing.T) {
	c, d, acks := connect(t, noAnswer)
	ch, err := c.OpenChannel(within(t, 10*time.Second), "svc")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []Message{
		{Type: TypeData, Channel: -1, ID: 40, ExpectsReply: true},                                   // to be received
		{Type: TypeObject, Channel: -5, ID: 41, Conversation: 2, ExpectsReply: true},                // on a channel that nobody has opened
		{Type: TypeDispatch, Channel: 0, ID: 42, ExpectsReply: true, Payload: []byte("unreadable")}, // on the control channel
		{Type: TypeProxied, Channel: 1, ID: 43, Conversation: 1, ExpectsReply: true},                // an answer that nobody waits for
		{Type: TypeData, Channel: -1, ID: 44},
	} {
		d.WriteMessage(m)
	}
	for _, want := range []Message{
		{Channel: -1, ID: 40, Conversation: 1}, {Channel: -5, ID: 41, Conversation: 3}, {Channel: 0, ID: 42, Conversation: 1}, {Channel: 1, ID: 43, Conversation: 2}} {
		if ack := <-acks; ack.Type != TypeAck || ack.Channel != want.Channel || ack.ID != want.ID || ack.Conversation != want.Conversation || ack.ExpectsReply {
			t.Errorf("acknowledgement %+v, want %+v", ack, want)
		}
	}
	// The capabilities were the first that the device has started. All have been read before the first of these is received.
	for _, want := range []Message{{ID: 40, Started: 2}, {ID: 44, Started: 5}} {
		if m, err := ch.Receive(within(t, 10*time.Second)); err != nil || m.ID != want.ID || m.Started != want.Started {
			t.Errorf("received %+v, %v, want message %d, started as number %d", m, err, want.ID, want.Started)
		}
	}
	s := c.Stats()
	if s.AcksSent != 4 || s.UnknownChannel != 1 || s.Ignored != 1 || s.StrayAnswers != 1 {
		t.Errorf("counted %+v", s)
	}
}

func TestMessagesTheDeviceStartsReachTheirChannel(t *testing.T) {
	c, d, _ := connect(t, noAnswer)
	first, err1 := c.OpenChannel(within(t, 10*time.Second), "first")
	second, err2 := c.OpenChannel(within(t, 10*time.Second), "second")
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	control := c.Control()
	before := time.Now().UnixNano()
	d.WriteMessage(must(Dispatch(-2, 5, "applicationStateNotification:", map[string]any{"pid": uint64(9)})))
	d.WriteMessage(dataMessage(-1, 6, 300_000)) // in fragments
	d.WriteMessage(must(Dispatch(0, 7, "outputReceived:fromProcess:atTime:", "hello", Int32(3), Int64(4))))
	d.WriteMessage(Message{Type: TypeData, Channel: -1, ID: 8, Conversation: 2, Payload: []byte("more")})

	m, err := second.Receive(within(t, 10*time.Second))
	if s, _ := m.Selector(); err != nil || s != "applicationStateNotification:" || !reflect.DeepEqual(must(m.Arguments()), []any{map[string]any{"pid": uint64(9)}}) {
		t.Errorf("second channel received %+v, %v", m, err)
	}
	m, err = first.Receive(within(t, 10*time.Second))
	if err != nil || m.ID != 6 || m.Channel != -1 || !bytes.Equal(m.Payload, dataMessage(-1, 6, 300_000).Payload) {
		t.Errorf("first channel received message %d with %d bytes, %v", m.ID, len(m.Payload), err)
	}
	if m.HostNs < before || m.HostNs > time.Now().UnixNano() {
		t.Errorf("stamped %d", m.HostNs)
	}
	m, err = control.Receive(within(t, 10*time.Second))
	if err != nil || !reflect.DeepEqual(must(m.Arguments()), []any{"hello", Int32(3), Int64(4)}) {
		t.Errorf("control channel received %+v, %v", m, err)
	}
	m, err = first.Receive(within(t, 10*time.Second))
	if err != nil || m.ID != 8 || m.Conversation != 2 || string(m.Payload) != "more" {
		t.Errorf("then received %+v, %v", m, err)
	}
	if _, err := first.Receive(within(t, 20*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) || err.Error() != "receive on first: context deadline exceeded" {
		t.Errorf("with nothing to receive: %v", err)
	}
}

func TestSendAsksForNoAnswer(t *testing.T) {
	got := make(chan Message, 2)
	c, _, _ := connect(t, func(m Message, _ string) []Message { got <- m; return nil })
	<-got // capabilities
	ch, err := c.OpenChannel(within(t, 10*time.Second), "svc")
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.Send(within(t, 10*time.Second), "setRate:", Int64(7)); err != nil {
		t.Fatal(err)
	}
	m := <-got
	if s, _ := m.Selector(); s != "setRate:" || m.ExpectsReply || m.Channel != 1 || !reflect.DeepEqual(must(m.Arguments()), []any{Int64(7)}) {
		t.Errorf("sent %+v", m)
	}
}

// piped runs the test with fake time and a connection over a pipe that holds nothing: what the device has written, the host has read.
func piped(t *testing.T, test func(t *testing.T, c *Conn, tap *Channel, d *device)) {
	synctest.Test(t, func(t *testing.T) {
		host, dev := net.Pipe()
		d := newDevice(dev)
		go func() {
			d.publish()
			must(d.Next())
			d.WriteMessage(must(d.Next()).Ack())
		}()
		start := time.Now()
		c, err := Connect(t.Context(), host, func() int64 { return int64(time.Since(start)) })
		if err != nil {
			t.Fatal(err)
		}
		defer dev.Close()
		defer c.Close()
		tap, err := c.OpenChannel(t.Context(), "tap")
		if err != nil {
			t.Fatal(err)
		}
		test(t, c, tap, d)
	})
}

func TestSlowConsumerLeavesTheSocketUnreadAndLosesNothing(t *testing.T) {
	for _, c := range []struct {
		name                 string
		size, total, written int
	}{
		{"by number", 1024, 1000, 64 + 1},        // queue of 64, one in hand
		{"by size", 3 << 20, 6, 2 + 1},           // queue of 8 MiB
		{"larger than the queue", 9 << 20, 3, 2}, // an empty queue takes any
	} {
		t.Run(c.name, func(t *testing.T) {
			piped(t, func(t *testing.T, conn *Conn, tap *Channel, d *device) {
				for round := range int64(2) { // the second begins where the first left the queue
					var written atomic.Int64
					go func() {
						m := dataMessage(-1, 0, c.size)
						for m.ID = range uint32(c.total) {
							m.Payload[0] = byte(m.ID)
							if d.WriteMessage(m) != nil {
								return
							}
							written.Add(1)
						}
					}()
					synctest.Wait() // until nobody can go on
					if got := written.Load(); got != int64(c.written) {
						t.Fatalf("the device could write %d messages, want %d", got, c.written)
					}
					time.Sleep(3 * time.Second)
					if s := conn.Stats(); s.BlockedNs != (round+1)*3e9 || written.Load() != int64(c.written) {
						t.Errorf("after 3 s: blocked for %d ns, %d messages written", s.BlockedNs, written.Load())
					}
					for id := range uint32(c.total) {
						m, err := tap.Receive(t.Context())
						if err != nil || m.ID != id || len(m.Payload) != c.size || m.Payload[0] != byte(id) {
							t.Fatalf("message %d: received %d with %d bytes, %v", id, m.ID, len(m.Payload), err)
						}
					}
					synctest.Wait()
					if s := conn.Stats(); s.BlockedNs != (round+1)*3e9 {
						t.Errorf("in the end: blocked for %d ns", s.BlockedNs)
					}
				}
			})
		})
	}
}

func TestIgnoreFreesAConnectionThatNobodyReceivesOn(t *testing.T) {
	piped(t, func(t *testing.T, c *Conn, tap *Channel, d *device) {
		go func() {
			for id := range uint32(100) {
				d.WriteMessage(dataMessage(-1, id, 10))
			}
		}()
		synctest.Wait()
		tap.Ignore()
		synctest.Wait()
		if s := c.Stats(); s.Ignored != 100 {
			t.Errorf("ignored %d messages, want 100", s.Ignored)
		}
	})
}

func TestCloseFreesAReaderThatWaitsForAConsumer(t *testing.T) {
	piped(t, func(t *testing.T, c *Conn, tap *Channel, d *device) {
		go func() {
			for id := range uint32(100) {
				if d.WriteMessage(dataMessage(-1, id, 10)) != nil {
					return
				}
			}
		}()
		synctest.Wait()
		c.Close()
		for id := range uint32(64) {
			if m, err := tap.Receive(t.Context()); err != nil || m.ID != id {
				t.Fatalf("message %d: received %d, %v", id, m.ID, err)
			}
		}
		if _, err := tap.Receive(t.Context()); !errors.Is(err, ErrClosed) || err.Error() != "receive on tap: DTX connection closed" {
			t.Errorf("then %v", err)
		}
	})
}

func TestBadFramingEndsTheConnectionForEverybody(t *testing.T) {
	c, d, _ := connect(t, noAnswer)
	tap, err := c.OpenChannel(within(t, 10*time.Second), "tap")
	if err != nil {
		t.Fatal(err)
	}
	called := make(chan error)
	go func() {
		_, err := tap.Call(within(t, 10*time.Second), "never")
		called <- err
	}()
	eventually(t, "the call", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.waiters) == 1
	})
	d.WriteMessage(dataMessage(-1, 1, 10))
	d.WriteMessage(dataMessage(-1, 2, 10))
	d.Conn.Write(make([]byte, 32))
	if err := <-called; !errors.Is(err, ErrFraming) || !strings.Contains(err.Error(), "call never on tap: no answer to message 3: frame at byte ") {
		t.Errorf("call: %v", err)
	}
	for id := uint32(1); id <= 2; id++ {
		if m, err := tap.Receive(within(t, 10*time.Second)); err != nil || m.ID != id {
			t.Errorf("received %d, %v, want message %d", m.ID, err, id)
		}
	}
	if _, err := tap.Receive(within(t, 10*time.Second)); !errors.Is(err, ErrFraming) || !strings.Contains(err.Error(), "expected magic 79 5b 3d 1f, found 00 00 00 00") {
		t.Errorf("receive: %v", err)
	}
	if err := tap.Send(within(t, 10*time.Second), "x"); !errors.Is(err, ErrFraming) {
		t.Errorf("send: %v", err)
	}
	if _, err := c.OpenChannel(within(t, 10*time.Second), "other"); !errors.Is(err, ErrFraming) {
		t.Errorf("open: %v", err)
	}
	if _, err := d.Conn.Read(make([]byte, 1)); err == nil {
		t.Error("the stream is still open")
	}
}

func TestDeviceThatHangsUpIsToldFromACloseOfOurs(t *testing.T) {
	c, d, _ := connect(t, noAnswer)
	d.Conn.(*net.TCPConn).CloseWrite()
	if _, err := c.Control().Receive(within(t, 10*time.Second)); !errors.Is(err, io.EOF) ||
		err.Error() != "receive on the control channel: the device has closed the DTX connection: EOF" {
		t.Errorf("error %v", err)
	}
	c.Close()
	if err := c.Err(); errors.Is(err, ErrClosed) {
		t.Errorf("a later Close hides the reason: %v", err)
	}
}

// lastWords answers a request and hangs up while the request is still being written.
type lastWords struct {
	net.Conn
	c *Conn
}

func (l *lastWords) Write(b []byte) (int, error) {
	l.c.answered(Message{Type: TypeData, Channel: 1, ID: 1, Conversation: 1, Payload: []byte("bye")})
	l.c.fail(io.EOF)
	return len(b), nil
}

func TestAnswerThatCameBeforeTheEndStillCounts(t *testing.T) {
	for range 30 { // without care it is a toss-up each time
		host, dev := net.Pipe()
		stream := &lastWords{Conn: host}
		stream.c = newConn(stream, wallClock)
		if v, err := stream.c.call(within(t, 10*time.Second), 1, "x"); err != nil || string(v.([]byte)) != "bye" {
			t.Fatalf("call returned %v, %v", v, err)
		}
		dev.Close()
	}
}

func TestCloseEndsACallThatWaits(t *testing.T) {
	c, _, _ := connect(t, noAnswer)
	ch, err := c.OpenChannel(within(t, 10*time.Second), "svc")
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(20*time.Millisecond, func() { c.Close() })
	if _, err := ch.Call(within(t, 10*time.Second), "never"); !errors.Is(err, ErrClosed) {
		t.Errorf("error %v", err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

func TestWriteToADeadPeerIsBounded(t *testing.T) {
	host, dev := socketPair(t)
	defer dev.Close()
	newDevice(dev).publish()
	c := newConn(host, wallClock)
	c.writeTimeout = 100 * time.Millisecond
	go c.run()
	defer c.Close()
	start := time.Now()
	var err error
	for err == nil { // until the socket's buffers are full
		err = c.write(t.Context(), dataMessage(1, 1, 1<<20))
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), "write DTX message 1 on channel 1 (") {
		t.Errorf("error %v", err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	if err := c.write(t.Context(), dataMessage(1, 1, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the next write: %v", err)
	}
}

func TestContextEndsTheWaitForAnothersWrite(t *testing.T) {
	host, dev := net.Pipe() // nobody reads
	defer dev.Close()
	c := newConn(host, wallClock)
	go c.run()
	first := make(chan error)
	go func() { first <- c.write(t.Context(), dataMessage(1, 1, 10)) }()
	eventually(t, "the first write", func() bool { return len(c.writing) == 1 })
	if err := c.write(within(t, 20*time.Millisecond), dataMessage(1, 2, 10)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("second write: %v", err)
	}
	c.Close()
	if err := <-first; !errors.Is(err, ErrClosed) {
		t.Errorf("first write: %v", err)
	}
}

func BenchmarkConn1KiBData(b *testing.B) {
	host, dev := net.Pipe()
	d := newDevice(dev)
	go func() {
		d.publish()
		must(d.Next())
		d.WriteMessage(must(d.Next()).Ack())
		wire := must(AppendMessage(nil, dataMessage(-1, 1, 1024), MaxFragment))
		batch := bytes.Repeat(wire, 60)
		for {
			if _, err := dev.Write(batch); err != nil {
				return
			}
		}
	}()
	c := must(Connect(b.Context(), host, wallClock))
	defer c.Close()
	tap := must(c.OpenChannel(b.Context(), "tap"))
	b.SetBytes(1024 + 48)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tap.Receive(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
