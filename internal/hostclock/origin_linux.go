package hostclock

import (
	"time"

	"golang.org/x/sys/unix"
)

// originNs is CLOCK_MONOTONIC when the process began.
func originNs() int64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) != nil {
		return int64(time.Second)
	}
	return ts.Nano() - int64(time.Since(start))
}
