package p95

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Against a plain sorted slice: keys come and go in the patterns that fill, split, empty and merge leaves.
func TestSortedAgreesWithASlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s sorted
		s.init()
		var keys []uint64 // sorted
		insert := func(k uint64) {
			if i, found := slices.BinarySearch(keys, k); !found && len(keys) < maxValues {
				keys = slices.Insert(keys, i, k)
				s.insert(k)
			}
		}
		key := rapid.Uint64Range(0, 1<<40)
		t.Repeat(map[string]func(*rapid.T){
			"run": func(t *rapid.T) { // rising or falling, dense or wide
				from, step := key.Draw(t, "from"), rapid.Int64Range(-5000, 5000).Draw(t, "step")
				for i := range rapid.IntRange(0, 1500).Draw(t, "length") {
					insert((from + 1<<30 + uint64(int64(i)*step)) % (1 << 41))
				}
			},
			"spread": func(t *rapid.T) {
				for _, k := range rapid.SliceOfN(key, 0, 200).Draw(t, "keys") {
					insert(k)
				}
			},
			"thin": func(t *rapid.T) {
				every := rapid.IntRange(1, 90).Draw(t, "every")
				var left []uint64
				for i, k := range keys {
					if i%every == 0 {
						left = append(left, k)
					} else {
						s.remove(k)
					}
				}
				keys = left
			},
			"cut": func(t *rapid.T) {
				for range min(len(keys), rapid.IntRange(0, 2000).Draw(t, "count")) {
					i := rapid.SampledFrom([]int{0, len(keys) / 2, len(keys) - 1}).Draw(t, "place")
					s.remove(keys[i])
					keys = slices.Delete(keys, i, i+1)
				}
			},
			"clear": func(t *rapid.T) {
				s.clear()
				keys = nil
			},
			"": func(t *rapid.T) {
				for nth := 1; nth <= len(keys); nth += 1 + len(keys)/50 {
					if got, want := s.nthLargest(nth, 0, 0, true), keys[len(keys)-nth]; got != want {
						t.Fatalf("the %dth largest of %d: got %d, want %d", nth, len(keys), got, want)
					}
				}
				first, n := rapid.Uint32().Draw(t, "first"), rapid.Uint32().Draw(t, "n")
				for i, nth := len(keys)-1, 0; i >= 0; i-- {
					if uint32(keys[i])-first < n {
						nth++
						if got := s.nthLargest(nth, first, n, false); nth%17 == 1 && got != keys[i] {
							t.Fatalf("the %dth largest among [%d, +%d): got %d, want %d", nth, first, n, got, keys[i])
						}
					}
				}
				if s.used > 249 {
					t.Fatalf("%d leaves in use", s.used)
				}
			},
		})
	})
}
