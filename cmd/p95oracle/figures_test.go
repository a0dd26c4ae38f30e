package main

import (
	"math/big"
	"testing"
)

// Everything here was worked out on paper.

func TestTicksToNanoseconds(t *testing.T) {
	for _, c := range []struct {
		base        timebase
		ticks, want int64
		ok          bool
	}{
		{timebase{125, 3}, 400_000, 16_666_666, true}, // 16,666,666.67: floor
		{timebase{125, 3}, 59_827_757_037_126, 2_492_823_209_880_250, true},
		{timebase{1, 3}, 2, 0, true},
		{timebase{1, 1}, 1<<63 - 1, 1<<63 - 1, true},
		{timebase{2, 1}, 1 << 62, 0, false},
		{timebase{125, 3}, 221_360_928_884_514_619, 9_223_372_036_854_775_791, true}, // 27,670,116,110,564,327,375 / 3
		{timebase{125, 3}, 221_360_928_884_514_620, 0, false},                        // 9,223,372,036,854,775,833
		{timebase{125, 3}, -1, 0, false},
		{timebase{0, 3}, 1, 0, false},
		{timebase{125, 0}, 1, 0, false},
	} {
		if ns, ok := c.base.ns(c.ticks); ok != c.ok || ok && ns != c.want {
			t.Errorf("%d ticks at %v: %d, %t; want %d, %t", c.ticks, c.base, ns, ok, c.want, c.ok)
		}
	}
}

func TestRefreshMultiplesRoundHalfToEven(t *testing.T) {
	for _, c := range []struct{ a, b, want int64 }{
		{199_999, 199_999, 1000}, {400_000, 199_999, 2000}, {400_633, 399_984, 1002}, // 1.00162
		{1, 16, 62}, {3, 16, 188}, {5, 16, 312}, // 62.5, 187.5, 312.5
		{1, 3, 333}, {2, 3, 667},
	} {
		if got, ok := thousandths(c.a, c.b); !ok || got != c.want {
			t.Errorf("%d / %d in thousandths: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestDecimalsAreWrittenAsTheContractWritesThem(t *testing.T) {
	for _, c := range []struct {
		v      int64
		places int
		want   string
	}{{8_333_291, 6, "8.333291"}, {8_333_250, 6, "8.33325"}, {16_000_000, 6, "16"}, {4, 3, "0.004"}, {0, 3, "0"}, {-500, 3, "-0.5"}, {-1 << 63, 0, "-9223372036854775808"}} {
		if got := decimalText(c.v, c.places); got != c.want {
			t.Errorf("%d at %d places is %s, want %s", c.v, c.places, got, c.want)
		}
	}
}

func TestNearestRank(t *testing.T) {
	for n, want := range map[int64]int64{5: 5, 19: 19, 20: 19, 21: 20, 39: 38, 40: 38, 1192: 1133, 1200: 1140, 4096: 3892} {
		if got := rank(n); got != want {
			t.Errorf("rank of %d values: %d, want %d", n, got, want)
		}
	}
}

func TestJitterRoundsHalfToEven(t *testing.T) {
	for _, c := range []struct {
		frames []int64
		want   int64
	}{
		{[]int64{8_000_000, 12_000_000}, 2000}, // 2 ms
		{[]int64{0, 1000}, 0},                  // half a µs, to even
		{[]int64{0, 1002}, 1},                  // 0.501
		{[]int64{0, 3000}, 2},                  // one and a half, to even
		{[]int64{0, 5000}, 2},                  // two and a half, to even
		{[]int64{1, 1, 1}, 0},                  // none
		{[]int64{16_666_666, 16_666_666, 16_666_667, 16_666_667}, 0}, // half a ns
	} {
		var sum, squares wide
		for _, f := range c.frames {
			sum.add(f, 1)
			squares.add(f, f)
		}
		if got := deviationUs(int64(len(c.frames)), sum.int(), squares.int()); got != c.want {
			t.Errorf("%v: %d µs, want %d", c.frames, got, c.want)
		}
	}
}

func TestSumsOf128Bits(t *testing.T) {
	var w wide
	for range 4 {
		w.add(1<<62, 1<<62)
	}
	if want := new(big.Int).Lsh(big.NewInt(1), 126); w.int().Cmp(want) != 0 {
		t.Errorf("4 * 2^62 * 2^62 is %v", w.int())
	}
}

// A frame of a real iPhone (wire.md): 60 Hz, iOS 15, three buffers.
func TestARealFramesLateness(t *testing.T) {
	r := record{begin: of(16_199_036_112_369), end: of(16_199_037_313_424), previous: of(16_199_036_912_791), refresh: of(399_984), bufferCount: of(3), skip: of(0)}
	r.numer, r.denom = of(125), of(3)
	// Lifetime 1,201,055 ticks, 1,199,952 of which it may take: 1,103 too many are 45,958 ns. 1,201,055 / 399,984 = 3: 3 - 3 + 1.
	if ok, overrun, missed := lateness(&r, r.base()); !ok || overrun != 45_958 || missed != 1 {
		t.Errorf("%t, overrun %d ns, %d missed; want 45958 and 1", ok, overrun, missed)
	}
	v := figures(&r)
	if ns, _ := intervalNs(&r); ns != 16_693_041 || v.lifetime != of(50_043_958) || refreshMultiple(&r) != of(1002) {
		t.Errorf("frame time %d, lifetime %v, multiple %v", ns, v.lifetime, refreshMultiple(&r))
	}
	r.skip = of(1)
	if ok, overrun, missed := lateness(&r, r.base()); !ok || overrun != 0 || missed != 1 {
		t.Errorf("with a skip request: %t, overrun %d ns, %d missed; want 0 and 1", ok, overrun, missed)
	}
	r.refresh = of(0)
	if ok, overrun, missed := lateness(&r, r.base()); !ok || overrun != 0 || missed != 0 || refreshMultiple(&r).has {
		t.Errorf("with an unknown interval: %t, overrun %d ns, %d missed", ok, overrun, missed)
	}
}

// The quality table of raw-record.md on one display at 1 tick = 1 ns: each record is what the line says, after those before it.
func TestTheQualityTableLineByLine(t *testing.T) {
	const ms = 1_000_000
	j := newJudge()
	f := func(seed, begin, previous, end int64) record {
		return record{seed: of(seed), swapID: of(seed), display: of(1), begin: of(begin), previous: of(previous), end: of(end), refresh: of(8 * ms), bufferCount: of(2),
			skip: of(0), epoch: of(1), reconnect: of(0), numer: of(1), denom: of(1), category: []byte("IOMFBServer")}
	}
	for _, c := range []struct {
		r       record
		quality string
		reason  string
		dropped integer
	}{
		{f(1, 90*ms, 92*ms, 100*ms), noPredecessor, "first-on-display", of(0)},
		{f(2, 98*ms, 100*ms, 108*ms), valid, "", of(0)},
		{f(2, 98*ms, 100*ms, 108*ms), duplicate, "already-seen", of(0)},
		{f(3, 98*ms, 100*ms, 108*ms), outOfOrder, "end-not-after-last", of(0)},
		{f(4, 106*ms, 109*ms-1, 116*ms), valid, "", of(0)},                             // 1 ns less than 1 ms later than the last end
		{f(5, 114*ms, 117*ms, 124*ms), sourceGap, "predecessor-later", of(0)},          // 1 ms later; the seed says that none is missing
		{f(9, 138*ms, 140*ms, 148*ms), sourceGap, "predecessor-later", of(3)},          // seeds 6 to 8 are missing
		{f(10_010, 158*ms, 160*ms, 168*ms), sourceGap, "predecessor-later", integer{}}, // 10,000 of them are not believed
		{f(10_011, 174*ms, 167*ms+1, 176*ms), valid, "", of(0)},                        // 1 ms earlier, less 1 ns
		{f(10_012, 182*ms, 175*ms, 184*ms), discontinuity, "predecessor-earlier", of(0)},
		{f(10_013, 190*ms, 0, 192*ms), noPredecessor, "previous-zero", of(0)},
		{f(10_014, 201*ms, 192*ms, 200*ms), discontinuity, "not-forward", of(0)}, // begins after its end
		{f(10_015, 200*ms, 208*ms, 208*ms), discontinuity, "not-forward", of(0)},
		{f(10_016, 1300*ms, 208*ms, 1308*ms), valid, "", of(0)}, // 1,100 ms exactly
		{f(10_017, 2400*ms, 1308*ms, 2408*ms+1), discontinuity, "too-long", of(0)},
	} {
		if v := j.judge(&c.r); v.quality != c.quality || v.reason != c.reason || v.dropped != c.dropped || v.twin {
			t.Errorf("seed %d: %s (%s), dropped %v; want %s (%s), %v", c.r.seed.n, v.quality, v.reason, v.dropped, c.quality, c.reason, c.dropped)
		}
	}
	twin := f(10_017, 2400*ms, 1308*ms, 2408*ms+1)
	twin.category = []byte("IOMFBServer.Stalls")
	if v := j.judge(&twin); !v.twin {
		t.Errorf("the same frame under the other category is %s, and no twin", v.quality)
	}
	missing := f(10_018, 2410*ms, 2408*ms, 2416*ms)
	missing.bufferCount = integer{}
	if v := j.judge(&missing); v.quality != unsupportedSchema || v.presentationNs != of(2416*ms) || v.lifetime != of(6*ms) {
		t.Errorf("without a buffer count: %+v", v)
	}
	// After 1,024 others, the same frame is no duplicate any more: it is out of order.
	old := f(10_017, 2400*ms, 1308*ms, 2408*ms+1)
	for i := range int64(1023) {
		r := f(20_000+i, (2500+i)*ms, (2500+i)*ms, (2501+i)*ms)
		j.judge(&r)
	}
	if v := j.judge(&old); v.quality != outOfOrder {
		t.Errorf("a frame told again after 1,024 others is %s", v.quality)
	}
}

func TestAFrameUpdatesIdentifierIsItsTwoHalves(t *testing.T) {
	if got := nativeID(&record{seed: of(0xFFFF_FFFF), swapID: of(7)}); got != of(-0xFFFF_FFF9) {
		t.Errorf("%v, want -4294967289", got)
	}
	if got := nativeID(&record{seed: of(1), swapID: of(2)}); got != of(1<<32|2) {
		t.Errorf("%v", got)
	}
	if got := nativeID(&record{seed: of(1 << 32), swapID: of(2)}); got.has {
		t.Errorf("a seed of 33 bits: %v", got)
	}
}

func TestClockAgeIsALowerBound(t *testing.T) {
	b := bridge{sendNs: 1_000, receiveNs: 1_001_000, continuous: of(5_000_000_000), base: timebase{1, 1}}
	for _, c := range []struct{ n, presentation, want int64 }{
		{1_001_000, 4_000_000_000, 1_000_000_000 - 50}, // drift: 1,000,000 ns at 50 ppm
		{1_000, 4_000_000_000, 999_000_000},            // before the answer came: less is known, and there is no drift
		{999, 4_000_000_000, 998_999_999},              // before it was sent
		{160_999, 0, 4_999_159_992},                    // 5,000,000,000 - 840,001, less a drift of 7: 159,999 ns at 50 ppm are 7.99
	} {
		if got := b.ageNs(c.n, c.presentation); !got.IsInt64() || got.Int64() != c.want {
			t.Errorf("at %d: %v, want %d", c.n, got, c.want)
		}
	}
}

// The receipt in p95-window.md says itself what its window is.
func TestTheContractsOwnReceipt(t *testing.T) {
	w := window{bound: true, foreground: of(1), last: sample{8208, 2492833209880250, 8333333}, lastAt: of(91244500000000)}
	w.values = []sample{w.last}
	p := w.publish(91244567890123)
	if p.right != of(2492833277770373) || p.left != of(2492823277770373) || p.quality != "warmup" || p.n != of(1) {
		t.Errorf("window %v to %v, %s, n %v", p.left, p.right, p.quality, p.n)
	}
}
