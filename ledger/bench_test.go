package ledger

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"testing"
)

// BenchmarkAppend is a record's way into a session's memory; what the disk costs is Sync's.
func BenchmarkAppend(b *testing.B) {
	s, err := Create(filepath.Join(b.TempDir(), "s"), 1, testStart(), false)
	if err != nil {
		b.Fatal(err)
	}
	e := Event{Value: testRecord(1, 1)}
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Append(&e); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := s.Seal(9, StateComplete, "bench", nil, false); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkRead is one record read back; an hour at 120 Hz has 432,000.
func BenchmarkRead(b *testing.B) {
	const records = 1000
	var log []byte
	for i := range int64(records) {
		log = AppendLine(log, &Event{Seq: i + 1, Value: testRecord(i, i)})
	}
	b.SetBytes(int64(len(log) / records))
	b.ReportAllocs()
	var r *Reader
	var e Event
	for n := 0; b.Loop(); n++ {
		if n%records == 0 {
			r = NewReader(bytes.NewReader(log))
		}
		if err := r.Next(&e); err != nil && !errors.Is(err, io.EOF) {
			b.Fatal(err)
		}
	}
}

// BenchmarkAppendEntry is a durable entry: three syncs.
func BenchmarkAppendEntry(b *testing.B) {
	w, _, err := OpenWriter(filepath.Join(b.TempDir(), "ledger"), testOptions())
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := w.Append(noteEntry("bench")); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
}
