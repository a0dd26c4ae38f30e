package sim

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

func TestCommandsAreAcknowledgedOverTheControlSocket(t *testing.T) {
	l := startLab(t, DefaultDevice(udid16, "16.7"))
	path := shortPath(t)
	if err := l.ListenControl(path); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: want a socket for its owner alone", info.Mode(), err)
	}
	r, err := Do(withTimeout(t), path, Command{Fault: Fault{Kind: "lock"}})
	if err != nil || r.Ack == nil || r.Ack.Device != udid16 || r.Ack.Did != "the phone is locked" || time.Since(r.Ack.Wall).Abs() > 10*time.Second {
		t.Errorf("%+v, %v", r.Ack, err)
	}
	r, err = Do(withTimeout(t), path, Command{})
	if err != nil || len(r.Devices) != 1 || !r.Devices[0].Locked || r.Devices[0].Foreground != "com.example.app" || r.Devices[0].Boot != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := Do(withTimeout(t), path, Command{Device: "nobody", Fault: Fault{Kind: "lock"}}); !errors.Is(err, ErrRefused) {
		t.Errorf("%v, want a refusal", err)
	}
	if _, err := Do(withTimeout(t), path, Command{Fault: Fault{Kind: "lose"}, Within: Duration(time.Millisecond)}); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "no tap") {
		t.Errorf("%v, want that no tap is running", err)
	}
	if _, err := Do(withTimeout(t), path+"x", Command{}); err == nil || !strings.Contains(err.Error(), "does a lab run?") {
		t.Errorf("%v, want a remedy", err)
	}
}

func TestTheControlSocketAnswersEveryLine(t *testing.T) {
	l := startLab(t, DefaultDevice(udid15, "15.8"), DefaultDevice(udid16, "16.7"))
	path := shortPath(t)
	if err := l.ListenControl(path); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	lines := bufio.NewScanner(conn)
	for _, c := range []struct{ command, want string }{
		{`{"kind":"lock","device":"` + udid15 + `"}`, `"ack":{"device":"` + udid15 + `","kind":"lock","did":"the phone is locked","at":"`},
		{`{"kind":"lock"}`, `"error":"fault: no device has the udid \"\""`}, // there are two
		{`{"kind":"stall","for":"3 s","device":"` + udid15 + `"}`, `3 s\" is no duration`},
		{`{"kind":"lock","colour":"red"}`, `unknown field`},
		{`hello`, `"error":"a command is a JSON object in one line`},
		{`{}`, `"devices":[{"udid":"` + udid15},
	} {
		if _, err := conn.Write([]byte(c.command + "\n")); err != nil {
			t.Fatal(err)
		}
		if !lines.Scan() || !strings.Contains(lines.Text(), c.want) {
			t.Errorf("%s: %s, want %s", c.command, lines.Text(), c.want)
		}
	}
}

func TestALabThatIsClosedTakesItsSocketsAndClientsWithIt(t *testing.T) {
	l, err := newLab(Config{Speed: 1, Devices: []DeviceConfig{DefaultDevice(udid16, "16.7")}}, keys, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	mux, control := shortPath(t), shortPath(t)
	env, err := l.Listen("unix:" + mux)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("USBMUXD_SOCKET_ADDRESS", env)
	if err := l.ListenControl(control); err != nil {
		t.Fatal(err)
	}
	ch := startTap(t, openInstruments(t, udid16))
	receive(t, ch)
	listener := dialMux(t)
	askMux(t, listener, map[string]any{"MessageType": "Listen"})
	apply(t, l, udid16, Fault{Kind: "hang", Service: lockdownName})
	dialPort(t, l, udid16, lockdownPort)

	done := make(chan error, 1)
	go func() { done <- l.Close() }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Close does not end")
	}
	if err := ended(t, ch); errors.Is(err, context.DeadlineExceeded) {
		t.Error("a client's connection is still open")
	}
	for _, path := range []string{mux, control} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", path, err)
		}
	}
	if _, err := l.Listen("unix:" + mux); err == nil {
		t.Error("a closed lab listens again")
	}
}
