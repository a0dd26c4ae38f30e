package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/framebridge/framebridge/internal/capture"
	"github.com/framebridge/framebridge/internal/device"
	"github.com/framebridge/framebridge/internal/export"
	"github.com/framebridge/framebridge/ledger"
)

func newCapture() *cobra.Command {
	var o capture.Options
	var root string
	var asJSON, noLedger bool
	cmd := &cobra.Command{
		Use:   "capture --bundle ID",
		Short: "Record a phone's frames into a session, with a live line",
		Long: `Records every frame of the phone's display while an app is under test, until the duration is over or Ctrl-C.

The app is attached to where it runs, else started. P95 is null, with its reason, whenever it cannot be told: in the
background, after a gap, in the first frames of a segment. When the phone goes away and comes back, recording goes on
by itself in a new reconnect generation, or in a new source epoch after a restart; no frame time ever bridges the gap.

The live line, once a second:
  fps       frames whose whole interval lies in the last second
  frame     the latest frame time, ms
  P95       of the frame times of the last 10 s of this segment, ms, or why there is none
  hitch     ms of overrun per second of frames, over the last 10 s (Apple's rule)
  missed    refreshes missed in the last 10 s
Frames are those of the whole display; who contributed to them is in the session. On a screen that draws only when
something happens, long frame times are idleness, not jank: hitches tell those apart.`,
		Example: `  framebridge capture --bundle com.example.app --duration 60s -o run1
  framebridge capture --udid 00008110-000A --bundle com.example.app --launch --keep-wire
  framebridge capture --bundle com.example.app --duration 10s --json | jq -c 'select(.type=="p95.publication").valueMs'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.BundleID == "" {
				return fail(exitUsage, "which app? give its bundle id: --bundle com.example.app")
			}
			if o.Launch && o.NoLaunch {
				return fail(exitUsage, "--launch and --no-launch exclude each other")
			}
			if o.Duration < 0 || o.Display < 0 {
				return fail(exitUsage, "--duration and --display cannot be negative")
			}
			if err := placeSession(&o.Dir, root, o.UDID); err != nil {
				return err
			}
			var key *ledger.Key
			if !noLedger {
				var err error
				if key, err = checkLedger(cmd.Context(), root); err != nil {
					return err
				}
			}
			result, err := runCapture(cmd.Context(), o, cmd.OutOrStdout(), asJSON)
			if result == nil || result.Manifest == nil || noLedger {
				return err
			}
			return errors.Join(err, intoLedger(root, o.Dir, key, false))
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.UDID, "udid", "", "which phone (default: the only one attached)")
	f.StringVar(&o.BundleID, "bundle", "", "bundle id of the app under test")
	f.DurationVar(&o.Duration, "duration", 0, "how long, such as 60s or 10m (default: until Ctrl-C)")
	f.StringVarP(&o.Dir, "output", "o", "", "the session's directory, which must not exist (default: a new one under --root)")
	f.StringVar(&root, "root", "", rootHelp)
	f.Int64Var(&o.Display, "display", 0, "the primary display's number (default: the built-in one)")
	f.BoolVar(&o.KeepWire, "keep-wire", false, "keep the tap's own bytes too (wire.bin), so that decoding can be done again")
	f.BoolVar(&o.Compress, "compress", false, "seal events.jsonl as events.jsonl.zst")
	f.BoolVar(&o.Launch, "launch", false, "start the app in a new process life even if it runs")
	f.BoolVar(&o.NoLaunch, "no-launch", false, "never start the app; it must run")
	f.BoolVar(&o.Foreground, "foreground", false, "your word that the app is in the foreground at the start, for releases that do not tell (iOS 14 and 15); after a reconnection it does not count")
	f.BoolVar(&noLedger, "no-ledger", false, noLedgerHelp)
	f.BoolVar(&asJSON, "json", false, "publications as JSON lines on stdout, then the result")
	return cmd
}

const rootHelp = "where sessions are kept (default: $FRAMEBRIDGE_ROOT, else ~/.local/share/framebridge)"

const noLedgerHelp = "do not enter the sealed session into the ledger of its root (whose key is its own, or in the file $" + keyVariable + ")"

// checkLedger opens the root's ledger before a recording, so that what is wrong with it shows while there is nothing to lose. It returns
// the key for intoLedger.
func checkLedger(ctx context.Context, rootFlag string) (*ledger.Key, error) {
	root, err := sessionRoot(rootFlag)
	if err != nil {
		return nil, err
	}
	key, err := ledgerKey(ctx, "")
	if err == nil {
		err = withWriter(ctx, ledger.Dir(root), key, func(*ledger.Writer) error { return nil })
	}
	if err != nil {
		return nil, fmt.Errorf("%w (--no-ledger records without it)", err)
	}
	return key, nil
}

// intoLedger enters a sealed session into the ledger of its root, with mayBeThere unless an entry names it already. It has a moment even
// after Ctrl-C, as long as another writer is waited for: the session is worth naming.
func intoLedger(rootFlag, dir string, key *ledger.Key, mayBeThere bool) error {
	root, err := sessionRoot(rootFlag)
	if err != nil {
		return err
	}
	if err := recordSession(context.Background(), root, dir, key, mayBeThere); err != nil {
		return fmt.Errorf("%s is sealed, but not in the ledger: %w — mend that and run `framebridge recover %s`", dir, err, dir)
	}
	return nil
}

func sessionRoot(flag string) (string, error) {
	home, _ := os.UserHomeDir()
	root, err := ledger.Root(flag, os.Getenv("FRAMEBRIDGE_ROOT"), home)
	if err != nil {
		return "", fail(exitUsage, "%w", err)
	}
	return root, nil
}

// placeSession fills in the directory of a session that was given none.
func placeSession(dir *string, rootFlag, udid string) error {
	if *dir == "" {
		root, err := sessionRoot(rootFlag)
		if err != nil {
			return err
		}
		*dir = ledger.SessionDir(root, ledger.DefaultName(time.Now(), udid))
	}
	if _, err := os.Lstat(*dir); err == nil {
		return fail(exitUsage, "%s: %w", *dir, ledger.ErrExists)
	}
	abs, err := filepath.Abs(*dir)
	if err != nil {
		return fail(exitUsage, "%w", err)
	}
	if err := ledger.CheckName(filepath.Base(abs)); err != nil {
		return fail(exitUsage, "%w", err)
	}
	if err := export.Outside(abs); err != nil {
		return fail(exitUsage, "%w", err)
	}
	*dir = abs
	return nil
}

// runCapture records, shows the live line, and says on out what is left.
func runCapture(ctx context.Context, o capture.Options, out io.Writer, asJSON bool) (*capture.Result, error) {
	outliveReaders()
	show := newPresenter(out)
	o.Tool = tool
	o.Agent = device.DefaultAgent()
	o.TunnelWorker = tunnelWorker(false)
	o.Notice = func(text string) { go fmt.Fprintln(stderr, "note:", text) }
	o.Progress = func(p capture.Progress) {
		if asJSON {
			show.print(append(p.Receipt.AppendJSON(nil, 0), '\n'))
		} else {
			show.show(liveText(p))
		}
	}
	result, err := capture.Run(ctx, o)
	readable := show.end()
	if result == nil {
		return nil, err
	}
	m := result.Manifest
	if m == nil {
		return result, fail(exitFailed, "%s is not sealed: %w — mend the disk and run `framebridge recover %s`", result.Dir, err, result.Dir)
	}
	frames, gaps := m.Counts[ledger.TypeRawRecord], m.Counts[ledger.TypeSourceGap]
	switch {
	case !readable:
	case asJSON:
		if show.lost > 0 {
			fmt.Fprintf(stderr, "note: %d publications were not shown, since nobody read them; the session has them\n", show.lost)
		}
		json.NewEncoder(out).Encode(map[string]any{"type": "result", "dir": result.Dir, "state": m.State, "reason": m.Reason,
			"evidence": m.Evidence, "frames": frames, "gaps": gaps, "device": result.Device})
	default:
		fmt.Fprintf(out, "session  %s\nstate    %s, %d frames, %d gaps, evidence %s\n", result.Dir, stateText(m), frames, gaps, m.Evidence)
	}
	switch {
	case err != nil:
		return result, &exitError{exitPartial, err}
	case result.Interrupted:
		return result, &exitError{exitPartial, errors.New("interrupted; the session is sealed as partial")}
	}
	return result, nil
}

func stateText(m *ledger.Manifest) string {
	if m.Reason == "" {
		return string(m.State)
	}
	return string(m.State) + " (" + m.Reason + ")"
}
