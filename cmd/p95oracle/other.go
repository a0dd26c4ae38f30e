package main

import (
	"math/big"
	"math/bits"
)

// The windows of the other display figures, which end at the presentation of the latest frame.
const (
	secondNs      = 1_000_000_000
	quietNs       = 1_000_000_000
	maxKeptOthers = 1 << 16 // far beyond ten seconds of any display; it bounds what a forged log can make us keep
)

// shown is a frame as the other display figures see it.
type shown struct {
	presentationNs, previousNs, frameNs int64
	overrunNs                           int64
	missed                              int64
}

// others are the frames that the other display figures are of.
type others struct {
	frames   []shown
	latestAt integer // arrival of the latest of them
	refresh  int64   // its refresh interval in ticks
	base     timebase
}

func (o *others) forget() { o.frames, o.latestAt = nil, integer{} }

// record takes a record of the primary display, if it counts.
func (o *others) record(r *record, bound timebase, hostNs integer) {
	frameNs, ok := intervalNs(r)
	presentationNs, fits := bound.ns(r.end.n)
	if string(r.quality) != valid || !r.numer.has || !r.denom.has || r.base() != bound || !ok || !fits || frameNs > maxIntervalNs || !hostNs.has {
		return
	}
	previousNs, _ := bound.ns(r.previous.n)
	f := shown{presentationNs: presentationNs, previousNs: previousNs, frameNs: frameNs}
	if lifetime := r.end.n - r.begin.n; r.refresh.n > 0 && r.begin.has && lifetime >= 0 {
		if over := lifetime - r.bufferCount.n*r.refresh.n; over > 0 && r.skip.n == 0 {
			f.overrunNs, _ = bound.ns(over)
		}
		f.missed = max(0, lifetime/r.refresh.n-r.bufferCount.n+1)
	}
	for len(o.frames) == maxKeptOthers || len(o.frames) > 0 && o.frames[0].presentationNs <= presentationNs-windowNs {
		o.frames = o.frames[1:]
	}
	o.frames = append(o.frames, f)
	o.latestAt, o.refresh, o.base = hostNs, r.refresh.n, bound
}

// otherFigures are the other display figures of a receipt, in units of their last decimal.
type otherFigures struct {
	fps, frameNs, refreshMilliHz, jitterUs, hitchUsPerS, missed integer
}

// at computes the figures at host time n.
func (o *others) at(n int64) (f otherFigures) {
	if !o.latestAt.has || n-o.latestAt.n > quietNs || o.latestAt.n-n > quietNs {
		return f
	}
	latest := &o.frames[len(o.frames)-1]
	q := latest.presentationNs
	var fps, missed, jitterCount int64
	var overruns, intervals, sum, squares wide
	for i := range o.frames {
		s := &o.frames[i]
		if s.presentationNs > q || s.presentationNs <= q-windowNs {
			continue
		}
		missed += s.missed
		overruns.add(s.overrunNs, 1)
		intervals.add(s.frameNs, 1)
		if s.presentationNs > q-secondNs {
			jitterCount++
			sum.add(s.frameNs, 1)
			squares.add(s.frameNs, s.frameNs)
		}
		if s.previousNs >= q-secondNs {
			fps++
		}
	}
	f.fps, f.frameNs, f.missed = of(fps), of(latest.frameNs), of(missed)
	if o.refresh > 0 { // 1e9 * denom / (refresh * numer), in thousandths
		f.refreshMilliHz = rounded(new(big.Int).Mul(big.NewInt(1e12), big.NewInt(o.base.denom)), new(big.Int).Mul(big.NewInt(o.refresh), big.NewInt(o.base.numer)))
	}
	if jitterCount >= 2 {
		f.jitterUs = of(deviationUs(jitterCount, sum.int(), squares.int()))
	}
	// ms of overrun / s of frames = 1000 * ns / ns, in thousandths
	f.hitchUsPerS = rounded(new(big.Int).Mul(overruns.int(), big.NewInt(1_000_000)), intervals.int())
	return f
}

// wide is a sum of products of numbers that are not negative, in 128 bits.
type wide struct{ high, low uint64 }

func (w *wide) add(a, b int64) {
	high, low := bits.Mul64(uint64(a), uint64(b))
	var carry uint64
	w.low, carry = bits.Add64(w.low, low, 0)
	w.high += high + carry
}

func (w *wide) int() *big.Int {
	v := new(big.Int).Lsh(new(big.Int).SetUint64(w.high), 64)
	return v.Or(v, new(big.Int).SetUint64(w.low))
}

// rounded is a / b, half to even, of a not negative and a positive number.
func rounded(a, b *big.Int) integer {
	q, rest := new(big.Int).QuoRem(a, b, new(big.Int))
	switch rest.Lsh(rest, 1).Cmp(b) {
	case 1:
		q.Add(q, big.NewInt(1))
	case 0:
		q.Add(q, big.NewInt(int64(q.Bit(0))))
	}
	return integer{q.Int64(), q.IsInt64()}
}

// deviationUs is the population standard deviation of count numbers of ns in whole µs, half to even: the root of
// count * squares - sum² over 1000 * count.
func deviationUs(count int64, sum, squares *big.Int) int64 {
	variance := new(big.Int).Mul(big.NewInt(count), squares)
	variance.Sub(variance, new(big.Int).Mul(sum, sum))
	unit := big.NewInt(1000 * count)
	root := new(big.Int).Sqrt(variance)
	us := new(big.Int).Quo(root, unit)
	// Above us + 1/2, i.e. root > (2 us + 1) * unit / 2? Compared as squares: 4 * variance with ((2 us + 1) * unit)².
	half := new(big.Int).Lsh(us, 1)
	half.Add(half, big.NewInt(1)).Mul(half, unit)
	switch variance.Lsh(variance, 2).Cmp(half.Mul(half, half)) {
	case 1:
		us.Add(us, big.NewInt(1))
	case 0:
		us.Add(us, big.NewInt(int64(us.Bit(0))))
	}
	return us.Int64()
}
