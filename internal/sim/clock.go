package sim

import "time"

// clock is the lab's own time. It runs speed times as fast as the host's, and everything in the lab follows it: the phones' clocks, the
// scenes, how long a fault lasts.
type clock struct {
	start time.Time
	speed int
}

// elapsed is lab time since the lab began.
func (c clock) elapsed() time.Duration { return time.Since(c.start) * time.Duration(c.speed) }

// wall is what a phone's calendar shows.
func (c clock) wall() time.Time { return c.start.Add(c.elapsed()).Round(0) }

// host is how long the host must wait for lab time d to pass.
func (c clock) host(d time.Duration) time.Duration { return d / time.Duration(c.speed) }
