package adapter

const (
	// MaxContributors bounds the processes told of one frame; a screen shows a handful at once. With the bound on their names even
	// the longest line fits a log, every byte of them escaped: 512 * (6 * 256 + 30) bytes are 0.8 MB.
	MaxContributors = 512
	// MaxProcessNameBytes bounds a contributor's name; longer ones are cut.
	MaxProcessNameBytes = 256
)

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
