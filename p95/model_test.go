package p95_test

import (
	"math"
	"math/big"
	"slices"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/p95"
)

// model is p95-window.md in the plainest words: it keeps everything, computes with big integers, and sorts each time. It shares no
// code with the window, only the types that they are both told in.
type model struct {
	bound      bool
	b          adapter.Binding
	foreground string // "unknown", "no", "yes"
	segment    int64
	lastClear  p95.Clear
	locked     bool
	markThere  bool // a record of the primary display came since the bind
	markRight  bool // the last of them had the mark
	marks      map[string]int64
	values     []modelValue // since the last clear
	bridge     *p95.ClockBridge
	frames     []modelFrame // counted among the other figures since they began anew
	nows       []int64      // of all publications
}

type modelValue struct{ rawSequence, hostNs, presentationNs, frameNs int64 }

type modelFrame struct {
	r                                  adapter.Record
	presentationNs, previousNs, timeNs int64
}

func newModel() *model { return &model{foreground: "unknown", marks: map[string]int64{}} }

func (m *model) clear(reason string, rawSequence, hostNs p95.Int, newSegment bool) {
	m.values = nil
	m.lastClear = p95.Clear{Reason: p95.ClearReason(reason), RawSequence: rawSequence, HostNs: hostNs, Known: true}
	if newSegment {
		m.segment++
	}
}

func (m *model) bind(b adapter.Binding, hostNs int64) (ok bool) {
	if b.Timebase.Numer < 1 || b.Timebase.Denom < 1 {
		return false
	}
	old := m.b
	if !m.bound {
		m.bound, m.b = true, b
		m.clear("bind", p95.Int{}, known(hostNs), true)
		return true
	}
	if b == old {
		return true
	}
	sameTarget := b.Target == old.Target
	if sameTarget && (b.SourceEpoch < old.SourceEpoch || b.SourceEpoch == old.SourceEpoch && b.ReconnectGeneration < old.ReconnectGeneration) {
		return false
	}
	reason := "display"
	if b.Timebase != old.Timebase {
		reason = "timebase"
	}
	if b.ReconnectGeneration != old.ReconnectGeneration {
		reason = "reconnect"
	}
	if b.SourceEpoch != old.SourceEpoch {
		reason = "epoch"
		m.bridge = nil
	}
	if !sameTarget {
		reason = "target"
		m.foreground = "unknown"
	}
	if reason != "display" {
		m.marks = map[string]int64{}
		m.locked = false
	}
	m.b = b
	m.markThere = false
	m.frames = nil
	m.clear(reason, p95.Int{}, known(hostNs), true)
	return true
}

func (m *model) state(inForeground bool, hostNs int64) {
	word, reason := "no", "background"
	if inForeground {
		word, reason = "yes", "foreground"
	}
	if !m.bound || m.foreground == word {
		return
	}
	m.foreground = word
	m.locked = false
	m.frames = nil
	m.clear(reason, p95.Int{}, known(hostNs), true)
}

func (m *model) gap(hostNs p95.Int) {
	if m.bound {
		m.clear("source-gap", p95.Int{}, hostNs, true)
	}
}

func (m *model) clockBridge(b p95.ClockBridge) {
	if m.bound && b.HasContinuous && modelNs(b.DeviceContinuousMach, b.Timebase) != nil {
		m.bridge = &b
	}
}

// modelNs is floor(ticks * numer / denom), nil where that is no time.
func modelNs(ticks int64, t adapter.Timebase) *big.Int {
	if ticks < 0 || t.Numer < 1 || t.Denom < 1 {
		return nil
	}
	ns := new(big.Int).Mul(big.NewInt(ticks), big.NewInt(t.Numer))
	ns.Div(ns, big.NewInt(t.Denom))
	if !ns.IsInt64() {
		return nil
	}
	return ns
}

func known(n int64) p95.Int { return p95.Int{N: n, Known: true} }

func (m *model) record(r adapter.Record) {
	has := func(f adapter.Fields) bool { return r.Fields&f == f }
	display := int64(0)
	if has(adapter.HasDisplayID) {
		display = r.DisplayID
	}
	if !m.bound || display != m.b.PrimaryDisplayID { // 1
		return
	}
	m.countFrame(r)
	m.markThere, m.markRight = true, r.Policy == "p95-window-segment.v2"
	if m.locked { // 2
		return
	}
	var seq, host p95.Int
	if has(adapter.HasRawSequence) {
		seq = known(r.RawSequence)
	}
	if has(adapter.HasHostNs) {
		host = known(r.HostNs)
	}
	if !m.markRight { // 3
		m.clear("policy", seq, host, false)
		return
	}
	contract := false // 4
	for _, c := range [][2]string{
		{"goios.activity-trace.frame-lifetime.raw", "com.apple.instruments.server.services.activitytracetap onlySignposts"},
		{"pmd3.activity-trace.frame-lifetime.raw", "com.apple.instruments.server.services.activitytracetap onlySignposts"},
		{"xctrace.os-signpost-interval.frame-lifetime", "xctrace os-signpost-interval"},
	} {
		s := r.Source
		contract = contract || s.AdapterID == c[0] && s.Service+" "+s.Selector == c[1] && s.AdapterVersion == 2 && s.Scope == "foreground-device" && s.RawUnit == "signpost-framelifetime"
	}
	if !contract || r.Schema != "perfowl.display-frame-event/2" || !r.Decoded || !r.Verified {
		m.clear("contract", seq, host, false)
		return
	}
	valid := has(adapter.HasQuality) && r.Quality == adapter.QualityValid // 5
	identity := has(adapter.HasTarget) && r.Target == m.b.Target && has(adapter.HasSourceEpoch) && r.SourceEpoch == m.b.SourceEpoch &&
		has(adapter.HasReconnectGeneration) && r.ReconnectGeneration == m.b.ReconnectGeneration && has(adapter.HasTimebase) && r.Timebase == m.b.Timebase &&
		seq.Known && host.Known && has(adapter.HasDisplayID) && has(adapter.HasQuality)
	if valid {
		for _, f := range []adapter.Fields{adapter.HasSwapID, adapter.HasFrameSeed, adapter.HasBeginMach, adapter.HasEndMach, adapter.HasPreviousMach,
			adapter.HasRefreshIntervalMach, adapter.HasBufferCount, adapter.HasSkipRequest, adapter.HasPresentationNs} {
			identity = identity && has(f)
		}
	}
	if !identity {
		m.clear("identity", seq, host, false)
		return
	}
	if r.Quality == adapter.QualityDuplicate || r.Quality == adapter.QualityOutOfOrder { // 6
		m.clear(map[adapter.Quality]string{adapter.QualityDuplicate: "duplicate", adapter.QualityOutOfOrder: "out-of-order"}[r.Quality], seq, host, false)
		return
	}
	told := map[string]int64{"raw": r.RawSequence, "host": r.HostNs} // 7
	if has(adapter.HasEndMach) {
		told["end"] = r.EndMach
	}
	if has(adapter.HasPresentationNs) {
		told["presentation"] = r.PresentationNs
	}
	for name, n := range told {
		if mark, there := m.marks[name]; there && n <= mark {
			m.clear("order", seq, host, false)
			return
		}
	}
	raise := func() {
		for name, n := range told {
			m.marks[name] = n
		}
	}
	if !valid { // 8
		raise()
		word := map[adapter.Quality]string{adapter.QualityDiscontinuity: "discontinuity", adapter.QualitySourceGap: "source-gap",
			adapter.QualityNoPredecessor: "no-predecessor", adapter.QualityUnsupportedSchema: "unsupported-schema"}[r.Quality]
		m.clear(word, seq, host, true)
		return
	}
	if !modelFiguresRight(r) { // 9
		m.clear("figures", seq, host, false)
		return
	}
	raise() // 10
	m.values = append(m.values, modelValue{r.RawSequence, r.HostNs, r.PresentationNs, r.FrameTimeNs})
	left := 0
	for _, v := range m.values {
		if v.presentationNs > r.PresentationNs-10_000_000_000 {
			left++
		}
	}
	if left > 4096 {
		m.clear("overflow", seq, host, false)
		m.locked = true
	}
}

func modelFiguresRight(r adapter.Record) bool {
	if r.InexactFigures || r.Fields&adapter.HasFrameTime == 0 || r.PreviousMach <= 0 || r.EndMach <= r.PreviousMach {
		return false
	}
	presentation, frame := modelNs(r.EndMach, r.Timebase), modelNs(r.EndMach-r.PreviousMach, r.Timebase)
	if presentation == nil || frame == nil || presentation.Int64() != r.PresentationNs || frame.Int64() != r.FrameTimeNs || frame.Int64() > 1_100_000_000 {
		return false
	}
	if r.RefreshIntervalMach < 1 {
		return r.Fields&adapter.HasRefreshMultiple == 0
	}
	multiple := halfEven(new(big.Int).Mul(big.NewInt(r.EndMach-r.PreviousMach), big.NewInt(1000)), big.NewInt(r.RefreshIntervalMach))
	return r.Fields&adapter.HasRefreshMultiple != 0 && multiple.IsInt64() && multiple.Int64() == r.RefreshMultipleMilli
}

// halfEven is a / b of non-negative a and positive b.
func halfEven(a, b *big.Int) *big.Int {
	q, rest := new(big.Int).QuoRem(a, b, new(big.Int))
	switch new(big.Int).Lsh(rest, 1).Cmp(b) {
	case 1:
		q.Add(q, big.NewInt(1))
	case 0:
		q.Add(q, big.NewInt(int64(q.Bit(0))))
	}
	return q
}

func (m *model) countFrame(r adapter.Record) {
	for _, f := range []adapter.Fields{adapter.HasQuality, adapter.HasTimebase, adapter.HasHostNs, adapter.HasEndMach, adapter.HasPreviousMach} {
		if r.Fields&f == 0 {
			return
		}
	}
	if r.Quality != adapter.QualityValid || r.Timebase != m.b.Timebase || r.PreviousMach <= 0 || r.EndMach <= r.PreviousMach {
		return
	}
	presentation, frame := modelNs(r.EndMach, r.Timebase), modelNs(r.EndMach-r.PreviousMach, r.Timebase)
	if presentation == nil || frame == nil || frame.Int64() > 1_100_000_000 {
		return
	}
	m.frames = append(m.frames, modelFrame{r, presentation.Int64(), modelNs(r.PreviousMach, r.Timebase).Int64(), frame.Int64()})
}

// lateness is overrun in ns and missed refreshes; nil where the record does not tell.
func (f modelFrame) lateness() (overrun, missed *big.Int) {
	for _, has := range []adapter.Fields{adapter.HasBeginMach, adapter.HasRefreshIntervalMach, adapter.HasBufferCount, adapter.HasSkipRequest} {
		if f.r.Fields&has == 0 {
			return nil, nil
		}
	}
	if f.r.BeginMach < 0 || f.r.RefreshIntervalMach < 0 || f.r.BufferCount < 0 || f.r.SkipRequest < 0 {
		return nil, nil
	}
	overrun, missed = new(big.Int), new(big.Int)
	if f.r.RefreshIntervalMach == 0 {
		return
	}
	lifetime, interval, buffers := big.NewInt(f.r.EndMach-f.r.BeginMach), big.NewInt(f.r.RefreshIntervalMach), big.NewInt(f.r.BufferCount)
	late := new(big.Int).Sub(lifetime, new(big.Int).Mul(buffers, interval))
	if late.Sign() > 0 && f.r.SkipRequest == 0 {
		overrun.Mul(late, big.NewInt(f.r.Timebase.Numer)).Quo(overrun, big.NewInt(f.r.Timebase.Denom))
		if !overrun.IsInt64() {
			return nil, nil
		}
	}
	expression := new(big.Int).Div(lifetime, interval) // Euclidean: the floor, for a positive divisor
	expression.Sub(expression, buffers).Add(expression, big.NewInt(1))
	if expression.Sign() > 0 {
		missed = expression
	}
	return
}

func asInt(n *big.Int) p95.Int {
	if !n.IsInt64() {
		return p95.Int{}
	}
	return known(n.Int64())
}

// other is at a moment that is no host regression, of a target in the foreground.
func (m *model) other(nowNs int64) (o p95.Other) {
	if len(m.frames) == 0 {
		return
	}
	latest := m.frames[len(m.frames)-1]
	away := new(big.Int).Sub(big.NewInt(nowNs), big.NewInt(latest.r.HostNs))
	if away.CmpAbs(big.NewInt(1_000_000_000)) > 0 {
		return
	}
	o.FrameTimeNs = known(latest.timeNs)
	if latest.r.Fields&adapter.HasRefreshIntervalMach != 0 && latest.r.RefreshIntervalMach > 0 {
		period := new(big.Int).Mul(big.NewInt(latest.r.RefreshIntervalMach), big.NewInt(m.b.Timebase.Numer))
		o.RefreshMilliHz = asInt(halfEven(new(big.Int).Mul(big.NewInt(1_000_000_000_000), big.NewInt(m.b.Timebase.Denom)), period))
	}
	q := latest.presentationNs
	kept, forgotten := m.frames, int64(math.MinInt64)
	if len(kept) > 4096 {
		for _, f := range kept[:len(kept)-4096] {
			forgotten = max(forgotten, f.presentationNs)
		}
		kept = kept[len(kept)-4096:]
	}
	var whole, n1 int64
	sum, squares, time10, overruns, missed := new(big.Int), new(big.Int), new(big.Int), new(big.Int), new(big.Int)
	unknown := false
	for _, f := range kept {
		if f.presentationNs > q {
			continue
		}
		if f.previousNs >= q-1_000_000_000 {
			whole++
		}
		if f.presentationNs > q-1_000_000_000 {
			n1++
			sum.Add(sum, big.NewInt(f.timeNs))
			squares.Add(squares, new(big.Int).Mul(big.NewInt(f.timeNs), big.NewInt(f.timeNs)))
		}
		if f.presentationNs > q-10_000_000_000 {
			time10.Add(time10, big.NewInt(f.timeNs))
			if o, miss := f.lateness(); o == nil {
				unknown = true
			} else {
				overruns.Add(overruns, o)
				missed.Add(missed, miss)
			}
		}
	}
	if forgotten < q-1_000_000_000 {
		o.FPS = known(whole)
		if n1 >= 2 {
			// sqrt(n * squares - sum²) / (1000 n) µs
			n := big.NewInt(n1)
			variance := new(big.Int).Sub(new(big.Int).Mul(n, squares), new(big.Int).Mul(sum, sum))
			thousand := new(big.Int).Mul(n, big.NewInt(1000))
			floor := new(big.Int).Quo(new(big.Int).Sqrt(variance), thousand)
			middle := new(big.Int).Mul(new(big.Int).Add(new(big.Int).Lsh(floor, 1), big.NewInt(1)), thousand) // (2 floor + 1) * 1000 n
			switch new(big.Int).Lsh(variance, 2).Cmp(middle.Mul(middle, middle)) {
			case 1:
				floor.Add(floor, big.NewInt(1))
			case 0:
				floor.Add(floor, big.NewInt(int64(floor.Bit(0))))
			}
			o.JitterUs = asInt(floor)
		}
	}
	if forgotten < q-10_000_000_000 && !unknown {
		if time10.Sign() > 0 {
			o.HitchUsPerS = asInt(halfEven(new(big.Int).Mul(overruns, big.NewInt(1_000_000)), time10))
		}
		o.MissedRefreshes = asInt(missed)
	}
	return o
}

func (m *model) publish(nowNs int64, due p95.Int) p95.Receipt {
	r := p95.Receipt{HostNs: nowNs, DueNs: due}
	notAbove := slices.ContainsFunc(m.nows, func(earlier int64) bool { return nowNs <= earlier })
	m.nows = append(m.nows, nowNs)
	if !m.bound {
		r.Quality, r.N = "no-target", known(0)
		return r
	}
	r.Target = p95.Target{Target: m.b.Target, Known: true}
	r.SourceEpoch, r.ReconnectGeneration, r.DisplayID = known(m.b.SourceEpoch), known(m.b.ReconnectGeneration), known(m.b.PrimaryDisplayID)
	r.Timebase = p95.Timebase{Timebase: m.b.Timebase, Known: true}
	r.Segment, r.LastClear = m.segment, m.lastClear
	if mark, there := m.marks["raw"]; there {
		r.LastRawSequence = known(mark)
	}

	var last *modelValue // P and H
	if len(m.values) > 0 {
		last = &m.values[len(m.values)-1]
		r.LastPresentationNs, r.LastHostNs = known(last.presentationNs), known(last.hostNs)
	}
	var age *big.Int
	if m.bridge != nil {
		t0, t1 := big.NewInt(m.bridge.HostSendNs), big.NewInt(m.bridge.HostReceiveNs)
		r.ClockBridge = p95.BridgeReading{Qualified: true, WidthNs: asInt(new(big.Int).Sub(t1, t0))}
		if last != nil {
			now := big.NewInt(nowNs)
			drift := new(big.Int)
			if nowNs >= m.bridge.HostSendNs {
				drift.Sub(now, t0).Mul(drift, big.NewInt(50)).Quo(drift, big.NewInt(1_000_000))
			}
			age = new(big.Int).Add(modelNs(m.bridge.DeviceContinuousMach, m.bridge.Timebase), new(big.Int).Sub(now, t1))
			age.Sub(age, drift).Sub(age, big.NewInt(last.presentationNs))
			r.ClockBridge.AgeLowerBoundNs = asInt(age)
		}
	}

	var inside []modelValue
	var sinceH *big.Int
	if last != nil {
		sinceH = new(big.Int).Sub(big.NewInt(nowNs), big.NewInt(last.hostNs))
		right := new(big.Int).Add(big.NewInt(last.presentationNs), sinceH)
		left := new(big.Int).Sub(right, big.NewInt(10_000_000_000))
		for _, v := range m.values {
			if p := big.NewInt(v.presentationNs); v.presentationNs > last.presentationNs-10_000_000_000 && p.Cmp(left) > 0 && p.Cmp(right) <= 0 {
				inside = append(inside, v)
			}
		}
		r.WindowLeftNs, r.WindowRightNs = asInt(left), asInt(right)
	}
	regressed := notAbove || sinceH != nil && sinceH.Sign() < 0
	r.N = known(int64(len(inside)))
	if len(inside) > 0 {
		a, b := inside[0], inside[len(inside)-1]
		r.FirstSample = p95.Sample{RawSequence: a.rawSequence, PresentationNs: a.presentationNs, Known: true}
		r.LastSample = p95.Sample{RawSequence: b.rawSequence, PresentationNs: b.presentationNs, Known: true}
	}
	switch {
	case m.foreground != "yes":
		r.Quality = "background"
	case m.locked:
		r.Quality = "overflow"
	case regressed:
		r.Quality = "host-regression"
		r.WindowLeftNs, r.WindowRightNs, r.N, r.FirstSample, r.LastSample = p95.Int{}, p95.Int{}, p95.Int{}, p95.Sample{}, p95.Sample{}
	case m.markThere && !m.markRight:
		r.Quality = "policy-absent"
	case sinceH != nil && sinceH.Cmp(big.NewInt(1_000_000_000)) > 0:
		r.Quality = "stale-source"
	case age != nil && age.Cmp(big.NewInt(2_000_000_000)) > 0:
		r.Quality = "stale-clock"
	case len(inside) < 5:
		r.Quality = "warmup"
	default:
		r.Quality = "valid"
		var times []int64
		for _, v := range inside {
			times = append(times, v.frameNs)
		}
		slices.Sort(times)
		rank := (95*len(times) + 99) / 100
		r.Rank, r.ValueNs = known(int64(rank)), known(times[rank-1])
	}
	if m.foreground == "yes" && !regressed {
		r.Other = m.other(nowNs)
	}
	return r
}
