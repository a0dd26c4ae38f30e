package lab27

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/framebridge/framebridge/internal/jsonline"
)

// Candidate is another witness of the same run: intervals between frames as one of Apple's own tools has them. Its times begin with its
// own recording, so it is set beside the match and not paired.
type Candidate struct {
	Name      string `json:"name"` // such as the table it came from
	Intervals int    `json:"intervals"`
	MedianNs  *int64 `json:"medianNs"` // nearest rank, as the next; null without an interval, as all three
	P95Ns     *int64 `json:"p95Ns"`
	MaxNs     *int64 `json:"maxNs"`
}

// NewCandidate sums up intervals.
func NewCandidate(name string, intervalsNs []int64) Candidate {
	c := Candidate{Name: name, Intervals: len(intervalsNs)}
	if n := len(intervalsNs); n > 0 {
		sorted := slices.Clone(intervalsNs)
		slices.Sort(sorted)
		c.MedianNs, c.P95Ns, c.MaxNs = &sorted[(n-1)/2], &sorted[rank95(n)-1], &sorted[n-1]
	}
	return c
}

// StudyRun is one matched run, with whatever was recorded beside it.
type StudyRun struct {
	Session    string      `json:"session"`
	Match      Verdict     `json:"match"`
	Candidates []Candidate `json:"candidates"`
}

// StudyTable is several runs on several devices. It tabulates and does not judge: each run keeps its own verdict.
type StudyTable struct {
	Schema  string     `json:"schema"`
	Meaning string     `json:"meaning"`
	Runs    []StudyRun `json:"runs"`
}

// NewStudy orders the runs by device, release and name.
func NewStudy(runs []StudyRun) StudyTable {
	runs = slices.Clone(runs)
	slices.SortStableFunc(runs, func(a, b StudyRun) int {
		return strings.Compare(a.Match.DeviceModel+"\x00"+a.Match.OSVersion+"\x00"+a.Match.RunName, b.Match.DeviceModel+"\x00"+b.Match.OSVersion+"\x00"+b.Match.RunName)
	})
	return StudyTable{Schema: "lab27.study/1", Meaning: Meaning, Runs: runs}
}

// JSON is the study for programs.
func (s *StudyTable) JSON() ([]byte, error) {
	data, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return nil, fmt.Errorf("lab27 study: %w", err)
	}
	return append(data, '\n'), nil
}

// Markdown is the study for people: the runs, what kept them from qualifying, and the candidates beside them.
func (s *StudyTable) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Lab27 study\n\n%s\n\n## Runs\n\n", s.Meaning)
	table(&b, []string{"device", "release", "run", "purpose", "verdict", "reasons", "paired", "of frames", "of presented", "difference µs", "offsets apart µs", "cuts failed", "worst P95 apart ms", "tail happened", "evidence", "session"})
	for i := range s.Runs {
		v := &s.Runs[i].Match
		reasons := make([]string, len(v.Reasons))
		for j, r := range v.Reasons {
			reasons[j] = fmt.Sprintf("%s %d", r.Reason, r.Count)
		}
		device := v.DeviceModel
		if v.Simulated {
			device += " (simulated)"
		}
		purpose := string(v.Purpose)
		if v.Rehearsal {
			purpose += ", cannot count"
		}
		paired, frames, presented, differences, apart, tail := none, none, none, none, none, none
		if v.Counts != nil {
			paired, frames, presented = fmt.Sprint(v.Counts.Paired), fmt.Sprint(v.Counts.FramesInside), fmt.Sprint(v.Counts.PresentedInside)
		}
		if v.DifferenceMinNs != nil && v.DifferenceMaxNs != nil {
			differences = decimal(v.DifferenceMinNs, 3) + " to " + decimal(v.DifferenceMaxNs, 3)
		}
		if v.Clock != nil {
			apart = decimal(new(v.Clock.DisagreementNs()), 3)
		}
		if v.Tail != nil {
			tail = fmt.Sprint(v.Tail.Happened)
		}
		table(&b, []string{device, v.OSVersion, v.RunName, purpose, v.Verdict, strings.Join(reasons, ", "), paired, frames, presented, differences, apart,
			fmt.Sprintf("%d of %d", v.CutsFailed, v.Cuts), decimal(v.WorstP95DifferenceNs, 6), tail, v.Evidence, v.SessionID})
	}
	fmt.Fprint(&b, "\n## Candidates beside them\n\n")
	table(&b, []string{"run", "candidate", "intervals", "median ms", "P95 ms", "longest ms"})
	for i := range s.Runs {
		for _, p := range s.Runs[i].Match.Phases {
			table(&b, []string{s.Runs[i].Match.RunName, "presentedTime, " + p.Phase, fmt.Sprint(p.Intervals), decimal(p.MedianNs, 6), decimal(p.P95Ns, 6), decimal(p.MaxNs, 6)})
		}
		for _, c := range s.Runs[i].Candidates {
			table(&b, []string{s.Runs[i].Match.RunName, c.Name, fmt.Sprint(c.Intervals), decimal(c.MedianNs, 6), decimal(c.P95Ns, 6), decimal(c.MaxNs, 6)})
		}
	}
	return b.String()
}

// table writes a row; the first of a table, which has the headings, is followed by the line that makes it one.
func table(b *strings.Builder, cells []string) {
	heading := strings.HasSuffix(b.String(), "\n\n")
	for _, c := range cells {
		fmt.Fprintf(b, "| %s ", strings.NewReplacer("|", "\\|", "\n", " ").Replace(c))
	}
	b.WriteString("|\n")
	if heading {
		b.WriteString(strings.Repeat("|---", len(cells)) + "|\n")
	}
}

// none stands in a table where there is no figure.
const none = "none"

func decimal(ns *int64, places int) string {
	if ns == nil {
		return none
	}
	return string(jsonline.AppendDecimal(nil, *ns, places))
}
