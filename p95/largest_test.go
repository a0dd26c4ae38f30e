package p95

import (
	"math"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Against a plain slice, sorted for each question: values come at one end and go at the other, in patterns that let the largest run out,
// or fill up.
func TestTheNthLargestIsThatOfASortedSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w window
		var values []uint32 // oldest first, presented a ns after another, the last one at presentationNs
		presentationNs := int64(2 * windowNs)
		forget := func(n int) {
			for ; n > 0 && len(values) > 0; n-- {
				values = values[1:]
			}
			if len(values) > 0 {
				w.forget(presentationNs - int64(len(values)))
			} else {
				w.clear(clearSourceGap, Int{}, Int{})
			}
		}
		add := func(timeNs uint32) {
			if len(values) == maxValues {
				forget(1)
			}
			presentationNs++
			*w.value(w.count) = value{presentationNs: presentationNs, frameTimeNs: timeNs}
			w.count++
			values = append(values, timeNs)
		}
		time := rapid.Uint32Range(0, maxIntervalNs)
		ask := func(first, n, nth int) {
			w.settle()
			sorted := slices.Sorted(slices.Values(values[first : first+n]))
			if got, want := w.nthLargestOf(uint32(first), uint32(n), nth), int64(sorted[n-nth]); got != want {
				t.Fatalf("the %dth largest of %d from %d on, of %d: got %d, want %d", nth, n, first, len(values), got, want)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"run": func(t *rapid.T) { // rising, falling or the same
				from, step := int64(time.Draw(t, "from")), rapid.Int64Range(-5000, 5000).Draw(t, "step")
				for i := range rapid.Int64Range(0, 1500).Draw(t, "length") {
					add(uint32(min(max(from+i*step, 0), maxIntervalNs)))
				}
			},
			"spread": func(t *rapid.T) {
				few := rapid.Uint32Range(1, maxIntervalNs).Draw(t, "few") // different ones
				for _, timeNs := range rapid.SliceOfN(time, 0, 200).Draw(t, "times") {
					add(timeNs % few)
				}
			},
			"forget": func(t *rapid.T) { forget(rapid.IntRange(0, 2000).Draw(t, "count")) },
			"clear": func(*rapid.T) {
				w.clear(clearSourceGap, Int{}, Int{})
				values = nil
			},
			"p95": func(t *rapid.T) { // of all, and of those that T has not left behind
				for _, first := range []int{0, min(12, len(values)), min(120, len(values))} {
					if n := len(values) - first; n >= minSamples {
						ask(first, n, n-(95*n+99)/100+1)
					}
				}
			},
			"any": func(t *rapid.T) {
				if len(values) == 0 {
					return
				}
				first := rapid.IntRange(0, len(values)-1).Draw(t, "first")
				n := rapid.IntRange(1, len(values)-first).Draw(t, "n")
				ask(first, n, rapid.IntRange(1, n).Draw(t, "nth"))
			},
			"": func(t *rapid.T) { // what is counted is what is there from the floor up, each run once and none empty
				counted := 0
				for i, r := range w.largest.runs[:w.largest.distinct] {
					if r.n == 0 || r.timeNs < w.largest.floorNs || i > 0 && r.timeNs >= w.largest.runs[i-1].timeNs {
						t.Fatalf("run %d: %+v, floor %d", i, r, w.largest.floorNs)
					}
					counted += int(r.n)
				}
				want := 0
				for _, timeNs := range values[:w.counted] {
					if timeNs >= w.largest.floorNs {
						want++
					}
				}
				if counted != want || w.largest.counted != want {
					t.Fatalf("%d values are counted (%d), %d of %d are at or above %d", counted, w.largest.counted, want, len(values), w.largest.floorNs)
				}
			},
		})
	})
}

// Against exact fractions.
func TestAMultipleIsTheNearestThousandthOrTheEvenOne(t *testing.T) {
	for _, c := range []struct {
		milli           int64
		ticks, interval uint64
		want            bool
	}{
		{1000, 200_000, 200_000, true},
		{1001, 200_000, 200_000, false},
		{999, 200_000, 200_000, false},
		{0, 1, 2001, true},  // 0.4998 thousandths
		{1, 1, 2001, false}, //
		{0, 1, 2000, true},  // half a thousandth: to the even one
		{1, 1, 2000, false}, //
		{2, 3, 2000, true},  // one and a half
		{1, 3, 2000, false}, //
		{2, 5, 2000, true},  // two and a half
		{3, 5, 2000, false}, //
		{-1000, 200_000, 200_000, false},
		{math.MaxInt64, math.MaxInt64, 1000, true},
		{math.MaxInt64 - 1, math.MaxInt64, 1000, false},
		{math.MaxInt64, math.MaxInt64, 999, false}, // the true one does not fit
		{1000, math.MaxInt64, math.MaxInt64, true},
	} {
		if got := isMilliMultiple(c.milli, c.ticks, c.interval); got != c.want {
			t.Errorf("%d thousandths of %d for %d: got %t", c.milli, c.interval, c.ticks, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		ticks := rapid.Int64Range(0, math.MaxInt64).Draw(t, "ticks") >> rapid.IntRange(0, 62).Draw(t, "smaller")
		interval := max(1, rapid.Int64Range(1, math.MaxInt64).Draw(t, "interval")>>rapid.IntRange(0, 62).Draw(t, "shorter"))
		exact := new(big.Rat).SetFrac(new(big.Int).Mul(big.NewInt(ticks), big.NewInt(1000)), big.NewInt(interval))
		below := new(big.Int).Quo(exact.Num(), exact.Denom())
		for d := int64(-2); d <= 2; d++ {
			milli := new(big.Int).Add(below, big.NewInt(d))
			if !milli.IsInt64() || milli.Sign() < 0 {
				continue
			}
			away := new(big.Rat).Sub(exact, new(big.Rat).SetInt(milli))
			c := away.Abs(away).Cmp(big.NewRat(1, 2))
			want := c < 0 || c == 0 && milli.Bit(0) == 0
			if got := isMilliMultiple(milli.Int64(), uint64(ticks), uint64(interval)); got != want {
				t.Fatalf("%d for %d/%d: got %t, want %t", milli, ticks, interval, got, want)
			}
		}
	})
}
