package lab27_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/framebridge/framebridge/lab27"
)

func TestMatchLinesAreWhatTheyShouldBe(t *testing.T) {
	times := steady(10*second, 101)
	frames := append([]int64{}, times...)
	frames[50] += 250_001
	text := lines(t, match(t, times, frames))
	for _, want := range []string{
		`{"kind":"edge","n":1,"phase":"baseline","line":2,"byte":0,"surfaceId":0,"presentedNs":10000000000,"rawSequence":1,"frameSurfaceId":0,"endNs":10000000000,"differenceNs":0}`,
		`{"kind":"paired","n":50,"phase":"baseline","line":51,"byte":0,"surfaceId":0,"presentedNs":10980000000,"rawSequence":50,"frameSurfaceId":0,"endNs":10980000000,"differenceNs":0}`,
		`{"kind":"missing-frame","n":51,"phase":"baseline","line":52,"byte":0,"surfaceId":0,"presentedNs":11000000000}`,
		`{"kind":"extra-system-frame","rawSequence":51,"frameSurfaceId":0,"endNs":11000250001}`,
		`{"kind":"cut","atNs":11054166667,"pass":true,"frames":50,"reference":50,"frameRank":48,"frameP95Ns":20000000,"referenceRank":48,"referenceP95Ns":20000000}`,
	} {
		if strings.Count(text, want+"\n") != 1 {
			t.Errorf("lacks %s in\n%s", want, text)
		}
	}
}

// What stands in match.json can be counted in match.jsonl.
func TestMatchJSONCountsWhatMatchLinesHold(t *testing.T) {
	f := newFixture(t, lab27.PurposeStudy, 100)
	f.frameOf(90).SurfaceID = 12
	f.frameOf(100).EndMach += 30_000 // its pair is torn
	f.row(200).ns, f.row(200).status = 0, "dropped"
	m := f.qualify(t)
	kinds := map[string]int{}
	failedCuts := 0
	for line := range strings.Lines(lines(t, m)) {
		var v struct {
			Kind string `json:"kind"`
			Pass bool   `json:"pass"`
		}
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatal(err)
		}
		kinds[v.Kind]++
		if v.Kind == "cut" && !v.Pass {
			failedCuts++
		}
	}
	c := m.Verdict.Counts
	for kind, want := range map[string]int{"paired": c.Paired, "surface-mismatch": c.SurfaceMismatch, "extra-system-frame": c.ExtraSystemFrame, "missing-frame": c.MissingFrame,
		"not-presented": c.NotPresented, "edge": c.EdgePairs, "cut": m.Verdict.Cuts, "ambiguous": c.AmbiguousFrames + c.AmbiguousPresented} {
		if kinds[kind] != want {
			t.Errorf("%d lines of %s, match.json has %d", kinds[kind], kind, want)
		}
	}
	if failedCuts != m.Verdict.CutsFailed || c.SurfaceMismatch != 1 || c.MissingFrame != 1 || c.ExtraSystemFrame != 2 || c.NotPresented != 1 {
		t.Errorf("%d failed cuts, %+v", failedCuts, m.Verdict)
	}
}

type fullDisk struct{ room int }

func (d *fullDisk) Write(b []byte) (int, error) {
	if d.room -= len(b); d.room < 0 {
		return 0, os.ErrClosed
	}
	return len(b), nil
}

func TestWriteErrorsOfMatchLinesAreReturned(t *testing.T) {
	m := newFixture(t, lab27.PurposeStudy, 100).qualify(t)
	if err := m.WriteLines(&fullDisk{room: 5000}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("%v", err)
	}
	if err := m.WriteLines(io.Discard); err != nil {
		t.Error(err)
	}
}
