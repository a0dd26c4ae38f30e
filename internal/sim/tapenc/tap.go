package tapenc

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/framebridge/framebridge/internal/sim/scene"
)

const (
	// DefaultResetItems is the depth at which the device's encoder begins anew.
	DefaultResetItems = 5000

	// A reader that takes nothing for minutes must not cost the simulator all its memory: beyond this much undelivered, everything
	// waiting is dropped and the stream begins anew with a reset.
	maxUndelivered = 16 << 20

	// Torn messages are shorter than a record, so that most rows are torn.
	maxTornBytes = 700
)

// ErrGone means that the phone restarted, or that the tap was closed: this tap will never give anything again.
var ErrGone = errors.New("the tap is gone")

// Filter is what a client's predicate asked for. An empty list asks for all.
type Filter struct {
	Subsystems, Categories []string
	Logs                   bool // os-log rows too
}

func (f *Filter) wants(subsystem, category string) bool {
	return (len(f.Subsystems) == 0 || slices.Contains(f.Subsystems, subsystem)) &&
		(len(f.Categories) == 0 || slices.Contains(f.Categories, category))
}

// Config is how a tap is set up.
type Config struct {
	Filter     Filter
	ResetItems int // 0: DefaultResetItems
	// KeepNumbers makes the encoder keep frame seeds, identifiers and ends on the stack too, so that it begins anew every few
	// thousand frames. The phone's own keeps only strings, processes and threads: asked for nothing but frames it hardly ever does.
	KeepNumbers bool
	Tear        bool        // from the beginning, as by Inject
	Seed        uint64      // of the places where messages are torn and corrupted
	Truth       func(Truth) // called from Collect and Close for each frame; it must not call the Tap
}

// Truth is what is known of one frame that was encoded.
type Truth struct {
	// Line is JSON as in the .frames.jsonl files, without newline; valid only during the call.
	Line []byte
	// First and Last are the numbers of the payloads with the first and the last byte that belongs to the frame, its contributors
	// included. They are 0 where the tap was closed or overflowed before they were cut.
	First, Last int64
	// Reset counts the stream's resets: a frame after an undecodable place can be read again if its Reset is greater.
	Reset int64
}

// FaultKind says what goes wrong with payloads.
type FaultKind string

// The kinds of fault.
const (
	FaultTear      FaultKind = "tear"      // messages end at any byte, from now on; Payloads -1 ends it
	FaultLose      FaultKind = "lose"      // the next Payloads are made and never delivered
	FaultDuplicate FaultKind = "duplicate" // the next Payloads are delivered twice
	FaultCorrupt   FaultKind = "corrupt"   // a run of bytes in each of the next Payloads of more than one is overwritten with what is no word
	FaultStall     FaultKind = "stall"     // nothing is delivered For this long, then all of it
)

// Fault is one fault. Payloads 0 is one.
type Fault struct {
	Kind     FaultKind
	Payloads int
	For      time.Duration // device time
}

// Payload is one message's content.
type Payload struct {
	N     int64 // 1, 2, 3 … as cut; a lost one is missing, a duplicated one comes twice
	Bytes []byte
}

// Tap is one tap that a client has set up. Its methods are safe for concurrent use.
type Tap struct {
	dev  *scene.Device
	boot int
	stop func()

	mu      sync.Mutex
	config  Config
	rng     *rand.Rand
	enc     *encoder
	gone    bool
	tear    bool
	lose    int
	double  int
	corrupt int
	stalled time.Duration // until this device time

	// enc.buf holds what was not delivered yet, from stream offset base on; the first delivered bytes of it are the last Collect's.
	base      int64
	delivered int
	cuts      []cut
	seen      int // of enc.buf at the last Collect
	payloads  int64
	out       []Payload

	told  []told
	lines []byte
}

// cut is one payload: enc.buf up to end, counted from the cut before it.
type cut struct {
	end   int
	n     int64
	times int // how often it is delivered
}

// told is a frame whose payloads are not all cut yet. Offsets are of the stream.
type told struct {
	begin, end  int64
	first       int64 // payload number, once cut
	line, reset int64 // end of its line in Tap.lines
}

// Open sets up a tap at device time at. Its stream begins with a reset and holds what is emitted from then on.
func Open(dev *scene.Device, at time.Duration, c Config) (*Tap, error) {
	st := dev.Status(at)
	if !st.Up {
		return nil, scene.ErrDown
	}
	if c.ResetItems == 0 {
		c.ResetItems = DefaultResetItems
	}
	t := &Tap{dev: dev, boot: st.Boot, config: c, tear: c.Tear, rng: rand.New(rand.NewPCG(c.Seed, 0x746170)),
		enc: newEncoder(dev.OS(), c.ResetItems, c.KeepNumbers)}
	if c.Truth != nil {
		t.enc.told = t.note
	}
	t.stop = dev.Observe(at, t.see)
	return t, nil
}

// Collect gives the payloads that leave the phone up to device time at, in order. They are valid until the next Collect. After
// the phone restarted, or after Close, it is ErrGone.
func (t *Tap) Collect(at time.Duration) ([]Payload, error) {
	st := t.dev.Clock(at)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gone || !st.Up || st.Boot != t.boot {
		return nil, fmt.Errorf("%w: set up a new one", ErrGone)
	}
	t.compact()
	t.cut()
	t.out = t.out[:0]
	if at < t.stalled {
		return nil, nil
	}
	start := 0
	for _, c := range t.cuts {
		for range c.times {
			t.out = append(t.out, Payload{N: c.n, Bytes: t.enc.buf[start:c.end:c.end]})
		}
		start = c.end
	}
	t.cuts, t.delivered = t.cuts[:0], start
	return t.out, nil
}

// Inject makes a fault happen from now on, which is device time at.
func (t *Tap) Inject(at time.Duration, f Fault) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := max(1, f.Payloads)
	switch f.Kind {
	case FaultTear:
		t.tear = f.Payloads >= 0
	case FaultLose:
		t.lose += n
	case FaultDuplicate:
		t.double += n
	case FaultCorrupt:
		t.corrupt += n
	case FaultStall:
		t.stalled = at + f.For
	default:
		return fmt.Errorf("unknown fault %q: faults of a tap are tear, lose, duplicate, corrupt and stall", f.Kind)
	}
	return nil
}

// Close ends the tap. What was not delivered never will be.
func (t *Tap) Close() {
	t.stop()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gone {
		return
	}
	t.gone = true
	t.tell(0, 0, t.written())
}

// see encodes one event; the device calls it while somebody advances it.
func (t *Tap) see(ev *scene.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gone || ev.Boot != t.boot {
		return
	}
	if len(t.enc.buf)-t.delivered > maxUndelivered {
		t.overflow()
	}
	t.enc.see(ev, &t.config.Filter)
}

// note keeps what is true of a frame until its payloads are cut.
func (t *Tap) note(f *scene.Frame, from int) {
	t.lines = appendTruth(t.lines, t.enc.form, f)
	t.told = append(t.told, told{begin: t.base + int64(from), end: t.written(), line: int64(len(t.lines)), reset: t.enc.resets})
}

// written is the stream offset of what is encoded next.
func (t *Tap) written() int64 { return t.base + int64(len(t.enc.buf)) }

// overflow drops everything undelivered.
func (t *Tap) overflow() {
	t.tell(0, 0, t.written())
	t.base = t.written()
	t.enc.buf = nil // the last Collect's payloads may still be in use
	t.cuts, t.delivered, t.seen = t.cuts[:0], 0, 0
	t.enc.restart()
}

// compact makes room by forgetting what the last Collect delivered.
func (t *Tap) compact() {
	t.base += int64(t.delivered)
	t.enc.buf = t.enc.buf[:copy(t.enc.buf, t.enc.buf[t.delivered:])]
	for i := range t.cuts {
		t.cuts[i].end -= t.delivered
	}
	t.seen -= t.delivered
	t.delivered = 0
}

// cut makes payloads of what was encoded since the last time. While messages are torn, the end of it stays for the next time,
// unless nothing came.
func (t *Tap) cut() {
	start, end := 0, len(t.enc.buf)
	if len(t.cuts) > 0 {
		start = t.cuts[len(t.cuts)-1].end
	}
	fresh := end > t.seen
	t.seen = end
	if t.tear && fresh {
		for {
			n := 1 + t.rng.IntN(maxTornBytes)
			if start+n >= end {
				return
			}
			t.cutAt(start, start+n)
			start += n
		}
	}
	if end > start {
		t.cutAt(start, end)
	}
}

// cutAt makes a payload of enc.buf[start:end], with what goes wrong with it.
func (t *Tap) cutAt(start, end int) {
	t.payloads++
	c := cut{end: end, n: t.payloads, times: 1}
	if t.double > 0 {
		t.double--
		c.times = 2
	}
	if t.lose > 0 {
		t.lose--
		c.times = 0
	}
	if t.corrupt > 0 && end-start >= minSpoiledBytes {
		t.corrupt--
		spoil(t.enc.buf[start:end], t.rng)
	}
	t.cuts = append(t.cuts, c)
	t.tell(c.n, c.n, t.base+int64(end))
}

// minSpoiledBytes is the shortest payload that is corrupted: one byte may be the low half of a word, which would be another number then.
const minSpoiledBytes = 2

// spoil overwrites up to 32 bytes in the middle half of b. The byte is no opcode and no part of a number as the high byte of a word,
// so that the row it hits cannot be mistaken for a good one, whichever byte of a word the run begins with.
func spoil(b []byte, rng *rand.Rand) {
	if len(b) < 8 {
		for i := range b {
			b[i] = 0x33
		}
		return
	}
	from := len(b)/4 + rng.IntN(len(b)/4)
	for i := from; i < min(from+32, len(b)); i++ {
		b[i] = 0x33
	}
}

// tell gives out the truth of the frames up to stream offset end, all of which is in payload last; first is the number for those that
// begin in it.
func (t *Tap) tell(first, last, end int64) {
	from, n := int64(0), 0
	for i := range t.told {
		f := &t.told[i]
		if f.begin >= end {
			break
		}
		if f.first == 0 {
			f.first = first
		}
		if f.end > end {
			break
		}
		t.config.Truth(Truth{Line: t.lines[from:f.line], First: f.first, Last: last, Reset: f.reset})
		from = f.line
		n++
	}
	if n == 0 {
		return
	}
	t.told = slices.Delete(t.told, 0, n)
	t.lines = append(t.lines[:0], t.lines[from:]...)
	for i := range t.told {
		t.told[i].line -= from
	}
}
