package ledger

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
