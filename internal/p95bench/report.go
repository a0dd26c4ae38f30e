package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ratio is A / B. It is compared as what it is: nothing is rounded to pass.
type ratio struct{ A, B int64 }

// above reports whether r is over limit, however little.
func (r ratio) above(limit ratio) bool { return r.A*limit.B > limit.A*r.B }

func (r ratio) float() float64 { return float64(r.A) / float64(r.B) }

// runFigures are what one run took.
type runFigures struct {
	Mode           mode  `json:"mode"`
	WarmUp         bool  `json:"warmUp,omitempty"`
	WallNs         int64 `json:"wallNs"`
	CPUNs          int64 `json:"cpuNs"`
	Publications   int64 `json:"publications"`
	Allocations    int64 `json:"allocations"`
	AllocatedBytes int64 `json:"allocatedBytes"`
	LiveBytes      int64 `json:"liveBytes"` // on the heap after the run, beyond what was there before
}

// publicationFigures are of one publication without encoding, the stopwatch's own cost included.
type publicationFigures struct {
	Count   int64   `json:"count"`
	FirstNs int64   `json:"firstNs"`
	MeanNs  float64 `json:"meanNs"`
	P95Ns   int64   `json:"p95Ns"`
	MaxNs   int64   `json:"maxNs"`
}

type sceneResult struct {
	Name        string             `json:"name"`
	What        string             `json:"what"`
	Records     int64              `json:"records"`
	WireBytes   int64              `json:"wireBytes"`
	Runs        []runFigures       `json:"runs"` // in the order in which they were made
	Least       map[mode]least     `json:"least"`
	WallRatio   float64            `json:"wallRatio"`
	CPURatio    float64            `json:"cpuRatio"`
	Publication publicationFigures `json:"publication"`
	// MemoryBytes is all that the runs with the window allocated, garbage too, beyond those without any figures: memory cannot have
	// grown by more.
	MemoryBytes int64 `json:"memoryBytes"`
	wall, cpu   ratio
}

// least is the least of a mode's runs, the warm-up aside. The work is the same each time, and whatever disturbs a run only adds to it:
// on a machine that does other things besides, the least is what the work takes.
type least struct {
	WallNs         int64   `json:"wallNs"`
	CPUNs          int64   `json:"cpuNs"`
	AllocatedBytes int64   `json:"allocatedBytes"`
	NsPerRecord    float64 `json:"nsPerRecord"` // of CPU
}

// conclude works out what the runs say together.
func (s *sceneResult) conclude() {
	s.Least = map[mode]least{}
	for _, r := range s.Runs {
		if r.WarmUp {
			continue
		}
		l, seen := s.Least[r.Mode]
		if !seen {
			l = least{WallNs: r.WallNs, CPUNs: r.CPUNs, AllocatedBytes: r.AllocatedBytes}
		}
		l.WallNs, l.CPUNs, l.AllocatedBytes = min(l.WallNs, r.WallNs), min(l.CPUNs, r.CPUNs), min(l.AllocatedBytes, r.AllocatedBytes)
		l.NsPerRecord = float64(l.CPUNs) / float64(s.Records)
		s.Least[r.Mode] = l
	}
	s.wall = ratio{s.Least[on].WallNs, s.Least[off].WallNs}
	s.cpu = ratio{s.Least[on].CPUNs, s.Least[off].CPUNs}
	s.WallRatio, s.CPURatio = s.wall.float(), s.cpu.float()
	s.MemoryBytes = s.Least[on].AllocatedBytes - s.Least[none].AllocatedBytes
}

// gate is a figure and its limits.
type gate struct {
	Name     string   `json:"name"`
	Measured float64  `json:"measured"`
	Gate     *float64 `json:"gate"` // null where the contract has an aim alone
	Aim      float64  `json:"aim"`
	Unit     string   `json:"unit"`
	Passed   bool     `json:"passed"`
	AimMet   bool     `json:"aimMet"`
}

type report struct {
	Schema   string         `json:"schema"`
	At       time.Time      `json:"at"`
	Release  string         `json:"iosRelease"`
	Go       string         `json:"go"`
	CPU      string         `json:"cpu"`
	CPUs     int            `json:"cpus"`
	LoadFrom string         `json:"loadAtBegin"`
	LoadTo   string         `json:"loadAtEnd"`
	Scenes   []sceneResult  `json:"scenes"`
	Window   *windowFigures `json:"windowAlone"`
	Gates    []gate         `json:"gates"`
	Passed   bool           `json:"passed"`
}

func newReport(release string) *report {
	return &report{Schema: "framebridge.p95-bench/1", At: time.Now().UTC(), Release: release, Go: runtime.Version(), CPU: cpuModel(), CPUs: runtime.NumCPU(), LoadFrom: load()}
}

// judge holds every figure against its limits.
func (r *report) judge() {
	r.LoadTo = load()
	r.Passed = true
	add := func(g gate, passed, aimMet bool) {
		g.Passed, g.AimMet = passed, aimMet
		r.Gates = append(r.Gates, g)
		r.Passed = r.Passed && passed
	}
	limit := func(name, unit string, measured float64, hard, aim float64) {
		g := gate{Name: name, Measured: measured, Aim: aim, Unit: unit}
		if hard >= 0 {
			g.Gate = &hard
		}
		add(g, hard < 0 || measured <= hard, measured <= aim)
	}
	const noGate = -1
	for i := range r.Scenes {
		s := &r.Scenes[i]
		spec := scenes[slices.IndexFunc(scenes, func(c sceneSpec) bool { return c.Name == s.Name })]
		hard := spec.Gate.float()
		for _, c := range [...]struct {
			name string
			of   ratio
		}{{"wall, on / off", s.wall}, {"CPU, on / off", s.cpu}} {
			add(gate{Name: s.Name + " " + c.name, Measured: c.of.float(), Gate: &hard, Aim: spec.Aim.float()}, !c.of.above(spec.Gate), !c.of.above(spec.Aim))
		}
		limit(s.Name+" publication, mean", "ns", s.Publication.MeanNs, 1_000_000, 1_000)
		limit(s.Name+" publication, P95", "ns", float64(s.Publication.P95Ns), 1_000_000, 1_000)
		limit(s.Name+" memory growth", "bytes", float64(s.MemoryBytes), 8<<20, 1<<20)
	}
	if w := r.Window; w != nil {
		limit("a record through the window at 1,200 values", "ns", w.At1200.RecordNs, noGate, 150)
		limit("a record through the window at 4,096 values", "ns", w.At4096.RecordNs, noGate, 300)
		limit("allocations per record in p95", "", w.AllocationsPerRecord, 0, 0)
		limit("allocations per publication in p95", "", w.AllocationsPerPublication, 0, 0)
	}
}

// print tells everything. The last lines are the ratios, and a record's cost with the window off and on.
func (r *report) print(w io.Writer, file string) {
	fmt.Fprintf(w, "iOS %s, %s, %d CPUs, %s, load %s to %s\n", r.Release, r.CPU, r.CPUs, r.Go, r.LoadFrom, r.LoadTo)
	for _, s := range r.Scenes {
		fmt.Fprintf(w, "\n%s  %s: %d records of %d bytes\n", s.Name, s.What, s.Records, s.WireBytes/s.Records)
		p := s.Publication
		fmt.Fprintf(w, "   publication  first %d ns, mean %.0f ns, P95 %d ns, max %d ns, of %d\n", p.FirstNs, p.MeanNs, p.P95Ns, p.MaxNs, p.Count)
		fmt.Fprintf(w, "   memory       %d bytes allocated with figures and window, beyond those without\n", s.MemoryBytes)
		fmt.Fprintf(w, "   wall         off %.1f ms, on %.1f ms (without any figures %.1f ms)\n", ms(s.Least[off].WallNs), ms(s.Least[on].WallNs), ms(s.Least[none].WallNs))
		fmt.Fprintf(w, "   CPU          off %.1f ms, on %.1f ms (without any figures %.1f ms)\n", ms(s.Least[off].CPUNs), ms(s.Least[on].CPUNs), ms(s.Least[none].CPUNs))
	}
	if r.Window != nil {
		fmt.Fprintln(w)
		for _, k := range [...]atK{r.Window.At1200, r.Window.At4096} {
			fmt.Fprintf(w, "the window alone, %d values: a record %.0f ns, beyond %.0f ns of the other figures; a publication %.0f ns\n", k.Values, k.RecordNs, k.OthersNs, k.PublicationNs)
		}
	}
	fmt.Fprintln(w)
	for _, g := range r.Gates {
		fmt.Fprintln(w, g)
	}
	fmt.Fprintf(w, "\n%s\n\n", file)
	for _, s := range r.Scenes {
		fmt.Fprintf(w, "%s  on / off  wall %s  CPU %s\n", s.Name, exact(s.WallRatio), exact(s.CPURatio))
	}
	for _, s := range r.Scenes {
		fmt.Fprintf(w, "%s  ns per record  off %.0f  on %.0f\n", s.Name, s.Least[off].NsPerRecord, s.Least[on].NsPerRecord)
	}
}

func (g gate) String() string {
	verdict, limits := "ok    ", "no gate"
	if !g.Passed {
		verdict = "FAILED"
	}
	if g.Gate != nil {
		limits = "gate " + exact(*g.Gate)
	}
	aim := "met"
	if !g.AimMet {
		aim = "missed by " + exact(g.Measured-g.Aim)
	}
	return strings.TrimRight(fmt.Sprintf("%s  %-45s %s %s (%s; aim %s: %s)", verdict, g.Name, exact(g.Measured), g.Unit, limits, exact(g.Aim), aim), " ")
}

// exact is a figure with all the digits that matter: one over a gate never looks like the gate.
func exact(v float64) string { return strconv.FormatFloat(v, 'g', 10, 64) }

func ms(ns int64) float64 { return float64(ns) / 1e6 }

// load is the machine's load average, "" where it is not told: a busy machine's wall times say little.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

func cpuModel() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	_, rest, ok := bytes.Cut(text, []byte("model name"))
	if !ok {
		return runtime.GOARCH
	}
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	return string(bytes.TrimLeft(line, "\t :"))
}
