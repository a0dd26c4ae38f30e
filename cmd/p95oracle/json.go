package main

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// Bounds on what one line may hold, so that a hostile log costs no memory. The longest line that a recorder writes is session.end,
// with a count for every kind of row that it met: some tens of kilobytes.
const (
	maxLineBytes = 1 << 20
	maxDepth     = 16
)

// kind is what a JSON value is.
type kind uint8

const (
	absent kind = iota // not there at all
	null
	boolean
	number
	text
	array
	object
)

func (k kind) String() string {
	return [...]string{"nothing", "null", "a bool", "a number", "a string", "an array", "an object"}[k]
}

// node is a JSON value. Numbers stay the digits that they were: nothing here is ever a float.
type node struct {
	kind kind
	key  []byte // of a member, unescaped
	text []byte // the number's or the bool's characters, or the unescaped string
	// first and next index document.nodes: an object's or array's first child, and the sibling. 0 is none, since 0 is the root.
	first, next int32
}

// document is one parsed line. It uses its memory again for the next, so nothing of it may be kept.
type document struct {
	nodes []node
	line  []byte
	at    int
	spare []byte // unescaped strings
	path  []byte // of the member that is being read, such as payload.endMach; where parsing fails, of the one that it failed at
}

// parse reads one JSON object that fills the line.
func (d *document) parse(line []byte) error {
	d.nodes, d.line, d.at, d.spare, d.path = d.nodes[:0], line, 0, d.spare[:0], d.path[:0]
	if !utf8.Valid(line) {
		return errors.New("not UTF-8")
	}
	d.space()
	if d.at == len(line) || line[d.at] != '{' {
		return fmt.Errorf("byte %d: expected an object", d.at)
	}
	if _, err := d.value(0); err != nil {
		return err
	}
	if d.space(); d.at != len(line) {
		return d.unexpected("the end of the line")
	}
	return nil
}

func (d *document) unexpected(want string) error {
	if d.at >= len(d.line) {
		return fmt.Errorf("byte %d: expected %s, found the end of the line", d.at, want)
	}
	return fmt.Errorf("byte %d: expected %s, found %q", d.at, want, d.line[d.at])
}

func (d *document) space() {
	for d.at < len(d.line) && (d.line[d.at] == ' ' || d.line[d.at] == '\t' || d.line[d.at] == '\r' || d.line[d.at] == '\n') {
		d.at++
	}
}

// peek is the next byte, 0 at the end: no JSON value begins with it.
func (d *document) peek() byte {
	if d.at < len(d.line) {
		return d.line[d.at]
	}
	return 0
}

// value reads the value at d.at and answers its index.
func (d *document) value(depth int) (int32, error) {
	if depth > maxDepth {
		return 0, fmt.Errorf("byte %d: nested deeper than %d", d.at, maxDepth)
	}
	i := int32(len(d.nodes))
	d.nodes = append(d.nodes, node{})
	var err error
	var n node
	switch c := d.peek(); {
	case c == '{':
		n.kind = object
		n.first, err = d.members(depth)
	case c == '[':
		n.kind = array
		n.first, err = d.elements(depth)
	case c == '"':
		n.kind = text
		n.text, err = d.quoted()
	case c == '-' || c >= '0' && c <= '9':
		n.kind = number
		n.text, err = d.digits()
	default:
		for _, word := range [...]string{"null", "true", "false"} {
			if bytes.HasPrefix(d.line[d.at:], []byte(word)) {
				n.kind, n.text = boolean, d.line[d.at:d.at+len(word)]
				if word == "null" {
					n.kind = null
				}
				d.at += len(word)
				d.nodes[i] = n
				return i, nil
			}
		}
		return 0, d.unexpected("a value")
	}
	d.nodes[i] = n
	return i, err
}

// manyMembers is where looking for a duplicate key among all keys before it begins to cost more than a map.
const manyMembers = 48

func (d *document) members(depth int) (first int32, err error) {
	d.at++
	if d.space(); d.peek() == '}' {
		d.at++
		return 0, nil
	}
	var last int32
	var seen map[string]bool
	outer := len(d.path)
	for count := 1; ; count++ {
		d.path = d.path[:outer]
		d.space()
		keyAt := d.at
		if d.peek() != '"' {
			return 0, d.unexpected("a key")
		}
		key, err := d.quoted()
		if err != nil {
			return 0, err
		}
		if count == manyMembers {
			seen = map[string]bool{}
			for i := first; i != 0; i = d.nodes[i].next {
				seen[string(d.nodes[i].key)] = true
			}
		}
		duplicate := seen[string(key)]
		if seen != nil {
			seen[string(key)] = true
		}
		for i := first; i != 0 && seen == nil && !duplicate; i = d.nodes[i].next {
			duplicate = bytes.Equal(d.nodes[i].key, key)
		}
		if duplicate {
			return 0, fmt.Errorf("byte %d: duplicate key %.60q", keyAt, key)
		}
		if d.space(); d.peek() != ':' {
			return 0, d.unexpected("':'")
		}
		d.at++
		d.space()
		if outer > 0 {
			d.path = append(d.path, '.')
		}
		d.path = append(d.path, key...)
		i, err := d.value(depth + 1)
		if err != nil {
			return 0, err
		}
		d.nodes[i].key = key
		if first == 0 {
			first = i
		} else {
			d.nodes[last].next = i
		}
		last = i
		switch d.space(); d.peek() {
		case ',':
			d.at++
		case '}':
			d.at++
			d.path = d.path[:outer]
			return first, nil
		default:
			return 0, d.unexpected("',' or '}'")
		}
	}
}

func (d *document) elements(depth int) (first int32, err error) {
	d.at++
	if d.space(); d.peek() == ']' {
		d.at++
		return 0, nil
	}
	var last int32
	for {
		d.space()
		i, err := d.value(depth + 1)
		if err != nil {
			return 0, err
		}
		if first == 0 {
			first = i
		} else {
			d.nodes[last].next = i
		}
		last = i
		switch d.space(); d.peek() {
		case ',':
			d.at++
		case ']':
			d.at++
			return first, nil
		default:
			return 0, d.unexpected("',' or ']'")
		}
	}
}

// digits reads a number by JSON's own grammar: no leading zeros, no plus, no NaN. Whatever it is for, it must lie within int64.
func (d *document) digits() ([]byte, error) {
	begin := d.at
	some := func() bool {
		from := d.at
		for c := d.peek(); c >= '0' && c <= '9'; c = d.peek() {
			d.at++
		}
		return d.at > from
	}
	if d.peek() == '-' {
		d.at++
	}
	if d.peek() == '0' {
		d.at++
	} else if !some() {
		return nil, d.unexpected("a digit")
	}
	if d.peek() == '.' {
		d.at++
		if !some() {
			return nil, d.unexpected("a digit")
		}
	}
	if c := d.peek(); c == 'e' || c == 'E' {
		d.at++
		if c := d.peek(); c == '+' || c == '-' {
			d.at++
		}
		if !some() {
			return nil, d.unexpected("a digit")
		}
	}
	digits := d.line[begin:d.at]
	if _, _, fits := scaled(digits, 0); !fits {
		return nil, fmt.Errorf("byte %d: %.40s is outside int64", begin, digits)
	}
	return digits, nil
}

func (d *document) quoted() ([]byte, error) {
	d.at++
	begin := d.at
	for d.at < len(d.line) {
		switch c := d.line[d.at]; {
		case c == '"':
			d.at++
			return d.line[begin : d.at-1], nil
		case c == '\\':
			return d.escaped(begin)
		case c < 0x20:
			return nil, d.unexpected("no control character in a string")
		}
		d.at++
	}
	return nil, d.unexpected("the end of a string")
}

// escaped reads on from the first backslash of a string that began at begin.
func (d *document) escaped(begin int) ([]byte, error) {
	from := len(d.spare)
	d.spare = append(d.spare, d.line[begin:d.at]...)
	for d.at < len(d.line) {
		c := d.line[d.at]
		switch {
		case c == '"':
			d.at++
			return d.spare[from:], nil
		case c < 0x20:
			return nil, d.unexpected("no control character in a string")
		case c != '\\':
			d.spare = append(d.spare, c)
			d.at++
			continue
		}
		d.at++
		c = d.peek()
		if i := bytes.IndexByte([]byte(`"\/bfnrt`), c); i >= 0 {
			d.spare = append(d.spare, "\"\\/\b\f\n\r\t"[i])
			d.at++
			continue
		}
		r, ok := d.unicode()
		if ok && utf16.IsSurrogate(r) {
			low := rune(utf8.RuneError)
			if d.peek() == '\\' {
				d.at++
				low, _ = d.unicode()
			}
			r = utf16.DecodeRune(r, low)
			ok = r != utf8.RuneError // half a pair stands for nothing
		}
		if !ok {
			return nil, d.unexpected("an escape")
		}
		d.spare = utf8.AppendRune(d.spare, r)
	}
	return nil, d.unexpected("the end of a string")
}

// unicode reads uXXXX.
func (d *document) unicode() (r rune, ok bool) {
	if d.peek() != 'u' || len(d.line)-d.at < 5 {
		return 0, false
	}
	for _, c := range d.line[d.at+1 : d.at+5] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	d.at += 5
	return r, true
}

// children calls f for every member or element of i, until f fails.
func (d *document) children(i int32, f func(key []byte, n *node, i int32) error) error {
	for c := d.nodes[i].first; c != 0; c = d.nodes[c].next {
		if err := f(d.nodes[c].key, &d.nodes[c], c); err != nil {
			return err
		}
	}
	return nil
}

// member is a member of the object i by name; a node of kind absent where there is none, or i is no object.
func (d *document) member(i int32, name string) (*node, int32) {
	if d.nodes[i].kind == object {
		for c := d.nodes[i].first; c != 0; c = d.nodes[c].next {
			if string(d.nodes[c].key) == name {
				return &d.nodes[c], c
			}
		}
	}
	return &node{}, 0
}

// integer is an int64 that may not be there.
type integer struct {
	n   int64
	has bool
}

func of(n int64) integer { return integer{n, true} }

// maybe is n where ok. What is not there is always the same.
func maybe(n int64, ok bool) integer {
	if !ok {
		return integer{}
	}
	return of(n)
}

// integer reads n where an integer belongs. A null, a string or nothing at all is no integer and no reason to reject the line; a bool
// or a fraction is.
func (n *node) integer() (integer, error) {
	switch n.kind {
	case boolean:
		return integer{}, fmt.Errorf("%s: a bool where a number belongs", n.key)
	case number:
		if bytes.ContainsAny(n.text, ".eE") {
			return integer{}, fmt.Errorf("%s: expected an integer, found %.40s", n.key, n.text)
		}
		v, _, _ := scaled(n.text, 0) // fits, or the line would not have been parsed
		return of(v), nil
	}
	return integer{}, nil
}

// decimal reads n where a decimal figure belongs: any number will do to keep the line.
func (n *node) decimal() error {
	if n.kind == boolean {
		return fmt.Errorf("%s: a bool where a number belongs", n.key)
	}
	return nil
}

// scaled is the JSON number in digits times 10^places, toward zero. exact is false where something was cut off, and fits where what is
// left is outside int64.
func scaled(digits []byte, places int) (v int64, exact, fits bool) {
	negative := digits[0] == '-'
	if negative {
		digits = digits[1:]
	}
	if e := bytes.IndexAny(digits, "eE"); e >= 0 {
		// No more than what the digits of a line can make up for; beyond that only zero matters, which stays zero.
		exponent, down := 0, digits[e+1] == '-'
		for _, c := range digits[e+1:] {
			if c >= '0' && c <= '9' {
				exponent = min(exponent*10+int(c-'0'), 2*maxLineBytes)
			}
		}
		if down {
			exponent = -exponent
		}
		places += exponent
		digits = digits[:e]
	}
	point := bytes.IndexByte(digits, '.')
	if point < 0 {
		point = len(digits)
	}
	exact = true
	var u uint64
	put := func(digit uint64) bool {
		high, low := bits.Mul64(u, 10)
		var carry uint64
		u, carry = bits.Add64(low, digit, 0)
		return high == 0 && carry == 0
	}
	for i, c := range digits {
		switch left := point + places; {
		case c == '.':
		case i < point && i < left, i > point && i-1 < left:
			if !put(uint64(c - '0')) {
				return 0, false, false
			}
		default:
			exact = exact && c == '0'
		}
	}
	written := len(digits)
	if point < len(digits) {
		written--
	}
	for ; written < point+places && u != 0; written++ {
		if !put(0) {
			return 0, false, false
		}
	}
	switch {
	case negative && u <= 1<<63:
		return int64(-u), exact, true
	case !negative && u <= math.MaxInt64:
		return int64(u), exact, true
	}
	return 0, false, false
}
