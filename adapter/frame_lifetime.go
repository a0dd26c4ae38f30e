package adapter

import "math"

// frameLifetime reads FrameLifetime, iOS 15 to 18 and macOS. The server emits one event for each frame; the device's log loader makes a Begin
// and an End row of it, whose times are the frame's begin and end.
type frameLifetime struct {
	begun   memory // row time by frame, of Begin rows whose End has not come
	present [len(lifetimeRequired)]string
	pairs   PairCounts
}

// PairCounts counts rows whose other half never came.
type PairCounts struct {
	UnpairedBegins int64 // no End came while 1,024 more frames began, or before the connection ended
	UnpairedEnds   int64 // each is a record without beginMach
}

const (
	lifetimeBegin argument = iota
	lifetimeEnd
	lifetimeSeed
	lifetimeRefresh
	lifetimeBuffers
	lifetimePrevious
	lifetimeSkip
	lifetimeDisplay
	lifetimeSurface
	lifetimeTarget
	lifetimeInput
)

// lifetimeRequired are the arguments without which a frame cannot be judged, as presentFields names them.
var lifetimeRequired = [...]struct {
	argument
	name string
}{
	{lifetimeBegin, "begin_time"}, {lifetimeEnd, "end_time"}, {lifetimeSeed, "frame_seed"}, {lifetimeRefresh, "refresh_interval"},
	{lifetimeBuffers, "buffer_count"}, {lifetimePrevious, "prev_frame"}, {lifetimeSkip, "skip_request"},
}

func lifetimeArgument(name []byte, _ string) argument {
	switch string(name) {
	case "begintime":
		return lifetimeBegin
	case "endtime":
		return lifetimeEnd
	case "frameseed":
		return lifetimeSeed
	case "refreshinterval":
		return lifetimeRefresh
	case "buffercount":
		return lifetimeBuffers
	case "prevframe":
		return lifetimePrevious
	case "skiprequest":
		return lifetimeSkip
	case "displayid":
		return lifetimeDisplay
	case "surfaceid":
		return lifetimeSurface
	case "presentationmodifierdisplaytargetmct":
		return lifetimeTarget
	case "inputtime":
		return lifetimeInput
	}
	return noArgument
}

func (f *frameLifetime) read(s *signpost, r *Record, _ *Contributors) reading {
	args := &s.args
	key := f.key(s)
	hasBegin, hasEnd := args.state[lifetimeBegin] != argumentAbsent, args.state[lifetimeEnd] != argumentAbsent
	time, timed := s.time.Uint64()
	if s.event != eventSingle && !timed {
		return reading{unreadable: "a Begin or End row without a time"}
	}
	switch {
	case hasBegin && hasEnd:
		// A row that still carries both is the whole frame. Where it is one of a pair all the same, the other one is no second frame.
		key.told = true
		if s.event == eventBegin {
			f.put(key, 0)
		} else if _, told := f.begun.take(key); told && s.event == eventEnd {
			return reading{}
		}
	case s.event == eventBegin:
		if hasBegin && args.state[lifetimeBegin] == argumentNumber {
			time = args.number[lifetimeBegin]
		}
		f.put(key, time)
		return reading{}
	case s.event == eventNone:
		return reading{unreadable: "a FrameLifetime row without an event type"}
	case s.event == eventEnd:
		if begin, ok := f.begun.take(key); !ok {
			f.pairs.UnpairedEnds++
		} else if !hasBegin {
			args.setNumber(lifetimeBegin, uint64(begin))
		}
		if !hasEnd {
			args.setNumber(lifetimeEnd, time)
		}
	}
	swap, hasSwap := s.identifier.Uint64()
	return reading{whole: true, fault: f.record(args, swap, hasSwap, r)}
}

func (f *frameLifetime) put(key frameKey, begin uint64) {
	if forgot, ok := f.begun.put(key, int64(begin)); ok && !forgot.told {
		f.pairs.UnpairedBegins++
	}
}

// key is what a frame's two rows have in common. What one of them lacks, the other lacks too.
func (f *frameLifetime) key(s *signpost) frameKey {
	number := func(n uint64, ok bool) int64 {
		if !ok {
			return -1
		}
		return int64(n)
	}
	swap, hasSwap := s.identifier.Uint64()
	return frameKey{
		category: s.category,
		display:  number(s.args.number[lifetimeDisplay], s.args.state[lifetimeDisplay] == argumentNumber),
		seed:     number(s.args.number[lifetimeSeed], s.args.state[lifetimeSeed] == argumentNumber),
		swap:     number(swap, hasSwap),
	}
}

// record fills r from the arguments, begin and end among them.
func (f *frameLifetime) record(args *arguments, swap uint64, hasSwap bool, r *Record) (fault string) {
	args.require(lifetimeBegin, r, HasBeginMach, &r.BeginMach, &fault)
	args.require(lifetimeEnd, r, HasEndMach, &r.EndMach, &fault)
	args.require(lifetimeSeed, r, HasFrameSeed, &r.FrameSeed, &fault)
	args.require(lifetimeRefresh, r, HasRefreshIntervalMach, &r.RefreshIntervalMach, &fault)
	args.require(lifetimeBuffers, r, HasBufferCount, &r.BufferCount, &fault)
	args.require(lifetimePrevious, r, HasPreviousMach, &r.PreviousMach, &fault)
	args.require(lifetimeSkip, r, HasSkipRequest, &r.SkipRequest, &fault)
	if args.state[lifetimeDisplay] == argumentAbsent {
		r.Fields |= HasDisplayID // 0: not reported
	} else {
		args.require(lifetimeDisplay, r, HasDisplayID, &r.DisplayID, &fault) // which display it is cannot be guessed
	}
	r.Fields |= HasSurfaceID // 0: not reported
	args.reported(lifetimeSurface, r, HasSurfaceID, &r.SurfaceID)
	args.reported(lifetimeTarget, r, HasDisplayTargetMach, &r.DisplayTargetMach)
	args.reported(lifetimeInput, r, HasInputMach, &r.InputMach)
	requireSwap(swap, hasSwap, r, &fault)
	if fault != "" {
		r.PresentFields = f.present[:0]
		for _, required := range lifetimeRequired {
			if args.state[required.argument] != argumentAbsent {
				r.PresentFields = append(r.PresentFields, required.name)
			}
		}
	}
	return fault
}

func requireSwap(swap uint64, ok bool, r *Record, fault *string) {
	switch {
	case ok && swap <= math.MaxInt64:
		r.SwapID, r.Fields = int64(swap), r.Fields|HasSwapID
	case *fault != "":
	case ok:
		*fault = ReasonArgumentRange
	default:
		*fault = ReasonArgumentMissing
	}
}

func (f *frameLifetime) reset() {
	for i, live := range f.begun.live {
		if live && !f.begun.keys[i].told {
			f.pairs.UnpairedBegins++
		}
	}
	f.begun = memory{}
}
