package tap

import (
	"bufio"
	"bytes"
	"encoding/json"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// frameLine is a line of a .frames.jsonl file.
type frameLine struct {
	Name, Category                                string
	SwapID, FrameSeed, DisplayID, SurfaceID       uint64
	BeginMach, EndMach, PreviousMach              uint64
	RefreshIntervalMach, BufferCount, SkipRequest uint64
}

// frameReader makes frames of rows with nothing but wire.md at hand, slowly, for the streams of known content in the data directory.
type frameReader struct {
	t      testing.TB
	begun  map[uint64]frameLine
	frames []frameLine
}

func (f *frameReader) Gap(g Gap) { f.t.Errorf("gap: %+v", g) }

func (f *frameReader) Row(r *Row) {
	number := func(v Value) uint64 {
		n, ok := v.Uint64()
		if !ok {
			f.t.Fatalf("%x is no number", v.Bytes())
		}
		return n
	}
	if r.Table() != "os-signpost" || r.Value(colSubsystem).String() != "com.apple.coreanimation" || number(r.Value(colProcess).At(0)) != 64 {
		f.t.Errorf("table %q, subsystem %q", r.Table(), r.Value(colSubsystem))
	}
	// The name of an argument is the last word before = in the text in front of it.
	arguments, name := map[string]uint64{}, ""
	message := r.Value(colMessage)
	for i := range message.Len() {
		kind, value := message.At(i).At(0).String(), message.At(i).At(1)
		switch kind {
		case "narrative-text":
			words := strings.Fields(value.String() + ".")
			name, _, _ = strings.Cut(words[len(words)-1], "=")
		case "data":
			data, ok := value.AppendData(nil)
			if want := []byte{0xaf, 1, 0, 0}; name != "contributors" || !ok || len(data) != 32 || !bytes.Equal(data[:4], want) { // pid 431
				f.t.Errorf("%s is %x, %v", name, data, ok)
			}
		default:
			arguments[name] = number(value)
		}
	}
	frame := frameLine{Name: r.Value(colName).String(), Category: r.Value(colCategory).String()}
	time, identifier := number(r.Value(colTime)), number(r.Value(colIdentifier))
	switch event := r.Value(colEventType).String(); {
	case frame.Name == "FrameUpdate" && event == "Event":
		base, lifetime, args1 := arguments["base_mct"], arguments["FrameLifetimeInterval"], arguments["args1"]
		frame.SwapID, frame.FrameSeed = identifier&0xffffffff, identifier>>32
		frame.BeginMach, frame.EndMach, frame.PreviousMach = base+lifetime>>32, base+lifetime&0xffffffff, arguments["FramePrevious"]
		frame.RefreshIntervalMach = arguments["args2"] & 0xffffffff
		frame.BufferCount, frame.SkipRequest, frame.DisplayID = args1>>44&15, args1>>33&1, args1>>48&255
		f.frames = append(f.frames, frame)
	case frame.Name == "FrameLifetime" && (event == "Begin" || event == "End"):
		frame.SwapID, frame.FrameSeed = identifier, arguments["frame_seed"]
		frame.PreviousMach, frame.RefreshIntervalMach = arguments["prev_frame"], arguments["refresh_interval"]
		frame.BufferCount, frame.SkipRequest = arguments["buffer_count"], arguments["skip_request"]
		frame.DisplayID, frame.SurfaceID = arguments["display_id"], arguments["surface_id"]
		if event == "Begin" {
			frame.BeginMach = time
			f.begun[identifier] = frame
			return
		}
		begin := f.begun[identifier]
		frame.BeginMach = begin.BeginMach
		if begin != frame {
			f.t.Errorf("begin %+v, end %+v", begin, frame)
		}
		frame.EndMach = time
		f.frames = append(f.frames, frame)
	default:
		f.t.Errorf("%s of %q", event, frame.Name)
	}
}

func readFrames(t testing.TB, payloads ...[]byte) []frameLine {
	f := &frameReader{t: t, begun: map[uint64]frameLine{}}
	d := NewDecoder(Want{"os-signpost": frameColumns})
	for _, p := range payloads {
		d.Decode(p, f)
	}
	d.Flush(f)
	return f.frames
}

var forms = []string{"ios15", "macos15", "ios18", "ios26"}

func TestStreamsOfEveryReleaseHoldTheFramesBesideThem(t *testing.T) {
	for _, form := range forms {
		var want []frameLine
		for lines := bufio.NewScanner(bytes.NewReader(dataFile(t, "tap/"+form+".frames.jsonl"))); lines.Scan(); {
			var frame frameLine
			if err := json.Unmarshal(lines.Bytes(), &frame); err != nil {
				t.Fatal(err)
			}
			want = append(want, frame)
		}
		if got := readFrames(t, wirePayloads(t, "tap/"+form+".wire")...); len(want) != 12 || !slices.Equal(got, want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", form, got, want)
		}
	}
}

// tally is a Handler that counts what it is told.
type tally struct {
	rows, gaps int
	lost       bool
	misplaced  int // rows while lost, gaps out of order
}

func (c *tally) Row(*Row) {
	if c.rows++; c.lost {
		c.misplaced++
	}
}

func (c *tally) Gap(g Gap) {
	c.gaps++
	if (g.Reason == ReasonBroken) == c.lost {
		c.misplaced++
	}
	c.lost = g.Reason == ReasonBroken
}

// digest is a tally with a sum over every byte of every row.
type digest struct {
	tally
	sum uint32
}

func (d *digest) Row(r *Row) {
	d.tally.Row(r)
	for i := range frameColumns {
		d.add(r.Value(i))
	}
}

func (d *digest) add(v Value) {
	d.mix(int64(v.Len())<<32 + int64(len(v.Bytes())))
	d.sum = crc32.ChecksumIEEE(v.Bytes()) ^ d.sum
	for i := range v.Len() {
		d.add(v.At(i))
	}
}

func (d *digest) mix(n int64) { d.sum = (d.sum ^ uint32(n) ^ uint32(n>>32)) * 0x01000193 }

func digestOf(dec *Decoder, payloads ...[]byte) digest {
	var sum digest
	for _, p := range payloads {
		dec.Decode(p, &sum)
	}
	dec.Flush(&sum)
	return sum
}

func TestRowsAreTheSameHoweverTheStreamIsTorn(t *testing.T) {
	dec := NewDecoder(Want{"os-signpost": frameColumns})
	for _, form := range forms {
		s := bytes.Join(wirePayloads(t, "tap/"+form+".wire"), nil)
		want := digestOf(dec, s)
		for at := range len(s) {
			if got := digestOf(dec, s[:at], s[at:]); got != want {
				t.Fatalf("%s torn at byte %d: %+v, want %+v", form, at, got, want)
			}
		}
		for seed := range uint64(200) {
			r := rand.New(rand.NewPCG(seed, 3))
			if got := digestOf(dec, split(r, s, 1+r.IntN(60))...); got != want {
				t.Fatalf("%s torn with seed %d: %+v, want %+v", form, seed, got, want)
			}
		}
		if got := digestOf(dec, slices.Collect(slices.Chunk(s, 1))...); got != want {
			t.Errorf("%s byte by byte: %+v, want %+v", form, got, want)
		}
	}
}

// contents maps every ID that it meets to the content it stands for.
type contents struct {
	t     *testing.T
	known map[uint64]string
	again int
}

func (c *contents) Gap(g Gap) { c.t.Error(g) }

func (c *contents) Row(r *Row) {
	for i := range frameColumns {
		c.meet(r.Value(i))
	}
}

func (c *contents) meet(v Value) {
	budget := 200
	content := show(v, &budget)
	if known, ok := c.known[v.ID()]; ok {
		c.again++
		if known != content {
			c.t.Errorf("ID %d stands for %s and %s", v.ID(), known, content)
		}
	}
	c.known[v.ID()] = content
	for i := range v.Len() {
		c.meet(v.At(i))
	}
}

func TestAnIDStandsForOneContentEvenAcrossResetsAndConnections(t *testing.T) {
	c := &contents{t: t, known: map[uint64]string{}}
	d := NewDecoder(Want{"os-signpost": frameColumns})
	for _, form := range forms {
		s := bytes.Join(wirePayloads(t, "tap/"+form+".wire"), nil)
		d.Decode(s, c)
		d.Decode(s, c)
		d.Flush(c)
	}
	if c.again < 1000 {
		t.Errorf("only %d values were met again: IDs would be of no use", c.again)
	}
}
