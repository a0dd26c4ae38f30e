package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/framebridge/framebridge/internal/jsonline"
	"github.com/framebridge/framebridge/internal/summary"
)

func newSummary() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "summary DIR",
		Short: "Count a whole session: frames by quality, percentiles, hitches, gaps, processes",
		Long: `Counts what a session holds. Its percentiles are of all valid frame times of a display from beginning to end, by nearest
rank: another figure than the P95 of a 10-second window, and not comparable with it. Hitches follow Apple's rule: overrun is
the part of a frame's lifetime beyond its buffers times the refresh interval; the hitch time ratio is ms of overrun per
second of frames. On a screen that draws only when something happens, long frame times are idleness, not jank.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := summarise(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(s)
			}
			printSummary(cmd.OutOrStdout(), s)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

func summarise(ctx context.Context, path string) (*summary.Summary, error) {
	progress := newProgress()
	defer progress.end()
	log, err := openLog(ctx, path, progress)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	s, err := summary.Of(log)
	if err != nil {
		return nil, unreadable(fmt.Errorf("%s: %w", path, err))
	}
	return s, nil
}

func printSummary(w io.Writer, s *summary.Summary) {
	line := func(label, format string, args ...any) {
		fmt.Fprintf(w, "%-16s %s\n", label, printable(fmt.Sprintf(format, args...)))
	}
	if s.SessionID == "" {
		line("session", "not told: the log has no session.start")
	} else {
		line("session", "%s (%s)", s.Name, s.SessionID)
	}
	device := s.Device.ProductType
	if s.Device.OSVersion != "" {
		device += ", iOS " + s.Device.OSVersion
	}
	if s.Device.Simulated {
		device += ", simulated"
	}
	if device == "" {
		device = "not told by the recording"
	}
	line("device", "%s", device)
	if t := s.Target(); len(s.Targets) == 0 {
		line("target", "none was bound")
	} else {
		line("target", "%s, pid %d, generation %d", t.BundleID, t.PID, t.Generation)
	}
	state := s.State
	switch {
	case state == "":
		state = "never closed; seal it with `framebridge recover`"
	case s.Reason != "":
		state += " (" + s.Reason + ")"
	}
	line("state", "%s, evidence %s, %.3f s", state, cmp.Or(s.Evidence, "not told"), float64(s.LastHostNs-s.FirstHostNs)/1e9)
	for _, d := range s.Displays {
		name := fmt.Sprintf("display %d", d.DisplayID)
		if d.DisplayID == s.PrimaryDisplayID {
			name += " (primary)"
		}
		fmt.Fprintf(w, "\n%s: %d frames\n", name, d.Frames)
		for _, quality := range slices.Sorted(maps.Keys(d.ByQuality)) {
			line("  "+quality, "%d", d.ByQuality[quality])
		}
		switch {
		case d.UnknownLosses > 0:
			line("  lost", "%d frames known to be missing, and an unknown number at %d places", d.DroppedBefore, d.UnknownLosses)
		case d.DroppedBefore > 0:
			line("  lost", "%d frames known to be missing", d.DroppedBefore)
		default:
			line("  lost", "none known")
		}
		if d.Contradicted > 0 {
			line("  contradicted", "%d frames have other figures than their native integers give; they count nowhere below", d.Contradicted)
		}
		if d.P95Ns == nil {
			line("  frame time", "no valid frame")
			continue
		}
		line("  frame time", "P50 %s  P95 %s  P99 %s  max %s ms, of the whole session", ms(*d.P50Ns), ms(*d.P95Ns), ms(*d.P99Ns), ms(*d.MaxNs))
		ratio := "null"
		if d.HitchMsPerS != nil {
			ratio = fmt.Sprintf("%.3f", *d.HitchMsPerS)
		}
		line("  hitch ratio", "%s ms/s (%s ms of overrun in %s ms of frames), %d refreshes missed", ratio, ms(d.OverrunNs), ms(d.SumNs), d.MissedRefreshes)
		if d.BelowRefresh > 0 {
			line("  below refresh", "%d frames shorter than their own refresh interval", d.BelowRefresh)
		}
		if d.Skewed > 0 {
			line("  skewed", "%d frames whose previous is more than a tick from the end before", d.Skewed)
		}
		if d.AdjustmentTicks != nil {
			line("  adjustment", "each end lies %d ticks after the next frame's previous: an adjustment of the log loader, not repaired", *d.AdjustmentTicks)
		}
	}
	fmt.Fprintln(w, "\nFrames of the whole display, not of one app. Where it draws only when something happens, long frame times are idleness, not jank: hitches tell.")
	if s.OneDisplayOnly() {
		line("displays", "this release does not report them: an external one would break the chain of frames")
	}
	if len(s.Gaps) == 0 {
		line("gaps", "none")
	}
	for _, reason := range slices.Sorted(maps.Keys(s.Gaps)) {
		g := s.Gaps[reason]
		line("gap", "%d x %s: %d rows, %d bytes, %d messages lost or undecoded", g.Count, reason, g.Rows, g.Bytes, g.Messages)
	}
	if s.BadLines > 0 {
		line("bad lines", "%d lines of the log cannot be read", s.BadLines)
	}
	for _, quality := range slices.Sorted(maps.Keys(s.Publications)) {
		line("publications", "%d %s", s.Publications[quality], quality)
	}
	for i, p := range s.Contributors {
		if i == maxProcessesShown {
			line("process", "and %d more (--json has all)", len(s.Contributors)-i)
			break
		}
		name := p.Name
		if name == "" {
			name = "name not known"
		}
		line("process", "%d frames by %s, pid %d", p.Frames, name, p.PID)
	}
}

const maxProcessesShown = 10

// printable keeps names that phones and logs tell from steering the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

func ms(ns int64) string { return string(jsonline.AppendDecimal(nil, ns, 6)) }
