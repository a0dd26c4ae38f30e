package report

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/framebridge/framebridge/internal/input"
	"github.com/framebridge/framebridge/internal/sessiontest"
	"github.com/framebridge/framebridge/internal/summary"
	"github.com/framebridge/framebridge/ledger"
)

var tool = ledger.Tool{Name: "framebridge", Version: "test"}

func made(t testing.TB, dir string) (*Report, string) {
	t.Helper()
	r, err := Of(context.Background(), dir, tool, func(string, int64) {})
	if err != nil {
		t.Fatal(err)
	}
	return r, pageOf(t, r)
}

func pageOf(t testing.TB, r *Report) string {
	t.Helper()
	var page bytes.Buffer
	if err := r.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	return page.String()
}

func recorded(t testing.TB, s sessiontest.Session) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "run")
	s.Record(t, dir)
	return dir
}

// logOf makes a session that was never sealed of lines.
func logOf(t testing.TB, lines ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "events.jsonl"), []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func outcomes(r *Report) (list []Outcome) {
	for _, c := range r.Checks {
		list = append(list, c.Outcome)
	}
	return list
}

func TestReportOfASealedSessionSaysWhatWasProved(t *testing.T) {
	r, page := made(t, recorded(t, sessiontest.Session{Seconds: 20}))
	if want := []Outcome{Passed, Passed, NotMade}; !slices.Equal(outcomes(r), want) || !r.Passed() {
		t.Errorf("checks %v", r.Checks)
	}
	for _, words := range []string{
		"Simulated device: nothing here was measured on a real phone", "<strong>Evidence <span data-figure=\"evidence\">E2</span></strong>",
		"frames of the whole display, not of one app", "long frame times are idleness, not jank", "and the P95 alone does not",
		"All 20 publications", "Independent oracle: not made.", "5f0c3a52-8d7e-4b1c-9a53-0f6f6f3d2a11", "stream-broken",
	} {
		if !strings.Contains(page, words) {
			t.Errorf("the page lacks %q", words)
		}
	}
	if strings.Contains(page, "A check failed") {
		t.Error("the page raises an alarm")
	}
	if from := regexp.MustCompile(`(?i)(src|href|url|@import)\s*[=(:]?\s*["']?(https?:|//)`).FindString(strings.ReplaceAll(page, "http://www.w3.org/2000/svg", "")); from != "" {
		t.Errorf("the page wants something from elsewhere: %s", from)
	}
}

func TestReportOfAChangedFileRaisesAnAlarm(t *testing.T) {
	dir := recorded(t, sessiontest.Session{Seconds: 20})
	path := filepath.Join(dir, "events.jsonl")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, bytes.Replace(text, []byte(`"surfaceId":201`), []byte(`"surfaceId":202`), 1), 0o644); err != nil {
		t.Fatal(err)
	}
	r, page := made(t, dir)
	if want := []Outcome{Failed, Passed, NotMade}; !slices.Equal(outcomes(r), want) || r.Passed() {
		t.Errorf("checks %v", r.Checks)
	}
	if !strings.Contains(page, "A check failed") || !strings.Contains(page, "events.jsonl: expected SHA-256") {
		t.Error("the page does not say so")
	}
}

func TestALeftoverOfAnInterruptedSealingIsToldWithoutAnAlarm(t *testing.T) {
	dir := recorded(t, sessiontest.Session{Seconds: 20})
	if err := os.WriteFile(filepath.Join(dir, "lock"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	r, page := made(t, dir)
	if !r.Passed() || !strings.Contains(page, "lock: an interrupted sealing left it") {
		t.Errorf("checks %v", r.Checks)
	}
}

// Nobody sealed this one, and one publication says a microsecond too much. The charts show the whole session all the same.
func TestReportNamesThePublicationThatIsNotWhatTheEventsGive(t *testing.T) {
	sealed := recorded(t, sessiontest.Session{Seconds: 20})
	text, err := os.ReadFile(filepath.Join(sealed, "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(text, []byte(`"valueMs":8.`))
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	line := bytes.Count(text[:at], []byte("\n"))
	lines[line] = strings.Replace(lines[line], `"valueMs":8.`, `"valueMs":9.`, 1)
	r, page := made(t, logOf(t, lines...))
	if want := []Outcome{NotMade, Failed, NotMade}; !slices.Equal(outcomes(r), want) {
		t.Errorf("checks %v", r.Checks)
	}
	if words := fmt.Sprintf("line %d (seq %d): valueMs was recorded as 9.", line+1, line+1); !strings.Contains(page, words) {
		t.Errorf("the page lacks %q", words)
	}
	drawn := int64(0)
	for _, c := range r.charts.displays[0].columns {
		drawn += c.frameTimeNs.n
	}
	if valid := r.Summary.Displays[0].ByQuality["valid"]; drawn != valid || valid < 2000 {
		t.Errorf("%d frames are drawn, %d are valid", drawn, valid)
	}
}

// Four decimals are more than the contract's three: such figures count nowhere, and so no frame is drawn with a time.
func TestFramesWhoseFiguresCountNowhereHaveNoPlaceInTheCharts(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(recorded(t, sessiontest.Session{Seconds: 20}), "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	text = regexp.MustCompile(`"refreshMultiple":[0-9.]+`).ReplaceAll(text, []byte(`"refreshMultiple":1.0001`))
	r, page := made(t, logOf(t, strings.TrimSpace(string(text))))
	drawn, without := int64(0), int64(0)
	for _, c := range r.charts.displays[0].columns {
		drawn, without = drawn+c.frameTimeNs.n, without+c.without
	}
	if frames := r.Summary.Displays[0].Frames; drawn != 0 || without != frames || frames < 2000 {
		t.Errorf("%d frames are drawn with a time and %d without, of %d", drawn, without, frames)
	}
	if !strings.Contains(page, "No frame of this display has a frame time.") {
		t.Error("the page does not say so")
	}
}

func TestLossesOfUnknownNumberAndContradictedFramesAreOnThePage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(recorded(t, sessiontest.Session{Seconds: 20}), "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	_, page := made(t, logOf(t, strings.TrimSpace(string(text))))
	for _, name := range []string{"unknownLosses", "contradicted"} {
		if strings.Contains(page, name) {
			t.Errorf("%s is on the page of a session without any", name)
		}
	}
	lost, contradicted := 0, 0
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	for i, line := range lines {
		switch {
		case !strings.Contains(line, `"displayId":1,`) || !strings.Contains(line, `"quality":"valid"`):
		case lost < 3:
			lost++
			lines[i] = strings.NewReplacer(`"quality":"valid"`, `"quality":"source-gap"`, `"droppedBefore":0`, `"droppedBefore":null`).Replace(line)
		case contradicted < 2:
			contradicted++
			lines[i] = regexp.MustCompile(`"refreshMultiple":[0-9.]+`).ReplaceAllString(line, `"refreshMultiple":1.0001`)
		}
	}
	_, page = made(t, logOf(t, lines...))
	for _, words := range []string{`data-figure="displays.0.unknownLosses">3<`, `data-figure="displays.0.contradicted">2<`} {
		if !strings.Contains(page, words) {
			t.Errorf("the page lacks %q", words)
		}
	}
}

// The log of a recording that goes on has frames when it is drawn that were not there when it was counted.
func TestAFrameThatWasNotCountedYetIsDrawnWithinTheChart(t *testing.T) {
	c := newCollector(&summary.Summary{LastHostNs: 60e9, Displays: []*summary.Display{{DisplayID: 1, Frames: 1}}})
	c.event(&ledger.Event{Value: frameOf(8_333_333)})
	if column := c.displays[0].columns[0]; column.frameTimeNs.n != 1 || column.heights[0] != 1 {
		t.Errorf("%+v", column.frameTimeNs)
	}
}

const startLine = `{"seq":1,"hostNs":1000,"type":"session.start","sessionId":"5f0c3a52-8d7e-4b1c-9a53-0f6f6f3d2a11","name":"<b>name</b>","tool":{"name":"t","version":"1"},` +
	`"host":{"name":"h","os":"linux","arch":"amd64","cpus":1,"pid":1},"device":{"udid":"","productType":"","osVersion":"","simulated":false},"evidence":"E3","policy":"p",` +
	`"clock":{"monotonicNs":1000,"wallNs":0}}`

func TestReportOfASessionWithoutFrames(t *testing.T) {
	_, page := made(t, logOf(t, startLine))
	for _, words := range []string{"The session holds no frame.", "never closed", "A real device, outside a formal attempt.", "The session is not sealed", "1970-01-01 00:00:00 UTC"} {
		if !strings.Contains(page, words) {
			t.Errorf("the page lacks %q", words)
		}
	}
}

func TestWithoutASessionStartThePageSaysThatNothingIsTold(t *testing.T) {
	_, page := made(t, logOf(t, `{"seq":2,"hostNs":1001,"type":"source.state","state":"connected","cause":""}`))
	for _, words := range []string{"<h1>session without a name</h1>", `Evidence <span data-figure="evidence">not told</span>`, "The log has no session.start", "<dt>Recorded</dt><dd>not told</dd>",
		"not told by the recording", `session</th><td>not told</td>`, `lines of the log that cannot be read</th><td data-figure="badLines">1</td>`} {
		if !strings.Contains(page, words) {
			t.Errorf("the page lacks %q", words)
		}
	}
	for _, words := range []string{"1970", "nobody here saw the device", "recorded by"} {
		if strings.Contains(page, words) {
			t.Errorf("the page says %q", words)
		}
	}
}

func TestALogOfSomethingElseHasNoReport(t *testing.T) {
	if _, err := Of(context.Background(), logOf(t, `{"type":"frame"}`), tool, func(string, int64) {}); !errors.Is(err, input.ErrUnreadable) {
		t.Errorf("%v", err)
	}
}

func TestNamesAreTextOnThePage(t *testing.T) {
	const harm = `</script></title><img src=x onerror=alert(1)>`
	_, page := made(t, logOf(t, strings.Replace(startLine, "<b>name</b>", harm, 1),
		`{"seq":2,"hostNs":1001,"type":"target.bind","bundleId":"`+harm+`","pid":1,"generation":1,"sourceEpoch":1,"reconnectGeneration":0,"primaryDisplayId":1,"timebase":{"numer":1,"denom":1}}`,
		`{"seq":3,"hostNs":1002,"type":"source.gap","reason":"`+harm+`","rows":1,"bytes":1,"messages":1}`,
		`{"seq":4,"hostNs":1003,"type":"source.state","state":"disconnected","cause":"`+harm+`"}`,
		`{"seq":5,"hostNs":1004,"type":"display.frame-contributors","frameSeed":1,"displayId":1,"processes":[{"pid":1,"name":"`+harm+`"}]}`,
		`{"seq":6,"hostNs":1005,"type":"display.frame-lifetime.raw","payload":{"displayId":1,"presentationNs":7,"quality":"valid","frameTimeMs":8.3}}`,
		`{"seq":7,"hostNs":1006,"type":"session.end","state":"partial","reason":"`+harm+`","counts":{"session.start":1,"target.bind":1,"target.state":0,"clock.bridge":0,`+
			`"display.frame-lifetime.raw":1,"display.frame-contributors":1,"source.gap":1,"source.state":1,"p95.publication":0,"session.end":1},"extra":{}}`))
	if strings.Contains(page, "<img") || strings.Count(page, "<script") != 2 || strings.Count(page, "</title>") < 1 {
		t.Error("a name is more than text")
	}
	if n := strings.Count(page, "&lt;img src=x onerror=alert(1)&gt;"); n < 7 {
		t.Errorf("the names stand in %d places", n)
	}
}

func TestACompressedSessionGivesTheSameReport(t *testing.T) {
	_, plain := made(t, recorded(t, sessiontest.Session{Seconds: 20}))
	_, packed := made(t, recorded(t, sessiontest.Session{Seconds: 20, Compress: true}))
	// One line more: the file that holds the log.
	var lines []string
	for line := range strings.Lines(packed) {
		if !strings.Contains(line, "events.jsonl.zst (holds events.jsonl)") {
			lines = append(lines, line)
		}
	}
	if strings.Count(packed, "\n") != len(lines)+1 {
		t.Error("the page does not name the compressed file")
	}
	without := regexp.MustCompile(`(?m)^.*<tbody>(<tr><th scope="row">events.jsonl</th>)`)
	if got := strings.Join(lines, ""); without.ReplaceAllString(got, "$1") != without.ReplaceAllString(plain, "$1") {
		t.Error("the reports differ")
	}
}

func TestReadingEndsWhenItIsNotWantedAnyMore(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Of(ctx, recorded(t, sessiontest.Session{Seconds: 20}), tool, func(string, int64) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// Whatever a log holds, there is a page of it, if it holds an event.
func FuzzReport(f *testing.F) {
	text, err := os.ReadFile(filepath.Join(recorded(f, sessiontest.Session{Seconds: 20}), "events.jsonl"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(bytes.Join(bytes.SplitAfter(text, []byte("\n"))[:40], nil))
	f.Add([]byte(startLine + "\n" + `{"seq":2,"hostNs":-9223372036854775808,"type":"display.frame-lifetime.raw","payload":{"displayId":1,"quality":"valid","frameTimeMs":-9223372036854}}` + "\n" +
		`{"seq":3,"hostNs":9223372036854775807,"type":"display.frame-lifetime.raw","payload":{"displayId":1,"quality":"valid","frameTimeMs":9223372036854}}` + "\n"))
	f.Add([]byte(startLine + "\n" + `{"seq":2,"hostNs":2000,"type":"display.frame-lifetime.raw","payload":{"displayId":1,"quality":"valid","frameTimeMs":0}}` + "\n"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		own, err := os.MkdirTemp(dir, "")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(own)
		if err := os.WriteFile(filepath.Join(own, "events.jsonl"), text, 0o644); err != nil {
			t.Fatal(err)
		}
		r, err := Of(context.Background(), own, tool, func(string, int64) {})
		if errors.Is(err, input.ErrUnreadable) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		pageOf(t, r)
	})
}
