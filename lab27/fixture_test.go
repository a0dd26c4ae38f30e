package lab27_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/lab27"
)

const (
	digest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	nonce  = "6b1f3c4e-2a55-4d0c-9a7e-0f1e2d3c4b5a"

	msTicks       = 24_000 // at 125/3
	bootMach      = 1_536_005_260_807
	sleptTicks    = 177_678_871_881 // a real phone's: it had slept for 7,403 s
	refreshTicks  = 199_999         // a real panel's at 120 Hz
	commitTicks   = 5_000
	handlerTicks  = 2_000 // from glass to its handler
	bracketTicks  = 12
	bracketMiddle = bracketTicks / 2
)

var (
	timebase  = adapter.Timebase{Numer: 125, Denom: 3}
	wallStart = time.Date(2025, 11, 3, 9, 30, 0, 0, time.UTC)
)

// fixture is a bundle as a phone would write it, told by this file alone: no code of the app's core or of the package's takes part. A
// test changes what it wants to see go wrong and calls files.
type fixture struct {
	request lab27.Request

	planTimebase  string
	phases        []planned
	actual        []actual
	events        []string
	submissions   []submission
	presentations []presentation
	frames        []lab27.Frame // of the session around it

	stopMach         int64
	before, after    [3]int64 // absolute, continuous, absolute
	mediaSkewNs      int64
	state, reason    string
	outstanding      int
	queuePeak, stray int
	cpuUsedNs        int64
	peakBytes        int64
	handlerCost      string
	writes           int
	usage            bool
	submitted        int // said by the summary; -1 = the truth
	presented        int
	dropped          int
	rewrite          func(name, content string) string // before hashing
}

type planned struct {
	name                             string
	startNs, lengthNs, hz, ms, every int64
}

type actual struct {
	name       string
	start, end int64
	requests   int
}

type submission struct {
	n                                int
	phase                            string
	request, commit, drawable, delay int64
}

type presentation struct {
	n                           int
	phase                       string
	callback, drawable, surface int64
	ns                          int64
	status                      string
}

func ns(ticks int64) int64 { return ticks/3*125 + ticks%3*125/3 }

// newFixture is a complete run in which everything went as planned, with the frames that the session recorded around it.
func newFixture(t testing.TB, purpose lab27.Purpose, permille int64) *fixture {
	t.Helper()
	r, err := lab27.NewRequest("run-1", purpose, permille, "1.0", digest, nonce, wallStart)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{
		request: r, planTimebase: `{"numer":125,"denom":3}`, state: "complete", reason: "finished", queuePeak: 2, cpuUsedNs: 1_400_000_000, usage: true,
		peakBytes: 48 << 20, handlerCost: `{"firstNs":4125,"meanNs":375,"p95Ns":500,"maxNs":4125}`, submitted: -1, presented: -1, dropped: -1,
		before: [3]int64{bootMach, bootMach + bracketMiddle + sleptTicks, bootMach + bracketTicks},
		phases: []planned{{"baseline", 0, 20_000_000, 30, 0, 0}, {"normal", 20_000_000, 40_000_000, 60, 0, 0}, {"tail", 60_000_000, 40_000_000, 60, 80, 12}, {"recovery", 100_000_000, 40_000_000, 60, 0, 0}},
	}
	for i := range f.phases {
		f.phases[i].startNs *= permille
		f.phases[i].lengthNs *= permille
	}
	f.run()
	return f
}

func (f *fixture) event(mach int64, format string, args ...any) {
	name, more, _ := strings.Cut(fmt.Sprintf(format, args...), ",")
	if more != "" {
		more = "," + more
	}
	f.events = append(f.events, fmt.Sprintf(`{"event":"%s","mach":%d%s}`, name, mach, more))
}

// run is the life of the app: a beat of the display link at every second refresh, every fourth in the baseline; a drawable is shown at the
// second refresh after its commit, one at each.
func (f *fixture) run() {
	beat := func(after, every int64) int64 { return (after/(every*refreshTicks) + 1) * every * refreshTicks }
	f.event(bootMach+100, "admitted")
	now := beat(bootMach+100, 4)
	start := now
	lastGlass := now
	f.frame(now-2*refreshTicks, now-6*refreshTicks, 7) // the screen before the app drew
	for _, p := range f.phases {
		f.event(now, `phase,"phase":"%s"`, p.name)
		f.actual = append(f.actual, actual{name: p.name, start: now})
		a := &f.actual[len(f.actual)-1]
		every := int64(2)
		if p.hz == 30 {
			every = 4
		}
		for ns(now-start) < p.startNs+p.lengthNs {
			delay := int64(0)
			if p.every > 0 && int64(a.requests+1)%p.every == 0 {
				delay = p.ms
			}
			if ns(now-start)+delay*1_000_000 <= p.startNs+p.lengthNs {
				a.requests++
				n := len(f.submissions) + 1
				commit := now + commitTicks + delay*msTicks
				f.submissions = append(f.submissions, submission{n, p.name, now, commit, int64(100 + n), delay})
				glass := max(beat(commit, 1)+refreshTicks, lastGlass+refreshTicks)
				surface := int64(289 + n%3)
				f.presentations = append(f.presentations, presentation{n, p.name, glass + handlerTicks, int64(100 + n), surface, ns(glass), "presented"})
				f.frame(glass, lastGlass, surface)
				lastGlass = glass
				now = commit
			}
			now = beat(now, every)
		}
		a.end = now
	}
	f.frame(lastGlass+12*refreshTicks, lastGlass, 7)
	f.frames[1].PreviousMach = f.frames[0].EndMach
	f.stopMach = now
	f.event(now, `stop,"reason":"finished"`)
	drained := now + 4*refreshTicks
	f.event(drained, `drain,"outstanding":0`)
	f.after = [3]int64{drained + 10, drained + 10 + bracketMiddle + sleptTicks, drained + 10 + bracketTicks}
	f.event(drained+40, `sealed,"state":"complete"`)
}

func (f *fixture) frame(glass, previous, surface int64) {
	f.frames = append(f.frames, lab27.Frame{
		RawSequence: int64(len(f.frames) + 1), EndMach: glass + sleptTicks, PreviousMach: previous + sleptTicks, DisplayID: 1, SurfaceID: surface, HasEnd: true, Valid: true,
	})
}

// frameOf is the frame that showed submission n.
func (f *fixture) frameOf(n int) *lab27.Frame { return &f.frames[n] }

func (f *fixture) row(n int) *presentation { return &f.presentations[n-1] }

// is tells that a figure is there, and which.
func is(figure *int64, want int64) bool { return figure != nil && *figure == want }

func fraction(ns int64) string { return fmt.Sprintf("%d.%09d", ns/1_000_000_000, ns%1_000_000_000) }

// contents writes the five files.
func (f *fixture) contents() map[string]string {
	var plan, requests, presented strings.Builder
	fmt.Fprintf(&plan, `{"schema":"lab27.plan/1","request":%s,"app":{"bundleId":"com.framebridge.lab27","version":"1.0","sourceDigest":"%s","pid":431},`, strings.TrimSpace(string(f.request.AppendJSON(nil))), digest)
	fmt.Fprintf(&plan, `"device":{"model":"iPhone15,2","osVersion":"18.5","maximumHz":120,"simulated":true},"timebase":%s,"phases":[`, f.planTimebase)
	for i, p := range f.phases {
		fmt.Fprintf(&plan, `%s{"name":"%s","startNs":%d,"lengthNs":%d,"requestedHz":%d,"delayMs":%d,"delayEvery":%d}`, comma(i), p.name, p.startNs, p.lengthNs, p.hz, p.ms, p.every)
	}
	plan.WriteString("]}\n")
	requests.WriteString(`{"columns":["n","phase","requestMach","commitMach","drawableId","delayMs"]}` + "\n")
	for _, s := range f.submissions {
		fmt.Fprintf(&requests, "[%d,\"%s\",%d,%d,%d,%d]\n", s.n, s.phase, s.request, s.commit, s.drawable, s.delay)
	}
	presented.WriteString(`{"columns":["n","phase","callbackMach","drawableId","surfaceId","presentedTime","status"]}` + "\n")
	counts := map[string]int{}
	for _, p := range f.presentations {
		fmt.Fprintf(&presented, "[%d,\"%s\",%d,%d,%d,%s,\"%s\"]\n", p.n, p.phase, p.callback, p.drawable, p.surface, fraction(p.ns), p.status)
		counts[p.status]++
	}
	files := map[string]string{
		"plan.json": plan.String(), "events.jsonl": strings.Join(f.events, "\n") + "\n", "requests.jsonl": requests.String(), "presented.jsonl": presented.String(),
	}
	if f.rewrite != nil {
		for name, content := range files {
			files[name] = f.rewrite(name, content)
		}
	}
	files["summary.json"] = f.summary(files, counts)
	return files
}

func comma(i int) string { return [...]string{"", ","}[min(i, 1)] }

func truth(said, is int) int {
	if said >= 0 {
		return said
	}
	return is
}

func (f *fixture) summary(files map[string]string, counts map[string]int) string {
	var s strings.Builder
	fmt.Fprintf(&s, `{"schema":"lab27.summary/1","state":"%s","reason":"%s","runName":"%s","nonce":"%s","phases":[`, f.state, f.reason, f.request.RunName, f.request.Nonce)
	for i, a := range f.actual {
		fmt.Fprintf(&s, `%s{"name":"%s","startMach":%d,"endMach":%d,"requests":%d}`, comma(i), a.name, a.start, a.end, a.requests)
	}
	committed := 0
	for _, r := range f.submissions {
		if r.commit > 0 {
			committed++
		}
	}
	fmt.Fprintf(&s, `],"submitted":%d,"committed":%d,"presented":%d,"dropped":%d,"outstanding":%d,"strayCallbacks":%d,"queuePeak":%d,`, truth(f.submitted, len(f.submissions)),
		committed, truth(f.presented, counts["presented"]), truth(f.dropped, counts["dropped"]), f.outstanding, f.stray, f.queuePeak)
	fmt.Fprintf(&s, `"idleRecovery":{"recovered":%t,"tookNs":33333166},"workloadReleased":true,"handlerCost":%s,`, f.outstanding == 0, f.handlerCost)
	if f.usage {
		fmt.Fprintf(&s, `"cpu":{"usedNs":%d,"wallNs":%d},"footprint":{"startBytes":41943040,"peakBytes":%d,"endBytes":41943040},`, f.cpuUsedNs, ns(f.stopMach-f.actual[0].start), f.peakBytes)
	} else {
		s.WriteString(`"cpu":null,"footprint":null,`)
	}
	fmt.Fprintf(&s, `"fileWritesWhileRunning":%d,"brackets":{`, f.writes)
	for i, b := range [][3]int64{f.before, f.after} {
		fmt.Fprintf(&s, `%s"%s":{"absoluteBeforeMach":%d,"mediaTime":%s,"continuousMach":%d,"absoluteAfterMach":%d}`, comma(i), [...]string{"before", "after"}[i], b[0], fraction(ns(b[0])+f.mediaSkewNs), b[1], b[2])
	}
	s.WriteString(`},"files":{`)
	for i, name := range []string{"plan.json", "events.jsonl", "requests.jsonl", "presented.jsonl"} {
		fmt.Fprintf(&s, `%s"%s":{"bytes":%d,"sha256":"%x"}`, comma(i), name, len(files[name]), sha256.Sum256([]byte(files[name])))
	}
	s.WriteString("}")
	return sealed(s.String())
}

// sealed puts the seal on a summary that lacks it.
func sealed(content string) string {
	return fmt.Sprintf("%s,\"seal\":\"%x\"}\n", content, sha256.Sum256([]byte(content)))
}

func (f *fixture) files() fstest.MapFS {
	files := fstest.MapFS{}
	for name, content := range f.contents() {
		files[name] = &fstest.MapFile{Data: []byte(content)}
	}
	return files
}

func (f *fixture) report() *lab27.Report { return lab27.Validate(f.files(), &f.request) }

func (f *fixture) qualify(t testing.TB) *lab27.Match {
	t.Helper()
	m, err := lab27.Qualify(lab27.MatchInput{Report: f.report(), Frames: f.frames, PrimaryDisplayID: 1, Timebase: timebase})
	if err != nil {
		t.Fatal(err)
	}
	return m
}
