package p95_test

import (
	"strings"
	"testing"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/p95"
)

// contractLine is the receipt of p95-window.md, its line breaks taken out.
const contractLine = `{"seq":9120,"hostNs":91244567890123,"type":"p95.publication","dueNs":91244567000000,` +
	`"metric":"ios.frame.time.p95","definition":"activitytrace-framelifetime-p95.v1","policy":"p95-window-segment.v2","formula":"nearest-rank-95",` +
	`"valueMs":8.333333,"quality":"valid",` +
	`"lastPresentationNs":2492833209880250,"lastHostNs":91244500000000,"windowLeftNs":2492823277770373,"windowRightNs":2492833277770373,` +
	`"segment":3,"target":{"bundleId":"com.example.app","pid":431,"generation":1},"sourceEpoch":1,"reconnectGeneration":0,` +
	`"displayId":1,"timebase":{"numer":125,"denom":3},"n":1192,"rank":1133,` +
	`"firstSample":{"rawSequence":7011,"presentationNs":2492823284000000},"lastSample":{"rawSequence":8208,"presentationNs":2492833209880250},` +
	`"lastRawSequence":8208,"lastClear":{"reason":"foreground","rawSequence":null,"hostNs":91200000000000},` +
	`"clockBridge":{"qualified":true,"widthNs":1800000,"ageLowerBoundNs":12345678},` +
	`"other":{"fps":120,"frameTimeMs":8.333291,"refreshHz":120.001,"jitterMs":0.004,"hitchMsPerS":1.204,"missedRefreshes":3}}`

var contractReceipt = p95.Receipt{
	HostNs: 91244567890123, DueNs: is(91244567000000), ValueNs: is(8_333_333), Quality: "valid",
	LastPresentationNs: is(2492833209880250), LastHostNs: is(91244500000000), WindowLeftNs: is(2492823277770373), WindowRightNs: is(2492833277770373),
	Segment: 3, Target: p95.Target{Target: adapter.Target{BundleID: "com.example.app", PID: 431, Generation: 1}, Known: true},
	SourceEpoch: is(1), ReconnectGeneration: is(0), DisplayID: is(1), Timebase: p95.Timebase{Timebase: adapter.Timebase{Numer: 125, Denom: 3}, Known: true},
	N: is(1192), Rank: is(1133), FirstSample: p95.Sample{RawSequence: 7011, PresentationNs: 2492823284000000, Known: true},
	LastSample: p95.Sample{RawSequence: 8208, PresentationNs: 2492833209880250, Known: true}, LastRawSequence: is(8208),
	LastClear:   p95.Clear{Reason: "foreground", HostNs: is(91200000000000), Known: true},
	ClockBridge: p95.BridgeReading{Qualified: true, WidthNs: is(1800000), AgeLowerBoundNs: is(12345678)},
	Other:       p95.Other{FPS: is(120), FrameTimeNs: is(8_333_291), RefreshMilliHz: is(120_001), JitterUs: is(4), HitchUsPerS: is(1204), MissedRefreshes: is(3)},
}

func TestReceiptIsWrittenAsTheContractShows(t *testing.T) {
	if got := string(contractReceipt.AppendJSON(nil, 9120)); got != contractLine {
		t.Errorf("got  %s\nwant %s", got, contractLine)
	}
}

func TestReceiptIsReadAsTheContractShows(t *testing.T) {
	seq, got, err := p95.ParseReceipt([]byte(contractLine))
	if err != nil || seq != 9120 || got != contractReceipt {
		t.Errorf("got %d, %+v, %v", seq, got, err)
	}
}

func TestReceiptWithoutTarget(t *testing.T) {
	const want = `{"seq":1,"hostNs":-5,"type":"p95.publication","dueNs":null,` +
		`"metric":"ios.frame.time.p95","definition":"activitytrace-framelifetime-p95.v1","policy":"p95-window-segment.v2","formula":"nearest-rank-95",` +
		`"valueMs":null,"quality":"no-target","lastPresentationNs":null,"lastHostNs":null,"windowLeftNs":null,"windowRightNs":null,` +
		`"segment":0,"target":null,"sourceEpoch":null,"reconnectGeneration":null,"displayId":null,"timebase":null,"n":0,"rank":null,` +
		`"firstSample":null,"lastSample":null,"lastRawSequence":null,"lastClear":null,` +
		`"clockBridge":{"qualified":false,"widthNs":null,"ageLowerBoundNs":null},` +
		`"other":{"fps":null,"frameTimeMs":null,"refreshHz":null,"jitterMs":null,"hitchMsPerS":null,"missedRefreshes":null}}`
	var r p95.Receipt
	p95.NewMeter(true).Publish(-5, p95.Int{}, &r)
	if got := string(r.AppendJSON(nil, 1)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if _, back, err := p95.ParseReceipt([]byte(want)); err != nil || back != r {
		t.Errorf("got %+v, %v", back, err)
	}
}

func TestReceiptDecimalsAreExact(t *testing.T) {
	for ns, want := range map[int64]string{0: "0", 1: "0.000001", 8_000_000: "8", 16_666_666: "16.666666", 1_100_000_000: "1100", 8_333_300: "8.3333"} {
		r := contractReceipt
		r.ValueNs = is(ns)
		line := string(r.AppendJSON(nil, 1))
		if !strings.Contains(line, `"valueMs":`+want+`,`) {
			t.Errorf("%d ns: got %s, want %s", ns, line, want)
		}
		if _, back, err := p95.ParseReceipt([]byte(line)); err != nil || back != r {
			t.Errorf("%d ns: read back as %+v, %v", ns, back, err)
		}
	}
}

func TestReceiptIsReadStrictly(t *testing.T) {
	for _, c := range []struct{ name, from, to, says string }{
		{"member missing", `"rank":1133,`, ``, `the member "rank" is missing`},
		{"member missing inside", `"pid":431,`, ``, `target: the member "pid" is missing`},
		{"seq missing", `"seq":9120,`, ``, `the member "seq" is missing`},
		{"member too many", `"segment":3`, `"segment":3,"x":1`, `x: no member of a publication`},
		{"member twice", `"segment":3`, `"segment":3,"segment":3`, `duplicate key`},
		{"another type", `"p95.publication"`, `"session.end"`, `type: want "p95.publication", found "session.end"`},
		{"another policy", `window-segment.v2`, `window-segment.v1`, `policy: want`},
		{"another metric", `ios.frame`, `ios.fram`, `metric: want`},
		{"quality of no list", `"quality":"valid"`, `"quality":"fine"`, `quality: want one of`},
		{"reason of no list", `"reason":"foreground"`, `"reason":"mood"`, `lastClear.reason: want one of`},
		{"bool for integer", `"n":1192`, `"n":true`, `n: want a number, found a bool`},
		{"string for integer", `"segment":3`, `"segment":"3"`, `segment: want an integer, found a string`},
		{"fraction for integer", `"n":1192`, `"n":1192.0`, `n: want an integer`},
		{"null for integer", `"hostNs":91244567890123`, `"hostNs":null`, `hostNs: want an integer, found null`},
		{"null for object", `"clockBridge":{"qualified":true,"widthNs":1800000,"ageLowerBoundNs":12345678}`, `"clockBridge":null`, `clockBridge: want an object, found null`},
		{"number for object", `"timebase":{"numer":125,"denom":3}`, `"timebase":125`, `timebase: want an object, found a number`},
		{"number for bool", `"qualified":true`, `"qualified":1`, `qualified: want true or false, found a number`},
		{"number for string", `"bundleId":"com.example.app"`, `"bundleId":1`, `target.bundleId: want a string, found a number`},
		{"string for decimal", `"valueMs":8.333333`, `"valueMs":"8.333333"`, `valueMs: want a number or null, found a string`},
		{"seven decimals", `"valueMs":8.333333`, `"valueMs":8.3333331`, `valueMs: want a number of at most 6 decimals`},
		{"four decimals", `"jitterMs":0.004`, `"jitterMs":0.0041`, `other.jitterMs: want a number of at most 3 decimals`},
		{"outside int64", `"n":1192`, `"n":9223372036854775808`, `outside int64`},
		{"not a number", `"n":1192`, `"n":NaN`, `n: `},
		{"text behind", `"missedRefreshes":3}}`, `"missedRefreshes":3}} {}`, `bytes after the object`},
		{"torn", `"missedRefreshes":3}}`, `"missedRefr`, ``},
	} {
		line := strings.Replace(contractLine, c.from, c.to, 1)
		if line == contractLine {
			t.Fatalf("%s: %q is not in the line", c.name, c.from)
		}
		if _, _, err := p95.ParseReceipt([]byte(line)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want an error that says %q", c.name, err, c.says)
		}
	}
}

func TestReceiptMembersMayStandInAnyOrder(t *testing.T) {
	line := `{"segment":3,` + strings.Replace(contractLine[1:], `"segment":3,`, ``, 1)
	if _, got, err := p95.ParseReceipt([]byte(line)); err != nil || got != contractReceipt {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestDiffNamesTheFirstDifferingMember(t *testing.T) {
	for want, edit := range map[string]func(r *p95.Receipt){
		"":                            func(r *p95.Receipt) {},
		"hostNs":                      func(r *p95.Receipt) { r.HostNs++; r.Segment++ },
		"dueNs":                       func(r *p95.Receipt) { r.DueNs = null() },
		"valueMs":                     func(r *p95.Receipt) { r.ValueNs.N++; r.Other.FPS.N++ },
		"quality":                     func(r *p95.Receipt) { r.Quality = "warmup" },
		"target":                      func(r *p95.Receipt) { r.Target = p95.Target{} },
		"target.pid":                  func(r *p95.Receipt) { r.Target.PID++; r.Target.Generation++ },
		"timebase.denom":              func(r *p95.Receipt) { r.Timebase.Denom++ },
		"firstSample.rawSequence":     func(r *p95.Receipt) { r.FirstSample.RawSequence++ },
		"lastClear.reason":            func(r *p95.Receipt) { r.LastClear.Reason = "order" },
		"lastClear.hostNs":            func(r *p95.Receipt) { r.LastClear.HostNs = null() },
		"clockBridge.ageLowerBoundNs": func(r *p95.Receipt) { r.ClockBridge.AgeLowerBoundNs.N = 0 },
		"other.missedRefreshes":       func(r *p95.Receipt) { r.Other.MissedRefreshes.N++ },
	} {
		r := contractReceipt
		edit(&r)
		if got, _, _ := r.Diff(&contractReceipt); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	r := contractReceipt
	r.Other.JitterUs = is(12)
	if path, a, b := r.Diff(&contractReceipt); path != "other.jitterMs" || a != "0.012" || b != "0.004" {
		t.Errorf("got %s: %s and %s, want other.jitterMs: 0.012 and 0.004", path, a, b)
	}
}

func FuzzParseReceipt(f *testing.F) {
	f.Add([]byte(contractLine))
	f.Add([]byte(strings.Replace(contractLine, `8.333333`, `null`, 1)))
	f.Add([]byte(strings.Replace(contractLine, `{"bundleId":"com.example.app","pid":431,"generation":1}`, `null`, 1)))
	f.Add([]byte(strings.Replace(contractLine, `com.example.app`, `\u00e9\ud83d\ude00`, 1)))
	f.Add([]byte(strings.Replace(contractLine, `120.001`, `-1.2e-2`, 1)))
	f.Fuzz(func(t *testing.T, line []byte) {
		seq, r, err := p95.ParseReceipt(line)
		if err != nil {
			return
		}
		written := r.AppendJSON(nil, seq)
		seqAgain, again, err := p95.ParseReceipt(written)
		if err != nil || seqAgain != seq || again != r {
			t.Errorf("written as %s, read back as %d, %+v, %v", written, seqAgain, again, err)
		}
	})
}
