package remotexpc

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"

	goios "github.com/danielpaulus/go-ios/ios/xpc"
	"golang.org/x/net/http2"
)

var sample = map[string]any{
	"text": "héllo", "empty": "", "four": "1234", "yes": true, "no": false, "null": nil, "int": int64(-5), "uint": uint64(1) << 63, "real": 2.5,
	"data": []byte{1, 2, 3, 4, 5}, "list": []any{"a", uint64(2), map[string]any{"deep": []any{}}}, "dict": map[string]any{"k": "v"},
}

func TestGoIOSReadsWhatIsWritten(t *testing.T) {
	b, err := AppendMessage(nil, Message{Flags: FlagAlways | FlagData, ID: 7, Body: sample})
	if err != nil {
		t.Fatal(err)
	}
	m, err := goios.DecodeMessage(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if m.Flags != 0x101 || len(m.Body) != len(sample) {
		t.Errorf("flags %#x, body %v", m.Flags, m.Body)
	}
	for key, want := range sample {
		if !reflect.DeepEqual(m.Body[key], want) {
			t.Errorf("%s: go-ios reads %#v, written was %#v", key, m.Body[key], want)
		}
	}
}

func TestWhatGoIOSWritesIsRead(t *testing.T) {
	body := map[string]any{"text": "x", "uint": uint64(9), "int": int64(-9), "list": []any{"a", "b"}, "dict": map[string]any{"k": true}, "data": []byte{9}, "real": 0.5}
	var b bytes.Buffer
	if err := goios.EncodeMessage(&b, goios.Message{Flags: goios.AlwaysSetFlag | goios.DataFlag, Id: 3, Body: body}); err != nil {
		t.Fatal(err)
	}
	m, n, err := ParseMessage(b.Bytes())
	if err != nil || n != b.Len() || m.ID != 3 || m.Flags != 0x101 {
		t.Fatalf("message %+v, %d bytes, %v", m, n, err)
	}
	if !reflect.DeepEqual(m.Body, body) {
		t.Errorf("read %#v, written %#v", m.Body, body)
	}
}

func TestAMessageIsReadOnlyWhenAllOfItIsThere(t *testing.T) {
	b, err := AppendMessage(nil, Message{Flags: FlagAlways, Body: sample})
	if err != nil {
		t.Fatal(err)
	}
	for cut := range b {
		if _, n, err := ParseMessage(b[:cut]); n != 0 || err != nil {
			t.Fatalf("%d of %d bytes: n %d, %v", cut, len(b), n, err)
		}
	}
}

func TestHostileMessagesAreRefusedWithoutTheMemoryTheyAskFor(t *testing.T) {
	message := func(length uint64, body ...byte) []byte {
		b := binary.LittleEndian.AppendUint32(nil, 0x29b00b92)
		b = binary.LittleEndian.AppendUint32(b, 1)
		b = binary.LittleEndian.AppendUint64(b, length)
		return append(binary.LittleEndian.AppendUint64(b, 1), body...)
	}
	wrap := func(object []byte) []byte {
		body := append([]byte{0x42, 0x37, 0x13, 0x42, 5, 0, 0, 0}, object...)
		return message(uint64(len(body)), body...)
	}
	nested := bytes.Repeat([]byte{0x00, 0xe0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0}, 1000) // an array in an array in an array …
	many := append([]byte{0x00, 0xe0, 0, 0, 0, 0, 0, 0, 0x40, 0x42, 0x0f, 0}, bytes.Repeat([]byte{0, 0x10, 0, 0}, 200_000)...)
	for name, c := range map[string]struct {
		bytes []byte
		want  string
	}{
		"wrong magic":          {make([]byte, 24), "magic number"},
		"endless body":         {message(1 << 62), "at most"},
		"body too short":       {message(4, 1, 2, 3, 4), "begins with"},
		"nested arrays":        {wrap(nested), "nest more than 32 deep"},
		"a million nulls":      {wrap(many), "more than 100000 objects"},
		"a count without them": {wrap([]byte{0x00, 0xf0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}), "a key without an end"},
		"a string too long":    {wrap([]byte{0x00, 0x90, 0, 0, 0xff, 0xff, 0xff, 0x7f}), "expected 2147483647 bytes"},
		"no dictionary":        {wrap([]byte{0x00, 0x10, 0, 0}), "expected a dictionary"},
		"unknown type":         {wrap([]byte{1, 2, 3, 4}), "unknown type 0x4030201"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := ParseMessage(c.bytes)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want one about %q", err, c.want)
			}
		})
	}
}

// A peer that follows RFC 9113's frames, with go-ios's own message codec.
func TestDialOpensBothStreamsAndReceivesAcrossFrames(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	served := make(chan error, 1)
	go func() {
		defer far.Close()
		preface := make([]byte, len(http2.ClientPreface))
		if _, err := io.ReadFull(far, preface); err != nil {
			served <- err
			return
		}
		f := http2.NewFramer(far, far)
		go func() {
			f.WriteSettings()
			f.WritePing(false, [8]byte{1})
			var b bytes.Buffer
			goios.EncodeMessage(&b, goios.Message{Flags: goios.AlwaysSetFlag, Body: map[string]any{}})
			goios.EncodeMessage(&b, goios.Message{Flags: goios.AlwaysSetFlag | goios.DataFlag, Body: map[string]any{"MessageType": "Handshake"}})
			for _, piece := range [][]byte{b.Bytes()[:10], b.Bytes()[10:60], b.Bytes()[60:]} {
				f.WriteData(ClientServer, false, piece)
			}
		}()
		streams := map[uint32]int{}
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				if streams[ClientServer] < 2 || streams[ServerClient] < 1 {
					t.Errorf("messages by stream %v, want two on 1 and one on 3", streams)
				}
				served <- nil
				return
			}
			if d, ok := frame.(*http2.DataFrame); ok {
				if _, err := goios.DecodeMessage(bytes.NewReader(d.Data())); err != nil {
					t.Errorf("go-ios cannot read a message: %v", err)
				}
				streams[d.StreamID]++
			}
		}
	}()
	c, err := Dial(near)
	if err != nil {
		t.Fatal(err)
	}
	stream, m, err := c.Receive()
	if err != nil || stream != ClientServer || m.Body["MessageType"] != "Handshake" {
		t.Errorf("stream %d, %v, %v", stream, m, err)
	}
	c.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func FuzzParseMessage(f *testing.F) {
	b, _ := AppendMessage(nil, Message{Flags: FlagAlways | FlagData, ID: 7, Body: sample})
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		m, n, err := ParseMessage(b)
		if err != nil || n == 0 {
			return
		}
		if n > len(b) {
			t.Fatalf("took %d of %d bytes", n, len(b))
		}
		if _, ok := m.Body["f"].(FileTransfer); ok || m.Body == nil {
			return
		}
		again, err := AppendMessage(nil, m)
		if err != nil {
			return // a file transfer inside, which is never written
		}
		m2, _, err := ParseMessage(again)
		if err != nil || len(m2.Body) != len(m.Body) {
			t.Fatalf("written again: %v", err)
		}
	})
}
