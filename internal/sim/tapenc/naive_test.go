package tapenc

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The decoder in this file is written from spec/wire.md alone, for clarity and not for speed. Items are []byte, nil or []any.

type naiveRow struct {
	table  string
	cols   map[string]any
	inMsg  int // which payload ended it, from 0
	inLife int // resets before it
}

type naive struct {
	stack  []any
	tables map[int]naiveTable
	ops    map[string]int
	rows   []naiveRow
	resets int
	odd    []byte

	inValue      bool
	value        []byte
	bits, queued int // what is left of the last words of a value
}

type naiveTable struct {
	name string
	cols []string
}

// feed takes one payload. It fails where wire.md says that a stream is broken.
func (d *naive) feed(msg int, payload []byte) error {
	if d.ops == nil {
		d.ops, d.tables = map[string]int{}, map[int]naiveTable{}
	}
	b := append(d.odd, payload...)
	for ; len(b) >= 2; b = b[2:] {
		if err := d.word(msg, int(binary.LittleEndian.Uint16(b))); err != nil {
			return err
		}
	}
	d.odd = append([]byte(nil), b...)
	return nil
}

func (d *naive) word(msg, w int) error {
	if w>>14 >= 2 {
		d.inValue = w>>14 == 2
		d.bits, d.queued = d.bits<<14|w&0x3fff, d.queued+14
		for ; d.queued >= 8; d.queued -= 8 {
			d.value = append(d.value, byte(d.bits>>(d.queued-8)))
		}
		d.bits &= 1<<d.queued - 1
		if !d.inValue {
			d.stack = append(d.stack, d.value)
			d.value, d.bits, d.queued = nil, 0, 0 // bits that fill no byte are padding
		}
		return nil
	}
	if d.inValue {
		return fmt.Errorf("word %04x inside a value", w)
	}
	op, low := w>>8, w&255
	kind := fmt.Sprintf("%02x", op)
	if low == 255 && (op == 0x65 || op == 0x69) {
		kind += " long"
	}
	d.ops[kind]++
	pop := func(n int) ([]any, error) {
		if n > len(d.stack) {
			return nil, fmt.Errorf("word %04x needs %d items, the stack has %d", w, n, len(d.stack))
		}
		items := append([]any(nil), d.stack[len(d.stack)-n:]...)
		d.stack = d.stack[:len(d.stack)-n]
		return items, nil
	}
	count := func() (int, error) {
		items, err := pop(1)
		if err != nil {
			return 0, err
		}
		return int(num(items[0])), nil
	}
	var err error
	switch op {
	case 0x01:
		items, err := pop(4)
		if err != nil {
			return err
		}
		t := naiveTable{name: str(items[2])}
		for _, c := range items[3].([]any) {
			t.cols = append(t.cols, str(c))
		}
		d.tables[low] = t
	case 0x02:
		t, ok := d.tables[low]
		if !ok {
			return fmt.Errorf("row of unknown table %d", low)
		}
		items, err := pop(len(t.cols))
		if err != nil {
			return err
		}
		r := naiveRow{table: t.name, cols: map[string]any{}, inMsg: msg, inLife: d.resets}
		for i, c := range t.cols {
			r.cols[c] = items[i]
		}
		d.rows = append(d.rows, r)
	case 0x05:
		if len(d.stack) == 0 || num(d.stack[len(d.stack)-1]) == 0 {
			return fmt.Errorf("no time on top to mark")
		}
	case 0x64:
		d.stack, d.tables = nil, map[int]naiveTable{}
		d.resets++
	case 0x65:
		i := len(d.stack) - 1 - low
		if low == 255 {
			if i, err = count(); err != nil {
				return err
			}
			i--
		}
		if i < 0 || i >= len(d.stack) {
			return fmt.Errorf("copy of item %d of %d", i, len(d.stack))
		}
		d.stack = append(d.stack, d.stack[i])
	case 0x68:
		d.stack = append(d.stack, nil)
	case 0x69:
		if low == 255 {
			if low, err = count(); err != nil {
				return err
			}
		}
		items, err := pop(low)
		if err != nil {
			return err
		}
		d.stack = append(d.stack, items)
	case 0x6a:
		_, err = pop(low)
	case 0x6b:
		var items []any
		if items, err = pop(1); err == nil && int(num(items[0])) != len(d.stack) {
			err = fmt.Errorf("self check says %d items, the stack has %d", num(items[0]), len(d.stack))
		}
	default:
		err = fmt.Errorf("unknown word %04x", w)
	}
	return err
}

func num(v any) uint64 {
	b, _ := v.([]byte)
	var x uint64
	for i := len(b) - 1; i >= 0; i-- {
		x = x<<8 | uint64(b[i])
	}
	return x
}

func str(v any) string {
	b, _ := v.([]byte)
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}

// joined is a data value's bytes.
func joined(v any) []byte {
	var b []byte
	for _, c := range v.([]any) {
		b = append(b, c.([]byte)...)
	}
	return b
}

var namePattern = regexp.MustCompile(`name=([A-Za-z0-9_]+)`)

// names are the argument names in a format string.
var names = map[string][]string{}

// argsOf are a message's values by name, taken from the words in front of them: "name=" is how all texts of this project's own
// formats end.
func argsOf(t *testing.T, r naiveRow) map[string]any {
	out := map[string]any{}
	msg, _ := r.cols["message"].([]any)
	word := ""
	for _, p := range msg {
		pair := p.([]any)
		if typ := str(pair[0]); typ == "narrative-text" {
			f := strings.Fields(str(pair[1]))
			word = ""
			if len(f) > 0 {
				word = strings.TrimSuffix(f[len(f)-1], "=")
			}
			continue
		}
		if out[word] != nil || word == "" {
			t.Fatalf("argument %q twice or without a name in %q", word, str(r.cols["format-string"]))
		}
		out[word] = pair[1]
	}
	// What the format string itself names must be there too.
	format := str(r.cols["format-string"])
	if names[format] == nil {
		for _, m := range namePattern.FindAllStringSubmatch(format, -1) {
			names[format] = append(names[format], m[1])
		}
	}
	for _, name := range names[format] {
		if _, ok := out[name]; !ok {
			t.Fatalf("argument %q of the format is not in the message (%v)", name, out)
		}
	}
	return out
}

type naiveFrame map[string]any

// naiveFrames finds the frames in rows, as wire.md tells the two forms, in the order of their ends.
func naiveFrames(t *testing.T, rows []naiveRow) (frames []naiveFrame, lastMsg []int) {
	t.Helper()
	type person struct {
		PID  int64  `json:"pid"`
		Name string `json:"name,omitempty"`
	}
	people := map[uint64][]person{}
	begins := map[string]uint64{}
	for _, r := range rows {
		if r.table != "os-signpost" || str(r.cols["subsystem"]) != "com.apple.coreanimation" {
			continue
		}
		cat := str(r.cols["category"])
		if cat != "IOMFBServer" && cat != "IOMFBServer.Stalls" {
			continue
		}
		f := naiveFrame{"name": str(r.cols["name"]), "category": cat}
		set := func(key string, v uint64) { f[key] = int64(v) }
		opt := func(key string, v uint64) {
			if v != 0 {
				set(key, v)
			}
		}
		id := num(r.cols["identifier"])
		switch str(r.cols["name"]) {
		case "ContextInfo":
			a := argsOf(t, r)
			seed := num(a["frame_seed"])
			people[seed] = append(people[seed], person{int64(num(a["pid"])), str(a["process_name"])})
			continue
		case "FrameLifetime":
			a := argsOf(t, r)
			seed := num(a["frame_seed"])
			key := fmt.Sprint(cat, num(a["display_id"]), seed, id)
			if str(r.cols["event-type"]) == "Begin" {
				begins[key] = num(r.cols["time"])
				continue
			}
			begin, ok := begins[key]
			if !ok || str(r.cols["event-type"]) != "End" {
				t.Fatalf("%s of frame %d without a Begin", str(r.cols["event-type"]), seed)
			}
			delete(begins, key)
			set("swapId", id)
			set("frameSeed", seed)
			set("displayId", num(a["display_id"]))
			set("surfaceId", num(a["surface_id"]))
			set("beginMach", begin)
			set("endMach", num(r.cols["time"]))
			set("previousMach", num(a["prev_frame"]))
			set("refreshIntervalMach", num(a["refresh_interval"]))
			set("bufferCount", num(a["buffer_count"]))
			set("skipRequest", num(a["skip_request"]))
			opt("displayTargetMach", num(a["presentation_modifier_display_target_mct"]))
			opt("inputMach", num(a["input_time"]))
			f["contributors"] = people[seed]
		case "FrameUpdate":
			a := argsOf(t, r)
			base, args1, life, render := num(a["base_mct"]), num(a["args1"]), num(a["FrameLifetimeInterval"]), num(a["FrameRender"])
			set("swapId", id&0xffffffff)
			set("frameSeed", id>>32)
			set("displayId", args1>>48&255)
			set("surfaceId", 0)
			set("beginMach", base+life>>32)
			set("endMach", base+life&0xffffffff)
			set("previousMach", num(a["FramePrevious"]))
			refresh := num(a["args2"]) & 0xffffffff
			if refresh == 0xffffffff {
				refresh = 0
			}
			set("refreshIntervalMach", refresh)
			set("bufferCount", args1>>44&15)
			set("skipRequest", args1>>33&1)
			if v := num(a["FrameModifierTarget"]); v != 0 {
				set("displayTargetMach", base+v)
			}
			if render != 0 {
				set("renderBeginMach", base+render>>32)
				set("renderEndMach", base+render&0xffffffff)
			}
			set("nativeId", id)
			var list []person
			for b := joined(a["contributors"]); len(b) >= 16; b = b[16:] {
				list = append(list, person{PID: int64(int32(binary.LittleEndian.Uint32(b)))})
			}
			f["contributors"] = list
		default:
			continue
		}
		frames = append(frames, f)
		lastMsg = append(lastMsg, r.inMsg)
	}
	if len(begins) > 1 { // one may be cut off at the stream's end
		t.Errorf("%d frames have a Begin and no End", len(begins))
	}
	return frames, lastMsg
}

// line is f in the members' order of the truth.
func (f naiveFrame) line() string {
	var b strings.Builder
	for _, key := range []string{"name", "category", "swapId", "frameSeed", "displayId", "surfaceId", "beginMach", "endMach", "previousMach",
		"refreshIntervalMach", "bufferCount", "skipRequest", "displayTargetMach", "inputMach", "renderBeginMach", "renderEndMach", "nativeId", "contributors"} {
		v, ok := f[key]
		if !ok {
			continue
		}
		text, _ := json.Marshal(v)
		b.WriteString("," + strconv.Quote(key) + ":" + string(text))
	}
	return "{" + b.String()[1:] + "}"
}
