package capture

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/dtx"
	"github.com/framebridge/framebridge/internal/device"
	"github.com/framebridge/framebridge/internal/hostclock"
	"github.com/framebridge/framebridge/ledger"
	"github.com/framebridge/framebridge/p95"
)

const (
	// bridgeEvery is the interval of clock bridges, and with them of the question whether the phone still answers.
	bridgeEvery = 5 * time.Second
	// bridgeTimeout and bridgeEvery together stay below ten seconds: the time in which a phone that fell silent is noticed.
	bridgeTimeout = 4 * time.Second
	// appSettles is how long after a notification the app's frames begin to count: what the tap sends for longer than that was on the
	// display before (it lags by its update interval and the way here).
	appSettles = 300 * time.Millisecond
	// Pauses between attempts to reach a phone again.
	firstPause, longestPause = 200 * time.Millisecond, 2 * time.Second
	// relaunchEvery is the pause between attempts to start the app on a phone that came back without it.
	relaunchEvery = 3 * time.Second
)

// source keeps a recording connected to its phone. Whatever happens it hands to the recording goroutine as a function, through events.
type source struct {
	o      Options
	log    *zerolog.Logger
	events chan func(*Recorder)
	udid   string       // known from the first connection on
	facts  device.Facts // of the first connection, which the session is about

	retapWanted chan struct{}
	// What the recording goroutine knows of the app, for the others.
	appPID  atomic.Int64 // 0 where it does not run, as far as is known
	inFront atomic.Bool

	// Of the recording goroutine.
	lineage      lineage
	state, cause string
}

// connection is everything open to a phone at one time. Clocks and processes have a DTX connection of their own, so that their answers
// never wait behind the tap's rows.
type connection struct {
	phone   *device.Phone
	control *device.Instruments
	info    *device.DeviceInfo
	procs   *device.ProcessControl
	notes   *device.Notifications
	tapping *device.Instruments
	tap     *device.Tap
	bridge  p95.ClockBridge

	names   map[int64]string // of processes, by pid
	pid     int64            // of the app; 0 where it does not run
	inFront bool
	by      string // who says inFront; "" where nobody can
	unsure  bool   // nobody can, and the user is to be told so

	found chan int64 // a life of the app that no notification told of
}

// listProcesses asks what runs, and keeps the names: FrameUpdate tells contributors by pid alone. by is "" where the list does not tell
// whether pid is in the foreground.
func (c *connection) listProcesses(ctx context.Context, pid int64) (inFront bool, by string, err error) {
	list, err := c.info.Processes(ctx)
	if err != nil {
		return false, "", err
	}
	c.names = make(map[int64]string, len(list))
	for _, p := range list {
		c.names[p.PID] = p.Name[:min(len(p.Name), adapter.MaxProcessNameBytes)]
		if p.PID == pid && p.HasForeground {
			inFront, by = p.Foreground, "process-list"
		}
	}
	return inFront, by, nil
}

func (c *connection) close() {
	for _, in := range []*device.Instruments{c.tapping, c.control} {
		if in != nil {
			in.Close()
		}
	}
}

func newSource(o Options, log *zerolog.Logger) *source {
	s := &source{o: o, log: log, events: make(chan func(*Recorder)), udid: o.UDID, retapWanted: make(chan struct{}, 1)}
	s.lineage.binding.PrimaryDisplayID = o.Display
	return s
}

// connect reaches the phone and starts the tap. The first time it also decides about the app, and fails where it cannot be had; later
// a missing app is started again on the side.
func (s *source) connect(ctx context.Context, first bool) (_ *connection, err error) {
	c := &connection{found: make(chan int64)}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	entry, err := device.Find(ctx, s.udid)
	if err != nil {
		return nil, err
	}
	if c.phone, err = device.Open(ctx, entry, s.o.Agent); err != nil {
		return nil, err
	}
	s.udid = entry.UDID
	if first {
		s.facts = c.phone.Facts
	} else if err = samePhone(s.facts, c.phone.Facts); err != nil {
		return nil, err
	}
	if err = c.phone.CheckDeveloperServices(ctx); err != nil {
		return nil, err
	}
	if c.control, err = c.phone.OpenInstruments(ctx); err != nil {
		return nil, err
	}
	if c.info, err = c.control.DeviceInfo(ctx); err != nil {
		return nil, err
	}
	if c.procs, err = c.control.ProcessControl(ctx); err != nil {
		return nil, err
	}
	if c.notes, err = c.control.Notifications(ctx); err != nil {
		return nil, err
	}
	if err = s.findApp(ctx, c, first); err != nil {
		return nil, err
	}
	if c.bridge, err = c.readClocks(ctx); err != nil {
		return nil, err
	}
	return c, s.startTap(ctx, c)
}

// samePhone refuses a phone of which what session.start says is not true. That line is written once, so a phone that came back updated is
// refused too, and whatever says of itself that it is simulated can add nothing to evidence of a real one.
func samePhone(began, found device.Facts) error {
	if found.Simulated == began.Simulated && found.ProductType == began.ProductType && found.OSVersion == began.OSVersion {
		return nil
	}
	words := func(f device.Facts) string {
		kind := "real"
		if f.Simulated {
			kind = "simulated"
		}
		return fmt.Sprintf("a %s %s with iOS %s", kind, f.ProductType, f.OSVersion)
	}
	return fmt.Errorf("the session began with %s, and what answers as %s now is %s: attach that phone again, or begin another session",
		words(began), began.UDID, words(found))
}

func (c *connection) readClocks(ctx context.Context) (p95.ClockBridge, error) {
	ctx, cancel := context.WithTimeout(ctx, bridgeTimeout)
	defer cancel()
	return c.info.MachTime(ctx)
}

func (s *source) startTap(ctx context.Context, c *connection) (err error) {
	if c.tapping, err = c.phone.OpenInstruments(ctx); err != nil {
		return err
	}
	c.tap, err = c.tapping.StartTap(ctx, c.bridge.Timebase, device.FramesOnly)
	return err
}

// findApp attaches to the app, or starts it, and asks whether it is in the foreground.
func (s *source) findApp(ctx context.Context, c *connection, first bool) (err error) {
	afresh := s.o.Launch && first
	if !afresh {
		if c.pid, err = c.procs.PIDOf(ctx, s.o.BundleID); err != nil {
			return err
		}
	}
	if c.pid == 0 && s.o.NoLaunch && first {
		return &device.Problem{Code: device.AppMissing, What: s.o.BundleID + " does not run", Remedy: "start it on the phone, or leave out --no-launch"}
	}
	if c.pid == 0 && !s.o.NoLaunch {
		if err := c.launch(ctx, s.o.BundleID, afresh); err != nil && first {
			return err
		} else if err != nil {
			s.log.Warn().Err(err).Msg("the app cannot be started yet")
		}
	}
	inFront, by, err := c.listProcesses(ctx, c.pid)
	if err != nil || c.pid == 0 || c.by != "" {
		return err
	}
	sameLife := !first && c.pid == s.appPID.Load()
	switch {
	case by != "":
		c.inFront, c.by = inFront, by
	case first && s.o.Foreground:
		c.inFront, c.by = true, "operator"
	case sameLife && s.inFront.Load():
		// It was in the foreground when the connection broke, and nobody saw what happened since, the operator neither. Starting a running
		// app brings it there.
		if !s.o.NoLaunch {
			if err = c.launch(ctx, s.o.BundleID, false); err == nil {
				return nil
			}
			s.log.Warn().Err(err).Msg("the app cannot be brought to the foreground")
		}
		c.by, c.unsure = "process-list", true // it does not say that the app is in the foreground, so that counts as not
	case !sameLife:
		c.unsure = true
	}
	return nil
}

// foregroundUnknown tells the user that P95 waits for a word on the foreground.
func (s *source) foregroundUnknown(c *connection) {
	text := fmt.Sprintf("iOS %s does not tell whether %s is in the foreground: P95 stays null until it comes there", c.phone.OSVersion, s.o.BundleID)
	if !s.o.Foreground {
		text += "; if it is there from the start, say so with --foreground"
	}
	s.notice(text)
}

func (c *connection) launch(ctx context.Context, bundleID string, afresh bool) error {
	pid, err := c.procs.Launch(ctx, bundleID, afresh)
	if err == nil {
		c.pid, c.inFront, c.by = pid, true, "launch"
	}
	return err
}

func (s *source) notice(text string) {
	if s.o.Notice != nil {
		s.o.Notice(text)
	} else {
		s.log.Warn().Msg(text)
	}
}

// do has the recording goroutine run f. It returns false when ctx ended instead.
func (s *source) do(ctx context.Context, f func(*Recorder)) bool {
	select {
	case s.events <- f:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *source) tell(r *Recorder, state, cause string) {
	s.state, s.cause = state, cause
	r.SourceState(hostclock.NowNs(), state, cause)
}

// run serves connection after connection until ctx ends.
func (s *source) run(ctx context.Context, c *connection) {
	for c != nil {
		err := s.serve(ctx, c)
		c.close()
		if ctx.Err() != nil {
			return
		}
		s.log.Warn().Err(err).Msg("disconnected")
		s.do(ctx, func(r *Recorder) {
			r.EndConnection(hostclock.NowNs())
			s.tell(r, "disconnected", causeOf(err))
			r.Lost(hostclock.NowNs(), ledger.SourceGap{Reason: ReasonDisconnected})
		})
		c = s.reconnect(ctx)
	}
}

// reconnect tries until the phone is there again. It is nil only where ctx ended.
func (s *source) reconnect(ctx context.Context) *connection {
	pause := firstPause
	for told := device.Code("?"); ctx.Err() == nil; {
		c, err := s.connect(ctx, false)
		if err == nil {
			return c
		}
		code := device.CodeOf(err)
		if code != told && ctx.Err() == nil {
			told = code
			s.log.Warn().Err(err).Msg("reconnecting")
			s.do(ctx, func(r *Recorder) { s.tell(r, "reconnecting", causeOf(err)) })
		}
		waiting, cancel := context.WithTimeout(ctx, pause)
		if code == device.NotAttached {
			device.WaitAttached(waiting, s.udid) // comes back early when the phone does
		}
		if code != device.NotAttached || waiting.Err() == nil {
			// Right after being attached a phone needs a moment; elsewhere this is the pause.
			select {
			case <-waiting.Done():
			case <-time.After(firstPause):
			}
		}
		cancel()
		pause = min(2*pause, longestPause)
	}
	return nil
}

func causeOf(err error) string {
	if code := device.CodeOf(err); code != "" {
		return string(code) + ": " + err.Error()
	}
	return err.Error()
}

// serve announces a connection and hands over what comes from it, until something of it fails.
func (s *source) serve(ctx context.Context, c *connection) error {
	announced := make(chan struct{}) // before anything comes that is judged by it
	if !s.do(ctx, func(r *Recorder) { s.announce(r, c); close(announced) }) {
		return ctx.Err()
	}
	<-announced
	select {
	case <-s.retapWanted: // of a connection that ended before it came to that
	default:
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var all sync.WaitGroup
	for _, loop := range []func(context.Context, *connection) error{s.readTap, s.readClocks, s.watchApp, s.restoreApp} {
		all.Go(func() {
			if err := loop(ctx, c); err != nil {
				fail(err)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// announce writes who and what is connected.
func (s *source) announce(r *Recorder, c *connection) {
	nowNs := hostclock.NowNs()
	s.tell(r, "connected", "")
	s.followDisplay(r, c)
	b := s.lineage.connected(c.bridge)
	if c.pid != 0 {
		b = s.lineage.app(s.o.BundleID, c.pid)
	}
	r.NameProcesses(c.names)
	s.bind(r, nowNs, b, c.pid)
	r.Bridge(c.bridge)
	if c.pid == 0 {
		s.setForeground(r, false, "process-list")
	} else if c.by != "" {
		s.setForeground(r, c.inFront, c.by)
	}
	if c.unsure {
		s.foregroundUnknown(c)
	}
}

// bind binds b, of which pid runs. Of another life of the app nobody knows yet whether it is in the foreground.
func (s *source) bind(r *Recorder, nowNs int64, b adapter.Binding, pid int64) {
	r.Bind(nowNs, b)
	s.appPID.Store(pid)
	s.inFront.Store(r.foreground == foregroundYes)
}

// bindApp binds the app as it runs now.
func (s *source) bindApp(r *Recorder, c *connection, pid int64) {
	s.followDisplay(r, c)
	s.bind(r, hostclock.NowNs(), s.lineage.app(s.o.BundleID, pid), pid)
}

// firstReleaseWithDisplays is the first major release taken to report which display a frame is on, until its first frame shows.
const firstReleaseWithDisplays = 16

// followDisplay keeps the primary display that the recorder found.
func (s *source) followDisplay(r *Recorder, c *connection) {
	switch {
	case r.Binding().SourceEpoch > 0:
		s.lineage.binding.PrimaryDisplayID = r.Binding().PrimaryDisplayID
	case s.o.Display == 0 && c.phone.Major() >= firstReleaseWithDisplays:
		s.lineage.binding.PrimaryDisplayID = 1
	}
}

func (s *source) setForeground(r *Recorder, in bool, by string) {
	s.inFront.Store(in)
	r.Foreground(hostclock.NowNs(), in, by)
}

var errRetap = errors.New("tap to be set up again")

// retap has the tap set up again. It is called by the recording goroutine and does not wait.
func (s *source) retap() {
	select {
	case s.retapWanted <- struct{}{}:
	default:
	}
}

// readTap hands over the tap's messages, in order, and sets the tap up again where its stream cannot be mended otherwise.
func (s *source) readTap(ctx context.Context, c *connection) error {
	var o order
	for {
		why, err := s.readTapOnce(ctx, c, &o)
		if err != nil {
			return err
		}
		o = o.again()
		s.do(ctx, func(r *Recorder) { s.tell(r, "reconnecting", why) })
		c.tapping.Close()
		if err := s.startTap(ctx, c); err != nil {
			return err
		}
		s.do(ctx, func(r *Recorder) {
			r.EndConnection(hostclock.NowNs())
			s.tell(r, "connected", "")
			s.followDisplay(r, c)
			r.Bind(hostclock.NowNs(), s.lineage.again())
		})
	}
}

// readTapOnce returns why the tap must be set up again, or an error where the connection is of no use any more.
func (s *source) readTapOnce(ctx context.Context, c *connection, o *order) (why string, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-s.retapWanted:
			cancel(errRetap)
		case <-ctx.Done():
		}
	}()
	var silence silence
	for {
		m, err := s.receive(ctx, c, silence.limit())
		switch {
		case errors.Is(context.Cause(ctx), errRetap):
			return "row stream broken, and no reset in time", nil
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			if silence.over() {
				return "", &device.Problem{Code: device.NoAnswer, What: fmt.Sprintf("the tap of %s fell silent", s.udid), Err: err}
			}
			continue
		case err != nil:
			return "", err
		}
		isBeat := m.Type == dtx.TypeData && strings.HasPrefix(string(m.Payload[:min(len(m.Payload), 6)]), "bplist")
		silence.broken(m.HostNs, isBeat)
		lost, repeated := o.next(m.ID, m.Started)
		if repeated {
			s.do(ctx, func(r *Recorder) {
				r.Lost(m.HostNs, ledger.SourceGap{Reason: ReasonPayloadRepeated, Messages: 1, Bytes: int64(len(m.Payload))})
			})
			continue
		}
		if lost > 0 && o.habit() {
			s.do(ctx, func(r *Recorder) { r.Lost(m.HostNs, ledger.SourceGap{Reason: ReasonPayloadLost, Messages: lost}) })
		} else if lost > 0 {
			// What comes after a loss cannot be decoded: the device's stack is not ours any more.
			s.do(ctx, func(r *Recorder) {
				r.Lost(m.HostNs, ledger.SourceGap{Reason: ReasonPayloadLost, Messages: lost, Bytes: int64(len(m.Payload))})
			})
			return "payload lost", nil
		}
		if m.Type == dtx.TypeData {
			s.do(ctx, func(r *Recorder) { r.Payload(m.HostNs, m.Payload) })
		}
	}
}

func (s *source) receive(ctx context.Context, c *connection, patience time.Duration) (dtx.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return c.tap.Receive(ctx)
}

// readClocks asks for the phone's clocks every few seconds, and as what the app runs: the word of its end, or of another life, may have
// been missed.
func (s *source) readClocks(ctx context.Context, c *connection) error {
	tick := time.NewTicker(bridgeEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		b, err := c.readClocks(ctx)
		if err != nil {
			return err
		}
		s.do(ctx, func(r *Recorder) {
			s.lineage.bridge = b
			r.Bridge(b)
		})
		pid, err := c.procs.PIDOf(ctx, s.o.BundleID)
		if err != nil {
			return err
		}
		switch pid {
		case s.appPID.Load():
		case 0:
			s.do(ctx, func(r *Recorder) {
				s.appPID.Store(0)
				s.setForeground(r, false, "process-list")
			})
		default:
			select {
			case c.found <- pid:
			default: // a notification is being looked at; the next question finds what it left
			}
		}
	}
}

// watchApp follows the app through its lives, into the foreground and out of it. That it left counts at once. That it came, or lives anew,
// counts a little later, when the tap has sent what was on the display before.
func (s *source) watchApp(ctx context.Context, c *connection) error {
	notes := make(chan device.AppState)
	failed := make(chan error, 1)
	go func() {
		for {
			n, err := c.notes.Next(ctx)
			if err != nil {
				failed <- err
				return
			}
			select {
			case notes <- n:
			case <-ctx.Done():
				return
			}
		}
	}()
	var coming *device.AppState
	var by string // who told of it; "" where nobody did
	var settled <-chan time.Time
	for {
		select {
		case n := <-notes:
			ours, err := s.isOurs(ctx, c, &n)
			if err != nil {
				return err
			}
			if !ours {
				continue
			}
			if !n.Foreground || n.PID != s.appPID.Load() {
				s.do(ctx, func(r *Recorder) { s.setForeground(r, false, "notification") })
			}
			coming, settled = nil, nil
			if n.Ended {
				s.do(ctx, func(*Recorder) { s.appPID.Store(0) })
			} else if n.Foreground || n.PID != s.appPID.Load() {
				coming, by, settled = &n, "notification", time.After(appSettles)
			}
		case pid := <-c.found:
			if coming == nil && pid != s.appPID.Load() {
				s.do(ctx, func(r *Recorder) { s.setForeground(r, false, "process-list") })
				coming, by, settled = &device.AppState{PID: pid}, "", time.After(appSettles)
			}
		case <-settled:
			pid, inFront, by := coming.PID, coming.Foreground, by
			coming, settled = nil, nil
			if by == "" || c.names[pid] == "" {
				listed, byList, err := c.listProcesses(ctx, pid)
				if err != nil {
					return err
				}
				if by == "" {
					inFront, by = listed, byList
				}
			}
			names := c.names
			s.do(ctx, func(r *Recorder) {
				r.NameProcesses(names)
				s.bindApp(r, c, pid)
				if by != "" {
					s.setForeground(r, inFront, by)
				} else if r.foreground == foregroundUnknown {
					s.foregroundUnknown(c)
				}
			})
		case err := <-failed:
			if ctx.Err() != nil {
				return nil
			}
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

// isOurs reports whether a notification is about the app under test, in this life or a new one.
func (s *source) isOurs(ctx context.Context, c *connection, n *device.AppState) (bool, error) {
	running := s.appPID.Load()
	switch {
	case n.BundleID != "" && n.BundleID != s.o.BundleID:
		return false, nil // another app, whatever pid it has been given
	case n.PID == running:
		return true, nil
	case n.Ended:
		return false, nil // an earlier life
	case n.BundleID != "":
		return true, nil
	}
	pid, err := c.procs.PIDOf(ctx, s.o.BundleID) // a release that names no bundle
	return pid == n.PID, err
}

// restoreApp starts the app on a phone that came back without it.
func (s *source) restoreApp(ctx context.Context, c *connection) error {
	for c.pid == 0 && !s.o.NoLaunch {
		select {
		case <-time.After(relaunchEvery):
		case <-ctx.Done():
			return nil
		}
		if s.appPID.Load() != 0 {
			return nil // somebody else did
		}
		pid, err := c.procs.Launch(ctx, s.o.BundleID, false)
		if device.CodeOf(err) == device.AppMissing {
			s.log.Warn().Err(err).Msg("the app cannot be started yet")
			continue
		}
		if err != nil {
			return err
		}
		s.do(ctx, func(r *Recorder) {
			s.bindApp(r, c, pid)
			s.setForeground(r, true, "launch")
		})
		return nil
	}
	return nil
}
