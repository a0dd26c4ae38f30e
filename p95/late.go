package p95

import (
	"math"

	"github.com/framebridge/framebridge/adapter"
)

// LatenessOf is Apple's reading of a record: how long its frame overran, and how many refreshes it missed. ok is false where the native
// integers for it are not there.
func LatenessOf(r *adapter.Record) (overrunNs, missedRefreshes int64, ok bool) {
	if r.Fields&(adapter.HasEndMach|adapter.HasTimebase) != adapter.HasEndMach|adapter.HasTimebase {
		return 0, 0, false
	}
	l := latenessOf(r, r.Timebase)
	return int64(l.overrunNs), int64(min(l.missed, math.MaxInt64)), l.known
}

// FrameTimeNs is a valid record's frame time, from its native integers. ok is false where these give none, or other figures than the
// record tells: what the window refuses too.
func FrameTimeNs(r *adapter.Record) (ns int64, ok bool) {
	var f frame
	if !frameOf(r, r.Timebase, &f) || !f.tells(r) {
		return 0, false
	}
	return f.frameTimeNs, true
}
