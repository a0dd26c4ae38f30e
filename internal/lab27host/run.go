package lab27host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/framebridge/framebridge/internal/capture"
	"github.com/framebridge/framebridge/internal/device"
	"github.com/framebridge/framebridge/lab27"
)

const (
	// startPatience is how long the app may take to consume a request: it looks once a second, after it has been started.
	startPatience = 20 * time.Second
	// endPatience is how long it may take to seal a run beyond its plan: a second for handlers, and the writing.
	endPatience = 20 * time.Second
	// cancelPatience is how long a run that was cancelled may take to be sealed.
	cancelPatience = 10 * time.Second
	// pullPatience is for pulling, which an interruption does not stop; a bundle has at most 2 MiB.
	pullPatience = 60 * time.Second

	// lookSoon and lookSeldom are how often the phone is asked how far it is: while something is about to happen, and during a run, which
	// is not to be disturbed.
	lookSoon   = 250 * time.Millisecond
	lookSeldom = 2 * time.Second

	// tapTail is how long the recording goes on behind a sealed run, so that its last frames have come: the tap sends ten times a second.
	tapTail = time.Second
)

// Stage is how far a run has come.
type Stage struct {
	Name  string    // checking, launching, waiting, running, cancelling, pulling, matching
	File  string    // of pulling
	Began time.Time // of running
	Plan  []lab27.PlannedPhase
}

// At is where its plan has a running run by now: the app itself says nothing while it runs. phase is "" in any other stage.
func (s *Stage) At(now time.Time) (phase string, elapsed, length time.Duration) {
	if len(s.Plan) == 0 {
		return "", 0, 0
	}
	elapsed, length = now.Sub(s.Began), lengthOf(s.Plan)
	for _, p := range s.Plan {
		if phase == "" || time.Duration(p.StartNs) <= elapsed {
			phase = p.Name
		}
	}
	return phase, min(elapsed, length), length
}

func lengthOf(plan []lab27.PlannedPhase) time.Duration {
	last := plan[len(plan)-1]
	return time.Duration(last.StartNs + last.LengthNs)
}

// Options are those of a run.
type Options struct {
	// Capture says which phone and app, and where the session goes. What a run needs of it is set by Run.
	Capture capture.Options
	Request lab27.Request
	Via     Via
	// Stage is called with every change of stage, from one goroutine at a time.
	Stage func(Stage)
}

// Result is what a run has left. What did not come about is nil.
type Result struct {
	Recording *capture.Result
	Pulled    *Pulled
	Report    *lab27.Report
	Match     *lab27.Match
}

// ErrNotTaken says that the app did not look at a request.
var ErrNotTaken = errors.New("the app did not take the request")

// ErrNotSealed says that a run did not come to its end.
var ErrNotSealed = errors.New("the run was not sealed in time: the app has ended, or was suspended")

// ErrOtherLife says that a run was made by another process than the one that was launched for it.
var ErrOtherLife = errors.New("the run was made in another life of the app than the one that was launched for it")

type run struct {
	Options
	phone  phone
	dir    string // of the bundle
	result Result
}

// Run makes one run: it launches the app in a new process life with a recording around it, sends the request, waits until the run is sealed,
// pulls the bundle into the session, judges it, matches it, and seals the session with all of it. Where ctx ends it cancels the run on the phone,
// and keeps what there is. An error tells what did not go as asked; what the bundle and the match say is no error but in the result.
func Run(ctx context.Context, o Options) (*Result, error) {
	r := &run{Options: o, dir: filepath.Join(o.Capture.Dir, BundleDir)}
	c := &r.Capture
	if c.BundleID == "" {
		c.BundleID = BundleID
	}
	r.phone.bundleID = c.BundleID
	c.Launch, c.NoLaunch, c.Around, c.BeforeSeal = true, false, r.around, r.beforeSeal
	if err := r.check(ctx); err != nil {
		return &r.result, err
	}
	r.Stage(Stage{Name: "launching"})
	var err error
	r.result.Recording, err = capture.Run(ctx, *c)
	return &r.result, err
}

// check looks for what stands in the way of the request before anything is started.
func (r *run) check(ctx context.Context) error {
	r.Stage(Stage{Name: "checking"})
	entry, err := device.Find(ctx, r.Capture.UDID)
	if err != nil {
		return err
	}
	p, err := device.Open(ctx, entry, r.Capture.Agent)
	if err != nil {
		return err
	}
	files, err := p.OpenDocuments(ctx, r.Capture.BundleID)
	if err != nil {
		return err
	}
	defer files.Close()
	r.Capture.UDID = p.UDID
	return Check(ctx, files, &r.Request)
}

// around goes on beside the recording. The request is sent only now: an earlier life of the app, which ends with the launch, would take it.
func (r *run) around(ctx context.Context, on capture.Started) error {
	r.phone.device = on.Phone
	defer r.phone.close()
	r.Stage(Stage{Name: "waiting"})
	ran, err := r.send(ctx)
	if ran {
		err = r.waitSealed(ctx)
	}
	// What follows is done even when ctx has ended: it is what an interruption asks for.
	calm, done := context.WithTimeout(context.WithoutCancel(ctx), cancelPatience+pullPatience)
	defer done()
	if ctx.Err() != nil {
		ran, err = r.cancel(calm)
	}
	if !ran {
		return err
	}
	ended := time.Now()
	if pullErr := r.pull(calm); pullErr != nil {
		return errors.Join(err, fmt.Errorf("%w — later: framebridge lab27 pull %s", pullErr, r.Request.RunName))
	}
	time.Sleep(time.Until(ended.Add(tapTail)))
	return errors.Join(err, r.checkLife(on.PID))
}

// send sends the request and waits until the app has begun to run it. Where it has not in time, the request is taken back: nothing must
// start when nobody waits for it any more.
func (r *run) send(ctx context.Context) (ran bool, err error) {
	err = r.phone.do(ctx, func(files *device.Documents) error { return Send(ctx, files, &r.Request) })
	if err != nil {
		r.withdraw(ctx) // it may be there all the same
		return false, err
	}
	err = r.look(ctx, startPatience, func() time.Duration { return lookSoon }, func() (bool, error) { return r.taken(ctx) })
	if !errors.Is(err, errPatience) {
		return err == nil, err
	}
	notTaken := fmt.Errorf("%w within %s; unlock the phone and leave the app in front: %w", ErrNotTaken, startPatience, err)
	if r.withdraw(ctx) == nil {
		return false, notTaken
	}
	if ran, err = r.taken(ctx); !ran && err == nil { // else it was faster
		err = notTaken
	}
	return ran, err
}

// waitSealed waits until the run is over and sealed.
func (r *run) waitSealed(ctx context.Context) error {
	began, plan := time.Now(), lab27.Phases(r.Request.DurationPermille)
	r.Stage(Stage{Name: "running", Began: began, Plan: plan})
	length := lengthOf(plan)
	pause := func() time.Duration {
		if left := length - time.Since(began); left > 0 {
			return min(lookSeldom, left)
		}
		return lookSoon
	}
	err := r.look(ctx, length+endPatience, pause, func() (bool, error) { return r.sealed(ctx) })
	if errors.Is(err, errPatience) {
		return fmt.Errorf("%w: %w", ErrNotSealed, err)
	}
	return err
}

// errPatience ends a wait that took too long.
var errPatience = errors.New("nothing came")

// look asks until the answer is yes. A phone that does not answer may come back; only the app's own word ends the wait at once.
func (r *run) look(ctx context.Context, patience time.Duration, pause func() time.Duration, ask func() (bool, error)) error {
	end := time.Now().Add(patience)
	for {
		yes, err := ask()
		var refused *RefusedError
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case yes || errors.As(err, &refused):
			return err
		case time.Now().After(end) && err != nil:
			return fmt.Errorf("%w: %w", errPatience, err)
		case time.Now().After(end):
			return errPatience
		}
		select {
		case <-time.After(pause()):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (r *run) taken(ctx context.Context) (yes bool, err error) {
	err = r.phone.do(ctx, func(files *device.Documents) error {
		yes, err = taken(ctx, files, &r.Request)
		return err
	})
	return yes, err
}

// sealed reports whether the run's summary is there and whole: the app writes it last.
func (r *run) sealed(ctx context.Context) (yes bool, err error) {
	dir := path.Join(lab27.PhoneRuns, r.Request.RunName)
	err = r.phone.do(ctx, func(files *device.Documents) error {
		names, err := list(ctx, files, dir)
		if err != nil || !slices.Contains(names, lab27.SummaryFile) {
			return err
		}
		var text bytes.Buffer
		if _, err := files.Copy(ctx, &text, path.Join(dir, lab27.SummaryFile), maxSummaryBytes); err != nil {
			return err
		}
		_, err = lab27.ParseSummary(text.Bytes())
		yes = err == nil
		return nil // one that is not whole yet will be
	})
	return yes, err
}

// errWithdrawn says that a run was given up before the app had begun it.
var errWithdrawn = errors.New("the request was taken back before the app had begun")

func (r *run) withdraw(ctx context.Context) error {
	return r.phone.do(ctx, func(files *device.Documents) error { return withdraw(ctx, files, &r.Request) })
}

// cancel gives the run up: the request is taken back, or else the app is told until the run is sealed; one that has only just begun may not
// hear it the first time. ran reports whether there is a run.
func (r *run) cancel(ctx context.Context) (ran bool, err error) {
	r.Stage(Stage{Name: "cancelling"})
	err = r.look(ctx, cancelPatience, func() time.Duration { return lookSoon }, func() (over bool, err error) {
		if err := r.withdraw(ctx); err == nil {
			return true, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
		if ran, err = r.taken(ctx); !ran {
			return err == nil, err // it was not sent at all
		}
		if over, err := r.sealed(ctx); over {
			return true, err
		}
		return false, r.phone.device.PostNotification(ctx, lab27.CancelNotification)
	})
	switch {
	case errors.Is(err, errPatience) && ran:
		err = fmt.Errorf("%w, though it was cancelled: %w", ErrNotSealed, err)
	case err == nil && !ran:
		err = errWithdrawn
	}
	return ran, err
}

// pull brings the bundle into the session.
func (r *run) pull(ctx context.Context) error {
	fetch := func(from device.Files) (err error) {
		r.result.Pulled, err = Pull(ctx, from, r.Request.RunName, r.dir, func(name string) { r.Stage(Stage{Name: "pulling", File: name}) })
		return err
	}
	if r.Via == ViaFileService {
		from, err := r.phone.device.OpenFileService(ctx, r.phone.bundleID)
		if err != nil {
			return err
		}
		defer from.Close()
		return fetch(from)
	}
	err := r.phone.do(ctx, func(files *device.Documents) error { return fetch(files) })
	if device.CodeOf(err) != "" { // once more, on another connection: it goes on where it stopped
		err = r.phone.do(ctx, func(files *device.Documents) error { return fetch(files) })
	}
	return err
}

// checkLife holds the run's process against the one that was launched.
func (r *run) checkLife(pid int64) error {
	plan := lab27.Validate(os.DirFS(r.dir), nil).Plan
	if plan == nil || plan.PID == pid {
		return nil
	}
	return fmt.Errorf("%w: pid %d, launched was %d", ErrOtherLife, plan.PID, pid)
}

// beforeSeal judges and matches what was pulled.
func (r *run) beforeSeal() error {
	if r.result.Pulled == nil {
		return nil
	}
	r.Stage(Stage{Name: "matching"})
	r.result.Report = lab27.Validate(os.DirFS(r.dir), &r.Request)
	if !r.Request.ReferenceEnabled {
		return nil // there is nothing that could be matched
	}
	var err error
	r.result.Match, err = Match(r.Capture.Dir, r.result.Report, r.dir)
	return err
}
