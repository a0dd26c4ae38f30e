package p95

import (
	"cmp"
	"slices"
)

// largest counts the largest of the window's frame times, as far down as the P95 has to look: of most records it asks one comparison. The
// window's ring has all of them, for when these run out.
type largest struct {
	floorNs  uint32 // values from here up are counted here, and no others
	counted  int
	distinct int
	runs     [maxValues]run // the first distinct of them, with falling timeNs
}

// run is a frame time, and how many values have it.
type run struct{ timeNs, n uint32 }

// clear is for a window without values.
func (l *largest) clear() { l.floorNs, l.counted, l.distinct = 0, 0, 0 }

// find is the place of the first run that is not above timeNs.
func (l *largest) find(timeNs uint32) int {
	low, high := 0, l.distinct
	for low < high {
		if middle := int(uint(low+high) / 2); l.runs[middle].timeNs > timeNs {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

func (l *largest) add(timeNs uint32) {
	if timeNs < l.floorNs {
		return
	}
	i := l.find(timeNs)
	if i == l.distinct || l.runs[i].timeNs != timeNs {
		copy(l.runs[i+1:l.distinct+1], l.runs[i:l.distinct])
		l.runs[i] = run{timeNs: timeNs}
		l.distinct++
	}
	l.runs[i].n++
	l.counted++
}

// remove takes out a value of the window.
func (l *largest) remove(timeNs uint32) {
	if timeNs < l.floorNs {
		return
	}
	l.counted--
	i := l.find(timeNs)
	if l.runs[i].n--; l.runs[i].n == 0 {
		copy(l.runs[i:l.distinct-1], l.runs[i+1:l.distinct])
		l.distinct--
	}
}

// hide leaves a value of the window out of what nth counts, until it is shown again.
func (l *largest) hide(timeNs uint32) {
	if timeNs >= l.floorNs {
		l.runs[l.find(timeNs)].n--
	}
}

func (l *largest) show(timeNs uint32) {
	if timeNs >= l.floorNs {
		l.runs[l.find(timeNs)].n++
	}
}

// nth is the nth largest value, from 1; ok is false where so many are not counted here.
func (l *largest) nth(n int) (timeNs uint32, ok bool) {
	for i := range l.runs[:l.distinct] {
		r := &l.runs[i]
		if n -= int(r.n); n <= 0 {
			return r.timeNs, true
		}
	}
	return 0, false
}

// trim leaves out the smaller ones of those counted, where these are more than twice n, so that n or a few more remain.
func (l *largest) trim(n int) {
	if l.counted <= 2*n || l.counted-int(l.runs[l.distinct-1].n) < n {
		return
	}
	l.counted = 0
	for i := range l.runs[:l.distinct] {
		r := &l.runs[i]
		if l.counted += int(r.n); l.counted >= n {
			l.distinct, l.floorNs = i+1, r.timeNs
			return
		}
	}
}

// fill counts all values from the nth largest up, all of the window where it has fewer.
func (l *largest) fill(n int, w *window) {
	l.clear()
	if n < int(w.count) {
		l.floorNs = w.nthLargest(n)
	}
	for i := range w.count {
		if timeNs := w.value(i).frameTimeNs; timeNs >= l.floorNs {
			l.runs[l.distinct] = run{timeNs: timeNs, n: 1}
			l.distinct++
		}
	}
	l.counted = l.distinct
	slices.SortFunc(l.runs[:l.distinct], func(a, b run) int { return cmp.Compare(b.timeNs, a.timeNs) })
	// Equal ones, side by side now, become one run.
	runs := l.runs[:l.distinct]
	l.distinct = 0
	for _, r := range runs {
		if last := l.distinct - 1; last >= 0 && l.runs[last].timeNs == r.timeNs {
			l.runs[last].n++
			continue
		}
		l.runs[l.distinct] = r
		l.distinct++
	}
}
