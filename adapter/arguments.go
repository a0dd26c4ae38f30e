package adapter

import (
	"math"
	"strings"

	"github.com/framebridge/framebridge/dtx/tap"
)

const (
	maxArguments = 12 // the most that a form reads
	// maxItems bounds a message's literal texts and values. FrameUpdate, the longest form known, has 23.
	maxItems = 128
	// maxLayouts bounds the format strings kept; the device has one for each place in its code that emits what we read.
	maxLayouts = 256
	// maxFormatBytes bounds a format string; the longest known has some 900. Of a longer one's arguments only the literal texts tell.
	maxFormatBytes = 8 << 10
	// maxNameBytes bounds an argument's name; the longest known has 41.
	// Longer ones are cut, and so are no name that we know.
	maxNameBytes = 64
)

// argument is a form's own number for one of its arguments; noArgument is one that it does not read.
type argument int8

const noArgument argument = -1

// resolver says which argument of a form a placeholder is. name is in lower case without separators, generator the word behind
// "signpost.generator:", "" where there is none.
type resolver func(name []byte, generator string) argument

// arguments are the values of one message, by argument.
type arguments struct {
	state  [maxArguments]argumentState
	number [maxArguments]uint64
	object [maxArguments]tap.Value // of strings and data
}

type argumentState uint8

const (
	argumentAbsent   argumentState = iota
	argumentNumber                 // an integer, in number
	argumentText                   // in object
	argumentData                   // in object
	argumentUnusable               // there, but private, no integer, or of an unknown type
)

func (a *arguments) setNumber(i argument, n uint64) { a.state[i], a.number[i] = argumentNumber, n }

// require reads a required argument as int64 into r. The first one that cannot be used gives the fault.
func (a *arguments) require(i argument, r *Record, has Fields, to *int64, fault *string) {
	reason := ""
	switch {
	case a.state[i] == argumentAbsent:
		reason = ReasonArgumentMissing
	case a.state[i] != argumentNumber:
		reason = ReasonArgumentType
	case a.number[i] > math.MaxInt64: // or negative, which looks the same
		reason = ReasonArgumentRange
	default:
		*to, r.Fields = int64(a.number[i]), r.Fields|has
	}
	if *fault == "" {
		*fault = reason
	}
}

// reported reads an optional argument: absent, unusable and 0 all mean that the device did not report it.
func (a *arguments) reported(i argument, r *Record, has Fields, to *int64) {
	if a.state[i] == argumentNumber && a.number[i] != 0 && a.number[i] <= math.MaxInt64 {
		*to, r.Fields = int64(a.number[i]), r.Fields|has
	}
}

// layout says which arguments a message's values are, in order, as worked out from its format string.
type layout struct {
	all []argument
	// untimed is all without begin_time and end_time, which the device's log loader takes out of messages when it turns one event
	// into a Begin and an End row.
	untimed []argument
}

func newLayout(format string, resolve resolver) *layout {
	l := &layout{}
	var name []byte
	for _, p := range parseFormat(format) {
		name = appendNormalName(name[:0], p.name)
		i := resolve(name, p.generator)
		l.all = append(l.all, i)
		if !p.time {
			l.untimed = append(l.untimed, i)
		}
	}
	return l
}

// placeholder is one %{…}… of a format string.
type placeholder struct {
	name      string // as spelled, "" where nothing tells
	generator string
	time      bool // begin_time or end_time of an interval
}

// parseFormat finds the placeholders of an os_log format string. A name comes from what the placeholder is for, from name=, or from the
// last word in front of it.
func parseFormat(format string) []placeholder {
	var found []placeholder
	literal := 0 // where the text in front of the next placeholder begins
	for i := 0; i < len(format); {
		if format[i] != '%' {
			i++
			continue
		}
		if strings.HasPrefix(format[i:], "%%") {
			i += 2
			continue
		}
		p := placeholder{name: lastWord(format[literal:i])}
		i++
		if i < len(format) && format[i] == '{' {
			options, _, _ := strings.Cut(format[i+1:], "}")
			i = min(i+len(options)+2, len(format))
			p.options(options)
		}
		for i < len(format) && strings.IndexByte("-+ #0123456789.*'hlqjztL", format[i]) >= 0 {
			i++
		}
		i = min(i+1, len(format)) // the conversion letter
		literal = i
		found = append(found, p)
	}
	return found
}

func (p *placeholder) options(list string) {
	special := ""
	for option := range strings.SplitSeq(list, ",") {
		option = strings.TrimSpace(option)
		if name, ok := strings.CutPrefix(option, "name="); ok {
			p.name = name
		} else if name, ok := strings.CutPrefix(option, "signpost.description:"); ok && (name == "begin_time" || name == "end_time") {
			special, p.time = name, true
		} else if generator, ok := strings.CutPrefix(option, "signpost.generator:"); ok {
			p.generator = generator
			if generator == "base_mct" {
				special = generator
			}
		}
	}
	if special != "" {
		p.name = special
	}
}

// lastWord is the last run of name characters in text, as in " frame_seed=".
func lastWord[T string | []byte](text T) T {
	end := len(text)
	for end > 0 && !nameByte(text[end-1]) {
		end--
	}
	start := end
	for start > 0 && nameByte(text[start-1]) {
		start--
	}
	return text[start:end]
}

func nameByte(c byte) bool {
	return c == '_' || c == '-' || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}

// appendNormalName makes snake, camel and kebab spellings of one name the same.
func appendNormalName[T string | []byte](dst []byte, name T) []byte {
	for i := range min(len(name), maxNameBytes) {
		switch c := name[i]; {
		case 'A' <= c && c <= 'Z':
			dst = append(dst, c|0x20)
		case c != '_' && c != '-':
			dst = append(dst, c)
		}
	}
	return dst
}

// itemKind is what a message item's type word says of its value.
type itemKind uint8

const (
	itemOther itemKind = iota
	itemNarrative
	itemNumber
	itemText
	itemData
)

// kindOf knows a type word. Integers come as uint64, uint64-hex-lowercase and address; fixed-decimal is a floating-point number.
func kindOf[T string | []byte](word T) itemKind {
	switch w := string(word); {
	case w == "narrative-text":
		return itemNarrative
	case strings.HasPrefix(w, "uint"), strings.HasPrefix(w, "int"), w == "address":
		return itemNumber
	case w == "string":
		return itemText
	case w == "data":
		return itemData
	}
	return itemOther
}

// messages reads messages of the row stream. It remembers what strings on the device's stack mean.
type messages struct {
	kinds  idCache[itemKind]
	values [maxItems]item // of the message at hand, narrative left out
	name   []byte         // room for one argument's name
}

type item struct {
	kind  itemKind
	value tap.Value
	named tap.Value // the literal text right in front of it, null where there is none
}

// read fills a with the values of message. ok is false where it is no list of (type, value) pairs: then the row is not what the device
// sent, and nor may other rows be.
func (m *messages) read(message, format tap.Value, f *formatStrings, a *arguments) (ok bool) {
	a.state = [maxArguments]argumentState{}
	if message.IsNull() {
		return true
	}
	n := message.Len()
	if !message.IsStruct() || n > maxItems {
		return false
	}
	values := m.values[:0]
	var literal tap.Value
	for i := range n {
		pair := message.At(i)
		word := pair.At(0)
		if !pair.IsNull() && pair.Len() != 2 || word.IsStruct() { // the loader sends null for an argument that it has no value of
			return false
		}
		kind := m.kind(word)
		if kind == itemNarrative {
			literal = pair.At(1)
			continue
		}
		values = append(values, item{kind, pair.At(1), literal})
		literal = tap.Value{}
	}
	var order []argument
	if l := f.layout(format); l != nil {
		switch len(values) {
		case len(l.all):
			order = l.all
		case len(l.untimed):
			order = l.untimed
		}
	}
	for k := range values {
		v := &values[k]
		i := noArgument
		if order != nil {
			i = order[k]
		} else {
			m.name = appendNormalName(m.name[:0], lastWord(v.named.Text()))
			i = f.resolve(m.name, "")
		}
		if i != noArgument && a.state[i] == argumentAbsent {
			a.set(i, v)
		}
	}
	return true
}

func (a *arguments) set(i argument, v *item) {
	switch v.kind {
	case itemNumber:
		if n, ok := v.value.Uint64(); ok {
			a.setNumber(i, n)
			return
		}
	case itemText:
		a.state[i], a.object[i] = argumentText, v.value
		return
	case itemData:
		a.state[i], a.object[i] = argumentData, v.value
		return
	}
	a.state[i] = argumentUnusable
}

func (m *messages) kind(word tap.Value) itemKind {
	id := word.ID()
	if kind, ok := m.kinds.get(id); ok {
		return kind
	}
	kind := kindOf(word.Text())
	m.kinds.put(id, kind)
	return kind
}

// formatStrings is what is known of one form's format strings.
type formatStrings struct {
	resolve resolver
	// Layouts are found by the identity of the format string on the device's stack, or else by its content.
	byID      idCache[*layout]
	byContent map[string]*layout
}

// layout is nil where there is no format string, or none that could be the device's.
func (f *formatStrings) layout(format tap.Value) *layout {
	if format.IsNull() || format.IsStruct() {
		return nil
	}
	if l, ok := f.byID.get(format.ID()); ok {
		return l
	}
	l := f.byContent[string(format.Text())]
	if l == nil && len(format.Bytes()) <= maxFormatBytes {
		if f.byContent == nil || len(f.byContent) == maxLayouts {
			f.byContent = map[string]*layout{}
		}
		text := format.String()
		l = newLayout(text, f.resolve)
		f.byContent[text] = l
	}
	f.byID.put(format.ID(), l)
	return l
}

// idCache remembers one thing for each of the last values asked for, by tap.Value.ID, which is never used for other content again.
type idCache[T any] struct {
	slots [64]struct {
		id    uint64
		known bool
		value T
	}
}

func (c *idCache[T]) get(id uint64) (v T, ok bool) {
	s := &c.slots[id%uint64(len(c.slots))]
	return s.value, s.known && s.id == id
}

func (c *idCache[T]) put(id uint64, v T) {
	s := &c.slots[id%uint64(len(c.slots))]
	s.id, s.known, s.value = id, true, v
}
