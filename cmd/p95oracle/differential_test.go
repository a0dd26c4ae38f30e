package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/framebridge/framebridge/internal/replay"
	"github.com/framebridge/framebridge/ledger"
	"github.com/framebridge/framebridge/p95"
)

// differentialSessions is how many random sessions the oracle and the window are compared on. Under the race detector, where each
// takes ten times as long and nothing runs concurrently that does not otherwise, fewer will do.
func differentialSessions() uint64 {
	switch {
	case os.Getenv("FRAMEBRIDGE_LONG") != "":
		return 200_000
	case raceEnabled:
		return 400
	}
	return 10_000
}

// foundDifference are seeds on which the oracle and the window once differed. Another generator makes other sessions of them: what was
// found before the generator changed stands in TestDifferencesThatWereFound.
var foundDifference = []uint64{}

// What the comparison has found so far, each in a small session.
func TestDifferencesThatWereFound(t *testing.T) {
	for name, set := range map[string]map[string]string{
		// The ends of a window at the end of int64 are null. The oracle's null was not always the same.
		"a window outside int64": {"endMach": "221360928884514619", "previousMach": "221360928884314619", "presentationNs": "9223372036854775791",
			"frameTimeMs": "8.333333", "refreshIntervalMach": "200000", "refreshMultiple": "1"},
		// The window took a lifetime with too many digits for one of the figures of check 9.
		"a lifetime that is no figure of the window": {"lifetimeMs": "9223372036854775807"},
	} {
		lines := bytes.SplitAfter(smallSession(), []byte("\n"))
		last := -1 // the last record before the first publication with a value
		for i, l := range lines {
			if bytes.Contains(l, []byte(`"quality":"valid","lastPresentationNs"`)) {
				break
			}
			if bytes.Contains(l, []byte(typeRecord)) {
				last = i
			}
		}
		for field, value := range set {
			at := regexp.MustCompile(`"` + field + `":[^,]*`)
			lines[last] = at.ReplaceAll(lines[last], fmt.Appendf(nil, `"%s":%s`, field, value))
		}
		text, _ := republish(t, bytes.Join(lines, nil))
		if text == nil || bytes.Equal(text, smallSession()) {
			t.Fatalf("%s: nothing was changed", name)
		}
		r, err := newOracle().read(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range r.Mismatches {
			if m.Type == typePublication {
				t.Errorf("%s: %+v", name, m)
			}
		}
	}
}

func TestOracleAndWindowAgreeOnRandomSessions(t *testing.T) {
	for _, seed := range foundDifference {
		compareOn(t, seed)
	}
	var next atomic.Uint64
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for seed := next.Add(1); seed <= differentialSessions() && !t.Failed(); seed = next.Add(1) {
				compareOn(t, seed)
			}
		})
	}
	all.Wait()
}

// compareOn records a random session. Every other one is left as it is, and has to be right in every respect; the rest is tampered with,
// and the window's publications of what came out have to be the oracle's.
func compareOn(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 4))
	text := recordRandomSession(seed, 10+rng.IntN(40))
	tampered := seed%2 == 1
	faults := int64(0)
	if tampered {
		text = tamper(rng, text)
		text, faults = republish(t, text)
	}
	o := newOracle()
	o.listed = 1 << 20
	report, err := o.read(bytes.NewReader(text))
	if err != nil {
		t.Errorf("seed %d: %v", seed, err)
		return
	}
	if !tampered && !report.Equal {
		keep(t, seed, text, report.Mismatches)
	}
	var differ []mismatch
	for _, m := range report.Mismatches {
		switch {
		case m.Type != typePublication, m.Field == "seq", m.Field == "type", m.Field == "hostNs", m.Field == "dueNs": // of the log
		default:
			differ = append(differ, m)
		}
	}
	if tampered && len(differ) > 0 {
		keep(t, seed, text, differ)
	}
	if faults >= 0 && faults != report.Rejected {
		keep(t, seed, text, []mismatch{{Field: "rejected lines", Got: fmt.Sprint(report.Rejected), Want: fmt.Sprint(faults)}})
	}
}

// keep leaves a log on which they differ where a person can look at it.
func keep(t *testing.T, seed uint64, text []byte, differ []mismatch) {
	f, err := os.CreateTemp("", fmt.Sprintf("p95oracle-seed-%d-*.jsonl", seed))
	if err == nil {
		_, err = f.Write(text)
		f.Close()
	}
	t.Errorf("seed %d (%v, %v): %d differences, first %+v", seed, f.Name(), err, len(differ), differ[:min(3, len(differ))])
}

// republish puts the window's publications of a log in the place of those that are there. faults is the number of lines that the
// product's reader rejected, -1 where they were too many to tell.
func republish(t *testing.T, text []byte) (out []byte, faults int64) {
	log := &publicationLines{Reader: ledger.NewReader(bytes.NewReader(text))}
	lines := bytes.SplitAfter(text, []byte("\n"))
	result, err := replay.Run(log, replay.Options{Publication: func(seq int64, r *p95.Receipt) error {
		lines[log.line-1] = append(r.AppendJSON(nil, seq), '\n')
		return nil
	}})
	if err != nil {
		t.Errorf("replay: %v", err)
		return text, 0
	}
	if result.FaultCount > int64(len(result.Faults)) {
		return bytes.Join(lines, nil), -1
	}
	for _, f := range result.Faults {
		if le, ok := f.Err.(*ledger.LineError); ok && le.Fault != ledger.FaultHole {
			faults++
		}
	}
	return bytes.Join(lines, nil), faults
}

// publicationLines remembers the line of the last publication.
type publicationLines struct {
	*ledger.Reader
	line int64
}

func (l *publicationLines) Next(e *ledger.Event) error {
	err := l.Reader.Next(e)
	if err == nil && e.Type() == ledger.TypePublication {
		l.line = l.Line()
	}
	return err
}

// tamper changes a few places of a log.
func tamper(rng *rand.Rand, text []byte) []byte {
	lines := bytes.SplitAfter(text, []byte("\n"))
	lines = lines[:len(lines)-1]
	for range 1 + rng.IntN(4) {
		i := rng.IntN(len(lines))
		switch rng.IntN(12) {
		case 0: // lost
			lines = append(lines[:i], lines[i+1:]...)
		case 1: // told again, or told late
			j := rng.IntN(len(lines))
			lines[i] = lines[j]
		case 2:
			j := rng.IntN(len(lines))
			lines[i], lines[j] = lines[j], lines[i]
		case 3:
			lines[i] = append(bytes.Clone(lines[i][:rng.IntN(len(lines[i]))]), '\n')
		case 4: // a stretch of records, older ones, again
			j := rng.IntN(len(lines))
			k := min(len(lines), j+1+rng.IntN(12))
			lines = append(lines[:i:i], append(append([][]byte{}, lines[j:k]...), lines[i:]...)...)
			renumber(lines)
		default:
			lines[i] = tamperLine(rng, lines[i])
		}
		if len(lines) == 0 {
			return []byte("\n")
		}
	}
	return bytes.Join(lines, nil)
}

// renumber makes the lines' seq right again.
func renumber(lines [][]byte) {
	for i, l := range lines {
		if rest, ok := bytes.CutPrefix(l, []byte(`{"seq":`)); ok {
			_, rest, _ = bytes.Cut(rest, []byte(","))
			lines[i] = fmt.Appendf(nil, `{"seq":%d,%s`, i+1, rest)
		}
	}
}

// strange values for a member, by way of JSON.
var strange = []string{"null", "true", "false", `"7"`, `""`, "[]", "{}", "0", "1", "2", "-1", "1.5", "1e3", "0.0", "NaN", "9223372036854775807",
	"-9223372036854775808", "9223372036854775808", "4611686018427387904", "1e400", "00", "-", `"\ud800"`, "[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]"}

// tamperLine changes one member of a line.
func tamperLine(rng *rand.Rand, line []byte) []byte {
	var d document
	if err := d.parse(bytes.TrimSuffix(line, []byte("\n"))); err != nil {
		return line
	}
	i := int32(1 + rng.IntN(len(d.nodes)-1))
	cases := 6
	switch word, _ := d.member(0, "type"); string(word.text) {
	case typePublication:
		_, i = d.member(0, "hostNs") // nothing else is taken from it
		cases = 2
	case typeStart:
		return line // nothing is taken from it that bears on a figure
	}
	n := d.nodes[i]
	if len(n.text) == 0 || n.kind == null {
		return line
	}
	at := bytes.Index(line, n.text)
	if key := append(append([]byte(`"`), n.key...), `":`...); n.key != nil && bytes.Contains(line, key) {
		at = bytes.Index(line, key) + len(key)
		at += bytes.Index(line[at:], n.text)
	}
	end := at + len(n.text)
	if n.kind == text {
		at, end = at-1, end+1
	}
	put := func(value string) []byte {
		return append(append(bytes.Clone(line[:at]), value...), line[end:]...)
	}
	switch rng.IntN(cases) {
	case 1:
		return put(strange[rng.IntN(len(strange))])
	case 2: // twice
		return put(fmt.Sprintf(`%s,"%s":%s`, line[at:end], n.key, line[at:end]))
	case 3: // under another name
		from := bytes.LastIndexByte(line[:at], '"')
		if from <= 0 {
			return line
		}
		return append(append(bytes.Clone(line[:from]), 'X'), line[from:]...)
	case 4: // beside something new
		return put(fmt.Sprintf(`%s,"new%d":{"pid":[1.5,true,null]}`, line[at:end], rng.IntN(3)))
	default:
		if n.kind != number {
			return put(strange[rng.IntN(len(strange))])
		}
		digits := bytes.Clone(n.text)
		for range 1 + rng.IntN(2) {
			if k := rng.IntN(len(digits)); digits[k] >= '0' && digits[k] <= '9' {
				digits[k] = byte('0' + rng.IntN(10))
			}
		}
		return put(string(digits))
	}
}
