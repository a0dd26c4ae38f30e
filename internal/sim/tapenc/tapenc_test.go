package tapenc

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/framebridge/framebridge/internal/sim/scene"
)

var releases = []string{"15.8", "16.7", "17.5", "18.5", "26.0"}

// busy has everything that can happen to frames in 26 s.
const busy = `
noise: 200
steps:
  - {for: 4s, hz: 120}
  - {event: background}
  - {for: 2s, hz: 60, fps: 30}
  - {event: foreground}
  - {event: display2, on: true, hz: 60}
  - {for: 4s, hz: 120, jank: {every: 12, delay: 80ms}}
  - {event: relaunch}
  - {for: 2s, idle: true}
  - {event: display2, on: false}
  - {for: 3s, switch: [120, 60, 80, 40], dwell: 400ms}
  - {event: sleep, for: 2s}
  - {for: 2s, hz: 60, refresh: unknown}
  - {for: 5s, hz: 120}
`

func parseScene(t testing.TB, text string) scene.Spec {
	t.Helper()
	s, err := scene.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func parseOS(t testing.TB, s string) scene.OS {
	t.Helper()
	os, err := scene.ParseOS(s)
	if err != nil {
		t.Fatal(err)
	}
	return os
}

// wireFile is a wire file's messages by connection, and the truth's lines.
func wireFile(t testing.TB, c WireConfig) (connections [][][]byte, truth []string) {
	t.Helper()
	var wire, lines bytes.Buffer
	n, err := WriteWire(&wire, &lines, c)
	if err != nil {
		t.Fatal(err)
	}
	connections = [][][]byte{nil}
	last := int64(0)
	for b := wire.Bytes(); len(b) > 0; {
		size, host := binary.LittleEndian.Uint32(b), int64(binary.LittleEndian.Uint64(b[4:]))
		if host < last {
			t.Fatalf("host time goes back from %d to %d", last, host)
		}
		last = host
		msg := b[12 : 12+size]
		b = b[12+size:]
		if size == 0 {
			connections = append(connections, nil)
		} else if !bytes.HasPrefix(msg, []byte("bplist")) {
			connections[len(connections)-1] = append(connections[len(connections)-1], msg)
		}
	}
	truth = strings.Split(strings.TrimSuffix(lines.String(), "\n"), "\n")
	if int64(len(truth)) != n {
		t.Fatalf("%d lines of truth, %d frames counted", len(truth), n)
	}
	return connections, truth
}

func decodeAll(t testing.TB, connections [][][]byte) *naive {
	t.Helper()
	all := &naive{}
	for _, msgs := range connections {
		d := &naive{ops: map[string]int{}, tables: map[int]naiveTable{}}
		for i, m := range msgs {
			if err := d.feed(i, m); err != nil {
				t.Fatalf("message %d: %v", i, err)
			}
		}
		all.rows = append(all.rows, d.rows...)
		all.resets += d.resets
		if all.ops == nil {
			all.ops = map[string]int{}
		}
		for k, n := range d.ops {
			all.ops[k] += n
		}
	}
	return all
}

func TestStreamOfEveryReleaseTellsExactlyTheFramesOfTheScene(t *testing.T) {
	for _, os := range releases {
		for _, tear := range []bool{false, true} {
			if tear && os != "18.5" && os != "26.0" {
				continue // tearing knows no releases: one of each form will do
			}
			t.Run(fmt.Sprintf("%s/tear=%v", os, tear), func(t *testing.T) {
				connections, truth := wireFile(t, WireConfig{Spec: parseScene(t, busy), OS: parseOS(t, os), Seed: 3,
					Duration: 26 * time.Second, Tap: Config{Tear: tear, KeepNumbers: tear, Filter: Filter{Logs: true}}})
				frames, _ := naiveFrames(t, decodeAll(t, connections).rows)
				// Display 1: 4*120 + 2*30 + 480 refreshes of which 12 frames take 22 (262) + 3 s that make 48+24+32+16+48+24+32+8
				// + 2*60 + 5*120, and 2 s more of the last step: 1,994. Display 2: 6 s at 60 Hz.
				if n := len(truth); n < 2340 || n > 2356 {
					t.Errorf("%d frames, want about 2354", n)
				}
				if len(frames) != len(truth) {
					t.Errorf("%d frames decoded, %d told", len(frames), len(truth))
				}
				for i, want := range truth {
					if got := frames[i].line(); got != want {
						t.Fatalf("frame %d:\n got %s\nwant %s", i, got, want)
					}
				}
			})
		}
	}
}

func TestWordsOfTheWorkedExample(t *testing.T) {
	for _, c := range []struct {
		write func(*stack)
		want  string // as in wire.md
	}{
		{func(s *stack) { s.text("os-signpost") }, "9bdc b2d7 8da5 a76e 9c1b b737 d000"},
		{func(s *stack) { s.text("time") }, "9d1a 96d6 d400"},
		{func(s *stack) { s.text("name") }, "9b98 96d6 d400"},
		{func(s *stack) { s.text("FrameLifetime") }, "919c a616 b595 8c69 9999 9746 a5b5 e500"},
		{func(s *stack) { s.num(16199036112369); s.mark() }, "bc43 9cba 86ec ce00 0500"},
		{func(s *stack) { s.num(400000) }, "a006 e060"},
		{func(s *stack) { s.num(1) }, "c040"},
		{func(s *stack) { s.num(0) }, "c000"},
		{func(s *stack) {
			s.reset()
			s.null()
			s.null()
			s.null()
			s.null()
			s.table(2)
		}, "6400 6800 6800 6800 6800 0102"},
		{func(s *stack) { s.depth = 3; s.copy(1); s.row(2, 4) }, "6501 0202"},
		{func(s *stack) { s.depth = 256; s.copy(0) }, "c040 65ff"}, // 255 below the top: the long form, item 1 from the bottom
		{func(s *stack) { s.depth = 255; s.copy(0) }, "65fe"},
		{func(s *stack) { s.depth = 300; s.group(254); s.drop(3) }, "69fe 6a03"},
		{func(s *stack) { s.depth = 300; s.group(255) }, "ffc0 69ff"},
		{func(s *stack) { s.depth = 5; s.check() }, "c140 6b00"},
	} {
		var s stack
		c.write(&s)
		var words []string
		for b := s.buf; len(b) > 0; b = b[2:] {
			words = append(words, fmt.Sprintf("%04x", binary.LittleEndian.Uint16(b)))
		}
		if got := strings.Join(words, " "); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

func TestEveryWordOfTheStreamOccurs(t *testing.T) {
	connections, _ := wireFile(t, WireConfig{Spec: parseScene(t, busy), OS: parseOS(t, "18.5"), Seed: 1, Duration: 20 * time.Second,
		Tap: Config{Filter: Filter{Logs: true}, KeepNumbers: true, ResetItems: 1000}})
	d := decodeAll(t, connections)
	for _, op := range []string{"01", "02", "05", "64", "65", "65 long", "68", "69", "69 long", "6a", "6b"} {
		if d.ops[op] == 0 {
			t.Errorf("%s does not occur", op)
		}
	}
	tables, types, events := map[string]int{}, map[string]int{}, map[string]int{}
	for _, r := range d.rows {
		tables[r.table]++
		events[str(r.cols["event-type"])]++
		msg, _ := r.cols["message"].([]any)
		for _, p := range msg {
			if pair, ok := p.([]any); ok && len(pair) == 2 {
				types[str(pair[0])]++
			}
		}
	}
	for _, name := range []string{"os-log", "os-log-arg", "os-signpost", "os-signpost-arg"} {
		if tables[name] == 0 {
			t.Errorf("no row of %s", name)
		}
	}
	for _, name := range []string{"narrative-text", "string", "uint64", "uint64-hex-lowercase", "fixed-decimal", "address", "data", "uuid", "private"} {
		if types[name] == 0 {
			t.Errorf("no value of type %s", name)
		}
	}
	for _, name := range []string{"Begin", "End", "Event"} {
		if events[name] == 0 {
			t.Errorf("no %s", name)
		}
	}
}
