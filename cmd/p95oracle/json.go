package main

import (
	"bytes"
	"errors"
	"fmt"
	"math"
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
}

// parse reads one JSON object that fills the line.
func (d *document) parse(line []byte) error {
	d.nodes, d.line, d.at, d.spare = d.nodes[:0], line, 0, d.spare[:0]
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
	for count := 1; ; count++ {
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

// digits reads a number by JSON's own grammar: no leading zeros, no plus, no NaN.
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
	return d.line[begin:d.at], nil
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
		if !ok {
			return nil, d.unexpected("an escape")
		}
		if utf16.IsSurrogate(r) {
			mark := d.at
			low := rune(utf8.RuneError)
			if d.peek() == '\\' {
				d.at++
				low, _ = d.unicode()
			}
			if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
				d.at = mark // half a pair stands for nothing; what follows it stands for itself
			}
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

// errReject marks what makes a reader reject a line, beside broken JSON.
var errReject = errors.New("line rejected")

// integer reads n where an integer belongs. A null, a string or nothing at all is no integer and no reason to reject the line.
func (n *node) integer() (integer, error) {
	switch n.kind {
	case boolean:
		return integer{}, fmt.Errorf("%w: %s: a bool where a number belongs", errReject, n.key)
	case number:
		v, whole, fits := wholeNumber(n.text)
		if !whole {
			return integer{}, fmt.Errorf("%w: %s: expected an integer, found %.40s", errReject, n.key, n.text)
		}
		if !fits {
			return integer{}, fmt.Errorf("%w: %s: %.40s is outside int64", errReject, n.key, n.text)
		}
		return of(v), nil
	}
	return integer{}, nil
}

// wholeNumber reads a JSON number that is written without fraction and exponent.
func wholeNumber(digits []byte) (v int64, whole, fits bool) {
	negative := digits[0] == '-'
	if negative {
		digits = digits[1:]
	}
	var u uint64
	fits = true
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false, false
		}
		if u > (math.MaxUint64-9)/10 {
			fits = false
			continue
		}
		u = u*10 + uint64(c-'0')
	}
	switch {
	case !fits, !negative && u > math.MaxInt64, u > 1<<63:
		return 0, true, false
	case negative:
		return int64(-u), true, true
	}
	return int64(u), true, true
}

// decimal reads n where a decimal figure belongs: any number will do to keep the line.
func (n *node) decimal() error {
	if n.kind == boolean {
		return fmt.Errorf("%w: %s: a bool where a number belongs", errReject, n.key)
	}
	return nil
}

// scaled is a decimal times 10^places, exactly: ok is false where it has an exponent, more decimals, or does not fit.
func scaled(digits []byte, places int) (v int64, ok bool) {
	whole, fraction, _ := bytes.Cut(digits, []byte("."))
	if len(fraction) > places || len(whole)+places > 19 {
		return 0, false
	}
	var joined [20]byte
	n := copy(joined[:], whole)
	n += copy(joined[n:], fraction)
	for range places - len(fraction) {
		joined[n] = '0'
		n++
	}
	v, isWhole, fits := wholeNumber(joined[:n])
	return v, isWhole && fits
}
