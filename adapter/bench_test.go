package adapter

import (
	"testing"

	"github.com/framebridge/framebridge/dtx/tap"
)

const benchFrames = 12_000

// benchPayloads are 100 s of a 120 Hz display in payloads of 12 frames, as it sends them ten times a second.
func benchPayloads(update bool) [][]byte {
	e := newEncoder()
	var payloads [][]byte
	for i := range benchFrames {
		if update {
			e.row(steadyUpdate(i).row())
		} else {
			e.row(steadyFrame(i).beginRow())
			e.row(steadyFrame(i).endRow())
		}
		if i%12 == 11 {
			payloads = append(payloads, e.take())
		}
	}
	return payloads
}

// lineSink encodes every record, as a recording does.
type lineSink struct {
	records int
	encode  bool
	line    []byte
}

func (s *lineSink) Record(r *Record) {
	s.records++
	if s.encode {
		s.line = r.AppendJSON(s.line[:0], int64(s.records))
	}
}
func (s *lineSink) Contributors(*Contributors) {}
func (s *lineSink) Gap(tap.Gap)                {}

func benchmarkPipeline(b *testing.B, update, encode bool) {
	payloads := benchPayloads(update)
	a, s := newTestAdapter(b), &lineSink{encode: encode, line: make([]byte, 0, RecordJSONBytes)}
	now, generation := int64(0), int64(0)
	round := func() {
		// A new generation for each round (and so one allocation in 12,000 records): the same frames are judged as new ones.
		generation++
		bind := testBinding
		bind.ReconnectGeneration = generation
		a.Bind(bind)
		for _, p := range payloads {
			now += 100_000_000
			a.Message(now, p, s)
		}
	}
	round()
	s.records = 0
	b.ReportAllocs()
	for b.Loop() {
		round()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(s.records), "ns/record")
}

func BenchmarkTapBytesToRecordLifetime(b *testing.B) { benchmarkPipeline(b, false, false) }
func BenchmarkTapBytesToRecordUpdate(b *testing.B)   { benchmarkPipeline(b, true, false) }
func BenchmarkTapBytesToLineLifetime(b *testing.B)   { benchmarkPipeline(b, false, true) }
func BenchmarkTapBytesToLineUpdate(b *testing.B)     { benchmarkPipeline(b, true, true) }

func benchRecord(b *testing.B) Record {
	var c collector
	newTestAdapter(b).Message(1, payload(steadyFrame(0).beginRow(), steadyFrame(0).endRow(), steadyFrame(1).beginRow(), steadyFrame(1).endRow()), &c)
	if len(c.records) != 2 || c.records[1].Quality != QualityValid {
		b.Fatalf("records %+v", c.records)
	}
	return c.records[1]
}

func BenchmarkRecordToLine(b *testing.B) {
	r := benchRecord(b)
	line := make([]byte, 0, RecordJSONBytes)
	b.ReportAllocs()
	for b.Loop() {
		line = r.AppendJSON(line[:0], 812)
	}
	b.SetBytes(int64(len(line)))
}

func BenchmarkLineToRecord(b *testing.B) {
	r := benchRecord(b)
	line := r.AppendJSON(nil, 812)
	var p RecordParser
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Parse(line, &r); err != nil {
			b.Fatal(err)
		}
	}
}
