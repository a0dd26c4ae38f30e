package report

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/framebridge/framebridge/internal/jsonline"
	"github.com/framebridge/framebridge/internal/summary"
	"github.com/framebridge/framebridge/ledger"
	"github.com/framebridge/framebridge/p95"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	pageJS string
)

// maxProcesses bounds the processes that are named.
const maxProcesses = 20

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"ms":    ms,
	"clock": func(ns int64) string { return clock(ns, 3) },
}).Parse(pageHTML))

// ms is ns in ms, exactly.
func ms(ns int64) string { return string(jsonline.AppendDecimal(nil, ns, 6)) }

// figure is a number that `summary --json` has too, under Path.
type figure struct {
	Name, Path, Text, Unit, About string
}

// row is a line of a table.
type row struct{ Name, Text string }

// shownDisplay is a display's part of the page.
type shownDisplay struct {
	ID                                int64
	Primary                           bool
	Figures                           []figure
	Qualities                         []row
	Notes                             []string
	FrameTimes, Distribution, Hitches template.HTML
	Longest                           []longFrame
}

type shownProcess struct {
	summary.Process
	Bar template.HTML
}

type shownSegment struct {
	segment
	P95 string // from the lowest to the highest
}

// content is what the page is made of.
type content struct {
	*Report
	S       *summary.Summary
	Policy  string // content security policy
	CSS     template.CSS
	JS      template.JS
	Columns template.JS // for the script; "" where there is no frame

	Displays      []shownDisplay
	Refresh       template.HTML
	Publications  []row
	Segments      []shownSegment
	MoreSegments  int
	Happenings    []happening
	MoreHappening int
	Processes     []shownProcess
	MoreProcesses int
	Files         []ledger.ManifestedFile
}

// WriteHTML writes the page.
func (r *Report) WriteHTML(w io.Writer) error {
	s, c := r.Summary, r.charts
	data := content{
		Report: r, S: s, CSS: template.CSS(pageCSS), JS: template.JS(pageJS),
		Policy:   fmt.Sprintf("default-src 'none'; style-src %s; script-src %s; base-uri 'none'; form-action 'none'", hashOf(pageCSS), hashOf(pageJS)),
		Displays: r.shownDisplays(), Publications: r.publications(), Segments: r.segments(), MoreSegments: c.moreSegments,
		Happenings: c.happenings, MoreHappening: c.unheard, Processes: r.processes(), MoreProcesses: max(0, len(s.Contributors)-maxProcesses), Files: r.files(),
	}
	if len(c.displays) > 0 {
		data.Refresh = refresh(c, c.displays[0], "refresh")
		var err error
		if data.Columns, err = r.columns(); err != nil {
			return err
		}
	}
	return page.Execute(w, data)
}

// Seconds is how long the session lasted.
func (r *Report) Seconds() string { return fmt.Sprintf("%.3f", float64(r.charts.spanNs)/1e9) }

// Begun reports whether the log has a session.start.
func (r *Report) Begun() bool { return r.Start.SessionID != "" }

// Name is the session's.
func (r *Report) Name() string { return cmp.Or(r.Start.Name, "session without a name") }

// RecordedAt is when the session began, by its host's wall clock.
func (r *Report) RecordedAt() string {
	if !r.Begun() {
		return "not told"
	}
	return time.Unix(0, r.Start.Clock.WallNs).UTC().Format("2006-01-02 15:04:05 UTC")
}

// hashOf is how a content security policy names a text that may run or style.
func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

func (r *Report) shownDisplays() (list []shownDisplay) {
	for i, d := range r.charts.displays {
		s := r.Summary.Displays[i]
		at := func(name string) string { return fmt.Sprintf("displays.%d.%s", i, name) }
		count := func(name, path string, n int64, about string) figure {
			return figure{name, at(path), fmt.Sprint(n), "", about}
		}
		shown := shownDisplay{ID: d.id, Primary: d.id == r.Summary.PrimaryDisplayID, Longest: d.longest, Figures: []figure{
			count("frames", "frames", s.Frames, "raw records of this display"),
			count("frames lost", "droppedBefore", s.DroppedBefore, "known to be missing, from the frames' numbers"),
		}}
		if s.UnknownLosses > 0 {
			shown.Figures = append(shown.Figures, count("losses of unknown number", "unknownLosses", s.UnknownLosses, "places where more frames are missing, and nobody knows how many"))
		}
		if s.Contradicted > 0 {
			shown.Figures = append(shown.Figures, count("contradicted", "contradicted", s.Contradicted, "frames with other figures than their native integers give; they count nowhere else"))
		}
		for _, quality := range slices.Sorted(maps.Keys(s.ByQuality)) {
			shown.Qualities = append(shown.Qualities, row{quality, fmt.Sprint(s.ByQuality[quality])})
		}
		if s.P95Ns != nil {
			ratio := "null"
			if s.HitchMsPerS != nil {
				ratio = fmt.Sprintf("%.3f", *s.HitchMsPerS)
			}
			id := fmt.Sprintf("display-%d", i)
			ns := func(name, path string, n int64, about string) figure {
				return figure{name, at(path), ms(n), "ms", about}
			}
			shown.Figures = append([]figure{
				ns("P50", "p50FrameTimeNs", *s.P50Ns, "half of the frames took this or less"),
				ns("P95", "p95FrameTimeNs", *s.P95Ns, "of the whole session"),
				ns("P99", "p99FrameTimeNs", *s.P99Ns, "of the whole session"),
				ns("longest", "maxFrameTimeNs", *s.MaxNs, "frame time"),
				{"hitch time ratio", at("hitchMsPerS"), ratio, "ms/s",
					fmt.Sprintf("%s ms of overrun in %s ms of frames", ms(s.OverrunNs), ms(s.SumNs))},
				count("refreshes missed", "missedRefreshes", s.MissedRefreshes, "by Apple's rule"),
			}, shown.Figures...)
			shown.FrameTimes = frameTimes(r.charts, d, s, id+"-times", shown.Primary)
			shown.Distribution = distribution(s, id+"-distribution")
		}
		if len(d.longest) > 0 {
			shown.Hitches = hitches(r.charts, d, fmt.Sprintf("display-%d-hitches", i))
		}
		if s.BelowRefresh > 0 {
			shown.Notes = append(shown.Notes, fmt.Sprintf("%d frames came sooner than their own refresh interval: on variable-rate displays that is what was asked for.", s.BelowRefresh))
		}
		if s.Skewed > 0 {
			shown.Notes = append(shown.Notes, fmt.Sprintf("%d frames tell a previous frame that is more than a tick from the end of the one before.", s.Skewed))
		}
		if s.AdjustmentTicks != nil {
			shown.Notes = append(shown.Notes, fmt.Sprintf("Each end lies %d ticks after the next frame's previous: an adjustment of the log loader, not repaired.", *s.AdjustmentTicks))
		}
		list = append(list, shown)
	}
	return list
}

func (r *Report) publications() (list []row) {
	for _, quality := range slices.Sorted(maps.Keys(r.Summary.Publications)) {
		list = append(list, row{quality, fmt.Sprint(r.Summary.Publications[quality])})
	}
	if p := r.charts.published; p.n > 0 {
		list = append(list, row{"lowest P95", ms(p.min) + " ms"}, row{"highest P95", ms(p.max) + " ms"})
	}
	return list
}

func (r *Report) segments() (list []shownSegment) {
	for _, s := range r.charts.segments {
		p95 := "none"
		if s.ValueNs.n > 0 {
			p95 = ms(s.ValueNs.min) + " to " + ms(s.ValueNs.max)
		}
		list = append(list, shownSegment{s, p95})
	}
	return list
}

// processes are those that contributed most, with a bar each.
func (r *Report) processes() (list []shownProcess) {
	for _, p := range r.Summary.Contributors[:min(len(r.Summary.Contributors), maxProcesses)] {
		var bar svg
		bar.open("svg", "class", "bar", "viewBox", "0 0 100 10", "preserveAspectRatio", "none", "aria-hidden", "true")
		bar.leaf("rect", "width", number(100*float64(p.Frames)/float64(max(r.Summary.Contributors[0].Frames, 1))), "height", "10")
		list = append(list, shownProcess{p, bar.end()})
	}
	return list
}

// files are the manifest's. What a compressed file holds is told as such, so that a session and its compressed twin name the same log.
func (r *Report) files() (list []ledger.ManifestedFile) {
	if r.manifest == nil {
		return nil
	}
	for _, f := range r.manifest.Files {
		if f.Inside != nil {
			list = append(list, *f.Inside)
		}
		list = append(list, f)
	}
	return list
}

// columns are what the page's script tells of the column under the pointer: of the primary display, in ns.
func (r *Report) columns() (template.JS, error) {
	type told struct {
		Frames  []int64     `json:"f,omitempty"` // number, shortest, longest
		Without int64       `json:"w,omitempty"`
		Overrun int64       `json:"o,omitempty"`
		P95     []int64     `json:"p,omitempty"` // lowest, highest
		Quality p95.Quality `json:"q,omitempty"` // of a publication without a value
	}
	list := make([]told, len(r.charts.publications))
	for i, c := range r.charts.displays[0].columns {
		t := &list[i]
		if c.frameTimeNs.n > 0 {
			t.Frames = []int64{c.frameTimeNs.n, c.frameTimeNs.min, c.frameTimeNs.max}
		}
		t.Without, t.Overrun = c.without, c.overrunNs.max
		p := r.charts.publications[i]
		if p.valueNs.n > 0 {
			t.P95 = []int64{p.valueNs.min, p.valueNs.max}
		}
		if p.quality != p95.Valid {
			t.Quality = p.quality
		}
	}
	text, err := json.Marshal(map[string]any{"spanNs": r.charts.spanNs, "left": plotLeft, "width": maxColumns, "pictureWidth": pictureWidth, "columns": list})
	return template.JS(text), err
}
