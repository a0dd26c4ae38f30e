package lab27_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/framebridge/framebridge/lab27"
)

func TestCandidateIsSummedUpByNearestRank(t *testing.T) {
	intervals := []int64{16, 17, 16, 100, 16, 15, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 33}
	got := lab27.NewCandidate("displayed-surfaces-interval", intervals)
	if got.Name != "displayed-surfaces-interval" || got.Intervals != 20 || *got.MedianNs != 16 || *got.P95Ns != 33 || *got.MaxNs != 100 || intervals[3] != 100 { // rank 19 of 20
		t.Errorf("%+v", got)
	}
	if got := lab27.NewCandidate("hitches", nil); got != (lab27.Candidate{Name: "hitches"}) {
		t.Errorf("%+v", got)
	}
}

func TestStudyTabulatesRunsAndTheCandidatesBesideThem(t *testing.T) {
	good := newFixture(t, lab27.PurposeStudy, 100).qualify(t).Verdict
	bad := newFixture(t, lab27.PurposeStudy, 100)
	bad.request.RunName = "run-0"
	bad.frameOf(100).SurfaceID = 12
	good.SessionID = "5f0c3a52-8d7e-4b1c-9a53-0f6f6f3d2a11"
	unread, err := lab27.Qualify(lab27.MatchInput{Report: &lab27.Report{State: lab27.Invalid}, Session: lab27.Session{ID: "5f0c3a52-8d7e-4b1c-9a53-0f6f6f3d2a12", Evidence: "E3"}})
	if err != nil {
		t.Fatal(err)
	}
	s := lab27.NewStudy([]lab27.StudyRun{
		{Session: "a", Match: good, Candidates: []lab27.Candidate{lab27.NewCandidate("displayed-surfaces-interval", []int64{16_666_708, 16_666_625, 8_333_333})}},
		{Session: "b", Match: bad.qualify(t).Verdict},
		{Session: "c", Match: unread.Verdict},
	})
	text := s.Markdown()
	for _, want := range []string{
		"not an optical measurement.",
		"| device | release | run | purpose | verdict | reasons |",
		"| iPhone15,2 (simulated) | 18.5 | run-0 | study, cannot count | unqualified | surface-mismatch 1 | 712 | 713 | 713 |",
		"| iPhone15,2 (simulated) | 18.5 | run-1 | study, cannot count | qualified |  | 713 | 713 | 713 |",
		"| true | E2 | 5f0c3a52-8d7e-4b1c-9a53-0f6f6f3d2a11 |",
		"| unqualified | bundle-invalid 1, no-clock 1 | none | none | none | none | none | 0 of 0 | none | none | E3 | 5f0c3a52-8d7e-4b1c-9a53-0f6f6f3d2a12 |",
		"| run-1 | presentedTime, baseline | 60 | 33.333167 | 33.333167 | 33.333167 |",
		"| run-1 | displayed-surfaces-interval | 3 | 16.666625 | 16.666708 | 16.666708 |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("lacks %s in\n%s", want, text)
		}
	}
	if strings.Index(text, "run-0") > strings.Index(text, "run-1") {
		t.Error("the runs are not in order")
	}
	var back lab27.StudyTable
	data, err := s.JSON()
	if err != nil || json.Unmarshal(data, &back) != nil || len(back.Runs) != 3 || *back.Runs[2].Match.Counts != *good.Counts || *back.Runs[2].Candidates[0].MaxNs != 16_666_708 {
		t.Errorf("%v, %+v", err, back)
	}
}
