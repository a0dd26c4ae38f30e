package ledger

import (
	"fmt"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/p95"
)

// Type is the word in a line's "type" (raw-record.md, Event log).
type Type string

const (
	TypeSessionStart Type = "session.start"
	TypeTargetBind   Type = "target.bind"
	TypeTargetState  Type = "target.state"
	TypeClockBridge  Type = "clock.bridge"
	TypeRawRecord    Type = "display.frame-lifetime.raw"
	TypeContributors Type = "display.frame-contributors"
	TypeSourceGap    Type = "source.gap"
	TypeSourceState  Type = "source.state"
	TypePublication  Type = "p95.publication"
	TypeSessionEnd   Type = "session.end"
)

// types in the order of the contract's table, which is the order in which counts are written.
var types = [...]Type{TypeSessionStart, TypeTargetBind, TypeTargetState, TypeClockBridge, TypeRawRecord, TypeContributors,
	TypeSourceGap, TypeSourceState, TypePublication, TypeSessionEnd}

func (t Type) index() int {
	for i := range types {
		if types[i] == t {
			return i
		}
	}
	return -1
}

// Counts is the number of lines of each type.
type Counts [len(types)]int64

// Of is the number of lines of that type.
func (c *Counts) Of(t Type) int64 {
	if i := t.index(); i >= 0 {
		return c[i]
	}
	return 0
}

// Event is one line of a session's event log.
type Event struct {
	Seq    int64 // 1, 2, 3 …
	HostNs int64 // this host's monotonic clock; of a record or a receipt, its own
	// Value is what the line carries: *Start, *adapter.Binding, *TargetState, *p95.ClockBridge, *adapter.Record,
	// *adapter.Contributors, *SourceGap, *SourceState, *p95.Receipt or *End.
	Value any
}

// Type is the word for e.Value, "" where that is none of the ten.
func (e *Event) Type() Type {
	switch e.Value.(type) {
	case *Start:
		return TypeSessionStart
	case *adapter.Binding:
		return TypeTargetBind
	case *TargetState:
		return TypeTargetState
	case *p95.ClockBridge:
		return TypeClockBridge
	case *adapter.Record:
		return TypeRawRecord
	case *adapter.Contributors:
		return TypeContributors
	case *SourceGap:
		return TypeSourceGap
	case *SourceState:
		return TypeSourceState
	case *p95.Receipt:
		return TypePublication
	case *End:
		return TypeSessionEnd
	}
	return ""
}

// Evidence is what a session or an entry can prove at most.
type Evidence string

const (
	EvidenceE2 Evidence = "E2" // software, or a simulated device
	EvidenceE3 Evidence = "E3" // a real device outside a formal attempt
	EvidenceE4 Evidence = "E4" // a formal attempt on a real device
)

func (e Evidence) known() bool { return e == EvidenceE2 || e == EvidenceE3 || e == EvidenceE4 }

// Tool is the program that wrote a session or an entry.
type Tool struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Host is the machine that recorded.
type Host struct {
	Name, OS, Arch string
	CPUs, PID      int64
}

// Device is the phone; what is not known, as of an imported recording, is "".
type Device struct {
	UDID        string `json:"udid"`
	ProductType string `json:"productType"`
	OSVersion   string `json:"osVersion"`
	Simulated   bool   `json:"simulated"`
}

// Clock is the host's two clocks, read together.
type Clock struct {
	MonotonicNs, WallNs int64 // WallNs is Unix time
}

// Start opens a session.
type Start struct {
	SessionID   string // UUID
	Name        string
	Tool        Tool
	Host        Host
	Device      Device
	Evidence    Evidence
	Policy      string
	Clock       Clock
	NoHostClock bool // an import: the lines' hostNs are not arrivals
}

func (s *Start) check() error {
	if id, err := uuid.Parse(s.SessionID); err != nil || id.String() != s.SessionID {
		return fmt.Errorf("sessionId: expected a UUID in lower case, found %.50q", s.SessionID)
	}
	for _, text := range []string{s.Name, s.Tool.Name, s.Tool.Version} { // which the manifest repeats
		if !utf8.ValidString(text) {
			return fmt.Errorf("name, tool: expected UTF-8, found %.100q", text)
		}
	}
	if !s.Evidence.known() {
		return fmt.Errorf("evidence: expected E2, E3 or E4, found %.20q", s.Evidence)
	}
	if s.Device.Simulated && s.Evidence != EvidenceE2 {
		return fmt.Errorf("evidence: a simulated device can never yield more than E2, found %s", s.Evidence)
	}
	return nil
}

// TargetState says whether the target is in the foreground, and who said so.
type TargetState struct {
	Foreground bool
	By         string // notification, process-list, launch, operator, import
}

// SourceGap says that frames may be among what was lost.
type SourceGap struct {
	Reason                string
	Rows, Bytes, Messages int64
}

// SourceState is a change of the connection.
type SourceState struct {
	State string // connected, disconnected, reconnecting
	Cause string
}

// State is how a session ended.
type State string

const (
	StateComplete State = "complete"
	StatePartial  State = "partial"
)

// End closes a session.
type End struct {
	State  State
	Reason string
	Counts Counts           // lines of every type, this one included, so that their sum is its seq
	Extra  map[string]int64 // whatever else was counted: category twins, foreign signposts, …
}
