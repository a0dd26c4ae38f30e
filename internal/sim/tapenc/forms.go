package tapenc

import (
	"encoding/binary"
	"math"

	"github.com/framebridge/framebridge/internal/sim/scene"
)

const (
	subsystemCA     = "com.apple.coreanimation"
	categoryPlain   = "IOMFBServer"
	categoryStalls  = "IOMFBServer.Stalls"
	nameLifetime    = "FrameLifetime"
	nameUpdate      = "FrameUpdate"
	nameContextInfo = "ContextInfo"
)

// The arguments of FrameLifetime by release (spec/wire.md): seven, then display and surface, then the target, then the input.
const (
	lifetime7 = "ID is swap ID. %{public, signpost.description:begin_time}llu frame_seed=%{public, name=frame_seed}#x" +
		" refresh_interval=%{public, name=refresh_interval}llu buffer_count=%{public, name=buffer_count}hhu" +
		" %{public, signpost.description:end_time}llu prev_frame=%{public, name=prev_frame}llu" +
		" skip_request=%{public, name=skip_request}hhu"
	lifetime9 = lifetime7 + " display_id=%{public, name=display_id}#x surface_id=%{public, name=surface_id}#x"
	// iOS 18 prints the display another way.
	lifetime10 = lifetime7 + " display_id=%{public, name=display_id}u surface_id=%{public, name=surface_id}#x" +
		" presentation_modifier_display_target_mct=%{public, name=presentation_modifier_display_target_mct}llu"
	lifetime11 = lifetime10 + " input_time=%{public, name=input_time}llu"

	contextInfo = "pid=%{public, name=pid}d frame_seed=%{public, name=frame_seed}#x"
	// iOS 15 knows no displays.
	contextInfoDisplay = " display_id=%{public, name=display_id}#x"
	contextInfoRest    = " earliest_mct=%{public, name=earliest_mct}llu previous_mct=%{public, name=previous_mct}llu" +
		" process_name=%{public, name=process_name}s"

	updateCommon = "Unique ID is a pack of two 32-bit update_seed and swap_id. base_mct=%{signpost.generator:base_mct}llu " +
		" args1=%{public, name=args1}#llx args2=%{public, name=args2}#llx contributors=%{public, name=contributors}.*P" +
		" FrameLifetimeInterval=%{name=FrameLifetimeInterval,signpost.generator:begin_end_32b}llu " +
		" FrameRender=%{name=FrameRender,signpost.generator:begin_end_32b}llu " +
		" FrameReady=%{name=FrameReady,signpost.generator:event}u " +
		" FramePrevious=%{name=FramePrevious,signpost.generator:event}llu "
	updateGPU     = " FrameGPUExecute=%{name=FrameGPUExecute,signpost.generator:begin_end_32b}llu "
	updateProcess = " FrameProcess=%{name=FrameProcess,signpost.generator:begin_end_32b}llu "
	updateTarget  = " FrameModifierTarget=%{name=FrameModifierTarget,signpost.generator:event}llu "
)

// updateFormat is the variant of FrameUpdate's format that has these parts.
func updateFormat(gpu, process, target bool) string {
	s := updateCommon
	if gpu {
		s += updateGPU
	}
	if process {
		s += updateProcess
	}
	if target {
		s += updateTarget
	}
	return s
}

// form says, by release, which of the optional things a frame's rows say.
type form struct {
	update                 bool // FrameUpdate, else FrameLifetime
	display, target, input bool // FrameLifetime has these arguments
}

func formOf(os scene.OS) form {
	switch {
	case os.Major >= 26:
		return form{update: true}
	case os.Major >= 18:
		return form{display: true, target: true, input: true}
	case os.Major >= 16:
		return form{display: true}
	default:
		return form{}
	}
}

func lifetimeFormat(f form, input bool) string {
	switch {
	case input && f.input:
		return lifetime11
	case f.target:
		return lifetime10
	case f.display:
		return lifetime9
	default:
		return lifetime7
	}
}

func contextInfoFormat(f form) string {
	if f.display {
		return contextInfo + contextInfoDisplay + contextInfoRest
	}
	return contextInfo + contextInfoRest
}

func category(f *scene.Frame) string {
	if f.Stalled {
		return categoryStalls
	}
	return categoryPlain
}

// args1 packs render reasons, skip request, buffer count and display; the bits in between are counters.
func args1(f *scene.Frame) uint64 {
	counters := uint64(f.Counter)
	return uint64(f.Reasons) | counters&1<<32 | uint64(f.Skip)<<33 | counters>>1&0x3ff<<34 |
		uint64(f.Buffers)&0xf<<44 | uint64(min(f.DisplayID, 255))<<48 | counters>>11&0xff<<56
}

// args2 has the refresh interval; all ones says that it is that or more, and so unknown.
func args2(f *scene.Frame) uint64 {
	refresh := uint64(math.MaxUint32)
	if f.Refresh > 0 && f.Refresh < math.MaxUint32 {
		refresh = uint64(f.Refresh)
	}
	return refresh | uint64(f.Counter>>19)<<32
}

// offset is t as an offset from the base: 0 where it is at or before it, or unknown.
func offset(f *scene.Frame, t int64) uint64 {
	if t <= f.Base || t-f.Base > math.MaxUint32 {
		return 0
	}
	return uint64(t - f.Base)
}

func interval(f *scene.Frame, begin, end int64) uint64 { return offset(f, begin)<<32 | offset(f, end) }

// appendContributors are FrameUpdate's records of 16 bytes: pid, earliest commit, previous presentation, target.
func appendContributors(dst []byte, f *scene.Frame) []byte {
	signed := func(t int64) uint32 {
		if off := t - f.Base; t != 0 && off > math.MinInt32 && off <= math.MaxInt32 {
			return uint32(int32(off))
		}
		return 0x80000000
	}
	for i := range f.Contributors {
		c := &f.Contributors[i]
		dst = binary.LittleEndian.AppendUint32(dst, uint32(c.PID))
		dst = binary.LittleEndian.AppendUint32(dst, signed(c.EarliestCommit))
		dst = binary.LittleEndian.AppendUint32(dst, signed(c.Previous))
		dst = binary.LittleEndian.AppendUint32(dst, signed(c.Target))
	}
	return dst
}

// nativeID is FrameUpdate's signpost identifier.
func nativeID(f *scene.Frame) uint64 { return uint64(f.FrameSeed)<<32 | uint64(f.SwapID)&0xffffffff }

// variant numbers the eight variants of FrameUpdate's format: they come in turn.
func variant(f *scene.Frame) int     { return int(f.FrameSeed & 7) }
func hasGPU(f *scene.Frame) bool     { return variant(f)&1 != 0 }
func hasProcess(f *scene.Frame) bool { return variant(f)&2 != 0 }
func hasTarget(f *scene.Frame) bool  { return variant(f)&4 != 0 }
