package capture

import (
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/internal/device"
	"github.com/framebridge/framebridge/internal/jsonline"
	"github.com/framebridge/framebridge/ledger"
	"github.com/framebridge/framebridge/p95"
)

func TestOrderTakesAJumpForALossOnlyAfterAStretchWithoutOne(t *testing.T) {
	type step struct {
		id       uint32
		lost     int64
		repeated bool
	}
	for name, steps := range map[string][]step{
		"identifiers that do not follow one another from the start say nothing": {{5, 0, false}, {9, 0, false}, {20, 0, false}, {21, 0, false}},
		"a jump after eight that did": {{7, 0, false}, {8, 0, false}, {9, 0, false}, {10, 0, false}, {11, 0, false}, {12, 0, false}, {13, 0, false},
			{14, 0, false}, {15, 0, false}, {18, 2, false}},
		"a jump after seven that did": {{7, 0, false}, {8, 0, false}, {9, 0, false}, {10, 0, false}, {11, 0, false}, {12, 0, false}, {13, 0, false},
			{14, 0, false}, {18, 0, false}},
		"the same one again": {{3, 0, false}, {3, 0, true}, {4, 0, false}},
		"around the end of the numbers": {{0xfffffffa, 0, false}, {0xfffffffb, 0, false}, {0xfffffffc, 0, false}, {0xfffffffd, 0, false}, {0xfffffffe, 0, false},
			{0xffffffff, 0, false}, {0, 0, false}, {1, 0, false}, {2, 0, false}, {4, 1, false}},
		"one from before again": {{7, 0, false}, {8, 0, false}, {9, 0, false}, {10, 0, false}, {11, 0, false}, {12, 0, false}, {13, 0, false},
			{14, 0, false}, {15, 0, false}, {11, 0, true}, {12, 0, true}, {16, 0, false}, {18, 1, false}},
		"a count that begins anew": {{1007, 0, false}, {1008, 0, false}, {1009, 0, false}, {1010, 0, false}, {1011, 0, false}, {1012, 0, false}, {1013, 0, false},
			{1014, 0, false}, {1015, 0, false}, {1, 0, false}, {2, 0, false}, {5, 0, false}},
		"64 before the last, and 63": {{1007, 0, false}, {1008, 0, false}, {1009, 0, false}, {1010, 0, false}, {1011, 0, false}, {1012, 0, false}, {1013, 0, false},
			{1014, 0, false}, {1015, 0, false}, {952, 0, true}, {951, 0, false}},
		"jumps among the first, told when eight have followed one another": {{7, 0, false}, {9, 0, false}, {10, 0, false}, {13, 0, false}, {14, 0, false},
			{15, 0, false}, {16, 0, false}, {17, 0, false}, {18, 0, false}, {19, 0, false}, {20, 0, false}, {21, 3, false}, {22, 0, false}},
		"a jump before a count that begins anew": {{1007, 0, false}, {1009, 0, false}, {1, 0, false}, {2, 0, false}, {3, 0, false}, {4, 0, false}, {5, 0, false},
			{6, 0, false}, {7, 0, false}, {8, 0, false}, {9, 0, false}, {10, 0, false}},
		"a step back where they never followed one another": {{7, 0, false}, {8, 0, false}, {5, 0, false}, {6, 0, false}},
	} {
		t.Run(name, func(t *testing.T) {
			var o order
			for i, s := range steps {
				if lost, repeated := o.next(s.id, int64(i)); lost != s.lost || repeated != s.repeated {
					t.Errorf("step %d, identifier %d: lost %d, repeated %v; want %d, %v", i, s.id, lost, repeated, s.lost, s.repeated)
				}
			}
		})
	}
}

func TestMessagesOfOtherChannelsAreNoLoss(t *testing.T) {
	var o order
	for id := uint32(1); id <= 10; id++ {
		o.next(id, int64(id)+3)
	}
	if lost, _ := o.next(13, 16); lost != 0 {
		t.Errorf("%d lost, though two messages went to other channels", lost)
	}
	if lost, _ := o.next(16, 18); lost != 1 {
		t.Errorf("%d lost, want 1: of two identifiers one went elsewhere", lost)
	}
}

// 3 and 4 are used up among the first messages, by none of other channels, by one, by two.
func TestMessagesOfOtherChannelsAreNoLossAmongTheFirst(t *testing.T) {
	for others, want := range []int64{2, 1, 0} {
		var o order
		o.next(1, 1)
		o.next(2, 2)
		var lost int64
		for id := uint32(5); id <= 13; id++ {
			n, _ := o.next(id, int64(id)-2+int64(others))
			lost += n
		}
		if lost != want {
			t.Errorf("%d lost with %d messages of other channels, want %d", lost, others, want)
		}
	}
}

// 2 is missing each time: once that may be a loss.
func TestWhatATapBeginsWithEachTimeIsItsHabit(t *testing.T) {
	var o order
	for i, habit := range []bool{false, true, true} {
		o.next(1, 1)
		var lost int64
		for id := uint32(3); id <= 12; id++ {
			n, _ := o.next(id, int64(id)-1)
			lost += n
		}
		if lost != 1 || o.habit() != habit {
			t.Errorf("connection %d: %d lost, habit %v; want 1, %v", i+1, lost, o.habit(), habit)
		}
		if i < 2 {
			o = o.again()
		}
	}
	if lost, _ := o.next(14, 12); lost != 1 || o.habit() {
		t.Errorf("a loss later on: %d lost, habit %v; want 1 that is none", lost, o.habit())
	}
}

// 11 goes to another channel, 10 comes again, and then 12: nothing is missing.
func TestARepetitionUsesUpNoIdentifierOfOthers(t *testing.T) {
	var o order
	for id := uint32(1); id <= 10; id++ {
		o.next(id, int64(id))
	}
	if lost, repeated := o.next(10, 12); lost != 0 || !repeated {
		t.Errorf("lost %d, repeated %v, want a repetition", lost, repeated)
	}
	if lost, repeated := o.next(12, 13); lost != 0 || repeated {
		t.Errorf("lost %d, repeated %v, want neither", lost, repeated)
	}
}

func TestATapIsSilentOnlyAfterHeartbeatsAndALastWord(t *testing.T) {
	var s silence
	for range 5 {
		if s.over() {
			t.Fatal("a tap that never sent heartbeats counts as silent")
		}
	}
	for i := range int64(3) {
		s.broken(i*1_000_000_000, true)
	}
	if limit := s.limit(); limit != 7*time.Second {
		t.Errorf("limit %s after beats a second apart, want 7 s", limit)
	}
	if s.over() || s.limit() != time.Second || !s.over() {
		t.Error("want one more second after the first limit, and then the end")
	}
	s.broken(13_000_000_000, true)
	if limit := s.limit(); limit != 33*time.Second {
		t.Errorf("limit %s after 11 s between beats, want 33 s", limit)
	}
	s.broken(100_000_000_000, true)
	if limit := s.limit(); limit != 60*time.Second {
		t.Errorf("limit %s, want no more than 60 s", limit)
	}
	if s.over(); s.limit() != time.Second {
		t.Error("no last word")
	}
	s.broken(101_000_000_000, false)
	if s.limit() != 60*time.Second {
		t.Error("a message did not end the last word")
	}
}

func clocks(hostNs, continuous, absolute int64) p95.ClockBridge {
	return p95.ClockBridge{HostSendNs: hostNs, HostReceiveNs: hostNs + 1_000_000, DeviceContinuousMach: continuous, HasContinuous: continuous > 0,
		DeviceAbsoluteMach: absolute, Timebase: adapter.Timebase{Numer: 125, Denom: 3}}
}

// slow is an exchange that took as long as one may.
func slow(b p95.ClockBridge) p95.ClockBridge {
	b.HostReceiveNs = b.HostSendNs + 4_000_000_000
	return b
}

// 24,000 ticks are a millisecond at 125/3.
const second = 24_000_000

func TestAConnectionIsAnotherEpochOnlyAfterARestart(t *testing.T) {
	for name, c := range map[string]struct {
		before, after p95.ClockBridge
		restarted     bool
	}{
		"ten seconds passed on both":                        {clocks(100e9, 5000*second, 900*second), clocks(110e9, 5010*second, 910*second), false},
		"the phone slept: only the continuous clock moved":  {clocks(100e9, 5000*second, 900*second), clocks(110e9, 5010*second, 900*second), false},
		"the phone restarted and its clock is behind":       {clocks(100e9, 5000*second, 900*second), clocks(160e9, 30*second, 30*second), true},
		"it had just started, and has run longer than then": {clocks(100e9, 20*second, 20*second), clocks(200e9, 60*second, 60*second), true},
		"2.0 s behind is within the slack":                  {clocks(100e9, 5000*second, 1), clocks(110e9+1_000_000, 5008*second, 1), false},
		"one tick more is not":                              {clocks(100e9, 5000*second, 1), clocks(110e9+1_000_000, 5008*second-1, 1), true},
		"slow answers, both clocks read at once":            {slow(clocks(100e9, 5000*second, 1)), slow(clocks(110e9, 5010*second, 1)), false},
		"the first read at its end, the second at once":     {slow(clocks(100e9, 5004*second, 1)), slow(clocks(110e9, 5010*second, 1)), false},
		"slow answers around a restart":                     {slow(clocks(100e9, 20*second, 20*second)), slow(clocks(200e9, 60*second, 60*second)), true},
		"no continuous clock, awake all the time":           {clocks(100e9, 0, 900*second), clocks(110e9, 0, 910*second), false},
		"no continuous clock, and asleep: cannot be told":   {clocks(100e9, 0, 900*second), clocks(110e9, 0, 901*second), true},
		"no continuous clock, restarted":                    {clocks(100e9, 0, 900*second), clocks(160e9, 0, 30*second), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := restarted(c.before, c.after); got != c.restarted {
				t.Errorf("restarted = %v, want %v", got, c.restarted)
			}
		})
	}
}

func TestLineageCountsEpochsReconnectsAndLivesOfTheApp(t *testing.T) {
	var l lineage
	check := func(what string, b adapter.Binding, epoch, reconnect, generation int64) {
		t.Helper()
		if b.SourceEpoch != epoch || b.ReconnectGeneration != reconnect || b.Target.Generation != generation {
			t.Errorf("%s: epoch %d, reconnect %d, generation %d; want %d, %d, %d", what, b.SourceEpoch, b.ReconnectGeneration, b.Target.Generation, epoch, reconnect, generation)
		}
	}
	l.connected(clocks(100e9, 5000*second, 1))
	check("first connection", l.app("a", 10), 1, 0, 1)
	check("the same process again", l.app("a", 10), 1, 0, 1)
	check("cable back", l.connected(clocks(110e9, 5010*second, 1)), 1, 1, 1)
	check("tap set up again", l.again(), 1, 2, 1)
	check("relaunched", l.app("a", 11), 1, 2, 2)
	check("phone restarted", l.connected(clocks(200e9, 40*second, 1)), 2, 0, 2)
	check("relaunched with the pid of an earlier life", l.app("a", 10), 2, 0, 3)
	l.connected(clocks(300e9, 30*second, 1))
	check("phone restarted, app with the same pid", l.app("a", 10), 3, 0, 4)
	other := clocks(310e9, 40*second, 1)
	other.Timebase = adapter.Timebase{Numer: 1, Denom: 1}
	check("another timebase", l.connected(other), 4, 0, 4)
}

func TestTheMostContributorsWithTheLongestNamesFitALine(t *testing.T) {
	p := adapter.Contributor{PID: math.MinInt32, Name: strings.Repeat("\x01", adapter.MaxProcessNameBytes)}
	c := adapter.Contributors{FrameSeed: math.MaxInt64, DisplayID: math.MaxInt64, Processes: slices.Repeat([]adapter.Contributor{p}, adapter.MaxContributors)}
	line := ledger.AppendLine(nil, &ledger.Event{Seq: math.MaxInt64, HostNs: math.MaxInt64, Value: &c})
	// Each: {"pid":-2147483648,"name":""} and a comma are 30 bytes, and an escape such as \u0001 is 6.
	if n := len(line); n < 512*(30+6*256) || n > jsonline.MaxLineBytes {
		t.Fatalf("%d bytes", n)
	}
	var parser ledger.Parser
	var e ledger.Event
	if err := parser.Parse(line[:len(line)-1], &e); err != nil || !slices.Equal(e.Value.(*adapter.Contributors).Processes, c.Processes) {
		t.Errorf("reads back as %v", err)
	}
}

func TestKindsOfRowsWithOneNameShareItsCount(t *testing.T) {
	counts := extra(adapter.Counts{Names: []adapter.NameCount{
		{Subsystem: "a/b", Category: "c", Name: "d", Rows: 3}, {Subsystem: "a", Category: "b/c", Name: "d", Rows: 4},
		{Subsystem: "\xfe", Rows: 1}, {Subsystem: "\xff", Rows: 2}, {Subsystem: "frames", Rows: 9, Frames: true}}})
	line := ledger.AppendLine(nil, &ledger.Event{Seq: 1, HostNs: 1, Value: &ledger.End{State: ledger.StateComplete, Extra: counts}})
	var parser ledger.Parser
	var e ledger.Event
	if err := parser.Parse(line[:len(line)-1], &e); err != nil {
		t.Fatal(err)
	}
	got := e.Value.(*ledger.End).Extra
	if got["rows:a/b/c/d"] != 7 || got["rows:\uFFFD//"] != 3 || got["rows:frames//"] != 0 {
		t.Errorf("%v", got)
	}
}

func TestTheFirstFrameThatCanBeJudgedTellsWhetherDisplaysAreReported(t *testing.T) {
	lost := adapter.Record{Fields: adapter.HasDisplayID, Quality: adapter.QualityUnsupportedSchema} // display 0 for want of an argument
	for display, want := range map[int64]int64{0: 0, 1: 1, 2: 1} {
		r := NewRecorder(&Lines{W: io.Discard}, adapter.New(adapter.SourceGoIOS, "", ""), nil, true)
		r.Bind(1, adapter.Binding{SourceEpoch: 1, PrimaryDisplayID: 1, Timebase: adapter.Timebase{Numer: 125, Denom: 3}})
		(*rows)(r).Record(&lost)
		if got := r.Binding().PrimaryDisplayID; got != 1 {
			t.Errorf("a frame without arguments made the primary display %d", got)
		}
		(*rows)(r).Record(&adapter.Record{Fields: adapter.HasDisplayID, DisplayID: display, Quality: adapter.QualityNoPredecessor})
		if got := r.Binding().PrimaryDisplayID; got != want {
			t.Errorf("first frame on display %d: primary display %d, want %d", display, got, want)
		}
	}
}

func TestALongCauseOfADisconnectionIsCut(t *testing.T) {
	var log strings.Builder
	r := NewRecorder(&Lines{W: &log}, adapter.New(adapter.SourceGoIOS, "", ""), nil, false)
	r.SourceState(5, "disconnected", strings.Repeat("x", 2<<20))
	if want := `{"seq":1,"hostNs":5,"type":"source.state","state":"disconnected","cause":"` + strings.Repeat("x", 4096) + "\"}\n"; log.String() != want {
		t.Errorf("a line of %d bytes, want %d", log.Len(), len(want))
	}
}

func TestASessionGoesOnOnlyWithThePhoneThatItsStartNames(t *testing.T) {
	began := device.Facts{UDID: "u", Name: "phone", ProductType: "iPhone15,2", OSVersion: "18.5", BuildVersion: "22F76", Connection: "USB"}
	for name, c := range map[string]struct {
		change func(*device.Facts)
		same   bool
	}{
		"unchanged":                       {func(*device.Facts) {}, true},
		"renamed, and reached by network": {func(f *device.Facts) { f.Name, f.Connection = "other", "Network" }, true},
		"simulated":                       {func(f *device.Facts) { f.Simulated = true }, false},
		"another product":                 {func(f *device.Facts) { f.ProductType = "iPhone15,3" }, false},
		"updated":                         {func(f *device.Facts) { f.OSVersion = "18.6" }, false},
	} {
		found := began
		c.change(&found)
		if err := samePhone(began, found); (err == nil) != c.same {
			t.Errorf("%s: %v", name, err)
		}
	}
}
