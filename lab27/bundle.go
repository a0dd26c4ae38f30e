package lab27

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/internal/jsonline"
)

// Plan is plan.json: what the app was asked for, on which device.
type Plan struct {
	Request                            Request
	BundleID, AppVersion, SourceDigest string
	PID                                int64
	DeviceModel, OSVersion             string
	MaximumHz                          int64
	Simulated                          bool
	Timebase                           adapter.Timebase
	Phases                             []PlannedPhase
}

// Event is a line of events.jsonl.
type Event struct {
	Name   string
	Mach   int64  // absolute
	Word   string // the phase, the reason of a stop, or the state of sealing
	Number int64  // the thermal state, or the handlers outstanding after draining
	Line   int
	Byte   int64
}

// Submission is a row of requests.jsonl; Mach times are absolute.
type Submission struct {
	N                       int64
	Phase                   uint8 // index into Plan.Phases
	RequestMach, CommitMach int64 // CommitMach 0 = never committed
	DrawableID              int64
	DelayMs                 int64
	Line                    int
	Byte                    int64
}

// Status of a presentation.
type Status uint8

const (
	Presented   Status = iota
	Dropped            // the handler said that it was not presented
	NotReported        // no handler came back: `missing`
)

var statusWords = [...]string{"presented", "dropped", "missing"}

func (s Status) String() string { return statusWords[s] }

// Presentation is a row of presented.jsonl.
type Presentation struct {
	N                     int64
	Phase                 uint8
	CallbackMach          int64 // absolute
	DrawableID, SurfaceID int64 // 0 = not reported
	PresentedNs           int64 // mach absolute time; 0 = not presented
	Status                Status
	Line                  int
	Byte                  int64
}

// ActualPhase is when a phase ran.
type ActualPhase struct {
	Name               string
	StartMach, EndMach int64 // absolute
	Requests           int64
}

// HandlerCost is what one presented handler took.
type HandlerCost struct{ FirstNs, MeanNs, P95Ns, MaxNs int64 }

// Summary is summary.json.
type Summary struct {
	State, Reason, RunName, Nonce                         string
	Phases                                                []ActualPhase
	Submitted, Committed, Presented, Dropped, Outstanding int64
	StrayCallbacks, QueuePeak                             int64
	IdleRecovered                                         bool
	IdleTookNs                                            int64
	WorkloadReleased                                      bool
	HandlerCost                                           *HandlerCost // nil where no handler came back
	HasUsage                                              bool         // of the two below
	CPUUsedNs, CPUWallNs                                  int64
	FootprintStart, FootprintPeak, FootprintEnd           int64 // bytes
	FileWritesWhileRunning                                int64
	Before, After                                         Bracket
	Files                                                 [len(BundleFiles) - 1]FileSeal // in the order of BundleFiles
}

// FileSeal is a file as the summary vouches for it.
type FileSeal struct {
	Bytes  int64
	SHA256 string
}

const (
	maxDocumentBytes = 64 << 10 // plan and summary have 2 or 3 KB
	maxRowBytes      = 1 << 10  // a row has at most 128 bytes
	maxEvents        = 4096     // the app keeps no more
	maxPhases        = 8
)

// bundleReader reads the files of a bundle one after the other and notes what is wrong with them.
type bundleReader struct {
	report   *Report
	files    fs.FS
	scanner  jsonline.Scanner
	wrapped  []byte
	timebase adapter.Timebase // of the plan; a guess where the plan cannot be read, for bounds alone
	found    [len(BundleFiles) - 1]fileFound
}

type fileFound struct {
	there  bool
	torn   bool // does not end with a newline
	bytes  int64
	sha256 string
}

func (r *bundleReader) problem(p *Problem) { r.report.add(p) }

// open notes what keeps a file from being read; a missing one is judged later, when it is known whether the bundle was sealed.
func (r *bundleReader) open(name string) io.ReadCloser {
	var f fs.File
	err := regular(r.files, name)
	if err == nil {
		f, err = r.files.Open(name)
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			r.problem(&Problem{Kind: Missing, File: name, Detail: fmt.Sprintf("cannot be opened: %v", err)})
		}
		return nil
	}
	return f
}

// regular refuses what is on a disk and no regular file: opening a pipe may wait for ever.
func regular(files fs.FS, name string) error {
	disk, ok := files.(fs.StatFS)
	if !ok {
		return nil
	}
	info, err := disk.Stat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("expected a regular file")
	}
	return err
}

// read is a document as a whole, and whether it was there.
func (r *bundleReader) read(name string) ([]byte, bool) {
	f := r.open(name)
	if f == nil {
		return nil, false
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxDocumentBytes+1))
	switch {
	case err != nil:
		r.problem(&Problem{Kind: Missing, File: name, Byte: int64(len(data)), Detail: fmt.Sprintf("cannot be read further: %v", err)})
	case len(data) > maxDocumentBytes:
		r.problem(&Problem{Kind: Bounds, File: name, Byte: maxDocumentBytes, Detail: fmt.Sprintf("longer than %d bytes", maxDocumentBytes)})
		return nil, true
	}
	r.report.Bytes += int64(len(data))
	return data, true
}

func (r *bundleReader) readPlan() {
	r.timebase = adapter.Timebase{Numer: 125, Denom: 3}
	data, there := r.read(PlanFile)
	if !there {
		return
	}
	sum := sha256.Sum256(data)
	r.found[0] = fileFound{there: true, torn: !bytes.HasSuffix(data, []byte("\n")), bytes: int64(len(data)), sha256: hex.EncodeToString(sum[:])}
	if r.found[0].torn {
		r.problem(&Problem{Kind: Torn, File: PlanFile, Byte: int64(len(data)), Detail: "ends without a newline"})
		return
	}
	var p Plan
	scaled := bytes.Contains(data, []byte(`"durationPermille"`))
	err := document(&r.scanner, data, constant("schema", "lab27.plan/1"),
		object("request", requestMembers(&p.Request, scaled)...),
		object("app", text("bundleId", 64, &p.BundleID), text("version", 64, &p.AppVersion), text("sourceDigest", 64, &p.SourceDigest), integer("pid", 0, &p.PID)),
		object("device", text("model", 64, &p.DeviceModel), text("osVersion", 64, &p.OSVersion), integer("maximumHz", 0, &p.MaximumHz), boolean("simulated", &p.Simulated)),
		object("timebase", integer("numer", 1, &p.Timebase.Numer), integer("denom", 1, &p.Timebase.Denom)),
		list("phases", maxPhases, func(s *jsonline.Scanner) bool {
			p.Phases = append(p.Phases, PlannedPhase{})
			ph := &p.Phases[len(p.Phases)-1]
			if !s.Object() {
				return false
			}
			members(s, text("name", 32, &ph.Name), integer("startNs", 0, &ph.StartNs), integer("lengthNs", 1, &ph.LengthNs), integer("requestedHz", 1, &ph.RequestedHz),
				integer("delayMs", 0, &ph.DelayMs), integer("delayEvery", 0, &ph.DelayEvery))
			return true
		}))
	if err != nil {
		r.problem(columnError(PlanFile, 1, 0, 0, err))
		return
	}
	if err := checkRead(&p.Request, scaled); err != nil {
		r.problem(&Problem{Kind: Schema, File: PlanFile, Line: 1, Detail: err.Error()})
		return
	}
	if !validTimebase(p.Timebase) {
		r.problem(&Problem{Kind: Clock, File: PlanFile, Line: 1, Detail: fmt.Sprintf("timebase %d/%d is no clock's", p.Timebase.Numer, p.Timebase.Denom)})
		return
	}
	r.timebase = p.Timebase
	r.report.Plan = &p
}

// sealMark stands between what the summary's own digest covers and that digest.
const sealMark = `,"seal":"`

func (r *bundleReader) readSummary() {
	data, there := r.read(SummaryFile)
	if !there {
		r.problem(r.unsealed())
		return
	}
	s, p := parseSummary(&r.scanner, data)
	if p != nil {
		r.problem(p)
		return
	}
	r.report.Summary = s
}

// unsealed says where a bundle without a summary ends: with the last file in the order in which the app writes them.
func (r *bundleReader) unsealed() *Problem {
	for _, file := range []int{1, 3, 2, 0} { // events, presented, requests, plan
		if f := &r.found[file]; f.there {
			return &Problem{Kind: Unsealed, File: BundleFiles[file], Byte: f.bytes, Detail: "what there is ends here, without a summary: the app ended before it sealed the run, or not all of it was fetched"}
		}
	}
	return &Problem{Kind: Unsealed, File: SummaryFile, Detail: "is not there, nor is anything else"}
}

// ParseSummary reads a summary.json by itself, its seal checked: a pull needs the other files' sizes and digests.
func ParseSummary(data []byte) (*Summary, error) {
	if len(data) > maxDocumentBytes {
		return nil, &Problem{Kind: Bounds, File: SummaryFile, Byte: maxDocumentBytes, Detail: fmt.Sprintf("longer than %d bytes", maxDocumentBytes)}
	}
	var scanner jsonline.Scanner
	s, p := parseSummary(&scanner, data)
	if p != nil {
		return nil, p
	}
	return s, nil
}

func parseSummary(scanner *jsonline.Scanner, data []byte) (*Summary, *Problem) {
	if !bytes.HasSuffix(data, []byte("\n")) {
		return nil, &Problem{Kind: Torn, File: SummaryFile, Byte: int64(len(data)), Detail: "ends without a newline"}
	}
	var (
		s                             Summary
		seal                          string
		hasCost, hasCPU, hasFootprint bool
		cost                          HandlerCost
	)
	bracket := func(key string, b *Bracket) member {
		return object(key, integer("absoluteBeforeMach", 0, &b.AbsoluteBeforeMach), seconds("mediaTime", &b.MediaNs), integer("continuousMach", 0, &b.ContinuousMach),
			integer("absoluteAfterMach", 0, &b.AbsoluteAfterMach))
	}
	files := make([]member, len(s.Files))
	for i := range files {
		files[i] = object(BundleFiles[i], integer("bytes", 0, &s.Files[i].Bytes), text("sha256", 64, &s.Files[i].SHA256))
	}
	err := document(scanner, data, constant("schema", "lab27.summary/1"), text("state", 16, &s.State), text("reason", 32, &s.Reason),
		text("runName", 64, &s.RunName), text("nonce", 36, &s.Nonce),
		list("phases", maxPhases, func(sc *jsonline.Scanner) bool {
			s.Phases = append(s.Phases, ActualPhase{})
			p := &s.Phases[len(s.Phases)-1]
			if !sc.Object() {
				return false
			}
			members(sc, text("name", 32, &p.Name), integer("startMach", 0, &p.StartMach), integer("endMach", 0, &p.EndMach), integer("requests", 0, &p.Requests))
			return true
		}),
		integer("submitted", 0, &s.Submitted), integer("committed", 0, &s.Committed), integer("presented", 0, &s.Presented), integer("dropped", 0, &s.Dropped),
		integer("outstanding", 0, &s.Outstanding), integer("strayCallbacks", 0, &s.StrayCallbacks), integer("queuePeak", 0, &s.QueuePeak),
		object("idleRecovery", boolean("recovered", &s.IdleRecovered), integer("tookNs", 0, &s.IdleTookNs)), boolean("workloadReleased", &s.WorkloadReleased),
		orNull(&hasCost, object("handlerCost", integer("firstNs", 0, &cost.FirstNs), integer("meanNs", 0, &cost.MeanNs), integer("p95Ns", 0, &cost.P95Ns), integer("maxNs", 0, &cost.MaxNs))),
		orNull(&hasCPU, object("cpu", integer("usedNs", 0, &s.CPUUsedNs), integer("wallNs", 0, &s.CPUWallNs))),
		orNull(&hasFootprint, object("footprint", integer("startBytes", 0, &s.FootprintStart), integer("peakBytes", 0, &s.FootprintPeak), integer("endBytes", 0, &s.FootprintEnd))),
		integer("fileWritesWhileRunning", 0, &s.FileWritesWhileRunning),
		object("brackets", bracket("before", &s.Before), bracket("after", &s.After)),
		object("files", files...), text("seal", 64, &seal))
	if err != nil {
		return nil, columnError(SummaryFile, 1, 0, 0, err)
	}
	covered := bytes.LastIndex(data, []byte(sealMark))
	if covered < 0 || string(data[covered:]) != sealMark+seal+"\"}\n" {
		return nil, &Problem{Kind: Hash, File: SummaryFile, Line: 1, Byte: int64(len(data)), Detail: "does not end with its seal"}
	}
	if sum := sha256.Sum256(data[:covered]); hex.EncodeToString(sum[:]) != seal {
		return nil, &Problem{Kind: Hash, File: SummaryFile, Line: 1, Byte: int64(covered), Detail: fmt.Sprintf("its seal says %s, its bytes give %x", seal, sum)}
	}
	if hasCost {
		s.HandlerCost = &cost
	}
	s.HasUsage = hasCPU && hasFootprint
	return &s, nil
}

// lines streams a file of lines, hashed on the way, to each; what each returns is noted with the line's place. The first line of a
// file of rows must be its header. A last line without its newline is torn: it is not given to each.
func (r *bundleReader) lines(file int, header string, each func(line []byte, number int, offset int64) *Problem) {
	name := BundleFiles[file]
	f := r.open(name)
	if f == nil {
		return
	}
	defer f.Close()
	digest := &counted{Hash: sha256.New()}
	input := bufio.NewReaderSize(io.TeeReader(io.LimitReader(f, MaxBundleBytes+1), digest), maxRowBytes)
	offset, number := int64(0), 0
	for r.report.ProblemCount < giveUp {
		line, err := input.ReadSlice('\n')
		number++
		if err == bufio.ErrBufferFull {
			r.problem(&Problem{Kind: Bounds, File: name, Line: number, Byte: offset, Detail: fmt.Sprintf("a line longer than %d bytes", maxRowBytes)})
			break
		}
		if err != nil {
			if err != io.EOF {
				r.problem(&Problem{Kind: Missing, File: name, Line: number, Byte: offset, Detail: fmt.Sprintf("cannot be read further: %v", err)})
			}
			if r.found[file].torn = len(line) > 0 || number == 1; r.found[file].torn {
				r.problem(&Problem{Kind: Torn, File: name, Line: number, Byte: offset, Detail: fmt.Sprintf("the last line ends after %d bytes without a newline", len(line))})
			}
			break
		}
		var p *Problem
		if number == 1 && header != "" {
			if string(line) != header {
				p = &Problem{Kind: Schema, File: name, Line: 1, Detail: fmt.Sprintf("want the header %s", header[:len(header)-1])}
			}
		} else {
			p = each(line, number, offset)
		}
		if p != nil {
			r.problem(p)
		}
		offset += int64(len(line))
	}
	io.Copy(io.Discard, input) // the rest still belongs to the digest
	r.found[file].there = true
	r.found[file].bytes = digest.bytes
	r.found[file].sha256 = hex.EncodeToString(digest.Sum(nil))
	r.report.Bytes += digest.bytes
}

type counted struct {
	hash.Hash
	bytes int64
}

func (c *counted) Write(b []byte) (int, error) {
	c.bytes += int64(len(b))
	return c.Hash.Write(b)
}

func (r *bundleReader) readEvents() {
	r.lines(1, "", func(line []byte, number int, offset int64) *Problem {
		if len(r.report.Events) == maxEvents {
			return &Problem{Kind: Bounds, File: EventsFile, Line: number, Byte: offset, Detail: fmt.Sprintf("more than %d events", maxEvents)}
		}
		e := Event{Line: number, Byte: offset}
		want := []member{text("event", 16, &e.Name), integer("mach", 0, &e.Mach)}
		switch eventName(&r.scanner, line) {
		case "phase":
			want = append(want, text("phase", 32, &e.Word))
		case "thermal":
			want = append(want, integer("thermalState", 0, &e.Number))
		case "stop":
			want = append(want, text("reason", 32, &e.Word))
		case "drain":
			want = append(want, integer("outstanding", 0, &e.Number))
		case "sealed":
			want = append(want, text("state", 16, &e.Word))
		case "admitted", "cancel", "background":
		default:
			return &Problem{Kind: Schema, File: EventsFile, Line: number, Byte: offset, Detail: "want a known event"}
		}
		if err := document(&r.scanner, line, want...); err != nil {
			return columnError(EventsFile, number, offset, 0, err)
		}
		if _, ok := machNs(r.timebase, e.Mach); !ok {
			return &Problem{Kind: Clock, File: EventsFile, Line: number, Byte: offset, Detail: fmt.Sprintf("mach %d is later than any phone can say", e.Mach)}
		}
		r.report.Events = append(r.report.Events, e)
		return nil
	})
}

// eventName looks ahead for the event's name, since its other members depend on it.
func eventName(s *jsonline.Scanner, line []byte) (name string) {
	s.Start(line)
	for s.Next() {
		if string(s.Key()) == "event" {
			b, _ := s.Bytes()
			name = string(b)
		}
	}
	return name
}

// row reads an array of exactly these elements. The scanner reads objects, so the row becomes the one member of one.
func (r *bundleReader) row(line []byte, elements ...func(*jsonline.Scanner) bool) error {
	r.wrapped = append(append(append(r.wrapped[:0], rowWrap...), line...), '}')
	s := &r.scanner
	return document(s, r.wrapped, member{"row", func(*jsonline.Scanner) bool {
		if !s.Array() {
			return false
		}
		n := 0
		for ; s.Next(); n++ {
			if n == len(elements) || !elements[n](s) {
				s.Fail("a value of the wrong type or out of range, or one too many")
			}
		}
		return n == len(elements)
	}})
}

const rowWrap = `{"row":`

func count(to *int64) func(*jsonline.Scanner) bool { return integer("", 0, to).take }

func (r *bundleReader) phase(to *uint8) func(*jsonline.Scanner) bool {
	return func(s *jsonline.Scanner) bool {
		b, ok := s.Bytes()
		if ok && r.report.Plan != nil {
			for i := range r.report.Plan.Phases {
				if r.report.Plan.Phases[i].Name == string(b) {
					*to = uint8(i)
					return true
				}
			}
			s.Fail("unknown phase")
		}
		return ok
	}
}

const requestsHeader = `{"columns":["n","phase","requestMach","commitMach","drawableId","delayMs"]}` + "\n"

func (r *bundleReader) readRequests() {
	r.lines(2, requestsHeader, func(line []byte, number int, offset int64) *Problem {
		if len(r.report.Submissions) == MaxRequests {
			return &Problem{Kind: Bounds, File: RequestsFile, Line: number, Byte: offset, Detail: fmt.Sprintf("more than %d requests", MaxRequests)}
		}
		q := Submission{Line: number, Byte: offset}
		if err := r.row(line, count(&q.N), r.phase(&q.Phase), count(&q.RequestMach), count(&q.CommitMach), count(&q.DrawableID), count(&q.DelayMs)); err != nil {
			return columnError(RequestsFile, number, offset, len(rowWrap), err)
		}
		if !r.inTime(q.RequestMach, q.CommitMach) {
			return &Problem{Kind: Clock, File: RequestsFile, Line: number, Byte: offset, Detail: "a mach time later than any phone can say"}
		}
		r.report.Submissions = append(r.report.Submissions, q)
		return nil
	})
}

const presentedHeader = `{"columns":["n","phase","callbackMach","drawableId","surfaceId","presentedTime","status"]}` + "\n"

func (r *bundleReader) readPresented() {
	r.lines(3, presentedHeader, func(line []byte, number int, offset int64) *Problem {
		if len(r.report.Presentations) == MaxPresented {
			return &Problem{Kind: Bounds, File: PresentedFile, Line: number, Byte: offset, Detail: fmt.Sprintf("more than %d handlers", MaxPresented)}
		}
		p := Presentation{Line: number, Byte: offset}
		status := func(s *jsonline.Scanner) bool {
			b, ok := s.Bytes()
			for i, word := range statusWords {
				if ok && string(b) == word {
					p.Status = Status(i)
					return true
				}
			}
			return false
		}
		err := r.row(line, count(&p.N), r.phase(&p.Phase), count(&p.CallbackMach), count(&p.DrawableID), count(&p.SurfaceID), seconds("", &p.PresentedNs).take, status)
		if err != nil {
			return columnError(PresentedFile, number, offset, len(rowWrap), err)
		}
		if !r.inTime(p.CallbackMach) || p.PresentedNs >= maxNs {
			return &Problem{Kind: Clock, File: PresentedFile, Line: number, Byte: offset, Detail: "a time later than any phone can say"}
		}
		r.report.Presentations = append(r.report.Presentations, p)
		return nil
	})
}

func (r *bundleReader) inTime(ticks ...int64) bool {
	for _, t := range ticks {
		if _, ok := machNs(r.timebase, t); !ok {
			return false
		}
	}
	return true
}
