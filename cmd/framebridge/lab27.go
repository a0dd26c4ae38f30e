package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/internal/device"
	"github.com/framebridge/framebridge/internal/export"
	"github.com/framebridge/framebridge/internal/jsonline"
	"github.com/framebridge/framebridge/internal/lab27host"
	"github.com/framebridge/framebridge/lab27"
	"github.com/framebridge/framebridge/lab27/app"
)

func newLab27() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lab27",
		Short: "Runs of the reference app, matched with what was recorded",
		Long: `Lab27 is a small app of this project (lab27/app/ios) that draws a known stimulus and logs, for every drawable, the presentedTime
that Metal reports. These commands ask it for runs, fetch its logs, and match them with a session's frames in both
directions: every frame and every presentation is accounted for.

` + meaningHelp() + `

  framebridge lab27 run --purpose rehearsal --permille 100     14 s, all steps, a session with a verdict
  framebridge lab27 run                                        the whole recipe, 140 s
  framebridge lab27 study run1 run2                            several runs side by side

The recipe p95-140.v1: 20 s at 30 Hz; 40 s at 60 Hz; 40 s at 60 Hz with a delay of 80 ms in every 12th request; 40 s at 60 Hz.
run does everything. request, pull, check and match are its steps one by one, for runs that were recorded another way.`,
	}
	cmd.AddCommand(newLab27Run(), newLab27Request(), newLab27Pull(), newLab27Check(), newLab27Match(), newLab27Cost(), newLab27Study())
	return cmd
}

// meaningHelp is what a match is worth, in lines as help has them.
func meaningHelp() string {
	const columns = 120
	var b strings.Builder
	at := 0
	for _, word := range strings.Fields(lab27.Meaning) {
		if at += len(word) + 1; at > columns {
			b.WriteByte('\n')
			at = len(word) + 1
		} else if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(word)
	}
	return b.String()
}

// lab27Target says which phone and which app.
type lab27Target struct {
	udid, bundleID, via string
}

func (t *lab27Target) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&t.udid, "udid", "", "which phone (default: the only one attached)")
	cmd.Flags().StringVar(&t.bundleID, "bundle", lab27host.BundleID, "bundle id of the app, where it was signed under another")
}

func (t *lab27Target) viaFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&t.via, "via", string(lab27host.ViaAFC), "the service that the logs come by: afc (every release) or fileservice (iOS 17 and later)")
}

func (t *lab27Target) service() (lab27host.Via, error) {
	switch via := lab27host.Via(t.via); via {
	case lab27host.ViaAFC, lab27host.ViaFileService:
		return via, nil
	}
	return "", fail(exitUsage, "--via: expected %s or %s, found %q", lab27host.ViaAFC, lab27host.ViaFileService, t.via)
}

func (t *lab27Target) open(ctx context.Context) (*device.Phone, error) {
	entry, err := device.Find(ctx, t.udid)
	if err != nil {
		return nil, err
	}
	return device.Open(ctx, entry, device.DefaultAgent())
}

// lab27Wish is what a request asks for.
type lab27Wish struct {
	name, purpose, appVersion, sourceDigest string
	permille                                int64
}

func (w *lab27Wish) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&w.name, "name", "", "the run's name, never used before (default: the purpose and the time)")
	f.StringVar(&w.purpose, "purpose", string(lab27.PurposeStudy), "study, rehearsal, cost-off (the same stimulus without the reference), cost-on, or formal")
	f.Int64Var(&w.permille, "permille", 1000, "scale of the recipe's durations: 1000 is all of it, 100 a tenth (14 s); what is scaled can never count")
	f.StringVar(&w.appVersion, "app-version", app.Version(), "the version of the app that is to run")
	f.StringVar(&w.sourceDigest, "source-digest", app.SourceDigest(), "SHA-256 of the sources of the app that is to run")
}

func (w *lab27Wish) request(now time.Time) (lab27.Request, error) {
	name := w.name
	if name == "" {
		name = w.purpose + "-" + now.UTC().Format("20060102T150405Z")
	}
	r, err := lab27.NewRequest(name, lab27.Purpose(w.purpose), w.permille, w.appVersion, w.sourceDigest, uuid.NewString(), now)
	if err != nil {
		return r, fail(exitUsage, "%w", err)
	}
	return r, nil
}

func newLab27Request() *cobra.Command {
	var target lab27Target
	var wish lab27Wish
	var output string
	cmd := &cobra.Command{
		Use:   "request",
		Short: "Send the app a request for one run, without waiting for it",
		Long: `Puts a request where the app on the phone looks for one, and prints it. The app takes it within a second while it is in front,
or when it is started next, but not after ten minutes. It runs once; a second request beside it, and both are refused. Start
the app afresh for each run.

With -o the request is written to a file, and no phone is needed; it belongs into Documents/lab27/pending/<nonce>.json of the app.`,
		Example: "  framebridge lab27 request --purpose rehearsal --permille 100 > request.json\n  framebridge lab27 check bundle --request request.json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := wish.request(time.Now())
			if err != nil {
				return err
			}
			if output != "" {
				return writeNew(output, r.AppendJSON(nil))
			}
			phone, err := target.open(cmd.Context())
			if err != nil {
				return err
			}
			files, err := phone.OpenDocuments(cmd.Context(), target.bundleID)
			if err != nil {
				return err
			}
			defer files.Close()
			if err := lab27host.Send(cmd.Context(), files, &r); err != nil {
				return requestError(err)
			}
			_, err = cmd.OutOrStdout().Write(r.AppendJSON(nil))
			return err
		},
	}
	target.flags(cmd)
	wish.flags(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "", "write the request to this new file instead of sending it")
	return cmd
}

// requestError gives what stands in a request's way its exit code.
func requestError(err error) error {
	var refused *lab27host.RefusedError
	for _, precondition := range []error{lab27.ErrPending, lab27.ErrNonceUsed, lab27.ErrRunNameUsed, lab27host.ErrNotTaken} {
		if errors.Is(err, precondition) {
			return &exitError{exitDevice, err}
		}
	}
	if errors.As(err, &refused) {
		return &exitError{exitDevice, err}
	}
	return err
}

func newLab27Pull() *cobra.Command {
	var target lab27Target
	var output string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "pull [RUN]",
		Short: "Fetch the log of a run from the phone",
		Long: `Fetches a run's bundle: plan, events, requests, presentations and summary. Without RUN it lists the runs on the phone.

Every file is held against the size and SHA-256 in the summary, and has its name only when it is whole; until then that ends in
.part. Interrupted, it goes on with the files that are missing. The phone's copy stays where it is.

Exit code 4 where the app has not sealed the run: it still runs, or it ended too early.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			via, err := target.service()
			if err != nil {
				return err
			}
			if len(args) == 1 && output == "" {
				output = args[0]
			}
			if output != "" {
				if err := outsideSessions(output); err != nil {
					return err
				}
			}
			phone, err := target.open(cmd.Context())
			if err != nil {
				return err
			}
			files, err := lab27host.OpenFiles(cmd.Context(), phone, target.bundleID, via)
			if err != nil {
				return err
			}
			defer files.Close()
			if len(args) == 0 {
				return listRuns(cmd.Context(), files, cmd.OutOrStdout(), asJSON)
			}
			return pullRun(cmd.Context(), files, args[0], output, cmd.OutOrStdout(), asJSON)
		},
	}
	target.flags(cmd)
	target.viaFlag(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "", "directory of the bundle, new or of an earlier pull (default: RUN in the working directory)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object, or a list of names")
	return cmd
}

func listRuns(ctx context.Context, files device.Files, out io.Writer, asJSON bool) error {
	runs, err := lab27host.Runs(ctx, files)
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(out).Encode(append([]string{}, runs...))
	}
	for _, run := range runs {
		fmt.Fprintln(out, run)
	}
	return nil
}

func pullRun(ctx context.Context, files device.Files, run, dir string, out io.Writer, asJSON bool) error {
	progress := newProgress()
	pulled, err := lab27host.Pull(ctx, files, run, dir, func(name string) { progress.show("fetching %s", name) })
	progress.end()
	switch {
	case errors.Is(err, lab27host.ErrNoRun) || errors.Is(err, lab27host.ErrOtherRun):
		return fail(exitUsage, "%w", err)
	case errors.Is(err, syscall.ENOTDIR):
		return fail(exitUsage, "%w; give a directory with -o", err)
	case errors.Is(err, lab27.Hash):
		return fail(exitMismatch, "%w", err)
	case errors.Is(err, context.Canceled):
		return fail(exitPartial, "interrupted; the same command goes on where it stopped")
	case err != nil:
		return fmt.Errorf("%w; the same command goes on where it stopped", err)
	}
	if asJSON {
		json.NewEncoder(out).Encode(pulled)
	} else {
		fmt.Fprintf(out, "%s: %s, %d bytes fetched\n", pulled.Dir, strings.Join(pulled.Files, ", "), pulled.Bytes)
	}
	if !pulled.Sealed {
		return fail(exitPartial, "run %s is not sealed: it still runs, or the app ended before its end", run)
	}
	return nil
}

// outsideSessions refuses a directory that is a session's, or in one.
func outsideSessions(dir string) error {
	err := export.Outside(dir)
	if _, statErr := os.Stat(dir); statErr == nil && err == nil {
		err = export.Outside(filepath.Join(dir, "x"))
	}
	if err != nil {
		return fail(exitUsage, "%w", err)
	}
	return nil
}

// writeNew writes a file that must not exist, outside of sessions.
func writeNew(path string, content []byte) error {
	if err := outsideSessions(path); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fail(exitUsage, "%w; give another name with -o", err)
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

func newLab27Check() *cobra.Command {
	var request string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check DIR",
		Short: "Judge a log by itself: complete, partial or invalid",
		Long: `Reads a bundle, or the one in a session, and judges it: schema and bounds, order, counts, hashes, phases as planned. Each problem is
named with file, line and byte. It also tells how frames really followed each other in each phase, from presentedTime
alone, and whether the delays of the tail lengthened any: where they did not, the case did not happen, whatever was
requested.

Exit codes: 0 complete; 1 invalid, which contradicts itself or the contract; 4 partial, which ended early.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := findBundle(args[0])
			if err != nil {
				return err
			}
			var want *lab27.Request
			if request != "" {
				text, err := readSmall(cmd.Context(), request, lab27.MaxRequestBytes)
				if err != nil {
					return unreadable(fmt.Errorf("--request: %w", err))
				}
				r, err := lab27.ParseRequest(text)
				if err != nil {
					return fail(exitUsage, "%s: %w", request, err)
				}
				want = &r
			}
			report := lab27.Validate(os.DirFS(dir), want)
			if asJSON {
				json.NewEncoder(cmd.OutOrStdout()).Encode(bundleJSON(report))
			} else {
				printBundle(cmd.OutOrStdout(), report)
				fmt.Fprintf(cmd.OutOrStdout(), "%-9s%s\n", "meaning", lab27.Meaning)
			}
			return bundleError(dir, report)
		},
	}
	cmd.Flags().StringVar(&request, "request", "", "the request that was sent, as a file: the bundle must be of that one")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

func findBundle(path string) (string, error) {
	dir, err := lab27host.FindBundle(path)
	if err != nil {
		return "", fail(exitUsage, "%w", err)
	}
	return dir, nil
}

// bundleError gives what a bundle is an exit code.
func bundleError(dir string, r *lab27.Report) error {
	switch r.State {
	case lab27.Complete:
		return nil
	case lab27.Partial:
		return fail(exitPartial, "%s: %w", dir, r.Err())
	}
	return fail(exitMismatch, "%s: %w", dir, r.Err())
}

type problemJSON struct {
	Kind   lab27.Kind `json:"kind"`
	File   string     `json:"file"`
	Line   int        `json:"line"`
	Byte   int64      `json:"byte"`
	Detail string     `json:"detail"`
}

type bundleReport struct {
	RunName      string                 `json:"runName"`
	State        lab27.State            `json:"state"`
	Reason       string                 `json:"reason"` // why the app stopped
	ProblemCount int                    `json:"problemCount"`
	Problems     []problemJSON          `json:"problems"`
	Bytes        int64                  `json:"bytes"`
	Submitted    int                    `json:"submitted"`
	Presented    *int64                 `json:"presented"` // null without a summary, as the next two
	Dropped      *int64                 `json:"dropped"`
	Outstanding  *int64                 `json:"outstanding"`
	Phases       []lab27.PhaseIntervals `json:"phases"`
	Tail         *lab27.TailCase        `json:"tail"` // null where the reference was off, or rows may be lacking
}

func bundleJSON(r *lab27.Report) bundleReport {
	b := bundleReport{State: r.State, ProblemCount: r.ProblemCount, Problems: []problemJSON{}, Bytes: r.Bytes, Submitted: len(r.Submissions), Phases: r.Phases, Tail: r.Tail}
	if r.Plan != nil {
		b.RunName = r.Plan.Request.RunName
	}
	if s := r.Summary; s != nil {
		b.Reason, b.Presented, b.Dropped, b.Outstanding = s.Reason, &s.Presented, &s.Dropped, &s.Outstanding
	}
	for _, p := range r.Problems {
		b.Problems = append(b.Problems, problemJSON{p.Kind, p.File, p.Line, p.Byte, p.Detail})
	}
	return b
}

// maxProblemsShown of a bundle tell people enough; --json has more.
const maxProblemsShown = 10

func printBundle(w io.Writer, r *lab27.Report) {
	b := bundleJSON(r)
	line := func(label, format string, args ...any) {
		fmt.Fprintf(w, "%-9s%s\n", label, fmt.Sprintf(format, args...))
	}
	if r.Plan != nil {
		simulated := ""
		if r.Plan.Simulated {
			simulated = ", simulated"
		}
		line("run", "%s, %s of %s at %d permille, on %s with iOS %s%s", b.RunName, r.Plan.Request.Purpose, r.Plan.Request.Recipe, r.Plan.Request.DurationPermille,
			r.Plan.DeviceModel, r.Plan.OSVersion, simulated)
	}
	reason := ""
	if b.Reason != "" {
		reason = " (" + b.Reason + ")"
	}
	if s := r.Summary; s != nil {
		line("bundle", "%s%s, %d requests, %d presented, %d dropped, %d outstanding", b.State, reason, b.Submitted, s.Presented, s.Dropped, s.Outstanding)
	} else {
		line("bundle", "%s, %d requests; without a summary nothing tells how many were presented", b.State, b.Submitted)
	}
	for i, p := range r.Problems {
		if i == maxProblemsShown {
			line("", "and %d more problems", r.ProblemCount-i)
			break
		}
		line("problem", "%v", p)
	}
	for _, p := range b.Phases {
		if p.Intervals == 0 {
			line("interval", "%-9s none", p.Phase)
			continue
		}
		line("interval", "%-9s n %4d  min %s  median %s  P95 %s  max %s ms", p.Phase, p.Intervals, ms(*p.MinNs), ms(*p.MedianNs), ms(*p.P95Ns), ms(*p.MaxNs))
	}
	switch {
	case b.Tail == nil:
		line("tail", "not known: the reference was off, or rows may be lacking")
	case b.Tail.Happened:
		line("tail", "happened: all %d delays lengthened an interval", b.Tail.Delayed)
	default:
		line("tail", "did not happen: %d of %d delays lengthened an interval", b.Tail.Lengthened, b.Tail.Delayed)
	}
}

func newLab27Match() *cobra.Command {
	var bundle, output string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "match SESSION",
		Short: "Match a log with a session's frames, in both directions",
		Long: `Puts every presentedTime of a bundle and every frame of a session on one clock, by the offset that the app measured, and pairs them: at
most 250,000 ns apart, and each the only candidate of the other. What has no partner, or several, stays a difference; nothing is
adjusted or searched for. Writes match.jsonl, with every pair and every difference, and match.json, the verdict.

` + meaningHelp() + `

Exit codes: 0 qualified; 1 unqualified.`,
		Example: "  framebridge lab27 match run1 --bundle study-20261129T213805Z -o match1",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if bundle == "" {
				bundle = args[0]
			}
			dir, err := findBundle(bundle)
			if err != nil {
				return err
			}
			out, err := placeBeside(output, args[0], "-match")
			if err != nil {
				return err
			}
			if err := os.Mkdir(out, 0o755); err != nil {
				return fail(exitUsage, "%w; give another name with -o", err)
			}
			report := lab27.Validate(os.DirFS(dir), nil)
			m, err := lab27host.Match(args[0], report, out)
			if err != nil {
				os.Remove(out) // empty, unless something was written
				return fail(exitUsage, "%w", err)
			}
			if asJSON {
				text, err := m.Verdict.JSON()
				if err != nil {
					return err
				}
				cmd.OutOrStdout().Write(text)
			} else {
				printBundle(cmd.OutOrStdout(), report)
				printMatch(cmd.OutOrStdout(), &m.Verdict)
				fmt.Fprintf(cmd.OutOrStdout(), "%-9s%s\n", "written", filepath.Join(out, lab27host.MatchFile)+", "+filepath.Join(out, lab27host.MatchLinesFile))
			}
			return matchError(&m.Verdict)
		},
	}
	cmd.Flags().StringVar(&bundle, "bundle", "", "the bundle's directory (default: the one in the session)")
	cmd.Flags().StringVarP(&output, "output", "o", "", "directory to make (default: in the working directory, called after the session)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "the verdict, as in match.json")
	return cmd
}

func matchError(v *lab27.Verdict) error {
	if err := v.Err(); err != nil {
		return &exitError{exitMismatch, err}
	}
	return nil
}

func printMatch(w io.Writer, v *lab27.Verdict) {
	line := func(label, format string, args ...any) {
		fmt.Fprintf(w, "%-9s%s\n", label, fmt.Sprintf(format, args...))
	}
	matched, apart, worst := "nothing could be matched", "", ""
	if v.DifferenceMinNs != nil {
		apart = fmt.Sprintf(", %s to %s µs apart", micro(*v.DifferenceMinNs), micro(*v.DifferenceMaxNs))
	}
	if c := v.Counts; c != nil {
		matched = fmt.Sprintf("%d pairs of %d frames and %d presentations in the window%s", c.Paired, c.FramesInside, c.PresentedInside, apart)
	}
	line("match", "%s: %s", v.Verdict, matched)
	line("evidence", "%s, of session %s", v.Evidence, v.SessionID)
	for _, r := range v.Reasons {
		line("reason", "%s %d", r.Reason, r.Count)
	}
	if v.WorstP95DifferenceNs != nil {
		worst = fmt.Sprintf(", P95 at most %s ms apart", ms(*v.WorstP95DifferenceNs))
	}
	line("cuts", "%d of %d compared, %d differ%s", v.CutsCompared, v.Cuts, v.CutsFailed, worst)
	if k := v.Clock; k != nil {
		line("clocks", "brackets %s and %s µs wide, %s µs apart; %d of %d clock bridges contradict them", micro(k.BeforeWidthNs), micro(k.AfterWidthNs),
			micro(k.DisagreementNs()), k.BridgesContradicting, k.Bridges)
	}
	line("meaning", "%s", v.Meaning)
}

func micro(ns int64) string { return string(jsonline.AppendDecimal(nil, ns, 3)) }

func newLab27Cost() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "cost OFF ON",
		Short: "What the reference costs: a run without it held against a run with it",
		Long: `Compares two runs of the same recipe on the same phone, one with purpose cost-off and one with cost-on: CPU at most 2 percentage
points more, footprint at most 8 MiB more, presented handlers at most 1 ms in the mean and at P95, nothing written during a run,
a bundle of at most 2 MiB, and host processing whose time grows as the rows do. OFF and ON are sessions with a bundle, or
bundles, which do not tell the phone they are from; this machine's part is measured with ON's.

Exit codes: 0 within bounds; 1 not.`,
		Example: "  framebridge lab27 run --purpose cost-off -o off && framebridge lab27 run --purpose cost-on -o on\n  framebridge lab27 cost off on",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var dirs [2]string
			var runs [2]lab27.CostRun
			for i := range dirs {
				var err error
				if dirs[i], err = findBundle(args[i]); err != nil {
					return err
				}
				runs[i].Report = lab27.Validate(os.DirFS(dirs[i]), nil)
				if dirs[i] != args[i] { // a session
					session, err := lab27host.ReadSession(args[i])
					if err != nil {
						return fail(exitUsage, "%w", err)
					}
					runs[i].Session = &session
				}
			}
			off, on := runs[0], runs[1]
			var host []lab27.HostSample
			if off.State == lab27.Complete && on.State == lab27.Complete {
				var in lab27.MatchInput
				var err error
				if on.Session != nil {
					if in, err = lab27host.Input(args[1], on.Report); err != nil {
						return fail(exitUsage, "%w", err)
					}
				}
				if host, err = lab27host.HostSamples(os.DirFS(dirs[1]), in); err != nil {
					return fail(exitUsage, "%w", err)
				}
			}
			v := lab27.Cost(off, on, host)
			if asJSON {
				json.NewEncoder(cmd.OutOrStdout()).Encode(v)
			} else {
				printCost(cmd.OutOrStdout(), &v)
			}
			if !v.Pass {
				return fail(exitMismatch, "the reference costs more than it may, or that could not be measured")
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

func printCost(w io.Writer, v *lab27.CostVerdict) {
	for _, g := range v.Gates {
		word := "ok"
		if !g.Pass {
			word = "FAIL"
		}
		fmt.Fprintf(w, "%-5s %-15s %s (required: %s)\n", word, g.Name, g.Measured, g.Required)
	}
	if v.SamePhone == nil {
		fmt.Fprintln(w, "whether both ran on the same phone is not known: only sessions tell")
	}
	if v.Simulated {
		fmt.Fprintln(w, "simulated, which proves nothing of a phone")
	}
	if v.Rehearsal {
		fmt.Fprintln(w, "a rehearsal, which can never count")
	}
}

func newLab27Study() *cobra.Command {
	var surfaces []string
	var output string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "study RUN...",
		Short: "Several matched runs, on one or several devices, side by side",
		Long: `Tabulates the verdicts of sessions, as they were sealed, or of what lab27 match wrote, with what kept each from qualifying. Beside
them stand candidates: intervals that Apple's own tools measured in the same runs, from an Instruments export of
displayed-surfaces-interval. It tabulates and does not judge: each run keeps its own verdict.

` + meaningHelp(),
		Example: "  framebridge lab27 study run1 run2 -o study.md\n  framebridge lab27 study run1 --surfaces run1=displayed-surfaces.xml --json",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			candidates, err := readCandidates(cmd.Context(), args, surfaces)
			if err != nil {
				return err
			}
			var runs []lab27.StudyRun
			for _, path := range args {
				v, err := lab27host.ReadVerdict(path)
				if err != nil {
					return fail(exitUsage, "%s: no match to tabulate: %w", path, err)
				}
				runs = append(runs, lab27.StudyRun{Session: filepath.Base(path), Match: v, Candidates: append([]lab27.Candidate{}, candidates[path]...)})
			}
			table := lab27.NewStudy(runs)
			text := []byte(table.Markdown())
			if asJSON {
				if text, err = table.JSON(); err != nil {
					return err
				}
			}
			if output != "" {
				return writeNew(output, text)
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	cmd.Flags().StringArrayVar(&surfaces, "surfaces", nil, "RUN=EXPORT.xml: displayed surfaces that Instruments recorded beside a run; may be repeated")
	cmd.Flags().StringVarP(&output, "output", "o", "", "write to this new file (default: stdout)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object instead of Markdown")
	return cmd
}

// readCandidates reads exports of displayed surfaces, each for one of the runs, and sums up each display's intervals.
func readCandidates(ctx context.Context, runs, flags []string) (map[string][]lab27.Candidate, error) {
	candidates := map[string][]lab27.Candidate{}
	for _, flag := range flags {
		run, path, ok := strings.Cut(flag, "=")
		if !ok || !slices.Contains(runs, run) {
			return nil, fail(exitUsage, "--surfaces: expected RUN=EXPORT.xml with one of the runs, found %q", flag)
		}
		progress := newProgress()
		f, err := openFile(ctx, path, progress)
		if err != nil {
			return nil, err
		}
		rows, err := adapter.ReadXctraceSurfaces(f)
		f.Close()
		progress.end()
		if err != nil {
			return nil, unreadable(fmt.Errorf("%s: %w", path, err))
		}
		var displays []string
		intervals := map[string][]int64{}
		for _, row := range rows {
			if intervals[row.Display] == nil {
				displays = append(displays, row.Display)
			}
			intervals[row.Display] = append(intervals[row.Display], row.DurationNs)
		}
		for _, display := range displays {
			candidates[run] = append(candidates[run], lab27.NewCandidate(strings.TrimSuffix("displayed-surfaces-interval, "+display, ", "), intervals[display]))
		}
	}
	return candidates, nil
}
