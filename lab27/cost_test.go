package lab27_test

import (
	"strings"
	"testing"

	"github.com/framebridge/framebridge/lab27"
)

var linearHost = []lab27.HostSample{{Rows: 2000, Ns: 1_000_000}, {Rows: 8000, Ns: 4_100_000}}

// costRuns are a run without the reference and one with it, which cost the same.
func costRuns(t *testing.T) (off, on *fixture) {
	off, on = newFixture(t, lab27.PurposeCostOff, 100), newFixture(t, lab27.PurposeCostOn, 100)
	off.presentations, off.handlerCost = nil, "null"
	return off, on
}

// cost is the verdict on two bundles that were recorded by nobody.
func cost(off, on *fixture, host []lab27.HostSample) lab27.CostVerdict {
	return lab27.Cost(lab27.CostRun{Report: off.report()}, lab27.CostRun{Report: on.report()}, host)
}

func TestReferenceWithinItsCostPasses(t *testing.T) {
	off, on := costRuns(t)
	v := cost(off, on, linearHost)
	if !v.Pass || !v.Rehearsal || len(v.Gates) != 11 {
		t.Fatalf("%+v", v)
	}
	measured := map[string]string{}
	for _, g := range v.Gates {
		measured[g.Name] = g.Measured
	}
	if measured["cpu"] != "0.000000 percentage points" || measured["footprint"] != "0 bytes" || measured["handler-p95"] != "500 ns" || measured["host-linear"] != "1.025 times" {
		t.Errorf("%v", measured)
	}
}

func TestCostGatesAtTheirBounds(t *testing.T) {
	for _, c := range []struct {
		name   string
		gate   string // that fails; "" = none
		change func(off, on *fixture, host *[]lab27.HostSample)
	}{
		{"two points of a core", "", func(off, on *fixture, _ *[]lab27.HostSample) {
			wall := ns(on.stopMach - on.actual[0].start) // 14,016,596,833 ns: two points of it are 280,331,936.66
			on.cpuUsedNs = off.cpuUsedNs + wall*2/100
		}},
		{"a nanosecond more", "cpu", func(off, on *fixture, _ *[]lab27.HostSample) {
			on.cpuUsedNs = off.cpuUsedNs + ns(on.stopMach-on.actual[0].start)*2/100 + 1
		}},
		{"8 MiB", "", func(off, on *fixture, _ *[]lab27.HostSample) { on.peakBytes = off.peakBytes + 8<<20 }},
		{"8 MiB and a byte", "footprint", func(off, on *fixture, _ *[]lab27.HostSample) { on.peakBytes = off.peakBytes + 8<<20 + 1 }},
		{"a millisecond", "", func(_, on *fixture, _ *[]lab27.HostSample) {
			on.handlerCost = `{"firstNs":1,"meanNs":1000000,"p95Ns":1000000,"maxNs":9000000}`
		}},
		{"a mean above it", "handler-mean", func(_, on *fixture, _ *[]lab27.HostSample) {
			on.handlerCost = `{"firstNs":1,"meanNs":1000001,"p95Ns":1000000,"maxNs":9000000}`
		}},
		{"a P95 above it", "handler-p95", func(_, on *fixture, _ *[]lab27.HostSample) {
			on.handlerCost = `{"firstNs":1,"meanNs":1,"p95Ns":1000001,"maxNs":9000000}`
		}},
		{"a file written during the run", "no-periodic-io", func(_, on *fixture, _ *[]lab27.HostSample) { on.writes = 1 }},
		{"twice as much a row", "", func(_, _ *fixture, host *[]lab27.HostSample) {
			*host = []lab27.HostSample{{Rows: 1000, Ns: 500}, {Rows: 4000, Ns: 4000}}
		}},
		{"more than that", "host-linear", func(_, _ *fixture, host *[]lab27.HostSample) {
			*host = []lab27.HostSample{{Rows: 1000, Ns: 500}, {Rows: 4000, Ns: 4001}}
		}},
		{"no samples of the host", "host-linear", func(_, _ *fixture, host *[]lab27.HostSample) { *host = nil }},
		{"samples too close together", "host-linear", func(_, _ *fixture, host *[]lab27.HostSample) {
			*host = []lab27.HostSample{{Rows: 1000, Ns: 500}, {Rows: 3999, Ns: 500}}
		}},
		{"another scale", "same-recipe", func(_, on *fixture, _ *[]lab27.HostSample) { *on = *newFixture(t, lab27.PurposeCostOn, 200) }},
		{"the wrong purpose", "purposes", func(_, on *fixture, _ *[]lab27.HostSample) { *on = *newFixture(t, lab27.PurposeStudy, 100) }},
		{"a run that is not complete", "on-complete", func(_, on *fixture, _ *[]lab27.HostSample) { on.queuePeak = 129 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			off, on := costRuns(t)
			host := linearHost
			c.change(off, on, &host)
			v := cost(off, on, host)
			if v.Pass != (c.gate == "") {
				t.Errorf("%+v", v)
			}
			for _, g := range v.Gates {
				if g.Pass != (g.Name != c.gate) {
					t.Errorf("%+v", g)
				}
			}
		})
	}
}

func TestCostThatWasNotMeasuredDoesNotPass(t *testing.T) {
	off, on := costRuns(t)
	on.usage = false
	v := cost(off, on, linearHost)
	for _, g := range v.Gates {
		if unmeasured := g.Name == "cpu" || g.Name == "footprint"; g.Pass == unmeasured || unmeasured && g.Measured != "not measured" {
			t.Errorf("%+v", g)
		}
	}
}

func TestCostIsOfOnePhoneWhereTheSessionsSayWhich(t *testing.T) {
	off, on := costRuns(t)
	a, b, unknown := &lab27.Session{UDID: "00008110-000A"}, &lab27.Session{UDID: "00008110-000B"}, &lab27.Session{}
	for _, c := range []struct {
		name    string
		off, on *lab27.Session
		known   bool
		pass    bool
	}{
		{"the same phone", a, a, true, true},
		{"two phones", a, b, true, false},
		{"a session and a bundle", a, nil, false, true},
		{"an import, which does not know", a, unknown, false, true},
		{"two bundles", nil, nil, false, true},
	} {
		v := lab27.Cost(lab27.CostRun{Report: off.report(), Session: c.off}, lab27.CostRun{Report: on.report(), Session: c.on}, linearHost)
		if v.Pass != c.pass || (v.SamePhone != nil) != c.known || c.known && *v.SamePhone != c.pass || c.known != (v.Gates[0].Name == "same-phone") {
			t.Errorf("%s: %+v", c.name, v)
		}
	}
}

func TestCostIsSimulatedWhereAnythingIs(t *testing.T) {
	off, on := costRuns(t)
	for _, f := range []*fixture{off, on} { // whose plans say that they are
		f.rewrite = func(name, content string) string {
			return strings.Replace(content, `"simulated":true`, `"simulated":false`, 1)
		}
	}
	lab := &lab27.Session{Evidence: "E2", Simulated: true}
	for _, c := range []struct {
		off, on   *lab27.Session
		simulated bool
	}{{nil, nil, false}, {lab, nil, true}, {nil, lab, true}} {
		if v := lab27.Cost(lab27.CostRun{Report: off.report(), Session: c.off}, lab27.CostRun{Report: on.report(), Session: c.on}, linearHost); v.Simulated != c.simulated || !v.Pass {
			t.Errorf("%+v", v)
		}
	}
	on.rewrite = nil
	if v := cost(off, on, linearHost); !v.Simulated {
		t.Errorf("a simulated bundle: %+v", v)
	}
	on.state, on.reason = "partial", "cancelled"
	if v := cost(off, on, nil); !v.Simulated || v.Pass || len(v.Gates) != 2 {
		t.Errorf("a bundle that is not complete: %+v", v)
	}
}
