package jsonline

import (
	"bytes"
	"math"
)

type number struct {
	text    []byte
	integer bool  // neither fraction nor exponent
	value   int64 // of an integer
}

// number takes the number at pos. Whoever asks and whatever for, one outside int64 rejects the line.
func (s *Scanner) number() (number, bool) {
	start := s.pos
	i := start
	if s.line[i] == '-' {
		i++
	}
	digits := i
	var magnitude uint64
	fits := true
	for ; i < len(s.line) && isDigit(s.line[i]); i++ {
		d := uint64(s.line[i] - '0')
		fits = fits && magnitude <= (math.MaxUint64-d)/10
		magnitude = magnitude*10 + d
	}
	if i == digits || s.line[digits] == '0' && i-digits > 1 {
		s.unexpected("a JSON number")
		return number{}, false
	}
	end, ok := fractionAndExponent(s.line, i)
	if !ok {
		s.unexpected("a JSON number")
		return number{}, false
	}
	n := number{text: s.line[start:end], integer: end == i}
	negative := digits > start
	switch {
	case !n.integer:
		_, _, fits = scaledDecimal(n.text, 0)
	case negative:
		fits = fits && magnitude <= 1<<63
		n.value = -int64(magnitude) // -2^63 is its own negative
	default:
		fits = fits && magnitude <= math.MaxInt64
		n.value = int64(magnitude)
	}
	if !fits {
		s.fail(start, "a number outside int64: %q", clip(n.text))
		return number{}, false
	}
	s.pos = end
	s.waiting = false
	return n, true
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// fractionAndExponent returns where they end; i itself where there are none.
func fractionAndExponent(line []byte, i int) (end int, ok bool) {
	digits := func() bool {
		from := i
		for i < len(line) && isDigit(line[i]) {
			i++
		}
		return i > from
	}
	if i < len(line) && line[i] == '.' {
		i++
		if !digits() {
			return i, false
		}
	}
	if i < len(line) && line[i]|0x20 == 'e' {
		i++
		if i < len(line) && (line[i] == '+' || line[i] == '-') {
			i++
		}
		if !digits() {
			return i, false
		}
	}
	return i, true
}

// scaledDecimal is the JSON number in text times 10^places, toward zero: exact is false where something was cut off, fits where
// the result is outside int64.
func scaledDecimal(text []byte, places int) (v int64, exact, fits bool) {
	negative := text[0] == '-'
	if negative {
		text = text[1:]
	}
	// maxExponent is far outside whatever can matter: a line has no room for so many digits to make up for it.
	const maxExponent = 10 * MaxLineBytes
	exponent := 0
	if e := bytes.IndexAny(text, "eE"); e >= 0 {
		down := text[e+1] == '-'
		for _, c := range text[e+1:] {
			if isDigit(c) {
				exponent = min(exponent*10+int(c-'0'), maxExponent)
			}
		}
		if down {
			exponent = -exponent
		}
		text = text[:e]
	}
	whole, fraction, _ := bytes.Cut(text, []byte("."))
	point := len(whole) + exponent + places // digits of whole and fraction that stand before the decimal point of the result

	var magnitude uint64
	exact = true
	for i := range len(whole) + len(fraction) {
		d := byte(0)
		if i < len(whole) {
			d = whole[i] - '0'
		} else {
			d = fraction[i-len(whole)] - '0'
		}
		if i >= point {
			exact = exact && d == 0
			continue
		}
		if magnitude > (math.MaxUint64-uint64(d))/10 {
			return 0, false, false
		}
		magnitude = magnitude*10 + uint64(d)
	}
	for i := len(whole) + len(fraction); i < point && magnitude != 0; i++ {
		if magnitude > math.MaxUint64/10 {
			return 0, false, false
		}
		magnitude *= 10
	}
	switch {
	case negative && magnitude <= 1<<63:
		return -int64(magnitude), exact, true
	case !negative && magnitude <= math.MaxInt64:
		return int64(magnitude), exact, true
	}
	return 0, false, false
}
