// Package tunnel keeps tunnels to phones of iOS 17 and later, and tells of them as go-ios's agent does.
//
// Each tunnel is a process of its own (a worker, the only place where go-ios's tunnel code runs): it may crash, hang or be killed, and is
// started again with growing pauses. The supervisor only watches usbmuxd, its workers' first line and their end.
package tunnel

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/framebridge/framebridge/internal/device"
)

const (
	// lookEvery is how often usbmuxd is asked what is attached.
	lookEvery = time.Second
	// startTimeout is how long a worker may take to make its tunnel: a phone takes a second or two.
	startTimeout = 8 * time.Second
	// Pauses between lives of a worker, the longer the shorter the lives are.
	firstPause, longestPause = 200 * time.Millisecond, 10 * time.Second
	// goodLife is a life after which the next failure is the first again.
	goodLife = 10 * time.Second
	// stopTimeout is how long a worker may take to end when asked.
	stopTimeout = 2 * time.Second
	// A tunnel is asked every probeEvery whether the phone's end of it still talks. After maxSilent failures in a row, or where nobody
	// listens any more, its worker is ended: it may hang as well as die.
	probeEvery, probeTimeout = 2 * time.Second, 2 * time.Second
	maxSilent                = 3
	// maxLine bounds a worker's first line.
	maxLine = 64 << 10
)

// Supervisor keeps a tunnel to every attached phone that needs one.
type Supervisor struct {
	// Worker makes the command of a worker for this phone. Its standard input is held open for as long as the worker is wanted; its first
	// line of output is the tunnel, in the info API's JSON.
	Worker func(ctx context.Context, udid string) *exec.Cmd
	// Only names the one phone to care for; "" is all.
	Only string
	// Changed is called when a tunnel comes or goes, and why. It must not block.
	Changed func(udid string, t *device.Tunnel, why error)

	mu      sync.Mutex
	looked  bool
	phones  map[string]*phone
	asked   map[device.Entry]bool // those that are being asked who they are
	waiting map[string]error      // why a phone has no tunnel
}

// phone is an attached phone that is cared for.
type phone struct {
	deviceID int
	end      context.CancelFunc // of caring
	restart  chan struct{}
	tunnel   *device.Tunnel // nil while there is none
}

// Run cares for tunnels until ctx ends, and then ends them all.
func (s *Supervisor) Run(ctx context.Context) {
	s.mu.Lock()
	s.phones, s.asked, s.waiting = map[string]*phone{}, map[device.Entry]bool{}, map[string]error{}
	s.mu.Unlock()
	var all sync.WaitGroup
	defer all.Wait()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		s.look(ctx, &all)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// look begins to care for phones that are new, and stops for those that are gone.
func (s *Supervisor) look(ctx context.Context, all *sync.WaitGroup) {
	asking, cancel := context.WithTimeout(ctx, device.StepTimeout)
	defer cancel()
	entries, err := device.List(asking)
	if err != nil {
		zerolog.Ctx(ctx).Warn().Err(err).Msg("usbmuxd cannot be asked; tunnels stay as they are")
		return
	}
	attached := map[string]device.Entry{}
	for _, e := range entries {
		if e.Connection == "USB" && (s.Only == "" || e.UDID == s.Only) { // a phone on Wi-Fi has no lockdown to make a tunnel by
			attached[e.UDID] = e
		}
	}
	s.mu.Lock()
	for udid, p := range s.phones {
		if e, there := attached[udid]; !there || e.DeviceID != p.deviceID {
			p.end()
			delete(s.phones, udid)
			delete(s.waiting, udid)
		}
	}
	var fresh []device.Entry
	for udid, e := range attached {
		if s.phones[udid] == nil && !s.asked[e] {
			s.asked[e] = true
			fresh = append(fresh, e)
		}
	}
	s.looked = s.looked || len(s.asked) == 0
	s.mu.Unlock()
	for _, e := range fresh { // one that is silent holds up neither the others nor the next look
		all.Go(func() { s.meet(ctx, e, all) })
	}
}

// meet asks a phone that is new who it is, and begins to care for it.
func (s *Supervisor) meet(ctx context.Context, e device.Entry, all *sync.WaitGroup) {
	facts, err := device.ReadFacts(ctx, e)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.asked, e)
	s.looked = s.looked || len(s.asked) == 0
	if err != nil {
		zerolog.Ctx(ctx).Debug().Err(err).Str("udid", e.UDID).Msg("not ready yet")
		return // the next look tries again
	}
	if s.phones[e.UDID] != nil {
		return // it was unplugged meanwhile, and is back with another number
	}
	caring, end := context.WithCancel(ctx)
	p := &phone{deviceID: e.DeviceID, end: end, restart: make(chan struct{}, 1)}
	s.phones[e.UDID] = p
	if facts.NeedsTunnel() {
		all.Go(func() { s.care(caring, e.UDID, p) })
	}
}

// care runs one worker after the other.
func (s *Supervisor) care(ctx context.Context, udid string, p *phone) {
	defer p.end()
	pause := firstPause
	for ctx.Err() == nil {
		began := time.Now()
		err := s.live(ctx, udid, p)
		s.set(udid, p, nil, err)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > goodLife || errors.Is(err, errRestart) {
			pause = firstPause
		}
		zerolog.Ctx(ctx).Warn().Err(err).Str("udid", udid).Dur("pause", pause).Msg("the tunnel ended; it is made again")
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, longestPause)
	}
}

var errRestart = errors.New("restart was asked for")

// live is one worker's life: it returns why it ended.
func (s *Supervisor) live(ctx context.Context, udid string, p *phone) error {
	running, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	cmd := s.Worker(running, udid)
	cmd.WaitDelay = stopTimeout
	wanted, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	defer wanted.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	stderr := &tail{}
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start a tunnel worker: %w", err)
	}
	first, ended := make(chan []byte, 1), make(chan error, 1)
	go func() {
		r := bufio.NewReaderSize(out, maxLine)
		line, err := r.ReadSlice('\n')
		if err == nil {
			first <- slices.Clone(line)
		}
		io.Copy(io.Discard, r)
		ended <- cmd.Wait()
	}()
	stop := func(why error) error {
		wanted.Close()
		select {
		case <-ended:
		case <-time.After(stopTimeout):
			kill()
			<-ended
		}
		return why
	}
	died := func(err error) error {
		return fmt.Errorf("tunnel worker: %w%s", cmp(err, errors.New("ended")), stderr.lastLine())
	}
	var made device.Tunnel
	select {
	case line := <-first:
		var t device.Tunnel
		if err := json.Unmarshal(line, &t); err != nil || t.UDID != udid {
			return stop(fmt.Errorf("tunnel worker: expected a tunnel to %s, found %.200q", udid, line))
		}
		made = t
		s.set(udid, p, &t, nil)
	case err := <-ended:
		return died(err)
	case <-time.After(startTimeout):
		return stop(fmt.Errorf("no tunnel within %s", startTimeout))
	case <-ctx.Done():
		return stop(ctx.Err())
	}
	dead := make(chan error, 1)
	probing, enough := context.WithCancel(ctx)
	defer enough()
	go func() {
		if err := probe(probing, made); err != nil {
			dead <- err
		}
	}()
	select {
	case err := <-ended:
		return died(err)
	case err := <-dead:
		return stop(fmt.Errorf("the tunnel leads nowhere any more: %w", err))
	case <-p.restart:
		return stop(errRestart)
	case <-ctx.Done():
		return stop(ctx.Err())
	}
}

// probe returns when the tunnel no longer leads to the phone, or nil when ctx ends.
func probe(ctx context.Context, t device.Tunnel) error {
	agent := device.Agent{Host: workerHost}
	for failed := 0; ; {
		select {
		case <-time.After(probeEvery):
		case <-ctx.Done():
			return nil
		}
		asking, cancel := context.WithTimeout(ctx, probeTimeout)
		err := agent.Probe(asking, t)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			failed = 0
		case errors.Is(err, syscall.ECONNREFUSED):
			return err
		default:
			if failed++; failed == maxSilent {
				return err
			}
		}
	}
}

func cmp(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

func (s *Supervisor) set(udid string, p *phone, t *device.Tunnel, why error) {
	s.mu.Lock()
	p.tunnel = t
	switch {
	case s.phones[udid] != p: // it is gone, and forgotten
	case why != nil:
		s.waiting[udid] = why
	default:
		delete(s.waiting, udid)
	}
	s.mu.Unlock()
	if s.Changed != nil {
		s.Changed(udid, t, why)
	}
}

// Tunnels are those that there are now, by UDID.
func (s *Supervisor) Tunnels() []device.Tunnel {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []device.Tunnel{}
	for _, udid := range slices.Sorted(maps.Keys(s.phones)) {
		if t := s.phones[udid].tunnel; t != nil {
			list = append(list, *t)
		}
	}
	return list
}

// Tunnel is the tunnel to one phone, or why there is none: nil where nothing is known of the phone.
func (s *Supervisor) Tunnel(udid string) (t device.Tunnel, ok bool, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.phones[udid]; p != nil && p.tunnel != nil {
		return *p.tunnel, true, nil
	}
	return t, false, s.waiting[udid]
}

// Restart ends a phone's tunnel, so that it is made again. It reports whether there was one.
func (s *Supervisor) Restart(udid string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.phones[udid]
	if p == nil || p.tunnel == nil {
		return false
	}
	p.tunnel = nil
	select {
	case p.restart <- struct{}{}:
	default:
	}
	return true
}

// Looked reports whether the attached phones have been looked at once.
func (s *Supervisor) Looked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.looked
}

// tail keeps the end of what a worker says on stderr.
type tail struct {
	mu  sync.Mutex
	end []byte
}

const tailBytes = 4 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = append(t.end, b...)
	if len(t.end) > tailBytes {
		t.end = slices.Clone(t.end[len(t.end)-tailBytes:])
	}
	return len(b), nil
}

// lastLine is what the worker said last, to be put behind an error.
func (t *tail) lastLine() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(string(t.end)), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return ": " + last
	}
	return ""
}
