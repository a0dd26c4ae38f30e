package main

import (
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// timebase converts ticks: ns = ticks * numer / denom.
type timebase struct{ numer, denom int64 }

// ns is floor(ticks * numer / denom), with a 128-bit product; ok is false where that is no int64, or ticks are negative.
func (t timebase) ns(ticks int64) (ns int64, ok bool) {
	if t.numer < 1 || t.denom < 1 || ticks < 0 {
		return 0, false
	}
	high, low := bits.Mul64(uint64(ticks), uint64(t.numer))
	if high >= uint64(t.denom) {
		return 0, false
	}
	q, _ := bits.Div64(high, low, uint64(t.denom))
	return int64(q), q <= math.MaxInt64
}

// thousandths is 1000 * a / b, rounded half to even, of a not negative and a positive number.
func thousandths(a, b int64) (q int64, ok bool) {
	high, low := bits.Mul64(uint64(a), 1000)
	if high >= uint64(b) {
		return 0, false
	}
	u, rest := bits.Div64(high, low, uint64(b))
	half := uint64(b) - rest // rest < b, so this compares 2 * rest with b without overflow
	if rest > half || rest == half && u&1 == 1 {
		u++
	}
	return int64(u), u <= math.MaxInt64
}

// decimalText is v / 10^places in the form of the contract: no exponent, no trailing zeros.
func decimalText(v int64, places int) string {
	sign := ""
	u := uint64(v)
	if v < 0 {
		sign, u = "-", -u
	}
	digits := strconv.FormatUint(u, 10)
	for len(digits) <= places {
		digits = "0" + digits
	}
	at := len(digits) - places
	return sign + strings.TrimSuffix(strings.TrimRight(digits[:at]+"."+digits[at:], "0"), ".")
}
