package main

import (
	"math/big"
	"math/bits"
)

// The windows of the other display figures, which end at the presentation of the latest frame.
const (
	secondNs = 1_000_000_000
	quietNs  = 1_000_000_000
	// maxOthers bounds what is remembered, here as in the product: the last so many by arrival, 34 s at 120 Hz. A figure whose window
	// reaches into what was forgotten is null.
	maxOthers = 4096
)

// shown is a frame as the other display figures see it.
type shown struct {
	presentationNs, previousNs, frameNs int64
	late                                bool // overrun and missed can be told
	overrunNs, missed                   int64
}

// others are the frames that the other display figures are of.
type others struct {
	frames    []shown
	forgotten integer // the latest presentation among those that there was no room for
	latestAt  integer // arrival of the latest frame
	refresh   integer // its refresh interval in ticks
	base      timebase
}

func (o *others) forget() { *o = others{} }

// record takes a record of the primary display, if it counts.
func (o *others) record(r *record, bound timebase, hostNs integer) {
	frameNs, ok := intervalNs(r)
	presentationNs, fits := bound.ns(r.end.n)
	if string(r.quality) != valid || !r.numer.has || !r.denom.has || r.base() != bound || !ok || !fits || frameNs > maxIntervalNs || !hostNs.has {
		return
	}
	previousNs, _ := bound.ns(r.previous.n)
	f := shown{presentationNs: presentationNs, previousNs: previousNs, frameNs: frameNs}
	f.late, f.overrunNs, f.missed = lateness(r, bound)
	if len(o.frames) == maxOthers {
		if first := o.frames[0].presentationNs; !o.forgotten.has || first > o.forgotten.n {
			o.forgotten = of(first)
		}
		o.frames = o.frames[1:]
	}
	o.frames = append(o.frames, f)
	o.latestAt, o.refresh, o.base = hostNs, r.refresh, bound
}

// lateness is Apple's reading of a late frame, in wire.md. ok is false where the native integers for it are not all there.
func lateness(r *record, base timebase) (ok bool, overrunNs, missed int64) {
	for _, n := range [...]integer{r.begin, r.refresh, r.bufferCount, r.skip} {
		if !n.has || n.n < 0 {
			return false, 0, 0
		}
	}
	lifetime := r.end.n - r.begin.n
	if r.refresh.n == 0 || lifetime < 0 {
		return true, 0, 0
	}
	if refreshes := lifetime / r.refresh.n; refreshes >= r.bufferCount.n {
		missed = refreshes - r.bufferCount.n + 1
	}
	over := difference(lifetime, 0)
	if over.Sub(over, new(big.Int).Mul(big.NewInt(r.bufferCount.n), big.NewInt(r.refresh.n))); over.Sign() > 0 && r.skip.n == 0 {
		overrunNs, ok = base.ns(over.Int64())
		return ok, overrunNs, missed
	}
	return true, 0, missed
}

// otherFigures are the other display figures of a receipt, in units of their last decimal.
type otherFigures struct {
	fps, frameNs, refreshMilliHz, jitterUs, hitchUsPerS, missed integer
}

// at computes the figures at host time n.
func (o *others) at(n int64) (f otherFigures) {
	if away := difference(n, o.latestAt.n); !o.latestAt.has || away.CmpAbs(big.NewInt(quietNs)) > 0 {
		return f
	}
	latest := &o.frames[len(o.frames)-1]
	q := latest.presentationNs
	var fps, jitterCount int64
	var missed, overruns, intervals, sum, squares wide
	secondTold := !o.forgotten.has || o.forgotten.n < q-secondNs
	latenessTold := !o.forgotten.has || o.forgotten.n < q-windowNs
	for i := range o.frames {
		s := &o.frames[i]
		if s.presentationNs > q {
			continue
		}
		if s.previousNs >= q-secondNs {
			fps++
		}
		if s.presentationNs > q-secondNs {
			jitterCount++
			sum.add(s.frameNs, 1)
			squares.add(s.frameNs, s.frameNs)
		}
		if s.presentationNs > q-windowNs {
			latenessTold = latenessTold && s.late
			missed.add(s.missed, 1)
			overruns.add(s.overrunNs, 1)
			intervals.add(s.frameNs, 1)
		}
	}
	f.frameNs = of(latest.frameNs)
	if o.refresh.n > 0 { // 1e9 * denom / (refresh * numer), in thousandths
		f.refreshMilliHz = rounded(new(big.Int).Mul(big.NewInt(1e12), big.NewInt(o.base.denom)), new(big.Int).Mul(big.NewInt(o.refresh.n), big.NewInt(o.base.numer)))
	}
	if secondTold {
		f.fps = of(fps)
		if jitterCount >= 2 {
			f.jitterUs = of(deviationUs(jitterCount, sum.int(), squares.int()))
		}
	}
	if latenessTold {
		f.missed = fitting(missed.int())
		if intervals != (wide{}) { // ms of overrun / s of frames = 1000 * ns / ns, in thousandths
			f.hitchUsPerS = rounded(new(big.Int).Mul(overruns.int(), big.NewInt(1_000_000)), intervals.int())
		}
	}
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
	return maybe(q.Int64(), q.IsInt64())
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
