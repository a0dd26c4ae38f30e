package p95

import (
	"math"
	"math/bits"
)

const (
	leafKeys = 64
	// maxLeaves cannot be reached: two neighbours hold more than leafKeys/2 keys together (remove sees to that), so maxValues keys
	// need at most 2*4096/33 + 1 = 249 leaves.
	maxLeaves = 256
	noKey     = math.MaxUint64 // stands behind the last key everywhere, so that a search need not know how many there are
)

// sorted is an ordered set of at most maxValues distinct keys, cut into short sorted leaves.
type sorted struct {
	used int // leaves in use
	// place is a permutation of all leaves: the first used of them in the order of their keys, then the free ones.
	place  [maxLeaves]uint8
	lowest [maxLeaves]uint64 // lowest[i] is the lowest key of leaf place[i], kept together for the search
	leaves [maxLeaves]leaf
}

type leaf struct {
	n    int
	keys [leafKeys]uint64
}

func (s *sorted) init() {
	for i := range s.place {
		s.place[i] = uint8(i)
		s.lowest[i] = noKey
	}
}

func (s *sorted) clear() {
	for i := range s.used {
		s.lowest[i] = noKey
	}
	s.used = 0
}

// notAbove adds up how many of the keys are not above key, without a branch that depends on them: what a search cannot predict costs
// more than a few comparisons too many.
func notAbove(keys []uint64, key uint64) int {
	above := uint64(0)
	for _, k := range keys {
		_, borrow := bits.Sub64(key, k, 0)
		above += borrow
	}
	return len(keys) - int(above)
}

// find is the leaf in which key is or belongs.
func (s *sorted) find(key uint64) int {
	const step = 16
	at := 0
	for at+step < s.used && s.lowest[at+step] <= key {
		at += step
	}
	return max(at+notAbove(s.lowest[at:at+step], key)-1, 0)
}

// find is the number of the leaf's keys that are not above key.
func (l *leaf) find(key uint64) int {
	const step = 8
	above := uint64(0)
	for i := step - 1; i < leafKeys-step; i += step {
		_, borrow := bits.Sub64(key, l.keys[i], 0)
		above += borrow
	}
	at := leafKeys - step - step*int(above)
	return at + notAbove(l.keys[at:at+step], key)
}

func (s *sorted) insert(key uint64) {
	if s.used == 0 {
		s.openLeaf(0)
	}
	at := s.find(key)
	l := &s.leaves[s.place[at]]
	if l.n == leafKeys {
		s.split(at)
		if key > s.lowest[at+1] {
			at++
		}
		l = &s.leaves[s.place[at]]
	}
	i := l.find(key)
	copy(l.keys[i+1:l.n+1], l.keys[i:l.n])
	l.keys[i] = key
	l.n++
	s.lowest[at] = l.keys[0]
}

// remove takes out a key that is there.
func (s *sorted) remove(key uint64) {
	at := s.find(key)
	l := &s.leaves[s.place[at]]
	i := l.find(key) - 1
	copy(l.keys[i:l.n-1], l.keys[i+1:l.n])
	l.n--
	l.keys[l.n] = noKey
	s.lowest[at] = l.keys[0]
	switch {
	case l.n == 0:
		s.closeLeaf(at)
	case at > 0 && s.mergeable(at-1):
		s.merge(at - 1)
	case at+1 < s.used && s.mergeable(at):
		s.merge(at)
	}
}

func (s *sorted) mergeable(at int) bool {
	return s.leaves[s.place[at]].n+s.leaves[s.place[at+1]].n <= leafKeys/2
}

// merge moves the keys of leaf at+1 into leaf at.
func (s *sorted) merge(at int) {
	to, from := &s.leaves[s.place[at]], &s.leaves[s.place[at+1]]
	to.n += copy(to.keys[to.n:], from.keys[:from.n])
	s.closeLeaf(at + 1)
}

// split moves the upper half of leaf at into a new one behind it.
func (s *sorted) split(at int) {
	s.openLeaf(at + 1)
	from, to := &s.leaves[s.place[at]], &s.leaves[s.place[at+1]]
	to.n = copy(to.keys[:], from.keys[leafKeys/2:])
	from.n = leafKeys / 2
	for i := from.n; i < leafKeys; i++ {
		from.keys[i] = noKey
	}
	s.lowest[at+1] = to.keys[0]
}

// openLeaf puts a free leaf, empty, at place at.
func (s *sorted) openLeaf(at int) {
	id := s.place[s.used]
	copy(s.place[at+1:s.used+1], s.place[at:s.used])
	copy(s.lowest[at+1:s.used+1], s.lowest[at:s.used])
	s.place[at] = id
	l := &s.leaves[id]
	l.n = 0
	for i := range l.keys {
		l.keys[i] = noKey
	}
	s.used++
}

func (s *sorted) closeLeaf(at int) {
	id := s.place[at]
	s.used--
	copy(s.place[at:s.used], s.place[at+1:s.used+1])
	copy(s.lowest[at:s.used], s.lowest[at+1:s.used+1])
	s.place[s.used] = id
	s.lowest[s.used] = noKey
}

// nthLargest is the nth largest (from 1) of the keys whose low 32 bits lie in [first, first+n) modulo 2^32; all says that all keys
// do. There must be so many.
func (s *sorted) nthLargest(nth int, first, n uint32, all bool) uint64 {
	for at := s.used - 1; ; at-- {
		l := &s.leaves[s.place[at]]
		keys := l.keys[:l.n]
		if all {
			if nth <= len(keys) {
				return keys[len(keys)-nth]
			}
			nth -= len(keys)
			continue
		}
		for i := len(keys) - 1; i >= 0; i-- {
			if uint32(keys[i])-first < n {
				if nth--; nth == 0 {
					return keys[i]
				}
			}
		}
	}
}
