package p95

import (
	"bytes"
	"fmt"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/internal/jsonline"
)

// Quality is a publication's quality: Valid, or why its value is null.
type Quality string

const (
	Valid          Quality = "valid"
	NoTarget       Quality = "no-target"
	Background     Quality = "background"
	Overflow       Quality = "overflow"
	HostRegression Quality = "host-regression"
	PolicyAbsent   Quality = "policy-absent"
	StaleSource    Quality = "stale-source"
	StaleClock     Quality = "stale-clock"
	Warmup         Quality = "warmup"
)

// Receipt is one publication: the P95 or why there is none, all that is needed to check it, and the other display figures. Two
// receipts are the same publication where they are ==.
type Receipt struct {
	HostNs int64 // N
	DueNs  Int   // null for one that was asked for

	ValueNs Int // frame time; null unless Valid
	Quality Quality

	LastPresentationNs, LastHostNs Int // P and H
	WindowLeftNs, WindowRightNs    Int // open, closed; null too where they do not fit int64

	Segment             int64
	Target              Target
	SourceEpoch         Int
	ReconnectGeneration Int
	DisplayID           Int
	Timebase            Timebase
	N, Rank             Int
	FirstSample         Sample
	LastSample          Sample
	LastRawSequence     Int // the order mark
	LastClear           Clear
	ClockBridge         BridgeReading
	Other               Other
}

// Target is null where nothing is bound.
type Target struct {
	adapter.Target
	Known bool
}

// Timebase is null where nothing is bound.
type Timebase struct {
	adapter.Timebase
	Known bool
}

// Sample names a value at an end of the window; null where the window is empty.
type Sample struct {
	RawSequence, PresentationNs int64
	Known                       bool
}

// Clear says what emptied the window last. RawSequence and HostNs are the record's, as far as it has them; an event has no RawSequence,
// and a line that could not be read has neither.
type Clear struct {
	Reason              ClearReason
	RawSequence, HostNs Int
	Known               bool
}

// BridgeReading is what the clock bridge proves about the age of P; Qualified says that there is a bridge with continuous time.
type BridgeReading struct {
	Qualified                bool
	WidthNs, AgeLowerBoundNs Int
}

// The words that every receipt carries.
const (
	receiptType = "p95.publication"
	metric      = "ios.frame.time.p95"
	definition  = "activitytrace-framelifetime-p95.v1"
	formula     = "nearest-rank-95"
)

// member is one member of the object that a T is in JSON.
type member[T any] struct {
	name   string
	append func(dst []byte, v *T) []byte
	read   func(s *jsonline.Scanner, v *T) // rejects the line where the value is none of this member's
	// inside is the first member in which two values differ, for a member that is an object in both.
	inside func(a, b *T) (path string, inA, inB []byte)
}

// receiptMembers are all but seq, in their order.
var receiptMembers = []member[Receipt]{
	integer("hostNs", func(r *Receipt) *int64 { return &r.HostNs }),
	constant[Receipt]("type", receiptType),
	nullable("dueNs", 0, func(r *Receipt) *Int { return &r.DueNs }),
	constant[Receipt]("metric", metric),
	constant[Receipt]("definition", definition),
	constant[Receipt]("policy", adapter.PolicyP95),
	constant[Receipt]("formula", formula),
	nullable("valueMs", 6, func(r *Receipt) *Int { return &r.ValueNs }),
	word("quality", func(r *Receipt) *Quality { return &r.Quality },
		Valid, NoTarget, Background, Overflow, HostRegression, PolicyAbsent, StaleSource, StaleClock, Warmup),
	nullable("lastPresentationNs", 0, func(r *Receipt) *Int { return &r.LastPresentationNs }),
	nullable("lastHostNs", 0, func(r *Receipt) *Int { return &r.LastHostNs }),
	nullable("windowLeftNs", 0, func(r *Receipt) *Int { return &r.WindowLeftNs }),
	nullable("windowRightNs", 0, func(r *Receipt) *Int { return &r.WindowRightNs }),
	integer("segment", func(r *Receipt) *int64 { return &r.Segment }),
	object("target", func(r *Receipt) (*Target, *bool) { return &r.Target, &r.Target.Known },
		text("bundleId", func(t *Target) *string { return &t.BundleID }),
		integer("pid", func(t *Target) *int64 { return &t.PID }),
		integer("generation", func(t *Target) *int64 { return &t.Generation })),
	nullable("sourceEpoch", 0, func(r *Receipt) *Int { return &r.SourceEpoch }),
	nullable("reconnectGeneration", 0, func(r *Receipt) *Int { return &r.ReconnectGeneration }),
	nullable("displayId", 0, func(r *Receipt) *Int { return &r.DisplayID }),
	object("timebase", func(r *Receipt) (*Timebase, *bool) { return &r.Timebase, &r.Timebase.Known },
		integer("numer", func(t *Timebase) *int64 { return &t.Numer }),
		integer("denom", func(t *Timebase) *int64 { return &t.Denom })),
	nullable("n", 0, func(r *Receipt) *Int { return &r.N }),
	nullable("rank", 0, func(r *Receipt) *Int { return &r.Rank }),
	object("firstSample", func(r *Receipt) (*Sample, *bool) { return &r.FirstSample, &r.FirstSample.Known }, sampleMembers...),
	object("lastSample", func(r *Receipt) (*Sample, *bool) { return &r.LastSample, &r.LastSample.Known }, sampleMembers...),
	nullable("lastRawSequence", 0, func(r *Receipt) *Int { return &r.LastRawSequence }),
	object("lastClear", func(r *Receipt) (*Clear, *bool) { return &r.LastClear, &r.LastClear.Known },
		word("reason", func(c *Clear) *ClearReason { return &c.Reason },
			clearBind, clearTarget, clearEpoch, clearReconnect, clearTimebase, clearDisplay, clearForeground, clearBackground, clearSourceGap,
			clearPolicy, clearContract, clearIdentity, clearDuplicate, clearOutOfOrder, clearOrder, clearDiscontinuity, clearNoPredecessor,
			clearUnsupportedSchema, clearFigures, clearOverflow),
		nullable("rawSequence", 0, func(c *Clear) *Int { return &c.RawSequence }),
		nullable("hostNs", 0, func(c *Clear) *Int { return &c.HostNs })),
	object("clockBridge", func(r *Receipt) (*BridgeReading, *bool) { return &r.ClockBridge, nil },
		boolean("qualified", func(b *BridgeReading) *bool { return &b.Qualified }),
		nullable("widthNs", 0, func(b *BridgeReading) *Int { return &b.WidthNs }),
		nullable("ageLowerBoundNs", 0, func(b *BridgeReading) *Int { return &b.AgeLowerBoundNs })),
	object("other", func(r *Receipt) (*Other, *bool) { return &r.Other, nil },
		nullable("fps", 0, func(o *Other) *Int { return &o.FPS }),
		nullable("frameTimeMs", 6, func(o *Other) *Int { return &o.FrameTimeNs }),
		nullable("refreshHz", 3, func(o *Other) *Int { return &o.RefreshMilliHz }),
		nullable("jitterMs", 3, func(o *Other) *Int { return &o.JitterUs }),
		nullable("hitchMsPerS", 3, func(o *Other) *Int { return &o.HitchUsPerS }),
		nullable("missedRefreshes", 0, func(o *Other) *Int { return &o.MissedRefreshes })),
}

var sampleMembers = []member[Sample]{
	integer("rawSequence", func(s *Sample) *int64 { return &s.RawSequence }),
	integer("presentationNs", func(s *Sample) *int64 { return &s.PresentationNs }),
}

// AppendJSON appends the event line, without its newline. seq is the line's number.
func (r *Receipt) AppendJSON(dst []byte, seq int64) []byte {
	dst = jsonline.AppendDecimal(append(dst, `{"seq":`...), seq, 0)
	return appendMembers(append(dst, ','), r, receiptMembers)
}

// appendMembers appends the members of an object that is open, and closes it.
func appendMembers[T any](dst []byte, v *T, members []member[T]) []byte {
	for i := range members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, '"'), members[i].name...), `":`...)
		dst = members[i].append(dst, v)
	}
	return append(dst, '}')
}

// ParseReceipt reads an event line strictly: every member there, once, of its type, and nothing else. The order is free.
func ParseReceipt(line []byte) (seq int64, r Receipt, err error) {
	var s jsonline.Scanner
	s.Start(line)
	all := append([]member[Receipt]{{name: "seq", read: func(s *jsonline.Scanner, _ *Receipt) { readInteger(s, &seq) }}}, receiptMembers...)
	readMembers(&s, &r, all)
	if err := s.End(); err != nil {
		return 0, Receipt{}, fmt.Errorf("publication: %w", err)
	}
	return seq, r, nil
}

// readMembers reads the rest of the object that is open.
func readMembers[T any](s *jsonline.Scanner, v *T, members []member[T]) {
	var seen uint64
next:
	for s.Next() {
		for i := range members {
			if string(s.Key()) == members[i].name {
				seen |= 1 << i
				members[i].read(s, v)
				continue next
			}
		}
		s.Fail("no member of a publication")
	}
	for i := range members {
		if seen&(1<<i) == 0 {
			s.Fail("the member %q is missing", members[i].name)
		}
	}
}

// Diff names the first member, in the order of the line, in which two receipts differ, such as other.fps, and what it is in each. The
// path is empty where they are equal.
func (r *Receipt) Diff(o *Receipt) (path, inR, inO string) {
	path, a, b := diffMembers(r, o, receiptMembers)
	return path, string(a), string(b)
}

func diffMembers[T any](a, b *T, members []member[T]) (path string, inA, inB []byte) {
	for i := range members {
		m := &members[i]
		inA, inB = m.append(inA[:0], a), m.append(inB[:0], b)
		if bytes.Equal(inA, inB) {
			continue
		}
		if m.inside != nil && inA[0] == '{' && inB[0] == '{' {
			path, inA, inB = m.inside(a, b)
			return m.name + "." + path, inA, inB
		}
		return m.name, inA, inB
	}
	return "", nil, nil
}

func readInteger(s *jsonline.Scanner, n *int64) {
	kind := s.Kind()
	var ok bool
	if *n, ok = s.Int64(); !ok {
		s.Fail("want an integer, found %s", kind)
	}
}

func integer[T any](name string, at func(*T) *int64) member[T] {
	return member[T]{name: name,
		append: func(dst []byte, v *T) []byte { return jsonline.AppendDecimal(dst, *at(v), 0) },
		read:   func(s *jsonline.Scanner, v *T) { readInteger(s, at(v)) }}
}

// nullable is an Int, in JSON divided by 10^places.
func nullable[T any](name string, places int, at func(*T) *Int) member[T] {
	return member[T]{name: name,
		append: func(dst []byte, v *T) []byte {
			if n := at(v); n.Known {
				return jsonline.AppendDecimal(dst, n.N, places)
			}
			return append(dst, "null"...)
		},
		read: func(s *jsonline.Scanner, v *T) {
			n := at(v)
			switch {
			case s.Null():
				*n = Int{}
			case places == 0:
				n.Known = true
				readInteger(s, &n.N)
			default:
				kind := s.Kind()
				scaled, exact, ok := s.Decimal(places)
				if !ok {
					s.Fail("want a number or null, found %s", kind)
				} else if !exact {
					s.Fail("want a number of at most %d decimals", places)
				}
				*n = Of(scaled)
			}
		}}
}

func boolean[T any](name string, at func(*T) *bool) member[T] {
	return member[T]{name: name,
		append: func(dst []byte, v *T) []byte {
			if *at(v) {
				return append(dst, "true"...)
			}
			return append(dst, "false"...)
		},
		read: func(s *jsonline.Scanner, v *T) {
			kind := s.Kind()
			var ok bool
			if *at(v), ok = s.Bool(); !ok {
				s.Fail("want true or false, found %s", kind)
			}
		}}
}

func readText(s *jsonline.Scanner) []byte {
	kind := s.Kind()
	t, ok := s.Bytes()
	if !ok {
		s.Fail("want a string, found %s", kind)
	}
	return t
}

func text[T any](name string, at func(*T) *string) member[T] {
	return member[T]{name: name,
		append: func(dst []byte, v *T) []byte { return jsonline.AppendString(dst, *at(v)) },
		read:   func(s *jsonline.Scanner, v *T) { *at(v) = string(readText(s)) }}
}

// word is one of a list.
func word[T any, W ~string](name string, at func(*T) *W, words ...W) member[T] {
	return member[T]{name: name,
		append: func(dst []byte, v *T) []byte { return jsonline.AppendString(dst, string(*at(v))) },
		read: func(s *jsonline.Scanner, v *T) {
			found := readText(s)
			for _, w := range words {
				if string(found) == string(w) {
					*at(v) = w
					return
				}
			}
			s.Fail("want one of %q, found %q", words, found)
		}}
}

func constant[T any](name, value string) member[T] {
	return member[T]{name: name,
		append: func(dst []byte, _ *T) []byte { return jsonline.AppendString(dst, value) },
		read: func(s *jsonline.Scanner, _ *T) {
			if found := readText(s); string(found) != value {
				s.Fail("want %q, found %q", value, found)
			}
		}}
}

// object is an object; at gives it and the flag that says it is not null (nil: it never is).
func object[T, U any](name string, at func(*T) (*U, *bool), members ...member[U]) member[T] {
	return member[T]{name: name,
		append: func(dst []byte, v *T) []byte {
			u, known := at(v)
			if known != nil && !*known {
				return append(dst, "null"...)
			}
			return appendMembers(append(dst, '{'), u, members)
		},
		read: func(s *jsonline.Scanner, v *T) {
			u, known := at(v)
			if known != nil && s.Null() {
				return
			}
			kind := s.Kind()
			if !s.Object() {
				s.Fail("want an object, found %s", kind)
				return
			}
			if known != nil {
				*known = true
			}
			readMembers(s, u, members)
		},
		inside: func(a, b *T) (string, []byte, []byte) {
			u, _ := at(a)
			w, _ := at(b)
			return diffMembers(u, w, members)
		}}
}
