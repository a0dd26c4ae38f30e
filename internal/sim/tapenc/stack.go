package tapenc

import (
	"encoding/binary"
	"math/bits"
)

// Words of the row stream: the high byte says what happens, the low byte to how many or to which.
const (
	opTable  = 0x0100
	opRow    = 0x0200
	opTime   = 0x0500
	opReset  = 0x6400
	opCopy   = 0x6500
	opNull   = 0x6800
	opStruct = 0x6900
	opDrop   = 0x6a00
	opCheck  = 0x6b00

	opMore = 0x8000 // 14 bits of a value, more follow
	opLast = 0xc000 // its last 14 bits

	long = 255 // a low byte that says: the number is on the stack
)

// stack writes words and keeps count of the items that a reader of them has on its stack.
type stack struct {
	buf   []byte
	depth int
}

func (s *stack) word(w int) { s.buf = binary.LittleEndian.AppendUint16(s.buf, uint16(w)) }

// num pushes v in as few bytes as hold it.
func (s *stack) num(v uint64) { s.chunk(v, max(1, (bits.Len64(v)+7)/8)) }

// chunk pushes the n lowest bytes of v, lowest first.
func (s *stack) chunk(v uint64, n int) {
	rest := bits.ReverseBytes64(v)
	for left := 8 * n; left > 14; left -= 14 {
		s.word(opMore | int(rest>>50))
		rest <<= 14
	}
	s.word(opLast | int(rest>>50))
	s.depth++
}

// text pushes t and a NUL.
func (s *stack) text(t string) {
	acc, n := 0, 0
	for i := 0; i <= len(t); i++ {
		b := 0
		if i < len(t) {
			b = int(t[i])
		}
		acc, n = acc<<8|b, n+8
		if n > 14 {
			n -= 14
			s.word(opMore | acc>>n&0x3fff)
			acc &= 1<<n - 1
		}
	}
	s.word(opLast | acc<<(14-n)&0x3fff)
	s.depth++
}

// data pushes b as a struct of 8-byte chunks.
func (s *stack) data(b []byte) {
	n := 0
	for ; len(b) >= 8; b = b[8:] {
		s.chunk(binary.LittleEndian.Uint64(b), 8)
		n++
	}
	if len(b) > 0 {
		var last [8]byte
		copy(last[:], b)
		s.chunk(binary.LittleEndian.Uint64(last[:]), len(b))
		n++
	}
	s.group(n)
}

func (s *stack) null() {
	s.word(opNull)
	s.depth++
}

// group makes one struct of the top n items.
func (s *stack) group(n int) {
	if n < long {
		s.word(opStruct | n)
	} else {
		s.num(uint64(n))
		s.word(opStruct | long)
		s.depth--
	}
	s.depth += 1 - n
}

// copy pushes a copy of the item at index, counted from the bottom.
func (s *stack) copy(index int) {
	if d := s.depth - 1 - index; d < long {
		s.word(opCopy | d)
		s.depth++
		return
	}
	s.num(uint64(index) + 1)
	s.word(opCopy | long)
}

// drop takes the top n items away; n is below 256.
func (s *stack) drop(n int) {
	s.word(opDrop | n)
	s.depth -= n
}

// mark says that the top item is a mach continuous time.
func (s *stack) mark() { s.word(opTime) }

// check lets the reader compare nothing: the encoder pushes what it believes the depth to be and takes it away again.
func (s *stack) check() {
	s.num(uint64(s.depth))
	s.word(opCheck)
	s.depth--
}

// table defines table id from the four items on top.
func (s *stack) table(id int) {
	s.word(opTable | id)
	s.depth -= 4
}

// row ends a row of table id, which has n columns.
func (s *stack) row(id, n int) {
	s.word(opRow | id)
	s.depth -= n
}

func (s *stack) reset() {
	s.word(opReset)
	s.depth = 0
}
