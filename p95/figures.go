package p95

import (
	"math"

	"github.com/framebridge/framebridge/adapter"
)

const (
	secondNs = 1_000_000_000
	// maxFrames bounds what the other figures remember: the last so many counted records by arrival, 34 s at 120 Hz. A figure whose
	// window might reach into what is forgotten is null.
	maxFrames = 4096
)

// Other are the other display figures, in the scaled integers that they are rounded to. They do not depend on the P95.
type Other struct {
	FPS             Int
	FrameTimeNs     Int // of the latest frame; exact
	RefreshMilliHz  Int // of the latest frame
	JitterUs        Int
	HitchUsPerS     Int
	MissedRefreshes Int
}

// frame is what the native integers of a record give.
type frame struct {
	hostNs, refreshIntervalMach             int64
	presentationNs, previousNs, frameTimeNs int64
	late                                    lateness
}

// lateness is Apple's reading of a late frame (wire.md, "Late frames, Apple's reading").
type lateness struct {
	known             bool // the native integers for it are there, none is negative, and the overrun fits int64
	overrunNs, missed uint64
}

// frameOf reads a record's native integers. ok says that it counts among the other figures: stated valid, bound timebase,
// end > previous > 0, an interval that is not an idle screen's. No payload figure is looked at.
func frameOf(r *adapter.Record, timebase adapter.Timebase, f *frame) (ok bool) {
	const need = adapter.HasQuality | adapter.HasTimebase | adapter.HasHostNs | adapter.HasEndMach | adapter.HasPreviousMach
	if r.Fields&need != need || r.Quality != adapter.QualityValid || r.Timebase != timebase || r.PreviousMach <= 0 || r.EndMach <= r.PreviousMach {
		return false
	}
	f.hostNs = r.HostNs
	if f.frameTimeNs, ok = timebase.Ns(r.EndMach - r.PreviousMach); !ok || f.frameTimeNs > maxIntervalNs {
		return false
	}
	if f.presentationNs, ok = timebase.Ns(r.EndMach); !ok {
		return false
	}
	f.previousNs, _ = timebase.Ns(r.PreviousMach) // fits, being below presentationNs
	f.refreshIntervalMach = 0
	if r.Fields&adapter.HasRefreshIntervalMach != 0 {
		f.refreshIntervalMach = r.RefreshIntervalMach
	}
	f.late = latenessOf(r, timebase)
	return true
}

func latenessOf(r *adapter.Record, timebase adapter.Timebase) (l lateness) {
	const need = adapter.HasBeginMach | adapter.HasRefreshIntervalMach | adapter.HasBufferCount | adapter.HasSkipRequest
	if r.Fields&need != need || r.BeginMach < 0 || r.EndMach < 0 || r.RefreshIntervalMach < 0 || r.BufferCount < 0 || r.SkipRequest < 0 {
		return lateness{}
	}
	l.known = true
	lifetime := r.EndMach - r.BeginMach
	if r.RefreshIntervalMach == 0 || lifetime < 0 {
		return l // not known, or not a lifetime: neither overrun nor missed refreshes
	}
	if whole := lifetime / r.RefreshIntervalMach; whole >= r.BufferCount {
		l.missed = uint64(whole-r.BufferCount) + 1
	}
	asked := natural{lo: uint64(r.BufferCount)}.times(uint64(r.RefreshIntervalMach))
	if r.SkipRequest != 0 || asked.hi > 0 || asked.lo >= uint64(lifetime) {
		return l
	}
	ns, ok := timebase.Ns(lifetime - int64(asked.lo))
	return lateness{known: ok, overrunNs: uint64(ns), missed: l.missed}
}

// tells reports whether the record's own figures are those that its native integers give.
func (f *frame) tells(r *adapter.Record) bool {
	if r.InexactFigures || r.Fields&adapter.HasFrameTime == 0 || r.PresentationNs != f.presentationNs || r.FrameTimeNs != f.frameTimeNs {
		return false
	}
	told := r.Fields&adapter.HasRefreshMultiple != 0
	if r.RefreshIntervalMach <= 0 {
		return !told
	}
	return told && isMilliMultiple(r.RefreshMultipleMilli, uint64(r.EndMach-r.PreviousMach), uint64(r.RefreshIntervalMach))
}

// isMilliMultiple reports whether milli is 1000 * ticks / intervalTicks, rounded half to even: without the division, which costs more than
// all other checks of a record together.
func isMilliMultiple(milli int64, ticks, intervalTicks uint64) bool {
	if milli < 0 {
		return false
	}
	dividend, multiple := natural{lo: ticks}.times(1000), natural{lo: uint64(milli)}.times(intervalTicks)
	if dividend.less(multiple) {
		dividend, multiple = multiple, dividend
	}
	dividend.sub(multiple.hi, multiple.lo)
	away := natural{lo: dividend.lo}.times(2)
	half := natural{lo: intervalTicks}
	return dividend.hi == 0 && (away.less(half) || away == half && milli%2 == 0)
}

// figures keeps the other display figures up to date with each counted record. Their windows end at Q, the latest one's presentation,
// so nothing in here changes between two records.
type figures struct {
	latest      frame
	end, kept   uint64 // the kept frames are ring[i%maxFrames] for end-kept <= i < end, in order of arrival
	forgottenNs int64  // the highest presentationNs among those pushed out of the ring; math.MinInt64 where there is none
	// Neighbours in the ring of which the later one does not end later, or has an earlier previous. While there are none, each window
	// holds the last frames of the ring, and its sums follow by adding at one end and subtracting at the other.
	descents, crossings int
	stale               bool // the sums are to be made anew
	sums                sums
	ring                [maxFrames]kept
}

type kept struct {
	presentationNs, previousNs, frameTimeNs int64
	late                                    lateness
}

// sums are over the frames of each figure's window.
type sums struct {
	whole  uint64 // all frames whose interval lies in [Q-1s, Q] are among so many last ones, and are these unless some are out of order
	second struct {
		n, timeNs uint64
		squares   natural
	}
	ten struct {
		n, timeNs, unknown uint64
		overrunNs, missed  natural
	}
}

func (s *sums) addSecond(k *kept) {
	s.second.n++
	s.second.timeNs += uint64(k.frameTimeNs)
	s.second.squares.add(0, uint64(k.frameTimeNs)*uint64(k.frameTimeNs))
}

func (s *sums) subSecond(k *kept) {
	s.second.n--
	s.second.timeNs -= uint64(k.frameTimeNs)
	s.second.squares.sub(0, uint64(k.frameTimeNs)*uint64(k.frameTimeNs))
}

func (s *sums) addTen(k *kept) {
	s.ten.n++
	s.ten.timeNs += uint64(k.frameTimeNs)
	if !k.late.known {
		s.ten.unknown++
		return
	}
	s.ten.overrunNs.add(0, k.late.overrunNs)
	s.ten.missed.add(0, k.late.missed)
}

func (s *sums) subTen(k *kept) {
	s.ten.n--
	s.ten.timeNs -= uint64(k.frameTimeNs)
	if !k.late.known {
		s.ten.unknown--
		return
	}
	s.ten.overrunNs.sub(0, k.late.overrunNs)
	s.ten.missed.sub(0, k.late.missed)
}

func (f *figures) reset() {
	f.end, f.kept, f.forgottenNs, f.descents, f.crossings, f.stale, f.sums = 0, 0, math.MinInt64, 0, 0, false, sums{}
}

// ago is the nth latest frame, from 1.
func (f *figures) ago(n uint64) *kept { return &f.ring[(f.end-n)%maxFrames] }

// count adds by to descents and crossings for two neighbours.
func (f *figures) count(earlier, later *kept, by int) {
	if later.presentationNs <= earlier.presentationNs {
		f.descents += by
	}
	if later.previousNs < earlier.previousNs {
		f.crossings += by
	}
}

func (f *figures) add(fr *frame) {
	inOrder := f.descents == 0
	if f.kept == maxFrames {
		f.forgetOldest()
	}
	f.latest = *fr
	k := &f.ring[f.end%maxFrames]
	*k = kept{presentationNs: fr.presentationNs, previousNs: fr.previousNs, frameTimeNs: fr.frameTimeNs, late: fr.late}
	f.end++
	f.kept++
	if f.kept > 1 {
		f.count(f.ago(2), k, +1)
	}
	f.stale = f.stale || !inOrder || f.descents > 0
	if f.stale {
		return
	}
	s, q := &f.sums, k.presentationNs
	s.whole++
	s.addSecond(k)
	s.addTen(k)
	for s.whole > 0 && f.ago(s.whole).previousNs < q-secondNs {
		s.whole--
	}
	for f.ago(s.second.n).presentationNs <= q-secondNs {
		s.subSecond(f.ago(s.second.n))
	}
	for f.ago(s.ten.n).presentationNs <= q-windowNs {
		s.subTen(f.ago(s.ten.n))
	}
}

func (f *figures) forgetOldest() {
	oldest := f.ago(f.kept)
	f.forgottenNs = max(f.forgottenNs, oldest.presentationNs)
	f.count(oldest, f.ago(f.kept-1), -1)
	if f.sums.whole == f.kept {
		f.sums.whole--
	}
	if f.sums.second.n == f.kept {
		f.sums.subSecond(oldest)
	}
	if f.sums.ten.n == f.kept {
		f.sums.subTen(oldest)
	}
	f.kept--
}

// sumAll sums anew over everything kept: only a log that was tampered with, or mixes several recordings, needs it.
func (f *figures) sumAll() {
	f.sums = sums{}
	q := f.latest.presentationNs
	for n := f.kept; n > 0; n-- {
		k := f.ago(n)
		if k.presentationNs > q {
			continue
		}
		if k.previousNs >= q-secondNs {
			f.sums.whole = max(f.sums.whole, n)
		}
		if k.presentationNs > q-secondNs {
			f.sums.addSecond(k)
		}
		if k.presentationNs > q-windowNs {
			f.sums.addTen(k)
		}
	}
	f.stale = false
}

// fps is the number of frames whose interval lies in [Q-1s, Q].
func (f *figures) fps() (frames int64) {
	if f.descents == 0 && f.crossings == 0 {
		return int64(f.sums.whole)
	}
	q := f.latest.presentationNs
	for n := f.sums.whole; n > 0; n-- {
		if k := f.ago(n); k.presentationNs <= q && k.previousNs >= q-secondNs {
			frames++
		}
	}
	return frames
}

// publish leaves everything null where the latest frame arrived more than a second from nowNs.
func (f *figures) publish(nowNs int64, timebase adapter.Timebase, out *Other) {
	if f.kept == 0 {
		return
	}
	away := uint64(nowNs) - uint64(f.latest.hostNs)
	if nowNs < f.latest.hostNs {
		away = -away
	}
	if away > secondNs {
		return
	}
	if f.stale {
		f.sumAll()
	}
	out.FrameTimeNs = Of(f.latest.frameTimeNs)
	if f.latest.refreshIntervalMach > 0 {
		out.RefreshMilliHz = milliHz(f.latest.refreshIntervalMach, timebase)
	}
	q, s := f.latest.presentationNs, &f.sums
	if f.forgottenNs < q-secondNs {
		out.FPS = Of(f.fps())
		if s.second.n >= 2 {
			out.JitterUs = deviationUs(s.second.n, s.second.timeNs, s.second.squares)
		}
	}
	if f.forgottenNs < q-windowNs && s.ten.unknown == 0 {
		// ms of overrun per s of frame time, times 1000: (overrun / 1e6) / (time / 1e9) * 1000.
		out.HitchUsPerS = s.ten.overrunNs.times(1_000_000).over(s.ten.timeNs)
		out.MissedRefreshes = s.ten.missed.over(1)
	}
}

// milliHz is the rate of a refresh interval: 1e12 * denom / (numer * interval), whose divisor may be of 126 bits.
func milliHz(intervalMach int64, timebase adapter.Timebase) Int {
	numer, interval := uint64(timebase.Numer), uint64(intervalMach)
	q, restOfNumer := natural{lo: uint64(timebase.Denom)}.times(1_000_000_000_000).quo(numer)
	q, restOfInterval := q.quo(interval)
	rest := natural{lo: restOfInterval}.times(numer)
	rest.add(0, restOfNumer)
	return q.rounded(rest, natural{lo: interval}.times(numer))
}

// deviationUs is the population standard deviation in µs, rounded half to even from its exact value sqrt(n*squares - sum²) / n. At
// most maxFrames values of 31 bits keep everything in here below 2^90.
func deviationUs(n, sumNs uint64, squares natural) Int {
	variance := squares.times(n)
	sum := natural{lo: sumNs}.times(sumNs)
	variance.sub(sum.hi, sum.lo)
	variance = variance.times(4) // (2 * n * deviation in ns)²
	// The same of a deviation of k + 1/2 µs.
	halfway := func(k uint64) natural {
		root := (2*k + 1) * n * 1000
		return natural{lo: root}.times(root)
	}
	// The floor, or next to a whole number perhaps the one beside it: both lead to the same rounding.
	us := uint64(math.Sqrt(float64(variance.hi)*(1<<64)+float64(variance.lo)) / float64(2*n*1000))
	if middle := halfway(us); middle.less(variance) || middle == variance && us%2 == 1 {
		us++
	}
	return Of(int64(us))
}
