package sim

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/framebridge/framebridge/dtx"
	"github.com/framebridge/framebridge/dtx/tap"
	"github.com/framebridge/framebridge/internal/sim/scene"
)

// tapConfig is what the product asks of the tap.
func tapConfig() map[string]any {
	return map[string]any{"onlySignposts": uint64(1), "signpostsAndLogs": uint64(0), "bm": uint64(0), "ur": uint64(100), "targetPID": int64(-3),
		"predicate": `subsystem == "com.apple.coreanimation" AND category IN {"IOMFBServer", "IOMFBServer.Stalls"}`}
}

func startTap(t testing.TB, c *dtx.Conn) *dtx.Channel {
	t.Helper()
	ch := openChannel(t, c, activityTapName)
	call(t, ch, "setConfig:", tapConfig())
	call(t, ch, "start")
	return ch
}

// receive is the tap's next message; it fails the test after a while.
func receive(t testing.TB, ch *dtx.Channel) dtx.Message {
	t.Helper()
	m, err := ch.Receive(withTimeout(t))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// frameEnds collects the end times of FrameLifetime frames and the gaps of a tap's stream.
type frameEnds struct {
	dec  *tap.Decoder
	ends []int64
	gaps []tap.Gap
}

func newFrameEnds() *frameEnds {
	return &frameEnds{dec: tap.NewDecoder(tap.Want{"os-signpost": {"time", "event-type", "name"}})}
}

func (f *frameEnds) Row(r *tap.Row) {
	if r.Value(2).String() == "FrameLifetime" && r.Value(1).String() == "End" {
		end, _ := r.Value(0).Uint64()
		f.ends = append(f.ends, int64(end))
	}
}

func (f *frameEnds) Gap(g tap.Gap) { f.gaps = append(f.gaps, g) }

// take decodes a message if it holds rows.
func (f *frameEnds) take(m dtx.Message) {
	if m.Type == dtx.TypeData && !bytes.HasPrefix(m.Payload, []byte("bplist")) {
		f.dec.Decode(m.Payload, f)
	}
}

// sceneEnds are the ends of the frames of a scene's first stretch, as the same phone in another lab shows them.
func sceneEnds(t testing.TB, c DeviceConfig, d *Device, stretch time.Duration) []int64 {
	t.Helper()
	seed := d.seed()
	twin := scene.New(c.Scene, d.os, binary.LittleEndian.Uint64(seed[:]))
	var ends []int64
	defer twin.Observe(0, func(e *scene.Event) {
		if e.Frame != nil {
			ends = append(ends, e.Frame.End)
		}
	})()
	twin.Advance(stretch)
	return ends
}

// expectRun fails unless got is a stretch of want without a hole.
func expectRun(t testing.TB, got, want []int64) {
	t.Helper()
	if len(got) == 0 {
		t.Fatal("no frame came")
	}
	i := slices.Index(want, got[0])
	if i < 0 || i+len(got) > len(want) {
		t.Fatalf("%d frames from end %d: the scene has no such stretch", len(got), got[0])
	}
	// One frame in 16 ends in the rows after the next one begins, but ends keep their order.
	if !slices.Equal(got, want[i:i+len(got)]) {
		t.Errorf("the %d frames that came are not those of the scene", len(got))
	}
}

func TestTapSendsTheFramesOfTheSceneAndNothingElseThatWasNotAskedFor(t *testing.T) {
	for _, os := range []string{"15.8", "16.7"} {
		t.Run(os, func(t *testing.T) {
			c := DefaultDevice(udid16, os)
			c.Scene = rate(120)
			l := startLab(t, c)
			ch := startTap(t, openInstruments(t, udid16))

			status := receive(t, ch)
			if status.Type != dtx.TypeObject || status.Channel != -ch.Code() {
				t.Fatalf("first message is %s on channel %d, want the status object on %d", status.Type, status.Channel, -ch.Code())
			}
			frames, last, beats := newFrameEnds(), status.ID, 0
			for len(frames.ends) < 240 {
				m := receive(t, ch)
				if m.Type != dtx.TypeData || m.Channel != -ch.Code() || m.Conversation != 0 || m.ID != last+1 {
					t.Fatalf("message %d after %d: %s on channel %d", m.ID, last, m.Type, m.Channel)
				}
				last = m.ID
				if bytes.HasPrefix(m.Payload, []byte("bplist00")) {
					beats++
				}
				frames.take(m)
			}
			expectRun(t, frames.ends, sceneEnds(t, c, l.devices[0], time.Minute))
			if len(frames.gaps) > 0 {
				t.Errorf("gaps: %v", frames.gaps)
			}
			if beats == 0 {
				t.Error("no heartbeat in two seconds")
			}
			call(t, ch, "stop")
			for { // what was on its way
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				_, err := ch.Receive(ctx)
				cancel()
				if err != nil {
					break
				}
			}
		})
	}
}

func TestTapSendsAsOftenAsItWasAsked(t *testing.T) {
	startLab(t, DefaultDevice(udid16, "16.7"))
	ch := openChannel(t, openInstruments(t, udid16), activityTapName)
	config := tapConfig()
	config["ur"] = uint64(400)
	call(t, ch, "setConfig:", config)
	call(t, ch, "start")
	rows := 0
	for begin := time.Now(); time.Since(begin) < 2200*time.Millisecond; {
		if m := receive(t, ch); m.Type == dtx.TypeData && !bytes.HasPrefix(m.Payload, []byte("bplist")) {
			rows++
		}
	}
	if rows < 3 || rows > 7 { // 5 or 6, and a busy machine's due
		t.Errorf("%d payloads in 2.2 s, asked for one every 400 ms", rows)
	}
}

func TestTapSendsOthersSignpostsToThoseWhoAskForAll(t *testing.T) {
	c := DefaultDevice(udid16, "16.7")
	c.Scene = rate(60)
	c.Scene.Noise = 200
	startLab(t, c)
	ch := openChannel(t, openInstruments(t, udid16), activityTapName)
	config := tapConfig()
	delete(config, "predicate")
	call(t, ch, "setConfig:", config)
	call(t, ch, "start")
	seen := map[string]int{}
	dec := tap.NewDecoder(tap.Want{"os-signpost": {"subsystem"}})
	deadline := time.Now().Add(20 * time.Second)
	for len(seen) < 3 && time.Now().Before(deadline) {
		if m := receive(t, ch); m.Type == dtx.TypeData && !bytes.HasPrefix(m.Payload, []byte("bplist")) {
			dec.Decode(m.Payload, countSubsystems{seen, t})
		}
	}
	if len(seen) < 3 || seen["com.apple.coreanimation"] == 0 {
		t.Errorf("subsystems seen: %v, want that of the render server and at least two others", seen)
	}
}

type countSubsystems struct {
	seen map[string]int
	t    *testing.T
}

func (c countSubsystems) Row(r *tap.Row) { c.seen[r.Value(0).String()]++ }
func (c countSubsystems) Gap(g tap.Gap)  { c.t.Errorf("gap %+v", g) }

func TestTapRefusesAPredicateThatItDoesNotUnderstand(t *testing.T) {
	startLab(t, DefaultDevice(udid16, "16.7"))
	ch := openChannel(t, openInstruments(t, udid16), activityTapName)
	config := tapConfig()
	config["predicate"] = `eventMessage CONTAINS "x"`
	_, err := ch.Call(withTimeout(t), "setConfig:", config)
	var refused *dtx.RemoteError
	if !errors.As(err, &refused) {
		t.Errorf("%v, want a refusal", err)
	}
}

func TestMachTimeInfoTellsBothClocksFromIOS16On(t *testing.T) {
	c := DefaultDevice(udid16, "16.7")
	c.Scene.Uptime, c.Scene.Slept = time.Hour, 10*time.Minute
	startLab(t, DefaultDevice(udid15, "15.8"), c)
	old := call(t, openChannel(t, openInstruments(t, udid15), deviceInfoName), "machTimeInfo").([]any)
	if len(old) != 3 || old[1] != uint64(125) || old[2] != uint64(3) {
		t.Errorf("iOS 15: %v, want three values with 125/3", old)
	}
	now := call(t, openChannel(t, openInstruments(t, udid16), deviceInfoName), "machTimeInfo").([]any)
	if len(now) != 6 || now[5] != "UTC" {
		t.Fatalf("iOS 16: %v, want six values", now)
	}
	// 3,600 s awake are 86.4e9 ticks at 24 MHz, 600 s of sleep 14.4e9 more.
	absolute, continuous := now[0].(uint64), now[3].(uint64)
	if continuous-absolute != 14_400_000_000 || absolute < 86_400_000_000 || absolute > 86_400_000_000+60*24_000_000 {
		t.Errorf("absolute %d, continuous %d", absolute, continuous)
	}
	if wall := time.Unix(int64(now[4].(uint64)), 0); time.Since(wall).Abs() > 10*time.Second {
		t.Errorf("calendar shows %s", wall)
	}
}

func TestRunningProcessesTellTheForegroundFromIOS16On(t *testing.T) {
	startLab(t, DefaultDevice(udid15, "15.8"), DefaultDevice(udid16, "16.7"))
	for udid, tells := range map[string]bool{udid15: false, udid16: true} {
		list := call(t, openChannel(t, openInstruments(t, udid), deviceInfoName), "runningProcesses").([]any)
		var foreground []string
		for _, p := range list {
			p := p.(map[string]any)
			on, told := p["foregroundRunning"].(bool)
			if told != tells {
				t.Errorf("%s: %v", udid, slices.Sorted(maps.Keys(p)))
			}
			if on {
				foreground = append(foreground, p["name"].(string))
			}
		}
		if tells && !slices.Equal(foreground, []string{"Example"}) {
			t.Errorf("in the foreground: %v, want Example", foreground)
		}
	}
}

func TestNotificationsTellWhatHappensToApps(t *testing.T) {
	l := startLab(t, DefaultDevice(udid16, "16.7"))
	c := openInstruments(t, udid16)
	ch := openChannel(t, c, notificationsName)
	call(t, ch, "setApplicationStateNotificationsEnabled:", true)
	call(t, ch, "setMemoryNotificationsEnabled:", true)
	next := func() map[string]any {
		t.Helper()
		m := receive(t, ch)
		selector, err := m.Selector()
		if err != nil || selector != "applicationStateNotification:" {
			t.Fatalf("selector %q, %v", selector, err)
		}
		args, err := m.Arguments()
		if err != nil || len(args) != 1 {
			t.Fatalf("arguments %v, %v", args, err)
		}
		return args[0].(map[string]any)
	}
	var pids []any
	for _, step := range []struct {
		kind string
		want []string
	}{
		{"background", []string{"Background Running"}},
		{"foreground", []string{"Foreground Running"}},
		{"relaunch", []string{"Terminated", "Foreground Running"}},
		{"terminate", []string{"Terminated"}},
	} {
		apply(t, l, udid16, Fault{Kind: step.kind})
		for _, want := range step.want {
			n := next()
			if n["state_description"] != want || n["displayID"] != "com.example.app" || n["appName"] != "Example" {
				t.Errorf("%s: %v, want %s", step.kind, n, want)
			}
			pids = append(pids, n["pid"])
		}
	}
	if pids[0] != pids[1] || pids[1] != pids[2] || pids[2] == pids[3] || pids[3] != pids[4] {
		t.Errorf("pids %v: want one until the relaunch and another from then on", pids)
	}
}

func TestSysmontapGivesTheAttributesInTheOrderOfTheQuestion(t *testing.T) {
	startLab(t, DefaultDevice(udid16, "16.7"))
	c := openInstruments(t, udid16)
	ch := openChannel(t, c, sysmonTapName)
	call(t, ch, "setConfig:", map[string]any{"ur": uint64(50), "procAttrs": []any{"name", "physFootprint", "weather", "pid"}, "sysAttrs": []any{"vmPageSize"}})
	call(t, ch, "start")
	for range 3 {
		v, err := receive(t, ch).Object()
		if err != nil {
			t.Fatal(err)
		}
		sample := v.([]any)
		if got := sample[0].(map[string]any)["System"].([]any); len(got) != 1 || got[0] != uint64(16384) {
			t.Errorf("system: %v", got)
		}
		found := false
		for _, p := range sample[1].(map[string]any)["Processes"].(map[string]any) { // package dtx makes strings of numeric keys
			values := p.([]any)
			if len(values) != 4 || values[2] != "$null" && values[2] != nil {
				t.Fatalf("process %v", values)
			}
			if values[0] == "Example" {
				found = values[1].(uint64) >= 96<<20 && values[3].(uint64) > 0
			}
		}
		if !found {
			t.Errorf("the app is not in %v", sample[1])
		}
	}
	call(t, ch, "stop")
}

func TestInstrumentsRefusesWhatItDoesNotKnow(t *testing.T) {
	startLab(t, DefaultDevice(udid16, "16.7"))
	c := openInstruments(t, udid16)
	if _, err := c.OpenChannel(withTimeout(t), channelPrefix+"nothing"); err == nil {
		t.Error("a service that is not there was opened")
	}
	ch := openChannel(t, c, deviceInfoName)
	var refused *dtx.RemoteError
	if _, err := ch.Call(withTimeout(t), "dance"); !errors.As(err, &refused) {
		t.Errorf("unknown selector: %v", err)
	}
	if _, err := ch.Call(withTimeout(t), "execnameForPid:", uint64(1<<40)); !errors.As(err, &refused) {
		t.Errorf("pid of nobody: %v", err)
	}
	call(t, ch, "machTimeInfo") // the connection goes on
}

func FuzzInstruments(f *testing.F) {
	request, err := dtx.Dispatch(0, 1, dtx.RequestChannel, dtx.Int32(1), activityTapName)
	if err != nil {
		f.Fatal(err)
	}
	config, err := dtx.Dispatch(1, 2, "setConfig:", tapConfig())
	if err != nil {
		f.Fatal(err)
	}
	var b []byte
	for _, m := range []dtx.Message{request, config} {
		m.ExpectsReply = true
		if b, err = dtx.AppendMessage(b, m, dtx.MaxFragment); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(b)
	f.Add(b[:40])
	l := stillLab(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		c := &instruments{d: l.devices[0], ctx: l.ctx, conn: byteConn{}, channels: map[int32]*channel{}}
		r := dtx.NewReader(bytes.NewReader(b), nil)
		for {
			m, err := r.Next()
			if err != nil {
				break
			}
			value, err := c.call(c.channels[m.Channel], m)
			if err == nil {
				if _, err := archive(value); err != nil {
					t.Errorf("an answer that cannot be sent: %v", err)
				}
			}
		}
		for _, ch := range c.channels {
			ch.handler.close()
		}
	})
}
