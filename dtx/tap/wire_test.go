package tap

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// Two payloads and the mark of a new connection between them, byte by byte as raw-record.md has it.
const wireExample = "\x03\x00\x00\x00" + "\x2a\x00\x00\x00\x00\x00\x00\x00" + "abc" +
	"\x00\x00\x00\x00" + "\x2b\x00\x00\x00\x00\x00\x00\x00" +
	"\x01\x00\x00\x00" + "\xff\xff\xff\xff\xff\xff\xff\xff" + "d"

var wireRecords = []WireRecord{{42, []byte("abc")}, {43, nil}, {-1, []byte("d")}}

func readWire(r io.Reader) (records []WireRecord, offset int64, err error) {
	w := NewWireReader(r)
	for {
		record, err := w.Next()
		if err != nil {
			return records, w.Offset(), err
		}
		record.Payload = bytes.Clone(record.Payload)
		records = append(records, record)
	}
}

func sameRecord(a, b WireRecord) bool {
	return a.HostNs == b.HostNs && bytes.Equal(a.Payload, b.Payload)
}

func TestWireRecordsAreReadAsTheyWereWritten(t *testing.T) {
	var file []byte
	for _, r := range wireRecords {
		var err error
		if file, err = AppendWire(file, r); err != nil {
			t.Fatal(err)
		}
	}
	if string(file) != wireExample {
		t.Errorf("written: %q", file)
	}
	for _, r := range []io.Reader{strings.NewReader(wireExample), iotest.OneByteReader(strings.NewReader(wireExample))} {
		records, offset, err := readWire(r)
		if err != io.EOF || offset != int64(len(wireExample)) || !slices.EqualFunc(records, wireRecords, sameRecord) {
			t.Errorf("read: %v, %d, %v", records, offset, err)
		}
	}
}

func TestATornWireFileYieldsItsWholeRecordsAndThePlace(t *testing.T) {
	starts := []int{0, 15, 27, 40}
	for end := range len(wireExample) {
		whole := 0
		for whole+1 < len(starts) && starts[whole+1] <= end {
			whole++
		}
		records, offset, err := readWire(strings.NewReader(wireExample[:end]))
		if !slices.EqualFunc(records, wireRecords[:whole], sameRecord) || offset != int64(starts[whole]) {
			t.Errorf("cut at %d: %v, %d", end, records, offset)
		}
		if isTorn := end != starts[whole]; errors.Is(err, ErrTornWire) != isTorn || (err == io.EOF) == isTorn {
			t.Errorf("cut at %d: %v", end, err)
		}
	}
	_, _, err := readWire(strings.NewReader(wireExample[:14]))
	if want := "wire file is torn: the record at byte 0 has 15 bytes, and 14 of them are there; what comes before it is whole"; err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestALengthThatLiesCostsNoMemory(t *testing.T) {
	file := "\x00\x00\x00\x08" + "\x00\x00\x00\x00\x00\x00\x00\x00" + "0123456789" // 128 MiB
	allocated := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			if _, _, err := readWire(strings.NewReader(file)); !errors.Is(err, ErrTornWire) {
				b.Fatal(err)
			}
		}
	}).AllocedBytesPerOp()
	if allocated > 1<<20 {
		t.Errorf("%d bytes were allocated for a record of 22", allocated)
	}
	_, _, err := readWire(strings.NewReader(wireExample + "\x01\x00\x00\x08" + "12345678"))
	want := "wire record at byte 40: its length is 134217729, at most 134217728 is possible; " +
		"this is no wire file, or it is damaged from there on"
	if errors.Is(err, ErrTornWire) || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if _, err := AppendWire(nil, WireRecord{Payload: make([]byte, MaxPayloadBytes+1)}); err == nil {
		t.Error("a payload too long to be read was written")
	}
}

func TestAReadErrorIsNotTakenForATornFile(t *testing.T) {
	broken := errors.New("disk on fire")
	for _, part := range []string{"", wireExample[:5], wireExample[:14]} {
		_, _, err := readWire(io.MultiReader(strings.NewReader(part), iotest.ErrReader(broken)))
		if !errors.Is(err, broken) || errors.Is(err, ErrTornWire) || !strings.HasPrefix(err.Error(), "wire record at byte 0: ") {
			t.Errorf("after %d bytes: %v", len(part), err)
		}
	}
}

func TestRealWireFilesAreRead(t *testing.T) {
	records, _, err := readWire(bytes.NewReader(dataFile(t, "tap/ios18.wire")))
	if err != io.EOF || len(records) != 4 {
		t.Fatalf("%d records, %v", len(records), err)
	}
	for i, want := range []struct {
		hostNs int64
		length int
	}{{91000024999875, 2639}, {91000141665958, 986}, {91000183332416, 989}, {91000208332291, 996}} {
		if records[i].HostNs != want.hostNs || len(records[i].Payload) != want.length {
			t.Errorf("record %d: %d ns, %d bytes", i, records[i].HostNs, len(records[i].Payload))
		}
	}
}

func FuzzWireReader(f *testing.F) {
	f.Add([]byte(wireExample))
	f.Add([]byte(wireExample[:20]))
	f.Add([]byte("\xff\xff\xff\xff12345678"))
	f.Fuzz(func(t *testing.T, file []byte) {
		records, offset, err := readWire(bytes.NewReader(file))
		if err == nil || (err == io.EOF) != (offset == int64(len(file))) {
			t.Fatalf("%d of %d bytes: %v", offset, len(file), err)
		}
		var again []byte
		for _, r := range records {
			again, _ = AppendWire(again, r)
		}
		if !bytes.Equal(again, file[:offset]) {
			t.Fatalf("%q was read as %v", file, records)
		}
	})
}
