package adapter

import (
	"encoding/binary"
	"slices"
	"testing"
)

// encoder writes row streams as the device does (wire.md): repeated strings stay on the stack and are copied.
type encoder struct {
	out    []byte
	depth  int
	shared map[string]int // place on the stack
}

func newEncoder() *encoder {
	e := &encoder{}
	e.reset()
	return e
}

func (e *encoder) word(w uint16) { e.out = binary.LittleEndian.AppendUint16(e.out, w) }

// reset begins a stream anew and defines the table os-signpost with the columns that the adapter reads, and one that it does not.
func (e *encoder) reset() {
	e.word(0x6400)
	e.depth, e.shared = 0, map[string]int{}
	columns := []any{"thread", "time", "event-type", "identifier", "name", "format-string", "subsystem", "category", "message"}
	e.table(2, "os-signpost", columns...)
}

func (e *encoder) table(id uint16, name string, columns ...any) {
	e.push(nil)
	e.push(nil)
	e.push(name)
	e.push(columns)
	e.word(0x0100 | id)
	e.depth -= 4
}

// push takes nil, a string, numbers, []byte or a struct of them.
func (e *encoder) push(v any) {
	switch v := v.(type) {
	case nil:
		e.word(0x6800)
	case int:
		e.push(uint64(v))
		return
	case uint64:
		b := binary.LittleEndian.AppendUint64(nil, v)
		for len(b) > 1 && b[len(b)-1] == 0 {
			b = b[:len(b)-1]
		}
		e.bytes(b)
	case string:
		e.bytes(append([]byte(v), 0))
	case []byte:
		e.bytes(v)
	case []any:
		for _, item := range v {
			e.push(item)
		}
		e.word(0x6900 | uint16(len(v)))
		e.depth -= len(v)
	}
	e.depth++
}

func (e *encoder) bytes(b []byte) {
	var bits, count uint
	groups := (len(b)*8 + 13) / 14
	for i := range groups {
		for count < 14 {
			bits <<= 8
			if len(b) > 0 {
				bits |= uint(b[0])
				b = b[1:]
			}
			count += 8
		}
		w := uint16(bits>>(count-14)&0x3FFF) | 0x8000
		if i == groups-1 {
			w |= 0x4000
		}
		e.word(w)
		count -= 14
	}
}

// keep puts a string on the stack to stay, unless it is there.
func (e *encoder) keep(text string) {
	if _, ok := e.shared[text]; !ok {
		e.shared[text] = e.depth
		e.push(text)
	}
}

// copy pushes a kept string, or anything else afresh.
func (e *encoder) copy(v any) {
	text, ok := v.(string)
	place, kept := e.shared[text]
	if !ok || !kept {
		e.push(v)
		return
	}
	if below := e.depth - 1 - place; below < 255 {
		e.word(0x6500 | uint16(below))
	} else {
		e.push(place + 1)
		e.word(0x65FF)
		e.depth--
	}
	e.depth++
}

// testRow is a row of os-signpost. Strings in it are shared, in a message as well.
type testRow struct {
	time, event, id, name, format, subsystem, category any
	message                                            any // nil, or []any of []any{type, value}
}

func (e *encoder) row(r testRow) {
	cells := []any{r.time, r.event, r.id, r.name, r.format, r.subsystem, r.category}
	pairs, isList := r.message.([]any)
	for _, v := range cells {
		if text, ok := v.(string); ok {
			e.keep(text)
		}
	}
	for _, p := range pairs {
		if pair, ok := p.([]any); ok {
			for _, v := range pair {
				if text, ok := v.(string); ok {
					e.keep(text)
				}
			}
		}
	}
	before := e.depth
	e.push(nil)
	for i, v := range cells {
		e.copy(v)
		if i == 0 {
			e.word(0x0500)
		}
	}
	if isList {
		for _, p := range pairs {
			pair, ok := p.([]any)
			if !ok {
				e.push(p)
				continue
			}
			for _, v := range pair {
				e.copy(v)
			}
			e.word(0x6900 | uint16(len(pair)))
			e.depth -= len(pair) - 1
		}
		e.word(0x6900 | uint16(len(pairs)))
		e.depth -= len(pairs) - 1
	} else {
		e.push(r.message)
	}
	e.word(0x0202)
	e.depth = before
}

// take is what was written since the last take: the next payload.
func (e *encoder) take() []byte {
	out := e.out
	e.out = nil
	return out
}

// payload is one whole stream with these rows.
func payload(rows ...testRow) []byte {
	e := newEncoder()
	for _, r := range rows {
		e.row(r)
	}
	return e.take()
}

// The format strings of wire.md.
const (
	format7 = "ID is swap ID. %{public, signpost.description:begin_time}llu frame_seed=%{public, name=frame_seed}#x " +
		"refresh_interval=%{public, name=refresh_interval}llu buffer_count=%{public, name=buffer_count}hhu " +
		"%{public, signpost.description:end_time}llu prev_frame=%{public, name=prev_frame}llu skip_request=%{public, name=skip_request}hhu"
	format9      = format7 + " display_id=%{public, name=display_id}#x surface_id=%{public, name=surface_id}#x"
	formatUpdate = "Unique ID is a pack of two 32-bit update_seed and swap_id. base_mct=%{signpost.generator:base_mct}llu  args1=%{public, name=args1}#llx " +
		"args2=%{public, name=args2}#llx contributors=%{public, name=contributors}.*P " +
		"FrameLifetimeInterval=%{name=FrameLifetimeInterval,signpost.generator:begin_end_32b}llu " +
		"FrameRender=%{name=FrameRender,signpost.generator:begin_end_32b}llu  FrameReady=%{name=FrameReady,signpost.generator:event}u  " +
		"FramePrevious=%{name=FramePrevious,signpost.generator:event}llu"
)

// lifetime is one FrameLifetime frame as the server emits it.
type lifetime struct {
	seed, swap, display, surface int
	begin, end, previous         int
	refresh                      int
	stalls                       bool
}

// message is the nine-argument message of a Begin or End row.
func (f lifetime) message() []any {
	return []any{
		[]any{"narrative-text", "ID is swap ID. "},
		[]any{"narrative-text", " frame_seed="}, []any{"uint64-hex-lowercase", f.seed},
		[]any{"narrative-text", " refresh_interval="}, []any{"uint64", f.refresh},
		[]any{"narrative-text", " buffer_count="}, []any{"uint64", 2}, []any{"narrative-text", " "},
		[]any{"narrative-text", " prev_frame="}, []any{"uint64", f.previous},
		[]any{"narrative-text", " skip_request="}, []any{"uint64", 0},
		[]any{"narrative-text", " display_id="}, []any{"uint64-hex-lowercase", f.display},
		[]any{"narrative-text", " surface_id="}, []any{"uint64-hex-lowercase", f.surface},
	}
}

func (f lifetime) category() string {
	if f.stalls {
		return "IOMFBServer.Stalls"
	}
	return "IOMFBServer"
}

func (f lifetime) row(event string, time int) testRow {
	return testRow{time: time, event: event, id: f.swap, name: "FrameLifetime", format: format9, subsystem: "com.apple.coreanimation",
		category: f.category(), message: f.message()}
}

func (f lifetime) beginRow() testRow { return f.row("Begin", f.begin) }
func (f lifetime) endRow() testRow   { return f.row("End", f.end) }

// steadyFrame is the i-th frame of a steady 120 Hz display.
func steadyFrame(i int) lifetime {
	end := 59827756837127 + 200000*i
	return lifetime{seed: 0x778d6c5 + i, swap: 90001 + i, display: 1, surface: 289, begin: end - 225874, end: end, previous: end - 200000, refresh: 199999}
}

// update is one FrameUpdate frame as the server emits it.
type update struct {
	seed, swap            uint64
	base, begin, end      uint64 // begin and end are offsets
	args1, args2          uint64
	previous              uint64
	render, ready         uint64
	contributors          any
	event, format, values any // other than usual, where not nil
}

func (f update) row() testRow {
	r := testRow{time: f.base, event: "Event", id: f.seed<<32 | f.swap, name: "FrameUpdate", format: formatUpdate,
		subsystem: "com.apple.coreanimation", category: "IOMFBServer"}
	if f.event != nil {
		r.event = f.event
	}
	if f.format != nil {
		r.format = f.format
	}
	r.message = []any{
		[]any{"narrative-text", "Unique ID is a pack of two 32-bit update_seed and swap_id. base_mct="}, []any{"uint64", f.base},
		[]any{"narrative-text", "  args1="}, []any{"uint64-hex-lowercase", f.args1},
		[]any{"narrative-text", " args2="}, []any{"uint64-hex-lowercase", f.args2},
		[]any{"narrative-text", " contributors="}, []any{"data", f.contributors},
		[]any{"narrative-text", " FrameLifetimeInterval="}, []any{"uint64", f.begin<<32 | f.end},
		[]any{"narrative-text", " FrameRender="}, []any{"uint64", f.render},
		[]any{"narrative-text", "  FrameReady="}, []any{"uint64", f.ready},
		[]any{"narrative-text", "  FramePrevious="}, []any{"uint64", f.previous},
	}
	if f.values != nil {
		r.message = f.values
	}
	return r
}

// steadyUpdate is the i-th frame of a steady 120 Hz display on iOS 26, with two contributors.
func steadyUpdate(i int) update {
	l := steadyFrame(i)
	return update{seed: uint64(l.seed), swap: uint64(l.swap), base: uint64(l.begin), end: uint64(l.end - l.begin),
		args1: 1<<48 | 2<<44, args2: 199999, previous: uint64(l.previous), render: 1000<<32 | 112937, ready: 112937,
		contributors: []any{[]byte{0xAF, 1, 0, 0, 0x9C, 0xFF, 0xFF, 0xFF}, []byte{0, 0, 0, 0x80, 0, 0, 0, 0x80},
			[]byte{64, 0, 0, 0, 0x9C, 0xFF, 0xFF, 0xFF}, []byte{0, 0, 0, 0x80, 0, 0, 0, 0x80}}}
}

func TestEncoderGivesTheWorkedExampleOfTheContract(t *testing.T) {
	e := &encoder{}
	for _, v := range []any{"os-signpost", "FrameLifetime", uint64(16199036112369), uint64(400000)} {
		e.push(v)
	}
	want := []uint16{0x9bdc, 0xb2d7, 0x8da5, 0xa76e, 0x9c1b, 0xb737, 0xd000, 0x919c, 0xa616, 0xb595, 0x8c69, 0x9999, 0x9746, 0xa5b5, 0xe500,
		0xbc43, 0x9cba, 0x86ec, 0xce00, 0xa006, 0xe060}
	var got []uint16
	for b := e.out; len(b) > 0; b = b[2:] {
		got = append(got, binary.LittleEndian.Uint16(b))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %04x\nwant %04x", got, want)
	}
}
