package lab27

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/framebridge/framebridge/internal/jsonline"
)

// WriteLines writes match.jsonl: what is wrong with the bundle, every pair and every difference with its place on both sides, and every
// cut. Times are mach continuous ns; line and byte are of presented.jsonl.
func (m *Match) WriteLines(w io.Writer) error {
	out := bufio.NewWriter(w)
	var b []byte
	for _, p := range m.in.Report.Problems {
		b = append(b[:0], `{"kind":"bundle-problem","problem":`...)
		b = jsonline.AppendString(b, string(p.Kind))
		b = append(b, `,"file":`...)
		b = jsonline.AppendString(b, p.File)
		b = member64(b, "line", int64(p.Line))
		b = member64(b, "byte", p.Byte)
		b = append(b, `,"detail":`...)
		b = jsonline.AppendString(b, p.Detail)
		out.Write(append(b, '}', '\n'))
	}
	for i := range m.Items {
		out.Write(m.appendItem(b[:0], &m.Items[i]))
	}
	for _, before := range m.gaps {
		b = append(b[:0], `{"kind":"session-gap"`...)
		if before > 0 {
			b = member64(b, "afterRawSequence", m.in.Frames[before-1].RawSequence)
		}
		out.Write(append(b, '}', '\n'))
	}
	for i := range m.Cuts {
		c := &m.Cuts[i]
		b = append(b[:0], `{"kind":"cut"`...)
		b = member64(b, "atNs", c.AtNs)
		b = append(append(b, `,"pass":`...), strconv.FormatBool(c.Pass)...)
		b = member64(b, "frames", int64(c.FrameCount))
		b = member64(b, "reference", int64(c.ReferenceCount))
		b = rankAndP95(b, "frame", c.FrameRank, c.FrameP95Ns)
		b = rankAndP95(b, "reference", c.ReferenceRank, c.ReferenceP95Ns)
		out.Write(append(b, '}', '\n'))
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("match.jsonl: %w", err)
	}
	return nil
}

func (m *Match) appendItem(b []byte, it *Item) []byte {
	b = append(append(append(b, `{"kind":"`...), it.Kind.String()...), '"')
	if it.Presentation >= 0 {
		b = m.presentation(b, it.Presentation)
	}
	if it.Frame >= 0 {
		b = m.frame(b, it.Frame)
	}
	switch it.Kind {
	case Paired, SurfaceMismatch, EdgeCut, EdgePair:
		b = member64(b, "differenceNs", it.DifferenceNs)
	case Ambiguous:
		b = member64(b, "candidates", int64(it.Candidates))
		if it.Frame >= 0 {
			b = member64(b, "firstN", m.in.Report.Presentations[it.First].N)
			b = member64(b, "lastN", m.in.Report.Presentations[it.Last].N)
		} else {
			b = member64(b, "firstRawSequence", m.in.Frames[it.First].RawSequence)
			b = member64(b, "lastRawSequence", m.in.Frames[it.Last].RawSequence)
		}
	}
	return append(b, '}', '\n')
}

func (m *Match) presentation(b []byte, i int) []byte {
	p := &m.in.Report.Presentations[i]
	b = member64(b, "n", p.N)
	b = append(append(append(b, `,"phase":"`...), m.in.Report.phaseName(p.Phase)...), '"') // one of the plan's, which are plain
	b = member64(b, "line", int64(p.Line))
	b = member64(b, "byte", p.Byte)
	b = member64(b, "surfaceId", p.SurfaceID)
	if p.PresentedNs == 0 {
		return append(b, `,"presentedNs":null`...)
	}
	return member64(b, "presentedNs", p.PresentedNs+m.Verdict.Clock.OffsetNs)
}

func (m *Match) frame(b []byte, i int) []byte {
	f := &m.in.Frames[i]
	b = member64(b, "rawSequence", f.RawSequence)
	b = member64(b, "frameSurfaceId", f.SurfaceID)
	ns, _ := machNs(m.in.Timebase, f.EndMach)
	return member64(b, "endNs", ns)
}

func member64(b []byte, key string, value int64) []byte {
	return strconv.AppendInt(append(append(append(b, ',', '"'), key...), '"', ':'), value, 10)
}

func rankAndP95(b []byte, side string, rank int, ns int64) []byte {
	if rank == 0 {
		return append(b, `,"`+side+`Rank":null,"`+side+`P95Ns":null`...)
	}
	return member64(member64(b, side+"Rank", int64(rank)), side+"P95Ns", ns)
}

// JSON is match.json.
func (v *Verdict) JSON() ([]byte, error) {
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return nil, fmt.Errorf("match.json: %w", err)
	}
	return append(data, '\n'), nil
}

// MaxVerdictBytes bounds a match.json; one has 3 KB.
const MaxVerdictBytes = 64 << 10

// ParseVerdict reads a match.json, for a study. What it says must follow from the figures that it holds.
func ParseVerdict(data []byte) (Verdict, error) {
	var v Verdict
	if len(data) > MaxVerdictBytes {
		return v, fmt.Errorf("match.json: %w: more than %d bytes", Bounds, MaxVerdictBytes)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		return v, fmt.Errorf("match.json: %w: %w", Schema, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return v, fmt.Errorf("match.json: %w: bytes after the object", Schema)
	}
	if v.Schema != VerdictSchema {
		return v, fmt.Errorf("match.json: %w: schema %q, want %s", Schema, v.Schema, VerdictSchema)
	}
	if v.Qualified != (len(v.Reasons) == 0) || v.Verdict != verdictWord(v.Qualified) {
		return v, fmt.Errorf("match.json: %w: verdict %q with %d reasons", Count, v.Verdict, len(v.Reasons))
	}
	has := func(reason string) bool { return slices.Contains(v.Reasons, Reason{reason, 1}) }
	if want := v.reasons(has(referenceOffReason), has(timebaseReason)); !slices.Equal(v.Reasons, want) {
		return v, fmt.Errorf("match.json: %w: reasons %v, its figures give %v", Count, v.Reasons, want)
	}
	if v.Simulated && v.Evidence != simulatedEvidence {
		return v, fmt.Errorf("match.json: %w: evidence %q of a simulated run, want %s", Count, v.Evidence, simulatedEvidence)
	}
	if !v.addsUp() {
		return v, fmt.Errorf("match.json: %w: figures that do not add up", Count)
	}
	return v, nil
}

// addsUp tells that each frame and each presentation of the window became one thing, and that no P95 beyond the bound passed.
func (v *Verdict) addsUp() bool {
	c := v.Counts
	if (c == nil) != (v.Clock == nil) || v.CutsCompared > v.Cuts || v.CutsFailed > v.Cuts || (v.WorstP95DifferenceNs == nil) != (v.CutsCompared == 0) ||
		v.WorstP95DifferenceNs != nil && *v.WorstP95DifferenceNs > MaxP95DifferenceNs && v.CutsFailed == 0 || min(v.CutsCompared, v.CutsFailed) < 0 {
		return false
	}
	return c == nil || min(c.Paired, c.SurfaceMismatch, c.ExtraSystemFrame, c.MissingFrame, c.AmbiguousFrames, c.AmbiguousPresented, c.EdgeCutFrames, c.EdgeCutPresented,
		c.NotPresented, c.OutOfOrder, c.Unplaced, c.SessionGaps, v.Clock.BridgesContradicting) >= 0 &&
		c.FramesInside == c.Paired+c.SurfaceMismatch+c.ExtraSystemFrame+c.AmbiguousFrames+c.EdgeCutFrames &&
		c.PresentedInside == c.Paired+c.SurfaceMismatch+c.MissingFrame+c.AmbiguousPresented+c.EdgeCutPresented
}
