package adapter

import (
	"fmt"
	"slices"
	"testing"
)

// oneToOne is a timebase in which a tick is a nanosecond, so that boundaries can be hit exactly.
var oneToOne = Timebase{1, 1}

// told is a frame in the order of its arrival, and what the table of raw-record.md says of it. Zero fields mean display 1 and category
// IOMFBServer; begin is end - 10 where not set.
type told struct {
	display, seed, swap  int64
	begin, end, previous int64
	refresh              int64
	category             categoryID
	fault                string

	quality Quality
	reason  string
	dropped any // nil: 0; "unknown": null
	twin    bool
	skew    int64
}

func (f told) record(t Timebase) Record {
	r := Record{Fields: HasNatives | HasDisplayID | HasSurfaceID | HasTimebase, Timebase: t, SwapID: f.swap, FrameSeed: f.seed, DisplayID: f.display,
		BeginMach: f.begin, EndMach: f.end, PreviousMach: f.previous, RefreshIntervalMach: f.refresh, BufferCount: 2}
	if r.DisplayID == 0 {
		r.DisplayID = 1
	}
	if r.BeginMach == 0 {
		r.BeginMach = f.end - 10
	}
	return r
}

func newJudge() *judge {
	j := &judge{}
	j.bind(1, 0)
	return j
}

func checkTold(t *testing.T, j *judge, timebase Timebase, frames []told) {
	t.Helper()
	for i, f := range frames {
		r := f.record(timebase)
		if isRecord := j.judge(&r, f.category, f.fault); isRecord == f.twin {
			t.Errorf("frame %d: a record: %v", i, isRecord)
			continue
		}
		if f.twin {
			continue
		}
		if r.Quality != f.quality || r.QualityReason != f.reason {
			t.Errorf("frame %d: %v %q, want %v %q", i, r.Quality, r.QualityReason, f.quality, f.reason)
		}
		dropped := any(nil)
		if r.Fields&HasDroppedBefore == 0 {
			dropped = "unknown"
		} else if r.DroppedBefore != 0 {
			dropped = int(r.DroppedBefore)
		}
		if dropped != f.dropped {
			t.Errorf("frame %d: droppedBefore %v, want %v", i, dropped, f.dropped)
		}
		if hasTime := r.Fields&HasFrameTime != 0; hasTime != (f.quality == QualityValid) {
			t.Errorf("frame %d: has a frame time: %v", i, hasTime)
		}
		if r.PredecessorSkewMach != f.skew || (r.Fields&HasPredecessorSkew != 0) != (f.skew != 0) {
			t.Errorf("frame %d: predecessorSkewMach %d, want %d", i, r.PredecessorSkewMach, f.skew)
		}
	}
}

const second = 1_000_000_000

func TestQualityIsTheFirstLineOfTheTableThatApplies(t *testing.T) {
	first := told{seed: 1, swap: 1, end: second, previous: second - 8_000_000, quality: QualityNoPredecessor, reason: ReasonFirstOnDisplay}
	next := func(f told) told {
		if f.seed == 0 {
			f.seed, f.swap = 2, 2
		}
		return f
	}
	for _, c := range []struct {
		name   string
		frames []told
	}{
		{"valid", []told{first, next(told{end: second + 8_000_000, previous: second, quality: QualityValid})}},
		{"a fault wins over everything", []told{first, next(told{end: 5, previous: 9, fault: ReasonArgumentMissing, quality: QualityUnsupportedSchema,
			reason: ReasonArgumentMissing}), next(told{end: second + 8_000_000, previous: second, quality: QualityValid})}},
		{"duplicate wins over out-of-order", []told{first, {seed: 1, swap: 1, end: 7, previous: 3, quality: QualityDuplicate, reason: ReasonAlreadySeen}}},
		{"another swap id is no duplicate", []told{first, {seed: 1, swap: 2, end: second + 8_000_000, previous: second, quality: QualityValid}}},
		{"another seed is no duplicate", []told{first, {seed: 2, swap: 1, end: second + 8_000_000, previous: second, quality: QualityValid}}},
		{"the same frame under the other category is no record", []told{first, {seed: 1, swap: 1, end: second, previous: second - 8_000_000,
			category: categoryIOMFBStalls, twin: true}, next(told{end: second + 8_000_000, previous: second, quality: QualityValid})}},
		{"an end equal to the last is out of order", []told{first, next(told{end: second, previous: second, quality: QualityOutOfOrder, reason: ReasonEndNotAfterLast})}},
		{"an out-of-order frame moves nothing", []told{first, next(told{end: second - 1, previous: 0, quality: QualityOutOfOrder, reason: ReasonEndNotAfterLast}),
			{seed: 3, swap: 3, end: second + 8_000_000, previous: second, quality: QualityValid}}},
		{"an out-of-order frame is remembered for duplicates", []told{first,
			next(told{end: second - 1, quality: QualityOutOfOrder, reason: ReasonEndNotAfterLast}),
			next(told{end: second + 8_000_000, previous: second, quality: QualityDuplicate, reason: ReasonAlreadySeen})}},
		{"previous 0", []told{first, next(told{end: second + 8_000_000, quality: QualityNoPredecessor, reason: ReasonPreviousZero}),
			{seed: 3, swap: 3, end: second + 16_000_000, previous: second + 8_000_000, quality: QualityValid}}},
		{"previous 0 on the first frame", []told{{seed: 1, swap: 1, end: second, quality: QualityNoPredecessor, reason: ReasonPreviousZero}}},
		{"end equal to previous", []told{first, next(told{end: second + 500, previous: second + 500, quality: QualityDiscontinuity, reason: ReasonNotForward})}},
		{"begin after end", []told{first, next(told{begin: second + 8_000_001, end: second + 8_000_000, previous: second, quality: QualityDiscontinuity, reason: ReasonNotForward})}},
		{"begin at end", []told{first, next(told{begin: second + 8_000_000, end: second + 8_000_000, previous: second, quality: QualityValid})}},
		{"predecessor 999,999 ns earlier", []told{first, next(told{end: second + 8_000_000, previous: second - 999_999, quality: QualityValid, skew: -999_999})}},
		{"predecessor 1,000,000 ns earlier", []told{first, next(told{end: second + 8_000_000, previous: second - 1_000_000,
			quality: QualityDiscontinuity, reason: ReasonPredecessorEarlier})}},
		{"predecessor 999,999 ns later", []told{first, next(told{end: second + 8_000_000, previous: second + 999_999, quality: QualityValid, skew: 999_999})}},
		{"predecessor 1,000,000 ns later", []told{first, next(told{end: second + 8_000_000, previous: second + 1_000_000,
			quality: QualitySourceGap, reason: ReasonPredecessorLater}),
			{seed: 3, swap: 3, end: second + 16_000_000, previous: second + 8_000_000, quality: QualityValid}}},
		{"predecessor one tick off", []told{first, next(told{end: second + 8_000_000, previous: second + 1, quality: QualityValid})}},
		{"predecessor two ticks off", []told{first, next(told{end: second + 8_000_000, previous: second - 2, quality: QualityValid, skew: -2})}},
		{"1,100,000,000 ns", []told{first, next(told{end: second + 1_100_000_000, previous: second, quality: QualityValid})}},
		{"1,100,000,001 ns", []told{first, next(told{end: second + 1_100_000_001, previous: second, quality: QualityDiscontinuity, reason: ReasonTooLong}),
			{seed: 3, swap: 3, end: second + 1_108_000_001, previous: second + 1_100_000_001, quality: QualityValid}}},
		{"a gap wins over a long interval", []told{first, next(told{end: 9 * second, previous: 3 * second, quality: QualitySourceGap, reason: ReasonPredecessorLater})}},
		{"displays do not know of each other", []told{first, {display: 2, seed: 1, swap: 1, end: 5 * second, previous: 4 * second,
			quality: QualityNoPredecessor, reason: ReasonFirstOnDisplay}, next(told{end: second + 8_000_000, previous: second, quality: QualityValid}),
			{display: 2, seed: 2, swap: 2, end: 5*second + 16_000_000, previous: 5 * second, quality: QualityValid}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			checkTold(t, newJudge(), oneToOne, c.frames)
		})
	}
}

func TestAnEndWhoseNanosecondsDoNotFitIsOutOfRange(t *testing.T) {
	// At 125/3, 221,360,928,884,514,619 ticks are 9,223,372,036,854,775,791 ns, and one more is past 2^63 - 1.
	for _, c := range []struct {
		end     int64
		quality Quality
	}{{221_360_928_884_514_619, QualityNoPredecessor}, {221_360_928_884_514_620, QualityUnsupportedSchema}} {
		r := told{seed: 1, swap: 1, end: c.end, previous: 1}.record(Timebase{125, 3})
		newJudge().judge(&r, categoryIOMFB, "")
		hasNs := r.Fields&HasPresentationNs != 0
		if r.Quality != c.quality || hasNs != (c.quality == QualityNoPredecessor) {
			t.Errorf("end %d: %v %q, presentationNs there: %v", c.end, r.Quality, r.QualityReason, hasNs)
		}
	}
}

func TestDroppedBeforeIsKnownOnlyWhereSeedsTell(t *testing.T) {
	first := told{seed: 100_000, swap: 1, end: second, previous: 1, quality: QualityNoPredecessor, reason: ReasonFirstOnDisplay}
	gap := func(seed int64, dropped any) told {
		return told{seed: seed, swap: 2, end: second + 80_000_000, previous: second + 72_000_000, quality: QualitySourceGap, reason: ReasonPredecessorLater, dropped: dropped}
	}
	second2 := told{display: 2, seed: 7, swap: 7, end: second, previous: 1, quality: QualityNoPredecessor, reason: ReasonFirstOnDisplay}
	for _, c := range []struct {
		name   string
		frames []told
	}{
		{"next seed: none", []told{first, gap(100_001, nil)}},
		{"three seeds skipped", []told{first, gap(100_004, 3)}},
		{"9,999", []told{first, gap(110_000, 9_999)}},
		{"10,000", []told{first, gap(110_001, "unknown")}},
		{"the same seed", []told{first, gap(100_000, "unknown")}},
		{"a lower seed", []told{first, gap(5, "unknown")}},
		{"two displays", []told{first, second2, gap(100_004, "unknown")}},
		{"seeds of duplicates and of frames out of order do not count", []told{first,
			{seed: 100_002, swap: 9, end: second - 5, quality: QualityOutOfOrder, reason: ReasonEndNotAfterLast}, gap(100_004, 3)}},
	} {
		t.Run(c.name, func(t *testing.T) { checkTold(t, newJudge(), oneToOne, c.frames) })
	}
	t.Run("another display earlier in the same epoch", func(t *testing.T) {
		j := newJudge()
		checkTold(t, j, oneToOne, []told{second2})
		j.bind(1, 1)
		checkTold(t, j, oneToOne, []told{first, gap(100_004, "unknown")})
		j.bind(2, 0)
		checkTold(t, j, oneToOne, []told{first, gap(100_004, 3)})
	})
}

func TestAnotherEpochOrReconnectGenerationKnowsNoFrameBefore(t *testing.T) {
	j := newJudge()
	first := told{seed: 1, swap: 1, end: second, previous: 5, quality: QualityNoPredecessor, reason: ReasonFirstOnDisplay}
	checkTold(t, j, oneToOne, []told{first})
	j.bind(1, 0) // the same
	checkTold(t, j, oneToOne, []told{{seed: 1, swap: 1, end: second, previous: 5, quality: QualityDuplicate, reason: ReasonAlreadySeen}})
	j.bind(1, 1)
	checkTold(t, j, oneToOne, []told{first})
	j.bind(2, 0)
	checkTold(t, j, oneToOne, []told{first})
	if got := j.stats.ByQuality; got[QualityNoPredecessor] != 3 || got[QualityDuplicate] != 1 {
		t.Errorf("counts by quality %v; want them to go on", got)
	}
}

func TestDuplicatesAreFoundAmongTheLast1024Records(t *testing.T) {
	for _, c := range []struct {
		between int64 // records after the first one
		want    Quality
	}{{1023, QualityDuplicate}, {1024, QualityOutOfOrder}} {
		j := newJudge()
		for i := range 1 + c.between {
			r := told{seed: i + 1, swap: 1, end: second + i*8_000_000, previous: second + (i-1)*8_000_000}.record(oneToOne)
			j.judge(&r, categoryIOMFB, "")
			if i > 0 && r.Quality != QualityValid {
				t.Fatalf("frame %d: %v %s", i, r.Quality, r.QualityReason)
			}
			// Faulty and repeated frames take no place in the memory.
			faulty := told{seed: 5_000_000 + i, swap: 1, end: 1}.record(oneToOne)
			j.judge(&faulty, categoryIOMFB, ReasonArgumentType)
			again := told{seed: i + 1, swap: 1, end: 1}.record(oneToOne)
			if j.judge(&again, categoryIOMFB, ""); again.Quality != QualityDuplicate {
				t.Fatalf("frame %d told again: %v", i, again.Quality)
			}
		}
		r := told{seed: 1, swap: 1, end: second, previous: second - 8_000_000}.record(oneToOne)
		if j.judge(&r, categoryIOMFB, ""); r.Quality != c.want {
			t.Errorf("the first frame again after %d others: %v, want %v", c.between, r.Quality, c.want)
		}
	}
}

func TestCategoryTwinsAreCountedInBothSubsystems(t *testing.T) {
	j := newJudge()
	for i, pair := range [][2]categoryID{{categoryIOMFB, categoryIOMFBStalls}, {categoryIOMFBStalls, categoryIOMFB},
		{categorySkyLight, categorySkyLightStalls}, {categorySkyLightStalls, categorySkyLight}} {
		r := told{seed: int64(i), swap: 1, end: second + int64(i), previous: 1}.record(oneToOne)
		twin := r
		if !j.judge(&r, pair[0], "") || j.judge(&twin, pair[1], "") {
			t.Errorf("pair %d: want one record", i)
		}
	}
	if j.stats.CategoryTwins != 4 {
		t.Errorf("%d twins, want 4", j.stats.CategoryTwins)
	}
}

func TestFiguresAreExact(t *testing.T) {
	for _, c := range []struct {
		timebase             Timebase
		begin, previous, end int64
		refresh              int64
		frameNs, lifetimeNs  int64
		presentationNs       int64
		multipleMilli        any // nil: null
	}{
		// 400,000 ticks are 16,666,666.67 ns.
		{Timebase{125, 3}, 1_100_000, 1_000_000, 1_400_000, 399_984, 16_666_666, 12_500_000, 58_333_333, 1000},
		// The real iPhone of wire.md: 400,633 ticks are 16,693,041.67 ns, 1,201,055 ticks of lifetime 50,043,958.33 ns.
		{Timebase{125, 3}, 16199036112369, 16199036912791, 16199037313424, 399984, 16_693_041, 50_043_958, 674959888059333, 1002},
		{oneToOne, 900, 1000, 1100, 0, 100, 200, 1100, nil},  // refresh not known
		{oneToOne, 900, 1000, 1005, 2000, 5, 105, 1005, 2},   // 0.0025: half to even, down
		{oneToOne, 900, 1000, 1007, 2000, 7, 107, 1007, 4},   // 0.0035: half to even, up
		{oneToOne, 900, 1000, 1005, 1999, 5, 105, 1005, 3},   // 0.00250125: over half
		{oneToOne, 900, 1000, 1001, 3, 1, 101, 1001, 333},    // 1/3
		{oneToOne, 900, 1000, 1002, 3, 2, 102, 1002, 667},    // 2/3
		{oneToOne, 900, 1000, 1050, 100, 50, 150, 1050, 500}, // shorter than its refresh interval: counted, and valid
	} {
		j := newJudge()
		before := told{seed: 1, swap: 1, end: c.previous, previous: 1}.record(c.timebase)
		j.judge(&before, categoryIOMFB, "")
		r := told{seed: 2, swap: 2, begin: c.begin, end: c.end, previous: c.previous, refresh: c.refresh}.record(c.timebase)
		j.judge(&r, categoryIOMFB, "")
		multiple := any(nil)
		if r.Fields&HasRefreshMultiple != 0 {
			multiple = int(r.RefreshMultipleMilli)
		}
		if r.Quality != QualityValid || r.FrameTimeNs != c.frameNs || r.LifetimeNs != c.lifetimeNs || r.PresentationNs != c.presentationNs ||
			multiple != c.multipleMilli {
			t.Errorf("%+v:\n got %v frame %d, lifetime %d, presentation %d, multiple %v", c, r.Quality, r.FrameTimeNs, r.LifetimeNs, r.PresentationNs, multiple)
		}
	}
}

func TestFiguresAreMissingWhereTheyMeanNothing(t *testing.T) {
	j := newJudge()
	r := told{seed: 1, swap: 1, begin: 500, end: 400, previous: 100, refresh: 100}.record(oneToOne)
	j.judge(&r, categoryIOMFB, "")
	if r.Fields&(HasLifetime|HasFrameTime|HasRefreshMultiple) != 0 || r.Fields&HasPresentationNs == 0 {
		t.Errorf("begin after end, no predecessor: fields %b", r.Fields)
	}
	r = told{seed: 2, swap: 2}.record(oneToOne)
	r.Fields &^= HasEndMach
	j.judge(&r, categoryIOMFB, ReasonArgumentMissing)
	if r.Fields&(HasLifetime|HasFrameTime|HasRefreshMultiple|HasPresentationNs) != 0 || r.Quality != QualityUnsupportedSchema {
		t.Errorf("no end: fields %b, %v", r.Fields, r.Quality)
	}
}

func TestFramesShorterThanTheirRefreshIntervalAreCounted(t *testing.T) {
	j := newJudge()
	end := int64(second)
	for i, interval := range []int64{8_000_000, 9_494, 9_495, 9_500, 10_000} { // of 10,000: 0.9494, 0.9495 -> 0.95 half to even, 0.95, 1
		r := told{seed: int64(i + 1), swap: 1, end: end + interval, previous: end, refresh: 10_000}.record(oneToOne)
		j.judge(&r, categoryIOMFB, "")
		end += interval
	}
	if j.stats.BelowRefresh != 1 || j.stats.ByQuality[QualityValid] != 4 {
		t.Errorf("%d below refresh of %d valid, want 1 of 4", j.stats.BelowRefresh, j.stats.ByQuality[QualityValid])
	}
}

func TestDisplaysBeyondTheBoundHaveNoPredecessors(t *testing.T) {
	j := newJudge()
	for round := range 2 {
		for display := range int64(maxDisplays + 1) {
			r := told{display: display + 1, seed: int64(round), swap: 1, end: second + int64(round)*8_000_000, previous: second + int64(round-1)*8_000_000}.record(oneToOne)
			j.judge(&r, categoryIOMFB, "")
			want := QualityNoPredecessor
			if round == 1 && display < maxDisplays {
				want = QualityValid
			}
			if r.Quality != want {
				t.Fatalf("round %d, display %d: %v, want %v", round, display+1, r.Quality, want)
			}
		}
	}
	if len(j.displays) != maxDisplays || len(j.displaysInEpoch) != maxDisplays {
		t.Errorf("%d and %d displays kept, want %d", len(j.displays), len(j.displaysInEpoch), maxDisplays)
	}
}

func TestConstantOffsetOfRowTimesIsNamedAndNotRepaired(t *testing.T) {
	run := func(adjust func(i int) int64) (ticks int64, ok bool, j *judge) {
		j = newJudge()
		for i := range int64(50) {
			r := told{seed: i + 1, swap: 1, end: second + i*8_000_000 + adjust(int(i)), previous: second + (i-1)*8_000_000}.record(oneToOne)
			j.judge(&r, categoryIOMFB, "")
		}
		ticks, ok = j.stats.Offset.Adjustment()
		return ticks, ok, j
	}
	if ticks, ok, _ := run(func(int) int64 { return 0 }); ok {
		t.Errorf("no offset: got %d", ticks)
	}
	if ticks, ok, _ := run(func(i int) int64 { return int64(i % 2) }); ok {
		t.Errorf("truncation by a tick: got %d", ticks)
	}
	ticks, ok, j := run(func(int) int64 { return 5000 })
	if !ok || ticks != 5000 || j.stats.ByQuality[QualityValid] != 49 || j.stats.SkewedPredecessors != 49 {
		t.Errorf("5,000 ns: got %d, %v, %+v", ticks, ok, j.stats)
	}
	ticks, ok, j = run(func(int) int64 { return 3_000_000 })
	if !ok || ticks != 3_000_000 || j.stats.ByQuality[QualityDiscontinuity] != 49 {
		t.Errorf("3 ms: got %d, %v, %+v", ticks, ok, j.stats)
	}
	if ticks, ok, _ := run(func(i int) int64 { return int64(i*i*977) % 100_000 }); ok {
		t.Errorf("anything: got %d", ticks)
	}
}

func TestMemoryForgetsTheOldestAndFindsTheRest(t *testing.T) {
	var m memory
	key := func(i int) frameKey { return frameKey{display: 1, seed: int64(i * 1024), swap: int64(i)} }
	var forgotten []int64
	for i := range 3000 {
		if i == 100 {
			if v, ok := m.take(key(50)); !ok || v != 50 {
				t.Fatalf("took %d, %v", v, ok)
			}
		}
		if k, ok := m.put(key(i), int64(i)); ok {
			forgotten = append(forgotten, k.swap)
		}
	}
	for i := range 3000 {
		v, ok := m.get(key(i))
		if want := i >= 3000-1024; ok != want || ok && v != int64(i) {
			t.Fatalf("key %d: %d, %v", i, v, ok)
		}
	}
	if len(forgotten) != 3000-1024-1 || slices.Contains(forgotten, 50) || !slices.IsSorted(forgotten) {
		t.Errorf("%d forgotten, beginning with %v; want 1,975 without 50, in order", len(forgotten), forgotten[:min(3, len(forgotten))])
	}
	if _, ok := m.take(frameKey{display: 1, seed: 2999 * 1024, swap: 2999, category: 1}); ok {
		t.Error("found under another category")
	}
}

func ExampleQuality() {
	fmt.Println(QualityValid, ParseQuality("source-gap") == QualitySourceGap, ParseQuality("good"))
	// Output: valid true
}
