package lab27

import "fmt"

// Kind is what sort of thing is wrong. It is an error, so that errors.Is(err, lab27.Torn) tells.
type Kind string

func (k Kind) Error() string { return string(k) }

const (
	Schema   Kind = "schema"   // not the JSON, the members or the types of the contract
	Bounds   Kind = "bounds"   // more than the contract allows
	Unsealed Kind = "unsealed" // no summary: the app ended before it sealed
	Torn     Kind = "torn"     // a file ends early
	Missing  Kind = "missing"  // a file that the summary names is not there
	Hash     Kind = "hash"     // size or SHA-256 differ from the summary's, or the summary's seal is broken
	Other    Kind = "other"    // not the run that was asked for
	Phase    Kind = "phase"    // unknown, out of order, or not as long as planned
	Order    Kind = "order"    // numbers with holes, or times that do not rise
	Count    Kind = "count"    // figures that do not add up
	Clock    Kind = "clock"    // times that contradict each other
)

// Problem is one thing wrong with a bundle, and where.
type Problem struct {
	Kind   Kind
	File   string
	Line   int   // from 1; 0 = the file as a whole
	Byte   int64 // offset in the file
	Detail string
}

func (p *Problem) Error() string {
	if p.Line == 0 {
		return fmt.Sprintf("%s, byte %d: %s: %s", p.File, p.Byte, p.Kind, p.Detail)
	}
	return fmt.Sprintf("%s, line %d, byte %d: %s: %s", p.File, p.Line, p.Byte, p.Kind, p.Detail)
}

// Unwrap makes errors.Is work with a Kind.
func (p *Problem) Unwrap() error { return p.Kind }
