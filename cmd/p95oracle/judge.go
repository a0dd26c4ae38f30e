package main

import (
	"math"
	"strings"
)

// The qualities of raw-record.md.
const (
	valid             = "valid"
	unsupportedSchema = "unsupported-schema"
	duplicate         = "duplicate"
	outOfOrder        = "out-of-order"
	noPredecessor     = "no-predecessor"
	discontinuity     = "discontinuity"
	sourceGap         = "source-gap"
)

var qualities = [...]string{valid, unsupportedSchema, duplicate, outOfOrder, noPredecessor, discontinuity, sourceGap}

// The bounds of raw-record.md's quality table.
const (
	rememberedFrames = 1024
	chainSlackNs     = 1_000_000
	maxIntervalNs    = 1_100_000_000
	maxDropped       = 10_000
)

// judge finds each record's quality and figures again, from its native integers and those of the records before it.
type judge struct {
	epoch, reconnect integer
	displays         map[int64]*display  // of this epoch and reconnect generation
	seen             map[int64]bool      // displays of this epoch
	categories       map[string]category // by their whole names, so that telling them apart makes no garbage
}

// maxDisplays bounds memory: a phone has a built-in panel and at most a few others.
const maxDisplays = 1024

// category is a category without its ending for long lifetimes, and whether it had it.
type category struct {
	plain  string
	stalls bool
}

type frame struct {
	seed, swapID int64
	category     category
}

// display is what is known of one display's frames.
type display struct {
	any               bool
	lastEnd, lastSeed int64
	recent            []frame // a ring once it is full; next is the oldest
	next              int
	known             map[frame]int // how often each is in recent
}

// verdict is what a record should say.
type verdict struct {
	quality, reason                   string
	presentationNs, frameNs, lifetime integer
	multiple, dropped, skew           integer
	twin                              bool // the frame was told before, under the other category: no record should be here
}

func newJudge() judge {
	return judge{displays: map[int64]*display{}, seen: map[int64]bool{}, categories: map[string]category{}}
}

func (j *judge) category(name []byte) category {
	if c, ok := j.categories[string(name)]; ok {
		return c
	}
	if len(j.categories) > maxDisplays {
		clear(j.categories)
	}
	c := category{plain: string(name)}
	for _, ending := range [...]string{".Stalls", ".stalls"} {
		if plain, ok := strings.CutSuffix(c.plain, ending); ok {
			c = category{plain, true}
		}
	}
	j.categories[string(name)] = c
	return c
}

// figures are those that need no record but this one.
func figures(r *record) (v verdict) {
	base := r.base()
	if r.end.has {
		ns, ok := base.ns(r.end.n)
		v.presentationNs = maybe(ns, ok)
	}
	if r.begin.has && r.end.has && r.begin.n <= r.end.n {
		ns, ok := base.ns(r.end.n - r.begin.n)
		v.lifetime = maybe(ns, ok)
	}
	v.dropped = of(0)
	return v
}

// intervalNs is the frame time that the native integers give, where they give one.
func intervalNs(r *record) (ns int64, ok bool) {
	if !r.end.has || !r.previous.has || r.previous.n <= 0 || r.end.n <= r.previous.n {
		return 0, false
	}
	return r.base().ns(r.end.n - r.previous.n)
}

// refreshMultiple is (end - previous) / refresh interval in thousandths, where the interval is known.
func refreshMultiple(r *record) (m integer) {
	if r.refresh.n > 0 {
		n, ok := thousandths(r.end.n-r.previous.n, r.refresh.n)
		m = maybe(n, ok)
	}
	return m
}

// judge follows the quality table line by line.
func (j *judge) judge(r *record) verdict {
	if r.epoch != j.epoch {
		clear(j.seen)
	}
	if r.epoch != j.epoch || r.reconnect != j.reconnect || len(j.seen) > maxDisplays {
		clear(j.displays)
	}
	j.epoch, j.reconnect = r.epoch, r.reconnect
	if r.display.has {
		j.seen[r.display.n] = true
	}
	d := j.displays[r.display.n]
	if d == nil {
		d = &display{known: map[frame]int{}}
		j.displays[r.display.n] = d
	}

	v := figures(r)
	if r.end.has && !v.presentationNs.has {
		v.quality = unsupportedSchema // an end whose ns are outside int64 cannot be worked with
		return v
	}
	for _, required := range [...]integer{r.begin, r.end, r.previous, r.refresh, r.seed, r.swapID, r.bufferCount, r.skip, r.display} {
		if !required.has || required.n < 0 {
			v.quality = unsupportedSchema
			return v
		}
	}
	f := frame{r.seed.n, r.swapID.n, j.category(r.category)}
	if d.known[f] > 0 {
		v.quality, v.reason = duplicate, "already-seen"
		return v
	}
	twin := f
	twin.category.stalls = !twin.category.stalls
	v.twin = d.known[twin] > 0
	d.remember(f)
	if d.any && r.end.n <= d.lastEnd {
		v.quality, v.reason = outOfOrder, "end-not-after-last"
		return v
	}
	j.chain(&v, d, r)
	d.any, d.lastEnd, d.lastSeed = true, r.end.n, r.seed.n
	return v
}

// chain judges a record that comes after the last end on its display by how it hangs on it.
func (j *judge) chain(v *verdict, d *display, r *record) {
	interval, ok := intervalNs(r)
	switch {
	case r.previous.n == 0:
		v.quality, v.reason = noPredecessor, "previous-zero"
		return
	case !d.any:
		v.quality, v.reason = noPredecessor, "first-on-display"
		return
	case r.end.n <= r.previous.n || r.begin.n > r.end.n:
		v.quality, v.reason = discontinuity, "not-forward"
		return
	case r.previous.n < d.lastEnd && j.far(r, d.lastEnd-r.previous.n):
		v.quality, v.reason = discontinuity, "predecessor-earlier"
		return
	case r.previous.n > d.lastEnd && j.far(r, r.previous.n-d.lastEnd):
		v.quality, v.reason = sourceGap, "predecessor-later"
		v.dropped = integer{}
		if missing := r.seed.n - d.lastSeed - 1; len(j.seen) == 1 && missing >= 0 && missing < maxDropped {
			v.dropped = of(missing)
		}
		return
	case !ok || interval > maxIntervalNs:
		v.quality, v.reason = discontinuity, "too-long"
		return
	}
	v.quality = valid
	v.frameNs = of(interval)
	v.multiple = refreshMultiple(r)
	if apart := r.previous.n - d.lastEnd; apart < -1 || apart > 1 {
		v.skew = of(apart)
	}
}

// far reports whether so many ticks are a millisecond or more.
func (j *judge) far(r *record, ticks int64) bool {
	ns, ok := r.base().ns(ticks)
	return !ok || ns >= chainSlackNs
}

func (d *display) remember(f frame) {
	d.known[f]++
	if len(d.recent) < rememberedFrames {
		d.recent = append(d.recent, f)
		return
	}
	oldest := d.recent[d.next]
	if d.known[oldest]--; d.known[oldest] == 0 {
		delete(d.known, oldest)
	}
	d.recent[d.next] = f
	d.next = (d.next + 1) % rememberedFrames
}

// nativeID is what a FrameUpdate's identifier must be: two 32-bit halves, the update seed above the swap id.
func nativeID(r *record) integer {
	if !r.seed.has || !r.swapID.has || r.seed.n < 0 || r.seed.n > math.MaxUint32 || r.swapID.n < 0 || r.swapID.n > math.MaxUint32 {
		return integer{}
	}
	return of(int64(uint64(r.seed.n)<<32 | uint64(r.swapID.n)))
}
