package adapter

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/framebridge/framebridge/dtx/tap"
)

// dataFile opens a file of the real data that lives beside the repository.
func dataFile(t testing.TB, name string) *os.File {
	t.Helper()
	dir := os.Getenv("FRAMEBRIDGE_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "shared", "data")
	}
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		t.Skipf("NOT TESTED: real data is missing (%v); put it at ../shared/data beside the repository, or set FRAMEBRIDGE_DATA", err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// collector keeps copies of everything that an Adapter hands out.
type collector struct {
	records      []Record
	contributors []Contributors
	gaps         []tap.Gap
	order        string // r, c and g, as they came
}

func (c *collector) Record(r *Record) {
	kept := *r
	kept.PresentFields = append([]string(nil), r.PresentFields...)
	c.records = append(c.records, kept)
	c.order += "r"
}

func (c *collector) Contributors(told *Contributors) {
	kept := *told
	kept.Processes = append([]Contributor(nil), told.Processes...)
	c.contributors = append(c.contributors, kept)
	c.order += "c"
}

func (c *collector) Gap(g tap.Gap) {
	c.gaps = append(c.gaps, g)
	c.order += "g"
}

// testBinding is what the tests' records belong to.
var testBinding = Binding{Target: Target{"com.example.app", 431, 1}, SourceEpoch: 1, PrimaryDisplayID: 1, Timebase: Timebase{125, 3}}

func newTestAdapter(t testing.TB) *Adapter {
	t.Helper()
	a := New(SourceGoIOS, "5f0c7a52-0000-4000-8000-000000000001", PolicyP95)
	if err := a.Bind(testBinding); err != nil {
		t.Fatal(err)
	}
	return a
}

// decodeWire feeds a whole wire file to a.
func decodeWire(t testing.TB, a *Adapter, file io.Reader, c *collector) {
	t.Helper()
	r := tap.NewWireReader(file)
	for {
		rec, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		a.Message(rec.HostNs, rec.Payload, c)
	}
	a.EndConnection(c)
}

// toldFrame is a line of the *.frames.jsonl files.
type toldFrame struct {
	Name, Category                   string
	SwapID                           int64 `json:"swapId"`
	FrameSeed                        int64
	DisplayID                        int64 `json:"displayId"`
	SurfaceID                        int64 `json:"surfaceId"`
	BeginMach, EndMach, PreviousMach int64
	RefreshIntervalMach              int64
	BufferCount, SkipRequest         int64
}

func TestRealStreamsDecodeToTheFramesToldBesideThem(t *testing.T) {
	for _, c := range []struct {
		name      string
		subsystem string
		slow      int // frames in the .Stalls category
	}{
		{"ios15", "com.apple.coreanimation", 5},
		{"macos15", "com.apple.coreanimation", 5},
		{"ios18", "com.apple.coreanimation", 5},
		{"ios26", "com.apple.coreanimation", 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			var want []toldFrame
			lines := bufio.NewScanner(dataFile(t, "tap/"+c.name+".frames.jsonl"))
			for lines.Scan() {
				var f toldFrame
				if err := json.Unmarshal(lines.Bytes(), &f); err != nil {
					t.Fatal(err)
				}
				want = append(want, f)
			}
			var got collector
			a := newTestAdapter(t)
			decodeWire(t, a, dataFile(t, "tap/"+c.name+".wire"), &got)

			if len(want) != 12 || len(got.records) != 12 || len(got.gaps) != 0 {
				t.Fatalf("%d frames told, %d records, gaps %v; want 12, 12 and none", len(want), len(got.records), got.gaps)
			}
			for i, r := range got.records {
				told := toldFrame{r.Name, r.Category, r.SwapID, r.FrameSeed, r.DisplayID, r.SurfaceID, r.BeginMach, r.EndMach, r.PreviousMach,
					r.RefreshIntervalMach, r.BufferCount, r.SkipRequest}
				if told != want[i] {
					t.Errorf("frame %d:\n got %+v\nwant %+v", i, told, want[i])
				}
				wantQuality := QualityValid
				if i == 0 {
					wantQuality = QualityNoPredecessor
				}
				if r.Quality != wantQuality || r.Subsystem != c.subsystem || r.RawSequence != int64(i+1) || i > 0 && r.HostNs <= got.records[i-1].HostNs {
					t.Errorf("frame %d: %v (%s), subsystem %s, rawSequence %d, hostNs %d", i, r.Quality, r.QualityReason, r.Subsystem, r.RawSequence, r.HostNs)
				}
			}
		})
	}
}
