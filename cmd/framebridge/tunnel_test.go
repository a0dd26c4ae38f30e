package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/framebridge/framebridge/internal/sim"
	"github.com/framebridge/framebridge/internal/sim/scene"
)

// Three releases, three ways to a tunnel: a kernel tunnel and a userspace tunnel of an agent, and one that the recording makes itself.
func TestPhonesOfTodayAreRecordedAtOnceThroughTunnelsOfEveryKind(t *testing.T) {
	seconds := 8
	if long() {
		seconds = 60
	}
	spec, err := scene.Parse([]byte("[{for: 1h, hz: 120}]"))
	if err != nil {
		t.Fatal(err)
	}
	var phones []sim.DeviceConfig
	for i, c := range []struct {
		os     string
		tunnel sim.TunnelKind
	}{{"17.5", sim.TunnelKernel}, {"18.5", sim.TunnelUserspace}, {"26.0", sim.TunnelNone}} {
		phone := sim.DefaultDevice(fmt.Sprintf("00008140-%016X", i+1), c.os)
		phone.Scene, phone.Tunnel = spec, c.tunnel
		phones = append(phones, phone)
	}
	lab, err := sim.New(sim.Config{Speed: 1, Devices: phones}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lab.Close() })
	address, err := lab.Listen("unix:" + filepath.Join(t.TempDir(), "usbmuxd"))
	if err != nil {
		t.Fatal(err)
	}
	host, port, err := lab.ListenTunnels("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("USBMUXD_SOCKET_ADDRESS", address)
	t.Setenv("GO_IOS_AGENT_HOST", host)
	t.Setenv("GO_IOS_AGENT_PORT", strconv.Itoa(port))

	root := t.TempDir()
	var all sync.WaitGroup
	for _, phone := range phones {
		all.Go(func() {
			dir := filepath.Join(root, phone.UDID)
			e := command(t, "capture", "--udid", phone.UDID, "--bundle", spec.App.Bundle, "--keep-wire", "--duration", fmt.Sprintf("%ds", seconds), "-o", dir)
			if e.code != 0 {
				t.Errorf("iOS %s: exit code %d\n%s%s", phone.OS, e.code, e.stdout, e.stderr)
			}
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	for _, phone := range phones {
		dir := filepath.Join(root, phone.UDID)
		everyFrameThere(t, dir, 120*seconds-360)
		_, recorded := records(t, dir)
		_, decoded := parseRecords(t, []byte(must(t, "decode", filepath.Join(dir, "wire.bin")).stdout))
		if strings.Join(decoded, "\n") != strings.Join(recorded, "\n") {
			t.Errorf("iOS %s: decode does not give the recorded records again", phone.OS)
		}
		must(t, "replay", dir, "--check")
		var s struct {
			Displays        []struct{ Frames int64 }
			FramesByProcess []struct {
				Name   string
				Frames int64
			}
		}
		if err := json.Unmarshal([]byte(must(t, "summary", dir, "--json").stdout), &s); err != nil {
			t.Fatal(err)
		}
		by := map[string]int64{}
		for _, p := range s.FramesByProcess {
			by[p.Name] += p.Frames
		}
		// The app in front has content in every frame of this scene; the first one's ContextInfo may have come before the tap.
		if frames := s.Displays[0].Frames; by[spec.App.Name] < frames-1 {
			t.Errorf("iOS %s: %d of %d frames by %q, all: %v", phone.OS, by[spec.App.Name], frames, spec.App.Name, by)
		}
	}
}

func TestTheTunnelCommandServesAndEnds(t *testing.T) {
	_, udids := startLab(t, "[{for: 1h, hz: 60}]", "26.0")
	t.Setenv("GO_IOS_AGENT_PORT", freePort(t))
	cmd := exec.Command(binary, "tunnel", "--json")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "run")
	deadline := time.Now().Add(20 * time.Second)
	for command(t, "doctor", udids[0]).code != 0 {
		if time.Now().After(deadline) {
			t.Fatalf("no tunnel within 20 s: %s", stderr.String())
		}
		time.Sleep(200 * time.Millisecond)
	}
	must(t, "capture", "--bundle", "com.example.app", "--duration", "2s", "-o", dir)
	if e := command(t, "tunnel"); e.code != exitDevice || !strings.Contains(e.stderr, "is taken") || !strings.Contains(e.stderr, "GO_IOS_AGENT_PORT") {
		t.Errorf("a second agent: exit code %d, %s", e.code, e.stderr)
	}
	cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v, %s", err, stderr.String())
	}
	if !strings.Contains(stdout.String(), `"rsdPort":`) {
		t.Errorf("its JSON lines lack a tunnel: %s", stdout.String())
	}
	// Its worker has ended too.
	list, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(list) == 0 {
		t.Skip("PROCESSES CANNOT BE LISTED HERE, so that workers left behind are not looked for")
	}
	for _, path := range list {
		text, _ := os.ReadFile(path)
		if bytes.Contains(text, []byte(binary)) && bytes.Contains(text, []byte("worker")) {
			t.Errorf("a worker is left: %q", text)
		}
	}
}
