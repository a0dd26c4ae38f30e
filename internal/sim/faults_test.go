package sim

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/danielpaulus/go-ios/ios"
	"github.com/framebridge/framebridge/dtx"
	"github.com/framebridge/framebridge/internal/sim/scene"
)

// tapped is a phone at 120 Hz with a tap on it, its messages being collected.
type tapped struct {
	l        *Lab
	conn     *dtx.Conn
	ch       *dtx.Channel
	config   DeviceConfig
	messages []dtx.Message // rows and heartbeats
}

func startTapped(t *testing.T) *tapped {
	t.Helper()
	c := DefaultDevice(udid16, "16.7")
	c.Scene = rate(120)
	s := &tapped{l: startLab(t, c), config: c}
	s.conn = openInstruments(t, udid16)
	s.ch = startTap(t, s.conn)
	receive(t, s.ch) // the status object
	return s
}

// during lets a fault happen while messages are collected, and goes on until more of them have come.
func (s *tapped) during(t *testing.T, more int, f Fault) Ack {
	t.Helper()
	type result struct {
		ack Ack
		err error
	}
	done := make(chan result, 1)
	ctx := withTimeout(t)
	go func() {
		ack, err := s.l.Apply(ctx, udid16, f)
		done <- result{ack, err}
	}()
	var r result
	for over := false; !over || more > 0; {
		s.messages = append(s.messages, receive(t, s.ch))
		select {
		case r = <-done:
			over = true
		default:
		}
		if over {
			more--
		}
	}
	if r.err != nil {
		t.Fatal(r.err)
	}
	return r.ack
}

// ids are the messages' identifiers as steps from one to the next.
func (s *tapped) steps() (out []int) {
	for i := 1; i < len(s.messages); i++ {
		out = append(out, int(s.messages[i].ID)-int(s.messages[i-1].ID))
	}
	return out
}

func (s *tapped) frames() *frameEnds {
	f := newFrameEnds()
	for _, m := range s.messages {
		f.take(m)
	}
	return f
}

func count(list []int, v int) (n int) {
	for _, x := range list {
		if x == v {
			n++
		}
	}
	return n
}

func TestLostPayloadsTakeTheirIdentifiersWithThem(t *testing.T) {
	s := startTapped(t)
	s.during(t, 2, Fault{Kind: "unlock"}) // nothing; some messages before
	ack := s.during(t, 2, Fault{Kind: "lose", Count: 2})
	steps := s.steps()
	// Two in one hole, or in two where a heartbeat stands between them.
	if count(steps, 3) != 1 && count(steps, 2) != 2 || count(steps, 1)+count(steps, 2)+count(steps, 3) != len(steps) {
		t.Errorf("identifiers step by %v, want a hole of two in all", steps)
	}
	if !strings.HasSuffix(ack.Did, "lost") || ack.Device != udid16 || ack.Kind != "lose" || ack.At <= 0 {
		t.Errorf("acknowledged as %+v", ack)
	}
}

func TestDuplicatedPayloadsComeTwiceWithOneIdentifier(t *testing.T) {
	s := startTapped(t)
	s.during(t, 2, Fault{Kind: "duplicate"})
	i := slices.Index(s.steps(), 0)
	if i < 0 || count(s.steps(), 0) != 1 || !bytes.Equal(s.messages[i].Payload, s.messages[i+1].Payload) {
		t.Errorf("identifiers step by %v, want one repeated message", s.steps())
	}
}

func TestCorruptPayloadsAreNoticedByADecoderAndLeaveIdentifiersAlone(t *testing.T) {
	s := startTapped(t)
	ack := s.during(t, 3, Fault{Kind: "corrupt"})
	if steps := s.steps(); count(steps, 1) != len(steps) {
		t.Errorf("identifiers step by %v", steps)
	}
	if f := s.frames(); len(f.gaps) == 0 {
		t.Errorf("%+v, and %d frames without a gap", ack, len(f.ends))
	}
}

func TestTornMessagesComeInFragmentsWithNothingLost(t *testing.T) {
	s := startTapped(t)
	s.during(t, 2, Fault{Kind: "unlock"})
	whole := s.conn.Stats().Fragments
	s.during(t, 40, Fault{Kind: "torn", For: Duration(time.Second)})
	f := s.frames()
	if len(f.gaps) > 0 {
		t.Errorf("gaps %+v", f.gaps)
	}
	expectRun(t, f.ends, sceneEnds(t, s.config, s.l.devices[0], time.Minute))
	if n := s.conn.Stats().Fragments; whole != 0 || n < 100 {
		t.Errorf("%d fragments before, %d after", whole, n)
	}
	odd := 0
	for _, m := range s.messages {
		odd += len(m.Payload) % 2
	}
	if odd == 0 {
		t.Error("no message ends inside a word")
	}
	if steps := s.steps(); count(steps, 1) != len(steps) {
		t.Errorf("identifiers step by %v", steps)
	}
}

func TestAStallDelaysEverythingAndLosesNothing(t *testing.T) {
	s := startTapped(t)
	s.during(t, 2, Fault{Kind: "unlock"})
	begin := time.Now()
	apply(t, s.l, udid16, Fault{Kind: "stall", For: Duration(700 * time.Millisecond)})
	longest := time.Duration(0)
	for last := begin; time.Since(begin) < 1500*time.Millisecond; last = time.Now() {
		s.messages = append(s.messages, receive(t, s.ch))
		longest = max(longest, time.Since(last))
	}
	if longest < 500*time.Millisecond {
		t.Errorf("the longest silence was %s, want about 700 ms", longest)
	}
	f := s.frames()
	if len(f.gaps) > 0 {
		t.Errorf("gaps %+v", f.gaps)
	}
	expectRun(t, f.ends, sceneEnds(t, s.config, s.l.devices[0], time.Minute))
}

func TestPayloadFaultsWithoutATapSaySo(t *testing.T) {
	l := startLab(t, DefaultDevice(udid16, "16.7"))
	if _, err := l.Apply(withTimeout(t), udid16, Fault{Kind: "lose"}); !errors.Is(err, ErrNoTap) {
		t.Errorf("%v", err)
	}
}

func TestPayloadFaultsGiveUpWhereNothingIsSent(t *testing.T) {
	s := startTapped(t)
	apply(t, s.l, udid16, Fault{Kind: "stall", For: Duration(time.Hour)})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if ack, err := s.l.Apply(ctx, udid16, Fault{Kind: "lose"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%+v, %v", ack, err)
	}
	apply(t, s.l, udid16, Fault{Kind: "clear"})
	receive(t, s.ch)
}

// ended waits for the end of a connection.
func ended(t *testing.T, ch *dtx.Channel) error {
	t.Helper()
	for {
		if _, err := ch.Receive(withTimeout(t)); err != nil {
			return err
		}
	}
}

func TestDisconnectEndsConnectionsAndThePhoneComesBackByItself(t *testing.T) {
	s := startTapped(t)
	apply(t, s.l, udid16, Fault{Kind: "disconnect", For: Duration(200 * time.Millisecond)})
	if err := ended(t, s.ch); errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("the connection did not end: %v", err)
	}
	waitAttached(t, s.l, true)
	// The scene has gone on: the clock is the same life's.
	if st := s.l.Status()[0]; st.Boot != 1 {
		t.Errorf("boot %d after a cable was pulled", st.Boot)
	}
	again := startTap(t, openInstruments(t, udid16))
	receive(t, again)
}

func waitAttached(t *testing.T, l *Lab, want bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); l.Status()[0].Attached != want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("attached is still %v", !want)
		}
	}
}

func TestRebootStartsClocksAndPidsAnew(t *testing.T) {
	s := startTapped(t)
	before := s.l.devices[0].status()
	apply(t, s.l, udid16, Fault{Kind: "reboot", For: Duration(200 * time.Millisecond)})
	if err := ended(t, s.ch); errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("the connection did not end: %v", err)
	}
	if list, err := ios.ListDevices(); err != nil || len(list.DeviceList) != 0 {
		t.Errorf("listed while it restarts: %v, %v", list, err)
	}
	if _, err := s.l.Apply(withTimeout(t), udid16, Fault{Kind: "launch"}); !errors.Is(err, scene.ErrDown) {
		t.Errorf("launching while it restarts: %v", err)
	}
	waitAttached(t, s.l, true)
	after := s.l.devices[0].status()
	if after.Boot != 2 || after.Continuous >= before.Continuous || after.Continuous > 60*24_000_000 {
		t.Errorf("boot %d, clock from %d to %d: want a new life, seconds old", after.Boot, before.Continuous, after.Continuous)
	}
	if len(after.Processes) != 2 {
		t.Errorf("processes after the restart: %v, want no app", after.Processes)
	}
	receive(t, startTap(t, openInstruments(t, udid16)))
}

func TestACableThatIsPulledDuringARestartStaysOut(t *testing.T) {
	l := startLab(t, DefaultDevice(udid16, "16.7"))
	apply(t, l, udid16, Fault{Kind: "reboot", For: Duration(100 * time.Millisecond)})
	apply(t, l, udid16, Fault{Kind: "disconnect"})
	for l.Status()[0].Boot == 1 {
		time.Sleep(5 * time.Millisecond)
	}
	apply(t, l, udid16, Fault{Kind: "unlock"}) // has looked after the phone's life once more
	if st := l.Status()[0]; !st.Up || st.Attached {
		t.Errorf("%+v, want up and not attached", st)
	}
	apply(t, l, udid16, Fault{Kind: "connect"})
	if st := l.Status()[0]; !st.Attached {
		t.Errorf("%+v, want attached", st)
	}
}

func TestSessionsAreRefusedForAsLongAsItWasSaid(t *testing.T) {
	l := startLab(t, DefaultDevice(udid16, "16.7"))
	device := goIOSDevice(t, udid16)
	apply(t, l, udid16, Fault{Kind: "refuse-session", Error: "PasswordProtected", For: Duration(time.Hour)})
	if _, err := ios.ConnectLockdownWithSession(device); err == nil || !strings.Contains(err.Error(), "PasswordProtected") {
		t.Errorf("%v, want PasswordProtected", err)
	}
	apply(t, l, udid16, Fault{Kind: "refuse-session", For: Duration(time.Hour)})
	if _, err := ios.ConnectLockdownWithSession(device); err == nil || !strings.Contains(err.Error(), "InvalidHostID") {
		t.Errorf("%v, want InvalidHostID", err)
	}
	apply(t, l, udid16, Fault{Kind: "refuse-session", For: Duration(time.Nanosecond)})
	if s, err := ios.ConnectLockdownWithSession(device); err != nil {
		t.Errorf("after its time: %v", err)
	} else {
		s.Close()
	}
}

func TestAMissingImageAndDeveloperModeOffTakeInstrumentsAway(t *testing.T) {
	l := startLab(t, DefaultDevice(udid16, "16.7"))
	for _, pair := range [][2]string{{"image-missing", "image-mounted"}, {"developer-mode-off", "developer-mode-on"}} {
		apply(t, l, udid16, Fault{Kind: pair[0]})
		if _, err := connectService(udid16, instrumentsName); err == nil || !strings.Contains(err.Error(), "InvalidService") {
			t.Errorf("%s: %v, want InvalidService", pair[0], err)
		}
		apply(t, l, udid16, Fault{Kind: pair[1]})
		conn, err := connectService(udid16, instrumentsName)
		if err != nil {
			t.Errorf("%s: %v", pair[1], err)
			continue
		}
		conn.Close()
	}
}

func TestAPhoneOnWiFiIsListedAsSuch(t *testing.T) {
	l := startLab(t, DefaultDevice(udid16, "16.7"))
	for _, c := range []struct{ fault, by string }{{"wifi", "Network"}, {"cable", "USB"}} {
		apply(t, l, udid16, Fault{Kind: c.fault})
		list, err := ios.ListDevices()
		if err != nil || len(list.DeviceList) != 1 || list.DeviceList[0].Properties.ConnectionType != c.by {
			t.Errorf("%s: %+v, %v; want one by %s", c.fault, list, err, c.by)
		}
	}
}

func TestALockedPhoneLaunchesNothing(t *testing.T) {
	l := startLab(t, DefaultDevice(udid16, "16.7"))
	apply(t, l, udid16, Fault{Kind: "lock"})
	ch := openChannel(t, openInstruments(t, udid16), processControlName)
	launch := func() (any, error) {
		return ch.Call(withTimeout(t), "launchSuspendedProcessWithDevicePath:bundleIdentifier:environment:arguments:options:",
			"/private/", "com.example.app", map[string]any{}, []any{}, map[string]any{"KillExisting": uint64(0)})
	}
	var refused *dtx.RemoteError
	if pid, err := launch(); !errors.As(err, &refused) || refused.Code != 2 {
		t.Errorf("launched %v, %v: want error 2", pid, err)
	}
	apply(t, l, udid16, Fault{Kind: "unlock"})
	if pid, err := launch(); err != nil || pid.(uint64) == 0 {
		t.Errorf("launched %v, %v", pid, err)
	}
}

func TestSlowServicesAnswerLateAndHangingOnesNever(t *testing.T) {
	l := startLab(t, DefaultDevice(udid16, "16.7"))
	c := openInstruments(t, udid16)
	ch := openChannel(t, c, deviceInfoName)
	took := func() time.Duration {
		begin := time.Now()
		call(t, ch, "machTimeInfo")
		return time.Since(begin)
	}
	apply(t, l, udid16, Fault{Kind: "slow", Service: deviceInfoName, Delay: Duration(300 * time.Millisecond)})
	if d := took(); d < 300*time.Millisecond {
		t.Errorf("answered after %s", d)
	}
	apply(t, l, udid16, Fault{Kind: "clear"})
	if d := took(); d > 250*time.Millisecond {
		t.Errorf("after clear it took %s", d)
	}

	apply(t, l, udid16, Fault{Kind: "hang", Service: deviceInfoName})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if v, err := ch.Call(ctx, "machTimeInfo"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a hanging channel answered %v, %v", v, err)
	}
	call(t, openChannel(t, c, processControlName), "processIdentifierForBundleIdentifier:", "com.example.app") // the others go on
	apply(t, l, udid16, Fault{Kind: "clear"})

	// A service whose connection is accepted, and that is all: TLS never begins.
	port, _ := l.devices[0].startService(imageMounterName, l.devices[0].pairingOf(keys.hostID))
	for _, hanging := range []struct {
		service string
		port    uint16
	}{{imageMounterName, port}, {lockdownName, lockdownPort}} {
		apply(t, l, udid16, Fault{Kind: "hang", Service: hanging.service})
		raw := dialPort(t, l, udid16, hanging.port)
		writePlist(raw, map[string]any{"Request": "QueryType"})
		raw.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		if n, err := raw.Read(make([]byte, 1)); n != 0 || err == io.EOF {
			t.Errorf("%s: %d bytes, %v, want silence", hanging.service, n, err)
		}
		apply(t, l, udid16, Fault{Kind: "clear"})
	}
}

func TestScriptedFaultsHappenAtTheirTime(t *testing.T) {
	c := DefaultDevice(udid16, "16.7")
	c.Faults = []Fault{{Kind: "disconnect", At: Duration(time.Second)}, {Kind: "connect", At: Duration(1500 * time.Millisecond)}, {Kind: "lock", At: Duration(2 * time.Second)}}
	l := startConfig(t, Config{Speed: 10, Devices: []DeviceConfig{c}})
	listener := dialMux(t)
	askMux(t, listener, map[string]any{"MessageType": "Listen"})
	for _, want := range []struct {
		event string
		from  time.Duration
	}{{"Attached", 0}, {"Detached", time.Second}, {"Attached", 1500 * time.Millisecond}} {
		m, err := readMux(listener)
		if err != nil {
			t.Fatal(err)
		}
		if at := l.Status()[0].At.lab(); m.body["MessageType"] != want.event || at < want.from {
			t.Errorf("%v at %s, want %s from %s on", m.body["MessageType"], at, want.event, want.from)
		}
	}
	for deadline := time.Now().Add(10 * time.Second); !l.Status()[0].Locked; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never locked")
		}
	}
	if at := l.Status()[0].At.lab(); at < 2*time.Second {
		t.Errorf("locked at %s", at)
	}
}

func TestScriptedTunnelFaultsHappenAtTheirTime(t *testing.T) {
	text := "devices:\n  - udid: " + udid26 + "\n    os: \"26.0\"\n    faults:\n" +
		"      - {at: 200ms, kind: tunnel-gone, for: 300ms}\n      - {at: 1s, kind: service-missing, service: com.apple.afc.shim.remote}\n"
	c, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	l, a := startTunnels(t, c.Devices...)
	was := waitTunnel(t, a, udid26)
	for deadline := time.Now().Add(10 * time.Second); l.Status()[0].Tunnels != 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the tunnel does not go")
		}
	}
	is := waitTunnel(t, a, udid26)
	if at := l.Status()[0].At.lab(); at < 500*time.Millisecond {
		t.Errorf("back at %s", at)
	}
	different(t, was, is)
	for deadline := time.Now().Add(10 * time.Second); slices.Contains(names(mustDiscover(t, is)), "com.apple.afc.shim.remote"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the service stays")
		}
	}
}

func TestSpeedGoesForEverything(t *testing.T) {
	c := DefaultDevice(udid16, "16.7")
	l := startConfig(t, Config{Speed: 20, Devices: []DeviceConfig{c}})
	host, ns, mach := time.Now(), l.HostNs(), l.devices[0].status().Continuous
	time.Sleep(500 * time.Millisecond)
	elapsed := time.Since(host)
	lab := time.Duration(l.HostNs() - ns)
	ticks := l.devices[0].status().Continuous - mach
	if r := lab.Seconds() / elapsed.Seconds(); r < 18 || r > 22 {
		t.Errorf("the lab's clock went %.1f times as fast as the host's, want 20", r)
	}
	if r := float64(ticks) / 24e6 / elapsed.Seconds(); r < 18 || r > 22 {
		t.Errorf("the phone's clock went %.1f times as fast as the host's, want 20", r)
	}
}

func TestFaultsThatCannotBeSayWhy(t *testing.T) {
	l := startLab(t, DefaultDevice(udid16, "16.7"))
	for _, c := range []struct {
		f    Fault
		want string
	}{
		{Fault{Kind: "dance"}, `unknown kind "dance"`},
		{Fault{Kind: "stall"}, "stall needs for"},
		{Fault{Kind: "lock", Count: 2}, "lock takes no count"},
		{Fault{Kind: "lose", Count: -1}, "count -1: expected 1 or more"},
		{Fault{Kind: "hang", Service: "weather"}, `no service is called "weather"`},
		{Fault{Kind: "scene", Step: "{for: 3s}"}, "hz"},
		{Fault{Kind: "trust"}, "no host waits"},
		{Fault{Kind: "terminate", Bundle: "org.example.other"}, "not running"},
	} {
		if ack, err := l.Apply(withTimeout(t), udid16, c.f); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %+v, %v; want %q", c.f, ack, err, c.want)
		}
	}
	if _, err := l.Apply(withTimeout(t), "nobody", Fault{Kind: "lock"}); err == nil || !strings.Contains(err.Error(), `"nobody"`) {
		t.Errorf("a device that is not there: %v", err)
	}
}

func TestASceneStepByCommandInterruptsTheScene(t *testing.T) {
	s := startTapped(t)
	s.during(t, 2, Fault{Kind: "unlock"}) // some frames before
	s.during(t, 3, Fault{Kind: "scene", Step: "{for: 500ms, idle: true}"})
	begin := time.Now()
	for time.Since(begin) < time.Second {
		s.messages = append(s.messages, receive(t, s.ch))
	}
	f := s.frames()
	hole := int64(0)
	for i := 1; i < len(f.ends); i++ {
		hole = max(hole, f.ends[i]-f.ends[i-1])
	}
	if len(f.gaps) > 0 || hole < 12_000_000*9/10 || hole > 12_000_000*12/10 {
		t.Errorf("longest interval %d ticks with gaps %v, want about 12,000,000 (500 ms)", hole, f.gaps)
	}
}
