package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestNothingIsRoundedToPassAGate(t *testing.T) {
	limit := ratio{115, 100}
	for _, c := range []struct {
		r     ratio
		above bool
	}{
		{ratio{11_500_001, 10_000_000}, true}, // 1.1500001
		{ratio{11_500_000, 10_000_000}, false},
		{ratio{115_000_000_000_1, 100_000_000_000_0}, true},
		{ratio{1, 2}, false},
	} {
		if got := c.r.above(limit); got != c.above {
			t.Errorf("%d / %d above 1.15: %t, want %t", c.r.A, c.r.B, got, c.above)
		}
	}
	if got := exact(1.1500001); got != "1.1500001" {
		t.Errorf("1.1500001 is shown as %s", got)
	}
}

func TestAResultNeverReplacesAnother(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "bench")
	now := time.Date(2026, 11, 29, 22, 0, 0, 0, time.UTC)
	for _, want := range []string{"p95-20261129T220000Z-00.json", "p95-20261129T220000Z-01.json", "p95-20261129T220000Z-02.json"} {
		f, err := newFile(dir, now)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		if filepath.Base(f.Name()) != want {
			t.Errorf("%s, want %s", f.Name(), want)
		}
	}
	for i := range 100 {
		f, err := newFile(dir, now)
		if i >= 97 {
			if err == nil {
				t.Errorf("result %d of one second goes to %s", i+4, f.Name())
			}
			continue
		}
		f.Close()
	}
}

// synthetic is scene a with runs that take what is given, in ns.
func synthetic(offNs, onNs int64) *report {
	s := sceneResult{Name: "a", Records: 50_000, WireBytes: 50_000 * 275, Publication: publicationFigures{Count: 50_000, FirstNs: 900, MeanNs: 110, P95Ns: 100, MaxNs: 50_000}}
	s.Runs = []runFigures{{Mode: on, WarmUp: true, WallNs: 1, CPUNs: 1}, {Mode: none, WallNs: offNs / 2, CPUNs: offNs / 2, AllocatedBytes: 100},
		{Mode: off, WallNs: offNs + 7, CPUNs: offNs}, {Mode: on, WallNs: onNs, CPUNs: onNs + 9, AllocatedBytes: 500}, {Mode: on, WallNs: onNs + 5, CPUNs: onNs, AllocatedBytes: 400},
		{Mode: off, WallNs: offNs, CPUNs: offNs + 3}}
	s.conclude()
	r := newReport("26.0")
	r.Scenes = []sceneResult{s}
	r.judge()
	return r
}

func TestOneRatioOverItsGateFailsTheWhole(t *testing.T) {
	if r := synthetic(100_000_000, 115_000_000); !r.Passed || r.Scenes[0].WallRatio != 1.15 || r.Scenes[0].CPURatio != 1.15 || r.Scenes[0].MemoryBytes != 300 {
		t.Errorf("passed %t, wall %v, CPU %v, memory %d; want a pass at 1.15 and 300 bytes", r.Passed, r.Scenes[0].WallRatio, r.Scenes[0].CPURatio, r.Scenes[0].MemoryBytes)
	}
	r := synthetic(100_000_000, 115_000_010)
	if r.Passed {
		t.Error("1.1500001 passes")
	}
	var out bytes.Buffer
	r.print(&out, "bench/x.json")
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	for i, want := range []string{"a  on / off  wall 1.1500001  CPU 1.1500001", "a  ns per record  off 2000  on 2300"} {
		if got := lines[len(lines)-2+i]; got != want {
			t.Errorf("last lines end with %q, want %q", got, want)
		}
	}
	if want := "FAILED  a wall, on / off"; !strings.Contains(out.String(), want) || !strings.Contains(out.String(), "aim 1.1: missed by 0.0500001") {
		t.Errorf("no %q, or no distance to the aim, in\n%s", want, out.String())
	}
}

// The pipeline is the recorder's own: with the window on or off, the same records come out of the same bytes.
func TestRunsDoTheWorkThatTheyMeasure(t *testing.T) {
	for _, s := range []sceneSpec{{Name: "each second", Seconds: 13}, {Name: "each record", Seconds: 13, Records: 1500, EachRecord: true}} {
		in, err := newInput(s, "26.0")
		if err != nil {
			t.Fatal(err)
		}
		want := map[mode]int64{none: 0, off: 13, on: 13}
		records := int64(13*120 - 1)
		if s.EachRecord {
			records = 1500
			want = map[mode]int64{none: 0, off: 1499, on: 1499}
		}
		for _, m := range []mode{none, off, on} {
			o, err := in.run(s, m, nil)
			if err != nil || o.records != records || o.figures.Publications != want[m] {
				t.Errorf("%s, %s: %v, %d records, %d publications; want %d and %d", s.Name, m, err, o.records, o.figures.Publications, records, want[m])
			}
		}
		watch := &stopwatch{}
		if _, err := in.run(s, on, watch); err != nil || int64(len(watch.took)) != want[on] || watch.figures().FirstNs <= 0 {
			t.Errorf("%s: %v, %d publications timed", s.Name, err, len(watch.took))
		}
	}
}

func TestTheWindowAloneIsFullWhenItIsMeasured(t *testing.T) {
	for _, k := range []int64{1200, 4096} {
		if f := (&windowFigures{}).at(steady(k)); f.Values < k-5 || f.Values > k {
			t.Errorf("the window holds %d values, want about %d", f.Values, k)
		}
	}
}

func TestAResultIsWrittenWholeEvenWhereAGateFails(t *testing.T) {
	saved := scenes
	defer func() { scenes = saved }()
	scenes = []sceneSpec{{Name: "b", What: "a short one", Seconds: 13, Runs: 3, Gate: ratio{1, 100}, Aim: ratio{1, 100}}}
	dir := t.TempDir()
	passed, err := run(dir, "26.0", 0, "b")
	if passed || err != nil {
		t.Errorf("passed %t, %v; want a failure of the gate", passed, err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.json"))
	if len(files) != 1 {
		t.Fatalf("files %v", files)
	}
	text, _ := os.ReadFile(files[0])
	for _, word := range []string{`"passed": false`, `"mode": "none"`, `"mode": "off"`, `"mode": "on"`, `"wallNs"`, `"cpuNs"`, `"firstNs"`, `"p95Ns"`, `"allocations"`, `"memoryBytes"`} {
		if !strings.Contains(string(text), word) {
			t.Errorf("the result lacks %s", word)
		}
	}
}
