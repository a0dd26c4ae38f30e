package main

// mismatch is one thing that is not as it must be.
type mismatch struct {
	Line  int64  `json:"line"`
	Seq   int64  `json:"seq,omitempty"` // as the line says; 0 where it says none
	Type  string `json:"type,omitempty"`
	Field string `json:"field"`
	Got   string `json:"got"`
	Want  string `json:"want"`
}

const (
	// maxListed bounds how many mismatches are listed: one flipped digit can have a thousand consequences.
	maxListed = 100
	// maxShown bounds how much of a line's words a mismatch repeats, in bytes.
	maxShown = 60
)

// report is the oracle's output.
type report struct {
	Equal        bool             `json:"equal"`
	Lines        int64            `json:"lines"`
	Rejected     int64            `json:"rejectedLines"`
	Records      int64            `json:"records"`
	Publications int64            `json:"publications"`
	Valid        int64            `json:"validPublications"`
	Compared     int64            `json:"figuresCompared"`
	Total        int64            `json:"mismatchesTotal"`
	Mismatches   []mismatch       `json:"mismatches"` // the first of them
	Counts       map[string]int64 `json:"counts"`     // lines by type
	TakenAsGiven []given          `json:"takenAsGiven"`
}

// given is a number of the log that nothing here gives a second time. Only the manifest's hash protects it wherever Shows does not apply.
type given struct {
	Fields string `json:"fields"`
	Shows  string `json:"shows"` // where a change of it changes something that is computed here; "" nowhere
}

var takenAsGiven = []given{
	{"session.start host.cpus", ""},
	{"session.start host.pid", ""},
	{"session.start clock.monotonicNs", ""},
	{"session.start clock.wallNs", ""},
	{"target.bind hostNs", "in lastClear, until something else clears"},
	{"target.state hostNs", "in lastClear, until something else clears"},
	{"clock.bridge hostNs", ""},
	{"clock.bridge hostSendNs", "with continuous time, and a publication before the next one"},
	{"clock.bridge hostReceiveNs", "with continuous time, and a publication before the next one"},
	{"clock.bridge deviceContinuousMach", "with a publication before the next one"},
	{"clock.bridge deviceAbsoluteMach", ""},
	{"display.frame-lifetime.raw hostNs", "in receipts that it is the last one for, in lastClear, and where the order among records breaks"},
	{"display.frame-lifetime.raw source.channel", ""},
	{"display.frame-lifetime.raw payload.swapId", "where a frame is told twice; in FrameUpdate's nativeId"},
	{"display.frame-lifetime.raw payload.frameSeed", "where a frame is told twice, in droppedBefore; in FrameUpdate's nativeId"},
	{"display.frame-lifetime.raw payload.surfaceId", ""},
	{"display.frame-lifetime.raw payload.previousMach", "always in a valid record; in others where it changes the quality"},
	{"display.frame-lifetime.raw payload.refreshIntervalMach", "in refreshMultiple and refreshHz, to three decimals, and where the frame is late"},
	{"display.frame-lifetime.raw payload.bufferCount", "where the frame is late, or would be"},
	{"display.frame-lifetime.raw payload.skipRequest", "where the frame is late"},
	{"display.frame-lifetime.raw payload.displayTargetMach", ""},
	{"display.frame-lifetime.raw payload.inputMach", ""},
	{"display.frame-lifetime.raw payload.renderBeginMach", ""},
	{"display.frame-lifetime.raw payload.renderEndMach", ""},
	{"display.frame-contributors hostNs", ""},
	{"display.frame-contributors frameSeed", ""},
	{"display.frame-contributors displayId", ""},
	{"display.frame-contributors processes[].pid", ""},
	{"source.gap hostNs", "in lastClear, until something else clears"},
	{"source.gap rows", ""},
	{"source.gap bytes", ""},
	{"source.gap messages", ""},
	{"source.state hostNs", ""},
	{"p95.publication hostNs", "always with a window; without one where the order among publications breaks"},
	{"session.end hostNs", ""},
	{"session.end extra", "belowRefresh always"},
}
