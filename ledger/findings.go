package ledger

import (
	"fmt"
	"slices"
	"sync"
)

// Finding is one thing that a verification found wrong.
type Finding struct {
	Where string // a file, with line, byte or entry where that is known
	What  string // what was expected and what was found
	// Leftover says that an interrupted sealing left it in a session. Recover removes it; no byte that was sealed is another for it.
	Leftover bool `json:"-"`
}

func (f Finding) String() string { return f.Where + ": " + f.What }

// found is a finding about the entries first to last, and what kind of thing it is.
type found struct {
	first, last int64
	class       string
	Finding
}

// findings gathers what several goroutines find.
type findings struct {
	mu      sync.Mutex
	list    []found
	dropped int64
}

// maxFindings bounds memory: one cause, such as a cut file, is found at every entry behind it.
const maxFindings = 10_000

func (f *findings) add(one found) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.list) == maxFindings {
		f.dropped++
		return
	}
	f.list = append(f.list, one)
}

// merged tells findings of one kind about entries that follow each other once, at the first.
func (f *findings) merged() []Finding {
	slices.SortStableFunc(f.list, func(a, b found) int { return int(a.first - b.first) })
	var merged []found
	open := map[string]int{} // the last of each class
	for _, one := range f.list {
		if i, ok := open[one.class]; ok && one.class != "file" && one.first <= merged[i].last+1 {
			merged[i].last = one.last
			continue
		}
		open[one.class] = len(merged)
		merged = append(merged, one)
	}
	var list []Finding
	for _, one := range merged {
		if one.last > one.first {
			one.What += fmt.Sprintf(" (and so on to entry %d)", one.last)
		}
		list = append(list, one.Finding)
	}
	if f.dropped > 0 {
		list = append(list, Finding{Where: "ledger", What: fmt.Sprintf("%d more findings", f.dropped)})
	}
	return list
}
