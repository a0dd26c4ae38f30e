package capture

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/internal/replay"
	"github.com/framebridge/framebridge/internal/sim"
	"github.com/framebridge/framebridge/internal/sim/scene"
	"github.com/framebridge/framebridge/internal/tunnel"
	"github.com/framebridge/framebridge/ledger"
	"github.com/framebridge/framebridge/p95"
)

const udid = "00008101-0000000000000001"

// The test binary is also a tunnel worker, so that what is killed here is a process that does the real thing.
func TestMain(m *testing.M) {
	if udid := os.Getenv("FRAMEBRIDGE_TEST_WORKER"); udid != "" {
		if err := tunnel.Work(context.Background(), udid, false, os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// long says that the whole cases are to be run, which scripts/test-long does.
func long() bool { return os.Getenv("FRAMEBRIDGE_LONG") != "" }

// startLab runs a lab with one phone behind the socket that everything here talks to.
func startLab(t *testing.T, os, steps string) *sim.Lab {
	t.Helper()
	spec, err := scene.Parse([]byte(steps))
	if err != nil {
		t.Fatal(err)
	}
	phone := sim.DefaultDevice(udid, os)
	phone.Scene = spec
	lab, err := sim.New(sim.Config{Speed: 1, Devices: []sim.DeviceConfig{phone}}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lab.Close() })
	address, err := lab.Listen("unix:" + filepath.Join(t.TempDir(), "usbmuxd"))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("USBMUXD_SOCKET_ADDRESS", address)
	return lab
}

func options(t *testing.T, duration time.Duration) Options {
	return Options{UDID: udid, BundleID: "com.example.app", Duration: duration, Dir: filepath.Join(t.TempDir(), "session"), KeepWire: true,
		Tool: ledger.Tool{Name: "test", Version: "0"}}
}

// session is a recorded session, read whole.
type session struct {
	t     *testing.T
	lines []line
}

type line struct {
	seq, hostNs int64
	value       any
}

func read(t *testing.T, dir string) *session {
	t.Helper()
	log, err := ledger.OpenLog(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	s := &session{t: t}
	for {
		var e ledger.Event
		err := log.Next(&e)
		if errors.Is(err, io.EOF) {
			return s
		}
		if err != nil {
			t.Fatal(err)
		}
		value := e.Value
		switch v := value.(type) { // the reader uses its memory again
		case *adapter.Record:
			c := *v
			value = &c
		case *adapter.Binding:
			c := *v
			value = &c
		case *p95.Receipt:
			c := *v
			value = &c
		case *ledger.SourceGap:
			c := *v
			value = &c
		case *ledger.SourceState:
			c := *v
			value = &c
		case *ledger.TargetState:
			c := *v
			value = &c
		case *p95.ClockBridge:
			c := *v
			value = &c
		}
		s.lines = append(s.lines, line{e.Seq, e.HostNs, value})
	}
}

func all[T any](s *session) (found []*T) {
	for _, l := range s.lines {
		if v, ok := l.value.(*T); ok {
			found = append(found, v)
		}
	}
	return found
}

// nothingBridged checks that every valid record's previous is the end of a recorded frame of the same life of the source.
func (s *session) nothingBridged() {
	s.t.Helper()
	type life struct{ epoch, generation, display int64 }
	last := map[life]int64{}
	for _, r := range all[adapter.Record](s) {
		at := life{r.SourceEpoch, r.ReconnectGeneration, r.DisplayID}
		if r.Quality == adapter.QualityValid {
			if d := r.PreviousMach - last[at]; d < -24_000 || d > 24_000 {
				s.t.Errorf("record %d is valid, and its previous is %d ticks from the end before it", r.RawSequence, d)
			}
			if r.FrameTimeNs > 1_100_000_000 {
				s.t.Errorf("record %d is valid with a frame time of %d ns", r.RawSequence, r.FrameTimeNs)
			}
		}
		last[at] = r.EndMach
	}
}

// decodesToItself checks that the session's wire file gives its raw records again, in every field but seq.
func decodesToItself(t *testing.T, dir string) {
	t.Helper()
	ids, err := ReadIdentities(dir)
	if err != nil {
		t.Fatal(err)
	}
	wire, err := os.Open(filepath.Join(dir, ledger.WireName))
	if err != nil {
		t.Fatal(err)
	}
	defer wire.Close()
	var decoded bytes.Buffer
	if _, err := Decode(wire, adapter.Timebase{}, ids, &Lines{W: &decoded}); err != nil {
		t.Fatal(err)
	}
	recorded, err := os.ReadFile(filepath.Join(dir, ledger.EventsName))
	if err != nil {
		t.Fatal(err)
	}
	want, got := rawLines(recorded), rawLines(decoded.Bytes())
	if len(want) == 0 || len(got) != len(want) {
		t.Fatalf("decoded %d raw records, recorded %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("raw record %d:\ndecoded  %s\nrecorded %s", i, got[i], want[i])
		}
	}
}

// rawLines are the raw records of a log without their seq.
func rawLines(log []byte) (lines []string) {
	for _, l := range strings.Split(string(log), "\n") {
		if strings.Contains(l, `"type":"display.frame-lifetime.raw"`) {
			_, rest, _ := strings.Cut(l, ",")
			lines = append(lines, rest)
		}
	}
	return lines
}

func replaysAsRecorded(t *testing.T, dir string) {
	t.Helper()
	log, err := ledger.OpenLog(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	result, err := replay.Run(log, replay.Options{Check: true})
	if err != nil {
		t.Fatal(err)
	}
	if result.Publications == 0 || result.FaultCount > 0 {
		t.Errorf("replay: %+v", result)
	}
}

func TestEveryFaultShowsAsWhatItIsAndP95ComesBackByItself(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	lab := startLab(t, "16.7", "[{for: 1h, hz: 60}]")
	defer lab.Close()
	o := options(t, 36*time.Second)
	apply := func(f sim.Fault) {
		// The lab waits to see the payload after a lost one; by then the tap may have been set up again.
		if ack, err := lab.Apply(context.Background(), udid, f); err != nil && f.Kind != "lose" {
			t.Errorf("%s: %v", f.Kind, err)
		} else {
			t.Logf("%s: %s", f.Kind, ack.Did)
		}
	}
	script := []struct {
		at    time.Duration
		fault sim.Fault
	}{
		{3 * time.Second, sim.Fault{Kind: "torn", For: sim.Duration(2 * time.Second)}},
		{6 * time.Second, sim.Fault{Kind: "lose", Count: 1}},
		{10 * time.Second, sim.Fault{Kind: "duplicate", Count: 1}},
		{13 * time.Second, sim.Fault{Kind: "corrupt", Count: 1}},
		{18 * time.Second, sim.Fault{Kind: "disconnect", For: sim.Duration(1500 * time.Millisecond)}},
		{24 * time.Second, sim.Fault{Kind: "reboot", For: sim.Duration(3 * time.Second)}},
	}
	start := time.Now()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, s := range script {
			time.Sleep(time.Until(start.Add(s.at)))
			apply(s.fault)
		}
	}()
	ctx := zerolog.New(zerolog.NewTestWriter(t)).WithContext(context.Background())
	result, err := Run(ctx, o)
	<-done
	if err != nil {
		t.Fatal(err)
	}
	if result.Manifest.State != ledger.StateComplete || result.Manifest.Evidence != ledger.EvidenceE2 {
		t.Errorf("sealed %s with evidence %s, want complete with E2", result.Manifest.State, result.Manifest.Evidence)
	}
	s := read(t, o.Dir)
	s.nothingBridged()
	decodesToItself(t, o.Dir)
	replaysAsRecorded(t, o.Dir)

	gaps := map[string]int{}
	for _, g := range all[ledger.SourceGap](s) {
		gaps[g.Reason]++
		if (g.Reason == ReasonPayloadLost || g.Reason == ReasonPayloadRepeated) && g.Messages != 1 {
			t.Errorf("%s of %d messages, want 1", g.Reason, g.Messages)
		}
	}
	for _, reason := range []string{ReasonPayloadLost, ReasonPayloadRepeated, "row-stream-broken"} {
		if gaps[reason] != 1 {
			t.Errorf("%d gaps for %s, want 1 (all: %v)", gaps[reason], reason, gaps)
		}
	}
	if gaps[ReasonDisconnected] != 2 {
		t.Errorf("%d gaps for disconnections, want 2: the cable and the restart (all: %v)", gaps[ReasonDisconnected], gaps)
	}

	// Epochs and reconnect generations, in order: the loss, the corruption and the cable are reconnections, the restart is an epoch.
	var lives [][2]int64
	for _, b := range all[adapter.Binding](s) {
		life := [2]int64{b.SourceEpoch, b.ReconnectGeneration}
		if len(lives) == 0 || lives[len(lives)-1] != life {
			lives = append(lives, life)
		}
	}
	want := [][2]int64{{1, 0}, {1, 1}, {1, 2}, {1, 3}, {2, 0}}
	if len(lives) != len(want) {
		t.Fatalf("lives of the source %v, want %v", lives, want)
	}
	for i := range want {
		if lives[i] != want[i] {
			t.Errorf("lives of the source %v, want %v", lives, want)
		}
	}
	backAfterEachClear(t, s)
}

// backAfterEachClear checks that after each gap or new life of the source P95 is null at first, and valid again before the next one.
func backAfterEachClear(t *testing.T, s *session) {
	t.Helper()
	null, wasNull := true, true
	what := "the start"
	for _, l := range s.lines {
		switch v := l.value.(type) {
		case *ledger.SourceGap, *adapter.Binding:
			if g, isGap := v.(*ledger.SourceGap); isGap {
				what = g.Reason
				null = true
			}
		case *p95.Receipt:
			if v.Quality != p95.Valid {
				wasNull = true
				continue
			}
			if null && v.N.N > 130 {
				t.Errorf("after %s P95 is valid over %d values: more than two seconds of 60 Hz can be in it", what, v.N.N)
			}
			null = false
		}
	}
	if null || !wasNull {
		t.Errorf("P95 did not come back after %s", what)
	}
}

func TestCtrlCSealsWhatWasRecordedAsPartial(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	lab := startLab(t, "16.7", "[{for: 1h, hz: 60}]")
	defer lab.Close()
	o := options(t, 0)
	ctx, cancel := context.WithTimeout(context.Background(), 2500*time.Millisecond)
	defer cancel()
	result, err := Run(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	if !result.Interrupted || result.Manifest.State != ledger.StatePartial || result.Manifest.Reason != "interrupted" {
		t.Errorf("interrupted %v, sealed %s (%s)", result.Interrupted, result.Manifest.State, result.Manifest.Reason)
	}
	if _, findings, err := ledger.VerifySession(t.Context(), o.Dir, nil); err != nil || len(findings) > 0 {
		t.Errorf("verify: %v %v", findings, err)
	}
	if n := len(all[p95.Receipt](read(t, o.Dir))); n < 1 {
		t.Errorf("%d publications in two seconds and a half", n)
	}
}

// A stream that is broken when the recording ends has its losses counted, as decoding its wire does.
func TestWhatWasBeingSkippedAtTheEndIsCounted(t *testing.T) {
	lab := startLab(t, "16.7", "[{for: 1h, hz: 60}]")
	o := options(t, 0)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	time.AfterFunc(2*time.Second, func() {
		if _, err := lab.Apply(context.Background(), udid, sim.Fault{Kind: "corrupt", Count: 1}); err != nil {
			t.Error(err)
		}
		time.Sleep(400 * time.Millisecond) // less than it takes until the tap is set up again
		cancel()
	})
	if _, err := Run(ctx, o); err != nil {
		t.Fatal(err)
	}
	var reasons []string
	for _, g := range all[ledger.SourceGap](read(t, o.Dir)) {
		reasons = append(reasons, g.Reason)
		if g.Reason == "row-stream-skipped" && (g.Rows == 0 || g.Bytes == 0) {
			t.Errorf("skipped %d rows, %d bytes", g.Rows, g.Bytes)
		}
	}
	if got := strings.Join(reasons, " "); got != "row-stream-broken row-stream-skipped" {
		t.Errorf("gaps %q", got)
	}
	decodesToItself(t, o.Dir)
}

// iOS 15 tells neither a continuous clock, nor the foreground, nor displays.
func TestAnOldReleaseIsNullUntilSomebodyKnowsTheForeground(t *testing.T) {
	lab := startLab(t, "15.8", "[{for: 1h, hz: 60}]")
	o := options(t, 6*time.Second)
	var notices []string
	o.Notice = func(text string) { notices = append(notices, text) }
	time.AfterFunc(2500*time.Millisecond, func() { lab.Apply(context.Background(), udid, sim.Fault{Kind: "relaunch"}) })
	if _, err := Run(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	s := read(t, o.Dir)
	if len(notices) != 1 || !strings.Contains(notices[0], "--foreground") {
		t.Errorf("notices %q, want one that names --foreground", notices)
	}
	receipts := all[p95.Receipt](s)
	if q := receipts[0].Quality; q != p95.Background {
		t.Errorf("first publication is %s, want background: nobody knows", q)
	}
	if last := receipts[len(receipts)-1]; last.Quality != p95.Valid || last.DisplayID.N != 0 || last.ClockBridge.Qualified || last.Target.Generation != 2 {
		t.Errorf("last publication %+v, want valid on display 0, without a qualified bridge, generation 2", last)
	}
	for _, r := range all[adapter.Record](s) {
		if r.DisplayID != 0 || r.SurfaceID != 0 || r.BufferCount != 3 {
			t.Fatalf("record %+v of a release without displays", r)
		}
	}
}

func TestTheOperatorsWordCountsOnAnOldRelease(t *testing.T) {
	startLab(t, "15.8", "[{for: 1h, hz: 60}]")
	o := options(t, 2500*time.Millisecond)
	o.Foreground = true
	if _, err := Run(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	s := read(t, o.Dir)
	states := all[ledger.TargetState](s)
	if len(states) != 1 || !states[0].Foreground || states[0].By != "operator" {
		t.Errorf("target.state %+v, want one, by the operator", states)
	}
	if q := all[p95.Receipt](s)[1].Quality; q != p95.Valid {
		t.Errorf("second publication is %s, want valid", q)
	}
}

func TestBackgroundAndAnotherDisplayDoNotCount(t *testing.T) {
	lab := startLab(t, "16.7", "[{event: display2, hz: 60, on: true}, {for: 1h, hz: 60}]")
	o := options(t, 7*time.Second)
	for at, kind := range map[time.Duration]string{2500 * time.Millisecond: "background", 4500 * time.Millisecond: "foreground"} {
		time.AfterFunc(at, func() { lab.Apply(context.Background(), udid, sim.Fault{Kind: kind}) })
	}
	if _, err := Run(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	s := read(t, o.Dir)
	s.nothingBridged()
	var words []string
	for _, r := range all[p95.Receipt](s) {
		if r.Quality != p95.Warmup && (len(words) == 0 || words[len(words)-1] != string(r.Quality)) {
			words = append(words, string(r.Quality))
		}
		if r.DisplayID.N != 1 {
			t.Errorf("publication of display %d", r.DisplayID.N)
		}
	}
	if got := strings.Join(words, " "); got != "valid background valid" {
		t.Errorf("publications were, in turn, %q; want valid, background, valid", got)
	}
	displays := map[int64]int{}
	for _, r := range all[adapter.Record](s) {
		displays[r.DisplayID]++
	}
	if len(displays) != 2 {
		t.Errorf("frames by display %v, want both kept", displays)
	}
}

func TestADisplayWithoutFramesIsPointedOut(t *testing.T) {
	startLab(t, "16.7", "[{event: display2, hz: 60, on: true}, {for: 1h, hz: 60}]")
	o := options(t, 3*time.Second)
	o.Display = 7
	var notices []string
	o.Notice = func(text string) { notices = append(notices, text) }
	if _, err := Run(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	if len(notices) != 1 || !strings.Contains(notices[0], "display 1 (") || !strings.Contains(notices[0], "display 2 (") || !strings.Contains(notices[0], "--display") {
		t.Errorf("notices %q, want one that lists displays 1 and 2", notices)
	}
}

// states are a session's words on the foreground, in order, each with who said it.
func states(s *session) (words []string) {
	for _, st := range all[ledger.TargetState](s) {
		word := "background"
		if st.Foreground {
			word = "foreground"
		}
		words = append(words, word+" by "+st.By)
	}
	return words
}

// at does something at times of a recording that is about to begin.
func at(t *testing.T, lab *sim.Lab, script map[time.Duration]sim.Fault) {
	for when, f := range script {
		time.AfterFunc(when, func() {
			if _, err := lab.Apply(context.Background(), udid, f); err != nil {
				t.Errorf("%s: %v", f.Kind, err)
			}
		})
	}
}

func TestThePhonesWordBeatsTheOperatorsAfterAReconnection(t *testing.T) {
	lab := startLab(t, "16.7", "[{for: 1h, hz: 60}]")
	o := options(t, 7*time.Second)
	o.Foreground = true
	at(t, lab, map[time.Duration]sim.Fault{2 * time.Second: {Kind: "background"}, 3500 * time.Millisecond: {Kind: "disconnect", For: sim.Duration(800 * time.Millisecond)}})
	if _, err := Run(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	s := read(t, o.Dir)
	if got := strings.Join(states(s), ", "); got != "foreground by process-list, background by notification" {
		t.Errorf("words on the foreground: %s", got)
	}
	receipts := all[p95.Receipt](s)
	if last := receipts[len(receipts)-1]; last.Quality != p95.Background || last.ReconnectGeneration.N != 1 {
		t.Errorf("last publication %s in reconnect generation %d, want background in 1", last.Quality, last.ReconnectGeneration.N)
	}
}

func TestAReconnectionNeverRestartsTheApp(t *testing.T) {
	lab := startLab(t, "15.8", "[{for: 1h, hz: 60}]")
	o := options(t, 6*time.Second)
	o.Launch = true
	at(t, lab, map[time.Duration]sim.Fault{2500 * time.Millisecond: {Kind: "disconnect", For: sim.Duration(700 * time.Millisecond)}})
	if _, err := Run(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	s := read(t, o.Dir)
	for _, b := range all[adapter.Binding](s) {
		if b.Target.Generation != 1 {
			t.Errorf("generation %d: the app was started again", b.Target.Generation)
		}
	}
	if receipts := all[p95.Receipt](s); receipts[len(receipts)-1].Quality != p95.Valid {
		t.Errorf("last publication %s", receipts[len(receipts)-1].Quality)
	}
}

func TestNothingOfBeforeTheSwitchCountsAfterIt(t *testing.T) {
	lab := startLab(t, "16.7", "[{for: 1h, hz: 60}]")
	o := options(t, 6*time.Second)
	at(t, lab, map[time.Duration]sim.Fault{1500 * time.Millisecond: {Kind: "background"}, 3 * time.Second: {Kind: "foreground"}})
	if _, err := Run(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	s := read(t, o.Dir)
	// The first frame that counts after the return must have been on glass after the phone had it on the screen again. The bridges tell
	// the phone's time of the moment at which the notification came; it cannot have come before that.
	var bridge *p95.ClockBridge
	var backNs int64
	for _, l := range s.lines {
		switch v := l.value.(type) {
		case *p95.ClockBridge:
			if bridge == nil {
				bridge = v
			}
		case *ledger.TargetState:
			if v.Foreground && v.By == "notification" {
				backNs = l.hostNs
			}
		case *p95.Receipt:
			if backNs == 0 || v.Quality != p95.Valid {
				continue
			}
			deviceNs, _ := bridge.Timebase.Ns(bridge.DeviceContinuousMach)
			noticedNs := deviceNs + (backNs - int64(appSettles) - bridge.HostReceiveNs)
			if v.FirstSample.PresentationNs < noticedNs-int64(10*time.Millisecond) {
				t.Errorf("a frame of %d ms before the notification counts after it", (noticedNs-v.FirstSample.PresentationNs)/1_000_000)
			}
			return
		}
	}
	t.Error("P95 was never valid after the return")
}

// onOldRelease records on a release that does not tell the foreground, while the cable is pulled and put back for each of aways. What
// an away names happens meanwhile, and nobody sees it.
func onOldRelease(t *testing.T, o Options, aways ...[]string) (s *session, onScreen string, notices []string) {
	lab := startLab(t, "15.8", "[{for: 1h, hz: 60}]")
	defer lab.Close()
	o.Notice = func(text string) { notices = append(notices, text) }
	o.Around = func(ctx context.Context, _ Started) error {
		for _, away := range aways {
			time.Sleep(1500 * time.Millisecond)
			for _, kind := range slices.Concat([]string{"disconnect"}, away, []string{"connect"}) {
				if _, err := lab.Apply(ctx, udid, sim.Fault{Kind: kind}); err != nil {
					return err
				}
			}
			for deadline := time.Now().Add(10 * time.Second); lab.Status()[0].Taps == 0; time.Sleep(20 * time.Millisecond) {
				if time.Now().After(deadline) {
					return errors.New("the recording did not come back in ten seconds")
				}
			}
		}
		time.Sleep(2500 * time.Millisecond)
		return nil
	}
	if _, err := Run(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	return read(t, o.Dir), lab.Status()[0].Foreground, notices
}

func TestWhatHappenedToTheAppUnseenIsNotTakenForTheForeground(t *testing.T) {
	unseen := []string{"relaunch", "background"}
	for _, c := range []struct {
		name    string
		options Options
		aways   [][]string
		states  string
		screen  string
		quality p95.Quality
		notices int
	}{
		{"another life in the background, and a second reconnection", Options{Foreground: true, NoLaunch: true}, [][]string{unseen, {}},
			"foreground by operator", "", p95.Background, 1},
		{"another life that a second reconnection must not bring forward", Options{Launch: true}, [][]string{unseen, {}},
			"foreground by launch", "", p95.Background, 1},
		{"the same life, to the background", Options{Foreground: true, NoLaunch: true}, [][]string{{"background"}},
			"foreground by operator, background by process-list", "", p95.Background, 1},
		{"the same life, which may be brought forward", Options{Foreground: true}, [][]string{{"background"}},
			"foreground by operator", "com.example.app", p95.Valid, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := options(t, 0)
			o.Launch, o.NoLaunch, o.Foreground = c.options.Launch, c.options.NoLaunch, c.options.Foreground
			s, screen, notices := onOldRelease(t, o, c.aways...)
			if got := strings.Join(states(s), ", "); got != c.states {
				t.Errorf("words on the foreground: %s; want %s", got, c.states)
			}
			receipts := all[p95.Receipt](s)
			if last := receipts[len(receipts)-1]; last.Quality != c.quality || last.ReconnectGeneration.N != int64(len(c.aways)) {
				t.Errorf("last publication %s in reconnect generation %d, want %s in %d", last.Quality, last.ReconnectGeneration.N, c.quality, len(c.aways))
			}
			if screen != c.screen {
				t.Errorf("%q is on the screen, want %q", screen, c.screen)
			}
			if len(notices) != c.notices || strings.Contains(strings.Join(notices, ""), "--foreground") == c.options.Foreground && c.notices > 0 {
				t.Errorf("notices %q, want %d that name --foreground only where it was not given", notices, c.notices)
			}
		})
	}
}

// Three labs take turns behind one address. Only a phone that is what session.start says may go on with the session.
func TestAnotherPhoneOfTheSameNameAddsNothingToASession(t *testing.T) {
	o := options(t, 0)
	lab := startLab(t, "16.7", "[{for: 1h, hz: 60}]")
	o.Around = func(context.Context, Started) error {
		time.Sleep(1500 * time.Millisecond)
		for _, os := range []string{"16.6", "16.7"} {
			lab.Close()
			lab = startLab(t, os, "[{for: 1h, hz: 60}]")
			time.Sleep(4 * time.Second)
		}
		return nil
	}
	if _, err := Run(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, st := range all[ledger.SourceState](read(t, o.Dir)) {
		if st.State == "connected" || strings.Contains(st.Cause, "session began with") {
			told = append(told, st.State+st.Cause)
		}
	}
	if got, want := strings.Join(told, "\n"), "connected\n"+
		"reconnectingthe session began with a simulated iPhone10,3 with iOS 16.7, and what answers as 00008101-0000000000000001 now is "+
		"a simulated iPhone10,3 with iOS 16.6: attach that phone again, or begin another session\n"+
		"connected"; got != want {
		t.Errorf("states of the source:\n%s\nwant\n%s", got, want)
	}
}

// The question after the app, every five seconds, finds another life of it though no notification told of one.
func TestARelaunchThatNobodyToldOfIsFound(t *testing.T) {
	for _, c := range []struct {
		os, states string
		last       p95.Quality
		notices    int
	}{
		{"16.7", "foreground by process-list, background by process-list, foreground by process-list", p95.Valid, 0},
		{"15.8", "foreground by launch, background by process-list", p95.Background, 1}, // which lists no foreground
	} {
		t.Run(c.os, func(t *testing.T) {
			lab := startLab(t, c.os, "[{for: 1h, hz: 60}]")
			o := options(t, 8*time.Second)
			o.Launch = c.notices > 0
			var notices []string
			o.Notice = func(text string) { notices = append(notices, text) }
			time.AfterFunc(1500*time.Millisecond, func() {
				for _, f := range []sim.Fault{{Kind: "hang", Service: "com.apple.instruments.server.services.mobilenotifications"}, {Kind: "relaunch"}} {
					if _, err := lab.Apply(context.Background(), udid, f); err != nil {
						t.Error(err)
					}
				}
			})
			if _, err := Run(context.Background(), o); err != nil {
				t.Fatal(err)
			}
			s := read(t, o.Dir)
			if got := strings.Join(states(s), ", "); got != c.states {
				t.Errorf("words on the foreground: %s; want %s", got, c.states)
			}
			receipts := all[p95.Receipt](s)
			if last := receipts[len(receipts)-1]; last.Quality != c.last || last.Target.Generation != 2 {
				t.Errorf("last publication %s of generation %d, want %s of 2", last.Quality, last.Target.Generation, c.last)
			}
			if len(notices) != c.notices {
				t.Errorf("notices %q, want %d", notices, c.notices)
			}
		})
	}
}

// The stream may break by it as well, and then the tap is set up again for that; here, as a rule, nothing else shows it.
func TestAPayloadLostAmongTheFirstOfAConnectionIsAGap(t *testing.T) {
	lab := startLab(t, "16.7", "[{for: 1h, hz: 60}]")
	o := options(t, 5*time.Second)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for deadline := time.Now().Add(4 * time.Second); lab.Status()[0].Taps == 0 && time.Now().Before(deadline); {
			time.Sleep(5 * time.Millisecond)
		}
		time.Sleep(150 * time.Millisecond) // the first payload has come, and the second not yet
		if _, err := lab.Apply(context.Background(), udid, sim.Fault{Kind: "lose", Count: 1}); err != nil {
			t.Error(err)
		}
	}()
	if _, err := Run(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	<-done
	s := read(t, o.Dir)
	gaps := all[ledger.SourceGap](s)
	if len(gaps) == 0 || gaps[0].Reason == ReasonPayloadLost && gaps[0].Messages != 1 {
		t.Errorf("%d gaps, want one, and if it is for a lost payload, of 1 message", len(gaps))
	}
	receipts := all[p95.Receipt](s)
	if last := receipts[len(receipts)-1]; last.Quality != p95.Valid || last.ReconnectGeneration.N != 1 {
		t.Errorf("last publication %s in reconnect generation %d, want valid in 1: the tap is set up again", last.Quality, last.ReconnectGeneration.N)
	}
}
