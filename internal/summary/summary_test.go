package summary_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/framebridge/framebridge/internal/summary"
	"github.com/framebridge/framebridge/ledger"
)

// record is a raw record line. The quality decides whether it has a frame time.
func record(seq, raw, display, begin, end, previous, refresh int64, quality string) string {
	time, multiple := "null", "null"
	if quality == "valid" {
		ns := (end - previous) * 125 / 3
		time = fmt.Sprintf("%d.%06d", ns/1_000_000, ns%1_000_000)
		multiple = fmt.Sprintf("%d.%03d", (end-previous)/refresh, (end-previous)*1000/refresh%1000)
	}
	return fmt.Sprintf(`{"seq":%d,"hostNs":%d,"type":"display.frame-lifetime.raw","schema":"perfowl.display-frame-event/2","rawSequence":%d,`+
		`"sessionId":"00000000-0000-4000-8000-000000000001","source":{"service":"com.apple.instruments.server.services.activitytracetap","channel":1,`+
		`"selector":"onlySignposts","adapter_id":"goios.activity-trace.frame-lifetime.raw","adapter_version":2,"scope":"foreground-device","raw_unit":"signpost-framelifetime"},`+
		`"target":{"bundleId":"a","pid":1,"generation":1},"sourceEpoch":1,"reconnectGeneration":0,"p95PublicationPolicy":"p95-window-segment.v2",`+
		`"payload":{"subsystem":"com.apple.coreanimation","category":"IOMFBServer","name":"FrameLifetime","swapId":%d,"frameSeed":%d,"displayId":%d,"surfaceId":2,`+
		`"beginMach":%d,"endMach":%d,"previousMach":%d,"refreshIntervalMach":%d,"bufferCount":2,"skipRequest":0,"timebase":{"numer":125,"denom":3},`+
		`"presentationNs":%d,"frameTimeMs":%s,"lifetimeMs":1,"refreshMultiple":%s,"quality":"%s","qualityReason":"","decoded":true,"verified":true,"droppedBefore":%s}}`,
		seq, 1_000_000+seq, raw, raw, raw, display, begin, end, previous, refresh, end*125/3, time, multiple, quality,
		map[bool]string{true: "4", false: "0"}[quality == "source-gap"])
}

func TestSummaryOfTwoDisplaysWorkedOutByHand(t *testing.T) {
	const r = 240_000 // ticks: 10 ms
	var lines []string
	add := func(format string, args ...any) {
		lines = append(lines, fmt.Sprintf(format, append([]any{len(lines) + 1}, args...)...))
	}
	add(`{"seq":%d,"hostNs":1000,"type":"session.start","sessionId":"00000000-0000-4000-8000-000000000001","name":"two","tool":{"name":"hand","version":"1"},` +
		`"host":{"name":"h","os":"linux","arch":"amd64","cpus":1,"pid":1},"device":{"udid":"u","productType":"iPhone1,1","osVersion":"16.7","simulated":true},` +
		`"evidence":"E2","policy":"p95-window-segment.v2","clock":{"monotonicNs":1000,"wallNs":1}}`)
	add(`{"seq":%d,"hostNs":1000,"type":"target.bind","bundleId":"a","pid":1,"generation":1,"sourceEpoch":1,"reconnectGeneration":0,"primaryDisplayId":1,"timebase":{"numer":125,"denom":3}}`)
	raw := int64(0)
	frame := func(display, begin, end, previous int64, quality string) {
		raw++
		lines = append(lines, record(int64(len(lines)+1), raw, display, begin, end, previous, r, quality))
	}
	// Display 1: one without predecessor, then frame times of 10, 20, 30 … 100 ms, each with a lifetime of its frame time.
	end := int64(100 * r)
	frame(1, end-r, end, 0, "no-predecessor")
	for k := int64(1); k <= 10; k++ {
		frame(1, end, end+k*r, end, "valid")
		end += k * r
	}
	frame(1, end+5*r, end+6*r, end+5*r, "source-gap")
	// Display 2: one frame of 9 ms, shorter than its refresh interval.
	frame(2, 0, 50*r, 0, "no-predecessor")
	frame(2, 50*r, 50*r+216_000, 50*r, "valid")
	add(`{"seq":%d,"hostNs":2000000,"type":"display.frame-contributors","frameSeed":2,"displayId":1,"processes":[{"pid":7,"name":"App"},{"pid":9}]}`)
	add(`{"seq":%d,"hostNs":2000000,"type":"display.frame-contributors","frameSeed":3,"displayId":1,"processes":[{"pid":7,"name":"App"}]}`)
	add(`{"seq":%d,"hostNs":2000000,"type":"source.gap","reason":"row-stream-skipped","rows":5,"bytes":60,"messages":0}`)
	add(`{"seq":%d,"hostNs":2000000,"type":"source.gap","reason":"row-stream-skipped","rows":1,"bytes":2,"messages":3}`)
	s, err := summary.Of(ledger.NewReader(strings.NewReader(strings.Join(lines, "\n") + "\nno line\n")))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Displays) != 2 || s.Displays[0].DisplayID != 1 || s.Displays[1].DisplayID != 2 || s.BadLines != 1 || s.State != "" || s.Target().BundleID != "a" {
		t.Fatalf("summary %+v", s)
	}
	d := s.Displays[0]
	// Ten values: rank of P50 is 5, of P95 and P99 10. Overruns: lifetimes of 30 to 100 ms less two buffers of 10 ms: 10 + 20 + … + 80 = 360 ms,
	// in 550 ms of frames. Missed refreshes: k - 2 + 1 for k = 2 to 10: 1 + 2 + … + 9 = 45.
	want := summary.Display{Frames: 12, DroppedBefore: 4, SumNs: 550_000_000, OverrunNs: 360_000_000, MissedRefreshes: 45}
	if d.Frames != want.Frames || d.DroppedBefore != want.DroppedBefore || d.SumNs != want.SumNs || d.OverrunNs != want.OverrunNs || d.MissedRefreshes != want.MissedRefreshes ||
		d.ByQuality["valid"] != 10 || d.ByQuality["source-gap"] != 1 || d.ByQuality["no-predecessor"] != 1 {
		t.Errorf("display 1: %+v, want %+v", d, want)
	}
	for name, v := range map[string][2]int64{"P50": {*d.P50Ns, 50_000_000}, "P95": {*d.P95Ns, 100_000_000}, "P99": {*d.P99Ns, 100_000_000}, "max": {*d.MaxNs, 100_000_000}, "min": {*d.MinNs, 10_000_000}} {
		if v[0] != v[1] {
			t.Errorf("%s is %d ns, want %d", name, v[0], v[1])
		}
	}
	if ratio := *d.HitchMsPerS; ratio < 654.545 || ratio > 654.546 { // 360 ms / 0.55 s
		t.Errorf("hitch time ratio %f ms/s, want 654.5454…", ratio)
	}
	if second := s.Displays[1]; second.BelowRefresh != 1 || *second.P95Ns != 9_000_000 || d.BelowRefresh != 0 {
		t.Errorf("display 2: %+v", second)
	}
	if g := s.Gaps["row-stream-skipped"]; g == nil || *g != (summary.Gap{Count: 2, Rows: 6, Bytes: 62, Messages: 3}) {
		t.Errorf("gaps %+v", s.Gaps)
	}
	if len(s.Contributors) != 2 || s.Contributors[0] != (summary.Process{PID: 7, Name: "App", Frames: 2}) || s.Contributors[1] != (summary.Process{PID: 9, Frames: 1}) {
		t.Errorf("contributors %+v", s.Contributors)
	}
}

// A frame of 10 ms beside one that says the same of itself and another time: that one counts nowhere, whatever it says.
func TestARecordWhoseFiguresContradictItsIntegersCountsNowhere(t *testing.T) {
	whole := record(1, 1, 1, 240_000, 480_000, 240_000, 240_000, "valid")
	for _, forged := range []string{"0", "-10", "10.000001", "9000000000000", "10.0000001"} {
		line := strings.Replace(record(2, 2, 1, 480_000, 720_000, 480_000, 240_000, "valid"), `"frameTimeMs":10.000000`, `"frameTimeMs":`+forged, 1)
		s, err := summary.Of(ledger.NewReader(strings.NewReader(whole + "\n" + line + "\n")))
		if err != nil {
			t.Fatal(err)
		}
		if d := s.Displays[0]; d.Contradicted != 1 || d.Frames != 2 || *d.MaxNs != 10_000_000 || *d.MinNs != 10_000_000 || d.SumNs != 10_000_000 {
			t.Errorf("frame time of %s ms: %+v", forged, d)
		}
	}
}

// A tick of half a ns is a frame time of 0 ns.
func TestWithoutATimeInAllThereIsNoHitchTimeRatio(t *testing.T) {
	line := record(1, 1, 1, 240_000, 480_000, 479_999, 1, "valid")
	for old, new := range map[string]string{`"timebase":{"numer":125,"denom":3}`: `"timebase":{"numer":1,"denom":2}`, `"presentationNs":20000000`: `"presentationNs":240000`,
		`"frameTimeMs":0.000041`: `"frameTimeMs":0`} {
		if !strings.Contains(line, old) {
			t.Fatalf("no %s in %s", old, line)
		}
		line = strings.Replace(line, old, new, 1)
	}
	s, err := summary.Of(ledger.NewReader(strings.NewReader(line + "\n")))
	if err != nil {
		t.Fatal(err)
	}
	if d := s.Displays[0]; d.P95Ns == nil || *d.P95Ns != 0 || d.HitchMsPerS != nil {
		t.Errorf("P95 %v, hitch time ratio %v, want 0 and none: %+v", d.P95Ns, d.HitchMsPerS, d)
	}
}

// Four frames are known to be missing before one frame, and some before another.
func TestLossesOfUnknownNumberAreCounted(t *testing.T) {
	known := record(1, 4, 1, 240_000, 480_000, 240_000, 240_000, "source-gap")
	unknown := strings.Replace(record(2, 9, 1, 480_000, 720_000, 480_000, 240_000, "source-gap"), `"droppedBefore":4`, `"droppedBefore":null`, 1)
	s, err := summary.Of(ledger.NewReader(strings.NewReader(known + "\n" + unknown + "\n")))
	if err != nil {
		t.Fatal(err)
	}
	if d := s.Displays[0]; d.DroppedBefore != 4 || d.UnknownLosses != 1 {
		t.Errorf("%d known and %d unknown, want 4 and 1", d.DroppedBefore, d.UnknownLosses)
	}
}

func TestAConstantAdjustmentIsNamedAndNotRepaired(t *testing.T) {
	for adjustment, named := range map[int64]bool{0: false, 1: false, 500: true} {
		var lines []string
		end := int64(24_000_000)
		for i := int64(1); i <= 20; i++ {
			lines = append(lines, record(i, i, 1, end-240_000, end, end-240_000-adjustment, 240_000, "valid"))
			end += 240_000
		}
		s, err := summary.Of(ledger.NewReader(strings.NewReader(strings.Join(lines, "\n") + "\n")))
		if err != nil {
			t.Fatal(err)
		}
		got := s.Displays[0].AdjustmentTicks
		if (got != nil) != named || named && *got != adjustment {
			t.Errorf("adjustment of %d ticks: named %v", adjustment, got)
		}
	}
}
