package capture

// steadyMessages is how many messages of the tap must have come with identifiers that follow one another before a jump is taken for
// a loss. The identifiers count what the device starts on the connection; that nothing else uses them up is seen, not documented.
const steadyMessages = 8

// order tells from the identifiers of the tap's messages whether they are all there. Each connection has its own.
type order struct {
	last   uint32
	steady int // messages in a row that followed one another
	any    bool
}

// next takes the identifier of a message. lost is how many messages are missing before it; repeated says that it came before.
func (o *order) next(id uint32) (lost int64, repeated bool) {
	switch {
	case !o.any:
		o.any = true
	case id == o.last+1:
		o.steady++
	case id == o.last:
		return 0, true
	case o.steady >= steadyMessages && id-o.last < 1<<31:
		lost = int64(id - o.last - 1)
		o.steady = 0
	default:
		o.steady = 0
	}
	o.last = id
	return lost, false
}
