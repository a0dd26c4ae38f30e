package lab27_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/framebridge/framebridge/lab27"
)

// Nobody writes into the pipe: opening it would wait for ever.
func TestAPipeInThePlaceOfAFileIsNoBundle(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "plan.json"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := lab27.Validate(os.DirFS(dir), nil)
	if r.State == lab27.Complete || len(r.Problems) == 0 || !strings.Contains(r.Problems[0].Error(), "expected a regular file") {
		t.Errorf("%s: %v", r.State, r.Problems)
	}
}

func TestCompleteBundleIsComplete(t *testing.T) {
	f := newFixture(t, lab27.PurposeFormal, 1000)
	r := f.report()
	if r.State != lab27.Complete || r.Err() != nil || r.ProblemCount != 0 {
		t.Fatalf("%s: %v", r.State, r.Err())
	}
	if len(r.Submissions) != len(f.submissions) || len(r.Presentations) != len(f.presentations) || len(r.Events) != 8 || r.Plan.PID != 431 || r.Summary.HandlerCost.MeanNs != 375 {
		t.Errorf("%d submissions, %d presentations, %d events, plan %+v, summary %+v", len(r.Submissions), len(r.Presentations), len(r.Events), r.Plan, r.Summary)
	}
	last := r.Presentations[len(r.Presentations)-1]
	if want := f.presentations[len(f.presentations)-1]; last.PresentedNs != want.ns || last.DrawableID != want.drawable || last.CallbackMach != want.callback {
		t.Errorf("last presentation %+v, want %+v", last, want)
	}
}

func TestPresentedTimeIsReadExactly(t *testing.T) {
	f := newFixture(t, lab27.PurposeStudy, 10)
	// As a double, 1234567.123456789 s would be 0.2 ns off, and 0.000000001 s of it would be lost.
	f.row(1).ns = 64_000_500_123_456_789
	f.presentations, f.submissions = f.presentations[:1], f.submissions[:1]
	if r := f.report(); r.Presentations[0].PresentedNs != 64_000_500_123_456_789 {
		t.Errorf("%d", r.Presentations[0].PresentedNs)
	}
	for text, fine := range map[string]bool{"64000.500123456": true, "64000.5001234567": false, "-1.0": false, "1e300": false, "\"1\"": false, "null": false} {
		f.rewrite = func(name, content string) string { return strings.Replace(content, "64000500.123456789", text, 1) }
		r := f.report()
		schema := false
		for _, p := range r.Problems {
			schema = schema || p.Kind == lab27.Schema
		}
		if schema == fine {
			t.Errorf("%s: %v", text, r.Problems)
		}
	}
}

func TestIntervalsPerPhaseComeFromPresentedTimeAlone(t *testing.T) {
	r := newFixture(t, lab27.PurposeFormal, 1000).report()
	for i, want := range []struct {
		phase                string
		median, p95, longest int64
	}{
		{"baseline", 33_333_167, 33_333_167, 33_333_167}, // 4 refreshes of 199,999 ticks
		{"normal", 16_666_583, 16_666_584, 16_666_584},
		{"tail", 16_666_583, 91_666_208, 91_666_209}, // 11 refreshes of 8.333 ms: two since the request before, and 80 ms rounded up
		{"recovery", 16_666_583, 16_666_584, 16_666_584},
	} {
		got := r.Phases[i]
		if got.Phase != want.phase || !is(got.MedianNs, want.median) || !is(got.P95Ns, want.p95) || !is(got.MaxNs, want.longest) {
			t.Errorf("%s: median %d, P95 %d, max %d, want %+v", got.Phase, *got.MedianNs, *got.P95Ns, *got.MaxNs, want)
		}
	}
	// Twelve requests take 11 * 16.667 + 83.333 ms, so 40 s hold 150 delays; the last would end in the next phase and is not begun.
	if r.Tail.Delayed != 149 || r.Tail.Lengthened != 149 || !r.Tail.Happened {
		t.Errorf("tail %+v", r.Tail)
	}
}

func TestTailWhoseDelaysLengthenedNothingDidNotHappen(t *testing.T) {
	f := newFixture(t, lab27.PurposeStudy, 100)
	for i := range f.submissions {
		if f.submissions[i].delay > 0 { // the panel showed it as if there had been no delay
			f.presentations[i].ns = f.presentations[i-1].ns + 16_666_583
			break
		}
	}
	f.rewrite = func(name, content string) string { return content }
	r := f.report()
	if r.Tail.Happened || r.Tail.Lengthened != r.Tail.Delayed-1 {
		t.Errorf("tail %+v", r.Tail)
	}
}

// Of the delays that were made, whatever rows there are of what came of them.
func TestTailIsNotToldWhereTheReferenceWasOffOrRowsAreLacking(t *testing.T) {
	off := newFixture(t, lab27.PurposeCostOff, 100)
	off.presentations, off.handlerCost = nil, "null"
	if r := off.report(); r.State != lab27.Complete || r.Tail != nil {
		t.Errorf("without the reference: %s, tail %+v", r.State, r.Tail)
	}
	whole := newFixture(t, lab27.PurposeStudy, 100).files()
	for _, name := range []string{"requests.jsonl", "presented.jsonl"} {
		for _, lost := range []int{1, 3000} {
			files := maps.Clone(whole)
			files[name] = &fstest.MapFile{Data: whole[name].Data[:len(whole[name].Data)-lost]}
			if r := lab27.Validate(files, nil); r.State != lab27.Partial || r.Tail != nil || *r.Phases[1].MedianNs != 16_666_583 {
				t.Errorf("%s without its last %d bytes: %s, tail %+v", name, lost, r.State, r.Tail)
			}
		}
	}
	files := maps.Clone(whole)
	delete(files, "summary.json")
	if r := lab27.Validate(files, nil); r.Tail != nil {
		t.Errorf("of a bundle that was not sealed: %+v", r.Tail)
	}
}

func TestAPhaseWithoutAnIntervalHasNoFigures(t *testing.T) {
	off := newFixture(t, lab27.PurposeCostOff, 100)
	off.presentations, off.handlerCost = nil, "null"
	text, err := json.Marshal(off.report().Phases[0])
	if want := `{"phase":"baseline","intervals":0,"minNs":null,"medianNs":null,"p95Ns":null,"maxNs":null}`; err != nil || string(text) != want {
		t.Errorf("%s, %v", text, err)
	}
}

// Each of these bundles is sealed anew after the change, so that only what it says gives it away.
func TestBundlesThatContradictThemselves(t *testing.T) {
	replace := func(file, from, to string) func(f *fixture) {
		return func(f *fixture) {
			f.rewrite = func(name, content string) string {
				if name != file {
					return content
				}
				if !strings.Contains(content, from) {
					panic(from + " is not in " + file)
				}
				return strings.Replace(content, from, to, 1)
			}
		}
	}
	for _, c := range []struct {
		name   string
		change func(f *fixture)
		kind   lab27.Kind
		place  string
	}{
		{"a hole in n", func(f *fixture) { f.submissions[50].n++ }, lab27.Order, "requests.jsonl, line 52"},
		{"a hole in the handlers' n", func(f *fixture) { f.presentations[50].n++ }, lab27.Order, "presented.jsonl, line 52"},
		{"a request missing", func(f *fixture) { f.submissions = f.submissions[:len(f.submissions)-1] }, lab27.Count, "presented.jsonl, line 720"},
		{"a handler missing", func(f *fixture) { f.presentations = f.presentations[:len(f.presentations)-1] }, lab27.Count, "summary.json, line 1"},
		{"counts that do not add up", func(f *fixture) { f.dropped = 1 }, lab27.Count, "summary.json, line 1"},
		{"a request never committed", func(f *fixture) { f.submissions[9].commit = 0 }, lab27.Count, "requests.jsonl, line 11"},
		{"committed before it was requested", func(f *fixture) { f.submissions[9].commit = f.submissions[9].request - 1 }, lab27.Clock, "requests.jsonl, line 11"},
		{"committed after the stop", func(f *fixture) { f.submissions[718].commit = f.stopMach + 1 }, lab27.Clock, "requests.jsonl, line 720"},
		{"requests that do not rise", func(f *fixture) { f.submissions[9].request = f.submissions[8].commit }, lab27.Order, "requests.jsonl, line 11"},
		{"a delay where none was planned", func(f *fixture) { f.submissions[9].delay = 80 }, lab27.Count, "requests.jsonl, line 11"},
		{"a delay that did not take place", func(f *fixture) {
			for i := range f.submissions {
				if s := &f.submissions[i]; s.delay > 0 {
					s.commit = s.request + 79*msTicks
					return
				}
			}
		}, lab27.Clock, "requests.jsonl, line 313"},
		{"an unknown phase", func(f *fixture) { f.submissions[9].phase = "warmup" }, lab27.Schema, "requests.jsonl, line 11"},
		{"phases out of order", func(f *fixture) { f.submissions[9].phase = "tail" }, lab27.Phase, "requests.jsonl, line 12"},
		{"a handler of another phase", func(f *fixture) { f.presentations[9].phase = "normal" }, lab27.Phase, "presented.jsonl, line 11"},
		{"another drawable than was submitted", func(f *fixture) { f.presentations[9].drawable = 5 }, lab27.Count, "presented.jsonl, line 11"},
		{"presentedTime that does not rise", func(f *fixture) { f.row(10).ns = f.row(9).ns }, lab27.Order, "presented.jsonl, line 11"},
		{"presentedTime before its request", func(f *fixture) { f.row(1).ns = ns(f.submissions[0].request) - 1 }, lab27.Clock, "presented.jsonl, line 2"},
		{"presentedTime a second and more after its handler", func(f *fixture) { f.row(719).ns = ns(f.row(719).callback) + 1_000_000_001 }, lab27.Clock, "presented.jsonl, line 720"},
		{"presented at zero", func(f *fixture) { f.row(10).ns = 0 }, lab27.Count, "presented.jsonl, line 11"},
		{"dropped with a time", func(f *fixture) { f.row(10).status = "dropped" }, lab27.Count, "presented.jsonl, line 11"},
		{"an unknown status", func(f *fixture) { f.row(10).status = "shown" }, lab27.Schema, "presented.jsonl, line 11"},
		{"missing with a callback", func(f *fixture) { f.row(10).status, f.row(10).ns = "missing", 0 }, lab27.Count, "presented.jsonl, line 11"},
		{"a handler before its request", func(f *fixture) { f.row(10).callback = f.submissions[9].request - 1 }, lab27.Clock, "presented.jsonl, line 11"},
		{"a phase too long", func(f *fixture) {
			// As long as 30 Hz allow, and a millisecond more.
			shift := int64(35 * msTicks)
			f.actual[0].end += shift
			f.actual[1].start += shift
			f.events[2] = fmt.Sprintf(`{"event":"phase","mach":%d,"phase":"normal"}`, f.actual[1].start)
		}, lab27.Phase, "summary.json, line 1"},
		{"a request outside its phase", func(f *fixture) { f.submissions[61].request-- }, lab27.Phase, "requests.jsonl, line 63"},
		{"phases that the events tell otherwise", func(f *fixture) { f.actual[2].start++; f.actual[1].end++ }, lab27.Phase, "summary.json, line 1"},
		{"a phase's requests miscounted", func(f *fixture) { f.actual[2].requests++ }, lab27.Count, "summary.json, line 1"},
		{"a phase left out", func(f *fixture) { f.actual = f.actual[:3] }, lab27.Phase, "summary.json, line 1"},
		{"another plan than the recipe's", func(f *fixture) { f.phases[1].hz = 120 }, lab27.Phase, "plan.json, line 1"},
		{"another length than the recipe's", func(f *fixture) { f.phases[3].lengthNs++ }, lab27.Phase, "plan.json, line 1"},
		{"no clock's timebase", func(f *fixture) { f.planTimebase = `{"numer":125000,"denom":3}` }, lab27.Clock, "plan.json, line 1"},
		{"an event out of order", func(f *fixture) { f.events[6], f.events[5] = f.events[5], f.events[6] }, lab27.Order, "events.jsonl, line 6"},
		{"events that go back in time", replace("events.jsonl", `"drain","mach":1`, `"drain","mach":`), lab27.Order, "events.jsonl, line 7"},
		{"no sealed at the end", func(f *fixture) { f.events = f.events[:7] }, lab27.Order, "events.jsonl, byte 0"},
		{"an unknown event", replace("events.jsonl", `"drain"`, `"drown"`), lab27.Schema, "events.jsonl, line 7"},
		{"an event with a member too many", replace("events.jsonl", `"reason":"finished"`, `"reason":"finished","why":1`), lab27.Schema, "events.jsonl, line 6"},
		{"a key twice", replace("plan.json", `"pid":431`, `"pid":431,"pid":431`), lab27.Schema, "plan.json, line 1"},
		{"a float for an integer", replace("requests.jsonl", `,0]`, `,0.0]`), lab27.Schema, "requests.jsonl, line 2"},
		{"a bool for a number", replace("requests.jsonl", `,0]`, `,false]`), lab27.Schema, "requests.jsonl, line 2"},
		{"a row with an element too many", replace("requests.jsonl", `,0]`, `,0,0]`), lab27.Schema, "requests.jsonl, line 2"},
		{"a row with an element too few", replace("requests.jsonl", `,0]`, `]`), lab27.Schema, "requests.jsonl, line 2"},
		{"a row that is more than a row", replace("requests.jsonl", "]\n", "],\"x\":[1]\n"), lab27.Schema, "requests.jsonl, line 2"},
		{"other columns", replace("presented.jsonl", `"surfaceId"`, `"surface"`), lab27.Schema, "presented.jsonl, line 1"},
		{"a time beyond int64", replace("presented.jsonl", "[1,\"baseline\",1", "[1,\"baseline\",99999999999999999999"), lab27.Schema, "presented.jsonl, line 2"},
		{"a time that no phone can say", replace("presented.jsonl", "[1,\"baseline\",1", "[1,\"baseline\",99991"), lab27.Clock, "presented.jsonl, line 2"},
		{"a formal run of a rehearsal's length", replace("plan.json", `"purpose":"study"`, `"purpose":"formal"`), lab27.Schema, "plan.json, line 1"},
		{"complete for another reason", func(f *fixture) { f.reason = "cancelled" }, lab27.Count, "summary.json, line 1"},
		{"partial though finished", func(f *fixture) { f.state = "partial" }, lab27.Count, "summary.json, line 1"},
		{"complete with a stray handler", func(f *fixture) { f.stray = 1 }, lab27.Count, "summary.json, line 1"},
		{"handler costs above their maximum", func(f *fixture) { f.handlerCost = `{"firstNs":1,"meanNs":3,"p95Ns":1,"maxNs":2}` }, lab27.Count, "summary.json, line 1"},
		{"no handler costs", func(f *fixture) { f.handlerCost = "null" }, lab27.Count, "summary.json, line 1"},
		{"a footprint above its peak", func(f *fixture) { f.peakBytes = 1 }, lab27.Count, "summary.json, line 1"},
		{"a bracket that runs backwards", func(f *fixture) { f.before[2] = f.before[0] - 1 }, lab27.Clock, "summary.json, line 1"},
		{"a bracket in the middle of the run", func(f *fixture) { f.after = f.before }, lab27.Clock, "summary.json, line 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, lab27.PurposeStudy, 100)
			c.change(f)
			r := f.report()
			if r.State != lab27.Invalid || !errors.Is(r.Err(), lab27.ErrInvalid) || !errors.Is(r.Err(), c.kind) {
				t.Fatalf("%s: %v", r.State, r.Err())
			}
			if first := r.Problems[0].Error(); !strings.HasPrefix(first, c.place+",") && !strings.HasPrefix(first, c.place+":") {
				t.Errorf("%s, want it at %s", first, c.place)
			}
		})
	}
}

func TestProblemsCarryFileLineAndByte(t *testing.T) {
	f := newFixture(t, lab27.PurposeStudy, 100)
	f.submissions[9].drawable = 55
	files := f.contents()
	r := f.report()
	p := r.Problems[0]
	row := int64(strings.Index(files["presented.jsonl"], "\n[10,") + 1)
	if p.File != "presented.jsonl" || p.Line != 11 || p.Byte != row || p.Detail != "drawable 110, submitted as 55" {
		t.Errorf("%+v", p)
	}
	// A fault of a value is named by the byte at which it stands.
	f = newFixture(t, lab27.PurposeStudy, 100)
	f.rewrite = func(name, content string) string {
		return strings.Replace(content, `[10,"baseline"`, `[10,"bassline"`, 1)
	}
	p = f.report().Problems[0]
	behind := int64(strings.Index(f.contents()["requests.jsonl"], `[10,"bassline"`) + len(`[10,"bassline"`))
	if p.Byte != behind || p.Line != 11 || p.Detail != "row[1]: unknown phase" {
		t.Errorf("%+v", p)
	}
}

func TestBoundsOfTheContract(t *testing.T) {
	long := func(n int) func(f *fixture) { // a run of so many requests, all in one phase
		return func(f *fixture) {
			f.actual = f.actual[:1]
			f.state, f.reason = "partial", "requests-bound"
			f.submissions, f.presentations = nil, nil
			start := f.actual[0].start
			for i := range int64(n) {
				at := start + i*200
				f.submissions = append(f.submissions, submission{int(i + 1), "baseline", at, at + 100, i + 1, 0})
				f.presentations = append(f.presentations, presentation{int(i + 1), "baseline", at + 150, i + 1, 0, ns(at + 120), "presented"})
			}
			f.actual[0].requests, f.actual[0].end, f.stopMach = n, start+int64(n)*200, start+int64(n)*200
			f.events = append(f.events[:2], fmt.Sprintf(`{"event":"stop","mach":%d,"reason":"requests-bound"}`, f.stopMach), fmt.Sprintf(`{"event":"drain","mach":%d,"outstanding":0}`, f.stopMach),
				fmt.Sprintf(`{"event":"sealed","mach":%d,"state":"partial"}`, f.stopMach))
		}
	}
	lateHandler := func(lateNs int64) func(f *fixture) {
		return func(f *fixture) {
			f.presentations[len(f.presentations)-1].callback = f.stopMach + 24_000_000 + lateNs*3/125
		}
	}
	life := func(to string) func(f *fixture) {
		return func(f *fixture) {
			f.rewrite = func(name, content string) string { return strings.Replace(content, "09:40:00Z", to, 1) }
		}
	}
	padded := func(bytes int) func(f *fixture) { // spaces in the rows, as another writer might put there
		return func(f *fixture) {
			spaces := 0
			f.rewrite = func(name, content string) string {
				if name != "requests.jsonl" {
					return content
				}
				rows := strings.SplitAfter(content, "\n")
				for i, rest := 1, spaces; rest > 0; i++ {
					n := min(rest, 900)
					rows[i] = strings.Replace(rows[i], "]", strings.Repeat(" ", n)+"]", 1)
					rest -= n
				}
				return strings.Join(rows, "")
			}
			for range 2 { // the summary grows with the length that it tells
				total := 0
				for _, content := range f.contents() {
					total += len(content)
				}
				spaces += bytes - total
			}
		}
	}
	for _, c := range []struct {
		name   string
		change func(f *fixture)
		want   lab27.State
		kind   lab27.Kind
	}{
		{"10,000 requests", long(10_000), lab27.Partial, ""},
		{"10,001 requests", long(10_001), lab27.Invalid, lab27.Bounds},
		{"a queue of 128", func(f *fixture) { f.queuePeak = 128 }, lab27.Complete, ""},
		{"a queue of 129", func(f *fixture) { f.queuePeak = 129 }, lab27.Invalid, lab27.Bounds},
		{"a handler a second after the stop", lateHandler(0), lab27.Complete, ""},
		{"a handler a second and a tick after it", lateHandler(42), lab27.Invalid, lab27.Bounds},
		{"a request of ten minutes", life("09:40:00Z"), lab27.Complete, ""},
		{"a request of ten minutes and a nanosecond", life("09:40:00.000000001Z"), lab27.Invalid, lab27.Schema},
		{"2 MiB", padded(2 << 20), lab27.Complete, ""},
		{"2 MiB and a byte", padded(2<<20 + 1), lab27.Invalid, lab27.Bounds},
		{"a line of more than 1,024 bytes", func(f *fixture) {
			f.rewrite = func(name, content string) string {
				return strings.Replace(content, "[7,", "["+strings.Repeat(" ", 1024)+"7,", 1)
			}
		}, lab27.Invalid, lab27.Bounds},
		{"a plan of more than 64 KiB", func(f *fixture) {
			f.rewrite = func(name, content string) string {
				return strings.Replace(content, `{"schema":"lab27.plan/1"`, strings.Repeat(" ", 64<<10)+`{"schema":"lab27.plan/1"`, 1)
			}
		}, lab27.Invalid, lab27.Bounds},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, lab27.PurposeStudy, 1000)
			c.change(f)
			r := lab27.Validate(f.files(), nil)
			if r.State != c.want || c.want == lab27.Partial && r.ProblemCount > 0 {
				t.Fatalf("%s: %v", r.State, r.Err())
			}
			if c.kind != "" && !errors.Is(r.Err(), c.kind) {
				found := false
				for _, p := range r.Problems {
					found = found || p.Kind == c.kind
				}
				if !found {
					t.Errorf("no problem of kind %s: %v", c.kind, r.Err())
				}
			}
		})
	}
}

func TestOneNonceOneRun(t *testing.T) {
	f := newFixture(t, lab27.PurposeStudy, 100)
	other := f.request
	other.Nonce = "00000000-0000-4000-8000-000000000000"
	if r := lab27.Validate(f.files(), &other); r.State != lab27.Invalid || !errors.Is(r.Err(), lab27.Other) {
		t.Errorf("another nonce than was sent: %s: %v", r.State, r.Err())
	}
	// The summary of another run in this one's directory.
	stranger := newFixture(t, lab27.PurposeStudy, 100)
	stranger.rewrite = func(name, content string) string { return strings.ReplaceAll(content, nonce, other.Nonce) }
	if r := lab27.Validate(stranger.files(), nil); r.State != lab27.Invalid || !errors.Is(r.Err(), lab27.Other) {
		t.Errorf("a plan of another nonce than the summary: %s: %v", r.State, r.Err())
	}
}

// Whatever is cut off a bundle, wherever: it is partial, says at which byte, and never complete.
func TestEveryTornEndIsPartial(t *testing.T) {
	f := newFixture(t, lab27.PurposeRehearsal, 10)
	whole := f.files()
	for _, name := range lab27.BundleFiles {
		data := whole[name].Data
		for cut := 0; cut < len(data); cut += max(1, len(data)/150) {
			files := fstest.MapFS{}
			for other, file := range whole {
				files[other] = file
			}
			files[name] = &fstest.MapFile{Data: data[:cut]}
			r := lab27.Validate(files, &f.request)
			if r.State != lab27.Partial || !errors.Is(r.Err(), lab27.ErrPartial) || !errors.Is(r.Err(), lab27.Torn) {
				t.Fatalf("%s cut to %d of %d bytes: %s: %v", name, cut, len(data), r.State, r.Err())
			}
			p := r.Problems[0]
			// The whole lines before it stay; the place is where the rest begins, or the end of the file.
			if from := int64(bytes.LastIndexByte(data[:cut], '\n') + 1); p.File != name || p.Byte != from && p.Byte != int64(cut) {
				t.Fatalf("%s cut to %d: %v", name, cut, p)
			}
		}
	}
}

func TestUnsealedBundleIsPartial(t *testing.T) {
	f := newFixture(t, lab27.PurposeRehearsal, 10)
	// In the order in which the app writes: the plan at the start, the rest when it seals.
	files := f.files()
	names := []string{"summary.json", "events.jsonl", "presented.jsonl", "requests.jsonl", "plan.json"}
	for i, name := range names {
		delete(files, name)
		end, at := "summary.json", int64(0)
		if i+1 < len(names) {
			end = names[i+1]
			at = int64(len(files[end].Data))
		}
		r := lab27.Validate(files, nil)
		if r.State != lab27.Partial || !errors.Is(r.Err(), lab27.Unsealed) || r.ProblemCount != 1 || r.Problems[0].File != end || r.Problems[0].Byte != at {
			t.Errorf("down to %d files: %s: %v, want it to end at byte %d of %s", len(files), r.State, r.Err(), at, end)
		}
	}
}

func TestFileMissingFromASealedBundleMakesItInvalid(t *testing.T) {
	for _, name := range []string{"plan.json", "events.jsonl", "requests.jsonl", "presented.jsonl"} {
		files := newFixture(t, lab27.PurposeRehearsal, 10).files()
		delete(files, name)
		if r := lab27.Validate(files, nil); r.State != lab27.Invalid || !errors.Is(r.Err(), lab27.Missing) {
			t.Errorf("%s: %s: %v", name, r.State, r.Err())
		}
	}
}

func TestSummaryIsReadByItselfForAPull(t *testing.T) {
	files := newFixture(t, lab27.PurposeRehearsal, 10).contents()
	s, err := lab27.ParseSummary([]byte(files["summary.json"]))
	if err != nil {
		t.Fatal(err)
	}
	for i, seal := range s.Files {
		content := files[lab27.BundleFiles[i]]
		if seal.Bytes != int64(len(content)) || seal.SHA256 != fmt.Sprintf("%x", sha256.Sum256([]byte(content))) {
			t.Errorf("%s: %+v", lab27.BundleFiles[i], seal)
		}
	}
	for _, c := range []struct {
		from, to string
		kind     lab27.Kind
	}{
		{`"submitted":`, `"admitted":`, lab27.Schema}, {`"presented":`, `"presented":-`, lab27.Schema}, {`,"seal"`, `,"sael"`, lab27.Schema}, {"}\n", "}", lab27.Torn},
		{`"run-1"`, `"run-2"`, lab27.Hash}, {`"queuePeak":2`, `"queuePeak":1`, lab27.Hash}, {`,"seal"`, ` ,"seal"`, lab27.Hash}, {"}\n", "} \n", lab27.Hash},
	} {
		if _, err := lab27.ParseSummary([]byte(strings.Replace(files["summary.json"], c.from, c.to, 1))); !errors.Is(err, c.kind) {
			t.Errorf("%s to %s: %v, want %s", c.from, c.to, err, c.kind)
		}
	}
	if _, err := lab27.ParseSummary(make([]byte, 1<<17)); !errors.Is(err, lab27.Bounds) {
		t.Errorf("%v", err)
	}
}
