package tap

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// frameColumns are what a reader of frames asks for.
var frameColumns = []string{"time", "event-type", "identifier", "name", "format-string", "subsystem", "category", "process", "message"}

const (
	colTime = iota
	colEventType
	colIdentifier
	colName
	colFormatString
	colSubsystem
	colCategory
	colProcess
	colMessage
)

// frames reads FrameLifetime rows as an adapter has to: it recognises repeated strings by their IDs, and takes every number out of the message.
type frames struct {
	rows, other, unreadable int64
	gaps                    int64
	sum                     uint64

	// IDs of strings that were read before and found to be what is asked for.
	name, category, subsystem, narrative, number, hex uint64
}

func (f *frames) is(v Value, known *uint64, texts ...string) bool {
	if id := v.ID(); id == *known && id != 0 {
		return true
	}
	for _, text := range texts {
		if string(v.Text()) == text {
			*known = v.ID()
			return true
		}
	}
	return false
}

func (f *frames) Gap(Gap) { f.gaps++ }

func (f *frames) Row(r *Row) {
	if !f.is(r.Value(colName), &f.name, "FrameLifetime") ||
		!f.is(r.Value(colSubsystem), &f.subsystem, "com.apple.coreanimation") ||
		!f.is(r.Value(colCategory), &f.category, "IOMFBServer", "IOMFBServer.Stalls") {
		f.other++
		return
	}
	at, ok1 := r.Value(colTime).Uint64()
	swap, ok2 := r.Value(colIdentifier).Uint64()
	pid, ok3 := r.Value(colProcess).At(0).Uint64()
	kind, ok4 := r.Value(colEventType).Uint64() // "Begin" and "End" as numbers
	if !ok1 || !ok2 || !ok3 || !ok4 || r.Value(colFormatString).ID() == 0 {
		f.unreadable++
		return
	}
	f.rows++
	f.sum += at + swap + pid + kind
	message := r.Value(colMessage)
	for i := range message.Len() {
		pair := message.At(i)
		kind := pair.At(0)
		switch kind.ID() {
		case f.narrative:
			continue
		case f.number, f.hex:
		default:
			if f.is(kind, &f.narrative, "narrative-text") {
				continue
			}
			if !f.is(kind, &f.number, "uint64") && !f.is(kind, &f.hex, "uint64-hex-lowercase") {
				f.unreadable++
			}
		}
		number, ok := pair.At(1).Uint64()
		if !ok {
			f.unreadable++
		}
		f.sum += number
	}
}

func dataFile(t testing.TB, name string) []byte {
	root := os.Getenv("FRAMEBRIDGE_DATA")
	if root == "" {
		root = filepath.Join("..", "..", "..", "shared", "data")
	}
	content, err := os.ReadFile(filepath.Join(root, name))
	if errors.Is(err, os.ErrNotExist) {
		t.Skipf("REAL DATA MISSING: %v; set FRAMEBRIDGE_DATA to the directory that holds it. Nothing was checked here.", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// wirePayloads are the payloads of a wire file.
func wirePayloads(t testing.TB, name string) (payloads [][]byte) {
	for r := NewWireReader(bytes.NewReader(dataFile(t, name))); ; {
		record, err := r.Next()
		if err == io.EOF {
			return payloads
		}
		if err != nil {
			t.Fatal(err)
		}
		payloads = append(payloads, bytes.Clone(record.Payload))
	}
}

// steadyRows cuts the iOS 18 stream into its first three frames and the 9 frames after them. Those find the stack as they leave
// it, so they can be repeated without end.
func steadyRows(t testing.TB) (start, repeat []byte) {
	all := bytes.Join(wirePayloads(t, "tap/ios18.wire"), nil)
	ends := 0
	for i := 0; i < len(all); i += 2 {
		if all[i+1] == opRowEnd {
			if ends++; ends == 6 {
				return all[:i+4], all[i+4:] // with the word that drops the third frame's arguments
			}
		}
	}
	t.Fatal("the iOS 18 stream has fewer than 6 rows")
	return nil, nil
}

var sink uint16

func xorWords(p []byte) {
	var x uint16
	for ; len(p) >= 2; p = p[2:] {
		x ^= binary.LittleEndian.Uint16(p)
	}
	sink = x
}

// cost measures a row of FrameLifetime against a bare walk over the words of the same payloads.
func cost(t testing.TB, tries int) (decode, bare time.Duration, rows int64) {
	start, repeat := steadyRows(t)
	payload := bytes.Repeat(repeat, 50) // short enough that some of the tries are disturbed by nobody
	dec, f := NewDecoder(Want{"os-signpost": frameColumns}), &frames{}
	dec.Decode(start, f)
	decode, bare = time.Hour, time.Hour
	for range tries {
		before := f.rows
		begin := time.Now()
		dec.Decode(payload, f)
		decode = min(decode, time.Since(begin))
		rows = f.rows - before
		begin = time.Now()
		xorWords(payload)
		bare = min(bare, time.Since(begin))
	}
	if f.gaps+f.other+f.unreadable != 0 || rows != 50*18 {
		t.Fatalf("%d rows, %d other rows, %d unreadable, %d gaps; want %d rows and nothing else", rows, f.other, f.unreadable, f.gaps, 50*18)
	}
	return decode, bare, rows
}

func BenchmarkFrameLifetimeRows(b *testing.B) {
	for b.Loop() {
		decode, bare, rows := cost(b, 500)
		b.ReportMetric(float64(decode.Nanoseconds())/float64(rows), "ns/row")
		b.ReportMetric(float64(rows)/decode.Seconds(), "rows/s")
		b.ReportMetric(float64(decode)/float64(bare), "x-xor")
	}
}

// The aim is 8 times a bare walk. Twice that, in the best of many tries, is not noise.
func TestDecodingCostsAFewTimesABareWalkOverTheWords(t *testing.T) {
	decode, bare, rows := cost(t, 500)
	ratio := float64(decode) / float64(bare)
	t.Logf("%.0f ns a row, %.0f rows a second, %.1f times a bare walk", float64(decode)/float64(rows), float64(rows)/decode.Seconds(), ratio)
	if ratio > 16 {
		t.Errorf("a row costs %.1f times a bare walk over its words, at most 8 are aimed at", ratio)
	}
}

func TestRowsAllocateNothing(t *testing.T) {
	start, repeat := steadyRows(t)
	dec, f := NewDecoder(Want{"os-signpost": frameColumns}), &frames{}
	dec.Decode(start, f)
	torn := bytes.Repeat(repeat, 2)
	if n := testing.AllocsPerRun(100, func() {
		dec.Decode(torn[:1001], f)
		dec.Decode(torn[1001:], f)
	}); n != 0 || f.gaps != 0 {
		t.Errorf("%v allocations in %d rows, %d gaps", n, 2*18, f.gaps)
	}
}
