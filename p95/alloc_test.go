package p95

import "testing"

func TestNothingIsAllocatedPerRecordPerPublicationOrPerLine(t *testing.T) {
	s := newBenchStream(true, benchFrames(1200, benchPatterns[2].ticks))
	var out Receipt
	line := make([]byte, 0, 4096)
	for range 1200 {
		s.advance()
		s.meter.Record(&s.record)
	}
	for name, work := range map[string]func(){
		"a record": func() {
			s.advance()
			s.meter.Record(&s.record)
		},
		"a publication": func() {
			s.hostNs++
			s.meter.Publish(s.hostNs, Int{}, &out)
		},
		"a clear": func() {
			s.meter.Gap(Of(s.hostNs))
			s.advance()
			s.record.Policy = ""
			s.meter.Record(&s.record)
			s.record.Policy = "p95-window-segment.v2"
		},
		"an encoded receipt": func() { line = out.AppendJSON(line[:0], 1) },
	} {
		if n := testing.AllocsPerRun(2000, work); n != 0 {
			t.Errorf("%s: %v allocations, want none", name, n)
		}
	}
}

// Summing everything anew is for disorder alone: when that is out of the ring, sums follow again.
func TestFiguresForgetDisorder(t *testing.T) {
	var f figures
	f.reset()
	add := func(presentationNs, previousNs int64) {
		f.add(&frame{presentationNs: presentationNs, previousNs: previousNs})
	}
	add(100, 90)
	add(99, 91)
	add(110, 80)
	if f.descents != 1 || f.crossings != 1 {
		t.Errorf("got %d descents and %d crossings, want 1 and 1", f.descents, f.crossings)
	}
	for i := range int64(maxFrames) {
		add(200+i, 190+i)
	}
	f.sumAll()
	add(9000, 8990)
	if f.descents != 0 || f.crossings != 0 || f.stale {
		t.Errorf("got %d descents, %d crossings, stale %t, want none", f.descents, f.crossings, f.stale)
	}
}
