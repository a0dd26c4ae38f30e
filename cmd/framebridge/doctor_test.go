package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/framebridge/framebridge/internal/sim"
)

// The files in testdata/doctor are what doctor says of a healthy phone and of each broken one, for people to read. What differs from run to
// run stands as <port>, <n> or <path>. FRAMEBRIDGE_GOLDEN=1 writes them anew; read the difference before it is committed.
func TestDoctorNamesEachTroubleAndItsRemedyWithinTenSeconds(t *testing.T) {
	agentOn := func(t *testing.T, lab *sim.Lab) []string {
		host, port, err := lab.ListenTunnels("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return []string{"GO_IOS_AGENT_HOST=" + host, "GO_IOS_AGENT_PORT=" + strconv.Itoa(port)}
	}
	nobody := func(t *testing.T, _ *sim.Lab) []string { // no tunnel agent
		return []string{"GO_IOS_AGENT_PORT=" + freePort(t)}
	}
	noUsbmuxd := func(*testing.T, *sim.Lab) []string {
		return []string{"USBMUXD_SOCKET_ADDRESS=UNIX:///nonexistent/usbmuxd"}
	}
	var all sync.WaitGroup
	running := make(chan struct{}, 8)
	for name, c := range map[string]struct {
		os     string
		env    func(*testing.T, *sim.Lab) []string
		faults []sim.Fault
		code   int
	}{
		"healthy-15":                {os: "15.8"},
		"healthy-16":                {os: "16.7"},
		"healthy-26":                {os: "26.0", env: agentOn},
		"no-usbmuxd":                {os: "16.7", env: noUsbmuxd, code: exitDevice},
		"not-attached":              {os: "16.7", faults: []sim.Fault{{Kind: "disconnect"}}, code: exitDevice},
		"not-paired":                {os: "16.7", faults: []sim.Fault{{Kind: "unpair"}}, code: exitDevice},
		"locked":                    {os: "16.7", faults: []sim.Fault{{Kind: "refuse-session", Error: "PasswordProtected"}}, code: exitDevice},
		"lockdownd-silent":          {os: "16.7", faults: []sim.Fault{{Kind: "hang", Service: "lockdownd"}}, code: exitDevice},
		"developer-mode-off":        {os: "16.7", faults: []sim.Fault{{Kind: "developer-mode-off"}}, code: exitDevice},
		"image-missing-16":          {os: "16.7", faults: []sim.Fault{{Kind: "image-missing"}}, code: exitDevice},
		"image-missing-26":          {os: "26.0", env: agentOn, faults: []sim.Fault{{Kind: "image-missing"}}, code: exitDevice},
		"instruments-silent-16":     {os: "16.7", faults: []sim.Fault{{Kind: "hang", Service: "com.apple.instruments.remoteserver.DVTSecureSocketProxy"}}, code: exitDevice},
		"instruments-silent-26":     {os: "26.0", env: agentOn, faults: []sim.Fault{{Kind: "hang", Service: "com.apple.instruments.dtservicehub"}}, code: exitDevice},
		"tap-silent":                {os: "16.7", faults: []sim.Fault{{Kind: "hang", Service: "com.apple.instruments.server.services.activitytracetap"}}, code: exitDevice},
		"screen-still":              {os: "16.7", faults: []sim.Fault{{Kind: "scene", Step: "{for: 1h, idle: true}"}}, code: exitDevice},
		"no-tunnel-agent":           {os: "26.0", env: nobody},
		"no-tunnel-on-wifi":         {os: "26.0", env: nobody, faults: []sim.Fault{{Kind: "wifi"}}, code: exitDevice},
		"no-tunnel-at-all":          {os: "26.0", env: nobody, faults: []sim.Fault{{Kind: "tunnel-gone"}}, code: exitDevice},
		"no-tunnel-agent-17.2":      {os: "17.2", env: nobody, code: exitDevice},
		"no-kernel-tunnel-17.2":     {os: "17.2", env: agentOn, faults: []sim.Fault{{Kind: "tunnel-gone"}}, code: exitDevice},
		"tunnel-agent-silent":       {os: "26.0", env: agentOn, faults: []sim.Fault{{Kind: "hang", Service: "tunnel-agent"}}, code: exitDevice},
		"tunnel-agent-garbage":      {os: "26.0", env: agentOn, faults: []sim.Fault{{Kind: "agent-garbage"}}, code: exitDevice},
		"no-tunnel":                 {os: "26.0", env: agentOn, faults: []sim.Fault{{Kind: "tunnel-gone"}}, code: exitDevice},
		"tunnel-half-open":          {os: "26.0", env: agentOn, faults: []sim.Fault{{Kind: "half-open"}}, code: exitDevice},
		"discovery-refused":         {os: "26.0", env: agentOn, faults: []sim.Fault{{Kind: "rsd-refuse"}}, code: exitDevice},
		"discovery-silent":          {os: "26.0", env: agentOn, faults: []sim.Fault{{Kind: "hang", Service: "rsd"}}, code: exitDevice},
		"discovery-without-service": {os: "26.0", env: agentOn, faults: []sim.Fault{{Kind: "service-missing", Service: "com.apple.instruments.dtservicehub"}}, code: exitDevice},
	} {
		// They wait for silence most of the time, so that many can run at once.
		all.Go(func() {
			running <- struct{}{}
			defer func() { <-running }()
			lab, udids, address := newLab(t, "[{for: 1h, hz: 60}]", c.os)
			defer lab.Close()
			env := []string{"USBMUXD_SOCKET_ADDRESS=" + address}
			if c.env != nil {
				env = append(env, c.env(t, lab)...)
			}
			for _, f := range c.faults {
				if _, err := lab.Apply(context.Background(), udids[0], f); err != nil {
					t.Error(err)
				}
			}
			began := time.Now()
			e := commandWith(t, env, "doctor", udids[0])
			if took := time.Since(began); took > 10*time.Second+surveyFor { // listening to a healthy tap takes its three seconds
				t.Errorf("%s: it took %s", name, took)
			}
			if e.code != c.code {
				t.Errorf("%s: exit code %d, want %d: %s", name, e.code, c.code, e.stderr)
			}
			golden := filepath.Join("testdata", "doctor", name+".txt")
			got := withoutChance(e.stdout)
			if os.Getenv("FRAMEBRIDGE_GOLDEN") != "" {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Error(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil || got != string(want) {
				t.Errorf("%s: %v\ndoctor says\n%s\nand not\n%s", name, err, got, want)
			}
		})
	}
	all.Wait()
}

func TestAnInterruptedDoctorFindsNothing(t *testing.T) {
	for name, fault := range map[string]sim.Fault{"while a phone is silent": {Kind: "hang", Service: "lockdownd"}, "while it listens to the tap": {Kind: "clear"}} {
		lab, udids := startLab(t, "[{for: 1h, hz: 60}]", "16.7")
		if _, err := lab.Apply(context.Background(), udids[0], fault); err != nil {
			t.Fatal(err)
		}
		underWay := func() bool { time.Sleep(1500 * time.Millisecond); return true }
		if e := interrupt(t, underWay, "doctor", udids[0]); e.code != exitPartial || e.stdout != "" || !strings.Contains(e.stderr, "interrupted") {
			t.Errorf("%s: exit code %d\n%s%s", name, e.code, e.stdout, e.stderr)
		}
	}
}

// freePort is a port that nobody listens on.
func freePort(t *testing.T) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	return port
}

// withoutChance leaves out what differs from run to run.
func withoutChance(text string) string {
	for _, r := range []struct{ pattern, with string }{
		{`0000[0-9]{4}-[0-9A-F]{16}`, "<udid>"},
		{`127\.0\.0\.1:\d+`, "127.0.0.1:<port>"},
		{`(\[?[0-9a-f:]*::[0-9a-f]*\]?):\d+`, "<address>:<port>"},
		{`/tmp/[^ ]*`, "<path>"},
		{`\d+ frames`, "<n> frames"},
		{`\d+ rows`, "<n> rows"},
		{`(?m)^ +\d+  com\.`, "   <n>  com."},
		{`(=| )(0x[0-9a-f]+|-?\d{4,})\b`, "$1<n>"},
		{`(?m)^(        .*?)(seed|bytes|FrameRender|FrameReady|FrameProcess|FrameGPUExecute|FrameModifierTarget|FrameLifetimeInterval|pid)=\S+`, "$1$2=<n>"},
	} {
		text = regexp.MustCompile(r.pattern).ReplaceAllString(text, r.with)
	}
	var lines []string
	slow := false
	other := false
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "   <n>  ") || strings.Contains(line, "kinds more") || regexp.MustCompile(`^ +\d+  `).MatchString(line) {
			other = !strings.Contains(line, "com.apple.coreanimation")
		} else if !strings.HasPrefix(line, "        ") {
			other = false
		}
		if other {
			continue // signposts of others are chance
		}
		if slow = strings.Contains(line, "IOMFBServer.Stalls") || slow && strings.HasPrefix(line, "        "); slow {
			continue // whether a slow frame comes is chance
		}
		if strings.HasPrefix(line, "        ") { // an example: its numbers are those of one frame
			line = regexp.MustCompile(`\d+|<n>`).ReplaceAllString(line, "<n>")
			line = regexp.MustCompile(`(FramePrevious=<n>|skip_request=<n>).*`).ReplaceAllString(line, "$1 …") // variants
		}
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return strings.Join(lines, "\n")
}
