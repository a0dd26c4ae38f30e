// Package hostclock reads this host's monotonic clock, the one that every hostNs of an event log is told by.
package hostclock

import "time"

var (
	start  = time.Now()
	origin = originNs()
)

// NowNs is the host's monotonic time in ns, always positive. On Linux it is CLOCK_MONOTONIC, so that processes of one host agree; elsewhere
// its zero point is a second before the process began.
func NowNs() int64 { return origin + int64(time.Since(start)) }
