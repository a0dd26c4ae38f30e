package export

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// node is a message as protoc tells it: the values of each field, in their order.
type node map[string][]any

func (n node) text(field string) string {
	if len(n[field]) == 0 {
		return ""
	}
	return n[field][0].(string)
}

func (n node) child(field string) node {
	if len(n[field]) == 0 {
		return nil
	}
	return n[field][0].(node)
}

func (n node) int(t *testing.T, field string) int64 {
	t.Helper()
	v, err := strconv.ParseInt(n.text(field), 10, 64)
	if err != nil {
		t.Fatalf("%s: %v in %v", field, err, n)
	}
	return v
}

// parsed reads protoc's text format, in which each field stands in a line of its own.
func parsed(t *testing.T, lines iter.Seq[string]) iter.Seq[node] {
	return func(yield func(node) bool) {
		var open []node
		for line := range lines {
			line = strings.TrimSpace(line)
			switch {
			case strings.HasSuffix(line, " {"):
				child := node{}
				if len(open) > 0 {
					name := strings.TrimSuffix(line, " {")
					open[len(open)-1][name] = append(open[len(open)-1][name], child)
				}
				open = append(open, child)
			case line == "}":
				last := open[len(open)-1]
				if open = open[:len(open)-1]; len(open) == 0 && !yield(last) {
					return
				}
			default:
				name, value, ok := strings.Cut(line, ": ")
				if !ok || len(open) == 0 || '0' <= name[0] && name[0] <= '9' {
					t.Fatalf("protoc tells %q, which the trace format does not have", line)
				}
				if strings.HasPrefix(value, `"`) {
					value = unescaped(t, value)
				}
				open[len(open)-1][name] = append(open[len(open)-1][name], value)
			}
		}
	}
}

// unescaped undoes protoc's escapes: those of C, with octal bytes.
func unescaped(t *testing.T, quoted string) string {
	t.Helper()
	s := strings.ReplaceAll(strings.ReplaceAll(quoted, `\'`, `'`), `\"`, `\x22`)
	text, err := strconv.Unquote(s)
	if err != nil {
		t.Fatalf("%v: %s", err, quoted)
	}
	return text
}

// packets decodes a trace with protoc, some megabytes at a time: a trace is a series of packets, and so is each part of it.
func packets(t *testing.T, protoc, path string) iter.Seq[node] {
	const part = 8 << 20
	lines := func(yield func(string) bool) {
		in := bufio.NewReader(open(t, path))
		for ended := false; !ended; {
			var chunk []byte
			for len(chunk) < part {
				tag, err := binary.ReadUvarint(in)
				if ended = err == io.EOF; ended {
					break
				}
				size, sizeErr := binary.ReadUvarint(in)
				if tag != 1<<3|2 || err != nil || sizeErr != nil {
					t.Fatalf("%s is no series of packets", path)
				}
				chunk = binary.AppendUvarint(append(chunk, 1<<3|2), size)
				packet := make([]byte, size)
				if _, err := io.ReadFull(in, packet); err != nil {
					t.Fatal(err)
				}
				chunk = append(chunk, packet...)
			}
			cmd := exec.Command(protoc, "--decode=Trace", "trace.proto")
			cmd.Dir, cmd.Stdin = "testdata", strings.NewReader(string(chunk))
			text, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(text)) {
				if !yield(line) {
					return
				}
			}
		}
	}
	return parsed(t, lines)
}

// track is a track as far as it has been read.
type track struct {
	name, parent, unit string
	events             int // slices, counter values or instants
	open               bool
	lastNs             int64 // where the last slice began or ended
}

// readTrace follows a trace's packets, and puts the rows together again of the arguments.
type readTrace struct {
	t           *testing.T
	tracks      map[string]*track
	eventNames  map[string]string
	columnNames map[string]string
	clock       node
	named       map[string]int // slices and instants, with their track
	counters    map[string][]float64
	beginNs     int64 // of the event read last
	endNs       int64
}

func (r *readTrace) packet(p node) (row map[string]any) {
	if p.text("trusted_packet_sequence_id") != "1" {
		r.t.Fatalf("a packet without its sequence: %v", p)
	}
	switch {
	case p["interned_data"] != nil:
		if p.child("trace_packet_defaults").text("timestamp_clock_id") != "3" || p.text("sequence_flags") != "1" || p.text("first_packet_on_sequence") != "true" {
			r.t.Errorf("the names come with %v", p)
		}
		for _, n := range p.child("interned_data")["event_names"] {
			r.eventNames[n.(node).text("iid")] = n.(node).text("name")
		}
		for _, n := range p.child("interned_data")["debug_annotation_names"] {
			r.columnNames[n.(node).text("iid")] = n.(node).text("name")
		}
	case p["clock_snapshot"] != nil:
		r.clock = p.child("clock_snapshot")
	case p["track_descriptor"] != nil:
		d := p.child("track_descriptor")
		r.tracks[d.text("uuid")] = &track{name: d.text("name"), parent: d.text("parent_uuid"), unit: d.child("counter").text("unit_name")}
	case p["track_event"] == nil || p.text("sequence_flags") != "2":
		r.t.Fatalf("no event, or one that does not say that it needs the names: %v", p)
	default:
		return r.event(p.int(r.t, "timestamp"), p.child("track_event"))
	}
	return nil
}

func (r *readTrace) event(at int64, e node) (row map[string]any) {
	track := r.tracks[e.text("track_uuid")]
	if track == nil || track.parent != "1" {
		r.t.Fatalf("no such track: %v", e)
	}
	name := e.text("name") + r.eventNames[e.text("name_iid")]
	kind := e.text("type")
	if kind != "SLICE_END" {
		track.events++
	}
	switch kind {
	case "COUNTER":
		v, err := strconv.ParseFloat(e.text("double_counter_value"), 64)
		if err != nil || track.unit != "ms" {
			r.t.Fatalf("%s: %v %v", track.name, err, e)
		}
		r.counters[track.name] = append(r.counters[track.name], v)
		return nil
	case "SLICE_BEGIN":
		if track.open || at < track.lastNs {
			r.t.Fatalf("%s: a slice at %d within another one", track.name, at)
		}
		track.open, track.lastNs = true, at
	case "SLICE_END":
		if !track.open || at < track.lastNs {
			r.t.Fatalf("%s: no slice to end at %d", track.name, at)
		}
		track.open, track.lastNs, r.endNs = false, at, at
		return nil
	case "INSTANT":
	default:
		r.t.Fatalf("an event of type %q", kind)
	}
	r.named[track.name+": "+name]++
	r.beginNs = at
	row = map[string]any{}
	for _, a := range e["debug_annotations"] {
		a := a.(node)
		column := a.text("name") + r.columnNames[a.text("name_iid")]
		switch {
		case a["int_value"] != nil:
			row[column] = json.Number(a.text("int_value"))
		case a["bool_value"] != nil:
			row[column] = a.text("bool_value") == "true"
		default:
			row[column] = a.text("string_value")
		}
	}
	return row
}

func TestPerfettoReadsBackEqual(t *testing.T) {
	protoc := program(t, "protoc", "protobuf-compiler")
	dir, frames := recorded(t)
	path := exported(t, dir, "perfetto")
	r := &readTrace{t: t, tracks: map[string]*track{}, eventNames: map[string]string{}, columnNames: map[string]string{}, named: map[string]int{}, counters: map[string][]float64{}}

	// A row is known at its slice's begin, and its end is the packet after that.
	columns := names(contract[0].columns)
	rows := func(yield func([]any) bool) {
		var row []any
		for packet := range packets(t, protoc, path) {
			object := r.packet(packet)
			if row != nil && !yield(row) {
				return
			}
			row = nil
			if _, ok := object["rawSequence"]; ok {
				for _, column := range columns {
					row = append(row, object[column])
				}
			}
		}
	}
	type placed struct{ beginNs, endNs int64 }
	var first placed
	var frameTimes []float64
	withPlaces := func(yield func([]any) bool) {
		for row := range rows {
			// A frame stands at most half a second before its arrival, which is how long the recorded phone collects frames, or
			// a few lost refreshes after it.
			if quality, at := row[slices.Index(columns, "quality")], r.endNs; quality != "unsupported-schema" {
				arrival, _ := row[slices.Index(columns, "hostNs")].(json.Number).Int64()
				if late := arrival - at; late < -100_000_000 || late > 600_000_000 {
					t.Fatalf("a frame that arrived at %d stands at %d", arrival, at)
				}
				if first.endNs == 0 {
					first = placed{r.beginNs, at}
				}
			}
			if !yield(row) {
				return
			}
		}
	}
	for event := range expected(t, dir, contract[0].typ, "payload.displayId payload.frameTimeMs payload.endMach", nil) {
		if event[0] == json.Number("1") && event[2] != nil {
			frameTimes = append(frameTimes, number(event[1]))
		}
	}
	var values []float64
	for event := range expected(t, dir, "p95.publication", "valueMs", nil) {
		values = append(values, number(event[0]))
	}

	want := expected(t, dir, contract[0].typ, contract[0].columns, contract[0].rows)
	if n := compare(t, "frames", want, withPlaces, func(want, got any) bool { return want == got || want == "" && got == nil }); n != frames {
		t.Errorf("%d frames, and %d were recorded", n, frames)
	}
	// The clock bridge says that 60,000,000,000,000 ticks, 2,500,000 s, were in the middle of 89,999.998 and 90,000 s of the host. The
	// first frame lasts from 195,300 ticks before that, 8,137,500 ns, to 199,700 after it, 8,320,833 ns.
	if want := (placed{89_999_999_000_000 - 8_137_500, 89_999_999_000_000 + 8_320_833}); first != want {
		t.Errorf("the first frame stands at %v, want %v", first, want)
	}
	if !slices.Equal(r.counters["display 1 frame time"], frameTimes) || !slices.Equal(r.counters["P95 of the last 10 s"], values) {
		t.Error("the counters are not the frame times and P95s that were recorded")
	}
	lanes := map[string]int{}
	for uuid, track := range r.tracks {
		if lanes[track.name]++; track.open {
			t.Errorf("track %s, %s: a slice never ends", uuid, track.name)
		}
	}
	// Lifetimes have two intervals, and now and then five.
	if lanes["display 1"] < 3 || lanes["display 1"] > 6 || lanes["display 2"] == 0 || r.tracks["1"].name != "run (simulated, evidence E2)" {
		t.Errorf("tracks %v, and the first is %q", lanes, r.tracks["1"].name)
	}
	for name, want := range map[string]int{"gap: stream-broken": 1, "target com.example.app, pid 431, generation 1": 2, "target com.example.app, pid 577, generation 2": 2,
		"foreground": 3, "background": 1, "connected": 2, "disconnected": 1, "unsupported-schema": 1, "origin of frames": 2, "session.end": 1} {
		if got := r.named["events: "+name]; got != want {
			t.Errorf("%d events called %q, want %d", got, name, want)
		}
	}
	if late := r.named["display 1: late frame"]; late == 0 || r.named["display 1: frame"] < late || r.named["display 1: duplicate"] != 1 {
		t.Errorf("slices %v", r.named)
	}
	clocks := r.clock["clocks"]
	if r.clock.text("primary_trace_clock") != "MONOTONIC" || len(clocks) != 2 || fmt.Sprint(clocks[0]) != "map[clock_id:[3] timestamp:[90000000000000]]" ||
		fmt.Sprint(clocks[1]) != "map[clock_id:[1] timestamp:[1795991727307325468]]" {
		t.Errorf("clocks %v", r.clock)
	}
}

// number is 0 for null, as in a counter.
func number(v any) float64 {
	if v == nil {
		return 0
	}
	f, _ := v.(json.Number).Float64()
	return f
}
