package adapter

// memoryFrames is how many frames a memory holds: the depth of the duplicate rule (raw-record.md), and, at 120 Hz, more than eight
// seconds of frames that have begun and not ended.
const memoryFrames = 1024

// frameKey tells one frame's rows from another's.
type frameKey struct {
	display, seed, swap int64
	category            categoryID
	told                bool // a frame that its Begin row told as a whole
}

func (k frameKey) bucket() uint64 {
	h := uint64(k.seed)*0x9E3779B97F4A7C15 ^ uint64(k.swap)*0xC2B2AE3D27D4EB4F ^ uint64(k.display)*0x165667B19E3779F9
	h ^= uint64(k.category) * 0x27D4EB2F165667C5
	return h >> 32 % memoryFrames
}

// memory remembers the last memoryFrames frames put into it, each with one value, and finds them by key without allocating.
type memory struct {
	keys   [memoryFrames]frameKey
	values [memoryFrames]int64
	live   [memoryFrames]bool
	// Entries are chained by bucket, newest first. A reference is a slot + 1; 0 ends a chain.
	buckets [memoryFrames]uint16
	next    [memoryFrames]uint16
	at      int // where the next entry goes: the oldest one's place
}

// get returns what was put with k, the latest of several.
func (m *memory) get(k frameKey) (value int64, ok bool) {
	for ref := m.buckets[k.bucket()]; ref != 0; ref = m.next[ref-1] {
		if m.keys[ref-1] == k {
			return m.values[ref-1], true
		}
	}
	return 0, false
}

// put adds an entry; ok is true where the oldest one, forgot, had to go for it.
func (m *memory) put(k frameKey, value int64) (forgot frameKey, ok bool) {
	slot := m.at
	m.at = (m.at + 1) % memoryFrames
	if ok = m.live[slot]; ok {
		forgot = m.keys[slot]
		m.unlink(slot)
	}
	bucket := k.bucket()
	m.keys[slot], m.values[slot], m.live[slot] = k, value, true
	m.next[slot], m.buckets[bucket] = m.buckets[bucket], uint16(slot+1)
	return forgot, ok
}

// take is get, and forgets the entry.
func (m *memory) take(k frameKey) (value int64, ok bool) {
	for ref := m.buckets[k.bucket()]; ref != 0; ref = m.next[ref-1] {
		if m.keys[ref-1] == k {
			m.unlink(int(ref - 1))
			return m.values[ref-1], true
		}
	}
	return 0, false
}

func (m *memory) unlink(slot int) {
	ref := &m.buckets[m.keys[slot].bucket()]
	for int(*ref) != slot+1 {
		ref = &m.next[*ref-1]
	}
	*ref = m.next[slot]
	m.live[slot] = false
}
