package lab27

import (
	"bytes"
	"fmt"

	"github.com/framebridge/framebridge/internal/jsonline"
)

// member is one key of an object, and what takes its value; take reports false for a value of the wrong type.
type member struct {
	key  string
	take func(*jsonline.Scanner) bool
}

// members reads the object that s has just entered: every key of want exactly once, and no other.
func members(s *jsonline.Scanner, want ...member) {
	seen := uint64(0)
	for s.Next() {
		i := 0
		for i < len(want) && string(s.Key()) != want[i].key {
			i++
		}
		if i == len(want) {
			s.Fail("not a member of this schema")
			continue
		}
		seen |= 1 << i
		if !want[i].take(s) {
			s.Fail("a value of the wrong type or out of range")
		}
	}
	for i := range want {
		if seen&(1<<i) == 0 {
			s.Fail("%q is missing", want[i].key)
		}
	}
}

// document reads a file that is one object.
func document(s *jsonline.Scanner, data []byte, want ...member) error {
	s.Start(data)
	members(s, want...)
	return s.End()
}

func object(key string, want ...member) member {
	return member{key, func(s *jsonline.Scanner) bool {
		if !s.Object() {
			return false
		}
		members(s, want...)
		return true
	}}
}

// orNull reads the object, or null, and notes which.
func orNull(there *bool, m member) member {
	return member{m.key, func(s *jsonline.Scanner) bool {
		*there = !s.Null()
		return !*there || m.take(s)
	}}
}

// list reads an array of at most limit elements.
func list(key string, limit int, element func(s *jsonline.Scanner) bool) member {
	return member{key, func(s *jsonline.Scanner) bool {
		if !s.Array() {
			return false
		}
		for n := 0; s.Next(); n++ {
			if n == limit || !element(s) {
				s.Fail("a value of the wrong type, or more than %d of them", limit)
			}
		}
		return true
	}}
}

// integer reads a number of low or more. No member of the contract is negative.
func integer(key string, low int64, to *int64) member {
	return member{key, func(s *jsonline.Scanner) (ok bool) {
		*to, ok = s.Int64()
		return ok && *to >= low
	}}
}

// seconds reads a decimal of at most nine places as integer ns: never through a float.
func seconds(key string, to *int64) member {
	return member{key, func(s *jsonline.Scanner) bool {
		ns, exact, ok := s.Decimal(9)
		*to = ns
		return ok && exact && ns >= 0
	}}
}

func boolean(key string, to *bool) member {
	return member{key, func(s *jsonline.Scanner) (ok bool) {
		*to, ok = s.Bool()
		return ok
	}}
}

// text reads a string of at most limit bytes.
func text(key string, limit int, to *string) member {
	return member{key, func(s *jsonline.Scanner) bool {
		b, ok := s.Bytes()
		*to = string(b[:min(len(b), limit)])
		return ok && len(b) <= limit
	}}
}

// constant reads a string that must be this one.
func constant(key, want string) member {
	return member{key, func(s *jsonline.Scanner) bool {
		b, ok := s.Bytes()
		return ok && string(b) == want
	}}
}

// columnError is an error of the scanner's as a problem at a line that begins at offset.
func columnError(file string, line int, offset int64, skipped int, err error) *Problem {
	p := &Problem{Kind: Schema, File: file, Line: line, Byte: offset, Detail: err.Error()}
	if at, ok := err.(*jsonline.Error); ok {
		p.Byte += int64(max(at.Column-1-skipped, 0))
		p.Detail = at.Problem
		if at.Path != "" {
			p.Detail = fmt.Sprintf("%s: %s", at.Path, at.Problem)
		}
	}
	return p
}

// isHex64 tells a SHA-256 in lower-case hex.
func isHex64(s string) bool {
	return len(s) == 64 && len(bytes.Trim([]byte(s), "0123456789abcdef")) == 0
}
