package dtx

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"reflect"
	"testing"

	"github.com/danielpaulus/go-ios/ios/nskeyedarchiver"
)

// Lengths, identifiers, conversations, channels and types are those of the data's own README, which other programs have read.
func TestRealCapturesHaveTheFramesOfTheirReadme(t *testing.T) {
	for name, want := range map[string][]string{
		"testmanagerd-to-host.dump": {
			"636 1 0 0 type 0x2", "16 2 1 0 type 0x0", "155 3 1 1 type 0x3", "268 5 1 1 type 0x3",
			"268 6 1 1 type 0x3", "154 7 1 1 type 0x3", "268 8 1 1 type 0x3", "154 9 1 1 type 0x3"},
		"fragmented-message.bin":            {"79643 1 1 1 fragment 0 of 3", "65504 1 1 1 fragment 1 of 3", "14139 1 1 1 fragment 2 of 3"},
		"activity-trace-tap-status.bin":     {"450 5 0 -1 type 0x3"},
		"compressed-message.bin":            {"43076 61 0 -9 type 0x707"},
		"notify-published-capabilities.bin": {"612 2 0 0 type 0x2"},
	} {
		t.Run(name, func(t *testing.T) {
			b := needCapture(t, name)
			var got []string
			for len(b) > 0 {
				h, n, err := ParseFrameHeader(b)
				if err != nil || n != 32 {
					t.Fatalf("frame %d: header of %d bytes, error %v", len(got), n, err)
				}
				line := fmt.Sprintf("%d %d %d %d", h.Length, h.ID, h.Conversation, h.Channel)
				body := b[n:][:h.bodyLen()]
				b = b[n+len(body):]
				if h.Count > 1 {
					line += fmt.Sprintf(" fragment %d of %d", h.Index, h.Count)
				} else if m, _, err := ParseBodyHeader(body); err != nil {
					t.Fatal(err)
				} else {
					line += fmt.Sprintf(" type %#x", binary.LittleEndian.Uint32([]byte{byte(m.Type), m.Reserved[0], m.Reserved[1], m.Reserved[2]}))
				}
				got = append(got, line)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		})
	}
}

func readAll(t *testing.T, r io.Reader) []Message {
	t.Helper()
	reader := NewReader(r, nil)
	var all []Message
	for {
		m, err := reader.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
}

func TestRealConversationWithTestmanagerdIsRead(t *testing.T) {
	all := readAll(t, bytes.NewReader(needCapture(t, "testmanagerd-to-host.dump")))
	if len(all) != 8 {
		t.Fatalf("%d messages, want 8", len(all))
	}
	if s, err := all[0].Selector(); s != "_notifyOfPublishedCapabilities:" || err != nil {
		t.Errorf("selector %q, %v", s, err)
	}
	if m := all[1]; m.Type != TypeAck || len(m.Payload) != 0 || m.ID != 2 || m.Conversation != 1 {
		t.Errorf("second message is %+v", m)
	}
	empty := []any{}
	for i, want := range []any{uint64(35), empty, empty, true, empty, true} { // bplist objects 10 23, a0, a0, 09, a0, 09
		if v, err := all[2+i].value(); err != nil || !reflect.DeepEqual(v, want) {
			t.Errorf("message %d: value %v, %v, want %v", 2+i, v, err, want)
		}
	}
}

func TestRealFragmentedMessageIsPutTogether(t *testing.T) {
	all := readAll(t, bytes.NewReader(needCapture(t, "fragmented-message.bin")))
	if len(all) != 1 {
		t.Fatalf("%d messages, want 1", len(all))
	}
	m := all[0]
	if m.Type != TypeObject || m.Channel != 1 || m.ID != 1 || m.Conversation != 1 || len(m.Aux) != 0 || len(m.Payload) != 79627 {
		t.Errorf("message has type %v, channel %d, id %d, conversation %d, %d and %d bytes", m.Type, m.Channel, m.ID, m.Conversation, len(m.Aux), len(m.Payload))
	}
	// by Python's hashlib over the two pieces joined
	if sum := fmt.Sprintf("%x", sha256.Sum256(m.Payload)); sum != "b2d17efffa631dfcd147eea189922bef4174c29872d8289aa990e23f1627533f" {
		t.Errorf("payload has SHA-256 %s", sum)
	}
	v, err := m.value()
	processes, ok := v.([]any)
	if err != nil || !ok || len(processes) != 349 { // by Python's plistlib
		t.Fatalf("value is %T with %d entries, %v", v, len(processes), err)
	}
	if first := processes[0].(map[string]any); first["name"] != "configd" || first["pid"] != uint64(40) {
		t.Errorf("first process is %v", first)
	}
}

func TestRealStatusOfTheTapIsRead(t *testing.T) {
	all := readAll(t, bytes.NewReader(needCapture(t, "activity-trace-tap-status.bin")))
	v, err := all[0].Object()
	want := nskeyedarchiver.DTActivityTraceTapMessage{DTTapMessagePlist: map[string]any{"k": uint64(0)}}
	if len(all) != 1 || err != nil || !reflect.DeepEqual(v, want) {
		t.Errorf("%d messages, the first holds %#v, %v", len(all), v, err)
	}
}

func TestRealCompressedMessageIsDeliveredInflatedAsData(t *testing.T) {
	all := readAll(t, bytes.NewReader(needCapture(t, "compressed-message.bin")))
	m := all[0]
	if len(all) != 1 || m.Type != TypeData || m.Channel != -9 || m.ID != 61 || len(m.Payload) != 158592 {
		t.Fatalf("%d messages, the first of type %v on channel %d with %d bytes", len(all), m.Type, m.Channel, len(m.Payload))
	}
	if !bytes.HasPrefix(m.Payload, []byte{0x00, 0x02, 0xaa, 0x55}) {
		t.Errorf("payload begins % x", m.Payload[:4])
	}
	if sum := fmt.Sprintf("%x", sha256.Sum256(m.Payload)); sum != "f9d950f7ca6a8d9b932b2cdc72d2584e44946fdebbcf401e76e1cc23d69d6470" {
		t.Errorf("payload has SHA-256 %s", sum)
	}
}

func TestRealCapabilitiesAreRead(t *testing.T) {
	m := readAll(t, bytes.NewReader(needCapture(t, "notify-published-capabilities.bin")))[0]
	if len(m.Aux) != 425 || m.ExpectsReply {
		t.Errorf("auxiliary of %d bytes, expects reply %v", len(m.Aux), m.ExpectsReply)
	}
	args, err := m.Arguments()
	want := []any{map[string]any{"com.apple.private.DTXBlockCompression": uint64(2), "com.apple.private.DTXConnection": uint64(1)}}
	if err != nil || !reflect.DeepEqual(args, want) {
		t.Errorf("arguments %v, %v", args, err)
	}
}

func TestRealMessagesAreWrittenAsTheyCame(t *testing.T) {
	for name, piece := range map[string]int{"testmanagerd-to-host.dump": MaxFragment, "fragmented-message.bin": 65504,
		"activity-trace-tap-status.bin": MaxFragment, "notify-published-capabilities.bin": MaxFragment} {
		b := needCapture(t, name)
		var written []byte
		for _, m := range readAll(t, bytes.NewReader(b)) {
			written = must(AppendMessage(written, m, piece))
		}
		if !bytes.Equal(written, b) {
			t.Errorf("%s: %d bytes written differ from the %d captured", name, len(written), len(b))
		}
	}
}
