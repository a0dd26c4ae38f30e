package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/framebridge/framebridge/internal/sessiontest"
)

// An hour at 120 Hz: a page under 5 MiB that opens within 3 s, asks nobody for anything, and says what summary --json says.
func TestReportInABrowser(t *testing.T) {
	b := openBrowser(t)
	dir := recordSynthetic(t, false)
	path := filepath.Join(t.TempDir(), "run.html")
	cpu, peakMiB := measured(t, "report", dir, "-o", path)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d KiB, made in %s of CPU and %d MiB", info.Size()>>10, cpu, peakMiB)
	if info.Size() > 5<<20 || peakMiB > 256 {
		t.Errorf("%d KiB, made in %d MiB: at most 5 MiB, made in 256, are allowed", info.Size()>>10, peakMiB)
	}

	b.call("Performance.enable", map[string]any{"timeDomain": "threadTicks"}, nil)
	byTheClock := b.open(path)
	// The time is that of the page's own thread: a busy machine does not count against the page.
	var metrics struct {
		Metrics []struct {
			Name  string
			Value float64
		}
	}
	b.call("Performance.getMetrics", nil, &metrics)
	seconds := 0.0
	for _, m := range metrics.Metrics {
		if m.Name == "TaskDuration" {
			seconds = m.Value
		}
	}
	t.Logf("opened in %.3f s of its thread, %s by the clock", seconds, byTheClock)
	if seconds <= 0 || seconds > 3 {
		t.Errorf("the page takes %.3f s to open, at most 3 are allowed", seconds)
	}
	for _, m := range b.seen {
		switch m.Method {
		case "Network.requestWillBeSent":
			var p struct{ Request struct{ URL string } }
			if json.Unmarshal(m.Params, &p); p.Request.URL != "file://"+path {
				t.Errorf("the page asks for %s", p.Request.URL)
			}
		case "Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Page.javascriptDialogOpening":
			t.Errorf("%s: %s", m.Method, m.Params)
		}
	}
	b.screenshot("light")
	checkFigures(t, b, dir)
	checkReadout(t, b)

	var harm, told bool
	b.evaluate("document.images.length > 0 || document.querySelectorAll('script').length != 2", &harm)
	b.evaluate("[...document.querySelectorAll('#processes th')].some(e => e.textContent == "+strconv.Quote(sessiontest.HostileName)+")", &told)
	if harm || !told {
		t.Errorf("a process name is not shown as text: %v %v", harm, told)
	}
	for name, media := range map[string]map[string]any{
		"dark":   {"features": []map[string]string{{"name": "prefers-color-scheme", "value": "dark"}}},
		"bright": {"features": []map[string]string{{"name": "prefers-color-scheme", "value": "light"}}},
		"paper":  {"media": "print", "features": []map[string]string{{"name": "prefers-color-scheme", "value": "dark"}}},
	} {
		b.call("Emulation.setEmulatedMedia", media, nil)
		checkContrast(t, b, name)
		b.screenshot(name)
	}
	var pdf struct{ Data []byte }
	b.call("Page.printToPDF", map[string]any{"printBackground": true}, &pdf)
	if dir := os.Getenv("FRAMEBRIDGE_SCREENSHOTS"); dir != "" {
		os.WriteFile(dir+"/report.pdf", pdf.Data, 0o644)
	}
	if !strings.HasPrefix(string(pdf.Data), "%PDF") {
		t.Error("the page cannot be printed")
	}
}

// checkFigures compares every figure on the page with the member of summary --json that it names.
func checkFigures(t *testing.T, b *browser, dir string) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(must(t, "summary", dir, "--json").stdout))
	d.UseNumber()
	var summary any
	if err := d.Decode(&summary); err != nil {
		t.Fatal(err)
	}
	var figures [][2]string
	b.evaluate("[...document.querySelectorAll('[data-figure]')].map(e => [e.dataset.figure, e.textContent])", &figures)
	var shown []string
	for _, f := range figures {
		v := summary
		for name := range strings.SplitSeq(f[0], ".") {
			switch inside := v.(type) {
			case map[string]any:
				v = inside[name]
			case []any:
				i, _ := strconv.Atoi(name)
				v = inside[i]
			}
		}
		want := fmt.Sprint(v)
		switch {
		case strings.HasSuffix(f[0], "TimeNs"):
			want = inMs(want)
		case strings.HasSuffix(f[0], "hitchMsPerS"):
			ratio, _ := v.(json.Number).Float64()
			want = fmt.Sprintf("%.3f", ratio)
		}
		if f[1] != want {
			t.Errorf("%s: the page says %q, the summary %q", f[0], f[1], want)
		}
		shown = append(shown, f[0])
	}
	for _, name := range []string{"evidence", "state", "sessionId", "framesByProcess.0.frames", "displays.0.frames", "displays.0.droppedBefore", "displays.0.p50FrameTimeNs",
		"displays.0.p95FrameTimeNs", "displays.0.p99FrameTimeNs", "displays.0.maxFrameTimeNs", "displays.0.hitchMsPerS", "displays.0.missedRefreshes", "displays.1.p95FrameTimeNs"} {
		if !slices.Contains(shown, name) {
			t.Errorf("%s is not on the page", name)
		}
	}
}

// inMs moves the point of a number of ns.
func inMs(ns string) string {
	ns = strings.Repeat("0", max(0, 7-len(ns))) + ns
	whole, fraction := ns[:len(ns)-6], strings.TrimRight(ns[len(ns)-6:], "0")
	if fraction == "" {
		return whole
	}
	return whole + "." + fraction
}

// checkReadout moves the pointer over the first chart, and a mark with the keys.
func checkReadout(t *testing.T, b *browser) {
	t.Helper()
	var box struct{ X, Y float64 }
	b.evaluate("(() => { const c = document.querySelector('svg.time'); c.scrollIntoView(); const r = c.getBoundingClientRect(); return {x: r.left + r.width / 2, y: r.top + r.height / 2} })()", &box)
	b.call("Input.dispatchMouseEvent", map[string]any{"type": "mouseMoved", "x": box.X, "y": box.Y}, nil)
	var pointed, moved string
	b.evaluate("document.querySelector('output').textContent", &pointed)
	b.evaluate("document.querySelector('svg.time').focus(), true", new(bool))
	for _, event := range []string{"keyDown", "keyUp"} {
		b.call("Input.dispatchKeyEvent", map[string]any{"type": event, "key": "Home", "code": "Home"}, nil)
	}
	b.evaluate("document.querySelector('output').textContent", &moved)
	if !strings.Contains(pointed, " to ") || !strings.Contains(pointed, "frame") || !strings.HasPrefix(moved, "0.00 s to ") || pointed == moved {
		t.Errorf("under the pointer: %q; at the beginning: %q", pointed, moved)
	}
}

// checkContrast asks for 4.5 to 1 between each text and what is behind it (WCAG 2, level AA).
func checkContrast(t *testing.T, b *browser, name string) {
	t.Helper()
	var faint []string
	b.evaluate(`(() => {
		const rgb = text => text.match(/[\d.]+/g).map(Number)
		const light = c => { const [r, g, b] = rgb(c).map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b }
		const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (rgb(c).length == 3 || rgb(c)[3] > 0) return c } return 'rgb(255, 255, 255)' }
		const faint = []
		for (const e of document.querySelectorAll('h1, h2, h3, p, li, dt, dd, td, th, caption, span, strong, a, code, text')) {
			if (![...e.childNodes].some(n => n.nodeType == 3 && n.data.trim()) || e.classList.contains('in-strip')) continue
			const style = getComputedStyle(e), ink = light(e.tagName == 'text' ? style.fill : style.color), paper = light(behind(e))
			const contrast = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05)
			if (contrast < 4.5) faint.push(e.tagName + '.' + e.className + ' ' + contrast.toFixed(2) + ': ' + e.textContent.slice(0, 30))
		}
		return faint
	})()`, &faint)
	if len(faint) > 0 {
		t.Errorf("%s: %d texts are too faint, such as %q", name, len(faint), faint[0])
	}
	var paper string
	b.evaluate("getComputedStyle(document.body).backgroundColor", &paper)
	if want := map[string]string{"dark": "rgb(20, 24, 29)", "bright": "rgb(255, 255, 255)", "paper": "rgb(255, 255, 255)"}[name]; paper != want {
		t.Errorf("%s: the page is %s, want %s", name, paper, want)
	}
}

func TestReportOfAChangedSessionIsWrittenAndFails(t *testing.T) {
	dir := recordSynthetic(t, true)
	path := filepath.Join(dir, "manifest.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	os.Chmod(path, 0o644)
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), `"evidence": "E2"`, `"evidence": "E3"`, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	report := filepath.Join(t.TempDir(), "run.html")
	e := command(t, "report", dir, "-o", report)
	page, _ := os.ReadFile(report)
	if e.code != exitMismatch || !strings.Contains(e.stderr, "a check failed") || !strings.Contains(string(page), "A check failed") {
		t.Errorf("exit code %d, %q, and a page of %d bytes", e.code, e.stderr, len(page))
	}
}

func TestReportErrorsNamePlaceAndRemedy(t *testing.T) {
	dir := recordSynthetic(t, false)
	taken := filepath.Join(t.TempDir(), "taken.html")
	if err := os.WriteFile(taken, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	killed := filepath.Join(t.TempDir(), "killed.html")
	write(t, killed+".unfinished", "")
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no session":       {[]string{"report", t.TempDir()}, exitUsage, "is no session"},
		"nothing there":    {[]string{"report", dir + "/nothing"}, exitUsage, "no such file"},
		"a file":           {[]string{"report", filepath.Join(dir, "events.jsonl")}, exitUsage, "expected a session's directory"},
		"taken":            {[]string{"report", dir, "-o", taken}, exitUsage, "give another name with -o"},
		"left by a kill":   {[]string{"report", dir, "-o", killed}, exitUsage, killed + ".unfinished: file already exists: another report is being written there, or one that was killed left it; remove it"},
		"into the session": {[]string{"report", dir, "-o", filepath.Join(dir, "report.html")}, exitUsage, "elsewhere"},
	} {
		t.Run(name, func(t *testing.T) {
			e := command(t, c.args...)
			if e.code != c.code || !strings.Contains(e.stderr, c.want) || strings.Count(strings.TrimSpace(e.stderr), "\n") > 0 {
				t.Errorf("exit code %d, %q; want %d and one line with %q", e.code, e.stderr, c.code, c.want)
			}
		})
	}
	if text, _ := os.ReadFile(taken); string(text) != "mine" {
		t.Error("what was there is gone")
	}
}
