package ledger

import (
	"reflect"
	"strings"
	"testing"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/p95"
)

const testSessionID = "5f0cb2a8-31d7-4f0e-9c9a-0b6a0a4c7d11"

func testStart() Start {
	return Start{SessionID: testSessionID, Name: "first", Tool: Tool{"framebridge", "v0.1.0"}, Host: Host{"lab", "linux", "amd64", 2, 431},
		Device:   Device{"00008110-0001", "iPhone14,5", "26.0", true},
		Evidence: EvidenceE2, Policy: "p95-window-segment.v2", Clock: Clock{1000, 1780000000000000000}}
}

func testRecord(hostNs, rawSequence int64) *adapter.Record {
	return &adapter.Record{
		Fields: adapter.HasHostNs | adapter.HasRawSequence | adapter.HasSource | adapter.HasTarget | adapter.HasSourceEpoch |
			adapter.HasReconnectGeneration | adapter.HasNatives | adapter.HasDisplayID | adapter.HasSurfaceID | adapter.HasTimebase |
			adapter.HasPresentationNs | adapter.HasFrameTime | adapter.HasLifetime | adapter.HasRefreshMultiple | adapter.HasQuality |
			adapter.HasDroppedBefore,
		HostNs: hostNs, RawSequence: rawSequence, SessionID: testSessionID, Schema: adapter.RecordSchema, Source: adapter.SourceGoIOS,
		Target: adapter.Target{BundleID: "com.example.app", PID: 431, Generation: 1}, SourceEpoch: 1, Policy: adapter.PolicyP95,
		Subsystem: "com.apple.coreanimation", Category: "IOMFBServer", Name: "FrameLifetime",
		SwapID: 125359813, FrameSeed: 125359813, DisplayID: 1, SurfaceID: 289,
		BeginMach: 59827756514418, EndMach: 59827757037126, PreviousMach: 59827756837127, RefreshIntervalMach: 199999, BufferCount: 2,
		Timebase: adapter.Timebase{Numer: 125, Denom: 3}, PresentationNs: 2492823209880250, FrameTimeNs: 8333291, LifetimeNs: 21779500,
		RefreshMultipleMilli: 1000, Quality: adapter.QualityValid, Decoded: true, Verified: true,
	}
}

// lines are one event of each type and the line that raw-record.md asks for. The two types that other packages write stand in their tests.
func lines() []struct {
	event Event
	line  string
} {
	start := testStart()
	imported := testStart()
	imported.NoHostClock = true
	imported.Device = Device{}
	counts := Counts{1, 1, 1, 1, 120, 40, 2, 3, 9, 1}
	return []struct {
		event Event
		line  string
	}{
		{Event{1, 1000, &start}, `{"seq":1,"hostNs":1000,"type":"session.start","sessionId":"5f0cb2a8-31d7-4f0e-9c9a-0b6a0a4c7d11","name":"first",` +
			`"tool":{"name":"framebridge","version":"v0.1.0"},"host":{"name":"lab","os":"linux","arch":"amd64","cpus":2,"pid":431},` +
			`"device":{"udid":"00008110-0001","productType":"iPhone14,5","osVersion":"26.0","simulated":true},"evidence":"E2",` +
			`"policy":"p95-window-segment.v2","clock":{"monotonicNs":1000,"wallNs":1780000000000000000}}`},
		{Event{1, -5, &imported}, `{"seq":1,"hostNs":-5,"type":"session.start","sessionId":"5f0cb2a8-31d7-4f0e-9c9a-0b6a0a4c7d11","name":"first",` +
			`"tool":{"name":"framebridge","version":"v0.1.0"},"host":{"name":"lab","os":"linux","arch":"amd64","cpus":2,"pid":431},` +
			`"device":{"udid":"","productType":"","osVersion":"","simulated":false},"evidence":"E2",` +
			`"policy":"p95-window-segment.v2","clock":{"monotonicNs":1000,"wallNs":1780000000000000000},"hostClock":"none"}`},
		{Event{2, 1001, &adapter.Binding{Target: adapter.Target{BundleID: `a"b`, PID: 431, Generation: 2}, SourceEpoch: 3, ReconnectGeneration: 4,
			PrimaryDisplayID: 1, Timebase: adapter.Timebase{Numer: 125, Denom: 3}}},
			`{"seq":2,"hostNs":1001,"type":"target.bind","bundleId":"a\"b","pid":431,"generation":2,"sourceEpoch":3,"reconnectGeneration":4,` +
				`"primaryDisplayId":1,"timebase":{"numer":125,"denom":3}}`},
		{Event{3, 1002, &TargetState{true, "process-list"}},
			`{"seq":3,"hostNs":1002,"type":"target.state","foreground":true,"by":"process-list"}`},
		{Event{4, 1003, &p95.ClockBridge{HostSendNs: 990, HostReceiveNs: 1003, DeviceContinuousMach: 7, HasContinuous: true, DeviceAbsoluteMach: 5,
			Timebase: adapter.Timebase{Numer: 1, Denom: 1}}},
			`{"seq":4,"hostNs":1003,"type":"clock.bridge","hostSendNs":990,"hostReceiveNs":1003,"deviceContinuousMach":7,"deviceAbsoluteMach":5,` +
				`"timebase":{"numer":1,"denom":1}}`},
		{Event{5, 1003, &p95.ClockBridge{HostSendNs: 990, HostReceiveNs: 1003, DeviceAbsoluteMach: 5, Timebase: adapter.Timebase{Numer: 1, Denom: 1}}},
			`{"seq":5,"hostNs":1003,"type":"clock.bridge","hostSendNs":990,"hostReceiveNs":1003,"deviceContinuousMach":null,"deviceAbsoluteMach":5,` +
				`"timebase":{"numer":1,"denom":1}}`},
		{Event{6, 9223372036854775807, &adapter.Contributors{FrameSeed: 125, DisplayID: 1, Processes: []adapter.Contributor{{PID: 60, Name: "backboardd"}, {PID: 431}}}},
			`{"seq":6,"hostNs":9223372036854775807,"type":"display.frame-contributors","frameSeed":125,"displayId":1,` +
				`"processes":[{"pid":60,"name":"backboardd"},{"pid":431}]}`},
		{Event{7, 1005, &SourceGap{"bytes after an unknown opcode", 3, 512, 1}},
			`{"seq":7,"hostNs":1005,"type":"source.gap","reason":"bytes after an unknown opcode","rows":3,"bytes":512,"messages":1}`},
		{Event{8, 1006, &SourceState{"disconnected", "read: connection reset"}},
			`{"seq":8,"hostNs":1006,"type":"source.state","state":"disconnected","cause":"read: connection reset"}`},
		{Event{179, 2000, &End{StateComplete, "duration reached", counts, map[string]int64{"unpairedBegins": 2, "categoryTwins": 13}}},
			`{"seq":179,"hostNs":2000,"type":"session.end","state":"complete","reason":"duration reached","counts":{"session.start":1,"target.bind":1,` +
				`"target.state":1,"clock.bridge":1,"display.frame-lifetime.raw":120,"display.frame-contributors":40,"source.gap":2,"source.state":3,` +
				`"p95.publication":9,"session.end":1},"extra":{"categoryTwins":13,"unpairedBegins":2}}`},
	}
}

func TestEventsAreWrittenAsTheContractSaysAndReadBackEqual(t *testing.T) {
	var p Parser
	for _, c := range lines() {
		if got := string(AppendLine(nil, &c.event)); got != c.line+"\n" {
			t.Errorf("written\n%s want\n%s", got, c.line)
		}
		var e Event
		if err := p.Parse([]byte(c.line), &e); err != nil {
			t.Errorf("%s: %v", c.line, err)
		} else if !reflect.DeepEqual(e, c.event) {
			t.Errorf("%s: read %+v, want %+v", c.line, e.Value, c.event.Value)
		}
	}
}

func TestRawRecordsAndPublicationsAreEventsToo(t *testing.T) {
	var p Parser
	var e Event
	line := AppendLine(nil, &Event{Seq: 812, Value: testRecord(91234567890123, 777)})
	if !strings.HasPrefix(string(line), `{"seq":812,"hostNs":91234567890123,"type":"display.frame-lifetime.raw",`) {
		t.Fatalf("written %s", line)
	}
	if err := p.Parse(line, &e); err != nil {
		t.Fatal(err)
	}
	if r, ok := e.Value.(*adapter.Record); !ok || e.Seq != 812 || e.HostNs != 91234567890123 || !reflect.DeepEqual(r, testRecord(91234567890123, 777)) {
		t.Errorf("read %+v, want the record that was written", e.Value)
	}
	receipt := &p95.Receipt{HostNs: 91244567890123, Quality: p95.NoTarget}
	line = AppendLine(nil, &Event{Seq: 9120, Value: receipt})
	if err := p.Parse(line, &e); err != nil {
		t.Fatal(err)
	}
	if r, ok := e.Value.(*p95.Receipt); !ok || e.Seq != 9120 || e.HostNs != 91244567890123 || *r != *receipt {
		t.Errorf("read %+v, want the receipt that was written", e.Value)
	}
}

func TestRawRecordWithoutHostTimeIsForTheWindowToJudge(t *testing.T) {
	var p Parser
	var e Event
	if err := p.Parse([]byte(`{"seq":3,"type":"display.frame-lifetime.raw","payload":{}}`), &e); err != nil {
		t.Fatal(err)
	}
	if r, ok := e.Value.(*adapter.Record); !ok || r.Fields&adapter.HasHostNs != 0 {
		t.Errorf("read %+v, want a record without hostNs", e.Value)
	}
}

func TestMembersMayStandInAnyOrderAndUnknownOnesAreReadPast(t *testing.T) {
	var p Parser
	var e Event
	line := `{"by":"launch", "type":"target.state","later":[{"x":1.5}],"foreground":false,"hostNs":4,"seq":2}`
	if err := p.Parse([]byte(line), &e); err != nil {
		t.Fatal(err)
	}
	if s, ok := e.Value.(*TargetState); !ok || e.Seq != 2 || e.HostNs != 4 || *s != (TargetState{false, "launch"}) {
		t.Errorf("read seq %d, hostNs %d, %+v", e.Seq, e.HostNs, e.Value)
	}
}

func TestLinesThatAreNoGoodAreRefusedWithTheReason(t *testing.T) {
	for _, c := range []struct{ why, line string }{
		{"rows: missing", `{"seq":7,"hostNs":5,"type":"source.gap","reason":"x","bytes":5,"messages":1}`},
		{"rows: missing", `{"seq":7,"hostNs":5,"type":"source.gap","reason":"x","rows":"3","bytes":5,"messages":1}`},
		{"want an integer", `{"seq":7,"hostNs":5,"type":"source.gap","reason":"x","rows":3.0,"bytes":5,"messages":1}`},
		{"found a bool", `{"seq":7,"hostNs":5,"type":"source.gap","reason":"x","rows":true,"bytes":5,"messages":1}`},
		{"outside int64", `{"seq":7,"hostNs":5,"type":"source.gap","reason":"x","rows":9223372036854775808,"bytes":5,"messages":1}`},
		{"want a JSON value", `{"seq":7,"hostNs":5,"type":"source.gap","reason":"x","rows":NaN,"bytes":5,"messages":1}`},
		{`duplicate key "rows"`, `{"seq":7,"hostNs":5,"type":"source.gap","reason":"x","rows":3,"rows":3,"bytes":5,"messages":1}`},
		{`duplicate key "seq"`, `{"seq":7,"hostNs":5,"type":"source.gap","reason":"x","rows":3,"seq":7,"bytes":5,"messages":1}`},
		{"bytes after the object", `{"seq":7,"hostNs":5,"type":"source.gap","reason":"x","rows":3,"bytes":5,"messages":1} {}`},
		{"expected 1 or more", `{"seq":0,"hostNs":5,"type":"source.state","state":"connected","cause":""}`},
		{"want a JSON number", `{"seq":07,"hostNs":5,"type":"source.state","state":"connected","cause":""}`},
		{"hostNs: missing", `{"seq":7,"type":"source.state","state":"connected","cause":""}`},
		{"type: missing", `{"seq":7,"hostNs":5,"state":"connected","cause":""}`},
		{`"source.stat" is not known`, `{"seq":7,"hostNs":5,"type":"source.stat","state":"connected","cause":""}`},
		{"state: expected one of", `{"seq":7,"hostNs":5,"type":"source.state","state":"gone","cause":""}`},
		{"by: expected one of", `{"seq":7,"hostNs":5,"type":"target.state","foreground":true,"by":"guess"}`},
		{"foreground: missing", `{"seq":7,"hostNs":5,"type":"target.state","foreground":1,"by":"launch"}`},
		{"denom: missing", `{"seq":7,"hostNs":5,"type":"clock.bridge","hostSendNs":1,"hostReceiveNs":2,"deviceContinuousMach":3,"deviceAbsoluteMach":4,"timebase":{"numer":1}}`},
		{"deviceContinuousMach: missing", `{"seq":7,"hostNs":5,"type":"clock.bridge","hostSendNs":1,"hostReceiveNs":2,"deviceAbsoluteMach":4,"timebase":{"numer":1,"denom":1}}`},
		{"pid: missing", `{"seq":7,"hostNs":5,"type":"display.frame-contributors","frameSeed":1,"displayId":1,"processes":[{"name":"x"}]}`},
		{"processes[0]: pid: missing", `{"seq":7,"hostNs":5,"type":"display.frame-contributors","frameSeed":1,"displayId":1,"processes":[5]}`},
		{"primaryDisplayId: missing", `{"seq":7,"hostNs":5,"type":"target.bind","bundleId":"a","pid":1,"generation":1,"sourceEpoch":1,"reconnectGeneration":0,"timebase":{"numer":1,"denom":1}}`},
		{"processes: missing", `{"seq":7,"hostNs":5,"type":"display.frame-contributors","frameSeed":1,"displayId":1,"processes":{}}`},
		{"want an object", ``},
		{"want an object", `[1]`},
		{"not UTF-8", "{\"seq\":7,\"hostNs\":5,\"type\":\"source.state\",\"state\":\"connected\",\"cause\":\"\xff\"}"},
	} {
		var p Parser
		var e Event
		if err := p.Parse([]byte(c.line), &e); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: found %v, want %q", c.line, err, c.why)
		}
	}
}

func TestSimulatedDeviceCannotBeMoreThanE2(t *testing.T) {
	good := string(AppendLine(nil, &lines()[0].event))
	var p Parser
	var e Event
	for _, level := range []string{"E3", "E4", "E5", ""} {
		line := strings.Replace(good, `"evidence":"E2"`, `"evidence":"`+level+`"`, 1)
		if err := p.Parse([]byte(line), &e); err == nil || !strings.Contains(err.Error(), "evidence:") {
			t.Errorf("%q of a simulated device: found %v, want a refusal", level, err)
		}
	}
	start := testStart()
	start.Evidence = EvidenceE3
	if _, err := Create(t.TempDir()+"/s", 1, start, false); err == nil || !strings.Contains(err.Error(), "evidence:") {
		t.Errorf("Create: found %v, want a refusal", err)
	}
}

func TestSessionEndCanBeReadBackHoweverMuchWasCounted(t *testing.T) {
	extra := map[string]int64{}
	for i := range 5000 {
		extra["foreign/"+strings.Repeat("\x01", i%400)+string(rune('a'+i%26))+strings.Repeat("n", i/400)] += 2
	}
	want := int64(0)
	for _, n := range extra {
		want += n
	}
	var p Parser
	var e Event
	if err := p.Parse(AppendLine(nil, &Event{1, 1, &End{State: StatePartial, Extra: extra}}), &e); err != nil {
		t.Fatal(err)
	}
	got := int64(0)
	for _, n := range e.Value.(*End).Extra {
		got += n
	}
	if got != want || e.Value.(*End).Extra["others"] == 0 {
		t.Errorf("counts sum up to %d (%d of them others), want %d", got, e.Value.(*End).Extra["others"], want)
	}
}

func TestCountsWhoseNamesAreNoUTF8AreAddedUp(t *testing.T) {
	extra := map[string]int64{"a\xff": 1, "a\xfe": 2, "a\uFFFD": 4, "b": 8}
	line := string(AppendLine(nil, &Event{1, 1, &End{State: StatePartial, Extra: extra}}))
	if want := `"extra":{"a` + "\uFFFD" + `":7,"b":8}}` + "\n"; !strings.HasSuffix(line, want) {
		t.Errorf("written %s, want …%s", line, want)
	}
	var p Parser
	var e Event
	if err := p.Parse([]byte(strings.TrimSuffix(line, "\n")), &e); err != nil {
		t.Error(err)
	}
}

func TestAppendingAndReadingRecordsAllocatesNothing(t *testing.T) {
	e := Event{Seq: 812, Value: testRecord(91234567890123, 777)}
	var line []byte
	if n := testing.AllocsPerRun(100, func() { line = AppendLine(line[:0], &e) }); n != 0 {
		t.Errorf("%v allocations to append a record, want 0", n)
	}
	var p Parser
	var back Event
	if n := testing.AllocsPerRun(100, func() {
		if err := p.Parse(line, &back); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations to read a record, want 0", n)
	}
	c := Event{Seq: 5, HostNs: 5, Value: &adapter.Contributors{FrameSeed: 1, Processes: []adapter.Contributor{{PID: 60, Name: "backboardd"}, {PID: 431}}}}
	var contributors []byte
	if n := testing.AllocsPerRun(100, func() {
		contributors = AppendLine(contributors[:0], &c)
		if err := p.Parse(contributors, &back); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations to append and read contributors, want 0", n)
	}
}

func FuzzParse(f *testing.F) {
	for _, c := range lines() {
		f.Add([]byte(c.line))
	}
	f.Add(AppendLine(nil, &Event{Seq: 2, Value: testRecord(5, 6)}))
	f.Add(AppendLine(nil, &Event{Seq: 2, Value: &p95.Receipt{Quality: p95.Warmup}}))
	f.Fuzz(func(t *testing.T, line []byte) {
		var p, again Parser
		var e, back Event
		if p.Parse(line, &e) != nil {
			return
		}
		if e.Seq < 1 || e.Type().index() < 0 {
			t.Fatalf("accepted as seq %d, type %q", e.Seq, e.Type())
		}
		once := AppendLine(nil, &e)
		if err := again.Parse(once[:len(once)-1], &back); err != nil {
			t.Fatalf("what was read cannot be read again: %v\n%s", err, once)
		}
		if twice := AppendLine(nil, &back); string(twice) != string(once) {
			t.Fatalf("written once\n%s and again\n%s", once, twice)
		}
	})
}
