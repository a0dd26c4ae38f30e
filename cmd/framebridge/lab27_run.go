package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/framebridge/framebridge/internal/capture"
	"github.com/framebridge/framebridge/internal/device"
	"github.com/framebridge/framebridge/internal/lab27host"
	"github.com/framebridge/framebridge/lab27"
	"github.com/framebridge/framebridge/ledger"
)

func newLab27Run() *cobra.Command {
	var target lab27Target
	var wish lab27Wish
	var o capture.Options
	var root string
	var asJSON, noLedger bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "One run with everything: request, recording, log, verdict, in one sealed session",
		Long: `Starts the app in a new process life with a recording around it, sends it a request, waits until its run is sealed, fetches its log
into the session (lab27/), judges it, matches it with the recorded frames, and seals the session with all of it.

` + meaningHelp() + `

Leave the phone unlocked and alone while it runs: a banner, or the clock in the status bar, is a frame of another process, and makes
the run unqualified. Ctrl-C cancels the run on the phone too; what there is of it is fetched, and sealed as partial.

Exit codes: 0 qualified (cost-off, which has nothing to match: complete); 1 unqualified, or the log contradicts itself; 3 the app
is missing or refuses, with the remedy; 4 interrupted, or the run ended early: what there is, is sealed.`,
		Example: "  framebridge lab27 run --purpose rehearsal --permille 100 -o rehearsal1\n  framebridge lab27 run --udid 00008110-000A --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			via, err := target.service()
			if err != nil {
				return err
			}
			r, err := wish.request(time.Now())
			if err != nil {
				return err
			}
			o.UDID, o.BundleID = target.udid, target.bundleID
			if err := placeSession(&o.Dir, root, o.UDID); err != nil {
				return err
			}
			var key *ledger.Key
			if !noLedger {
				if key, err = checkLedger(cmd.Context(), root); err != nil {
					return err
				}
			}
			result, err := runLab27(cmd.Context(), lab27host.Options{Capture: o, Request: r, Via: via}, cmd.OutOrStdout(), asJSON)
			if result == nil || result.Recording == nil || result.Recording.Manifest == nil || noLedger {
				return err
			}
			return errors.Join(err, intoLedger(root, o.Dir, key, false))
		},
	}
	target.flags(cmd)
	target.viaFlag(cmd)
	wish.flags(cmd)
	f := cmd.Flags()
	f.StringVarP(&o.Dir, "output", "o", "", "the session's directory, which must not exist (default: a new one under --root)")
	f.StringVar(&root, "root", "", rootHelp)
	f.BoolVar(&o.KeepWire, "keep-wire", false, "keep the tap's own bytes too (wire.bin)")
	f.BoolVar(&o.Compress, "compress", false, "seal events.jsonl as events.jsonl.zst")
	f.BoolVar(&noLedger, "no-ledger", false, noLedgerHelp)
	f.BoolVar(&asJSON, "json", false, "stages as JSON lines on stdout, then the result")
	return cmd
}

// runView shows how far a run is: its stage, and beside it how the recording goes.
type runView struct {
	show   *presenter
	asJSON bool

	mu    sync.Mutex // what follows comes from two goroutines
	stage lab27host.Stage
	phase string // as last shown
	live  string
}

func (v *runView) onStage(s lab27host.Stage) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.stage = s
	v.showLocked(true)
}

func (v *runView) onProgress(p capture.Progress) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.live = liveText(p)
	v.showLocked(false)
}

func (v *runView) showLocked(another bool) {
	phase, elapsed, length := v.stage.At(time.Now())
	another = another || phase != v.phase
	v.phase = phase
	switch {
	case v.asJSON && another:
		text, _ := json.Marshal(map[string]any{"type": "stage", "stage": v.stage.Name, "phase": phase, "file": v.stage.File,
			"elapsedMs": elapsed.Milliseconds(), "lengthMs": length.Milliseconds()})
		v.show.print(append(text, '\n'))
	case v.asJSON:
	case phase != "":
		v.show.show(fmt.Sprintf("%-9s%3.0f of %3.0f s | %s", phase, elapsed.Seconds(), length.Seconds(), v.live))
	default:
		v.show.show(fmt.Sprintf("%-21s| %s", strings.TrimSpace(v.stage.Name+" "+v.stage.File), v.live))
	}
}

// runLab27 makes a run, shows how it goes, and says on out what is left.
func runLab27(ctx context.Context, o lab27host.Options, out io.Writer, asJSON bool) (*lab27host.Result, error) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // as in a recording
	view := &runView{show: newPresenter(out), asJSON: asJSON}
	o.Stage = view.onStage
	c := &o.Capture
	c.Tool, c.Agent, c.TunnelWorker = tool, device.DefaultAgent(), tunnelWorker(false)
	c.Notice = func(text string) { go fmt.Fprintln(stderr, "note:", text) }
	c.Progress = view.onProgress
	result, err := lab27host.Run(ctx, o)
	readable := view.show.end()
	if result.Recording == nil {
		return result, requestError(err)
	}
	m := result.Recording.Manifest
	if m == nil {
		return result, fail(exitFailed, "%s is not sealed: %w — mend the disk and run `framebridge recover %s`", result.Recording.Dir, err, result.Recording.Dir)
	}
	switch {
	case !readable:
	case asJSON:
		json.NewEncoder(out).Encode(runJSON(result))
	default:
		fmt.Fprintf(out, "%-9s%s\n%-9s%s, evidence %s\n", "session", result.Recording.Dir, "state", stateText(m), m.Evidence)
		if result.Report != nil {
			printBundle(out, result.Report)
		}
		if result.Match != nil {
			printMatch(out, &result.Match.Verdict)
		}
	}
	return result, runError(result, err)
}

// runJSON is a run's result for programs; what did not come about is null.
func runJSON(r *lab27host.Result) map[string]any {
	m := r.Recording.Manifest
	line := map[string]any{"type": "result", "dir": r.Recording.Dir, "state": m.State, "reason": m.Reason, "evidence": m.Evidence, "device": r.Recording.Device,
		"bundle": nil, "match": nil}
	if r.Report != nil {
		line["bundle"] = bundleJSON(r.Report)
	}
	if r.Match != nil {
		line["match"] = &r.Match.Verdict
	}
	return line
}

// runError gives a run that left a sealed session its exit code.
func runError(r *lab27host.Result, err error) error {
	kept := "the session is sealed as partial"
	if r.Pulled != nil {
		kept += ", with what there is of the run"
	}
	switch {
	case r.Recording.Interrupted:
		return fail(exitPartial, "interrupted; %s", kept)
	case err != nil:
		if err := requestError(err); err != nil {
			var coded *exitError
			if errors.As(err, &coded) {
				return err
			}
		}
		return fail(exitPartial, "%w; %s", err, kept)
	case r.Report.State != lab27.Complete:
		return bundleError(r.Recording.Dir, r.Report)
	case r.Match != nil:
		return matchError(&r.Match.Verdict)
	}
	return nil
}
