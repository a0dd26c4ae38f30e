package dtx

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
)

func dataMessage(channel int32, id uint32, size int) Message {
	payload := make([]byte, size)
	for i := range payload {
		payload[i] = byte(int(id)*31 + i)
	}
	return Message{Type: TypeData, Channel: channel, ID: id, Payload: payload}
}

// frames cuts what AppendMessage wrote into its frames.
func frames(wire []byte) (cut [][]byte) {
	for len(wire) > 0 {
		h, n, err := ParseFrameHeader(wire)
		if err != nil {
			panic(err)
		}
		cut, wire = append(cut, wire[:n+h.bodyLen()]), wire[n+h.bodyLen():]
	}
	return cut
}

func TestMessageInFragmentsIsLaidOutAsTheContractSays(t *testing.T) {
	wire := must(AppendMessage(nil, Message{Type: TypeData, Channel: -2, ID: 3, ExpectsReply: true, Payload: []byte("ABCDE")}, 9))
	want := []byte{
		0x79, 0x5B, 0x3D, 0x1F, 32, 0, 0, 0, 0, 0, 4, 0, 21, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0xFE, 0xFF, 0xFF, 0xFF, 1, 0, 0, 0,
		0x79, 0x5B, 0x3D, 0x1F, 32, 0, 0, 0, 1, 0, 4, 0, 9, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0xFE, 0xFF, 0xFF, 0xFF, 1, 0, 0, 0,
		1, 0, 0, 0, 0, 0, 0, 0, 5,
		0x79, 0x5B, 0x3D, 0x1F, 32, 0, 0, 0, 2, 0, 4, 0, 9, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0xFE, 0xFF, 0xFF, 0xFF, 1, 0, 0, 0,
		0, 0, 0, 0, 0, 0, 0, 'A', 'B',
		0x79, 0x5B, 0x3D, 0x1F, 32, 0, 0, 0, 3, 0, 4, 0, 3, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0xFE, 0xFF, 0xFF, 0xFF, 1, 0, 0, 0,
		'C', 'D', 'E'}
	if !bytes.Equal(wire, want) {
		t.Errorf("wrote\n% x, want\n% x", wire, want)
	}
}

func TestWriterSplitsAt128KiB(t *testing.T) {
	var b bytes.Buffer
	w := NewWriter(&b)
	for _, size := range []int{128<<10 - 16, 128<<10 - 15, 300_000} {
		if err := w.WriteMessage(dataMessage(-1, 1, size)); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, f := range frames(b.Bytes()) {
		h, _, _ := ParseFrameHeader(f)
		got = append(got, fmt.Sprintf("%d/%d %d", h.Index, h.Count, h.Length))
	}
	want := []string{"0/1 131072", "0/3 131073", "1/3 131072", "2/3 1", "0/4 300016", "1/4 131072", "2/4 131072", "3/4 37872"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("frames %q, want %q", got, want)
	}
}

func TestWhatCannotBeSentIsRefused(t *testing.T) {
	for _, c := range []struct {
		size, piece int
		errHas      string
	}{
		{128 << 20, MaxFragment, "message of 134217744 bytes: at most 134217728 can be sent"},
		{100, MaxFragment + 1, ""},
		{200 << 10, MaxFragment + 1, "cannot be sent in fragments of 131073"},
		{100, 0, "message of 116 bytes: cannot be sent in fragments of 0"},
		{65534 - 16, 1, ""},
		{65535 - 16, 1, "message of 65535 bytes: cannot be sent in fragments of 1"},
	} {
		_, err := AppendMessage(nil, Message{Payload: make([]byte, c.size)}, c.piece)
		if c.errHas == "" && err != nil || c.errHas != "" && (err == nil || !strings.Contains(err.Error(), c.errHas)) {
			t.Errorf("%d bytes in pieces of %d: error %v, want %q", c.size, c.piece, err, c.errHas)
		}
	}
}

func TestInterleavedFragmentsArePutTogetherByChannelAndIdentifier(t *testing.T) {
	// same identifier on two channels, two identifiers on one, a whole message and one with a longer header in between
	parts := [][][]byte{
		frames(must(AppendMessage(nil, dataMessage(-1, 7, 5000), 1000))),
		frames(must(AppendMessage(nil, dataMessage(-2, 7, 3000), 500))),
		frames(must(AppendMessage(nil, dataMessage(-1, 8, 9000), 4000))),
		frames(must(AppendMessage(nil, dataMessage(3, 1, 40), MaxFragment))),
	}
	long := parts[3][0]
	long[4] = 36
	parts[3][0] = append(long[:32:32], append([]byte{9, 9, 9, 9}, long[32:]...)...)
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var wire []byte
		next := make([]int, len(parts))
		for left := 6 + 1 + 7 + 1 + 3 + 1 + 1; left > 0; {
			if i := random.IntN(len(parts)); next[i] < len(parts[i]) {
				wire = append(wire, parts[i][next[i]]...)
				next[i]++
				left--
			}
		}
		got := map[string]int{}
		for _, m := range readAll(t, bytes.NewReader(wire)) {
			want := dataMessage(m.Channel, m.ID, len(m.Payload))
			if !bytes.Equal(m.Payload, want.Payload) {
				t.Fatalf("message %d on channel %d differs", m.ID, m.Channel)
			}
			got[fmt.Sprintf("%d/%d %d", m.Channel, m.ID, len(m.Payload))]++
		}
		if want := map[string]int{"-1/7 5000": 1, "-2/7 3000": 1, "-1/8 9000": 1, "3/1 40": 1}; !reflect.DeepEqual(got, want) {
			t.Fatalf("read %v, want %v", got, want)
		}
	}
}

func TestReaderStopsAtHostileFrames(t *testing.T) {
	head := func(h FrameHeader, body ...byte) []byte { return append(AppendFrameHeader(nil, h), body...) }
	first := head(FrameHeader{Count: 3, Length: 20, ID: 1, Channel: 2})
	second := head(FrameHeader{Index: 1, Count: 3, Length: 16, ID: 1, Channel: 2}, make([]byte, 16)...)
	good := must(AppendMessage(nil, dataMessage(-1, 1, 4), MaxFragment)) // 52 bytes
	var many []byte
	for i := range uint32(65) {
		many = append(many, head(FrameHeader{Count: 2, Length: 16, ID: i})...)
	}
	for _, c := range []struct {
		name   string
		wire   [][]byte
		errHas string
	}{
		{"lost its place", [][]byte{good, good[1:]}, "frame at byte 52: bad DTX framing: expected magic 79 5b 3d 1f, found 5b 3d 1f 20"},
		{"no fragment 0", [][]byte{good, second}, "frame at byte 52: bad DTX framing: fragment 1 of message 1 on channel 2 came without fragment 0"},
		{"fragment 0 of another channel", [][]byte{head(FrameHeader{Count: 3, Length: 20, ID: 1, Channel: 3}), second}, "came without fragment 0"},
		{"begins again", [][]byte{first, second, first}, "frame at byte 80: bad DTX framing: message 1 on channel 2 begins again after fragment 1 of 3"},
		{"same fragment twice", [][]byte{first, second, second}, "expected fragment 2 of 3, found 1 of 3"},
		{"fragment left out", [][]byte{first, head(FrameHeader{Index: 2, Count: 3, Length: 4, ID: 1, Channel: 2})}, "expected fragment 1 of 3, found 2 of 3"},
		{"other count", [][]byte{first, head(FrameHeader{Index: 1, Count: 4, Length: 4, ID: 1, Channel: 2})}, "expected fragment 1 of 3, found 1 of 4"},
		{"more than announced", [][]byte{first, second, head(FrameHeader{Index: 2, Count: 3, Length: 5, ID: 1, Channel: 2})}, "expected 20 bytes in 3 fragments, found 21 by fragment 2"},
		{"less than announced", [][]byte{first, second, head(FrameHeader{Index: 2, Count: 3, Length: 3, ID: 1, Channel: 2})}, "expected 20 bytes in 3 fragments, found 19 by fragment 2"},
		{"too many at once", [][]byte{many}, "frame at byte 2048: bad DTX framing: more than 64 messages are half assembled"},
		{"body disagrees", [][]byte{head(FrameHeader{Count: 1, Length: 18}, make([]byte, 18)...)}, "expected the 2 bytes behind the message header to be announced, found 0"},
		{"bad compression", [][]byte{must(AppendMessage(nil, Message{Type: TypeCompressed}, MaxFragment))}, "bad DTX framing: compressed payload: expected its inflated size in 4 bytes, found 0"},
	} {
		r := NewReader(bytes.NewReader(bytes.Join(c.wire, nil)), nil)
		var err error
		for err == nil {
			_, err = r.Next()
		}
		if !errors.Is(err, ErrFraming) || !strings.Contains(err.Error(), c.errHas) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.errHas)
		}
		if _, again := r.Next(); again != err {
			t.Errorf("%s: then %v", c.name, again)
		}
	}
}

func TestReaderTellsACleanEndFromACut(t *testing.T) {
	whole := must(AppendMessage(nil, dataMessage(-1, 1, 4), MaxFragment))
	parts := frames(must(AppendMessage(nil, dataMessage(-1, 1, 4), 10)))
	for _, c := range []struct {
		name string
		wire []byte
		want string
	}{
		{"nothing", nil, "EOF"},
		{"between messages", whole, "EOF"},
		{"in a header", whole[:31], "frame at byte 0: unexpected EOF"},
		{"behind a header", append(bytes.Clone(whole), whole[:32]...), "frame at byte 52: unexpected EOF"},
		{"in a body", whole[:51], "frame at byte 0: unexpected EOF"},
		{"between fragments", parts[0], "stream ends at byte 32 with 1 messages half assembled: unexpected EOF"},
	} {
		r := NewReader(bytes.NewReader(c.wire), nil)
		var err error
		for err == nil {
			_, err = r.Next()
		}
		if err.Error() != c.want || (c.want == "EOF") != (err == io.EOF) || c.want != "EOF" && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: error %q, want %q", c.name, err, c.want)
		}
	}
}

// A peer that announces 128 MiB and sends nothing must cost next to nothing.
func TestReaderAllocatesOnlyWhatArrives(t *testing.T) {
	whole := append(AppendFrameHeader(nil, FrameHeader{Count: 1, Length: 128 << 20}), make([]byte, 1000)...)
	var fragmented []byte
	for i := range uint32(64) {
		fragmented = AppendFrameHeader(fragmented, FrameHeader{Count: 1025, Length: 128 << 20, ID: i})
	}
	for i := range uint32(64) {
		fragmented = append(AppendFrameHeader(fragmented, FrameHeader{Index: 1, Count: 1025, Length: 100, ID: i}), make([]byte, 100)...)
	}
	for name, wire := range map[string][]byte{"whole": whole, "fragmented": fragmented} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := NewReader(bytes.NewReader(wire), nil).Next()
		runtime.ReadMemStats(&after)
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: error %v", name, err)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > 256<<10 {
			t.Errorf("%s: %d bytes were allocated for %d that came", name, got, len(wire))
		}
	}
}

func TestHalfAssembledMessagesAreBoundedTogether(t *testing.T) {
	piece := make([]byte, MaxFragment)
	stream := func(yield func([]byte) bool) {
		for i := range uint32(2) {
			if !yield(AppendFrameHeader(nil, FrameHeader{Count: 1025, Length: 128 << 20, ID: i})) {
				return
			}
		}
		for index := uint16(1); index < 1024; index++ {
			for i := range uint32(2) {
				if !yield(AppendFrameHeader(nil, FrameHeader{Index: index, Count: 1025, Length: MaxFragment, ID: i})) || !yield(piece) {
					return
				}
			}
		}
	}
	pr, pw := io.Pipe()
	go func() {
		for b := range stream {
			if _, err := pw.Write(b); err != nil {
				return
			}
		}
		pw.Close()
	}()
	_, err := NewReader(pr, nil).Next()
	pr.Close()
	if !errors.Is(err, ErrFraming) || !strings.Contains(err.Error(), "half assembled messages hold more than 134217728 bytes") {
		t.Errorf("error %v", err)
	}
}

func TestMessagesThatAreCompleteNoLongerCountAsHalfAssembled(t *testing.T) {
	wire := must(AppendMessage(nil, dataMessage(-1, 1, 1<<20), MaxFragment))
	const total = 130 // MiB, where 128 may be half assembled at once
	var stream []io.Reader
	for range total {
		stream = append(stream, bytes.NewReader(wire))
	}
	r := NewReader(io.MultiReader(stream...), nil)
	for i := range total {
		if _, err := r.Next(); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
	}
}

func TestFragment0SpeaksForTheMessage(t *testing.T) {
	parts := frames(must(AppendMessage(nil, Message{Type: TypeData, ID: 1, Conversation: 2, ExpectsReply: true}, 9)))
	for _, f := range parts[1:] {
		f[20], f[28] = 4, 0 // conversation, flags
	}
	if m := must(NewReader(bytes.NewReader(bytes.Join(parts, nil)), nil).Next()); m.Conversation != 2 || !m.ExpectsReply {
		t.Errorf("read %+v", m)
	}
}

func TestMessagesAreStampedWhenTheirLastByteWasRead(t *testing.T) {
	wire := must(AppendMessage(nil, dataMessage(-1, 1, 4), MaxFragment))
	wire = append(wire, wire...)
	ns := int64(0)
	clock := func() int64 { ns += 10; return ns }
	// reads of 60 bytes: the first brings all of message 1 and 8 bytes of message 2, the second the rest
	r := NewReader(io.MultiReader(bytes.NewReader(wire[:60]), bytes.NewReader(wire[60:])), clock)
	first, second := must(r.Next()), must(r.Next())
	if first.HostNs != 10 || second.HostNs != 20 {
		t.Errorf("stamped %d and %d, want 10 and 20", first.HostNs, second.HostNs)
	}
}

func TestReaderCountsWhatItSaw(t *testing.T) {
	wire := must(AppendMessage(nil, dataMessage(-1, 1, 4), MaxFragment)) // 52 bytes
	wire = must(AppendMessage(wire, dataMessage(-1, 2, 4), 10))          // 32 + 42 + 42 bytes
	r := NewReader(bytes.NewReader(wire), nil)
	must(r.Next())
	must(r.Next())
	if got, want := r.Stats(), (ReadStats{Bytes: 168, Fragments: 3, Messages: 2}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
}

func FuzzReader(f *testing.F) {
	addCaptures(f)
	a, b := frames(must(AppendMessage(nil, dataMessage(-1, 7, 50), 30))), frames(must(AppendMessage(nil, dataMessage(-2, 7, 50), 30)))
	f.Add(bytes.Join([][]byte{a[0], b[0], a[1], b[1], b[2], a[2]}, nil))
	f.Add(must(AppendMessage(nil, Message{Type: TypeCompressed, Payload: lz4Message(5, lz4Block(5, 0x50, 'h', 'e', 'l', 'l', 'o'))}, MaxFragment)))
	f.Fuzz(func(t *testing.T, wire []byte) {
		r, slow := NewReader(bytes.NewReader(wire), nil), NewReader(iotest.OneByteReader(bytes.NewReader(wire)), nil)
		for {
			m, err := r.Next()
			slowM, slowErr := slow.Next()
			if fmt.Sprint(err) != fmt.Sprint(slowErr) || !reflect.DeepEqual(m, slowM) {
				t.Fatalf("read at once: %+v, %v; byte by byte: %+v, %v", m, err, slowM, slowErr)
			}
			if err != nil {
				return
			}
			if len(m.Payload) > 255*len(wire) {
				t.Fatalf("%d bytes from %d", len(m.Payload), len(wire))
			}
			again, err := NewReader(bytes.NewReader(must(AppendMessage(nil, m, MaxFragment))), nil).Next()
			if err != nil || !reflect.DeepEqual(again, m) {
				t.Fatalf("%+v came back as %+v, %v", m, again, err)
			}
			_, _ = m.Selector()
			_, _ = m.Arguments()
			_, _ = m.value()
		}
	})
}

func BenchmarkReader1KiBData(b *testing.B) {
	wire := must(AppendMessage(nil, dataMessage(-1, 1, 1024), MaxFragment))
	const batch = 1000
	stream := bytes.Repeat(wire, batch)
	b.SetBytes(int64(len(wire)))
	b.ReportAllocs()
	var r *Reader
	for i := range b.N {
		if i%batch == 0 {
			r = NewReader(bytes.NewReader(stream), nil)
		}
		if _, err := r.Next(); err != nil {
			b.Fatal(err)
		}
	}
}
