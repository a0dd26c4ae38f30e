package adapter

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/framebridge/framebridge/dtx/tap"
)

func TestRecordsCarryTheIdentityThatWasBoundWhenTheyCame(t *testing.T) {
	a, got := newTestAdapter(t), &collector{}
	e := newEncoder()
	message := func(i int) []byte {
		e.row(steadyFrame(i).beginRow())
		e.row(steadyFrame(i).endRow())
		return e.take()
	}
	a.Message(100, message(0), got)
	relaunched := testBinding
	relaunched.Target = Target{"com.example.app", 977, 2}
	if err := a.Bind(relaunched); err != nil {
		t.Fatal(err)
	}
	a.Message(200, message(1), got)
	reconnected := relaunched
	reconnected.ReconnectGeneration = 1
	a.Bind(reconnected)
	a.Message(300, message(2), got)
	rebooted := reconnected
	rebooted.SourceEpoch, rebooted.ReconnectGeneration, rebooted.Timebase = 2, 0, Timebase{1, 1}
	a.Bind(rebooted)
	a.Message(400, message(3), got)
	a.Bind(Binding{SourceEpoch: 2, Timebase: Timebase{1, 1}})
	a.Message(500, message(4), got)

	want := []struct {
		bound     Binding
		hasTarget bool
		quality   Quality
	}{
		{testBinding, true, QualityNoPredecessor},
		{relaunched, true, QualityValid}, // frames are the display's, whoever the target is
		{reconnected, true, QualityNoPredecessor},
		{rebooted, true, QualityNoPredecessor},
		{Binding{SourceEpoch: 2, Timebase: Timebase{1, 1}}, false, QualityValid},
	}
	for i, w := range want {
		r := got.records[i]
		if r.Target != w.bound.Target || r.SourceEpoch != w.bound.SourceEpoch || r.ReconnectGeneration != w.bound.ReconnectGeneration ||
			r.Timebase != w.bound.Timebase || (r.Fields&HasTarget != 0) != w.hasTarget || r.Quality != w.quality {
			t.Errorf("record %d: %v, %+v", i, r.Quality, r)
		}
		if r.RawSequence != int64(i+1) || r.Policy != PolicyP95 || r.Source != SourceGoIOS || r.Schema != "perfowl.display-frame-event/2" || !r.Decoded || !r.Verified {
			t.Errorf("record %d: %+v", i, r)
		}
	}
	if r := got.records[4]; r.FrameTimeNs != 200_000 {
		t.Errorf("200,000 ticks at 1/1 are %d ns", r.FrameTimeNs)
	}
}

func TestFramesBeforeAnythingIsBoundCannotBeJudged(t *testing.T) {
	a, got := New(SourceGoIOS, "s", PolicyP95), &collector{}
	a.Message(1, payload(steadyFrame(0).beginRow(), steadyFrame(0).endRow()), got)
	if len(got.records) != 1 || got.records[0].Quality != QualityUnsupportedSchema || got.records[0].Fields&(HasTimebase|HasPresentationNs) != 0 {
		t.Errorf("got %+v", got.records)
	}
}

func TestATimebaseBelowOneIsRefused(t *testing.T) {
	a := newTestAdapter(t)
	for _, tb := range []Timebase{{}, {125, 0}, {0, 3}, {-125, 3}} {
		if err := a.Bind(Binding{Timebase: tb}); err == nil {
			t.Errorf("%v was accepted", tb)
		}
	}
}

func TestHostTimesOfRecordsIncreaseStrictly(t *testing.T) {
	a, got, e := newTestAdapter(t), &collector{}, newEncoder()
	n := 0
	send := func(hostNs int64, frames int) {
		for range frames {
			e.row(steadyFrame(n).beginRow())
			e.row(steadyFrame(n).endRow())
			n++
		}
		a.Message(hostNs, e.take(), got)
	}
	send(-5, 1)
	send(1000, 3)
	send(1001, 2) // the message before already reached 1002
	send(900, 1)  // a clock that went back
	send(5000, 1)
	var times []int64
	for _, r := range got.records {
		times = append(times, r.HostNs)
	}
	if want := []int64{-5, 1000, 1001, 1002, 1003, 1004, 1005, 5000}; !slices.Equal(times, want) {
		t.Errorf("got %v, want %v", times, want)
	}
}

func TestARecordArrivesWithTheMessageThatCompletesIt(t *testing.T) {
	a, got, e := newTestAdapter(t), &collector{}, newEncoder()
	e.row(steadyFrame(0).beginRow())
	e.row(steadyFrame(0).endRow())
	stream := e.take()
	cut := len(stream) - 3 // in the middle of the last row's opcode
	a.Message(100, stream[:cut], got)
	if len(got.records) != 0 {
		t.Fatal("a record before its row ended")
	}
	a.Message(200, stream[cut:], got)
	if len(got.records) != 1 || got.records[0].HostNs != 200 {
		t.Errorf("got %+v", got.records)
	}
}

func TestStatusObjectsAreCountedAndNotDecoded(t *testing.T) {
	a, got := newTestAdapter(t), &collector{}
	a.Message(1, []byte("bplist00\xd1\x01\x02"), got)
	a.Message(2, payload(steadyFrame(0).beginRow(), steadyFrame(0).endRow()), got)
	if c := a.Counts(); c.StatusMessages != 1 || c.Messages != 1 || c.Rows != 2 || len(got.records) != 1 || len(got.gaps) != 0 {
		t.Errorf("%+v, gaps %v", c, got.gaps)
	}
}

func TestAFrameThatLostItsArgumentsIsOnNoOtherDisplay(t *testing.T) {
	lost, other := steadyFrame(0).endRow(), steadyFrame(0)
	lost.message = nil
	other.display = 2
	damaged := other.endRow()
	damaged.message = damaged.message.([]any)[:14] // display_id is the last
	damaged.message.([]any)[11] = []any{"private", nil}
	for _, c := range []struct {
		first testRow
		known bool
	}{{lost, true}, {damaged, false}} {
		var rows []testRow
		for _, i := range []int{1, 3} { // 2 was lost on the way
			rows = append(rows, steadyFrame(i).beginRow(), steadyFrame(i).endRow())
		}
		got, _ := read(t, append([]testRow{c.first}, rows...)...)
		if got.records[0].Quality != QualityUnsupportedSchema {
			t.Errorf("%+v", got.records[0])
		}
		if r := got.records[2]; r.Quality != QualitySourceGap || (r.Fields&HasDroppedBefore != 0) != c.known || c.known && r.DroppedBefore != 1 {
			t.Errorf("%v, dropped before %d; known: %v, want %v", r.Quality, r.DroppedBefore, r.Fields&HasDroppedBefore != 0, c.known)
		}
	}
}

func TestBothDisplaysAreJudgedOnTheirOwn(t *testing.T) {
	var rows []testRow
	for i := range 3 {
		f, g := steadyFrame(i), steadyFrame(i)
		f.seed, f.swap = 100+2*i, 100+2*i
		g.display, g.seed, g.swap = 2, 101+2*i, 101+2*i
		g.begin, g.end, g.previous = g.begin+40_000, g.end+40_000, g.previous+40_000
		rows = append(rows, f.beginRow(), f.endRow(), g.beginRow(), g.endRow())
	}
	got, counts := read(t, rows...)
	for i, r := range got.records {
		want := QualityValid
		if i < 2 {
			want = QualityNoPredecessor
		}
		if r.Quality != want || r.DisplayID != int64(1+i%2) {
			t.Errorf("record %d: display %d, %v %s", i, r.DisplayID, r.Quality, r.QualityReason)
		}
	}
	if counts.ByQuality[QualityValid] != 4 {
		t.Errorf("%+v", counts.JudgeStats)
	}
}

func TestSkyLightFramesAreReadAsWell(t *testing.T) {
	f, g := steadyFrame(0), steadyFrame(1)
	rows := []testRow{f.beginRow(), f.endRow(), g.beginRow(), g.endRow()}
	for i := range rows {
		rows[i].subsystem, rows[i].category = "com.apple.SkyLight", "tracing"
		if i >= 2 {
			rows[i].category = "tracing.stalls"
		}
	}
	got, _ := read(t, rows...)
	if len(got.records) != 2 || got.records[0].Category != "tracing" || got.records[1].Category != "tracing.stalls" || got.records[1].Subsystem != "com.apple.SkyLight" ||
		got.records[1].Quality != QualityValid {
		t.Errorf("got %+v", got.records)
	}
}

func TestFramesToldUnderBothCategoriesAreOneRecord(t *testing.T) {
	f := steadyFrame(0)
	twin := f
	twin.stalls = true
	got, counts := read(t, f.beginRow(), twin.beginRow(), f.endRow(), twin.endRow())
	if len(got.records) != 1 || got.records[0].Category != "IOMFBServer" || counts.CategoryTwins != 1 {
		t.Errorf("records %+v, %+v", got.records, counts.JudgeStats)
	}
}

func TestRowsThatAreNoFramesAreCountedByNameWithAnExample(t *testing.T) {
	f := steadyFrame(0)
	foreign := testRow{time: 1, event: "Event", id: 1, name: "Commit", subsystem: "com.apple.coreanimation", category: "Transaction",
		message: []any{[]any{"narrative-text", "size "}, []any{"uint64", 12}, []any{"narrative-text", " at "}, []any{"uint64-hex-lowercase", 255}, []any{"private", nil}}}
	elsewhere := f.endRow()
	elsewhere.category = "Other"
	nameless := testRow{time: 1}
	e := newEncoder()
	e.table(0, "os-log", "time", "message")
	for _, r := range []testRow{f.beginRow(), foreign, foreign, elsewhere, f.endRow(), nameless} {
		e.row(r)
	}
	for range 3 {
		e.push(nil)
		e.push("a log line")
		e.word(0x0200)
		e.depth -= 2
	}
	a, got := newTestAdapter(t), &collector{}
	a.Message(1, e.take(), got)
	c := a.Counts()
	message := "ID is swap ID.  frame_seed=0x778d6c5 refresh_interval=199999 buffer_count=2  prev_frame=59827756637127 skip_request=0 display_id=0x1 surface_id=0x121"
	want := []NameCount{
		{"", "", "", 1, "", false},
		{"", "", "(os-log)", 3, "", false},
		{"com.apple.coreanimation", "IOMFBServer", "FrameLifetime", 2, message, true},
		{"com.apple.coreanimation", "Other", "FrameLifetime", 1, message, false},
		{"com.apple.coreanimation", "Transaction", "Commit", 2, "size 12 at 0xff<private>", false},
	}
	if !reflect.DeepEqual(c.Names, want) || c.Rows != 9 || c.OtherNameRows != 0 || len(got.records) != 1 || len(got.gaps) != 0 {
		t.Errorf("got %+v\nwant %+v\ngaps %v", c.Names, want, got.gaps)
	}
}

func TestNamesBeyondTheBoundShareOneCountAndHideNoFrames(t *testing.T) {
	e := newEncoder()
	for i := range MaxNames + 10 {
		e.row(testRow{time: 1, event: "Event", name: fmt.Sprintf("name %d", i), subsystem: strings.Repeat("s", 1000)})
		if i%100 == 0 {
			e.reset()
		}
	}
	e.row(steadyFrame(0).beginRow())
	e.row(steadyFrame(0).endRow())
	a, got := newTestAdapter(t), &collector{}
	a.Message(1, e.take(), got)
	c := a.Counts()
	if c.OtherNameRows != 10 || len(c.Names) != MaxNames+1 || len(got.records) != 1 {
		t.Errorf("%d names, %d other rows, %d records", len(c.Names), c.OtherNameRows, len(got.records))
	}
	if n := len(c.Names[MaxNames].Subsystem); n != maxWordBytes {
		t.Errorf("a subsystem of %d bytes was kept", n)
	}
}

func TestARowThatTheDeviceCannotHaveSentBreaksTheStreamUntilItsReset(t *testing.T) {
	good := steadyFrame(0)
	for name, change := range map[string]func(*testRow){
		"event type":           func(r *testRow) { r.event = "Process" },
		"event type a struct":  func(r *testRow) { r.event = []any{1031, []any{64}} },
		"subsystem a struct":   func(r *testRow) { r.subsystem = []any{64} },
		"category a struct":    func(r *testRow) { r.category = []any{64} },
		"name a struct":        func(r *testRow) { r.name = []any{64} },
		"time a struct":        func(r *testRow) { r.time = []any{64} },
		"message a string":     func(r *testRow) { r.message = "os-signpost" },
		"message without pair": func(r *testRow) { r.message = []any{"uint64", 5} },
		"message with triples": func(r *testRow) { r.message = []any{[]any{"uint64", 5, 6}} },
		"message type a list":  func(r *testRow) { r.message = []any{[]any{[]any{}, 5}} },
		"message too long":     func(r *testRow) { r.message = slices.Repeat([]any{[]any{"uint64", 5}}, maxItems+1) },
	} {
		t.Run(name, func(t *testing.T) {
			e := newEncoder()
			bad := good.endRow()
			change(&bad)
			e.row(bad)
			e.row(good.beginRow()) // passed over
			e.row(good.endRow())
			e.reset()
			e.row(steadyFrame(1).beginRow())
			e.row(steadyFrame(1).endRow())
			a, got := newTestAdapter(t), &collector{}
			a.Message(1, e.take(), got)
			if len(got.records) != 1 || got.records[0].SwapID != 90002 || got.order != "ggr" {
				t.Fatalf("order %s, records %+v", got.order, got.records)
			}
			if got.gaps[0].Reason != tap.ReasonBroken || got.gaps[1].Reason != tap.ReasonSkipped || got.gaps[1].Rows != 2 {
				t.Errorf("gaps %+v", got.gaps)
			}
		})
	}
}

func TestAFrameRowThatCannotBeReadIsAGapOfOneRow(t *testing.T) {
	f := steadyFrame(0)
	for name, change := range map[string]func(*testRow){
		"no event type": func(r *testRow) { r.event = nil },
		"no time":       func(r *testRow) { r.time = nil },
		"time too long": func(r *testRow) { r.time = []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10} },
	} {
		bad := f.endRow()
		change(&bad)
		got, counts := read(t, bad, f.beginRow(), f.endRow())
		if got.order != "gr" || got.gaps[0].Reason != ReasonFrameRow || got.gaps[0].Rows != 1 || counts.UnreadableFrameRows != 1 {
			t.Errorf("%s: order %s, gaps %+v", name, got.order, got.gaps)
		}
	}
}

func TestABrokenStreamIsSkippedUntilItsConnectionEnds(t *testing.T) {
	a, e, got := newTestAdapter(t), newEncoder(), &collector{}
	e.row(steadyFrame(0).beginRow())
	e.row(steadyFrame(0).endRow())
	a.Message(1, e.take(), got)
	a.Message(1, []byte{0xff, 0x7f}, got) // no word that the device sends
	e.row(steadyFrame(1).beginRow())
	e.row(steadyFrame(1).endRow())
	a.Message(2, e.take(), got)
	a.EndConnection(got)
	a.Message(3, payload(steadyFrame(2).beginRow(), steadyFrame(2).endRow()), got)
	if got.order != "rggr" || got.gaps[0].Reason != tap.ReasonBroken || got.gaps[1].Rows != 2 {
		t.Errorf("order %s, gaps %+v", got.order, got.gaps)
	}
	if r := got.records[1]; r.Quality != QualitySourceGap || r.DroppedBefore != 1 || r.RawSequence != 2 {
		t.Errorf("the frame behind the gap: %v, dropped %d, rawSequence %d", r.Quality, r.DroppedBefore, r.RawSequence)
	}
}

func TestNothingIsAllocatedInSteadyState(t *testing.T) {
	for _, update := range []bool{false, true} {
		payloads := benchPayloads(update)
		a, s := newTestAdapter(t), &lineSink{encode: true, line: make([]byte, 0, RecordJSONBytes)}
		for _, p := range payloads[:200] {
			a.Message(1, p, s)
		}
		next := 200
		if n := testing.AllocsPerRun(500, func() {
			a.Message(1, payloads[next], s)
			next++
		}); n != 0 {
			t.Errorf("update %v: %v allocations for each payload of 12 frames", update, n)
		}
		if s.records != 12*next || len(s.line) > RecordJSONBytes {
			t.Errorf("%d records of %d payloads, lines of %d bytes", s.records, next, len(s.line))
		}
	}
}

// FuzzRows feeds whole rows of the forms, with what fuzzing makes of their words and values.
func FuzzRows(f *testing.F) {
	f.Add(uint8(0), "End", format9, "narrative-text uint64 string data private", []byte("\x05\x06\x07\x08\x09"), uint64(9), uint64(7))
	f.Add(uint8(1), "Event", formatUpdate, "uint64", []byte{1, 2, 3, 4, 5, 6, 7, 8}, uint64(1<<32|1), uint64(1<<63))
	f.Add(uint8(2), "Event", "pid=%d frame_seed=%d", "uint64 string", []byte{1, 2}, uint64(1), uint64(2))
	f.Fuzz(func(t *testing.T, form uint8, event, format, words string, values []byte, id, time uint64) {
		types := strings.Split(words, " ")
		var message []any
		for i, v := range values[:min(len(values), maxItems)] {
			message = append(message, []any{types[i%len(types)], time>>(v%64) + uint64(v)})
		}
		row := testRow{time: time, event: event, id: id, name: formNames[1+form%3], format: format, subsystem: "com.apple.coreanimation",
			category: "IOMFBServer", message: message}
		begin := row
		begin.event = "Begin"
		a, got := newTestAdapter(t), &collector{}
		a.Message(1, payload(begin, row), got)
		a.EndConnection(got)
		var p RecordParser
		for i := range got.records {
			var back Record
			if _, err := p.Parse(got.records[i].AppendJSON(nil, 1), &back); err != nil || !sameRecord(got.records[i], back) {
				t.Fatalf("record %d does not read back (%v):\n%+v\n%+v", i, err, got.records[i], back)
			}
		}
	})
}

func FuzzPayloads(f *testing.F) {
	f.Add(payload(steadyFrame(0).beginRow(), steadyFrame(0).endRow()), payload(steadyUpdate(0).row()))
	f.Add(payload(contextRow("Event", []any{"uint64", 1}, []any{"uint64", 2})), []byte("bplist00"))
	for _, name := range []string{"ios15", "macos15", "ios18", "ios26"} {
		r := tap.NewWireReader(dataFile(f, "tap/"+name+".wire"))
		for first, err := r.Next(); err == nil; {
			first.Payload = slices.Clone(first.Payload)
			var second tap.WireRecord
			if second, err = r.Next(); err == nil {
				f.Add(first.Payload, slices.Clone(second.Payload))
				first = second
			}
		}
	}
	f.Fuzz(func(t *testing.T, one, two []byte) {
		a, got := newTestAdapter(t), &collector{}
		a.Message(1, one, got)
		a.Message(2, two, got)
		a.EndConnection(got)
		a.Message(3, payload(steadyFrame(0).beginRow(), steadyFrame(0).endRow()), got)
		var p RecordParser
		for i := range got.records {
			r := &got.records[i]
			if r.Quality == QualityUnknown || r.RawSequence != int64(i+1) || i > 0 && r.HostNs <= got.records[i-1].HostNs {
				t.Fatalf("record %d: %+v", i, r)
			}
			if (r.Quality == QualityValid) != (r.Fields&HasFrameTime != 0) || r.Quality == QualityValid && r.FrameTimeNs > 1_100_000_000 {
				t.Fatalf("record %d: %+v", i, r)
			}
			var back Record
			if _, err := p.Parse(r.AppendJSON(nil, 1), &back); err != nil || !sameRecord(*r, back) {
				t.Fatalf("record %d does not read back (%v):\n%+v\n%+v", i, err, *r, back)
			}
		}
		if last := len(got.records) - 1; last < 0 || got.records[last].SwapID != 90001 && got.records[last].Quality != QualityDuplicate {
			t.Fatal("a new connection's frame was not read")
		}
	})
}
