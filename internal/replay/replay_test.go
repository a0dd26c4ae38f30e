package replay_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/framebridge/framebridge/internal/replay"
	"github.com/framebridge/framebridge/ledger"
	"github.com/framebridge/framebridge/p95"
)

// A session of six frames, 400,000 ticks (16,666,666 ns) apart, written out by hand; each ends where the next begins.
func sixFrames() []string {
	lines := []string{
		`{"seq":1,"hostNs":1000,"type":"session.start","sessionId":"00000000-0000-4000-8000-000000000001","name":"six","tool":{"name":"hand","version":"1"},` +
			`"host":{"name":"h","os":"linux","arch":"amd64","cpus":1,"pid":1},"device":{"udid":"u","productType":"p","osVersion":"16.7","simulated":true},` +
			`"evidence":"E2","policy":"p95-window-segment.v2","clock":{"monotonicNs":1000,"wallNs":1}}`,
		`{"seq":2,"hostNs":1000,"type":"target.bind","bundleId":"a","pid":1,"generation":1,"sourceEpoch":1,"reconnectGeneration":0,"primaryDisplayId":1,"timebase":{"numer":125,"denom":3}}`,
		`{"seq":3,"hostNs":1000,"type":"target.state","foreground":true,"by":"launch"}`,
	}
	for i := int64(1); i <= 6; i++ {
		end := 24_000_000_000 + 400_000*i
		quality, previous, time, multiple := "valid", end-400_000, "16.666666", "1"
		reason := ""
		if i == 1 {
			quality, reason, previous, time, multiple = "no-predecessor", "previous-zero", 0, "null", "null"
		}
		lines = append(lines, fmt.Sprintf(`{"seq":%d,"hostNs":%d,"type":"display.frame-lifetime.raw","schema":"perfowl.display-frame-event/2","rawSequence":%d,`+
			`"sessionId":"00000000-0000-4000-8000-000000000001","source":{"service":"com.apple.instruments.server.services.activitytracetap","channel":1,`+
			`"selector":"onlySignposts","adapter_id":"goios.activity-trace.frame-lifetime.raw","adapter_version":2,"scope":"foreground-device","raw_unit":"signpost-framelifetime"},`+
			`"target":{"bundleId":"a","pid":1,"generation":1},"sourceEpoch":1,"reconnectGeneration":0,"p95PublicationPolicy":"p95-window-segment.v2",`+
			`"payload":{"subsystem":"com.apple.coreanimation","category":"IOMFBServer","name":"FrameLifetime","swapId":%d,"frameSeed":%d,"displayId":1,"surfaceId":2,`+
			`"beginMach":%d,"endMach":%d,"previousMach":%d,"refreshIntervalMach":400000,"bufferCount":2,"skipRequest":0,"timebase":{"numer":125,"denom":3},`+
			`"presentationNs":%d,"frameTimeMs":%s,"lifetimeMs":25,"refreshMultiple":%s,"quality":"%s","qualityReason":"%s","decoded":true,"verified":true,"droppedBefore":%s}}`,
			i+3, 1_000_000_000+i*17_000_000, i, i, i, end-600_000, end, previous, end*125/3, time, multiple, quality, reason, map[bool]string{true: "null", false: "0"}[i == 1]))
	}
	return lines
}

func run(t *testing.T, lines []string, o replay.Options) (*replay.Result, error) {
	t.Helper()
	return replay.Run(ledger.NewReader(strings.NewReader(strings.Join(lines, "\n")+"\n")), o)
}

func TestEveryPublishesFromTheFirstEventOn(t *testing.T) {
	var got []string
	result, err := run(t, sixFrames(), replay.Options{EveryNs: 1_020_000_000, Publication: func(seq int64, r *p95.Receipt) error {
		got = append(got, fmt.Sprintf("%d at %d: %s n %d value %d", seq, r.HostNs, r.Quality, r.N.N, r.ValueNs.N))
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	// The first event is at 1,000 ns, so the one publication is due at 1,020,001,000 ns: behind the frame of 1,017,000,000 and before the others.
	if want := "0 at 1020001000: warmup n 0 value 0"; len(got) != 1 || got[0] != want {
		t.Errorf("publications %q, want %q", got, want)
	}
	if result.Records != 6 || result.FaultCount != 0 {
		t.Errorf("result %+v", result)
	}
}

// The publication behind the sixth frame: five valid values, all 16,666,666 ns.
const lastHostNs = 1_102_000_000

func receipt(valueMs string) string {
	// P = 24,002,400,000 ticks = 1,000,100,000,000 ns, H = N, so T = P, and the left edge is 10 s before it.
	return fmt.Sprintf(`{"seq":10,"hostNs":%d,"type":"p95.publication","dueNs":null,"metric":"ios.frame.time.p95","definition":"activitytrace-framelifetime-p95.v1",`+
		`"policy":"p95-window-segment.v2","formula":"nearest-rank-95","valueMs":%s,"quality":"valid","lastPresentationNs":1000100000000,"lastHostNs":%d,`+
		`"windowLeftNs":990100000000,"windowRightNs":1000100000000,"segment":3,"target":{"bundleId":"a","pid":1,"generation":1},"sourceEpoch":1,"reconnectGeneration":0,`+
		`"displayId":1,"timebase":{"numer":125,"denom":3},"n":5,"rank":5,"firstSample":{"rawSequence":2,"presentationNs":1000033333333},`+
		`"lastSample":{"rawSequence":6,"presentationNs":1000100000000},"lastRawSequence":6,"lastClear":{"reason":"no-predecessor","rawSequence":1,"hostNs":1017000000},`+
		`"clockBridge":{"qualified":false,"widthNs":null,"ageLowerBoundNs":null},`+
		`"other":{"fps":5,"frameTimeMs":16.666666,"refreshHz":60,"jitterMs":0,"hitchMsPerS":0,"missedRefreshes":0}}`, lastHostNs, valueMs, lastHostNs)
}

func TestCheckAgreesWithAPublicationWorkedOutByHand(t *testing.T) {
	result, err := run(t, append(sixFrames(), receipt("16.666666")), replay.Options{Check: true})
	if err != nil || result.Publications != 1 {
		t.Errorf("%+v, %v", result, err)
	}
}

func TestCheckNamesLineFieldAndBothValues(t *testing.T) {
	_, err := run(t, append(sixFrames(), receipt("16.666667")), replay.Options{Check: true})
	var d *replay.Difference
	if !errors.As(err, &d) || d.Line != 10 || d.Field != "valueMs" || d.Got != "16.666667" || d.Want != "16.666666" {
		t.Errorf("%v", err)
	}
}

func TestALineThatCannotBeReadIsAGapAndIsTold(t *testing.T) {
	lines := append(sixFrames(), receipt("16.666666"))
	lines[7] = strings.Replace(lines[7], `"endMach":`, `"endMach":1e`, 1) // frame 5 of 6
	var got p95.Receipt
	result, err := run(t, lines, replay.Options{Publication: func(_ int64, r *p95.Receipt) error { got = *r; return nil }})
	if err != nil {
		t.Fatal(err)
	}
	if result.FaultCount != 1 || result.Faults[0].Line != 8 {
		t.Errorf("faults %+v, want one at line 8", result.Faults)
	}
	if got.Quality != p95.Warmup || got.N.N != 1 || got.LastClear.Reason != "source-gap" {
		t.Errorf("%s with n %d after %s, want warmup over the one frame behind the gap", got.Quality, got.N.N, got.LastClear.Reason)
	}
}

func TestEveryRefusesASilenceOfYears(t *testing.T) {
	lines := sixFrames()
	lines[8] = strings.Replace(lines[8], `"hostNs":1102000000`, `"hostNs":9000000000000000000`, 1)
	if _, err := run(t, lines, replay.Options{EveryNs: 1_000_000_000}); err == nil || !strings.Contains(err.Error(), "line 9") {
		t.Errorf("%v, want a refusal that names line 9", err)
	}
}

func TestARefusedBindIsTold(t *testing.T) {
	lines := sixFrames()
	back := strings.NewReplacer(`"seq":2`, `"seq":10`, `"sourceEpoch":1`, `"sourceEpoch":0`).Replace(lines[1])
	result, err := run(t, append(lines, back), replay.Options{})
	if err != nil || result.FaultCount != 1 || !errors.Is(result.Faults[0].Err, p95.ErrRetrograde) {
		t.Errorf("%+v, %v", result, err)
	}
}

// Times at the ends of what a time can be: no publication is due after the last one, and the silence between both ends is refused.
func TestEveryEndsAtTheEndsOfTime(t *testing.T) {
	log := func(firstNs, lastNs int64) []string {
		var lines []string
		for i, ns := range []int64{firstNs, lastNs} {
			lines = append(lines, fmt.Sprintf(`{"seq":%d,"hostNs":%d,"type":"target.state","foreground":true,"by":"launch"}`, i+1, ns))
		}
		return lines
	}
	var dueNs []int64
	o := replay.Options{EveryNs: 1_000_000_000, Publication: func(_ int64, r *p95.Receipt) error {
		dueNs = append(dueNs, r.HostNs)
		return nil
	}}
	if _, err := run(t, log(math.MaxInt64-2_500_000_000, math.MaxInt64), o); err != nil {
		t.Error(err)
	}
	if want := []int64{math.MaxInt64 - 1_500_000_000, math.MaxInt64 - 500_000_000}; !slices.Equal(dueNs, want) {
		t.Errorf("publications at %d, want %d", dueNs, want)
	}
	dueNs = nil
	if _, err := run(t, log(-9_223_372_036_854_775_797, math.MaxInt64), o); err == nil || !strings.Contains(err.Error(), "line 2: 18446744072709551604 ns without an event") {
		t.Errorf("got %v", err)
	}
	if len(dueNs) != 0 {
		t.Errorf("publications at %d", dueNs)
	}
}
