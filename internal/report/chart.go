package report

import (
	"fmt"
	"html/template"
	"math"
	"sort"
	"strings"

	"github.com/framebridge/framebridge/internal/summary"
	"github.com/framebridge/framebridge/p95"
)

// Drawings are 1000 units wide, which the page scales.
const (
	pictureWidth = 1000.0
	plotLeft     = 64.0
	plotRight    = plotLeft + maxColumns
	plotTop      = 8.0
	axisHeight   = 34.0 // under the plot: its marks, and what they are

	frameTimesHeight = 260
)

// scale maps values to heights.
type scale struct {
	top, height float64
	low, high   float64
	logarithmic bool
}

// scaleOf shows values from 0 on, or logarithmically where the highest would press the middle one to the ground.
func scaleOf(top, height, low, middle, high float64) scale {
	const tall = 8
	if low > 0 && high > tall*middle {
		return scale{top, height, low / 1.3, high * 1.3, true}
	}
	return scale{top, height, 0, max(high*1.08, 1e-6), false}
}

// share is where a value stands between the ends, from 0 to 1.
func (s scale) share(v float64) float64 {
	if v <= s.low {
		return 0
	}
	share := (v - s.low) / (s.high - s.low)
	if s.logarithmic {
		share = math.Log(v/s.low) / math.Log(s.high/s.low)
	}
	return max(0, min(share, 1))
}

func (s scale) y(v float64) float64 { return s.top + s.height*(1-s.share(v)) }

// marks are round values between the ends: about n of them, or 1, 2 and 5 of each decade, or 1 to 9 where there is little more than one.
func (s scale) marks(n int) (values []float64) {
	if s.logarithmic {
		multiples := []float64{1, 2, 5}
		if s.high < 30*s.low {
			multiples = []float64{1, 2, 3, 4, 5, 6, 7, 8, 9}
		}
		decade := math.Pow(10, math.Floor(math.Log10(s.low)))
		for ; decade < s.high; decade *= 10 {
			for _, m := range multiples {
				if v := decade * m; v >= s.low && v <= s.high {
					values = append(values, v)
				}
			}
		}
		return values
	}
	step := roundStep((s.high - s.low) / float64(n))
	for v := math.Ceil(s.low/step) * step; v <= s.high; v += step {
		values = append(values, v)
	}
	return values
}

// roundStep is the next of 1, 2, 5, 10, 20 …
func roundStep(atLeast float64) float64 {
	decade := math.Pow(10, math.Floor(math.Log10(atLeast)))
	for _, m := range []float64{1, 2, 5} {
		if decade*m >= atLeast {
			return decade * m
		}
	}
	return decade * 10
}

func msOf(v float64) string { return fmt.Sprintf("%g", math.Round(v*1e6)/1e6) }

// timeSteps are the distances between marks of a time axis, s: up to a month.
var timeSteps = []float64{0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400,
	21600, 43200, 86400, 604800, 2592000}

// clock is a time since the session began: seconds, from a minute on with minutes, from an hour on with hours.
func clock(ns int64, places int) string {
	sign, n := "", uint64(ns)
	if ns < 0 {
		sign, n = "-", -uint64(ns)
	}
	one := uint64(math.Pow10(places))
	unit := 1_000_000_000 / one
	n = (n + unit/2) / unit
	seconds, fraction := n/one, ""
	if places > 0 {
		fraction = fmt.Sprintf(".%0*d", places, n%one)
	}
	switch {
	case seconds < 60:
		return fmt.Sprintf("%s%d%s s", sign, seconds, fraction)
	case seconds < 3600:
		return fmt.Sprintf("%s%d:%02d%s", sign, seconds/60, seconds%60, fraction)
	}
	return fmt.Sprintf("%s%d:%02d:%02d%s", sign, seconds/3600, seconds/60%60, seconds%60, fraction)
}

// begin begins a drawing. id makes the ids of its title and description unique.
func (s *svg) begin(id, class, title, description string, height float64) {
	s.open("svg", "class", class, "viewBox", "0 0 "+number(pictureWidth)+" "+number(height), "role", "img", "aria-labelledby", id+"-title "+id+"-about")
	s.words("title", title, "id", id+"-title")
	s.words("desc", description, "id", id+"-about")
}

func (s *svg) end() template.HTML {
	s.close("svg")
	return s.html()
}

// values draws the marks of heights.
func (s *svg) values(scale scale, n int, unit string) {
	for _, v := range scale.marks(n) {
		y := scale.y(v)
		s.leaf("line", "class", "grid", "x1", number(plotLeft), "x2", number(plotRight), "y1", number(y), "y2", number(y))
		s.words("text", msOf(v), "class", "mark", "x", number(plotLeft-6), "y", number(y+4), "text-anchor", "end")
	}
	s.words("text", unit, "class", "unit", "x", "2", "y", number(scale.top+4))
}

// timeChart is a drawing over the session's time.
type timeChart struct {
	svg
	c      *collector
	bottom float64 // of the plot
	width  float64 // of a column
}

func newTimeChart(c *collector, id, title, description string, plotHeight float64) *timeChart {
	t := &timeChart{c: c, bottom: plotTop + plotHeight, width: maxColumns / float64(len(c.publications))}
	t.begin(id, "chart time", title, description, t.bottom+axisHeight)
	runs(len(c.background), func(i int) bool { return c.background[i] }, func(from, to int, background bool) {
		if background {
			t.leaf("rect", "class", "background", "x", number(t.x(from)), "width", number(t.x(to)-t.x(from)), "y", number(plotTop), "height", number(plotHeight))
		}
	})
	const marks = 10
	spanS := float64(c.spanNs) / 1e9
	step := timeSteps[min(sort.SearchFloat64s(timeSteps, spanS/marks), len(timeSteps)-1)]
	places := int(max(0, math.Ceil(-math.Log10(step))))
	for i := 0.0; i*step <= spanS; i++ {
		x := plotLeft + i*step/spanS*maxColumns
		t.leaf("line", "class", "grid", "x1", number(x), "x2", number(x), "y1", number(plotTop), "y2", number(t.bottom))
		anchor := "middle"
		if x > plotRight-10 {
			anchor = "end"
			x = pictureWidth
		}
		t.words("text", clock(int64(i*step*1e9), places), "class", "mark", "x", number(x), "y", number(t.bottom+14), "text-anchor", anchor)
	}
	t.words("text", "since the session began", "class", "unit", "x", number(plotRight), "y", number(t.bottom+29), "text-anchor", "end")
	return t
}

func (t *timeChart) x(column int) float64 { return plotLeft + float64(column)*t.width }

// runs calls each with every run of columns in which at is the same.
func runs[T comparable](n int, at func(int) T, each func(from, to int, v T)) {
	for from := 0; from < n; {
		to := from + 1
		for to < n && at(to) == at(from) {
			to++
		}
		each(from, to, at(from))
		from = to
	}
}

// envelope draws the lowest to the highest of each column.
func (t *timeChart) envelope(class string, scale scale, unit float64, of func(int) span) {
	const leastHeight = 2.4 // so that a column in which all are equal is seen
	var path strings.Builder
	for i := range t.c.publications {
		s := of(i)
		if s.n == 0 {
			continue
		}
		low, high := scale.y(float64(s.min)/unit), scale.y(float64(s.max)/unit)
		if low-high < leastHeight {
			middle := (low + high) / 2
			low, high = middle+leastHeight/2, middle-leastHeight/2
		}
		fmt.Fprintf(&path, "M%s %sV%s", number(t.x(i)+t.width/2), number(low), number(high))
	}
	t.leaf("path", "class", class, "d", path.String(), "stroke-width", number(max(t.width*0.9, 1)))
}

// middles draws the middle 90 % of each column's frames.
func (t *timeChart) middles(d *display) {
	var path strings.Builder
	for i := range d.columns {
		if d.columns[i].frameTimeNs.n > 0 {
			top, bottom := d.columns[i].middle()
			fmt.Fprintf(&path, "M%s %sV%s", number(t.x(i)+t.width/2), number(plotTop+float64(top)-0.7), number(plotTop+float64(bottom)+1.7))
		}
	}
	t.leaf("path", "class", "middle", "d", path.String(), "stroke-width", number(max(t.width*0.9, 1)))
}

// links joins the last frame of a column to the first of the next one that has any, where one follows the other: so a spike of one frame is
// seen. Columns side by side whose envelopes touch need none.
func (t *timeChart) links(d *display) {
	var path strings.Builder
	columnNs := float64(t.c.spanNs) / float64(len(d.columns))
	was := -1
	for i := range d.columns {
		next := &d.columns[i]
		if next.frameTimeNs.n == 0 {
			continue
		}
		if was >= 0 && float64(i-was-1)*columnNs <= float64(next.first) {
			last := &d.columns[was]
			touch := i == was+1 && last.frameTimeNs.min <= next.frameTimeNs.max && next.frameTimeNs.min <= last.frameTimeNs.max
			if !touch {
				fmt.Fprintf(&path, "M%s %sL%s %s", number(t.x(was)+t.width/2), number(d.scale.y(float64(last.last)/1e6)),
					number(t.x(i)+t.width/2), number(d.scale.y(float64(next.first)/1e6)))
			}
		}
		was = i
	}
	t.leaf("path", "class", "link", "d", path.String())
}

// ticks draws a short mark, or one over the whole height, in each column that has it.
func (t *timeChart) ticks(class string, height float64, in func(int) bool) {
	var path strings.Builder
	for i := range t.c.publications {
		if in(i) {
			fmt.Fprintf(&path, "M%s %sv%s", number(t.x(i)+t.width/2), number(t.bottom), number(-height))
		}
	}
	t.leaf("path", "class", class, "d", path.String(), "stroke-width", number(max(min(t.width, 3), 1.5)))
}

// p95 draws the published values. The line is broken where a publication has none.
func (t *timeChart) p95(scale scale) {
	var path strings.Builder
	connected := false
	for i, p := range t.c.publications {
		if p.quality != "" && p.quality != p95.Valid {
			connected = false
		}
		if p.valueNs.n == 0 {
			continue
		}
		command := "M"
		if connected {
			command = "L"
		}
		y := func(ns int64) string { return number(scale.y(float64(ns) / 1e6)) }
		fmt.Fprintf(&path, "%s%s %s", command, number(t.x(i)+t.width/2), y(p.first))
		if p.valueNs.n > 1 {
			fmt.Fprintf(&path, "V%sV%sV%s", y(p.valueNs.min), y(p.valueNs.max), y(p.last))
		} else if !connected {
			path.WriteString("h0.01") // so that a single value is seen
		}
		connected = p.quality == p95.Valid
	}
	t.leaf("path", "class", "p95", "d", path.String())
}

// frameTimes draws a display's frame times; over those of the primary one the P95 and what interrupted it.
func frameTimes(c *collector, d *display, s *summary.Display, id string, primary bool) template.HTML {
	scale := d.scale
	about := fmt.Sprintf("From %s to %s ms; half of all frames take %s ms or less, 95 %% take %s ms or less.", ms(*s.MinNs), ms(*s.MaxNs), ms(*s.P50Ns), ms(*s.P95Ns))
	t := newTimeChart(c, id, fmt.Sprintf("Frame times of display %d over the session", d.id), about, frameTimesHeight)
	unit := "ms"
	if scale.logarithmic {
		unit = "ms, log"
	}
	t.values(scale, 6, unit)
	t.links(d)
	t.envelope("frames", scale, 1e6, func(i int) span { return d.columns[i].frameTimeNs })
	t.middles(d)
	if primary {
		t.p95(scale)
		t.ticks("gap", frameTimesHeight, func(i int) bool { return c.gaps[i] })
	}
	t.ticks("without", 7, func(i int) bool { return d.columns[i].without > 0 })
	return t.end()
}

// hitches draws the longest overrun of each column.
func hitches(c *collector, d *display, id string) template.HTML {
	const height = 140
	longest := float64(d.longest[0].OverrunNs) / 1e6
	t := newTimeChart(c, id, fmt.Sprintf("Hitches of display %d over the session", d.id), "The longest overrun of a frame is "+ms(d.longest[0].OverrunNs)+" ms.", height)
	scale := scaleOf(plotTop, height, 0, 0, longest)
	t.values(scale, 4, "ms")
	t.envelope("hitch", scale, 1e6, func(i int) span {
		s := d.columns[i].overrunNs
		s.min = 0 // a bar from the ground
		return s
	})
	return t.end()
}

// refresh draws the refresh rate, and in strips under it the segments and what became of the publications.
func refresh(c *collector, d *display, id string) template.HTML {
	const rateHeight, stripTop, stripStep, stripHeight = 90, plotTop + 90 + 14, 26, 20
	var all span
	for _, column := range d.columns {
		if column.milliHz.n > 0 {
			all.add(column.milliHz.min)
			all.add(column.milliHz.max)
		}
	}
	about := "The refresh interval of the frames is not known."
	if all.n > 0 {
		about = fmt.Sprintf("The refresh rate is from %.3f to %.3f Hz.", float64(all.min)/1e3, float64(all.max)/1e3)
	}
	t := newTimeChart(c, id, "Refresh rate, segments and publications over the session", about, rateHeight+14+2*stripStep)
	scale := scaleOf(plotTop, rateHeight, 0, 0, float64(all.max)/1e3)
	t.values(scale, 3, "Hz")
	t.envelope("rate", scale, 1e3, func(i int) span { return d.columns[i].milliHz })

	// A publication stands for the time up to the next one.
	strips := append([]publicationColumn(nil), c.publications...)
	for i := 1; i < len(strips); i++ {
		if strips[i].quality == "" {
			strips[i] = strips[i-1]
		}
	}
	strip := func(row int, name string, value func(int) string, class func(v string, drawn int) string) {
		top := stripTop + float64(row)*stripStep
		drawn := 0
		t.words("text", name, "class", "unit", "x", "2", "y", number(top+14))
		runs(len(strips), value, func(from, to int, v string) {
			if v == "" {
				return
			}
			x, width := t.x(from), t.x(to)-t.x(from)
			t.open("rect", "class", class(v, drawn), "x", number(x), "width", number(width), "y", number(top), "height", number(stripHeight))
			t.words("title", v)
			t.close("rect")
			drawn++
			if short := strings.TrimPrefix(v, "segment "); width > 7*float64(len(short))+6 {
				t.words("text", short, "class", "in-strip", "x", number(x+width/2), "y", number(top+14), "text-anchor", "middle")
			}
		})
	}
	strip(0, "segment", func(i int) string {
		if strips[i].quality == "" {
			return ""
		}
		return fmt.Sprintf("segment %d", strips[i].segment)
	}, func(_ string, drawn int) string { return []string{"even", "odd"}[drawn%2] })
	strip(1, "P95", func(i int) string { return string(strips[i].quality) }, func(v string, _ int) string {
		if v == string(p95.Valid) {
			return "valid"
		}
		return "null"
	})
	return t.end()
}

// distribution draws how many frames took how long.
func distribution(s *summary.Display, id string) template.HTML {
	const (
		labelsHeight = 4*15 + 4
		height       = 200
		bins         = 184 // five units wide
		binWidth     = maxColumns / bins
	)
	toMs := func(ns int64) float64 { return float64(ns) / 1e6 }
	middle := toMs(*s.P50Ns)
	across := scale{low: min(toMs(*s.MinNs)/1.02, middle*0.9)}
	across.high = max(toMs(*s.MaxNs)*1.02, middle*1.1, across.low+1e-6)
	across.logarithmic = across.low > 0 && across.high > 4*across.low
	var counts [bins]int64
	highest := int64(0)
	for _, ns := range s.FrameTimesNs() {
		bin := min(int(across.share(toMs(ns))*bins), bins-1)
		counts[bin]++
		highest = max(highest, counts[bin])
	}
	up := scale{top: labelsHeight, height: height, low: 0.5, high: float64(highest) * 1.3, logarithmic: true}
	var d svg
	d.begin(id, "chart", fmt.Sprintf("Distribution of the frame times of display %d", s.DisplayID),
		fmt.Sprintf("P50 %s, P95 %s, P99 %s, longest %s ms.", ms(*s.P50Ns), ms(*s.P95Ns), ms(*s.P99Ns), ms(*s.MaxNs)), up.top+height+axisHeight)
	for decade := 1.0; decade < up.high; decade *= 10 {
		y := up.y(decade)
		d.leaf("line", "class", "grid", "x1", number(plotLeft), "x2", number(plotRight), "y1", number(y), "y2", number(y))
		d.words("text", fmt.Sprintf("%.0f", decade), "class", "mark", "x", number(plotLeft-6), "y", number(y+4), "text-anchor", "end")
	}
	d.words("text", "frames, log", "class", "unit", "x", "2", "y", number(up.top-8))
	var path strings.Builder
	for i, n := range counts {
		if n > 0 {
			fmt.Fprintf(&path, "M%s %sV%s", number(plotLeft+(float64(i)+0.5)*binWidth), number(up.top+height), number(up.y(float64(n))))
		}
	}
	d.leaf("path", "class", "counts", "d", path.String(), "stroke-width", number(binWidth-0.6))
	last := -100.0
	for _, v := range across.marks(10) {
		x := plotLeft + across.share(v)*maxColumns
		if x-last < 30 {
			continue
		}
		last = x
		d.leaf("line", "class", "grid", "x1", number(x), "x2", number(x), "y1", number(up.top+height), "y2", number(up.top+height+4))
		d.words("text", msOf(v), "class", "mark", "x", number(x), "y", number(up.top+height+16), "text-anchor", "middle")
	}
	unit := "frame time, ms"
	if across.logarithmic {
		unit += ", log"
	}
	d.words("text", unit, "class", "unit", "x", number(plotRight), "y", number(up.top+height+30), "text-anchor", "end")
	for i, p := range []struct {
		name string
		ns   int64
	}{{"P50", *s.P50Ns}, {"P95", *s.P95Ns}, {"P99", *s.P99Ns}, {"longest", *s.MaxNs}} {
		x, top := plotLeft+across.share(toMs(p.ns))*maxColumns, float64(i)*15
		d.leaf("line", "class", "percentile", "x1", number(x), "x2", number(x), "y1", number(top+4), "y2", number(up.top+height))
		anchor, shift := "start", 4.0
		if x > pictureWidth*0.8 {
			anchor, shift = "end", -4
		}
		d.words("text", fmt.Sprintf("%s %s ms", p.name, ms(p.ns)), "class", "percentile-name", "x", number(x+shift), "y", number(top+14), "text-anchor", anchor)
	}
	return d.end()
}
