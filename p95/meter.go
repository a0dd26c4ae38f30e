package p95

import (
	"errors"
	"fmt"

	"github.com/framebridge/framebridge/adapter"
)

// Why a bind is refused; compare with errors.Is.
var (
	ErrRetrograde = errors.New("source epoch or reconnect generation goes back for the same target")
	ErrTimebase   = errors.New("timebase part below 1")
)

// Meter takes the events of one session in their order and yields publications: the P95 window and the other display figures behind
// one door. It is not safe for concurrent use, and keeps no reference to what it is given. Make one with NewMeter.
type Meter struct {
	p95        bool
	bound      bool
	binding    adapter.Binding
	foreground foreground
	highestN   Int
	window     window
	figures    figures
}

type foreground uint8

const (
	foregroundUnknown foreground = iota
	foregroundNo
	foregroundYes
)

// NewMeter makes a Meter to which nothing is bound. Without p95 it computes the other figures alone, the same as with it.
func NewMeter(p95 bool) *Meter {
	m := &Meter{p95: p95}
	m.figures.reset()
	return m
}

// Bind is target.bind. changed is false where b is bound already. An error is ErrTimebase or ErrRetrograde, and then nothing changed.
func (m *Meter) Bind(b adapter.Binding, hostNs int64) (changed bool, err error) {
	was := &m.binding
	why := clearBind
	switch {
	case b.Timebase.Numer < 1 || b.Timebase.Denom < 1:
		return false, fmt.Errorf("bind %s: timebase %d/%d: %w", b.Target.BundleID, b.Timebase.Numer, b.Timebase.Denom, ErrTimebase)
	case !m.bound:
	case b == *was:
		return false, nil
	case b.Target != was.Target:
		why = clearTarget
	case b.SourceEpoch < was.SourceEpoch || b.SourceEpoch == was.SourceEpoch && b.ReconnectGeneration < was.ReconnectGeneration:
		return false, fmt.Errorf("bind %s: source epoch %d, reconnect generation %d after %d, %d: %w", b.Target.BundleID,
			b.SourceEpoch, b.ReconnectGeneration, was.SourceEpoch, was.ReconnectGeneration, ErrRetrograde)
	case b.SourceEpoch != was.SourceEpoch:
		why = clearEpoch
	case b.ReconnectGeneration != was.ReconnectGeneration:
		why = clearReconnect
	case b.Timebase != was.Timebase:
		why = clearTimebase
	default:
		why = clearDisplay
	}
	if why == clearBind || why == clearTarget {
		m.foreground = foregroundUnknown
	}
	m.window.rebind(why, hostNs, b.SourceEpoch == was.SourceEpoch)
	m.figures.reset()
	m.bound, m.binding = true, b
	return true, nil
}

// SetForeground is target.state.
func (m *Meter) SetForeground(inForeground bool, hostNs int64) {
	state := foregroundNo
	if inForeground {
		state = foregroundYes
	}
	if !m.bound || state == m.foreground {
		return
	}
	m.foreground = state
	m.window.setForeground(inForeground, hostNs)
	m.figures.reset()
}

// Gap is source.gap, or a line that the reader rejected (hostNs null).
func (m *Meter) Gap(hostNs Int) {
	if m.bound {
		m.window.event(clearSourceGap, hostNs)
	}
}

// Bridge is clock.bridge.
func (m *Meter) Bridge(b ClockBridge) {
	if m.bound {
		m.window.setBridge(b)
	}
}

// Record is display.frame-lifetime.raw.
func (m *Meter) Record(r *adapter.Record) {
	if displayID := field(r, adapter.HasDisplayID, r.DisplayID).N; !m.bound || displayID != m.binding.PrimaryDisplayID {
		return
	}
	var f frame
	countable := frameOf(r, m.binding.Timebase, &f)
	if m.p95 {
		m.window.record(r, &m.binding, &f, countable)
	}
	if countable {
		m.figures.add(&f)
	}
}

// Publish computes the publication at nowNs into out, whatever was in there. dueNs is when a regular one was due, null for one that was
// asked for. Without p95, only HostNs, DueNs and Other are set.
func (m *Meter) Publish(nowNs int64, dueNs Int, out *Receipt) {
	regressed := m.highestN.Known && nowNs <= m.highestN.N
	if !regressed {
		m.highestN = Of(nowNs)
	}
	*out = Receipt{HostNs: nowNs, DueNs: dueNs}
	inForeground := m.foreground == foregroundYes
	if m.p95 {
		m.publishP95(nowNs, inForeground, regressed, out)
	}
	if m.bound && inForeground && !regressed && !m.window.hostRegressed(nowNs) {
		m.figures.publish(nowNs, m.binding.Timebase, &out.Other)
	}
}

func (m *Meter) publishP95(nowNs int64, inForeground, regressed bool, out *Receipt) {
	if !m.bound {
		out.Quality, out.N = NoTarget, Of(0)
		return
	}
	b := &m.binding
	out.Target = Target{Target: b.Target, Known: true}
	out.SourceEpoch, out.ReconnectGeneration = Of(b.SourceEpoch), Of(b.ReconnectGeneration)
	out.DisplayID, out.Timebase = Of(b.PrimaryDisplayID), Timebase{Timebase: b.Timebase, Known: true}
	m.window.publish(nowNs, inForeground, regressed, out)
}
