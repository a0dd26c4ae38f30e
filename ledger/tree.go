package ledger

import (
	"fmt"
	"io"
	"maps"
	"sort"

	"golang.org/x/mod/sumdb/tlog"
)

// hashFile reads the stored hashes of a tree from where they lie in tlog's own order.
type hashFile struct{ io.ReaderAt }

func (f hashFile) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	hashes := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		if _, err := f.ReadAt(hashes[i][:], index*tlog.HashSize); err != nil {
			return nil, fmt.Errorf("%s: hash %d: %w", hashesName, index, err)
		}
	}
	return hashes, nil
}

// frontier is what of a tree is needed to append to it and to know its root: the hashes of its whole subtrees, at most one of each
// height. To tlog it is the store of all hashes; it is never asked for others.
type frontier struct {
	size   int64
	hashes map[int64]tlog.Hash // by stored index
}

func (f *frontier) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	hashes := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		h, ok := f.hashes[index]
		if !ok {
			return nil, fmt.Errorf("hash %d is not in the frontier of %d entries", index, f.size)
		}
		hashes[i] = h
	}
	return hashes, nil
}

// loadFrontier reads the frontier of the first size entries, and their root.
func loadFrontier(size int64, from hashFile) (*frontier, tlog.Hash, error) {
	f := &frontier{size: size, hashes: map[int64]tlog.Hash{}}
	root, err := tlog.TreeHash(size, tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		hashes, err := from.ReadHashes(indexes)
		for i := range hashes {
			f.hashes[indexes[i]] = hashes[i]
		}
		return hashes, err
	}))
	return f, root, err
}

// stored is what appending a leaf adds to the stored hashes.
func (f *frontier) stored(leaf tlog.Hash) ([]tlog.Hash, error) {
	return tlog.StoredHashesForRecordHash(f.size, leaf, f)
}

// add appends a leaf, whose stored hashes are given. All but the last of them, and what they were made from, are inside now.
func (f *frontier) add(stored []tlog.Hash) {
	inside := len(stored) - 1
	for level := range inside {
		delete(f.hashes, tlog.StoredHashIndex(level, f.size>>level-1))
	}
	f.hashes[tlog.StoredHashIndex(0, f.size)+int64(inside)] = stored[inside]
	f.size++
}

func (f *frontier) clone() *frontier { return &frontier{f.size, maps.Clone(f.hashes)} }

func (f *frontier) root() (tlog.Hash, error) { return tlog.TreeHash(f.size, f) }

// leavesIn is how many entries have all their stored hashes among the first count.
func leavesIn(count int64) int64 {
	return int64(sort.Search(int(count)+1, func(n int) bool { return tlog.StoredHashCount(int64(n)) > count })) - 1
}
