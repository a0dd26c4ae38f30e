package adapter

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// contractLine is the example of raw-record.md, on one line.
const contractLine = `{"seq":812,"hostNs":91234567890123,"type":"display.frame-lifetime.raw","schema":"perfowl.display-frame-event/2",` +
	`"rawSequence":777,"sessionId":"5f0c…",` +
	`"source":{"service":"com.apple.instruments.server.services.activitytracetap","channel":1,"selector":"onlySignposts",` +
	`"adapter_id":"goios.activity-trace.frame-lifetime.raw","adapter_version":2,` +
	`"scope":"foreground-device","raw_unit":"signpost-framelifetime"},` +
	`"target":{"bundleId":"com.example.app","pid":431,"generation":1},` +
	`"sourceEpoch":1,"reconnectGeneration":0,"p95PublicationPolicy":"p95-window-segment.v2",` +
	`"payload":{"subsystem":"com.apple.coreanimation","category":"IOMFBServer.Stalls","name":"FrameLifetime",` +
	`"swapId":125359813,"frameSeed":125359813,"displayId":1,"surfaceId":289,` +
	`"beginMach":59827756514418,"endMach":59827757037126,"previousMach":59827756837127,` +
	`"refreshIntervalMach":199999,"bufferCount":2,"skipRequest":0,` +
	`"timebase":{"numer":125,"denom":3},` +
	`"presentationNs":2492823209880250,"frameTimeMs":8.333291,"lifetimeMs":21.7795,"refreshMultiple":1,` +
	`"quality":"valid","qualityReason":"","decoded":true,"verified":true,"droppedBefore":0}}`

func contractRecord() Record {
	source := SourceGoIOS
	source.Channel = 1
	return Record{
		Fields: HasHostNs | HasRawSequence | HasSource | HasTarget | HasSourceEpoch | HasReconnectGeneration | HasNatives | HasDisplayID | HasSurfaceID | HasTimebase |
			HasPresentationNs | HasFrameTime | HasLifetime | HasRefreshMultiple | HasQuality | HasDroppedBefore,
		HostNs: 91234567890123, RawSequence: 777, SessionID: "5f0c…", Schema: "perfowl.display-frame-event/2", Source: source,
		Target: Target{"com.example.app", 431, 1}, SourceEpoch: 1, Policy: "p95-window-segment.v2",
		Subsystem: "com.apple.coreanimation", Category: "IOMFBServer.Stalls", Name: "FrameLifetime",
		SwapID: 125359813, FrameSeed: 125359813, DisplayID: 1, SurfaceID: 289,
		BeginMach: 59827756514418, EndMach: 59827757037126, PreviousMach: 59827756837127, RefreshIntervalMach: 199999, BufferCount: 2,
		Timebase: Timebase{125, 3}, PresentationNs: 2492823209880250, FrameTimeNs: 8333291, LifetimeNs: 21779500, RefreshMultipleMilli: 1000,
		Quality: QualityValid, Decoded: true, Verified: true,
	}
}

// sameRecord compares records, presentFields by content.
func sameRecord(a, b Record) bool {
	same := slices.Equal(a.PresentFields, b.PresentFields)
	a.PresentFields, b.PresentFields = nil, nil
	return same && reflect.DeepEqual(a, b)
}

func TestTheContractsExampleIsWrittenByteForByteAndReadBack(t *testing.T) {
	r := contractRecord()
	if got := string(r.AppendJSON(nil, 812)); got != contractLine {
		t.Errorf("got  %s\nwant %s", got, contractLine)
	}
	back, seq, err := ParseRecord([]byte(contractLine))
	if err != nil || seq != 812 || !sameRecord(back, r) {
		t.Errorf("seq %d, %v\n got %+v\nwant %+v", seq, err, back, r)
	}
}

func TestTheContractsExampleIsWhatTheJudgeMakesOfItsIntegers(t *testing.T) {
	want := contractRecord()
	j := newJudge()
	before := told{seed: 125359812, swap: 125359812, end: 59827756837127, previous: 59827756637128}.record(Timebase{125, 3})
	j.judge(&before, categoryIOMFB, "")
	got := contractRecord()
	got.Fields &^= HasPresentationNs | HasFrameTime | HasLifetime | HasRefreshMultiple | HasQuality | HasDroppedBefore
	got.PresentationNs, got.FrameTimeNs, got.LifetimeNs, got.RefreshMultipleMilli, got.Quality, got.Decoded, got.Verified = 0, 0, 0, 0, 0, false, false
	j.judge(&got, categoryIOMFBStalls, "")
	if !sameRecord(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestOptionalMembersStandBehindTheNativesAndAtTheEnd(t *testing.T) {
	r := contractRecord()
	r.Fields |= HasDisplayTargetMach | HasInputMach | HasRenderBeginMach | HasRenderEndMach | HasNativeID | HasPredecessorSkew
	r.DisplayTargetMach, r.InputMach, r.RenderBeginMach, r.RenderEndMach, r.NativeID, r.PredecessorSkewMach = 1, 2, 3, 4, math.MinInt64, -7
	line := string(r.AppendJSON(nil, 1))
	for _, want := range []string{
		`"skipRequest":0,"displayTargetMach":1,"inputMach":2,"renderBeginMach":3,"renderEndMach":4,"nativeId":-9223372036854775808,"timebase":`,
		`"droppedBefore":0,"predecessorSkewMach":-7}}`,
	} {
		if !strings.Contains(line, want) {
			t.Errorf("%s is not in %s", want, line)
		}
	}
	if back, _, err := ParseRecord([]byte(line)); err != nil || !sameRecord(back, r) {
		t.Errorf("%v\n got %+v\nwant %+v", err, back, r)
	}
}

func TestWhatARecordDoesNotHaveIsNullOrLeftOut(t *testing.T) {
	r := Record{Schema: RecordSchema, Subsystem: "s", Category: "c", Name: "FrameLifetime", Fields: HasQuality, Quality: QualityUnsupportedSchema,
		QualityReason: ReasonArgumentMissing, PresentFields: []string{"end_time", "prev_frame"}}
	want := `{"seq":9,"hostNs":null,"type":"display.frame-lifetime.raw","schema":"perfowl.display-frame-event/2","rawSequence":null,"sessionId":null,"source":null,` +
		`"target":null,"sourceEpoch":null,"reconnectGeneration":null,"payload":{"subsystem":"s","category":"c","name":"FrameLifetime","swapId":null,"frameSeed":null,` +
		`"displayId":null,"surfaceId":null,"beginMach":null,"endMach":null,"previousMach":null,"refreshIntervalMach":null,"bufferCount":null,"skipRequest":null,` +
		`"timebase":null,"presentationNs":null,"frameTimeMs":null,"lifetimeMs":null,"refreshMultiple":null,"quality":"unsupported-schema",` +
		`"qualityReason":"argument-missing","decoded":false,"verified":false,"droppedBefore":null,"presentFields":["end_time","prev_frame"]}}`
	if got := string(r.AppendJSON(nil, 9)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if back, _, err := ParseRecord([]byte(want)); err != nil || !sameRecord(back, r) {
		t.Errorf("%v\n got %+v\nwant %+v", err, back, r)
	}
}

func TestMembersOfAnotherKindAreAsGoodAsMissing(t *testing.T) {
	all := contractRecord().Fields
	for _, c := range []struct {
		old, new string
		lost     Fields
	}{
		{`"hostNs":91234567890123,`, ``, HasHostNs},
		{`"rawSequence":777`, `"rawSequence":null`, HasRawSequence},
		{`"sourceEpoch":1`, `"sourceEpoch":"1"`, HasSourceEpoch},
		{`"reconnectGeneration":0,`, ``, HasReconnectGeneration},
		{`"channel":1`, `"channel":null`, HasSource},
		{`"scope":"foreground-device",`, ``, HasSource},
		{`"adapter_version":2`, `"adapter_version":"2"`, HasSource},
		{`"selector":"onlySignposts"`, `"selector":5`, HasSource},
		{`"generation":1`, `"generation":[1]`, HasTarget},
		{`"target":{`, `"target":null,"was":{`, HasTarget},
		{`"swapId":125359813`, `"swapId":{"x":1}`, HasSwapID},
		{`"denom":3`, `"denom":null`, HasTimebase},
		{`"frameTimeMs":8.333291`, `"frameTimeMs":null`, HasFrameTime},
		{`"refreshMultiple":1`, `"refreshMultiple":"1"`, HasRefreshMultiple},
		{`"quality":"valid"`, `"quality":"good"`, HasQuality},
		{`"droppedBefore":0`, `"droppedBefore":null`, HasDroppedBefore},
		{`"skipRequest":0,`, ``, HasSkipRequest},
	} {
		if !strings.Contains(contractLine, c.old) {
			t.Fatalf("%s is not in the line", c.old)
		}
		r, _, err := ParseRecord([]byte(strings.Replace(contractLine, c.old, c.new, 1)))
		if err != nil || r.Fields != all&^c.lost {
			t.Errorf("%s: %v, lost %b, want %b", c.new, err, all&^r.Fields, c.lost)
		}
	}
	r, _, err := ParseRecord([]byte(strings.Replace(contractLine, `"p95PublicationPolicy":"p95-window-segment.v2",`, ``, 1)))
	if err != nil || r.Policy != "" {
		t.Errorf("no mark: %v, %q", err, r.Policy)
	}
	r, _, err = ParseRecord([]byte(strings.NewReplacer(`"decoded":true`, `"decoded":1`, `"verified":true`, `"verified":"yes"`).Replace(contractLine)))
	if err != nil || r.Decoded || r.Verified {
		t.Errorf("decoded and verified are no bools: %v, %v, %v", err, r.Decoded, r.Verified)
	}
	if r, _, err := ParseRecord([]byte(`{"type":"display.frame-lifetime.raw","payload":[1]}`)); err != nil || r.Fields != 0 {
		t.Errorf("no payload: %v, %b", err, r.Fields)
	}
}

func TestFiguresThatAreNoSuchDecimalsAreInexact(t *testing.T) {
	for _, c := range []struct {
		old, new string
		inexact  bool
	}{
		{`"frameTimeMs":8.333291`, `"frameTimeMs":8.3332910`, false},
		{`"frameTimeMs":8.333291`, `"frameTimeMs":8.3332911`, true},
		{`"frameTimeMs":8.333291`, `"frameTimeMs":83332910e-7`, false},
		{`"refreshMultiple":1`, `"refreshMultiple":1.0`, false},
		{`"refreshMultiple":1`, `"refreshMultiple":1.0001`, true},
	} {
		r, _, err := ParseRecord([]byte(strings.Replace(contractLine, c.old, c.new, 1)))
		if err != nil || r.InexactFigures != c.inexact || r.Fields != contractRecord().Fields {
			t.Errorf("%s: %v, inexact %v", c.new, err, r.InexactFigures)
		}
	}
	// The window compares no lifetime, so an inexact one must not count against the record.
	for _, lifetime := range []string{"21.77950001", "9223372036854775807"} {
		r, _, err := ParseRecord([]byte(strings.Replace(contractLine, `"lifetimeMs":21.7795`, `"lifetimeMs":`+lifetime, 1)))
		if err != nil || r.InexactFigures || r.Fields != contractRecord().Fields&^HasLifetime {
			t.Errorf("lifetimeMs %s: %v, inexact %v, fields %b", lifetime, err, r.InexactFigures, r.Fields)
		}
	}
}

func TestLinesThatAreRejectedSayWhereAndWhy(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{`"hostNs":91234567890123`, `"hostNs":9223372036854775808`, `raw record: column 21, hostNs: a number outside int64: "9223372036854775808"`},
		{`"rawSequence":777`, `"rawSequence":777.0`, `rawSequence: want an integer, found "777.0"`},
		{`"rawSequence":777`, `"rawSequence":7e2`, `rawSequence: want an integer, found "7e2"`},
		{`"pid":431`, `"pid":true`, `target.pid: want a number, found a bool`},
		{`"frameTimeMs":8.333291`, `"frameTimeMs":NaN`, `payload.frameTimeMs: want a JSON value, found "NaN`},
		{`"frameTimeMs":8.333291`, `"frameTimeMs":false`, `payload.frameTimeMs: want a number, found a bool`},
		{`"frameTimeMs":8.333291`, `"frameTimeMs":1e300`, `payload.frameTimeMs: a number outside int64`},
		{`"numer":125`, `"numer":125.5`, `payload.timebase.numer: want an integer`},
		{`"channel":1`, `"channel":1,"channel":1`, `source.channel: duplicate key "channel"`},
		{`"droppedBefore":0`, `"unknown":{"deep":[18446744073709551615]}`, `payload.unknown.deep[0]: a number outside int64`},
		{`"type":"display.frame-lifetime.raw"`, `"type":"source.gap"`, `raw record: want a line of type "display.frame-lifetime.raw"`},
		{`"type":"display.frame-lifetime.raw"`, `"type":null`, `raw record: want a line of type "display.frame-lifetime.raw"`},
		{`"droppedBefore":0}}`, `"droppedBefore":0}}{`, `bytes after the object`},
		{`"droppedBefore":0}}`, `"droppedBefore":0}`, `found the end of the line`},
	} {
		if !strings.Contains(contractLine, c.old) {
			t.Fatalf("%s is not in the line", c.old)
		}
		_, _, err := ParseRecord([]byte(strings.Replace(contractLine, c.old, c.new, 1)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.new, err, c.want)
		}
	}
}

func TestAParserForgetsTheLineBefore(t *testing.T) {
	var p RecordParser
	var r Record
	unsupported := Record{Fields: HasQuality, Quality: QualityUnsupportedSchema, PresentFields: []string{"args1"}, SessionID: "x", Policy: "y"}
	if _, err := p.Parse(unsupported.AppendJSON(nil, 3), &r); err != nil || !sameRecord(r, unsupported) {
		t.Fatalf("%v, %+v", err, r)
	}
	if seq, err := p.Parse([]byte(contractLine), &r); err != nil || seq != 812 || !sameRecord(r, contractRecord()) {
		t.Errorf("seq %d, %v, %+v", seq, err, r)
	}
	if seq, err := p.Parse([]byte(`{"type":"display.frame-lifetime.raw"}`), &r); err != nil || seq != 0 || !sameRecord(r, Record{}) {
		t.Errorf("seq %d, %v, %+v", seq, err, r)
	}
}

func TestReadingAndWritingALineAllocatesNothing(t *testing.T) {
	var p RecordParser
	var r Record
	line := []byte(contractLine)
	p.Parse(line, &r)
	out := make([]byte, 0, RecordJSONBytes)
	if n := testing.AllocsPerRun(200, func() {
		p.Parse(line, &r)
		out = r.AppendJSON(out[:0], 812)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add([]byte(contractLine))
	unsupported := Record{Fields: HasQuality, Quality: QualityUnsupportedSchema, PresentFields: []string{"args1", ""}}
	f.Add(unsupported.AppendJSON(nil, -1))
	f.Add([]byte(`{"type":"display.frame-lifetime.raw","payload":{"refreshMultiple":-0.001,"nativeId":-1,"quality":"duplicate"}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, seq, err := ParseRecord(line)
		if err != nil || r.InexactFigures {
			return
		}
		again := r.AppendJSON(nil, seq)
		back, backSeq, err := ParseRecord(again)
		if err != nil || backSeq != seq || !sameRecord(r, back) {
			t.Fatalf("%v, seq %d and %d\n%s\n%+v\n%+v", err, seq, backSeq, again, r, back)
		}
	})
}
