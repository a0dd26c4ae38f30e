package tap

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// Opcodes: the high byte of a word whose top bit is clear (wire.md, "Row stream"). The low byte is the argument.
const (
	opDefine = 0x01
	opRowEnd = 0x02
	opTime   = 0x05
	opReset  = 0x64
	opCopy   = 0x65
	opNull   = 0x68
	opStruct = 0x69
	opDrop   = 0x6A
	opCheck  = 0x6B

	longForm = 0xFF // argument of opCopy and opStruct: the number is on the stack
)

// A word with the top bit set carries 14 bits of a value; the bit below the top says that they are the last.
const (
	valueByte     = 0x80
	valueWord     = 0x8000
	lastValueWord = 0xC000
	valueBits     = 0x3FFF
	topBits       = 0x8000_8000_8000_8000 // of four words
)

// Bounds. A stream that passes one of them is broken: the device's own never come near. Together they keep a decoder, which has
// two cores, under 32 MiB whatever it is fed.
const (
	maxStack      = 16_384  // items; the device resets at about 5,000
	maxNodes      = 1 << 16 // values and structs alive: a stack of 5,000 and the arguments of a row need a tenth
	maxChildren   = 1 << 16 // places in structs alive, likewise
	maxTextBytes  = 8 << 20 // bytes of all values alive: 5,000 strings of some hundred bytes are 1 to 2 MB
	maxValueBytes = 1 << 20 // one value: unified logging cuts a message at 32 KB, and long data come in chunks of 8 bytes
	maxDepth      = 8       // structs in structs: message, argument and data make 3. Bounds the cost of walking through a value
	maxColumns    = 256     // of a table; known ones have at most 15
	maxNameBytes  = 128     // of a table or a column; known ones have at most 20
	tableIDs      = 1 << 8  // an id is one byte
	firstNodes    = 1 << 10 // sizes to begin with; they double as needed
	firstText     = 16 << 10
)

// Kinds of node.
const (
	kindNull = iota
	kindBytes
	kindStruct
)

// node is one pushed value or one struct. Alive, it never changes, so a copy on the stack is only another reference to it. Text
// and children are handed out in the order of the nodes: where the newest node's end, all that is in use ends.
type node struct {
	number      uint64 // the first 8 bytes, little-endian
	id          uint64 // see Value.ID
	count       uint32 // bytes, or places in the struct
	textEnd     uint32 // end of this node's bytes in text
	childrenEnd uint32 // end of this node's references in children
	kind        uint8
}

// ref is a reference to a node: its index, and above it how deep structs are nested in it (0 for a value).
type ref uint32

const depthShift = 24

func (r ref) index() uint { return uint(r & (1<<depthShift - 1)) }

// table is what reading a row takes.
type table struct {
	width   uint // columns in a row; 0: not defined
	wanted  bool
	name    string
	columns []int32 // where in the row each wanted column is; -1: nowhere
}

// mode is what a core makes of the stream.
type mode uint8

const (
	live  mode = iota // rows are reported
	seek              // skipping to the next reset
	trial             // a reset was found, a table definition has yet to prove that it was one
)

// stop says why reading ended.
type stop uint8

const (
	atEnd    stop = iota // everything was read
	onTrust              // the trial succeeded
	onStart              // the connection's first reset came late, with no table before it
	onDemand             // the handler called Break
	badOpcode
	badValue
	badReference
	badHeight
	badTable
	badNumber
	badDefinition
	tooMuch
	tooLong
	tooDeep
)

var faults = [...]string{
	badOpcode:     "no known opcode",
	badValue:      "an opcode in the middle of a value",
	badReference:  "a copy of an item that is not on the stack",
	badHeight:     "more items than are on the stack",
	badTable:      "the end of a row of an undefined table",
	badNumber:     "the item on top is no number in range",
	badDefinition: "no table definition: it takes a name and a struct of 1 to 256 column names",
	tooMuch:       "more on the stack than a device ever keeps there",
	tooLong:       "a value of more than 1 MiB",
	tooDeep:       "structs more than 8 deep",
}

// core is the stack machine, at one alignment of the stream.
//
// The low half of a slot of the stack is a ref. The high half is how many nodes were in use once the slot was filled: when it
// comes to the top again, nothing can refer to younger ones, and their place is free. Slot 0 and node 0 are a null that is
// always there.
type core struct {
	want   Want
	mode   mode
	tables [tableIDs]table
	row    Row
	broken bool // by the handler

	slots    [maxStack + 1]uint64
	height   uint // slots in use
	top      uint // nodes in use
	nodes    []node
	children []ref
	text     []byte // 8 bytes longer than may be used, so that 8 can be written and read at a time
	lastID   uint64
	defined  bool // some table is
	begun    bool // the connection has had a reset or a table

	// What the end of a payload tore.
	half     byte // first half of a word
	hasHalf  bool
	inValue  bool
	group    uint64 // bits of up to 4 words, which make 7 bytes
	words    uint   // in group
	valueLen uint   // bytes that are in text already

	at       int64 // stream offset of the word in hand
	lostAt   int64 // from where on the stream is of no use
	resetAt  int64 // of the last reset
	rowEnds  int64 // passed over since the stream broke
	rowsLost int64 // those before resetAt
}

func newCore(want Want) *core {
	c := &core{want: want, nodes: make([]node, firstNodes), children: make([]ref, firstNodes), text: make([]byte, firstText)}
	c.begin(live)
	return c
}

// begin makes the core as new, except for its memory and IDs.
func (c *core) begin(m mode) {
	c.mode, c.broken = m, false
	c.hasHalf, c.inValue, c.begun = false, false, false
	c.at, c.resetAt, c.rowEnds, c.rowsLost = 0, 0, 0, 0
	c.clear()
}

// clear empties the stack and forgets the tables.
func (c *core) clear() {
	c.slots[0] = slot(0, 1)
	c.height, c.top = 1, 1
	if c.defined {
		for i := range c.tables {
			c.tables[i].width = 0
		}
		c.defined = false
	}
}

func slot(r ref, top uint) uint64 { return uint64(r) | uint64(top)<<32 }

func (c *core) value(r ref) Value { return Value{c, &c.nodes[r.index()]} }

func (c *core) item(d uint) Value { return c.value(ref(c.slots[c.height-1-d])) }

// read takes the bytes p, which are at this offset of the stream, and returns how many it used and why it stopped. Only a live
// core reports faults; the last byte used is then the second one of the word at fault.
func (c *core) read(p []byte, offset int64, h Handler) (int, stop) {
	used := 0
	if c.hasHalf && len(p) > 0 {
		c.hasHalf = false
		word := [2]byte{c.half, p[0]}
		if _, s := c.readWords(word[:], offset-1, h); s != atEnd {
			return 1, s
		}
		used = 1
	}
	n, s := c.readWords(p[used:], offset+int64(used), h)
	used += n
	if s == atEnd && used < len(p) {
		c.half, c.hasHalf = p[used], true
		used++
	}
	return used, s
}

// readWords reads whole words, in any mode, and leaves an odd last byte.
func (c *core) readWords(p []byte, offset int64, h Handler) (int, stop) {
	i := 0
	for {
		for c.mode == seek && i+1 < len(p) {
			c.skip(p[i+1], offset+int64(i))
			i += 2
		}
		n, s := c.run(p[i:], offset+int64(i), h)
		i += n
		if s < badOpcode {
			return i, s
		}
		wasLive := c.mode == live
		c.lose()
		c.skip(p[i-1], c.at)
		if wasLive {
			return i, s
		}
	}
}

// lose leaves the rest of the stream to be skipped.
func (c *core) lose() {
	if c.mode == live {
		c.rowEnds, c.lostAt = 0, c.at
		if !c.begun {
			c.lostAt = 0
		}
	}
	c.mode, c.inValue = seek, false
}

// skip passes over one word.
func (c *core) skip(op byte, offset int64) {
	switch op {
	case opRowEnd:
		c.rowEnds++
	case opReset:
		c.mode = trial
		c.reset(offset)
	}
}

func (c *core) reset(offset int64) {
	c.clear()
	c.begun = true
	c.resetAt, c.rowsLost = offset, c.rowEnds
}

// run reads words in the modes live and trial. It is the decoder's speed: what nearly all words are, short values, copies and
// pairs, is done here, with the state in registers. What is rare, and what may be wrong, is left to longValue and step, which do
// everything in full.
func (c *core) run(p []byte, offset int64, h Handler) (int, stop) {
	i := uint(0)
	if c.inValue {
		n, s := c.longValue(p, offset)
		if c.inValue || s != atEnd {
			return n, s
		}
		i = uint(n)
	}
	height, top := c.height, c.top
	for i+1 < uint(len(p)) {
		word := uint(p[i]) | uint(p[i+1])<<8
		switch {
		case word-opCopy<<8 < longForm:
			from := height - 1 - (word - opCopy<<8) // where out of reach, slot 0 or below, which is far above height
			if from < height && from != 0 && height <= maxStack {
				c.slots[height] = slot(ref(c.slots[from]), top)
				height++
				i += 2
				continue
			}
		case word == opStruct<<8|2 && height >= 3 && height <= maxStack && top < uint(len(c.nodes)):
			last := &c.nodes[top-1]
			end := last.childrenEnd + 2
			first, second := ref(c.slots[height-2]), ref(c.slots[height-1])
			depth := max(first, second)>>depthShift + 1
			if uint(end) > uint(len(c.children)) || depth > maxDepth {
				break
			}
			c.children[end-2], c.children[end-1] = first, second
			c.lastID++
			n := &c.nodes[top]
			n.id, n.count, n.kind = c.lastID, 2, kindStruct
			n.textEnd, n.childrenEnd = last.textEnd, end
			height--
			c.slots[height-1] = slot(ref(top)|depth<<depthShift, top+1)
			top++
			i += 2
			continue
		case word >= valueWord && i+8 <= uint(len(p)) && height <= maxStack && top < uint(len(c.nodes)):
			four := binary.LittleEndian.Uint64(p[i:])
			ends := four & (four << 1) & topBits
			upToEnd := ends ^ (ends - 1)
			last := &c.nodes[top-1]
			if ends == 0 || ^four&topBits&upToEnd != 0 || uint(last.textEnd) > uint(len(c.text))-16 {
				break
			}
			words := uint(bits.TrailingZeros64(ends)+1) / 16
			count := 2*words - 1 // 14 bits are 1 byte, 28 are 3, 42 are 5, 56 are 7
			big := four&valueBits<<50 | four>>16&valueBits<<36 | four>>32&valueBits<<22 | four>>48&valueBits<<8
			number := bits.ReverseBytes64(big) & (1<<(8*count) - 1)
			binary.LittleEndian.PutUint64(c.text[last.textEnd:], number)
			c.lastID++
			n := &c.nodes[top]
			n.number, n.id, n.count, n.kind = number, c.lastID, uint32(count), kindBytes
			n.textEnd, n.childrenEnd = last.textEnd+uint32(count), last.childrenEnd
			c.slots[height] = slot(ref(top), top+1)
			height, top = height+1, top+1
			i += 2 * words
			continue
		}
		c.height, c.top = height, top
		c.at = offset + int64(i)
		n, s := 2, atEnd
		if word >= valueWord {
			n, s = c.longValue(p[i:], c.at)
		} else {
			s = c.step(byte(word>>8), word&0xff, h)
		}
		i += uint(n)
		if s != atEnd || c.inValue {
			return int(i), s
		}
		height, top = c.height, c.top
	}
	c.height, c.top = height, top
	return int(i), atEnd
}

// longValue reads the words of a value of any length, or goes on where the last payload ended (inValue).
func (c *core) longValue(p []byte, offset int64) (int, stop) {
	if !c.inValue {
		c.inValue, c.group, c.words, c.valueLen = true, 0, 0, 0
	}
	start := uint(c.nodes[c.top-1].textEnd)
	for i := 0; i+1 < len(p); i += 2 {
		c.at = offset + int64(i)
		word := uint64(binary.LittleEndian.Uint16(p[i:]))
		if word < valueWord {
			return i + 2, badValue
		}
		c.group = c.group<<14 | word&valueBits
		c.words++
		isLast := word >= lastValueWord
		if c.words < 4 && !isLast {
			continue
		}
		count := 14 * c.words / 8
		if c.valueLen+count > maxValueBytes {
			return i + 2, tooLong
		}
		if !c.makeRoom(start + c.valueLen + count) {
			return i + 2, tooMuch
		}
		// The bits beyond the last whole byte land in bytes that are not in use yet.
		binary.BigEndian.PutUint64(c.text[start+c.valueLen:], c.group<<(64-14*c.words))
		c.valueLen += count
		c.group, c.words = 0, 0
		if isLast {
			c.inValue = false
			return i + 2, c.pushBytes(start, c.valueLen)
		}
	}
	return len(p) &^ 1, atEnd
}

// tornBytes is how much has arrived of a word or a value that is not whole.
func (c *core) tornBytes() int64 {
	n := int64(0)
	if c.inValue {
		n = 2 * int64(c.valueLen/7*4+c.words)
	}
	if c.hasHalf {
		n++
	}
	return n
}

// makeRoom makes text long enough to end there, with 8 bytes to spare.
func (c *core) makeRoom(end uint) bool {
	if end > maxTextBytes {
		return false
	}
	if have, need := uint(len(c.text)), end+8; need > have {
		c.text = append(c.text, make([]byte, min(max(have, need-have), maxTextBytes+8-have))...)
	}
	return true
}

func (c *core) pushBytes(start, count uint) stop {
	number := binary.LittleEndian.Uint64(c.text[start:])
	if count < 8 {
		number &= 1<<(8*count) - 1
	}
	last := c.nodes[c.top-1]
	n := node{number: number, count: uint32(count), textEnd: uint32(start + count), childrenEnd: last.childrenEnd, kind: kindBytes}
	return c.pushNode(n, 0)
}

// pushNode pushes a new node with structs nested that deep.
func (c *core) pushNode(n node, depth ref) stop {
	if c.height > maxStack || c.top >= maxNodes {
		return tooMuch
	}
	if c.top == uint(len(c.nodes)) {
		c.nodes = append(c.nodes, make([]node, len(c.nodes))...)
	}
	c.lastID++
	n.id = c.lastID
	c.nodes[c.top] = n
	c.top++
	return c.push(ref(c.top-1) | depth<<depthShift)
}

func (c *core) push(r ref) stop {
	if c.height > maxStack {
		return tooMuch
	}
	c.slots[c.height] = slot(r, c.top)
	c.height++
	return atEnd
}

func (c *core) drop(n uint) stop {
	if n >= c.height {
		return badHeight
	}
	c.height -= n
	c.top = uint(c.slots[c.height-1] >> 32)
	return atEnd
}

// step does one opcode.
func (c *core) step(op byte, arg uint, h Handler) stop {
	switch op {
	case opDefine:
		return c.define(arg)
	case opRowEnd:
		return c.endRow(arg, h)
	case opTime:
		if c.height == 1 {
			return badHeight
		}
		return atEnd
	case opReset:
		isLate := !c.begun && c.mode == live && c.at > 0
		c.reset(c.at)
		if isLate {
			return onStart
		}
		return atEnd
	case opCopy:
		from := c.height - 1 - arg
		if arg == longForm {
			n, s := c.popNumber()
			if s != atEnd {
				return s
			}
			from = n // item n-1 from the bottom, and slot 0 lies below item 0
		}
		if from == 0 || from >= c.height {
			return badReference
		}
		return c.push(ref(c.slots[from]))
	case opNull:
		return c.push(0)
	case opStruct:
		if arg == longForm {
			n, s := c.popNumber()
			if s != atEnd {
				return s
			}
			arg = n
		}
		return c.pack(arg)
	case opDrop:
		return c.drop(arg)
	case opCheck:
		return c.drop(1)
	}
	return badOpcode
}

// popNumber pops a number that counts items of the stack.
func (c *core) popNumber() (uint, stop) {
	if c.height == 1 {
		return 0, badHeight
	}
	n, ok := c.item(0).Uint64()
	if !ok || n > maxStack {
		return 0, badNumber
	}
	return uint(n), c.drop(1)
}

// pack makes the n top items one struct. Their nodes stay in use.
func (c *core) pack(n uint) stop {
	if n >= c.height {
		return badHeight
	}
	last := c.nodes[c.top-1]
	start := uint(last.childrenEnd)
	if start+n > maxChildren {
		return tooMuch
	}
	if start+n > uint(len(c.children)) {
		c.children = append(c.children, make([]ref, max(uint(len(c.children)), n))...)
	}
	places, items := c.children[start:start+n], c.slots[c.height-n:c.height]
	deepest := ref(0)
	for i := range places {
		places[i] = ref(items[i])
		deepest = max(deepest, places[i])
	}
	depth := deepest>>depthShift + 1
	if depth > maxDepth {
		return tooDeep
	}
	c.height -= n
	return c.pushNode(node{count: uint32(n), textEnd: last.textEnd, childrenEnd: uint32(start + n), kind: kindStruct}, depth)
}

func (c *core) define(id uint) stop {
	if c.height-1 < 4 {
		return badHeight
	}
	columns, name := c.item(0), c.item(1)
	width := columns.Len()
	if width < 1 || width > maxColumns || !isName(name.Text()) {
		return badDefinition
	}
	for i := range width {
		if !isName(columns.At(i).Text()) {
			return badDefinition
		}
	}
	t := &c.tables[id]
	t.width, t.columns = uint(width), t.columns[:0]
	wanted, isWanted := c.want[string(name.Text())]
	t.wanted = isWanted
	if isWanted {
		t.name = name.String()
	}
	for _, want := range wanted {
		t.columns = append(t.columns, indexOf(columns, want))
	}
	c.defined, c.begun = true, true
	if s := c.drop(4); s != atEnd || c.mode == live {
		return s
	}
	c.mode = live
	return onTrust
}

// indexOf is the first column of that name, or -1.
func indexOf(columns Value, name string) int32 {
	for i := range columns.Len() {
		if string(columns.At(i).Text()) == name {
			return int32(i)
		}
	}
	return -1
}

// isName reports whether the device could have given a table or a column this name: printable ASCII.
func isName(text []byte) bool {
	if len(text) == 0 || len(text) > maxNameBytes {
		return false
	}
	for _, b := range text {
		if b < ' ' || b > '~' {
			return false
		}
	}
	return true
}

func (c *core) endRow(id uint, h Handler) stop {
	t := &c.tables[id]
	if t.width == 0 {
		return badTable
	}
	if t.width >= c.height {
		return badHeight
	}
	if t.wanted {
		c.row = Row{c, t, c.height - t.width}
		c.broken = false
		h.Row(&c.row)
		if c.broken {
			return onDemand
		}
	}
	return c.drop(t.width)
}

// fault tells what is wrong with the word at c.at.
func (c *core) fault(s stop) string {
	return fmt.Sprintf("byte %d of the row stream, %d items on the stack: %s; rows are skipped until the next reset",
		c.at, c.height-1, faults[s])
}
