package tapenc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/framebridge/framebridge/internal/sim/scene"
)

const steady = "{noise: 0, steps: [{for: 1h, hz: 120}]}"

// listener is a tap with everything that it gives, and the truth.
type listener struct {
	t        *testing.T
	tap      *Tap
	payloads []Payload // copies
	truth    []Truth
}

func listen(t *testing.T, dev *scene.Device, at time.Duration, c Config) *listener {
	t.Helper()
	l := &listener{t: t}
	c.Truth = func(x Truth) {
		x.Line = bytes.Clone(x.Line)
		l.truth = append(l.truth, x)
	}
	var err error
	if l.tap, err = Open(dev, at, c); err != nil {
		t.Fatal(err)
	}
	return l
}

// until collects every 100 ms from one time to another.
func (l *listener) until(from, to time.Duration) {
	l.t.Helper()
	for at := from; at <= to; at += 100 * time.Millisecond {
		got, err := l.tap.Collect(at)
		if err != nil {
			l.t.Fatal(err)
		}
		for _, p := range got {
			l.payloads = append(l.payloads, Payload{p.N, bytes.Clone(p.Bytes)})
		}
	}
}

func (l *listener) rows() []naiveRow {
	d := &naive{}
	for _, p := range l.payloads {
		if err := d.feed(int(p.N), p.Bytes); err != nil {
			l.t.Fatalf("payload %d: %v", p.N, err)
		}
	}
	return d.rows
}

func TestTapOpenedInTheMiddleBeginsWithAResetAndTheFramesFromThenOn(t *testing.T) {
	dev := scene.New(parseScene(t, steady), parseOS(t, "26.0"), 1)
	first := listen(t, dev, 0, Config{})
	first.until(0, 3*time.Second)
	second := listen(t, dev, 3*time.Second, Config{})
	first.until(3100*time.Millisecond, 4*time.Second)
	second.until(3100*time.Millisecond, 4*time.Second)
	if !bytes.HasPrefix(second.payloads[0].Bytes, []byte{0x00, 0x64}) {
		t.Errorf("the second tap begins with % x", second.payloads[0].Bytes[:4])
	}
	all, _ := naiveFrames(t, first.rows())
	late, _ := naiveFrames(t, second.rows())
	// 120 frames a second; the one that is on glass at the end is told a little later.
	if len(all) != 479 || len(late) != 120 {
		t.Fatalf("%d and %d frames", len(all), len(late))
	}
	for i, f := range late {
		if want := all[len(all)-120+i].line(); f.line() != want {
			t.Errorf("frame %d of the second tap:\n got %s\nwant %s", i, f.line(), want)
		}
	}
}

func TestTruthNamesThePayloadsThatCarryAFrame(t *testing.T) {
	for _, tear := range []bool{false, true} {
		dev := scene.New(parseScene(t, busy), parseOS(t, "18.5"), 1)
		l := listen(t, dev, 0, Config{Tear: tear, Seed: 4})
		l.until(0, 5*time.Second)
		l.tap.Close()
		frames, last := naiveFrames(t, l.rows())
		split := 0
		for i, f := range frames {
			if got := string(l.truth[i].Line); got != f.line() {
				t.Fatalf("frame %d: truth %s\nstream %s", i, got, f.line())
			}
			if l.truth[i].Last != int64(last[i]) {
				t.Fatalf("frame %d: ends in payload %d, the truth says %d", i, last[i], l.truth[i].Last)
			}
			if l.truth[i].First != l.truth[i].Last {
				split++
			}
		}
		if tear != (split > 0) {
			t.Errorf("tear %v: %d frames are in more than one payload", tear, split)
		}
		for _, x := range l.truth[len(frames):] {
			if x.Last != 0 {
				t.Errorf("a frame of payload %d cannot be read", x.Last)
			}
		}
	}
}

func TestLostAndDuplicatedPayloads(t *testing.T) {
	dev := scene.New(parseScene(t, steady), parseOS(t, "26.0"), 1)
	l := listen(t, dev, 0, Config{})
	l.until(0, 500*time.Millisecond) // the first payload has the reset only, the others 100 ms each
	l.inject(Fault{Kind: FaultLose, Payloads: 2})
	l.until(600*time.Millisecond, time.Second)
	l.inject(Fault{Kind: FaultDuplicate})
	l.until(1100*time.Millisecond, 1300*time.Millisecond)
	var numbers []int64
	for _, p := range l.payloads {
		numbers = append(numbers, p.N)
	}
	if want := []int64{1, 2, 3, 4, 5, 6, 9, 10, 11, 12, 12, 13, 14}; !slices.Equal(numbers, want) {
		t.Errorf("payloads %v, want %v", numbers, want)
	}
	if !bytes.Equal(l.payloads[9].Bytes, l.payloads[10].Bytes) {
		t.Error("the duplicate is another payload")
	}
	lost := 0
	for _, x := range l.truth {
		if x.Last == 7 || x.Last == 8 {
			lost++
		}
	}
	if lost != 24 {
		t.Errorf("the truth has %d frames in the two lost payloads, want 24", lost)
	}
}

func (l *listener) inject(f Fault) {
	l.t.Helper()
	if err := l.tap.Inject(0, f); err != nil {
		l.t.Fatal(err)
	}
}

func TestCorruptPayloadBreaksTheStreamAndNeverChangesAFrameUnseen(t *testing.T) {
	for seed := range uint64(40) {
		dev := scene.New(parseScene(t, steady), parseOS(t, []string{"18.5", "26.0"}[seed%2]), 1)
		l := listen(t, dev, 0, Config{Tear: seed%4 > 1, Seed: seed})
		l.until(0, 500*time.Millisecond)
		l.inject(Fault{Kind: FaultCorrupt})
		before := len(l.truth)
		l.until(600*time.Millisecond, 700*time.Millisecond)
		d := &naive{}
		var broken error
		for _, p := range l.payloads {
			if broken = d.feed(int(p.N), p.Bytes); broken != nil {
				break
			}
		}
		if broken == nil {
			t.Errorf("seed %d: a reader does not notice", seed)
		}
		frames, _ := naiveFrames(t, d.rows)
		if len(frames) < before {
			t.Errorf("seed %d: %d frames before the corruption, %d read", seed, before, len(frames))
		}
		for i, f := range frames {
			if f.line() != string(l.truth[i].Line) {
				t.Errorf("seed %d, frame %d:\n got %s\ntold %s", seed, i, f.line(), l.truth[i].Line)
			}
		}
	}
}

func TestAPayloadOfOneByteIsNotCorruptedButTheNext(t *testing.T) {
	l := listen(t, scene.New(parseScene(t, steady), parseOS(t, "18.5"), 1), 0, Config{})
	l.inject(Fault{Kind: FaultCorrupt})
	l.tap.enc.buf = []byte{0x01, 0xc0, 0x00, 0x65, 0x02, 0x02} // the number 1, torn; a copy of it; the end of a row
	l.tap.cutAt(0, 1)
	l.tap.cutAt(1, 3)
	l.tap.cutAt(3, 6)
	if want := []byte{0x01, 0x33, 0x33, 0x65, 0x02, 0x02}; !bytes.Equal(l.tap.enc.buf, want) {
		t.Errorf("got % x, want % x", l.tap.enc.buf, want)
	}
}

func TestStalledTapDeliversEverythingAfterwards(t *testing.T) {
	dev := scene.New(parseScene(t, steady), parseOS(t, "26.0"), 1)
	l := listen(t, dev, 0, Config{})
	l.until(0, 500*time.Millisecond)
	if err := l.tap.Inject(500*time.Millisecond, Fault{Kind: FaultStall, For: 1500 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	l.until(600*time.Millisecond, 1900*time.Millisecond)
	if len(l.payloads) != 6 {
		t.Errorf("%d payloads while stalled", len(l.payloads))
	}
	l.until(2*time.Second, 2*time.Second)
	if len(l.payloads) != 21 {
		t.Errorf("%d payloads after the stall", len(l.payloads))
	}
	if frames, _ := naiveFrames(t, l.rows()); len(frames) != 239 {
		t.Errorf("%d frames, want 239", len(frames))
	}
}

func TestUnknownFaultIsRefused(t *testing.T) {
	l := listen(t, scene.New(parseScene(t, steady), parseOS(t, "26.0"), 1), 0, Config{})
	if err := l.tap.Inject(0, Fault{Kind: "melt"}); err == nil || !strings.Contains(err.Error(), `"melt": faults of a tap are tear, lose`) {
		t.Error(err)
	}
}

func TestStreamBeginsAnewWhenItsStackIsFullAndOnlyThen(t *testing.T) {
	for _, c := range []struct {
		config Config
		min    int64
		max    int64
	}{
		{Config{}, 1, 1}, // strings, processes and threads alone never fill it
		// Some 80 strings, then seed, swap id and end of each frame: about 1,650 frames of 2,400.
		{Config{KeepNumbers: true}, 2, 2},
		{Config{KeepNumbers: true, ResetItems: 700}, 11, 13},
	} {
		dev := scene.New(parseScene(t, steady), parseOS(t, "18.5"), 1)
		l := listen(t, dev, 0, c.config)
		l.until(0, 20*time.Second)
		d := &naive{}
		deepest := 0
		for _, p := range l.payloads {
			if err := d.feed(int(p.N), p.Bytes); err != nil {
				t.Fatal(err)
			}
			deepest = max(deepest, len(d.stack))
		}
		if n := l.truth[len(l.truth)-1].Reset; n != int64(d.resets) || n < c.min || n > c.max {
			t.Errorf("%+v: %d resets told, %d seen, want %d to %d", c.config, n, d.resets, c.min, c.max)
		}
		limit := c.config.ResetItems
		if limit == 0 {
			limit = 5000
		}
		if deepest > limit+300 {
			t.Errorf("%+v: the stack grew to %d", c.config, deepest)
		}
	}
}

func TestFilterPassesWhatWasAskedFor(t *testing.T) {
	spec := parseScene(t, "{noise: 2000, steps: [{for: 1h, hz: 120, jank: {every: 10, delay: 30ms}}]}")
	seen := func(f Filter) map[string]int {
		l := listen(t, scene.New(spec, parseOS(t, "18.5"), 1), 0, Config{Filter: f})
		l.until(0, time.Second)
		out := map[string]int{}
		for _, r := range l.rows() {
			out[strings.TrimSpace(str(r.cols["subsystem"])+" "+str(r.cols["category"])+" "+r.table)]++
		}
		return out
	}
	keys := func(m map[string]int) string {
		var k []string
		for s := range m {
			k = append(k, s)
		}
		slices.Sort(k)
		return strings.Join(k, "\n")
	}
	frames := Filter{Subsystems: []string{"com.apple.coreanimation"}, Categories: []string{"IOMFBServer", "IOMFBServer.Stalls"}}
	if got, want := keys(seen(frames)), "com.apple.coreanimation IOMFBServer os-signpost\ncom.apple.coreanimation IOMFBServer.Stalls os-signpost"; got != want {
		t.Errorf("frames only:\n%s", got)
	}
	oneApp := "com.example.app Debug os-signpost\ncom.example.app IOMFBServer os-signpost\ncom.example.app PointsOfInterest os-signpost\nos-signpost-arg"
	if got := keys(seen(Filter{Subsystems: []string{"com.example.app"}})); got != oneApp {
		t.Errorf("one app:\n%s", got)
	}
	if got := seen(Filter{Logs: true}); got["com.apple.coreanimation IOMFBServer os-log"] == 0 || got["com.apple.network activity os-signpost"] == 0 {
		t.Errorf("everything:\n%s", keys(got))
	}
	if got := seen(Filter{}); got["com.apple.coreanimation IOMFBServer os-log"] != 0 {
		t.Errorf("logs were not asked for:\n%s", keys(got))
	}
}

func TestPreviousIsToldRightlyWhenTheFrameBeforeWasFilteredOut(t *testing.T) {
	dev := scene.New(parseScene(t, "{noise: 0, steps: [{for: 1h, hz: 120, jank: {every: 5, delay: 30ms}}]}"), parseOS(t, "17.5"), 1)
	l := listen(t, dev, 0, Config{KeepNumbers: true, Filter: Filter{Categories: []string{"IOMFBServer.Stalls"}}})
	l.until(0, 2*time.Second)
	frames, _ := naiveFrames(t, l.rows())
	if len(frames) < 20 || len(frames) != len(l.truth) {
		t.Fatalf("%d frames, %d told", len(frames), len(l.truth))
	}
	for i, f := range frames {
		if f.line() != string(l.truth[i].Line) {
			t.Errorf("frame %d:\n got %s\ntold %s", i, f.line(), l.truth[i].Line)
		}
	}
}

func TestRebootEndsTheTapAndAWireFileGoesOnWithANewConnection(t *testing.T) {
	spec := parseScene(t, "[{for: 2s, hz: 60}, {event: reboot, down: 1s}, {for: 2s, hz: 60}]")
	dev := scene.New(spec, parseOS(t, "17.5"), 1)
	l := listen(t, dev, 0, Config{})
	l.until(0, 1900*time.Millisecond)
	for _, at := range []time.Duration{2100 * time.Millisecond, 4 * time.Second} {
		if _, err := l.tap.Collect(at); !errors.Is(err, ErrGone) {
			t.Errorf("at %s: %v", at, err)
		}
	}
	if _, err := Open(scene.New(spec, parseOS(t, "17.5"), 1), 2500*time.Millisecond, Config{}); !errors.Is(err, scene.ErrDown) {
		t.Errorf("opened while down: %v", err)
	}
	connections, truth := wireFile(t, WireConfig{Spec: spec, OS: parseOS(t, "17.5"), Seed: 1, Duration: 5 * time.Second})
	if len(connections) != 2 {
		t.Fatalf("%d connections", len(connections))
	}
	if n := len(truth); n < 230 || n > 239 {
		t.Errorf("%d frames in 4 s at 60 Hz", n)
	}
	frames, _ := naiveFrames(t, decodeAll(t, connections).rows)
	for i, f := range frames {
		if f.line() != truth[i] {
			t.Fatalf("frame %d: %s\ntold %s", i, f.line(), truth[i])
		}
	}
}

func TestClosedTapGivesNothingAndTellsWhatWasOnItsWay(t *testing.T) {
	dev := scene.New(parseScene(t, steady), parseOS(t, "26.0"), 1)
	l := listen(t, dev, 0, Config{})
	l.until(0, 500*time.Millisecond)
	dev.Advance(600 * time.Millisecond)
	l.tap.Close()
	l.tap.Close()
	if _, err := l.tap.Collect(700 * time.Millisecond); !errors.Is(err, ErrGone) {
		t.Error(err)
	}
	undelivered := 0
	for _, x := range l.truth {
		if x.Last == 0 {
			undelivered++
		}
	}
	if len(l.truth) != 71 || undelivered != 12 {
		t.Errorf("%d frames told, %d undelivered", len(l.truth), undelivered)
	}
}

func TestTapThatNobodyReadsDropsEverythingAndBeginsAnew(t *testing.T) {
	dev := scene.New(parseScene(t, "{noise: 10000, steps: [{for: 1h, hz: 120}]}"), parseOS(t, "26.0"), 1)
	l := listen(t, dev, 0, Config{})
	at := time.Duration(0)
	for l.tap.enc.resets == 1 {
		at += time.Second
		dev.Advance(at)
		if at > 10*time.Minute {
			t.Fatal("it grows for ever")
		}
	}
	l.until(at, at+time.Second)
	dropped := 0
	for _, x := range l.truth {
		if x.Last == 0 {
			dropped++
		}
	}
	frames, _ := naiveFrames(t, l.rows())
	if dropped == 0 || len(frames) != len(l.truth)-dropped || len(frames) < 100 {
		t.Errorf("%d frames told, %d of them dropped, %d read", len(l.truth), dropped, len(frames))
	}
}

func TestFrameUpdateComesInAllEightVariants(t *testing.T) {
	l := listen(t, scene.New(parseScene(t, steady), parseOS(t, "26.0"), 1), 0, Config{})
	l.until(0, time.Second)
	formats := map[string]bool{}
	for _, r := range l.rows() {
		formats[str(r.cols["format-string"])] = true
	}
	if len(formats) != 8 {
		t.Errorf("%d format strings", len(formats))
	}
}

func TestArgumentSetsOfFrameLifetimeByRelease(t *testing.T) {
	for os, want := range map[string][]int{"15.8": {5}, "16.7": {7}, "17.5": {7}, "18.5": {8, 9}} { // begin_time and end_time are taken out
		l := listen(t, scene.New(parseScene(t, steady), parseOS(t, os), 1), 0, Config{})
		l.until(0, time.Second)
		counts := map[int]bool{}
		for _, r := range l.rows() {
			if str(r.cols["name"]) == "FrameLifetime" {
				counts[len(argsOf(t, r))] = true
			}
		}
		var got []int
		for n := range counts {
			got = append(got, n)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v arguments, want %v", os, got, want)
		}
	}
}

func TestWireFileDependsOnNothingButItsConfig(t *testing.T) {
	write := func(seed uint64) (string, string) {
		var wire, truth bytes.Buffer
		if _, err := WriteWire(&wire, &truth, WireConfig{Spec: parseScene(t, busy), OS: parseOS(t, "18.5"), Seed: seed,
			Duration: 5 * time.Second, Tap: Config{Tear: true}}); err != nil {
			t.Fatal(err)
		}
		return wire.String(), truth.String()
	}
	w1, t1 := write(1)
	w2, t2 := write(1)
	w3, t3 := write(2)
	if w1 != w2 || t1 != t2 {
		t.Error("two files of one seed differ")
	}
	if w1 == w3 || t1 == t3 {
		t.Error("two seeds give the same file")
	}
}

func TestTruthHasTheMembersOfTheFramesFiles(t *testing.T) {
	_, truth := wireFile(t, WireConfig{Spec: parseScene(t, steady), OS: parseOS(t, "26.0"), Seed: 1, Duration: time.Second})
	want := `{"name":"FrameUpdate","category":"IOMFBServer","swapId":`
	if !strings.HasPrefix(truth[5], want) {
		t.Errorf("%s", truth[5])
	}
	for i, line := range truth {
		if !json.Valid([]byte(line)) {
			t.Errorf("line %d: %s", i, line)
		}
	}
}

func TestWireWithoutDurationIsRefused(t *testing.T) {
	if _, err := WriteWire(&bytes.Buffer{}, &bytes.Buffer{}, WireConfig{Spec: scene.Default(), OS: scene.OS{Major: 26}}); err == nil {
		t.Error("taken")
	}
}

// failing is a file on a full disk.
type failing struct{}

var errFull = errors.New("disk full")

func (failing) Write([]byte) (int, error) { return 0, errFull }

func TestWireFileThatCannotBeWrittenIsAnError(t *testing.T) {
	_, err := WriteWire(failing{}, &bytes.Buffer{}, WireConfig{Spec: scene.Default(), OS: scene.OS{Major: 26}, Duration: time.Second})
	if !errors.Is(err, errFull) {
		t.Error(err)
	}
}

func TestTapsOfOnePhoneCanBeReadAtTheSameTime(t *testing.T) {
	dev := scene.New(parseScene(t, busy), parseOS(t, "18.5"), 1)
	var wg sync.WaitGroup
	lines := make([]string, 3)
	var taps []*listener
	for range lines {
		taps = append(taps, listen(t, dev, 0, Config{}))
	}
	for i, l := range taps {
		wg.Go(func() {
			for at := time.Duration(0); at < 3*time.Second; at += 10 * time.Millisecond {
				if _, err := l.tap.Collect(at); err != nil {
					t.Error(err)
				}
				dev.Status(at)
				dev.Changes(0)
			}
			for _, x := range l.truth[:300] {
				lines[i] += fmt.Sprintln(string(x.Line))
			}
		})
	}
	wg.Wait()
	if lines[0] != lines[1] || lines[0] != lines[2] {
		t.Error("the taps tell different frames")
	}
}
