package capture

import "time"

// steadyMessages is how many messages of the tap must have come with identifiers that follow one another before a jump is taken for
// a loss. The identifiers count what the device starts on the connection; that nothing else uses them up is seen, not documented.
const steadyMessages = 8

// recentMessages is how far back a message that comes again may lie. What is further back belongs to a count that began anew.
const recentMessages = 64

// order tells from the identifiers of the tap's messages whether they are all there. Each connection has its own.
type order struct {
	last    uint32
	started int64
	steady  int // messages in a row that followed one another
	any     bool

	early      int64 // messages that seem to be missing among the first, told of when those after them have followed one another
	late       bool  // the last loss was told of so
	lateBefore bool  // as was the last one of the connection before
}

// again is the order of the tap's next connection.
func (o *order) again() order { return order{lateBefore: o.late} }

// habit says of the last loss that it may be none, but what this device's identifiers begin with: the connection before began so too. To
// set up the tap again for it would never end.
func (o *order) habit() bool { return o.late && o.lateBefore }

// next takes a message's identifier, and its place among all that the device has started on the connection: those on other channels use up
// identifiers too. lost is how many messages are missing before it, or were among the first of the connection; repeated says that it came
// before.
func (o *order) next(id uint32, started int64) (lost int64, repeated bool) {
	others := started - o.started - 1
	isBack := o.last-id < recentMessages
	if o.any && (id == o.last || o.steady >= steadyMessages && isBack) {
		o.started++ // it takes no identifier from those behind the last one
		return 0, true
	}
	o.started = started
	switch {
	case !o.any:
		o.any = true
	case id == o.last+1:
		if o.steady++; o.steady == steadyMessages && o.early > 0 {
			lost, o.early, o.late = o.early, 0, true
		}
	case id-o.last >= 1<<31: // begins anew
		o.steady, o.early = 0, 0
	case o.steady >= steadyMessages:
		lost = max(0, int64(id-o.last-1)-others)
		if lost > 0 {
			o.steady, o.late = 0, false
		}
	default:
		o.steady = 0
		o.early += max(0, int64(id-o.last-1)-others)
	}
	o.last = id
	return lost, false
}

const (
	// silenceLimit is how long a tap that has sent heartbeats may at least send nothing at all, and longestSilence at most: the
	// silence is noticed within ten seconds.
	silenceLimit, longestSilence = 7 * time.Second, 60 * time.Second
	// lastWord is what a silent tap is given once more: a host that slept wakes to timers that are over and a socket that is full.
	lastWord       = time.Second
	heartbeatsSeen = 3
)

// silence tells when a tap has been silent for too long. Only one that sends heartbeats can be told from one that has nothing to say.
type silence struct {
	beats      int
	lastBeatNs int64
	longest    time.Duration // between heartbeats
	warned     bool
}

// limit is how long the next message may take.
func (s *silence) limit() time.Duration {
	if s.warned {
		return lastWord
	}
	return min(max(silenceLimit, 3*s.longest), longestSilence)
}

// broken takes a message.
func (s *silence) broken(hostNs int64, isHeartbeat bool) {
	s.warned = false
	if !isHeartbeat {
		return
	}
	if s.beats++; s.beats > 1 {
		s.longest = max(s.longest, time.Duration(hostNs-s.lastBeatNs))
	}
	s.lastBeatNs = hostNs
}

// over is asked when a limit has passed.
func (s *silence) over() bool {
	was := s.warned
	s.warned = true
	return was && s.beats >= heartbeatsSeen
}
