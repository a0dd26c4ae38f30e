package p95

import (
	"math"
	"math/bits"
)

// Int is an integer that may be null. The zero Int is null.
type Int struct {
	N     int64
	Known bool
}

// Of is n, not null.
func Of(n int64) Int { return Int{N: n, Known: true} }

// wide is a signed 128-bit integer: sums and differences of times from a log of anyone's making cannot overflow it.
type wide struct {
	hi int64
	lo uint64
}

func wideOf(n int64) wide { return wide{hi: n >> 63, lo: uint64(n)} }

func (a wide) plus(n int64) wide {
	b := wideOf(n)
	lo, carry := bits.Add64(a.lo, b.lo, 0)
	return wide{hi: a.hi + b.hi + int64(carry), lo: lo}
}

func (a wide) minus(n int64) wide {
	b := wideOf(n)
	lo, borrow := bits.Sub64(a.lo, b.lo, 0)
	return wide{hi: a.hi - b.hi - int64(borrow), lo: lo}
}

// int is null where a does not fit int64.
func (a wide) int() Int {
	if a.hi != int64(a.lo)>>63 {
		return Int{}
	}
	return Of(int64(a.lo))
}

// clamped is the int64 nearest to a.
func (a wide) clamped() int64 {
	switch n := a.int(); {
	case n.Known:
		return n.N
	case a.hi < 0:
		return math.MinInt64
	}
	return math.MaxInt64
}

// natural is an unsigned 128-bit sum.
type natural struct{ hi, lo uint64 }

func (a *natural) add(hi, lo uint64) {
	var carry uint64
	a.lo, carry = bits.Add64(a.lo, lo, 0)
	a.hi += hi + carry
}

func (a *natural) sub(hi, lo uint64) {
	var borrow uint64
	a.lo, borrow = bits.Sub64(a.lo, lo, 0)
	a.hi -= hi + borrow
}

func (a natural) less(b natural) bool { return a.hi < b.hi || a.hi == b.hi && a.lo < b.lo }

// times is a * n; its callers keep the result below 2^128.
func (a natural) times(n uint64) natural {
	hi, lo := bits.Mul64(a.lo, n)
	return natural{hi: hi + a.hi*n, lo: lo}
}

// quo is a / n and what is left over, for n above 0.
func (a natural) quo(n uint64) (q natural, rest uint64) {
	if a.hi >= n {
		q.hi, a.hi = a.hi/n, a.hi%n
	}
	q.lo, rest = bits.Div64(a.hi, a.lo, n)
	return q, rest
}

// over is a / n, rounded half to even; null where n is 0 or the quotient does not fit int64.
func (a natural) over(n uint64) Int {
	if n == 0 {
		return Int{}
	}
	q, rest := a.quo(n)
	return q.rounded(natural{lo: rest}, natural{lo: n})
}

// rounded is the quotient q rounded half to even, where rest (below 2^127) was left over of a division by n.
func (q natural) rounded(rest, n natural) Int {
	if twice := rest.times(2); n.less(twice) || n == twice && q.lo%2 == 1 {
		q.add(0, 1)
	}
	if q.hi > 0 || q.lo > math.MaxInt64 {
		return Int{}
	}
	return Of(int64(q.lo))
}
