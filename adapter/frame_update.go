package adapter

import (
	"bytes"
	"encoding/binary"
	"math"
)

// frameUpdate reads FrameUpdate, iOS 26: one event for each frame, its times packed as offsets from base_mct.
type frameUpdate struct {
	present [len(updateRequired)]string
	data    []byte // the contributors of the frame at hand
	partial int64  // rows whose contributors are not all told
}

const (
	updateBase argument = iota
	updateArgs1
	updateArgs2
	updateInterval32 // high 32 bits begin, low 32 bits end
	updateInterval16 // the same with 16
	updateIntervalBegin
	updateIntervalEnd
	updatePrevious
	updateContributors
	updateRender32
	updateRender16
	updateTarget
)

// updateRequired are the arguments without which a frame cannot be judged, as presentFields names them.
var updateRequired = [...]struct {
	name string
	any  []argument
}{
	{"base_mct", []argument{updateBase}}, {"args1", []argument{updateArgs1}}, {"args2", []argument{updateArgs2}},
	{"FrameLifetimeInterval", []argument{updateInterval32, updateInterval16, updateIntervalBegin, updateIntervalEnd}},
	{"FramePrevious", []argument{updatePrevious}},
}

func updateArgument(name []byte, generator string) argument {
	if generator == "id" {
		return noArgument // an identifier, no time
	}
	switch string(name) {
	case "basemct":
		return updateBase
	case "args1":
		return updateArgs1
	case "args2":
		return updateArgs2
	case "frameprevious":
		return updatePrevious
	case "contributors":
		return updateContributors
	case "framemodifiertarget":
		return updateTarget
	case "framelifetimeinterval":
		switch generator {
		case "", "begin_end_32b":
			return updateInterval32
		case "begin_end_16b":
			return updateInterval16
		case "begin":
			return updateIntervalBegin
		case "end":
			return updateIntervalEnd
		}
	case "framerender":
		switch generator {
		case "", "begin_end_32b":
			return updateRender32
		case "begin_end_16b":
			return updateRender16
		}
	}
	return noArgument
}

// Bits of args1 and args2.
const (
	args1SkipRequest   = 33
	args1BufferCount   = 44
	args1BufferBits    = 4
	args1Display       = 48 // 255: 255 or more
	args1DisplayBits   = 8
	args2RefreshBits   = 32
	refreshNotMeasured = 1<<args2RefreshBits - 1 // that or more
)

func bitField(n uint64, from, count int) int64 { return int64(n >> from & (1<<count - 1)) }

func (f *frameUpdate) read(s *signpost, r *Record, c *Contributors) reading {
	if s.event != eventSingle {
		return reading{unreadable: "a FrameUpdate row that is no Event"}
	}
	args := &s.args
	fault := ""
	var base int64
	args.require(updateBase, r, 0, &base, &fault)
	hasBase := fault == ""

	if n, ok := args.need(updateArgs1, &fault); ok {
		r.SkipRequest = bitField(n, args1SkipRequest, 1)
		r.BufferCount = bitField(n, args1BufferCount, args1BufferBits)
		r.DisplayID = bitField(n, args1Display, args1DisplayBits)
		r.Fields |= HasSkipRequest | HasBufferCount | HasDisplayID
	}
	if n, ok := args.need(updateArgs2, &fault); ok {
		if r.RefreshIntervalMach = bitField(n, 0, args2RefreshBits); r.RefreshIntervalMach == refreshNotMeasured {
			r.RefreshIntervalMach = 0
		}
		r.Fields |= HasRefreshIntervalMach
	}
	begin, end, ok := f.interval(args, &fault)
	if ok && hasBase {
		offset(base, begin, r, HasBeginMach, &r.BeginMach, &fault)
		offset(base, end, r, HasEndMach, &r.EndMach, &fault)
	}
	args.require(updatePrevious, r, HasPreviousMach, &r.PreviousMach, &fault)

	id, hasID := s.identifier.Uint64()
	if hasID {
		r.SwapID, r.FrameSeed, r.NativeID = int64(id&math.MaxUint32), int64(id>>32), int64(id)
		r.Fields |= HasSwapID | HasFrameSeed | HasNativeID
	} else if fault == "" {
		fault = ReasonArgumentMissing
	}
	r.Fields |= HasSurfaceID // 0: never reported
	if hasBase {
		f.optional(args, base, r)
	}
	if fault != "" {
		r.PresentFields = f.present[:0]
		for _, required := range updateRequired {
			for _, i := range required.any {
				if args.state[i] != argumentAbsent {
					r.PresentFields = append(r.PresentFields, required.name)
					break
				}
			}
		}
	}
	if !f.contributors(args, c) {
		f.partial++
	}
	return reading{whole: true, fault: fault}
}

// need is require for 64 bits that are no number of their own.
func (a *arguments) need(i argument, fault *string) (n uint64, ok bool) {
	if a.state[i] == argumentNumber {
		return a.number[i], true
	}
	if *fault == "" {
		*fault = ReasonArgumentType
		if a.state[i] == argumentAbsent {
			*fault = ReasonArgumentMissing
		}
	}
	return 0, false
}

// interval is the frame's begin and end as offsets from base_mct, however they were packed.
func (f *frameUpdate) interval(args *arguments, fault *string) (begin, end uint64, ok bool) {
	switch {
	case args.state[updateInterval16] != argumentAbsent:
		n, ok := args.need(updateInterval16, fault)
		if ok && n > math.MaxUint32 && *fault == "" {
			*fault = ReasonArgumentRange
		}
		return n >> 16, n & math.MaxUint16, ok && n <= math.MaxUint32
	case args.state[updateIntervalBegin] != argumentAbsent || args.state[updateIntervalEnd] != argumentAbsent:
		begin, okBegin := args.need(updateIntervalBegin, fault)
		end, okEnd := args.need(updateIntervalEnd, fault)
		return begin, end, okBegin && okEnd
	}
	n, ok := args.need(updateInterval32, fault)
	return n >> 32, n & math.MaxUint32, ok
}

// offset sets a time that is told as ticks after base.
func offset(base int64, ticks uint64, r *Record, has Fields, to *int64, fault *string) {
	if ticks > uint64(math.MaxInt64-base) {
		if *fault == "" {
			*fault = ReasonArgumentRange
		}
		return
	}
	*to, r.Fields = base+int64(ticks), r.Fields|has
}

// optional reads what a frame can do without: offsets from base, 0 where the device does not know them.
func (f *frameUpdate) optional(args *arguments, base int64, r *Record) {
	known := func(ticks uint64, has Fields, to *int64) {
		if ticks != 0 {
			ignored := ""
			offset(base, ticks, r, has, to, &ignored)
		}
	}
	if args.state[updateRender32] == argumentNumber {
		known(args.number[updateRender32]>>32, HasRenderBeginMach, &r.RenderBeginMach)
		known(args.number[updateRender32]&math.MaxUint32, HasRenderEndMach, &r.RenderEndMach)
	} else if n := args.number[updateRender16]; args.state[updateRender16] == argumentNumber && n <= math.MaxUint32 {
		known(n>>16, HasRenderBeginMach, &r.RenderBeginMach)
		known(n&math.MaxUint16, HasRenderEndMach, &r.RenderEndMach)
	}
	if args.state[updateTarget] == argumentNumber {
		known(args.number[updateTarget], HasDisplayTargetMach, &r.DisplayTargetMach)
	}
}

// contributorBytes is the size of one contributor's record: four little-endian int32, the first of which is its pid.
const contributorBytes = 16

// contributors reports whether every contributor that the row carries is in c.
func (f *frameUpdate) contributors(args *arguments, c *Contributors) (all bool) {
	data := args.object[updateContributors]
	switch state := args.state[updateContributors]; {
	case state == argumentAbsent || state == argumentData && data.IsNull():
		return true
	case state != argumentData:
		return false
	}
	f.data, all = data.AppendData(f.data[:0])
	for len(f.data)%contributorBytes != 0 && len(f.data)%8 != 0 {
		f.data = append(f.data, 0) // the last 8-byte chunk, sent short because it ends in zeros
	}
	rest := f.data
	for ; len(rest) >= contributorBytes && len(c.Processes) < MaxContributors; rest = rest[contributorBytes:] {
		pid := int32(binary.LittleEndian.Uint32(rest))
		c.Processes = append(c.Processes, Contributor{PID: int64(pid)})
	}
	return all && len(bytes.TrimRight(rest, "\x00")) == 0 // a zero byte may be more than was sent
}

func (f *frameUpdate) reset() {}
