package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/internal/capture"
	"github.com/framebridge/framebridge/internal/hostclock"
	"github.com/framebridge/framebridge/ledger"
)

func newImport() *cobra.Command {
	cmd := &cobra.Command{Use: "import", Short: "Make a session of a recording of another tool"}
	var timebase, dir, root string
	var noLedger, asJSON bool
	xctrace := &cobra.Command{
		Use:   "xctrace FILE",
		Short: "Import an os-signpost-interval export of Instruments",
		Long: `Reads the FrameLifetime intervals of the render server (SkyLight or coreanimation) from an XML export and makes a sealed
session of them:
  xcrun xctrace export --input run.trace --xpath '//trace-toc/run[1]/data/table[@schema="os-signpost-interval"]' > run.xml

The export has each frame's begin and duration in ns since the trace began, and the end of the frame before it in ticks.
Ends in ticks come from the next frame's prev_frame and, for the last, from the constant offset between the two clocks; the
offset must agree within one tick over all frames, or the import refuses.`,
		Example: "  framebridge import xctrace run.xml -o run1 && framebridge summary run1",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			tb, err := parseTimebase(timebase)
			if err != nil {
				return err
			}
			progress := newProgress()
			f, err := openFile(cmd.Context(), args[0], progress)
			if err != nil {
				return err
			}
			defer f.Close()
			recording, err := adapter.ReadXctrace(bufio.NewReaderSize(f, 1<<20), tb)
			progress.end()
			if err != nil {
				return unreadable(fmt.Errorf("%s: %w", args[0], err))
			}
			if err := placeSession(&dir, root, ""); err != nil {
				return err
			}
			var key *ledger.Key
			if !noLedger {
				if key, err = ledgerKey(cmd.Context(), ""); err != nil {
					return err
				}
			}
			outliveReaders()
			m, err := importXctrace(recording, dir)
			if m == nil {
				return fail(exitFailed, "%w", err)
			}
			if err != nil {
				err = &exitError{exitPartial, err}
			}
			if !noLedger {
				err = errors.Join(err, intoLedger(root, dir, key, false))
			}
			if asJSON {
				json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]any{"dir": dir, "state": m.State, "reason": m.Reason, "evidence": m.Evidence,
					"frames": m.Counts[ledger.TypeRawRecord]})
			} else {
				fmt.Fprintf(cmd.OutOrStdout(), "session  %s\nstate    %s, %d frames, evidence %s\n", dir, stateText(m), m.Counts[ledger.TypeRawRecord], m.Evidence)
			}
			return err
		},
	}
	xctrace.Flags().StringVar(&timebase, "timebase", "125/3", "the recorded device's timebase (125/3 on Apple silicon and iPhones)")
	xctrace.Flags().StringVarP(&dir, "output", "o", "", "the session's directory, which must not exist (default: a new one under --root)")
	xctrace.Flags().StringVar(&root, "root", "", rootHelp)
	xctrace.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	xctrace.Flags().BoolVar(&noLedger, "no-ledger", false, noLedgerHelp)
	cmd.AddCommand(xctrace)
	return cmd
}

// importXctrace writes the session of an import. It has no arrivals, so its times are presentation times. A manifest beside an error is
// that of what could be sealed.
func importXctrace(recording *adapter.XctraceRecording, dir string) (*ledger.Manifest, error) {
	host, _ := os.Hostname()
	start := ledger.Start{
		SessionID: uuid.NewString(), Name: filepath.Base(dir), Tool: tool, NoHostClock: true,
		Host:     ledger.Host{Name: host, OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: int64(runtime.NumCPU()), PID: int64(os.Getpid())},
		Evidence: ledger.EvidenceE2, // nobody here saw the device
		Policy:   adapter.PolicyP95,
		Clock:    ledger.Clock{MonotonicNs: hostclock.NowNs(), WallNs: time.Now().UnixNano()},
	}
	firstNs, lastNs, err := recordTimes(recording)
	if err != nil {
		return nil, err
	}
	if lastNs-firstNs > maxImportNs {
		return nil, fmt.Errorf("the recording spans %s; at most %s are imported, a publication for each second: export a part of it", time.Duration(lastNs-firstNs), time.Duration(maxImportNs))
	}
	session, err := ledger.Create(dir, firstNs, start, false)
	if err != nil {
		return nil, err
	}
	return capture.Import(recording, start, firstNs, session)
}

// maxImportNs bounds an import, and with it the publications in it.
const maxImportNs = int64(24 * time.Hour)

// recordTimes are the hostNs of an import's first and last record.
func recordTimes(recording *adapter.XctraceRecording) (firstNs, lastNs int64, err error) {
	_, err = recording.Records("", "", func(r *adapter.Record) error {
		if firstNs == 0 {
			firstNs = r.HostNs
		}
		lastNs = r.HostNs
		return nil
	})
	return firstNs, lastNs, err
}
