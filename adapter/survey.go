package adapter

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/framebridge/framebridge/dtx/tap"
)

// Counts is everything that an Adapter counts.
type Counts struct {
	Messages            int64 // payloads with rows
	StatusMessages      int64 // payloads that were status or heartbeat objects
	Rows                int64 // of every table
	UnreadableRows      int64 // ContextInfo rows that name no process or no frame
	UnreadableFrameRows int64 // each is a gap, too
	PartialContributors int64 // FrameUpdate rows whose contributors could not all be read, or were more than MaxContributors
	JudgeStats
	PairCounts
	Names         []NameCount // sorted by subsystem, category and name
	OtherNameRows int64       // rows of kinds that came after MaxNames others
}

// NameCount counts the rows of one kind. Rows of other tables than os-signpost have the table's name in parentheses, and nothing else.
type NameCount struct {
	Subsystem, Category, Name string
	Rows                      int64
	Example                   string // the message of the first row that had one, shortened
	Frames                    bool   // the name and category of a form that tells frames
}

const (
	// MaxNames bounds the kinds of rows told apart, besides frames and ContextInfo. A phone asked for every signpost has some hundred.
	MaxNames = 1024
	// maxWordBytes bounds what is kept of a subsystem, category or name.
	maxWordBytes = 256
	// maxExampleBytes bounds what is kept of a message.
	maxExampleBytes = 400
)

// class is one kind of row.
type class struct {
	classKey
	form       formID
	categoryID categoryID // where form is not formNone
	rows       int64
	example    string
}

type classKey struct{ subsystem, category, name string }

// survey tells the kinds of rows apart and counts them.
type survey struct {
	classes map[classKey]*class
	forms   int              // of classes: what the adapter reads
	others  class            // kinds beyond MaxNames
	tables  map[string]int64 // rows of other tables than os-signpost
	// byID finds a class by the identities of its three words on the device's stack.
	byID [64]struct {
		subsystem, category, name uint64
		class                     *class
	}
}

// init knows the frame forms beforehand, so that no number of other kinds can hide them.
func (s *survey) init() {
	s.classes, s.tables = map[classKey]*class{}, map[string]int64{}
	for id, c := range frameCategories {
		for form := formNone + 1; form < formCount; form++ {
			key := classKey{c.subsystem, c.category, formNames[form]}
			s.classes[key] = &class{classKey: key, form: form, categoryID: categoryID(id)}
		}
	}
	s.forms = len(s.classes)
}

// class is nil where the row has a struct for a word.
func (s *survey) class(row *tap.Row) *class {
	subsystem, category, name := row.Value(columnSubsystem), row.Value(columnCategory), row.Value(columnName)
	ids := [3]uint64{subsystem.ID(), category.ID(), name.ID()}
	slot := &s.byID[(ids[0]*31+ids[1]*7+ids[2])%uint64(len(s.byID))]
	if slot.class != nil && slot.subsystem == ids[0] && slot.category == ids[1] && slot.name == ids[2] {
		return slot.class
	}
	if subsystem.IsStruct() || category.IsStruct() || name.IsStruct() {
		return nil
	}
	c := s.lookup(word(subsystem), word(category), word(name))
	slot.subsystem, slot.category, slot.name, slot.class = ids[0], ids[1], ids[2], c
	return c
}

func word(v tap.Value) []byte { return bounded(v.Text(), maxWordBytes) }

func bounded(text []byte, most int) []byte { return text[:min(len(text), most)] }

func (s *survey) lookup(subsystem, category, name []byte) *class {
	if c := s.classes[classKey{string(subsystem), string(category), string(name)}]; c != nil {
		return c
	}
	if len(s.classes) >= s.forms+MaxNames {
		return &s.others
	}
	key := classKey{string(subsystem), string(category), string(name)}
	c := &class{classKey: key}
	s.classes[key] = c
	return c
}

func (s *survey) counts() (names []NameCount, others int64) {
	for key, c := range s.classes {
		if c.rows > 0 {
			names = append(names, NameCount{key.subsystem, key.category, key.name, c.rows, c.example, c.form != formNone && c.form != formContextInfo})
		}
	}
	for name, rows := range s.tables {
		names = append(names, NameCount{Name: "(" + name + ")", Rows: rows})
	}
	slices.SortFunc(names, func(a, b NameCount) int {
		return cmp.Or(cmp.Compare(a.Subsystem, b.Subsystem), cmp.Compare(a.Category, b.Category), cmp.Compare(a.Name, b.Name))
	})
	return names, s.others.rows
}

// example is a message as text, for people.
func example(message tap.Value) string {
	var text []byte
	for i := 0; i < message.Len() && len(text) < maxExampleBytes; i++ {
		word, v := message.At(i).At(0).Text(), message.At(i).At(1)
		n, isNumber := v.Uint64()
		switch kind := kindOf(word); {
		case kind == itemNarrative || kind == itemText:
			text = append(text, v.Text()...)
		case kind == itemNumber && isNumber && string(word) == "uint64-hex-lowercase":
			text = strconv.AppendUint(append(text, "0x"...), n, 16)
		case kind == itemNumber && isNumber:
			text = strconv.AppendUint(text, n, 10)
		default:
			text = append(append(append(text, '<'), word...), '>')
		}
	}
	return string(text[:min(len(text), maxExampleBytes)])
}
