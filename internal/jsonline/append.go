package jsonline

import (
	"strconv"
	"unicode/utf8"
)

// asIs are the bytes that stand in a string as they are, and are no part of a longer character.
var asIs = func() (t [256]bool) {
	for c := byte(0x20); c < utf8.RuneSelf; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// AppendString appends s in quotes, escaped. What is not UTF-8 is written as U+FFFD, since a line must be.
func AppendString[T string | []byte](dst []byte, s T) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	plain := 0 // what stands before it is written
	for i := 0; i < len(s); {
		c := s[i]
		if asIs[c] {
			i++
			continue
		}
		size := 1
		if c >= utf8.RuneSelf {
			var r rune
			if r, size = decodeRune(s[i:]); r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
		}
		dst = append(dst, s[plain:i]...)
		switch {
		case c >= utf8.RuneSelf:
			dst = utf8.AppendRune(dst, utf8.RuneError)
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i += size
		plain = i
	}
	dst = append(dst, s[plain:]...)
	return append(dst, '"')
}

func decodeRune[T string | []byte](s T) (rune, int) {
	var window [utf8.UTFMax]byte
	return utf8.DecodeRune(window[:copy(window[:], s)])
}

// AppendDecimal appends scaled / 10^places exactly: no exponent, no trailing zeros, no point where nothing stands behind it.
// places is at most 18.
func AppendDecimal(dst []byte, scaled int64, places int) []byte {
	magnitude := uint64(scaled)
	if scaled < 0 {
		dst = append(dst, '-')
		magnitude = -magnitude
	}
	one := uint64(1)
	for range places {
		one *= 10
	}
	dst = strconv.AppendUint(dst, magnitude/one, 10)
	rest := magnitude % one
	if rest == 0 {
		return dst
	}
	dst = append(dst, '.')
	for rest != 0 {
		one /= 10
		dst = append(dst, '0'+byte(rest/one))
		rest %= one
	}
	return dst
}
