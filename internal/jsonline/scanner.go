// Package jsonline reads and writes the objects of JSON-lines files one line at a time, and reads them strictly: the ledger's
// numbers are evidence, so a line that another reader could take for something else is refused as a whole.
//
// What encoding/json lets pass and this does not: duplicate keys (compared after their escapes are undone), numbers outside int64,
// a fraction or an exponent where an integer belongs, true or false where a number belongs, invalid UTF-8, lone surrogates, bytes
// after the object. Nothing is allocated per line once a Scanner has seen a few.
//
//	var s jsonline.Scanner
//	s.Start(line)
//	for s.Next() {
//		switch string(s.Key()) {
//		case "seq":
//			seq, hasSeq = s.Int64()
//		case "target":
//			if s.Object() {
//				for s.Next() { … }
//			}
//		}
//	}
//	err := s.End()
package jsonline

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// MaxLineBytes bounds a line. The longest real ones are a session's counts by name, some hundred kilobytes.
	MaxLineBytes = 1 << 20
	// MaxDepth bounds nesting; the deepest real line has four levels.
	MaxDepth = 16
	// MaxMembers bounds the members of the objects open at one moment, which are kept to find duplicate keys.
	MaxMembers = 4096
)

// Error says what is wrong with a line, and where.
type Error struct {
	Column  int    // 1-based, in bytes
	Path    string // such as payload.beginMach or processes[2].pid; "" before the first key
	Problem string
}

func (e *Error) Error() string {
	if e.Path == "" {
		return fmt.Sprintf("column %d: %s", e.Column, e.Problem)
	}
	return fmt.Sprintf("column %d, %s: %s", e.Column, e.Path, e.Problem)
}

// Kind is the kind of a JSON value.
type Kind uint8

const (
	Invalid Kind = iota
	Null
	Bool
	Number
	String
	Object
	Array
)

var kindNames = [...]string{"no JSON value", "null", "a bool", "a number", "a string", "an object", "an array"}

func (k Kind) String() string { return kindNames[k] }

type level struct {
	array    bool
	begun    bool   // a member or element was read
	keysFrom int    // where this object's keys begin in Scanner.keys
	seen     uint64 // bit h%64 for the hash h of each key: most new keys need no comparison
	index    int    // of the current element
}

type key struct {
	text []byte // escapes undone
	hash uint32
}

// Scanner walks one line. The zero Scanner is ready for Start; it keeps its memory from line to line. After an error Next returns
// false and the getters return nothing; End tells.
type Scanner struct {
	line    []byte
	pos     int
	depth   int
	levels  [MaxDepth]level
	keys    []key
	scratch []byte // strings whose escapes were undone
	waiting bool   // a value stands at pos that nobody has taken yet
	err     *Error
}

// Start begins with the object in line, which must stay as it is until End.
func (s *Scanner) Start(line []byte) {
	s.line, s.pos, s.depth, s.keys, s.scratch, s.err = line, 0, 0, s.keys[:0], s.scratch[:0], nil
	if len(line) > MaxLineBytes {
		s.fail(MaxLineBytes, "the line has %d bytes, at most %d can be read", len(line), MaxLineBytes)
		return
	}
	s.space()
	s.waiting = true
	if k := s.Kind(); k != Object {
		s.fail(s.pos, "want an object, found %s", k)
		return
	}
	s.Object()
}

// Next moves to the next member of the innermost open object, or element of the innermost open array, and steps over the value
// before it if nobody took it. It returns false where that object or array ends; a loop over Next must run to that end.
func (s *Scanner) Next() bool {
	if s.waiting {
		s.Skip()
	}
	if s.err != nil || s.depth == 0 {
		return false
	}
	l := &s.levels[s.depth-1]
	s.space()
	c := s.peek()
	if c == '}' && !l.array || c == ']' && l.array {
		s.pos++
		s.depth--
		s.keys = s.keys[:l.keysFrom]
		s.space()
		return false
	}
	if l.begun {
		if c != ',' {
			s.unexpected("a comma or the end of the " + l.kind())
			return false
		}
		s.pos++
		s.space()
	}
	l.begun = true
	if l.array {
		l.index++
		s.waiting = true
		return true
	}
	if s.peek() != '"' {
		s.unexpected("a key in quotes")
		return false
	}
	at := s.pos
	text, ok := s.string()
	if !ok || !s.addKey(l, text, at) {
		return false
	}
	s.space()
	if s.peek() != ':' {
		s.unexpected("a colon")
		return false
	}
	s.pos++
	s.space()
	s.waiting = true
	return true
}

func (l *level) kind() string {
	if l.array {
		return "array"
	}
	return "object"
}

func (s *Scanner) addKey(l *level, text []byte, at int) bool {
	hash := uint32(len(text)) // cheap: all that it has to do is to tell most keys apart
	if n := len(text); n > 0 {
		hash = (hash*31+uint32(text[0]))*31 + uint32(text[n/2]) + uint32(text[n-1])*7
	}
	bit := uint64(1) << (hash % 64)
	if l.seen&bit != 0 {
		for i := l.keysFrom; i < len(s.keys); i++ {
			if s.keys[i].hash == hash && bytes.Equal(s.keys[i].text, text) {
				s.fail(at, "duplicate key %q", clip(text))
				return false
			}
		}
	}
	l.seen |= bit
	if len(s.keys) == MaxMembers {
		s.fail(at, "more than %d members", MaxMembers)
		return false
	}
	s.keys = append(s.keys, key{text, hash})
	return true
}

// Key is the key of the current member, escapes undone; it stays valid until the next Start.
func (s *Scanner) Key() []byte {
	if len(s.keys) == 0 {
		return nil
	}
	return s.keys[len(s.keys)-1].text
}

// End returns what was wrong with the line, or nil when it was one object and nothing else, read to its end.
func (s *Scanner) End() error {
	if s.err == nil && (s.depth > 0 || s.waiting) {
		s.fail(s.pos, "the line was not read to its end")
	}
	if s.err == nil && s.pos < len(s.line) {
		s.fail(s.pos, "bytes after the object: %q", clip(s.line[s.pos:]))
	}
	if s.err == nil {
		return nil
	}
	return s.err
}

// Fail rejects the line for a reason of the caller's, at the current place, unless it is rejected already.
func (s *Scanner) Fail(format string, args ...any) { s.fail(s.pos, format, args...) }

// Kind tells what stands ahead without taking it; Invalid after an error.
func (s *Scanner) Kind() Kind {
	if s.err != nil || !s.waiting {
		return Invalid
	}
	switch c := s.peek(); {
	case c == '{':
		return Object
	case c == '[':
		return Array
	case c == '"':
		return String
	case c == 't' || c == 'f':
		return Bool
	case c == 'n':
		return Null
	case c == '-' || '0' <= c && c <= '9':
		return Number
	}
	return Invalid
}

// Object enters an object: the next Next is about its members. Any other kind of value is stepped over, and ok is false.
func (s *Scanner) Object() (ok bool) { return s.enter(Object) }

// Array enters an array in the same way.
func (s *Scanner) Array() (ok bool) { return s.enter(Array) }

func (s *Scanner) enter(want Kind) bool {
	if s.Kind() != want {
		s.Skip()
		return false
	}
	if s.depth == MaxDepth {
		s.fail(s.pos, "nested deeper than %d", MaxDepth)
		return false
	}
	s.levels[s.depth] = level{array: want == Array, keysFrom: len(s.keys), index: -1}
	s.depth++
	s.pos++
	s.waiting = false
	return true
}

// Int64 takes an integer. Null, strings, objects and arrays are stepped over, and ok is false: the member is as good as missing. A
// bool, a fraction, an exponent, or a number outside int64 rejects the line.
func (s *Scanner) Int64() (n int64, ok bool) {
	if !s.numberAhead() {
		return 0, false
	}
	at := s.pos
	num, ok := s.number()
	if !ok {
		return 0, false
	}
	if !num.integer {
		s.fail(at, "want an integer, found %q", clip(num.text))
		return 0, false
	}
	return num.value, true
}

// Decimal takes a number as value * 10^places. exact is false, and the value meaningless, where it has more decimals than that or
// does not fit. What is no number is treated as by Int64.
func (s *Scanner) Decimal(places int) (scaled int64, exact, ok bool) {
	if !s.numberAhead() {
		return 0, false, false
	}
	num, ok := s.number()
	if !ok {
		return 0, false, false
	}
	scaled, exact, fits := scaledDecimal(num.text, places)
	return scaled, exact && fits, true
}

// numberAhead steps over everything but a number, and refuses a bool.
func (s *Scanner) numberAhead() bool {
	switch k := s.Kind(); k {
	case Number:
		return true
	case Bool:
		s.fail(s.pos, "want a number, found a bool")
	default:
		s.Skip()
	}
	return false
}

// Bool takes a bool; ok is false, and the value stepped over, where it is something else.
func (s *Scanner) Bool() (v, ok bool) {
	if s.Kind() != Bool {
		s.Skip()
		return false, false
	}
	if s.peek() == 't' {
		return true, s.literal("true")
	}
	return false, s.literal("false")
}

// Bytes takes a string, escapes undone, valid until the next Start and not to be changed. ok is false, and the value stepped over,
// where it is something else.
func (s *Scanner) Bytes() (text []byte, ok bool) {
	if s.Kind() != String {
		s.Skip()
		return nil, false
	}
	s.waiting = false
	return s.string()
}

// Null takes a null; anything else stays where it is, and ok is false.
func (s *Scanner) Null() (ok bool) { return s.Kind() == Null && s.literal("null") }

// Skip steps over a value, which must be as strict JSON as one that is taken, whatever it is.
func (s *Scanner) Skip() {
	switch s.Kind() {
	case Object, Array:
		if s.enter(s.Kind()) {
			for s.Next() {
				s.Skip()
			}
		}
	case String:
		s.Bytes()
	case Number:
		s.number()
	case Bool:
		s.Bool()
	case Null:
		s.literal("null")
	default:
		if s.err == nil && s.waiting {
			s.unexpected("a JSON value")
		}
	}
}

// Raw steps over a value and returns its bytes as they stand in the line; nil after an error.
func (s *Scanner) Raw() []byte {
	from := s.pos
	s.Skip()
	if s.err != nil {
		return nil
	}
	return bytes.TrimRight(s.line[from:s.pos], " \t\r\n")
}

func (s *Scanner) literal(word string) bool {
	if !bytes.HasPrefix(s.line[s.pos:], []byte(word)) {
		s.unexpected(word)
		return false
	}
	s.pos += len(word)
	s.waiting = false
	return true
}

// string reads from the opening quote at pos to behind the closing one.
func (s *Scanner) string() ([]byte, bool) {
	start := s.pos + 1
	ascii := true
	for i := start; i < len(s.line); i++ {
		switch c := s.line[i]; {
		case asIs[c]:
		case c == '"':
			s.pos = i + 1
			text := s.line[start:i]
			if !ascii && !utf8.Valid(text) {
				s.fail(start, "a string that is not UTF-8")
				return nil, false
			}
			return text, true
		case c == '\\':
			return s.escaped(start, i)
		case c < 0x20:
			s.fail(i, "a control character in a string")
			return nil, false
		default:
			ascii = false
		}
	}
	s.fail(len(s.line), "a string without an end")
	return nil, false
}

// escaped reads the rest of a string whose first escape is at i.
func (s *Scanner) escaped(start, i int) ([]byte, bool) {
	from := len(s.scratch)
	s.scratch = append(s.scratch, s.line[start:i]...)
	for i < len(s.line) {
		switch c := s.line[i]; {
		case c == '"':
			s.pos = i + 1
			text := s.scratch[from:len(s.scratch):len(s.scratch)]
			if !utf8.Valid(text) {
				s.fail(start, "a string that is not UTF-8")
				return nil, false
			}
			return text, true
		case c == '\\':
			r, n := unescape(s.line[i:])
			if n == 0 {
				s.fail(i, "a wrong escape or lone surrogate in a string: %q", clip(s.line[i:]))
				return nil, false
			}
			s.scratch = utf8.AppendRune(s.scratch, r)
			i += n
		case c < 0x20:
			s.fail(i, "a control character in a string")
			return nil, false
		default:
			s.scratch = append(s.scratch, c)
			i++
		}
	}
	s.fail(len(s.line), "a string without an end")
	return nil, false
}

// unescape reads one escape and returns its length, 0 where it is none.
func unescape(b []byte) (r rune, n int) {
	if len(b) < 2 {
		return 0, 0
	}
	switch b[1] {
	case '"', '\\', '/':
		return rune(b[1]), 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		first, ok := hex4(b[2:])
		if !ok {
			return 0, 0
		}
		if !utf16.IsSurrogate(first) {
			return first, 6
		}
		if len(b) < 12 || b[6] != '\\' || b[7] != 'u' {
			return 0, 0
		}
		second, ok := hex4(b[8:])
		if r = utf16.DecodeRune(first, second); !ok || r == utf8.RuneError {
			return 0, 0
		}
		return r, 12
	}
	return 0, 0
}

func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			r = r<<4 | rune(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

func (s *Scanner) space() {
	for s.pos < len(s.line) {
		switch s.line[s.pos] {
		case ' ', '\t', '\r', '\n':
			s.pos++
		default:
			return
		}
	}
}

// peek is the byte at pos, 0 at the end of the line.
func (s *Scanner) peek() byte {
	if s.pos < len(s.line) {
		return s.line[s.pos]
	}
	return 0
}

func (s *Scanner) unexpected(want string) {
	if s.pos >= len(s.line) {
		s.fail(s.pos, "want %s, found the end of the line", want)
		return
	}
	s.fail(s.pos, "want %s, found %q", want, clip(s.line[s.pos:]))
}

func (s *Scanner) fail(at int, format string, args ...any) {
	s.waiting = false
	if s.err == nil {
		s.err = &Error{Column: at + 1, Path: s.path(), Problem: fmt.Sprintf(format, args...)}
	}
}

func (s *Scanner) path() string {
	var path []byte
	for i := range s.depth {
		if s.levels[i].array {
			path = append(path, '[')
			path = strconv.AppendInt(path, int64(max(s.levels[i].index, 0)), 10)
			path = append(path, ']')
			continue
		}
		last := len(s.keys) // one past the last key of this object
		if i+1 < s.depth {
			last = s.levels[i+1].keysFrom
		}
		if last == s.levels[i].keysFrom {
			continue
		}
		if len(path) > 0 {
			path = append(path, '.')
		}
		path = append(path, readable(s.keys[last-1].text)...)
	}
	return string(path)
}

// readable is a key as it can stand in an error message.
func readable(key []byte) string {
	plain := len(key) > 0 && len(key) <= clipBytes
	for _, c := range key {
		plain = plain && (c == '_' || c == '-' || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z')
	}
	if plain {
		return string(key)
	}
	return strconv.Quote(string(clip(key)))
}

// clipBytes is how much of a line an error message quotes.
const clipBytes = 40

func clip(b []byte) []byte { return b[:min(len(b), clipBytes)] }
