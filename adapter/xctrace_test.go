package adapter

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var xctraceTimebase = Timebase{125, 3}

func importXctrace(t testing.TB, r io.Reader) (*XctraceRecording, []Record, Counts) {
	t.Helper()
	x, err := ReadXctrace(r, xctraceTimebase)
	if err != nil {
		t.Fatal(err)
	}
	var c collector
	counts, err := x.Records("s", PolicyP95, func(r *Record) error { c.Record(r); return nil })
	if err != nil {
		t.Fatal(err)
	}
	return x, c.records, counts
}

// The figures were worked out from the file by a script of another language, with rational numbers. In the file itself, only the first of the
// thirteen frames has the category tracing.stalls.
func TestRealRecordingOfInstruments(t *testing.T) {
	x, records, counts := importXctrace(t, dataFile(t, "xctrace/skylight-signpost-intervals.xml"))
	if want := (Binding{Target{"WindowServer", 394, 1}, 1, 0, 1, Timebase{125, 3}}); x.Binding() != want {
		t.Errorf("binding %+v, want %+v", x.Binding(), want)
	}
	want := []struct {
		begin, end, previous   int64
		surface                int64
		frameNs, lifetimeNs    int64
		presentationNs         int64
		category, quality, why string
	}{
		{59827756514418, 59827757037126, 59827756837127, 289, 0, 21779500, 2492823209880250, "tracing.stalls", "no-predecessor", "first-on-display"},
		{59827757050531, 59827757237124, 59827757037126, 271, 8333250, 7774708, 2492823218213500, "tracing", "valid", ""},
		{59827757250685, 59827757437122, 59827757237124, 289, 8333250, 7768208, 2492823226546750, "tracing", "valid", ""},
		{59827757450613, 59827757637121, 59827757437122, 271, 8333291, 7771166, 2492823234880041, "tracing", "valid", ""},
		{59827757650604, 59827757837119, 59827757637121, 289, 8333250, 7771458, 2492823243213291, "tracing", "valid", ""},
		{59827757628188, 59827758037117, 59827757837119, 271, 8333250, 17038708, 2492823251546541, "tracing", "valid", ""},
		{59827758050569, 59827758237115, 59827758037117, 289, 8333250, 7772750, 2492823259879791, "tracing", "valid", ""},
		{59827758250736, 59827758437115, 59827758237115, 271, 8333333, 7765791, 2492823268213125, "tracing", "valid", ""},
		{59827758450787, 59827758637112, 59827758437115, 289, 8333208, 7763541, 2492823276546333, "tracing", "valid", ""},
		{59827758650461, 59827758837110, 59827758637112, 271, 8333250, 7777041, 2492823284879583, "tracing", "valid", ""},
		{59827758849910, 59827759037108, 59827758837110, 289, 8333250, 7799916, 2492823293212833, "tracing", "valid", ""},
		{59827758763940, 59827759237107, 59827759037108, 271, 8333291, 19715291, 2492823301546125, "tracing", "valid", ""},
		{59827759250473, 59827759437106, 59827759237107, 289, 8333291, 7776375, 2492823309879416, "tracing", "valid", ""},
	}
	if len(records) != 13 {
		t.Fatalf("%d records, want 13", len(records))
	}
	for i, w := range want {
		r := records[i]
		seed := int64(0x778d6c5 + i)
		if r.FrameSeed != seed || r.SwapID != seed || r.DisplayID != 1 || r.SurfaceID != w.surface || r.BufferCount != 2 || r.SkipRequest != 0 ||
			r.RefreshIntervalMach != 199999 || r.BeginMach != w.begin || r.EndMach != w.end || r.PreviousMach != w.previous {
			t.Errorf("frame %d: %+v", i, r)
		}
		multiple := int64(1000)
		if i == 0 {
			multiple = 0
		}
		if r.FrameTimeNs != w.frameNs || r.LifetimeNs != w.lifetimeNs || r.PresentationNs != w.presentationNs || r.RefreshMultipleMilli != multiple {
			t.Errorf("frame %d: frame time %d, lifetime %d, presentation %d, multiple %d", i, r.FrameTimeNs, r.LifetimeNs, r.PresentationNs, r.RefreshMultipleMilli)
		}
		if r.Category != w.category || r.Subsystem != "com.apple.SkyLight" || r.Name != "FrameLifetime" || r.Quality.String() != w.quality || r.QualityReason != w.why {
			t.Errorf("frame %d: %s, %v %q", i, r.Category, r.Quality, r.QualityReason)
		}
		if r.HostNs != r.PresentationNs || r.RawSequence != int64(i+1) || r.Source != SourceXctrace || r.Source.Channel != 0 || r.DroppedBefore != 0 {
			t.Errorf("frame %d: hostNs %d, rawSequence %d, %+v", i, r.HostNs, r.RawSequence, r.Source)
		}
	}
	wantNames := []NameCount{
		{"com.apple.SkyLight", "performance_instrumentation", "CompositeLoop", 14, "", false},
		{"com.apple.SkyLight", "tracing", "FrameLifetime", 12, "", true},
		{"com.apple.SkyLight", "tracing", "RenderInterval", 13, "", false},
		{"com.apple.SkyLight", "tracing.stalls", "FrameLifetime", 1, "", true},
		{"com.apple.coreanimation", "Transaction", "Commit", 5, "", false},
		{"com.apple.dt.Xcode", "DVTDownloads Metrics", "fetch-asset-catalog", 1, "", false},
		{"com.apple.dt.Xcode", "DVTDownloads Metrics", "fetch-matching-assets", 3, "", false},
		{"com.apple.network", "activity", "nw_activity", 1, "", false},
	}
	if !reflect.DeepEqual(counts.Names, wantNames) || counts.Rows != 50 || counts.ByQuality[QualityValid] != 12 || counts.SkewedPredecessors != 0 {
		t.Errorf("counts %+v", counts)
	}
}

// interval is a FrameLifetime row of an export. At 125/3, 24,000 ticks are 1 ms, so that whole milliseconds convert without a rest.
type interval struct {
	startNs, durationNs           int64
	seed, previous, display, swap int64
	subsystem, category           string
	message                       string // instead of the usual one
}

// Trace time 0 is this many ticks.
const traceBegan = 24_000_000_000

// export is an os-signpost-interval table as xctrace writes it: each value once, with an id, and then by reference.
func export(rows ...interval) string {
	var b strings.Builder
	ids := map[string]int{}
	value := func(tag, text string) string {
		key := tag + " " + text
		if id, ok := ids[key]; ok {
			return fmt.Sprintf(`<%s ref="%d"/>`, tag, id)
		}
		ids[key] = len(ids) + 1
		return fmt.Sprintf(`<%s id="%d" fmt="…">%s</%s>`, tag, ids[key], text, tag)
	}
	b.WriteString(`<?xml version="1.0"?><trace-query-result><node xpath="x"><schema name="os-signpost-interval">`)
	for _, column := range []string{"start", "duration", "name", "category", "subsystem", "identifier", "process", "start-thread", "start-message", "end-message"} {
		b.WriteString("<col><mnemonic>" + column + "</mnemonic><name>" + column + "</name></col>")
	}
	b.WriteString("</schema>")
	for i, r := range rows {
		if r.subsystem == "" {
			r.subsystem, r.category = "com.apple.coreanimation", "IOMFBServer"
		}
		if r.swap == 0 {
			r.swap = r.seed
		}
		b.WriteString("<row>" + value("start-time", fmt.Sprint(r.startNs)) + value("duration", fmt.Sprint(r.durationNs)) + value("string", "FrameLifetime") +
			value("category", r.category) + value("subsystem", r.subsystem) + value("os-signpost-identifier", fmt.Sprint(r.swap)))
		if i == 0 {
			b.WriteString(`<process id="p" fmt="backboardd (64)"><pid id="q">64</pid></process><thread id="t"><tid id="u">7</tid><process ref="p"/></thread>`)
		} else {
			b.WriteString(`<process ref="p"/><thread ref="t"/>`)
		}
		b.WriteString(`<sentinel/>`)
		message := r.message
		if message == "" {
			for _, p := range []struct {
				text, tag string
				n         int64
			}{{"ID is swap ID. frame_seed=", "uint64-hex-lowercase", r.seed}, {" refresh_interval=", "uint64", 240_000}, {" buffer_count=", "uint64", 2},
				{" prev_frame=", "uint64", r.previous}, {" skip_request=", "uint64", 0}, {" display_id=", "uint64", r.display}} {
				message += value("narrative-text", p.text) + value(p.tag, fmt.Sprint(p.n))
			}
		}
		b.WriteString(fmt.Sprintf(`<os-log-metadata id="m%d">%s</os-log-metadata></row>`, i, message))
	}
	b.WriteString("</node></trace-query-result>")
	return b.String()
}

// frameAt is a frame whose end is n times 10 ms into the trace, with the frame before it as predecessor.
func frameAt(n int64) interval {
	return interval{startNs: n*10_000_000 - 15_000_000, durationNs: 15_000_000, seed: 100 + n, previous: traceBegan + (n-1)*240_000, display: 1}
}

func TestEndsComeFromTheNextFrameAndTheLastOneFromTheOffset(t *testing.T) {
	x, records, _ := importXctrace(t, strings.NewReader(export(frameAt(4), frameAt(2), frameAt(3)))) // rows in any order
	if x.Binding().Target != (Target{"backboardd", 64, 1}) {
		t.Errorf("target %+v", x.Binding().Target)
	}
	for i, r := range records {
		n := int64(i + 2)
		if r.FrameSeed != 100+n || r.EndMach != traceBegan+n*240_000 || r.BeginMach != r.EndMach-360_000 || r.LifetimeNs != 15_000_000 {
			t.Errorf("frame %d: seed %d, begin %d, end %d", i, r.FrameSeed, r.BeginMach, r.EndMach)
		}
		if i > 0 && (r.Quality != QualityValid || r.FrameTimeNs != 10_000_000) {
			t.Errorf("frame %d: %v %q, %d ns", i, r.Quality, r.QualityReason, r.FrameTimeNs)
		}
	}
}

func TestFramesMissingFromARecordingAreAGapAndTheEndBeforeItIsReckoned(t *testing.T) {
	_, records, _ := importXctrace(t, strings.NewReader(export(frameAt(2), frameAt(3), frameAt(4), frameAt(7), frameAt(8))))
	var got []string
	for _, r := range records {
		got = append(got, fmt.Sprint(r.EndMach-traceBegan, " ", r.Quality, " ", r.DroppedBefore))
	}
	want := []string{"480000 no-predecessor 0", "720000 valid 0", "960000 valid 0", "1680000 source-gap 2", "1920000 valid 0"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestClocksThatDisagreeByMoreThanATickAreRefused(t *testing.T) {
	off := func(ticks int64) string {
		f := frameAt(5)
		f.previous += ticks
		return export(frameAt(2), frameAt(3), frameAt(4), f, frameAt(6))
	}
	for _, ticks := range []int64{0, 1, -1} { // a tick of truncation
		if _, err := ReadXctrace(strings.NewReader(off(ticks)), xctraceTimebase); err != nil {
			t.Errorf("%d ticks: %v", ticks, err)
		}
	}
	for _, ticks := range []int64{2, -2, 12_000, 23_999, -23_999, 24_001, -24_001, -240_000_000} {
		_, err := ReadXctrace(strings.NewReader(off(ticks)), xctraceTimebase)
		if err == nil || !strings.Contains(err.Error(), "the frame that ends at 40000000 ns of the trace is") {
			t.Errorf("%d ticks: %v", ticks, err)
		}
	}
	// The other timebase: ticks that are nanoseconds fit nowhere.
	_, err := ReadXctrace(strings.NewReader(off(0)), Timebase{1, 1})
	if err == nil || !strings.Contains(err.Error(), "only 1 of 4 pairs of frames agree on their offset within one tick") {
		t.Errorf("another timebase: %v", err)
	}
}

// Frames that are missing everywhere, or rows of another recording, fit each other and still are not the end of the frame before.
func TestARecordingWhoseFramesDoNotFollowOneAnotherIsRefused(t *testing.T) {
	const nothing, off = "no frame has a successor with prev_frame and the next frame_seed", "ns of the trace is"
	earlier := frameAt(7)
	earlier.previous = traceBegan + 4*240_000 - 24_001 // frames are missing before it, and its prev_frame is before the end of frame 4
	later := func(f interval) interval {               // of a device clock 1,000 s on, and 3 ms later in the trace
		f.seed, f.startNs, f.previous = f.seed+1000, f.startNs+3_000_000, f.previous+24_000_000_000
		return f
	}
	for _, c := range []struct {
		name string
		rows []interval
		want string
	}{
		{"two frames, one missing between them", []interval{frameAt(2), frameAt(4)}, nothing},
		{"every second frame missing", []interval{frameAt(2), frameAt(4), frameAt(6), frameAt(8)}, nothing},
		{"a frame twice", []interval{frameAt(2), frameAt(2)}, nothing},
		{"a predecessor before the last frame", []interval{frameAt(2), frameAt(3), frameAt(4), earlier, frameAt(8)}, off},
		{"two recordings in one", []interval{frameAt(2), frameAt(3), frameAt(4), frameAt(5), later(frameAt(2)), later(frameAt(3))}, off},
		{"one behind the other", []interval{frameAt(2), frameAt(3), frameAt(4), frameAt(5), later(frameAt(6)), later(frameAt(7))}, off},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := ReadXctrace(strings.NewReader(export(c.rows...)), xctraceTimebase); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
		})
	}
}

// The device may leave a frame out, and then the chain holds over it; and it may tell one under both categories.
func TestASeedThatIsMissingOrToldTwiceIsNoDisagreement(t *testing.T) {
	over := frameAt(5)
	over.seed++
	twin := frameAt(3)
	twin.subsystem, twin.category = "com.apple.coreanimation", "IOMFBServer.Stalls"
	_, records, counts := importXctrace(t, strings.NewReader(export(frameAt(2), frameAt(3), twin, frameAt(4), over)))
	var got []string
	for _, r := range records {
		got = append(got, fmt.Sprint(r.FrameSeed, " ", r.EndMach-traceBegan, " ", r.Quality, " ", r.FrameTimeNs))
	}
	want := []string{"102 480000 no-predecessor 0", "103 720000 valid 10000000", "104 960000 valid 10000000", "106 1200000 valid 10000000"}
	if !slices.Equal(got, want) || counts.CategoryTwins != 1 {
		t.Errorf("got %q, %d twins; want %q and one", got, counts.CategoryTwins, want)
	}
}

func TestEndsAreFoundForEachDisplayOfARecording(t *testing.T) {
	other := func(n int64) interval {
		f := frameAt(n)
		f.display, f.seed = 2, 900+n
		return f
	}
	_, records, _ := importXctrace(t, strings.NewReader(export(frameAt(2), other(2), frameAt(3), other(3), frameAt(4), other(4))))
	for i, r := range records {
		if r.EndMach != traceBegan+int64(i/2+2)*240_000 || r.DisplayID != int64(1+i%2) || i > 1 && r.Quality != QualityValid {
			t.Errorf("record %d: display %d, end %d, %v", i, r.DisplayID, r.EndMach-traceBegan, r.Quality)
		}
		// Both displays' frames end at the same time, and yet hostNs grows.
		if want := 1_000_000_000_000 + int64(i/2+2)*10_000_000 + int64(i%2); r.HostNs != want {
			t.Errorf("record %d: hostNs %d, want %d", i, r.HostNs, want)
		}
	}
}

// Two displays take turns in one count, the second one 3 ms behind the first: no display has seeds that follow each other. Without one
// of the second's frames nothing vouches for the first's around it, and the file is refused where no other pair is left.
func TestDisplaysThatTakeTurnsInOneCountAreImported(t *testing.T) {
	at := func(n int64) interval {
		f := frameAt(n)
		f.seed = 2 * n
		return f
	}
	other := func(n int64) interval {
		f := frameAt(n)
		f.display, f.seed, f.startNs, f.previous = 2, 2*n+1, f.startNs+3_000_000, f.previous+72_000
		return f
	}
	_, records, _ := importXctrace(t, strings.NewReader(export(at(2), other(2), at(3), other(3), at(4), other(4))))
	if len(records) != 6 {
		t.Fatalf("%d records", len(records))
	}
	for i, r := range records {
		if want := traceBegan + int64(i/2+2)*240_000 + int64(i%2)*72_000; r.EndMach != want || i > 1 && (r.Quality != QualityValid || r.FrameTimeNs != 10_000_000) {
			t.Errorf("record %d: end %d, want %d, %v, %d ns", i, r.EndMach, want, r.Quality, r.FrameTimeNs)
		}
	}
	_, err := ReadXctrace(strings.NewReader(export(at(2), at(3), other(3))), xctraceTimebase)
	if err == nil || !strings.Contains(err.Error(), "no frame has a successor with prev_frame and the next frame_seed") {
		t.Errorf("one of them missing: %v", err)
	}
}

func TestAFrameWithoutAnArgumentIsUnsupportedInAnImport(t *testing.T) {
	bad := frameAt(3)
	bad.message = `<narrative-text id="n1">frame_seed=</narrative-text><uint64 id="n2">103</uint64><narrative-text id="n3"> prev_frame=</narrative-text><private id="n4"/>` +
		`<narrative-text id="n5"> display_id=</narrative-text><uint64 id="n6">1</uint64>`
	_, records, counts := importXctrace(t, strings.NewReader(export(frameAt(2), bad, frameAt(4), frameAt(5))))
	r := records[1]
	if r.Quality != QualityUnsupportedSchema || r.QualityReason != ReasonArgumentMissing || r.EndMach != traceBegan+720_000 ||
		!slices.Equal(r.PresentFields, []string{"begin_time", "end_time", "frame_seed", "prev_frame"}) {
		t.Errorf("%v %q, end %d, present %v", r.Quality, r.QualityReason, r.EndMach, r.PresentFields)
	}
	if counts.ByQuality[QualitySourceGap] != 1 { // behind the frame that could not be judged
		t.Errorf("%+v", counts.JudgeStats)
	}
}

func TestExportsThatCannotBeImportedSayWhy(t *testing.T) {
	whole := export(frameAt(2), frameAt(3))
	for _, c := range []struct{ name, file, want string }{
		{"empty", "", `xctrace export, line 1, column 1: no table "os-signpost-interval"; export one with: xctrace export`},
		{"no XML", "hello", `no table "os-signpost-interval"`},
		{"another table", strings.Replace(whole, "os-signpost-interval", "hitches", 1), `no table "os-signpost-interval"`},
		{"cut off", whole[:len(whole)-200], "unexpected EOF"},
		{"not well formed", strings.Replace(whole, "</row>", "</rows>", 1), "element <row> closed by </rows>"},
		{"no frames", export(), `no FrameLifetime intervals of the render server in table "os-signpost-interval"`},
		{"one frame", export(frameAt(2)), "no frame has a successor with prev_frame"},
		{"unknown reference", strings.Replace(whole, `<string ref="3"/>`, `<string ref="77"/>`, 1), `<string> refers to id "77", which no <string> before it has`},
		{"reference to another element", strings.Replace(whole, `<string ref="3"/>`, `<string ref="4"/>`, 1), `<string> refers to id "4", which no <string> before it has`},
		{"id twice", strings.Replace(whole, `<start-time id="1"`, `<start-time id="m0"`, 1), `id "m0" is given twice`},
		{"start is no number", strings.Replace(whole, ">5000000<", ">-5000000<", 1), "a FrameLifetime interval without start and duration in ns"},
		{"start out of range", strings.Replace(whole, ">5000000<", ">1125899906842625<", 1), "a FrameLifetime interval without start and duration in ns"},
		{"no process", strings.NewReplacer(`<process id="p" fmt="backboardd (64)"><pid id="q">64</pid></process>`, `<sentinel/>`, `<process ref="p"/>`, ``).Replace(whole),
			"names no process"},
		{"before the clock began", export(interval{startNs: 0, durationNs: 20_000_000_000, seed: 1, previous: 5, display: 1},
			interval{startNs: 5, durationNs: 20_010_000_000, seed: 2, previous: 240_000, display: 1}), "a frame before the device's clock began"},
		{"too deep", "<a>" + strings.Repeat("<b>", maxXMLDepth) + "</a>", "nested deeper than 64"},
		{"too deep in a row", strings.Replace(whole, "<row>", "<row>"+strings.Repeat("<b>", maxXMLDepth), 1), "nested deeper than 64"},
		{"too many columns", strings.Replace(whole, "<col>", strings.Repeat("<mnemonic>x</mnemonic>", maxXMLColumns+1)+"<col>", 1), "more than 256 columns"},
		{"a tag without an end", "<a " + strings.Repeat("x", 2*maxXMLTokenBytes), "a tag or text that is too long: more than 1048576 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ReadXctrace(strings.NewReader(c.file), xctraceTimebase)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
		})
	}
	if _, err := ReadXctrace(strings.NewReader(whole), Timebase{125, 0}); err == nil || !strings.Contains(err.Error(), "timebase 125/0") {
		t.Errorf("timebase: %v", err)
	}
}

func TestAnImportEndsWithTheCallersError(t *testing.T) {
	x, err := ReadXctrace(strings.NewReader(export(frameAt(2), frameAt(3), frameAt(4))), xctraceTimebase)
	if err != nil {
		t.Fatal(err)
	}
	full, calls := errors.New("disk full"), 0
	if _, err := x.Records("s", "", func(*Record) error { calls++; return full }); !errors.Is(err, full) || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
}

func FuzzReadXctrace(f *testing.F) {
	f.Add([]byte(export(frameAt(2), frameAt(3), frameAt(4), frameAt(7))))
	f.Add([]byte(export(frameAt(2))))
	real, err := io.ReadAll(dataFile(f, "xctrace/skylight-signpost-intervals.xml"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(real[:12_000])
	f.Fuzz(func(t *testing.T, file []byte) {
		x, err := ReadXctrace(strings.NewReader(string(file)), xctraceTimebase)
		if err != nil {
			return
		}
		lastHostNs := int64(-1)
		_, err = x.Records("s", PolicyP95, func(r *Record) error {
			if r.HostNs <= lastHostNs || r.Quality == QualityUnknown || r.Quality == QualityValid && (r.FrameTimeNs < 1 || r.EndMach <= r.PreviousMach) {
				t.Fatalf("%+v", r)
			}
			lastHostNs = r.HostNs
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}
