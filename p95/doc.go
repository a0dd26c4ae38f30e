// Package p95 computes P95 frame time over the last ten seconds (metric ios.frame.time.p95, policy p95-window-segment.v2), the other
// display figures, and the receipts that make each published number checkable. It is pure: a Meter takes a session's events in their
// order, with their times, and yields publications. Recording, replay and the cost bench all drive the same Meter.
//
// # Structure and cost
//
// Values lie in a ring in order of arrival, which the order marks make the order of presentation. Beside it the largest frame times, and
// how many values have each, are kept in order, as far down as the P95 has to look and 64 to twice as many further: most records are below
// and cost one comparison. When they run out, which takes 64 records at least, the ring is counted through by digits. Records are taken
// in 32 at a time, or before a publication, since a loop costs less than as many visits. With k values:
//
//	a record        O(0.05 k) to insert one of the largest, the same for each value that it pushes out, and now and then O(k + 0.05 k log k)
//	                for all that have run out; a clear is O(1)
//	a publication   O(log k) to find the left edge, then O(0.05 k); where T has run ahead of P, so that the window is less than what is
//	                held, those left behind are taken off and put back, O(log k) each
//
// Values are not forgotten when T passes them, since T falls back when a late batch arrives, and the edge with it.
//
// Measured (AMD EPYC, one core, a machine that did other things besides; go test -bench .): a record through the window, beyond the some
// 40 ns of the other figures, takes 25 to 75 ns, whatever the pattern of frame times, at k = 1,200 and at k = 4,096 alike. A record and a
// publication after it, other figures included, take 130 to 560 ns at k = 1,200 and to 1 µs at k = 4,096; with N a second after H up to
// 1.2 and 2.6 µs, and 5 and 32 µs where frame times fall all the time, so that the largest are those left behind. Nothing is allocated after
// NewMeter, which takes 328 kB.
//
// # Where the contract leaves room
//
// Records:
//   - A "native integer" of a valid record is swapId, frameSeed, beginMach, endMach, previousMach, refreshIntervalMach, bufferCount,
//     skipRequest (and displayId, asked of every record). surfaceId may be missing.
//   - There is no check against a mark that is not there. A mark is raised by whatever a record of lines 8 and 10 has, unchecked in the
//     first case.
//   - A source contract does not name the channel, but a source object with a member missing or of the wrong type is none.
//   - The interval of line 9 is the frame time in whole ns: 1,100,000,000.9 ns is not over.
//   - With refreshIntervalMach below 1, the native integers give no multiple: it must be null. A multiple that does not fit int64 in
//     thousandths, and a figure of more decimals than it may have (adapter.Record's InexactFigures), equals nothing.
//   - Records count and clear in the background as in the foreground.
//
// Events:
//   - target.state, source.gap and clock.bridge before the first bind have no effect.
//   - lastClear has the record's rawSequence and hostNs where it has them; null and the event's hostNs for an event; both null for a
//     line that the reader rejected.
//   - A bind is checked for its timebase first, then against what is bound. A lower generation or pid is another target, not a retrograde bind.
//   - A clock bridge is forgotten when the bound source epoch changes, and never comes back. One whose continuous time gives no ns
//     (negative, a timebase part below 1, outside int64) is taken for one without continuous time. D is by the bridge's own timebase.
//
// Publications:
//   - The highest N is over all publications, whatever their quality, and outlives binds.
//   - With background, N may lie below H: T is then below P, and values after T do not count.
//   - A time that does not fit int64 is null in the receipt (windowLeftNs, windowRightNs, widthNs, ageLowerBoundNs); checks are made on the exact one.
//   - With host-regression, P, H and clockBridge are told as otherwise.
//
// Other figures:
//   - A record counts by its native integers alone; besides what the contract names it needs a hostNs, and an end whose ns fit int64.
//     Its identity, order, source, policy, decoded and verified are not looked at.
//   - Frame times are in whole ns, rounded down, in every figure; so are the two ends of an interval, and each overrun (worked out in
//     ticks). Sums are of integers, and each figure is rounded once, half to even, from its exact value.
//   - hitchMsPerS and missedRefreshes are null while a frame in the ten seconds does not tell: beginMach, refreshIntervalMach,
//     bufferCount or skipRequest missing or negative, or an overrun outside int64. floor in the rule for missed refreshes is the floor:
//     a begin after the end makes it negative.
//   - hitchMsPerS is null where the frame times add up to 0 ns, refreshHz where the refresh interval is missing or below 1, and each figure
//     where it does not fit int64 in units of its last decimal.
//   - What is remembered is bounded: the last 4,096 counted records by arrival (34 s at 120 Hz). With F the latest presentation among
//     those that were pushed out, fps and jitterMs are null where F >= Q - 1 s, hitchMsPerS and missedRefreshes where F >= Q - 10 s.
//   - Frames presented after Q, which only a log out of order has, are in no window.
//   - host-regression nulls them as a condition (N not above the highest N, or N below H), also where the quality is overflow. H belongs
//     to the P95: with N below the latest arrival by up to a second, which no live recorder writes, a Meter without P95 still tells them,
//     as one does for unmarked records.
package p95
