package main

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/framebridge/framebridge/ledger"
)

func TestLinesThatAreNoStrictJSON(t *testing.T) {
	for _, line := range []string{
		``, ` `, `1`, `[]`, `null`, `{`, `{}}`, `{} {}`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `{"a":1 "b":2}`, `{'a':1}`, `{"a":[1,]}`, `{"a":[1`, `{"a":tru}`,
		`{"a":01}`, `{"a":+1}`, `{"a":.5}`, `{"a":1.}`, `{"a":1e}`, `{"a":-}`, `{"a":NaN}`, `{"a":Infinity}`, `{"a":0x1}`, `{"a":1_0}`,
		`{"a":9223372036854775808}`, `{"a":-9223372036854775809}`, `{"a":1e19}`, `{"a":9223372036854775808.5}`, `{"x":{"y":[18446744073709551616]}}`,
		`{"a":1,"a":1}`, `{"a":1,"\u0061":1}`, `{"a":{"b":1,"c":2,"b":3}}`,
		"{\"a\":\"\x00\"}", "{\"a\":\"\n\"}", "{\"a\":\"\xff\"}", `{"a":"\x"}`, `{"a":"\u12"}`, `{"a":"\ud800"}`, `{"a":"\ud800\ud800"}`, `{"a":"\udc00"}`, `{"a":"`, `{"a":"\`,
		`{"a":` + strings.Repeat("[", 17) + strings.Repeat("]", 17) + `}`,
	} {
		var d document
		if err := d.parse([]byte(line)); err == nil {
			t.Errorf("%.60q is taken", line)
		}
	}
}

func TestStringsAndNumbersAreReadAsTheyStand(t *testing.T) {
	var d document
	line := ` {"a":"\"\\\/\b\f\n\r\té😀","\u006b":-9223372036854775808,"d":8.3332910,"e":[],"o":{},"t":true,"n":null,"last":9223372036854775807} `
	if err := d.parse([]byte(line)); err != nil {
		t.Fatal(err)
	}
	if n, _ := d.member(0, "a"); string(n.text) != "\"\\/\b\f\n\r\té😀" {
		t.Errorf("a is %q", n.text)
	}
	for name, want := range map[string]integer{"k": of(math.MinInt64), "last": of(math.MaxInt64), "n": {}, "e": {}, "o": {}, "a": {}, "none": {}} {
		n, _ := d.member(0, name)
		if got, err := n.integer(); err != nil || got != want {
			t.Errorf("%s is %v, %v; want %v", name, got, err, want)
		}
	}
	for _, name := range []string{"d", "t"} { // a fraction and a bool where an integer belongs
		n, _ := d.member(0, name)
		if _, err := n.integer(); err == nil {
			t.Errorf("%s is taken for an integer", name)
		}
	}
}

func TestMoreMembersThanAreComparedOneByOne(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"k0":0`)
	for i := range 200 {
		b.WriteString(`,"m` + strings.Repeat("x", i) + `":1`)
	}
	var d document
	if err := d.parse([]byte(b.String() + `}`)); err != nil {
		t.Error(err)
	}
	for _, again := range []string{"k0", "m", "mxxxxx", "m" + strings.Repeat("x", 199)} {
		if err := d.parse([]byte(b.String() + `,"` + again + `":1}`)); err == nil {
			t.Errorf("%.10s twice is taken", again)
		}
	}
}

func TestDecimalsAreScaledExactly(t *testing.T) {
	for _, c := range []struct {
		digits string
		places int
		want   int64
		exact  bool
		fits   bool
	}{
		{"8.333291", 6, 8333291, true, true},
		{"8.3332910", 6, 8333291, true, true},
		{"8.3332911", 6, 8333291, false, true},
		{"16", 6, 16000000, true, true},
		{"-0.5", 3, -500, true, true},
		{"-0", 0, 0, true, true},
		{"0.001", 2, 0, false, true},
		{"83332910e-7", 6, 8333291, true, true},
		{"1E2", 0, 100, true, true},
		{"1.5e1", 0, 15, true, true},
		{"1.25e1", 0, 12, false, true},
		{"9223372036854775807", 0, math.MaxInt64, true, true},
		{"-9223372036854775808", 0, math.MinInt64, true, true},
		{"9223372036854775808", 0, 0, false, false},
		{"9223372036854.775807", 6, math.MaxInt64, true, true},
		{"9223372036854.775808", 6, 0, false, false},
		{"1e99999999999999999999", 0, 0, false, false},
		{"0e99999999999999999999", 0, 0, true, true},
		{"1e-99999999999999999999", 0, 0, false, true},
	} {
		v, exact, fits := scaled([]byte(c.digits), c.places)
		if fits != c.fits || fits && (v != c.want || exact != c.exact) {
			t.Errorf("%s at %d places: %d, exact %t, fits %t", c.digits, c.places, v, exact, fits)
		}
	}
}

// FuzzLine: whatever is taken is JSON for the standard library too; what the product's reader takes, the oracle takes.
func FuzzLine(f *testing.F) {
	for line := range strings.Lines(string(smallSession())) {
		f.Add([]byte(strings.TrimSuffix(line, "\n")))
	}
	for _, line := range []string{`{"seq":1,"hostNs":2,"type":"source.gap","reason":"\ud83d\ude00","rows":1e0}`, `{"a":0e99,"b":-0.0,"c":[[],{}]}`, `{"\u0000":"\\"}`} {
		f.Add([]byte(line))
	}
	var p ledger.Parser
	f.Fuzz(func(t *testing.T, line []byte) {
		var d document
		err := d.parse(line)
		if err == nil && (!json.Valid(line) || !utf8.Valid(line)) {
			t.Fatalf("%q is taken and is no JSON", line)
		}
		var e event
		if err == nil {
			err = d.read(&e)
		}
		var product ledger.Event
		if productErr := p.Parse(line, &product); productErr == nil && err != nil {
			t.Fatalf("%q: the product reads it, and the oracle says %v", line, err)
		} else if productErr == nil && (product.Seq != e.seq.n || string(product.Type()) != e.kind) {
			t.Fatalf("%q: %d %s and %d %s", line, product.Seq, product.Type(), e.seq.n, e.kind)
		}
	})
}

// FuzzLog: no log, however broken, ends in a panic, and each line of it is counted.
func FuzzLog(f *testing.F) {
	lines := strings.SplitAfter(string(smallSession()), "\n")
	for i := range len(lines) - 3 { // a few lines at a time, so that fuzzing goes fast
		f.Add([]byte(strings.Join(lines[i:i+3], "")))
	}
	f.Add([]byte("\n\n{}\n"))
	f.Fuzz(func(t *testing.T, log []byte) {
		r, err := newOracle().read(strings.NewReader(string(log)))
		if err != nil {
			if len(log) > 0 {
				t.Fatal(err)
			}
			return
		}
		lines := int64(strings.Count(string(log), "\n"))
		if log[len(log)-1] != '\n' {
			lines++
		}
		if r.Lines != lines || r.Rejected > lines {
			t.Fatalf("%d lines, %d rejected; want %d", r.Lines, r.Rejected, lines)
		}
	})
}
