package sim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/framebridge/framebridge/internal/sim/tapenc"
)

// maxPredicateBytes bounds a predicate and with it how deep it nests.
const maxPredicateBytes = 4096

var errPredicate = errors.New("not understood by this simulation, which knows subsystem and category with ==, IN {}, AND, OR and brackets")

// parsePredicate reads an NSPredicate as a filter. It understands what can be said as "one of these subsystems, and one of these
// categories"; it refuses the rest, since a tap that quietly sends something else would be worse than none.
func parsePredicate(text string) (tapenc.Filter, error) {
	if len(text) > maxPredicateBytes {
		return tapenc.Filter{}, fmt.Errorf("%d bytes, at most %d are accepted", len(text), maxPredicateBytes)
	}
	p := predicateParser{}
	if err := p.split(text); err != nil {
		return tapenc.Filter{}, err
	}
	if len(p.tokens) == 0 {
		return tapenc.Filter{}, nil
	}
	sets, err := p.or()
	if err != nil {
		return tapenc.Filter{}, err
	}
	if len(p.tokens) > 0 {
		return tapenc.Filter{}, fmt.Errorf("at %q: %w", p.tokens[0], errPredicate)
	}
	return tapenc.Filter{Subsystems: sets["subsystem"], Categories: sets["category"]}, nil
}

// wanted are the values that a key may have, for each key that matters.
type wanted map[string][]string

type predicateParser struct{ tokens []string }

// split cuts the text into words, quoted strings (with their first quote) and signs.
func (p *predicateParser) split(text string) error {
	for {
		text = strings.TrimLeft(text, " \t\n")
		if text == "" {
			return nil
		}
		n := 1
		switch c := text[0]; {
		case c == '"' || c == '\'':
			end := strings.IndexByte(text[1:], c)
			if end < 0 || strings.ContainsRune(text[1:1+end], '\\') {
				return fmt.Errorf("at %s: %w", text, errPredicate)
			}
			p.tokens = append(p.tokens, text[:1+end])
			text = text[end+2:]
			continue
		case strings.HasPrefix(text, "==") || strings.HasPrefix(text, "&&") || strings.HasPrefix(text, "||"):
			n = 2
		case strings.IndexByte("(){},=", c) < 0:
			if n = strings.IndexAny(text, " \t\n(){},=&|\"'"); n < 0 {
				n = len(text)
			}
			n = max(n, 1)
		}
		p.tokens = append(p.tokens, text[:n])
		text = text[n:]
	}
}

// take takes the next token if it is one of these, in any case.
func (p *predicateParser) take(any ...string) bool {
	if len(p.tokens) == 0 || !slices.ContainsFunc(any, func(s string) bool { return strings.EqualFold(s, p.tokens[0]) }) {
		return false
	}
	p.tokens = p.tokens[1:]
	return true
}

func (p *predicateParser) or() (wanted, error) {
	left, err := p.and()
	for err == nil && p.take("OR", "||") {
		var right wanted
		if right, err = p.and(); err == nil {
			left, err = union(left, right)
		}
	}
	return left, err
}

// union joins what two sides want; only where they differ in at most one key can that be said key by key.
func union(a, b wanted) (wanted, error) {
	out, differ := wanted{}, 0
	if len(a) != len(b) {
		return nil, errPredicate
	}
	for key, values := range a {
		other, both := b[key]
		if !both {
			return nil, errPredicate
		}
		out[key] = values
		if !slices.Equal(values, other) {
			differ++
			out[key] = slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(values), other...))))
		}
	}
	if differ > 1 {
		return nil, errPredicate
	}
	return out, nil
}

func (p *predicateParser) and() (wanted, error) {
	left, err := p.term()
	for err == nil && p.take("AND", "&&") {
		var right wanted
		if right, err = p.term(); err == nil {
			left, err = both(left, right)
		}
	}
	return left, err
}

// both is what two sides want at once. A key that is left with no value would be no filter at all, so that is refused.
func both(a, b wanted) (wanted, error) {
	out := maps.Clone(a)
	for key, values := range b {
		if mine, constrained := a[key]; constrained {
			values = slices.DeleteFunc(slices.Clone(values), func(v string) bool { return !slices.Contains(mine, v) })
		}
		if len(values) == 0 {
			return nil, fmt.Errorf("%s can have no value: %w", key, errPredicate)
		}
		out[key] = values
	}
	return out, nil
}

func (p *predicateParser) term() (wanted, error) {
	if p.take("(") {
		w, err := p.or()
		if err == nil && !p.take(")") {
			err = fmt.Errorf("a bracket stays open: %w", errPredicate)
		}
		return w, err
	}
	if p.take("TRUEPREDICATE") {
		return wanted{}, nil
	}
	if len(p.tokens) == 0 {
		return nil, fmt.Errorf("it ends too early: %w", errPredicate)
	}
	key := p.tokens[0]
	if key != "subsystem" && key != "category" {
		return nil, fmt.Errorf("at %q: %w", key, errPredicate)
	}
	p.tokens = p.tokens[1:]
	if p.take("==", "=") {
		value, err := p.text()
		return wanted{key: {value}}, err
	}
	if !p.take("IN") || !p.take("{") {
		return nil, fmt.Errorf("after %q: %w", key, errPredicate)
	}
	var values []string
	for {
		value, err := p.text()
		if err != nil {
			return nil, err
		}
		values = append(values, value)
		if p.take("}") {
			slices.Sort(values)
			return wanted{key: slices.Compact(values)}, nil
		}
		if !p.take(",") {
			return nil, fmt.Errorf("in a list of values for %s: %w", key, errPredicate)
		}
	}
}

func (p *predicateParser) text() (string, error) {
	if len(p.tokens) == 0 || strings.IndexByte("\"'", p.tokens[0][0]) < 0 {
		return "", fmt.Errorf("expected a quoted text: %w", errPredicate)
	}
	value := p.tokens[0][1:]
	p.tokens = p.tokens[1:]
	return value, nil
}
