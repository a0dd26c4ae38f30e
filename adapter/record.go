package adapter

import (
	"math"
	"math/bits"
)

// Schema, policy and the fixed words of the source contracts (raw-record.md).
const (
	RecordType     = "display.frame-lifetime.raw"
	RecordSchema   = "perfowl.display-frame-event/2"
	PolicyP95      = "p95-window-segment.v2"
	AdapterVersion = 2
	ScopeDevice    = "foreground-device"
	RawUnit        = "signpost-framelifetime"
)

// Source says what produced a record: one of the contracts below, or, in a file from elsewhere, whatever that file says.
type Source struct {
	Service        string
	Channel        int64
	Selector       string
	AdapterID      string
	AdapterVersion int64
	Scope          string
	RawUnit        string
}

// The known source contracts. Channel is no part of a contract: it is the channel code that the records came through (0 for imports).
var (
	SourceGoIOS = Source{Service: "com.apple.instruments.server.services.activitytracetap", Selector: "onlySignposts",
		AdapterID: "goios.activity-trace.frame-lifetime.raw", AdapterVersion: AdapterVersion, Scope: ScopeDevice, RawUnit: RawUnit}
	SourcePMD3 = Source{Service: "com.apple.instruments.server.services.activitytracetap", Selector: "onlySignposts",
		AdapterID: "pmd3.activity-trace.frame-lifetime.raw", AdapterVersion: AdapterVersion, Scope: ScopeDevice, RawUnit: RawUnit}
	SourceXctrace = Source{Service: "xctrace", Selector: "os-signpost-interval",
		AdapterID: "xctrace.os-signpost-interval.frame-lifetime", AdapterVersion: AdapterVersion, Scope: ScopeDevice, RawUnit: RawUnit}
)

// Known reports whether s is one of the known source contracts, whatever its channel.
func (s *Source) Known() bool {
	return s.follows(&SourceGoIOS) || s.follows(&SourcePMD3) || s.follows(&SourceXctrace)
}

func (s *Source) follows(contract *Source) bool {
	return s.AdapterID == contract.AdapterID && s.AdapterVersion == contract.AdapterVersion && s.Service == contract.Service &&
		s.Selector == contract.Selector && s.Scope == contract.Scope && s.RawUnit == contract.RawUnit
}

// Timebase converts device ticks to nanoseconds: ns = ticks * Numer / Denom. 125/3 on every current iPhone.
type Timebase struct {
	Numer, Denom int64
}

// Ns is floor(ticks * Numer / Denom) with a 128-bit product; ok is false where a part of the timebase is below 1, ticks is
// negative, or the result does not fit int64.
func (t Timebase) Ns(ticks int64) (ns int64, ok bool) {
	if t.Numer < 1 || t.Denom < 1 || ticks < 0 {
		return 0, false
	}
	hi, lo := bits.Mul64(uint64(ticks), uint64(t.Numer))
	if hi >= uint64(t.Denom) {
		return 0, false
	}
	q, _ := bits.Div64(hi, lo, uint64(t.Denom))
	if q > math.MaxInt64 {
		return 0, false
	}
	return int64(q), true
}

// Target is the app under test; Generation grows when it is relaunched.
type Target struct {
	BundleID   string
	PID        int64
	Generation int64
}

// Binding is what a target.bind line sets: everything a record's identity must equal.
type Binding struct {
	Target              Target
	SourceEpoch         int64
	ReconnectGeneration int64
	PrimaryDisplayID    int64
	Timebase            Timebase
}

// Quality is a word of the fixed list in raw-record.md.
type Quality uint8

const (
	QualityUnknown Quality = iota // not a word of the list
	QualityValid
	QualityUnsupportedSchema
	QualityDuplicate
	QualityOutOfOrder
	QualityNoPredecessor
	QualityDiscontinuity
	QualitySourceGap
	qualityCount
)

var qualityNames = [qualityCount]string{"", "valid", "unsupported-schema", "duplicate", "out-of-order", "no-predecessor", "discontinuity", "source-gap"}

func (q Quality) String() string { return qualityNames[q] }

// ParseQuality is QualityUnknown for any other word.
func ParseQuality(s string) Quality { return parseQuality(s) }

func parseQuality[T string | []byte](s T) Quality {
	for i := 1; i < len(qualityNames); i++ {
		if qualityNames[i] == string(s) {
			return Quality(i)
		}
	}
	return QualityUnknown
}

// Fields is the set of a record's members that are there and of the right type. A record made by this program has all that apply;
// one read from a file may lack any.
type Fields uint64

const (
	HasHostNs Fields = 1 << iota
	HasRawSequence
	HasSource // the whole source object, every member of the right type
	HasTarget // bundleId, pid and generation
	HasSourceEpoch
	HasReconnectGeneration
	HasSwapID
	HasFrameSeed
	HasDisplayID
	HasSurfaceID
	HasBeginMach
	HasEndMach
	HasPreviousMach
	HasRefreshIntervalMach
	HasBufferCount
	HasSkipRequest
	HasTimebase
	HasPresentationNs
	HasFrameTime       // frameTimeMs is a number
	HasLifetime        // lifetimeMs is a number
	HasRefreshMultiple // refreshMultiple is a number
	HasQuality         // one of the list
	HasDisplayTargetMach
	HasInputMach
	HasRenderBeginMach
	HasRenderEndMach
	HasNativeID
	HasDroppedBefore // a number, not null
	HasPredecessorSkew
)

// HasNatives are the native integers that P95 needs of a valid record.
const HasNatives = HasSwapID | HasFrameSeed | HasBeginMach | HasEndMach | HasPreviousMach | HasRefreshIntervalMach | HasBufferCount | HasSkipRequest

// Record is one raw record. Times named Mach are ticks of the device's continuous clock, Ns are nanoseconds.
//
// Decimal figures are kept as scaled integers, so that they are exact: FrameTimeNs and LifetimeNs are ms * 1e6,
// RefreshMultipleMilli is the multiple * 1000. A frame time or multiple read from a file that is no such decimal (too many digits) is
// present with InexactFigures set, and equals nothing; such a lifetime is missing.
type Record struct {
	Fields Fields

	HostNs                           int64
	RawSequence                      int64
	SessionID                        string
	Schema                           string
	Source                           Source
	Target                           Target
	SourceEpoch, ReconnectGeneration int64
	Policy                           string // "" where there is no mark

	Subsystem, Category, Name string
	SwapID, FrameSeed         int64
	DisplayID, SurfaceID      int64
	BeginMach, EndMach        int64
	PreviousMach              int64
	RefreshIntervalMach       int64
	BufferCount, SkipRequest  int64
	Timebase                  Timebase

	DisplayTargetMach, InputMach   int64
	RenderBeginMach, RenderEndMach int64
	NativeID                       int64 // the signpost identifier's 64 bits, as signed

	PresentationNs       int64
	FrameTimeNs          int64
	LifetimeNs           int64
	RefreshMultipleMilli int64
	InexactFigures       bool

	Quality             Quality
	QualityReason       string
	Decoded, Verified   bool
	DroppedBefore       int64
	PredecessorSkewMach int64
	PresentFields       []string // only with unsupported-schema
}
