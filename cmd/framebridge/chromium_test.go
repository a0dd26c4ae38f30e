package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

// browser is a headless Chromium with one page, driven through the DevTools protocol on a pipe (--remote-debugging-pipe: JSON objects, each
// ended by a zero byte; commands on its descriptor 3, answers and events on 4).
type browser struct {
	t       *testing.T
	in      io.WriteCloser
	out     chan message
	session string
	lastID  int
	seen    []message // events
}

type message struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

func openBrowser(t *testing.T) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("CHROMIUM IS MISSING, and the report is not opened in a browser: ./scripts/setup (Debian: apt-get install chromium)")
	}
	commandsRead, commandsWrite, err1 := os.Pipe()
	answersRead, answersWrite, err2 := os.Pipe()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--hide-scrollbars", "--window-size=1200,1600", "--user-data-dir="+t.TempDir(), "--remote-debugging-pipe")
	cmd.ExtraFiles = []*os.File{commandsRead, answersWrite}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	commandsRead.Close()
	answersWrite.Close()
	b := &browser{t: t, in: commandsWrite, out: make(chan message, 1024)}
	go func() {
		defer close(b.out)
		answers := bufio.NewReaderSize(answersRead, 1<<20)
		for {
			text, err := answers.ReadBytes(0)
			if err != nil {
				return
			}
			var m message
			if json.Unmarshal(bytes.TrimSuffix(text, []byte{0}), &m) == nil {
				b.out <- m
			}
		}
	}()
	t.Cleanup(func() {
		commandsWrite.Close() // Chromium ends when its pipe does
		for range b.out {
		}
		answersRead.Close()
		cmd.Wait()
	})
	var target struct{ TargetID, SessionID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &target)
	b.session = target.SessionID
	for _, domain := range []string{"Page", "Network", "Runtime", "Log"} {
		b.call(domain+".enable", nil, nil)
	}
	return b
}

// call sends a command and waits for its answer.
func (b *browser) call(method string, params map[string]any, result any) {
	b.t.Helper()
	b.lastID++
	command := map[string]any{"id": b.lastID, "method": method}
	if params != nil {
		command["params"] = params
	}
	if b.session != "" {
		command["sessionId"] = b.session
	}
	text, err := json.Marshal(command)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.in.Write(append(text, 0)); err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
	b.wait(method, func(m message) bool {
		if m.ID != b.lastID {
			return false
		}
		if m.Error != nil {
			b.t.Fatalf("%s: %s", method, m.Error)
		}
		if result != nil {
			if err := json.Unmarshal(m.Result, result); err != nil {
				b.t.Fatalf("%s: %v: %s", method, err, m.Result)
			}
		}
		return true
	})
}

func (b *browser) wait(what string, is func(message) bool) {
	b.t.Helper()
	deadline := time.After(time.Minute)
	for {
		select {
		case m, ok := <-b.out:
			if !ok {
				b.t.Fatalf("%s: Chromium has ended", what)
			}
			if m.Method != "" {
				b.seen = append(b.seen, m)
			}
			if is(m) {
				return
			}
		case <-deadline:
			b.t.Fatalf("%s: Chromium does not answer", what)
		}
	}
}

// open loads a file and returns how long that took, by the clock.
func (b *browser) open(path string) time.Duration {
	b.t.Helper()
	b.seen = nil
	began := time.Now()
	b.call("Page.navigate", map[string]any{"url": "file://" + path}, nil)
	for _, m := range b.seen {
		if m.Method == "Page.loadEventFired" {
			return time.Since(began)
		}
	}
	b.wait("load", func(m message) bool { return m.Method == "Page.loadEventFired" })
	return time.Since(began)
}

// evaluate runs JavaScript in the page, which is not bound by the page's own policy, and reads its value.
func (b *browser) evaluate(script string, value any) {
	b.t.Helper()
	var result struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	b.call("Runtime.evaluate", map[string]any{"expression": script, "returnByValue": true}, &result)
	if result.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", script, result.ExceptionDetails)
	}
	if err := json.Unmarshal(result.Result.Value, value); err != nil {
		b.t.Fatalf("%s: %v: %s", script, err, result.Result.Value)
	}
}

// screenshot keeps a picture of the whole page, where FRAMEBRIDGE_SCREENSHOTS names a directory for people to look at.
func (b *browser) screenshot(name string) {
	b.t.Helper()
	dir := os.Getenv("FRAMEBRIDGE_SCREENSHOTS")
	if dir == "" {
		return
	}
	var picture struct{ Data []byte }
	b.call("Page.captureScreenshot", map[string]any{"captureBeyondViewport": true}, &picture)
	if err := os.WriteFile(dir+"/"+name+".png", picture.Data, 0o644); err != nil {
		b.t.Error(err)
	}
}
