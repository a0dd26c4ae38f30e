package main

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// numbers are the places of a line's numbers, by path.
type numberAt struct {
	path  string // such as display.frame-lifetime.raw payload.endMach
	begin int    // in the log
	end   int
}

func numbersOf(t *testing.T, text []byte) (all []numberAt) {
	t.Helper()
	at := 0
	for line := range bytes.Lines(text) {
		var d document
		if err := d.parse(bytes.TrimSuffix(line, []byte("\n"))); err != nil {
			t.Fatal(err)
		}
		word, _ := d.member(0, "type")
		from := 0
		var walk func(i int32, path string)
		walk = func(i int32, path string) {
			for c := d.nodes[i].first; c != 0; c = d.nodes[c].next {
				n := d.nodes[c]
				name := path + "." + string(n.key)
				if n.key == nil {
					name = path + "[]"
				}
				if n.kind == number {
					from += bytes.Index(line[from:], n.text) // numbers stand in the order of the walk
					// A digit within a key or a string before it would be found first: step over what is no number.
					for !bytes.ContainsAny(line[from-1:from], ":[,") {
						from++
						from += bytes.Index(line[from:], n.text)
					}
					all = append(all, numberAt{string(word.text) + " " + strings.TrimPrefix(name, "."), at + from, at + from + len(n.text)})
					from += len(n.text)
				}
				walk(c, name)
			}
		}
		walk(0, "")
		at += len(line)
	}
	return all
}

func equalOrFatal(t *testing.T, text []byte) *report {
	t.Helper()
	r, err := newOracle().read(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if !r.Equal {
		t.Fatalf("%d mismatches: %+v", r.Total, r.Mismatches)
	}
	return r
}

// flips calls try with the log's text with every digit of n changed to every other digit.
func flips(text []byte, n numberAt, try func()) {
	for i := n.begin; i < n.end; i++ {
		was := text[i]
		for d := byte('0'); d <= '9' && was >= '0'; d++ {
			if text[i] = d; d != was {
				try()
			}
		}
		text[i] = was
	}
}

// recomputed is what the contract promises: no flipped digit of these goes unnoticed, without any hash.
func recomputed(record *record, n numberAt) bool {
	kind, field, _ := strings.Cut(n.path, " ")
	switch {
	case kind == typePublication:
		return field != "hostNs" // N is no figure of the receipt, though with a window it shows
	case kind != typeRecord:
		return strings.HasPrefix(field, "counts.")
	}
	switch field {
	case "payload.endMach", "payload.presentationNs", "payload.frameTimeMs", "payload.lifetimeMs", "payload.refreshMultiple",
		"payload.droppedBefore", "payload.predecessorSkewMach":
		return true
	case "payload.previousMach":
		return string(record.quality) == valid
	}
	return false
}

// recordAround reads the record in whose line a number stands.
func recordAround(text []byte, n numberAt) *record {
	begin := bytes.LastIndexByte(text[:n.begin], '\n') + 1
	end := n.begin + bytes.IndexByte(text[n.begin:], '\n')
	var d document
	var e event
	if d.parse(bytes.Clone(text[begin:end])) != nil || d.read(&e) != nil || e.kind != typeRecord {
		return &record{}
	}
	return &e.record
}

func TestEveryFlippedDigitIsFoundWhereTheOracleSaysSo(t *testing.T) {
	text := smallSession()
	equalOrFatal(t, text)
	numbers := numbersOf(t, text)
	if raceEnabled { // the whole takes half a million readings of a log
		numbers = slices.DeleteFunc(numbers, func(n numberAt) bool { return n.begin%30 != 0 })
	}
	work := make(chan numberAt)
	var mu sync.Mutex
	missed := map[string]int{}
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			text := bytes.Clone(text)
			for n := range work {
				record, line := recordAround(text, n), int64(1+bytes.Count(text[:n.begin], []byte("\n")))
				flips(text, n, func() {
					r, err := newOracle().read(bytes.NewReader(text))
					switch {
					case err != nil:
						t.Errorf("%s: %v", n.path, err)
					case r.Equal && recomputed(record, n):
						t.Errorf("line %d, %s = %s is not found", line, n.path, text[n.begin:n.end])
					case r.Equal:
						mu.Lock()
						missed[n.path]++
						mu.Unlock()
					case recomputed(record, n) && !names(r, line, n.path):
						t.Errorf("line %d, %s = %s: named were %+v", line, n.path, text[n.begin:n.end], r.Mismatches)
					}
				})
			}
		})
	}
	for _, n := range numbers {
		work <- n
	}
	close(work)
	all.Wait()

	// What is missed is what the oracle says that it takes as given: no more, and, where every digit was tried, no less.
	var said, found []string
	for _, g := range takenAsGiven {
		said = append(said, g.Fields)
	}
	for path := range missed {
		if rest, _, ok := strings.Cut(path, " extra."); ok {
			path = rest + " extra"
		}
		if !slices.Contains(found, path) {
			found = append(found, path)
		}
	}
	for _, path := range found {
		if !slices.Contains(said, path) {
			t.Errorf("a flipped digit of %s is not found, and that is not said", path)
		}
	}
	for _, path := range said {
		if !raceEnabled && !slices.Contains(found, path) {
			t.Errorf("every flipped digit of %s is found: it need not be taken as given", path)
		}
	}
}

// names reports whether one of the mismatches names the line and the field. A native integer is named by what it gives, or where it is no
// number any more.
func names(r *report, line int64, path string) bool {
	_, field, _ := strings.Cut(path, " ")
	return slices.ContainsFunc(r.Mismatches, func(m mismatch) bool {
		if m.Line != line {
			return false
		}
		switch field {
		case "payload.endMach":
			return m.Field == "payload.presentationNs" || m.Field == field
		case "payload.previousMach":
			return m.Field == "payload.frameTimeMs" || m.Field == field
		}
		return m.Field == field
	})
}

func TestFlippedDigitsOfALongSessionAreFound(t *testing.T) {
	text := longSession()
	if r := equalOrFatal(t, text); r.Records != 2400 || r.Publications < 20 {
		t.Fatalf("%d records, %d publications", r.Records, r.Publications)
	}
	numbers := numbersOf(t, text)
	tries := 200
	if raceEnabled {
		tries = 12
	}
	rng := rand.New(rand.NewPCG(9, 5))
	for tries > 0 {
		n := numbers[rng.IntN(len(numbers))]
		if !recomputed(recordAround(text, n), n) {
			continue
		}
		tries--
		i := n.begin + rng.IntN(n.end-n.begin)
		was := text[i]
		if was < '0' {
			continue
		}
		text[i] = '0' + (was-'0'+byte(1+rng.IntN(9)))%10
		if r, err := newOracle().read(bytes.NewReader(text)); err != nil || r.Equal {
			t.Errorf("%s with %c for %c at byte %d: %v, not found", n.path, text[i], was, i, err)
		}
		text[i] = was
	}
}
