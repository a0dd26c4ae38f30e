package adapter

import "math"

// contextInfo reads ContextInfo events: in the releases of FrameLifetime each names one process that contributed to one frame.
type contextInfo struct {
	names map[string]string
}

// maxProcessNames bounds the process names kept so as not to be allocated again; a phone runs some hundred processes.
const maxProcessNames = 512

const (
	contextPID argument = iota
	contextSeed
	contextDisplay
	contextName
)

func contextArgument(name []byte, _ string) argument {
	switch string(name) {
	case "pid":
		return contextPID
	case "frameseed":
		return contextSeed
	case "displayid":
		return contextDisplay
	case "processname":
		return contextName
	}
	return noArgument
}

// read reports whether the row names a process and a frame.
func (x *contextInfo) read(s *signpost, c *Contributors) (ok bool) {
	args := &s.args
	pid, seed := args.number[contextPID], args.number[contextSeed]
	if args.state[contextPID] != argumentNumber || pid > math.MaxInt32 || args.state[contextSeed] != argumentNumber || seed > math.MaxInt64 {
		return false
	}
	display := uint64(0) // not reported
	if args.state[contextDisplay] != argumentAbsent {
		display = args.number[contextDisplay]
		if args.state[contextDisplay] != argumentNumber || display > math.MaxInt64 {
			return false
		}
	}
	c.FrameSeed, c.DisplayID = int64(seed), int64(display)
	p := Contributor{PID: int64(pid)}
	if args.state[contextName] == argumentText {
		p.Name = x.name(bounded(args.object[contextName].Text(), MaxProcessNameBytes))
	}
	c.Processes = append(c.Processes, p)
	return true
}

func (x *contextInfo) name(text []byte) string {
	if name, ok := x.names[string(text)]; ok {
		return name
	}
	if x.names == nil || len(x.names) == maxProcessNames {
		x.names = map[string]string{}
	}
	name := string(text)
	x.names[name] = name
	return name
}
