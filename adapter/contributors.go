package adapter

// Contributor is a process that had content in a frame.
type Contributor struct {
	PID  int64
	Name string // "" where not known
}

// Contributors names the processes that contributed to one frame (ContextInfo events, or FrameUpdate's own records).
type Contributors struct {
	FrameSeed, DisplayID int64
	Processes            []Contributor
}
