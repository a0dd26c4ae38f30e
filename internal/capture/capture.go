package capture

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/internal/device"
	"github.com/framebridge/framebridge/internal/hostclock"
	"github.com/framebridge/framebridge/internal/tunnel"
	"github.com/framebridge/framebridge/ledger"
	"github.com/framebridge/framebridge/p95"
)

// Options say what to record.
type Options struct {
	UDID     string // "" where only one phone is attached
	BundleID string
	Duration time.Duration // 0: until ctx ends
	Dir      string        // the session's directory, which must not exist
	Name     string        // "": the directory's

	Display  int64 // the primary display; 0: the built-in one
	KeepWire bool
	Compress bool
	// Launch starts the app even if it runs already, in a new process life. Otherwise a running app is attached to.
	Launch bool
	// NoLaunch never starts the app: it must run already.
	NoLaunch bool
	// Foreground is the operator's word that the app is in the foreground, for releases that do not tell.
	Foreground bool

	// Agent tells of tunnels to phones of iOS 17 and later.
	Agent device.Agent
	// TunnelWorker makes the command of a tunnel worker, for a recording that finds no agent; nil: it does without.
	TunnelWorker func(ctx context.Context, udid string) *exec.Cmd

	// Around, where there is one, goes on beside the recording from when the tap runs, and ends it by returning: neither Duration nor the
	// end of ctx does then, but ctx ends for Around too. An error of it makes the session partial.
	Around func(ctx context.Context, on Started) error
	// BeforeSeal is called when everything recorded is on disk. What it puts into the session's directory is sealed with the rest.
	BeforeSeal func() error

	Tool ledger.Tool
	// Progress is called from the recording goroutine with every publication. It must not wait for anything.
	Progress func(Progress)
	// Notice is called with what a person should know at once.
	Notice func(string)
}

// Progress is the state of a recording at a publication.
type Progress struct {
	ElapsedNs int64
	Receipt   *p95.Receipt
	Totals    *Totals
	Source    string // connected, disconnected, reconnecting
	Cause     string
	Binding   adapter.Binding
}

// Started is what Around goes on beside.
type Started struct {
	Phone *device.Phone
	PID   int64 // of the app, in the life that the session begins with
}

// Result is what a recording left.
type Result struct {
	Dir         string
	Device      device.Facts
	Manifest    *ledger.Manifest
	Interrupted bool
}

// ready checks what can be checked by cable, and sees to a tunnel where the phone needs one. stop ends that.
func (s *source) ready(ctx context.Context) (stop func(), err error) {
	entry, err := device.Find(ctx, s.udid)
	if err != nil {
		return nil, err
	}
	s.udid = entry.UDID
	phone, err := device.Open(ctx, entry, s.o.Agent)
	if err != nil {
		return nil, err
	}
	if err := phone.CheckPairing(ctx); err != nil {
		return nil, err
	}
	if err := phone.CheckDeveloperServices(ctx); err != nil {
		return nil, err
	}
	s.o.Agent, stop, err = tunnel.Ensure(ctx, phone.Facts, s.o.Agent, s.o.TunnelWorker)
	return stop, err
}

// publishEvery is the interval of regular publications.
const publishEvery = time.Second

// tickEvery is how often the recorder looks whether something is due: a publication, a sync of the disk.
const tickEvery = 50 * time.Millisecond

// brokenLimit is how long a broken row stream is given to reset itself before the tap is set up again. A reset comes when the device's
// stack is full, which may take minutes.
const brokenLimit = time.Second

// Run records until the duration has passed, Around returns or ctx ends, and seals the session: as partial where ctx ended or something
// failed. Errors before the session exists are returned as they are; from then on the phone's troubles become lines of the session, and only the
// disk's end the recording.
func Run(ctx context.Context, o Options) (*Result, error) {
	log := zerolog.Ctx(ctx)
	src := newSource(o, log)
	endTunnel, err := src.ready(ctx)
	if err != nil {
		return nil, err
	}
	defer endTunnel()
	conn, err := src.connect(ctx, true)
	if err != nil {
		return nil, err
	}

	startNs := hostclock.NowNs()
	start := startOf(o, conn.phone.Facts, startNs, time.Now())
	session, err := ledger.Create(o.Dir, startNs, start, o.KeepWire)
	if err != nil {
		conn.close()
		return nil, err
	}
	contract := adapter.SourceGoIOS
	contract.Channel = conn.tap.Channel()
	a := adapter.New(contract, start.SessionID, start.Policy)
	rec := NewRecorder(session, a, p95.NewMeter(true), o.Display == 0)

	// The disk works in its own goroutine, so that the recording's clock does not wait for it.
	syncs := make(chan struct{}, 1)
	var disk sync.WaitGroup
	disk.Go(func() {
		for range syncs {
			if err := session.Sync(); err != nil {
				log.Error().Err(err).Msg("the disk fails")
			}
		}
	})

	life := ctx
	if o.Around != nil {
		life, o.Duration = context.WithoutCancel(ctx), 0
	}
	recording, end := context.WithCancel(life)
	alongside, giveUp := context.WithCancel(ctx)
	var source, around sync.WaitGroup
	var aroundErr error
	if o.Around != nil {
		around.Go(func() {
			defer end()
			aroundErr = o.Around(alongside, Started{Phone: conn.phone, PID: conn.pid})
		})
	}
	source.Go(func() { src.run(recording, conn) })

	interrupted := record(recording, o, src, rec, session, syncs, startNs)

	giveUp()
	around.Wait()
	end()
	source.Wait()
	rec.EndConnection(hostclock.NowNs()) // what was being skipped is counted
	if o.Around != nil {
		interrupted = ctx.Err() != nil
	}
	close(syncs)
	disk.Wait()

	err = rec.Err()
	if o.BeforeSeal != nil && err == nil {
		if err = session.Sync(); err == nil {
			aroundErr = errors.Join(aroundErr, o.BeforeSeal())
		}
	}
	state, reason := ledger.StateComplete, ""
	switch {
	case err != nil:
		state, reason = ledger.StatePartial, "recording failed: "+err.Error()
	case interrupted:
		state, reason = ledger.StatePartial, "interrupted"
	case aroundErr != nil:
		state, reason = ledger.StatePartial, aroundErr.Error()
	}
	manifest, sealErr := session.Seal(rec.EndNs(hostclock.NowNs()), state, reason, rec.Extra(), o.Compress)
	result := &Result{Dir: o.Dir, Device: conn.phone.Facts, Manifest: manifest, Interrupted: interrupted}
	if sealErr != nil { // of a disk that failed, Seal says the same again
		err = sealErr
	}
	return result, errors.Join(err, aroundErr)
}

// record is the recording goroutine: it takes what the source hands over and publishes by its own clock, a second after another from
// sessionStartNs on, until the time is up, ctx ends or the log fails. The time counts from now: making the directory durable takes a slow
// disk seconds.
func record(ctx context.Context, o Options, src *source, rec *Recorder, session *ledger.Session, syncs chan<- struct{}, sessionStartNs int64) (interrupted bool) {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	startNs := hostclock.NowNs()
	dueNs := sessionStartNs + int64(publishEvery)
	displays := displayWatch{notice: src.notice, sinceNs: startNs}
	for {
		select {
		case <-ctx.Done():
			return true
		case happen := <-src.events:
			happen(rec)
		case <-tick.C:
		}
		nowNs := hostclock.NowNs()
		// One publication for each that was due, late ones too: dueNs against hostNs shows the delay.
		for ; nowNs >= dueNs && rec.Err() == nil; dueNs += int64(publishEvery) {
			receipt := rec.Publish(p95.Of(dueNs), nowNs)
			if o.Progress != nil {
				o.Progress(Progress{ElapsedNs: nowNs - startNs, Receipt: receipt, Totals: rec.Totals(), Source: src.state, Cause: src.cause, Binding: rec.Binding()})
			}
			nowNs = hostclock.NowNs()
		}
		if rec.BrokenFor(nowNs) > int64(brokenLimit) {
			src.retap()
			rec.ForgetBroken()
		}
		displays.look(nowNs, rec)
		if session.SyncDue(nowNs) {
			select {
			case syncs <- struct{}{}:
			default: // the disk is behind; it takes everything that waits when it comes back
			}
		}
		if rec.Err() != nil {
			return false
		}
		if o.Duration > 0 && nowNs-startNs >= int64(o.Duration) {
			return false
		}
	}
}

// displayWatch tells the user when frames come, but none for the primary display.
type displayWatch struct {
	notice  func(string)
	sinceNs int64
	told    bool
}

const displayPatience = 2 * time.Second

func (w *displayWatch) look(nowNs int64, rec *Recorder) {
	t := rec.Totals()
	if w.told || t.Frames == 0 || t.ByDisplay[rec.Binding().PrimaryDisplayID] > 0 || nowNs-w.sinceNs < int64(displayPatience) {
		return
	}
	w.told = true
	w.notice(fmt.Sprintf("frames arrive, but none for display %d; there are: %s — choose one with --display",
		rec.Binding().PrimaryDisplayID, displayList(t.ByDisplay)))
}

func displayList(frames map[int64]int64) string {
	var parts []string
	for _, id := range slices.Sorted(maps.Keys(frames)) {
		parts = append(parts, fmt.Sprintf("display %d (%d frames)", id, frames[id]))
	}
	return strings.Join(parts, ", ")
}

func startOf(o Options, f device.Facts, nowNs int64, wall time.Time) ledger.Start {
	host, _ := os.Hostname()
	evidence := ledger.EvidenceE3
	if f.Simulated {
		evidence = ledger.EvidenceE2
	}
	name := o.Name
	if name == "" {
		name = filepath.Base(o.Dir)
	}
	return ledger.Start{
		SessionID: uuid.NewString(), Name: name, Tool: o.Tool,
		Host:     ledger.Host{Name: host, OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: int64(runtime.NumCPU()), PID: int64(os.Getpid())},
		Device:   ledger.Device{UDID: f.UDID, ProductType: f.ProductType, OSVersion: f.OSVersion, Simulated: f.Simulated},
		Evidence: evidence, Policy: adapter.PolicyP95, Clock: ledger.Clock{MonotonicNs: nowNs, WallNs: wall.UnixNano()},
	}
}
