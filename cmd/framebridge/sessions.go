package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/internal/capture"
	"github.com/framebridge/framebridge/internal/replay"
	"github.com/framebridge/framebridge/ledger"
	"github.com/framebridge/framebridge/p95"
)

func newDecode() *cobra.Command {
	var timebase string
	cmd := &cobra.Command{
		Use:   "decode WIRE",
		Short: "Decode a recorded wire file again into event lines",
		Long: `Reads a wire.bin (repeated: little-endian u32 length, i64 hostNs, bytes; length 0 marks a new connection) and writes the
raw records, contributors and gaps that it holds to stdout, as a recording would.

Identities come from the events.jsonl beside the file where there is one: then every raw record equals the recorded
one in every field but seq. Without one the target is null, each connection is an epoch, and there is no policy mark.`,
		Example: "  framebridge decode run1/wire.bin | head\n  labsim wire --os 26.0 -o f.wire && framebridge decode f.wire",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			tb, err := parseTimebase(timebase)
			if err != nil {
				return err
			}
			progress := newProgressBesideStdout()
			f, err := openFile(cmd.Context(), args[0], progress)
			if err != nil {
				return err
			}
			defer f.Close()
			var ids *capture.Identities
			if dir := capture.BesideWire(filepath.Dir(args[0])); dir != "" {
				if ids, err = capture.ReadIdentities(dir); err != nil {
					return fail(exitUsage, "identities for %s: %w", args[0], err)
				}
			}
			out := bufio.NewWriterSize(cmd.OutOrStdout(), 1<<20)
			_, err = capture.Decode(bufio.NewReaderSize(f, 1<<20), tb, ids, &capture.Lines{W: out})
			progress.end()
			if flushErr := out.Flush(); flushErr != nil {
				return fail(exitFailed, "%w", flushErr)
			}
			if err != nil {
				return unreadable(fmt.Errorf("%s: %w", args[0], err))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&timebase, "timebase", "125/3", "the device's timebase, where no events.jsonl tells it")
	return cmd
}

func parseTimebase(s string) (adapter.Timebase, error) {
	n, d, ok := strings.Cut(s, "/")
	numer, err1 := strconv.ParseInt(n, 10, 32)
	denom, err2 := strconv.ParseInt(d, 10, 32)
	if !ok || err1 != nil || err2 != nil || numer < 1 || denom < 1 {
		return adapter.Timebase{}, fail(exitUsage, "--timebase: expected two whole numbers such as 125/3, found %q", s)
	}
	return adapter.Timebase{Numer: numer, Denom: denom}, nil
}

func newReplay() *cobra.Command {
	var every time.Duration
	var check, asJSON bool
	cmd := &cobra.Command{
		Use:   "replay DIR",
		Short: "Recompute a session's publications from its recorded events",
		Long: `Feeds a session's events through the window again and shows the publications: those of the recording, or with --every at
an interval of its own. --check compares each with the recorded one and fails at the first difference, naming line and field, or at the
end where lines could not be read, but for the torn last one of a recorder that was killed.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if every < 0 || check && every > 0 {
				return fail(exitUsage, "--every must be positive, and goes without --check: only the recording's own publications can be compared")
			}
			progress := newProgress()
			if !check {
				progress = newProgressBesideStdout()
			}
			log, err := openLog(cmd.Context(), args[0], progress)
			if err != nil {
				return err
			}
			defer log.Close()
			out := bufio.NewWriter(cmd.OutOrStdout())
			defer out.Flush()
			var buf []byte
			o := replay.Options{EveryNs: int64(every), Check: check}
			o.Publication = func(seq int64, r *p95.Receipt) error {
				switch {
				case asJSON && !check:
					buf = append(r.AppendJSON(buf[:0], seq), '\n')
					_, err := out.Write(buf)
					return err
				case !check:
					_, err := fmt.Fprintf(out, "%20d  %-15s  P95 %9s ms  n %4s  fps %3s  segment %d\n", r.HostNs, r.Quality,
						scaled(r.ValueNs, 6, 6), scaled(r.N, 0, 0), scaled(r.Other.FPS, 0, 0), r.Segment)
					return err
				}
				return nil
			}
			result, err := replay.Run(log, o)
			progress.end()
			var differs *replay.Difference
			switch {
			case errors.As(err, &differs):
				if asJSON {
					json.NewEncoder(out).Encode(map[string]any{"ok": false, "line": differs.Line, "seq": differs.Seq, "field": differs.Field, "got": differs.Got, "want": differs.Want})
				}
				return &exitError{exitMismatch, fmt.Errorf("%s: %w", args[0], err)}
			case out.Flush() != nil:
				return fail(exitFailed, "%w", out.Flush())
			case err != nil:
				return unreadable(fmt.Errorf("%s: %w", args[0], err))
			}
			for _, f := range result.Faults {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s: line %d: %v\n", args[0], f.Line, f.Err)
			}
			if check && result.Publications == 0 {
				return fail(exitMismatch, "%s holds no publication: nothing was compared", args[0])
			}
			if check {
				sound := result.FaultCount == 0 || result.FaultCount == 1 && result.Torn
				switch {
				case asJSON:
					json.NewEncoder(out).Encode(map[string]any{"ok": sound, "events": result.Events, "records": result.Records, "publications": result.Publications, "faults": result.FaultCount})
				case sound:
					fmt.Fprintf(out, "%d publications from %d records: all as recorded\n", result.Publications, result.Records)
				}
				if !sound {
					return fail(exitMismatch, "%s: %d lines count for nothing (above): what they held was not compared", args[0], result.FaultCount)
				}
			}
			return nil
		},
	}
	cmd.Flags().DurationVar(&every, "every", 0, "publish at this interval instead of where the recording did")
	cmd.Flags().BoolVar(&check, "check", false, "compare with what was recorded; exit 1 at the first difference")
	cmd.Flags().BoolVar(&asJSON, "json", false, "receipts as JSON lines")
	return cmd
}

func newRecover() *cobra.Command {
	var root string
	var noLedger, asJSON bool
	cmd := &cobra.Command{
		Use:   "recover DIR",
		Short: "Seal a session whose recorder was killed",
		Long: `Seals as partial a session that a killed process or a power cut left open. Every whole line is kept; the manifest names the
byte at which a torn last line began. A session that is sealed already gets the entry in the ledger that it may lack.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := filepath.Abs(args[0])
			if err != nil {
				return fail(exitUsage, "%w", err)
			}
			var key *ledger.Key
			if !noLedger {
				if key, err = ledgerKey(cmd.Context(), ""); err != nil {
					return err
				}
			}
			outliveReaders()
			m, err := ledger.Recover(dir, tool, time.Now().UnixNano())
			already := errors.Is(err, ledger.ErrSealed)
			if err != nil && !already {
				return fail(exitUsage, "%w", err)
			}
			if asJSON {
				json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]any{"dir": dir, "state": m.State, "reason": m.Reason, "alreadySealed": already})
			} else if already {
				fmt.Fprintf(cmd.OutOrStdout(), "%s is sealed already (%s)\n", dir, stateText(m))
			} else {
				fmt.Fprintf(cmd.OutOrStdout(), "%s is sealed: %s\n", dir, stateText(m))
			}
			if noLedger {
				return nil
			}
			return intoLedger(root, dir, key, already)
		},
	}
	cmd.Flags().StringVar(&root, "root", "", rootHelp)
	cmd.Flags().BoolVar(&noLedger, "no-ledger", false, noLedgerHelp)
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}
