package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/internal/capture"
	"github.com/framebridge/framebridge/ledger"
	"github.com/framebridge/framebridge/p95"
)

// Random sessions, recorded by the product's own recorder: tap bytes go in, event lines come out. What is in them is chosen so that a
// few dozen frames meet most lines of the contracts' tables.

// memoryLog takes the recorder's lines.
type memoryLog struct {
	text   []byte
	counts ledger.Counts
	seq    int64
}

func (l *memoryLog) Append(e *ledger.Event) error {
	l.seq++
	e.Seq = l.seq
	l.text = ledger.AppendLine(l.text, e)
	for i, t := range types {
		if string(e.Type()) == t {
			l.counts[i]++
		}
	}
	return nil
}

func (l *memoryLog) AppendWire(int64, []byte) error { return nil }

const randomSessionID = "5f0cfb4e-0d0e-4c52-9a66-1d1b2c3d4e5f"

type simulation struct {
	*rand.Rand
	log      memoryLog
	recorder *capture.Recorder
	stream   *stream
	update   bool // FrameUpdate, else FrameLifetime
	binding  adapter.Binding
	startNs  int64
	hostNs   int64
	dueNs    int64
	end      map[int64]int64 // last end by display
	seed     int64
	recent   []shot // for duplicates and twins
}

// shot is a frame as the render server tells it.
type shot struct {
	seed, swap, display, begin, end, previous, refresh, buffers, skip int64
	stalls                                                            bool
	missing                                                           int // index of an argument that is left out; -1 none
}

func newSimulation(seed uint64, policy string) *simulation {
	s := &simulation{Rand: rand.New(rand.NewPCG(seed, 95)), end: map[int64]int64{}, stream: newStream()}
	s.update = s.IntN(3) == 0
	s.startNs = 90_000_000_000 + s.Int64N(1_000_000_000)
	s.hostNs, s.dueNs = s.startNs, s.startNs+1_000_000_000
	s.binding = adapter.Binding{Target: adapter.Target{BundleID: "com.example.app", PID: 400, Generation: 1}, SourceEpoch: 1, PrimaryDisplayID: 1,
		Timebase: []adapter.Timebase{{Numer: 125, Denom: 3}, {Numer: 125, Denom: 3}, {Numer: 1, Denom: 1}, {Numer: 1, Denom: 3}}[s.IntN(4)]}
	s.log.Append(&ledger.Event{HostNs: s.startNs, Value: &ledger.Start{SessionID: randomSessionID, Name: fmt.Sprint(seed), Tool: ledger.Tool{Name: "framebridge", Version: "1"},
		Host: ledger.Host{CPUs: 2, PID: 431}, Evidence: ledger.EvidenceE2, Policy: adapter.PolicyP95, Clock: ledger.Clock{MonotonicNs: s.startNs, WallNs: 1_790_000_000_000_000_000}}})
	s.recorder = capture.NewRecorder(&s.log, adapter.New(adapter.SourceGoIOS, randomSessionID, policy), p95.NewMeter(true), false)
	s.seed = s.Int64N(1 << 20)
	s.end[1], s.end[2] = s.ticks(s.Int64N(1_000_000_000)+50_000_000_000), s.ticks(50_000_000_000)
	return s
}

// recordRandomSession records a session of so many steps.
func recordRandomSession(seed uint64, steps int) []byte {
	policy := adapter.PolicyP95
	if seed%20 == 0 {
		policy = ""
	}
	s := newSimulation(seed, policy)
	if s.IntN(4) == 0 {
		s.publish()
	}
	s.bind()
	if s.IntN(8) > 0 {
		s.recorder.Foreground(s.hostNs, true, "launch")
	}
	flood := -1
	if seed%400 == 2 {
		flood = s.IntN(steps)
	}
	for i := range steps {
		if i == flood {
			s.flood()
		}
		s.step()
	}
	s.publish()
	return s.finish()
}

// finish writes session.end.
func (s *simulation) finish() []byte {
	extra := s.recorder.Extra()
	s.log.counts[len(types)-1]++
	s.log.seq++
	return ledger.AppendLine(s.log.text, &ledger.Event{Seq: s.log.seq, HostNs: s.recorder.EndNs(s.hostNs),
		Value: &ledger.End{State: ledger.StateComplete, Counts: s.log.counts, Extra: extra}})
}

// smallSession is a session in which every number that a log can hold stands somewhere.
func smallSession() []byte {
	s := newSimulation(1, adapter.PolicyP95)
	s.update = false
	s.binding.Timebase = adapter.Timebase{Numer: 125, Denom: 3}
	s.publish()
	s.end[1] = s.ticks(50_000_000_000)
	s.bind()
	bridge := p95.ClockBridge{HostSendNs: s.hostNs - 1_800_000, HostReceiveNs: s.hostNs, DeviceContinuousMach: s.end[1], HasContinuous: true,
		DeviceAbsoluteMach: s.end[1] - 1_000_000, Timebase: s.binding.Timebase}
	s.recorder.Bridge(bridge)
	s.recorder.Foreground(s.hostNs, true, "launch")
	s.recorder.SourceState(s.hostNs, "connected", "")
	for i := range 8 {
		f := s.next(1, 8_333_333)
		f.skip, f.refresh, f.buffers, f.stalls = 0, 199_999, 2, false
		switch i {
		case 4: // late
			f.begin = f.end - s.ticks(50_043_958)
		case 6: // with a skewed predecessor
			f.previous += 12
			f.end += 12
		}
		s.show(f)
		s.hostNs += 8_333_333
		s.arrive()
	}
	s.log.Append(&ledger.Event{HostNs: s.hostNs, Value: &adapter.Contributors{FrameSeed: s.seed, DisplayID: 1,
		Processes: []adapter.Contributor{{PID: 400, Name: "Example"}, {PID: 79}}}})
	s.hostNs = s.dueNs + 3_141_592
	s.recorder.Publish(p95.Of(s.dueNs), s.hostNs)
	s.recorder.Lost(s.hostNs, ledger.SourceGap{Reason: "row-stream-broken", Rows: 3, Bytes: 412, Messages: 1})
	s.end[1] += 600_000
	s.seed += 3
	for range 6 {
		s.show(s.next(1, 8_333_333))
		s.hostNs += 8_333_333
		s.arrive()
	}
	s.publish()
	s.dueNs += 1_000_000_000
	s.hostNs = s.dueNs + 15
	s.recorder.Publish(p95.Of(s.dueNs), s.hostNs)
	bridge.HasContinuous = false
	s.recorder.Bridge(bridge)
	bridge.HasContinuous = true
	s.recorder.Bridge(bridge)
	reported := `"skipRequest":0,"displayTargetMach":1200000500,"inputMach":1200000100,"renderBeginMach":1200000200,"renderEndMach":1200000300,`
	return bytes.Replace(s.finish(), []byte(`"skipRequest":0,`), []byte(reported), 1)
}

// longSession is 20 s of 120 Hz with a gap, an idle second and a second connection in it.
func longSession() []byte {
	s := newSimulation(2, adapter.PolicyP95)
	s.bind()
	s.recorder.Foreground(s.hostNs, true, "launch")
	for i := range 200 {
		switch i {
		case 60:
			s.recorder.Lost(s.hostNs, ledger.SourceGap{Reason: "payload-lost", Messages: 1})
		case 100:
			s.end[1] += s.ticks(1_200_000_000)
		case 140:
			s.binding.ReconnectGeneration++
			s.bind()
		}
		if i%20 == 0 {
			s.bridge()
		}
		for range 12 {
			s.show(s.next(1, 8_333_333))
		}
		s.hostNs += 100_000_000
		s.arrive()
		s.regular()
	}
	return s.finish()
}

func (s *simulation) ticks(ns int64) int64 {
	return ns / s.binding.Timebase.Numer * s.binding.Timebase.Denom
}

// bind binds, and makes the tap anew.
func (s *simulation) bind() {
	s.recorder.Bind(s.hostNs, s.binding)
	s.stream = newStream()
}

// one of these numbers.
func one[T any](s *simulation, of ...T) T { return of[s.IntN(len(of))] }

func (s *simulation) step() {
	switch s.IntN(30) {
	default:
		s.frames(1+s.IntN(14), one[int64](s, 8_333_333, 16_666_667, 33_333_333, 100_000_000))
	case 0:
		s.frames(1+s.IntN(4), one[int64](s, 1_000_000_000, 1_099_999_999, 1_100_000_000, 1_100_000_001, 1_200_000_000))
	case 1, 2, 3, 4:
		s.odd()
	case 5:
		s.hostNs += one[int64](s, 1, 999_999_999, 1_000_000_000, 1_000_000_001, 9_999_999_999, 10_000_000_000, 11_000_000_000)
		s.publish()
	case 6, 7, 8:
		s.hostNs += s.Int64N(30_000_000)
		s.publish()
	case 9:
		s.recorder.Lost(s.hostNs, ledger.SourceGap{Reason: "payload-lost", Messages: 1})
	case 10:
		s.recorder.Foreground(s.hostNs, s.IntN(3) > 0, "notification")
	case 11, 12, 13:
		s.bridge()
	case 14:
		s.rebind()
	case 15:
		s.recorder.SourceState(s.hostNs, "connected", "")
	case 16: // the device's clock goes on, and nothing arrives
		s.hostNs += s.Int64N(3_000_000_000)
		s.end[s.binding.PrimaryDisplayID] += s.ticks(s.Int64N(3_000_000_000))
	}
	s.regular()
}

// regular makes the publications that are due.
func (s *simulation) regular() {
	for ; s.hostNs >= s.dueNs; s.dueNs += 1_000_000_000 {
		s.recorder.Publish(p95.Of(s.dueNs), s.hostNs)
	}
}

func (s *simulation) publish() {
	s.recorder.Publish(p95.Int{}, s.hostNs)
	s.hostNs++ // N is above every arrival so far
}

// bridge is an exchange at which the device's clock is ahead of the last end by about what makes a clock stale, or not.
func (s *simulation) bridge() {
	width := one(s, 0, s.Int64N(3_000_000))
	s.hostNs += width
	ahead := one[int64](s, 0, 50_000_000, 1_999_999_000, 2_000_000_000, 2_000_001_000, 5_000_000_000)
	b := p95.ClockBridge{HostSendNs: s.hostNs - width, HostReceiveNs: s.hostNs, DeviceContinuousMach: s.end[s.binding.PrimaryDisplayID] + s.ticks(ahead),
		HasContinuous: s.IntN(4) > 0, DeviceAbsoluteMach: 1, Timebase: s.binding.Timebase}
	s.recorder.Bridge(b)
	if width == 0 { // with ticks of a ns, exactly so old
		s.publish()
	}
}

func (s *simulation) rebind() {
	b := &s.binding
	switch s.IntN(7) {
	case 0:
		b.Target.Generation++
		b.Target.PID += 7
	case 1:
		b.SourceEpoch++
		b.ReconnectGeneration = 0
	case 2, 3:
		b.ReconnectGeneration++
	case 4:
		b.PrimaryDisplayID = 3 - b.PrimaryDisplayID
	case 5:
		b.Target.BundleID = one(s, "com.example.app", "com.example.other")
	case 6: // what is bound already
	}
	s.bind()
}

// next is the frame that a display shows so long after the one before.
func (s *simulation) next(display, intervalNs int64) shot {
	interval := s.ticks(intervalNs) + s.Int64N(3) - 1
	s.seed++
	f := shot{seed: s.seed, swap: s.seed + 7, display: display, previous: s.end[display], end: s.end[display] + interval, refresh: s.ticks(8_333_333),
		buffers: one[int64](s, 1, 2, 3), missing: -1}
	f.begin = f.end - s.ticks(one[int64](s, 7_000_000, 16_666_666, 25_000_000, 50_043_958))
	if s.IntN(16) == 0 {
		f.skip = 1
	}
	if s.IntN(16) == 0 {
		f.refresh = one(s, 0, f.refresh*2, 3)
	}
	f.stalls = s.IntN(8) == 0
	return f
}

func (s *simulation) frames(n int, intervalNs int64) {
	display := s.binding.PrimaryDisplayID
	if s.IntN(10) == 0 {
		display = 3 - display
	}
	for range n {
		s.show(s.next(display, intervalNs))
		s.hostNs += intervalNs
		if s.IntN(6) > 0 {
			s.arrive()
		}
	}
	s.arrive()
}

// flood shows more frames in ten seconds than the window holds, with publications around the one that is too many.
func (s *simulation) flood() {
	s.binding.ReconnectGeneration++
	s.bind()
	for i := range 4_110 {
		s.show(s.next(s.binding.PrimaryDisplayID, 2_000_000))
		s.hostNs += 2_000_000
		if i%8 == 0 || i > 4_090 {
			s.arrive()
		}
		if i > 4_090 {
			s.publish()
		}
	}
}

// odd is a frame that something is wrong with.
func (s *simulation) odd() {
	display := one[int64](s, 1, 1, 1, 2)
	f := s.next(display, 8_333_333)
	millisecond := s.ticks(1_000_000)
	near := one(s, 1, 2, millisecond-1, millisecond, millisecond+1, millisecond*8, s.ticks(1_100_000_000))
	switch s.IntN(12) {
	case 0:
		f.previous = 0
	case 1:
		f.previous -= near
	case 2:
		f.previous += near
		f.end += near
		f.seed += one[int64](s, 0, 1, 5, 9_999, 10_000, 10_001)
		s.seed = f.seed
	case 3:
		f.begin = f.end + near
	case 4:
		f.end = f.previous - near
	case 5:
		f.end = s.end[display] - near + 2
		f.previous = f.end - s.ticks(8_000_000)
	case 6, 7:
		if len(s.recent) > 0 {
			f = s.recent[s.IntN(len(s.recent))]
			f.stalls = f.stalls != (s.IntN(3) == 0)
		}
	case 8:
		f.missing = s.IntN(9)
	case 9:
		*one(s, &f.previous, &f.refresh, &f.buffers) = -s.Int64N(1 << 62) // too large, as the device's unsigned numbers are
	case 10:
		f.end = 1<<62 + s.Int64N(1<<40)
	case 11:
		f.seed -= s.Int64N(20)
	}
	s.show(f)
	s.hostNs += 8_333_333
	s.arrive()
}

// show puts a frame into the tap's stream.
func (s *simulation) show(f shot) {
	s.stream.frame(&f, s.update)
	if f.end < 1<<60 {
		s.end[f.display] = max(s.end[f.display], f.end)
	}
	if s.recent = append(s.recent, f); len(s.recent) > 20 {
		s.recent = s.recent[1:]
	}
}

// arrive delivers what is in the stream.
func (s *simulation) arrive() {
	if payload := s.stream.take(); len(payload) > 0 {
		s.recorder.Payload(s.hostNs, payload)
		s.hostNs = max(s.hostNs, s.recorder.EndNs(s.hostNs))
	}
}

// stream writes a tap's row stream as wire.md describes it, everything spelled out anew in each row.
type stream struct{ out []byte }

func newStream() *stream {
	s := &stream{}
	s.word(0x6400, 0x6800, 0x6800)
	s.text("os-signpost")
	for _, column := range [...]string{"time", "event-type", "identifier", "name", "format-string", "subsystem", "category", "message"} {
		s.text(column)
	}
	s.word(0x6908, 0x0102)
	return s
}

func (s *stream) take() []byte {
	out := s.out
	s.out = nil
	return out
}

func (s *stream) word(words ...uint16) {
	for _, w := range words {
		s.out = binary.LittleEndian.AppendUint16(s.out, w)
	}
}

func (s *stream) text(v string) { s.push(append([]byte(v), 0)) }

func (s *stream) number(v uint64) {
	b := binary.LittleEndian.AppendUint64(nil, v)
	s.push(bytes.TrimRight(b[1:], "\x00"), b[0])
}

// push pushes bytes; first comes before the rest.
func (s *stream) push(rest []byte, first ...byte) {
	b := append(first, rest...)
	var held uint32
	count := 0
	for groups := (len(b)*8 + 13) / 14; groups > 0; groups-- {
		for count < 14 {
			held <<= 8
			if len(b) > 0 {
				held |= uint32(b[0])
				b = b[1:]
			}
			count += 8
		}
		w := uint16(held>>(count-14)&0x3FFF) | 0x8000
		if groups == 1 {
			w |= 0x4000
		}
		s.word(w)
		count -= 14
	}
}

const (
	lifetimeFormat = "ID is swap ID. %{public, signpost.description:begin_time}llu frame_seed=%{public, name=frame_seed}#x refresh_interval=%{public, name=refresh_interval}llu " +
		"buffer_count=%{public, name=buffer_count}hhu %{public, signpost.description:end_time}llu prev_frame=%{public, name=prev_frame}llu " +
		"skip_request=%{public, name=skip_request}hhu display_id=%{public, name=display_id}#x"
	updateFormat = "Unique ID is a pack of two 32-bit update_seed and swap_id. base_mct=%{signpost.generator:base_mct}llu  args1=%{public, name=args1}#llx " +
		"args2=%{public, name=args2}#llx FrameLifetimeInterval=%{name=FrameLifetimeInterval,signpost.generator:begin_end_32b}llu  " +
		"FramePrevious=%{name=FramePrevious,signpost.generator:event}llu"
)

// frame writes a frame's row in one of the two native forms.
func (s *stream) frame(f *shot, update bool) {
	type argument struct {
		name  string
		value uint64
	}
	name, format, identifier := "FrameLifetime", lifetimeFormat, uint64(f.swap)
	arguments := []argument{{"begin_time=", uint64(f.begin)}, {" frame_seed=", uint64(f.seed)}, {" refresh_interval=", uint64(f.refresh)},
		{" buffer_count=", uint64(f.buffers)}, {" end_time=", uint64(f.end)}, {" prev_frame=", uint64(f.previous)}, {" skip_request=", uint64(f.skip)},
		{" display_id=", uint64(f.display)}}
	if base := min(f.begin, f.end); update {
		name, format, identifier = "FrameUpdate", updateFormat, uint64(f.seed)<<32|uint64(f.swap)&0xFFFFFFFF
		arguments = []argument{{"base_mct=", uint64(base)}, {"  args1=", uint64(f.display&0xFF)<<48 | uint64(f.buffers&15)<<44 | uint64(f.skip&1)<<33},
			{" args2=", uint64(f.refresh) & 0xFFFFFFFF}, {" FrameLifetimeInterval=", uint64(f.begin-base)<<32 | uint64(f.end-base)&0xFFFFFFFF},
			{"  FramePrevious=", uint64(f.previous)}}
	}
	category := "IOMFBServer"
	if f.stalls {
		category = "IOMFBServer.Stalls"
	}
	s.number(uint64(f.begin))
	s.text("Event")
	s.number(identifier)
	for _, v := range [...]string{name, format, "com.apple.coreanimation", category} {
		s.text(v)
	}
	pairs := uint16(0)
	pair := func(kind string) {
		s.word(0x6902)
		pairs++
	}
	for i, a := range arguments {
		if i == f.missing {
			continue
		}
		s.text("narrative-text")
		s.text(a.name)
		pair("")
		s.text("uint64")
		s.number(a.value)
		pair("")
	}
	s.word(0x6900|pairs, 0x0202)
}
