package adapter

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// read runs rows through a new adapter, in one payload.
func read(t testing.TB, rows ...testRow) (*collector, Counts) {
	t.Helper()
	a, c := newTestAdapter(t), &collector{}
	a.Message(1000, payload(rows...), c)
	return c, a.Counts()
}

func lifetimeOf(r Record) lifetime {
	return lifetime{seed: int(r.FrameSeed), swap: int(r.SwapID), display: int(r.DisplayID), surface: int(r.SurfaceID), begin: int(r.BeginMach), end: int(r.EndMach),
		previous: int(r.PreviousMach), refresh: int(r.RefreshIntervalMach), stalls: r.Category == "IOMFBServer.Stalls"}
}

func TestOverlappingLifetimesAreJudgedInTheOrderOfTheirEnds(t *testing.T) {
	a, b, c := steadyFrame(0), steadyFrame(1), steadyFrame(2)
	b.begin, b.stalls = a.begin-5000, true // begins before a, ends after it
	got, counts := read(t, b.beginRow(), a.beginRow(), c.beginRow(), a.endRow(), b.endRow(), c.endRow())
	if len(got.records) != 3 || lifetimeOf(got.records[0]) != a || lifetimeOf(got.records[1]) != b || lifetimeOf(got.records[2]) != c {
		t.Fatalf("got %+v", got.records)
	}
	if got.records[1].Quality != QualityValid || got.records[2].Quality != QualityValid || counts.PairCounts != (PairCounts{}) {
		t.Errorf("%v %v %+v", got.records[1].Quality, got.records[2].Quality, counts.PairCounts)
	}
}

func TestARowThatStillCarriesBothTimesIsAWholeFrame(t *testing.T) {
	f := steadyFrame(0)
	whole := func(event string, time int) testRow {
		r := f.row(event, time)
		message := slices.Clone(f.message())
		message = slices.Insert(message, 1, any([]any{"uint64", f.begin}))
		r.message = slices.Insert(message, 9, any([]any{"uint64", f.end})) // after buffer_count and the blank behind it
		return r
	}
	for _, c := range []struct {
		name string
		rows []testRow
	}{
		{"an Event", []testRow{whole("Event", f.end)}},
		{"an Event whose time is null", []testRow{func() testRow { r := whole("Event", 0); r.time = nil; return r }()}},
		{"a pair", []testRow{whole("Begin", f.begin), whole("End", f.end)}},
		{"an End alone", []testRow{whole("End", f.end)}},
		{"a Begin alone", []testRow{whole("Begin", f.begin)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, counts := read(t, c.rows...)
			if len(got.records) != 1 || lifetimeOf(got.records[0]) != f || len(got.gaps) != 0 || counts.PairCounts != (PairCounts{}) {
				t.Errorf("got %+v, gaps %v, %+v", got.records, got.gaps, counts.PairCounts)
			}
		})
	}
}

func TestAnEndWithoutItsBeginIsUnsupportedAndKept(t *testing.T) {
	f, g := steadyFrame(0), steadyFrame(1)
	got, counts := read(t, f.endRow(), g.beginRow(), g.endRow())
	r := got.records[0]
	want := []string{"end_time", "frame_seed", "refresh_interval", "buffer_count", "prev_frame", "skip_request"}
	if r.Quality != QualityUnsupportedSchema || r.QualityReason != ReasonArgumentMissing || !slices.Equal(r.PresentFields, want) {
		t.Errorf("%v %q, present %v", r.Quality, r.QualityReason, r.PresentFields)
	}
	if r.Fields&HasBeginMach != 0 || r.Fields&HasLifetime != 0 || r.EndMach != int64(f.end) || r.FrameSeed != int64(f.seed) {
		t.Errorf("%+v", r)
	}
	if r = got.records[1]; r.Quality != QualityNoPredecessor || len(r.PresentFields) != 0 {
		t.Errorf("the next frame: %v, present %v", r.Quality, r.PresentFields)
	}
	if counts.UnpairedEnds != 1 || counts.UnpairedBegins != 0 || len(got.gaps) != 0 {
		t.Errorf("%+v, gaps %v", counts.PairCounts, got.gaps)
	}
}

func TestBeginsAreForgottenAfter1024OthersAndWithTheConnection(t *testing.T) {
	for _, c := range []struct {
		others  int
		quality Quality // of the first frame, whose End comes last
		// Begins counted as unpaired, before and after the connection ended.
		before, after int64
	}{
		{1023, QualityNoPredecessor, 0, 1023},
		{1024, QualityUnsupportedSchema, 1, 1025},
	} {
		a, e, got := newTestAdapter(t), newEncoder(), &collector{}
		for i := range 1 + c.others {
			e.row(steadyFrame(i).beginRow())
		}
		e.row(steadyFrame(0).endRow())
		a.Message(1, e.take(), got)
		before := a.Counts().UnpairedBegins
		a.EndConnection(got)
		after := a.Counts().UnpairedBegins
		if len(got.records) != 1 || got.records[0].Quality != c.quality || before != c.before || after != c.after {
			t.Errorf("%d others: %d, then %d unpaired; records %+v", c.others, before, after, got.records)
		}
		a.Message(2, payload(steadyFrame(1).endRow()), got)
		if r := got.records[1]; r.Fields&HasBeginMach != 0 {
			t.Error("a Begin of the connection before was used")
		}
	}
}

func TestPairsAreToldApartByCategoryDisplaySeedAndSwap(t *testing.T) {
	f := steadyFrame(0)
	for _, c := range []struct {
		name  string
		other lifetime
	}{
		{"category", func() lifetime { g := f; g.stalls = true; return g }()},
		{"display", func() lifetime { g := f; g.display = 2; return g }()},
		{"seed", func() lifetime { g := f; g.seed++; return g }()},
		{"swap", func() lifetime { g := f; g.swap++; return g }()},
	} {
		g := c.other
		g.begin -= 77
		got, _ := read(t, f.beginRow(), g.beginRow(), f.endRow(), g.endRow())
		if len(got.records) == 0 || got.records[0].BeginMach != int64(f.begin) || c.name != "category" && got.records[1].BeginMach != int64(g.begin) {
			t.Errorf("%s: %+v", c.name, got.records)
		}
	}
}

// bothTimes is a single row with every argument in its message, named as names says, without a format string to help.
func bothTimes(f lifetime, names [9]string) testRow {
	r := f.row("Event", f.end)
	r.format = nil
	values := [9]int{f.begin, f.end, f.seed, f.refresh, 2, f.previous, 1, f.display, f.surface}
	var message []any
	for i, name := range names {
		message = append(message, []any{"narrative-text", " " + name + "="}, []any{"uint64", values[i]})
	}
	r.message = message
	return r
}

func TestArgumentNamesMayBeSnakeCamelOrKebabCase(t *testing.T) {
	snake := [9]string{"begin_time", "end_time", "frame_seed", "refresh_interval", "buffer_count", "prev_frame", "skip_request", "display_id", "surface_id"}
	camel := [9]string{"beginTime", "endTime", "frameSeed", "refreshInterval", "bufferCount", "prevFrame", "skipRequest", "displayId", "surfaceID"}
	kebab := [9]string{"begin-time", "end-time", "frame-seed", "refresh-interval", "buffer-count", "prev-frame", "skip-request", "display-id", "surface-id"}
	f := steadyFrame(0)
	for _, names := range [][9]string{snake, camel, kebab} {
		inText, _ := read(t, bothTimes(f, names))
		if len(inText.records) != 1 || lifetimeOf(inText.records[0]) != f || inText.records[0].SkipRequest != 1 {
			t.Errorf("%s in the text: %+v", names[2], inText.records)
		}
		// In the format string instead, by name= and by the word in front; the message's own text says nothing.
		r := bothTimes(f, [9]string{})
		var format strings.Builder
		for i, name := range names {
			if i%2 == 0 {
				fmt.Fprintf(&format, "x%%{public, name=%s}llu", name)
			} else {
				fmt.Fprintf(&format, ", %s: %%llu", name)
			}
		}
		r.format = format.String()
		inFormat, _ := read(t, r)
		if len(inFormat.records) != 1 || lifetimeOf(inFormat.records[0]) != f {
			t.Errorf("%s in the format string: %+v", names[2], inFormat.records)
		}
	}
}

func TestFormatStringPlaceholders(t *testing.T) {
	for _, c := range []struct {
		format string
		want   []placeholder
	}{
		{format7, []placeholder{{"begin_time", "", true}, {"frame_seed", "", false}, {"refresh_interval", "", false}, {"buffer_count", "", false},
			{"end_time", "", true}, {"prev_frame", "", false}, {"skip_request", "", false}}},
		{formatUpdate, []placeholder{{"base_mct", "base_mct", false}, {"args1", "", false}, {"args2", "", false}, {"contributors", "", false},
			{"FrameLifetimeInterval", "begin_end_32b", false}, {"FrameRender", "begin_end_32b", false}, {"FrameReady", "event", false}, {"FramePrevious", "event", false}}},
		{"100%% of %s at x=%-08.3f, y: %*d%%%{name=z}@", []placeholder{{"of", "", false}, {"x", "", false}, {"y", "", false}, {"z", "", false}}},
		{"%{public", []placeholder{{}}},
		{"%", []placeholder{{}}},
		{"a_b %{signpost.description:attribute,public}d", []placeholder{{"a_b", "", false}}},
		{"", nil},
	} {
		if got := parseFormat(c.format); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", c.format, got, c.want)
		}
	}
}

func TestUnknownArgumentsAreSteppedOver(t *testing.T) {
	f := steadyFrame(0)
	r := f.endRow()
	r.format = "new=%{public, name=new_thing}llu " + format9 + " also_new=%{public, name=also_new}s"
	r.message = append(append([]any{[]any{"narrative-text", "new="}, []any{"uint64", 12345}}, f.message()...),
		[]any{"narrative-text", " also_new="}, []any{"string", "x"})
	got, _ := read(t, f.beginRow(), r)
	if len(got.records) != 1 || lifetimeOf(got.records[0]) != f || got.records[0].Quality != QualityNoPredecessor {
		t.Errorf("got %+v", got.records)
	}
}

// Layouts of the longest format strings would be a gigabyte.
func TestAFormatStringTooLongToKeepLeavesTheNamesToTheText(t *testing.T) {
	f := steadyFrame(0)
	for _, c := range []struct {
		bytes, kept int // with its NUL
	}{{8191, 1}, {8193, 0}} {
		begin, end := f.beginRow(), f.endRow()
		begin.format = format9 + strings.Repeat(".", c.bytes-1-len(format9))
		end.format = begin.format
		a, got := newTestAdapter(t), &collector{}
		a.Message(1, payload(begin, end), got)
		if n := len(a.formats[formFrameLifetime].byContent); n != c.kept || len(got.records) != 1 || lifetimeOf(got.records[0]) != f {
			t.Errorf("%d bytes: %d format strings kept, want %d; records %+v", c.bytes, n, c.kept, got.records)
		}
	}
}

func TestRequiredArgumentsThatCannotBeUsedMakeARecordUnsupported(t *testing.T) {
	// Places of the arguments in lifetime.message.
	const seed, refresh, buffers, previous, skip, display = 2, 4, 6, 9, 11, 13
	all := []string{"begin_time", "end_time", "frame_seed", "refresh_interval", "buffer_count", "prev_frame", "skip_request"}
	without := func(i int) []string { return slices.Delete(slices.Clone(all), i, i+1) }
	for _, c := range []struct {
		name    string
		place   int
		item    any // nil: the argument and its text are left out
		reason  string
		present []string
		missing Fields
	}{
		{"frame_seed missing", seed, nil, ReasonArgumentMissing, without(2), HasFrameSeed},
		{"refresh_interval missing", refresh, nil, ReasonArgumentMissing, without(3), HasRefreshIntervalMach},
		{"buffer_count missing", buffers, nil, ReasonArgumentMissing, without(4), HasBufferCount},
		{"prev_frame missing", previous, nil, ReasonArgumentMissing, without(5), HasPreviousMach},
		{"skip_request missing", skip, nil, ReasonArgumentMissing, without(6), HasSkipRequest},
		{"prev_frame a string", previous, []any{"string", "5"}, ReasonArgumentType, all, HasPreviousMach},
		{"prev_frame private", previous, []any{"private", nil}, ReasonArgumentType, all, HasPreviousMach},
		{"prev_frame a double", previous, []any{"fixed-decimal", 5}, ReasonArgumentType, all, HasPreviousMach},
		{"prev_frame without a type", previous, []any{nil, 5}, ReasonArgumentType, all, HasPreviousMach},
		{"prev_frame without type and value", previous, "null", ReasonArgumentType, all, HasPreviousMach},
		{"prev_frame null", previous, []any{"uint64", nil}, ReasonArgumentType, all, HasPreviousMach},
		{"prev_frame of 9 bytes", previous, []any{"uint64", []byte{1, 2, 3, 4, 5, 6, 7, 8, 9}}, ReasonArgumentType, all, HasPreviousMach},
		{"prev_frame 2^63", previous, []any{"uint64", uint64(1 << 63)}, ReasonArgumentRange, all, HasPreviousMach},
		{"buffer_count -1", buffers, []any{"uint64", uint64(math.MaxUint64)}, ReasonArgumentRange, all, HasBufferCount},
		{"display_id too large", display, []any{"uint64", uint64(math.MaxUint64)}, ReasonArgumentRange, all, HasDisplayID},
		{"display_id a string", display, []any{"string", "main"}, ReasonArgumentType, all, HasDisplayID},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := steadyFrame(0)
			message := f.message()
			if c.item == "null" {
				message[c.place] = nil
			} else if c.item != nil {
				message[c.place] = c.item
			} else {
				message = slices.Delete(message, c.place-1, c.place+1)
			}
			begin, end := f.beginRow(), f.endRow()
			begin.message, end.message = message, message
			got, counts := read(t, begin, end)
			if len(got.records) != 1 || len(got.gaps) != 0 || counts.PairCounts != (PairCounts{}) {
				t.Fatalf("records %+v, gaps %v, %+v", got.records, got.gaps, counts.PairCounts)
			}
			r := got.records[0]
			if r.Quality != QualityUnsupportedSchema || r.QualityReason != c.reason || !slices.Equal(r.PresentFields, c.present) {
				t.Errorf("%v %q, present %v; want %q, %v", r.Quality, r.QualityReason, r.PresentFields, c.reason, c.present)
			}
			if natives := (HasNatives | HasDisplayID) &^ r.Fields; natives != c.missing {
				t.Errorf("missing fields %b, want %b", natives, c.missing)
			}
		})
	}
}

func TestAnUnusableSurfaceIDCountsAsNotReported(t *testing.T) {
	f := steadyFrame(0)
	begin, end := f.beginRow(), f.endRow()
	message := f.message()
	message[len(message)-1] = []any{"string", "x"}
	begin.message, end.message = message, message
	got, _ := read(t, begin, end)
	if r := got.records[0]; r.Quality != QualityNoPredecessor || r.SurfaceID != 0 || r.Fields&HasSurfaceID == 0 {
		t.Errorf("%v, %d", r.Quality, r.SurfaceID)
	}
}

func TestARowWithoutAMessageHasNoArguments(t *testing.T) {
	f := steadyFrame(0)
	end := f.endRow()
	end.message = nil
	got, _ := read(t, end)
	if len(got.records) != 1 || got.records[0].QualityReason != ReasonArgumentMissing || !slices.Equal(got.records[0].PresentFields, []string{"end_time"}) {
		t.Errorf("got %+v", got.records)
	}
}

func TestIdentifiersThatAreNoSwapIDMakeARecordUnsupported(t *testing.T) {
	for _, c := range []struct {
		id     any
		reason string
	}{{nil, ReasonArgumentMissing}, {uint64(0xEEEEB0B5B2B2EEEE), ReasonArgumentRange}} {
		f := steadyFrame(0)
		begin, end := f.beginRow(), f.endRow()
		begin.id, end.id = c.id, c.id
		got, _ := read(t, begin, end)
		if len(got.records) != 1 || got.records[0].QualityReason != c.reason || got.records[0].Fields&HasSwapID != 0 {
			t.Errorf("%v: %+v", c.id, got.records)
		}
	}
}

func TestIOS18TellsDisplayTargetAndInput(t *testing.T) {
	a, got := newTestAdapter(t), &collector{}
	decodeWire(t, a, dataFile(t, "tap/ios18.wire"), got)
	r := got.records[0]
	if r.DisplayTargetMach != 59827756837138 || r.InputMach != 59827756611154 || r.Fields&(HasDisplayTargetMach|HasInputMach) != HasDisplayTargetMach|HasInputMach {
		t.Errorf("target %d, input %d", r.DisplayTargetMach, r.InputMach)
	}
	if r.Fields&(HasRenderBeginMach|HasRenderEndMach|HasNativeID) != 0 {
		t.Errorf("fields %b", r.Fields)
	}
}

func TestIOS26TellsRenderTimesNativeIDAndContributors(t *testing.T) {
	a, got := newTestAdapter(t), &collector{}
	decodeWire(t, a, dataFile(t, "tap/ios26.wire"), got)
	r := got.records[0]
	// From the stream: base_mct 59827756611253, FrameRender 4294967408937 = 1000<<32 | 112937, identifier 125359813<<32 | 90001.
	if r.RenderBeginMach != 59827756612253 || r.RenderEndMach != 59827756724190 || r.NativeID != 538416297067765649 {
		t.Errorf("render %d to %d, native id %d", r.RenderBeginMach, r.RenderEndMach, r.NativeID)
	}
	if r.Fields&(HasDisplayTargetMach|HasInputMach) != 0 {
		t.Errorf("fields %b", r.Fields)
	}
	if got.order != strings.Repeat("rc", 12) {
		t.Errorf("order %s; want each frame's contributors behind its record", got.order)
	}
	want := Contributors{FrameSeed: 125359813, DisplayID: 1, Processes: []Contributor{{PID: 431}, {PID: 64}}}
	if !reflect.DeepEqual(got.contributors[0], want) {
		t.Errorf("contributors %+v", got.contributors[0])
	}
}

func TestFrameUpdateBits(t *testing.T) {
	f := update{seed: 0x80000001, swap: 0xFFFFFFFF, base: 1_000_000, begin: 7, end: 250_000, previous: 900_000,
		args1: 0xAB<<56 | 255<<48 | 9<<44 | 0x7F<<34 | 1<<33 | 1<<32 | 0xFFFFFFFF, args2: 0xDEADBEEF<<32 | 199_999}
	got, _ := read(t, f.row())
	r := got.records[0]
	if r.FrameSeed != 0x80000001 || r.SwapID != 0xFFFFFFFF || r.NativeID != -9223372028264841217 || r.DisplayID != 255 || r.BufferCount != 9 ||
		r.SkipRequest != 1 || r.RefreshIntervalMach != 199_999 || r.BeginMach != 1_000_007 || r.EndMach != 1_250_000 || r.PreviousMach != 900_000 {
		t.Errorf("got %+v", r)
	}
	if r.Fields&(HasRenderBeginMach|HasRenderEndMach|HasDisplayTargetMach) != 0 || r.Fields&HasSurfaceID == 0 {
		t.Errorf("fields %b", r.Fields)
	}
	// skip request clear, its neighbours set; refresh interval saturated.
	f.args1, f.args2 = f.args1&^(1<<33), math.MaxUint64
	f.seed = 2
	got, _ = read(t, f.row())
	if r = got.records[0]; r.SkipRequest != 0 || r.RefreshIntervalMach != 0 || r.Fields&HasRefreshIntervalMach == 0 {
		t.Errorf("skip request %d, refresh interval %d", r.SkipRequest, r.RefreshIntervalMach)
	}
}

func TestFrameUpdateIntervalsOfOtherGenerators(t *testing.T) {
	build := func(interval string, values ...any) testRow {
		format := "base_mct=%{signpost.generator:base_mct}llu args1=%{name=args1}#llx args2=%{name=args2}#llx " + interval +
			" FramePrevious=%{name=FramePrevious,signpost.generator:event}llu"
		message := []any{[]any{"uint64", 1_000_000}, []any{"uint64", 1 << 48}, []any{"uint64", 199_999}}
		for _, v := range values {
			message = append(message, []any{"uint64", v})
		}
		return update{seed: 1, swap: 2, format: format, values: append(message, []any{"uint64", 900_000})}.row()
	}
	for _, c := range []struct {
		name       string
		row        testRow
		begin, end int64
		fault      string
		present    []string
	}{
		{name: "16 bits", row: build("%{name=FrameLifetimeInterval,signpost.generator:begin_end_16b}u", 3<<16|50_000), begin: 1_000_003, end: 1_050_000},
		{name: "begin and end", row: build("%{name=FrameLifetimeInterval,signpost.generator:begin}u %{name=FrameLifetimeInterval,signpost.generator:end}u", 4, 90_000),
			begin: 1_000_004, end: 1_090_000},
		{name: "an id is no time", row: build("%{name=FrameLifetimeInterval,signpost.generator:id}u", 5), fault: ReasonArgumentMissing,
			present: []string{"base_mct", "args1", "args2", "FramePrevious"}},
		{name: "begin without end", row: build("%{name=FrameLifetimeInterval,signpost.generator:begin}u", 5), fault: ReasonArgumentMissing,
			present: []string{"base_mct", "args1", "args2", "FrameLifetimeInterval", "FramePrevious"}},
		{name: "16 bits of more than 32", row: build("%{name=FrameLifetimeInterval,signpost.generator:begin_end_16b}llu", 1<<32), fault: ReasonArgumentRange,
			present: []string{"base_mct", "args1", "args2", "FrameLifetimeInterval", "FramePrevious"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, _ := read(t, c.row)
			r := got.records[0]
			if c.fault != "" {
				if r.Quality != QualityUnsupportedSchema || r.QualityReason != c.fault || !slices.Equal(r.PresentFields, c.present) || r.Fields&HasEndMach != 0 {
					t.Errorf("%v %q, present %v", r.Quality, r.QualityReason, r.PresentFields)
				}
				return
			}
			if r.BeginMach != c.begin || r.EndMach != c.end || r.Quality != QualityNoPredecessor {
				t.Errorf("%v %q, begin %d, end %d", r.Quality, r.QualityReason, r.BeginMach, r.EndMach)
			}
		})
	}
}

func TestFrameUpdateWithoutAFormatStringIsReadByTheTextInFront(t *testing.T) {
	f := steadyUpdate(0)
	r := f.row()
	r.format = nil
	got, _ := read(t, r)
	if len(got.records) != 1 || got.records[0].EndMach != 59827756837127 || got.records[0].BeginMach != 59827756611253 || got.records[0].DisplayID != 1 {
		t.Errorf("got %+v", got.records)
	}
}

func TestFrameUpdateVariantsTellMoreIntervalsAndTheDisplayTarget(t *testing.T) {
	f := steadyUpdate(0)
	r := f.row()
	r.format = formatUpdate + " FrameGPUExecute=%{name=FrameGPUExecute,signpost.generator:begin_end_32b}llu FrameProcess=%{name=FrameProcess," +
		"signpost.generator:begin_end_32b}llu FrameModifierTarget=%{name=FrameModifierTarget,signpost.generator:event}u"
	r.message = append(r.message.([]any), []any{"uint64", 5<<32 | 6}, []any{"uint64", 7<<32 | 8}, []any{"uint64", 225_885})
	got, _ := read(t, r)
	if len(got.records) != 1 || got.records[0].DisplayTargetMach != 59827756837138 || got.records[0].EndMach != 59827756837127 {
		t.Errorf("got %+v", got.records)
	}
}

func TestFrameUpdateTimesThatDoNotFit(t *testing.T) {
	f := steadyUpdate(0)
	f.base = math.MaxInt64 - 5
	got, _ := read(t, f.row())
	if r := got.records[0]; r.QualityReason != ReasonArgumentRange || r.Fields&HasEndMach != 0 || r.Fields&HasRenderEndMach != 0 || r.BeginMach != math.MaxInt64-5 {
		t.Errorf("%+v", r)
	}
	f.base = 1 << 63
	got, _ = read(t, f.row())
	if r := got.records[0]; r.QualityReason != ReasonArgumentRange || r.Fields&(HasBeginMach|HasEndMach) != 0 {
		t.Errorf("%+v", r)
	}
}

func TestFrameUpdateThatIsNoEventIsAGap(t *testing.T) {
	f := steadyUpdate(0)
	f.event = "Begin"
	got, counts := read(t, f.row())
	if len(got.records) != 0 || len(got.gaps) != 1 || got.gaps[0].Reason != ReasonFrameRow || got.gaps[0].Rows != 1 || counts.UnreadableFrameRows != 1 {
		t.Errorf("records %v, gaps %v", got.records, got.gaps)
	}
}

func TestContributorsOfFrameUpdate(t *testing.T) {
	chunk := func(pid int32) []byte {
		return []byte{byte(pid), byte(pid >> 8), byte(pid >> 16), byte(pid >> 24), 1, 2, 3, 4}
	}
	for _, c := range []struct {
		name    string
		data    any
		want    []Contributor
		partial int64
	}{
		{"plain bytes", append(append(chunk(431), chunk(0)...), append(chunk(-1), chunk(9)...)...), []Contributor{{PID: 431}, {PID: -1}}, 0},
		{"half a record", []any{chunk(431), chunk(0), chunk(64)}, []Contributor{{PID: 431}}, 1},
		{"half a record of bytes", append(append(chunk(431), chunk(0)...), chunk(64)...), []Contributor{{PID: 431}}, 1},
		{"a last chunk sent short", []any{chunk(431), []byte{5}}, []Contributor{{PID: 431}}, 0},
		{"a chunk too long", []any{append(chunk(431), chunk(0)...)}, nil, 1},
		{"a chunk missing", []any{chunk(431), nil, chunk(64)}, nil, 1},
		{"none", []any{}, nil, 0},
		{"null", nil, nil, 0},
		{"as many as are told", bytes.Repeat(append(chunk(431), chunk(0)...), 512), slices.Repeat([]Contributor{{PID: 431}}, 512), 0},
		{"more", bytes.Repeat(append(chunk(431), chunk(0)...), 513), slices.Repeat([]Contributor{{PID: 431}}, 512), 1},
	} {
		f := steadyUpdate(0)
		f.contributors = c.data
		got, counts := read(t, f.row())
		var processes []Contributor
		for _, told := range got.contributors {
			processes = append(processes, told.Processes...)
		}
		if len(got.records) != 1 || !reflect.DeepEqual(processes, c.want) || counts.PartialContributors != c.partial {
			t.Errorf("%s: %v, partial %d; want %v, %d", c.name, processes, counts.PartialContributors, c.want, c.partial)
		}
	}
	f := steadyUpdate(0).row()
	f.message.([]any)[7] = []any{"private", nil}
	if got, counts := read(t, f); len(got.records) != 1 || len(got.contributors) != 0 || counts.PartialContributors != 1 {
		t.Errorf("private: %v, partial %d", got.contributors, counts.PartialContributors)
	}
}

func TestContributorsAreNotToldAgainForDuplicatesAndTwins(t *testing.T) {
	f := steadyUpdate(0)
	twin := f.row()
	twin.category = "IOMFBServer.Stalls"
	got, counts := read(t, f.row(), f.row(), twin)
	if got.order != "rcr" || got.records[1].Quality != QualityDuplicate || counts.CategoryTwins != 1 {
		t.Errorf("order %s, %+v", got.order, counts.JudgeStats)
	}
}

func contextRow(event string, message ...any) testRow {
	return testRow{time: 5, event: event, id: 9, name: "ContextInfo", subsystem: "com.apple.coreanimation", category: "IOMFBServer.Stalls", message: message,
		format: "pid=%{public, name=pid}d frame_seed=%{public, name=frame_seed}#x display_id=%{public, name=display_id}#x " +
			"earliest_mct=%{public, name=earliest_mct}llu previous_mct=%{public, name=previous_mct}llu process_name=%{public, name=process_name}s"}
}

func TestContextInfoNamesAContributor(t *testing.T) {
	pid := func(v any) []any { return []any{"uint64", v} }
	number, name := []any{"uint64", 7}, []any{"string", "SpringBoard"}
	got, counts := read(t,
		contextRow("Event", pid(64), number, number, number, number, name),
		contextRow("Event", pid(uint64(math.MaxUint64)), number, number, number, number, name),
		contextRow("Event", name, number, number, number, number, name),
		contextRow("Begin", pid(65), number, number, number, number, []any{"private", nil}),
		contextRow("End", pid(65), number, number, number, number, []any{"private", nil}))
	want := []Contributors{{7, 7, []Contributor{{64, "SpringBoard"}}}, {7, 7, []Contributor{{65, ""}}}}
	if !reflect.DeepEqual(got.contributors, want) || len(got.records)+len(got.gaps) != 0 || counts.UnreadableRows != 2 {
		t.Errorf("%+v, gaps %v, unreadable %d", got.contributors, got.gaps, counts.UnreadableRows)
	}
	long := strings.Repeat("n", 256)
	got, _ = read(t, contextRow("Event", pid(64), number, number, number, number, []any{"string", long + "ame"}))
	if want := []Contributors{{7, 7, []Contributor{{64, long}}}}; !reflect.DeepEqual(got.contributors, want) {
		t.Errorf("a name of 259 bytes: %+v", got.contributors)
	}
	short := contextRow("Event", []any{"narrative-text", "pid="}, pid(64), []any{"narrative-text", " frame_seed="}, number)
	short.format = nil
	got, _ = read(t, short)
	if want := []Contributors{{7, 0, []Contributor{{64, ""}}}}; !reflect.DeepEqual(got.contributors, want) {
		t.Errorf("without display and name: %+v", got.contributors)
	}
}
