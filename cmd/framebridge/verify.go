package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/framebridge/framebridge/internal/input"
	"github.com/framebridge/framebridge/internal/replay"
	"github.com/framebridge/framebridge/ledger"
)

const oracleName = "p95oracle"

func newVerify() *cobra.Command {
	var oracle string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "verify DIR",
		Short: "Prove a sealed session's numbers: hashes, the independent oracle, replay",
		Long: `Checks a sealed session in three ways, and says what they prove and what they do not:
  hashes   every file is byte for byte what manifest.json says
  oracle   p95oracle, a program that shares no code with this one, computes every publication and every raw record's
           figures and quality again from the native integers
  replay   this program's own window does the same, as replay --check

The oracle is looked for beside this program and in PATH; ./scripts/build puts both into ./bin. Under go run it is built on
the spot. Exit codes: 0 all as recorded; 1 something differs; 2 the session cannot be read, or is not sealed; 3 there is no oracle;
4 interrupted.`,
		Example: "  framebridge demo -o run1 && framebridge verify run1",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := args[0]
			if _, err := ledger.ReadManifest(dir); errors.Is(err, os.ErrNotExist) {
				if log, err := ledger.OpenLog(dir); err != nil {
					return fail(exitUsage, "%w", err)
				} else {
					log.Close()
				}
				return fail(exitUsage, "%s is not sealed: nothing can be proved of a session that may still change; `framebridge recover %s` seals what a killed recorder left", dir, dir)
			}
			path, done, err := findOracle(cmd.Context(), oracle)
			if err != nil {
				return err
			}
			defer done()
			progress := newProgress()
			v, err := verifySession(cmd.Context(), dir, path, progress)
			progress.end()
			if cmd.Context().Err() != nil {
				err = cmd.Context().Err() // the oracle's is that it was killed
			}
			if err != nil {
				return unreadable(fmt.Errorf("%s: %w", dir, err))
			}
			if asJSON {
				err = json.NewEncoder(cmd.OutOrStdout()).Encode(v)
			} else {
				err = v.print(cmd.OutOrStdout())
			}
			if err != nil {
				return fail(exitFailed, "%w", err)
			}
			if !v.OK {
				return fail(exitMismatch, "%s does not verify", dir)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&oracle, "oracle", "", "the oracle's program (default: p95oracle beside this one, or in PATH)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

// findOracle finds the oracle's program. done has to be called when it is not needed any more.
func findOracle(ctx context.Context, named string) (path string, done func(), err error) {
	done = func() {}
	if named != "" {
		if path, err = exec.LookPath(named); err != nil {
			return "", done, fail(exitUsage, "--oracle: %w", err)
		}
		return path, done, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", done, fail(exitFailed, "%w", err)
	}
	if path, err = exec.LookPath(filepath.Join(filepath.Dir(self), oracleName)); err == nil {
		return path, done, nil
	}
	if builtByGoRun(self) {
		return compileOracle(ctx)
	}
	if path, err = exec.LookPath(oracleName); err == nil {
		return path, done, nil
	}
	return "", done, fail(exitDevice, "the oracle, %s, is a program of its own, and it is neither beside %s nor in PATH: ./scripts/build puts both into ./bin; or `go build -o DIR ./cmd/p95oracle`, and --oracle DIR/p95oracle", oracleName, self)
}

// compileOracle builds the oracle of the same source in a temporary directory.
func compileOracle(ctx context.Context) (path string, done func(), err error) {
	dir, err := os.MkdirTemp("", "framebridge-oracle")
	if err != nil {
		return "", nil, fail(exitFailed, "%w", err)
	}
	done = func() { os.RemoveAll(dir) }
	path = filepath.Join(dir, oracleName)
	out, err := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/framebridge/framebridge/cmd/p95oracle").CombinedOutput()
	if err != nil {
		done()
		return "", nil, fail(exitDevice, "build the oracle: %w: %.300s (run ./scripts/build, and then ./bin/framebridge)", err, bytes.TrimSpace(out))
	}
	return path, done, nil
}

// builtByGoRun reports whether go run built this program, which then stands alone in the build cache or in a temporary directory. Whoever
// uses it has the source and the compiler at hand.
func builtByGoRun(self string) bool {
	cache := os.Getenv("GOCACHE")
	return strings.Contains(self, string(filepath.Separator)+"go-build") || cache != "" && strings.HasPrefix(self, filepath.Clean(cache)+string(filepath.Separator))
}

// verification is what verify found out.
type verification struct {
	OK        bool        `json:"ok"`
	Session   string      `json:"session"`
	SessionID string      `json:"sessionId"`
	State     string      `json:"state"`
	Evidence  string      `json:"evidence"`
	Hashes    hashCheck   `json:"hashes"`
	Oracle    oracleCheck `json:"oracle"`
	Replay    replayCheck `json:"replay"`
	// Unfinished is why the log of a damaged session could not be checked to its end.
	Unfinished string   `json:"unfinished,omitempty"`
	Proved     []string `json:"proved"`
	NotProved  []string `json:"notProved"`
}

type hashCheck struct {
	OK       bool     `json:"ok"`
	Files    int      `json:"files"`
	Bytes    int64    `json:"bytes"`
	Findings []string `json:"findings"`
	// Leftovers are what an interrupted sealing left there: nothing that was sealed is another for them.
	Leftovers []string `json:"leftovers,omitempty"`
}

// oracleCheck is the oracle's report, as far as it is used here.
type oracleCheck struct {
	Program      string `json:"program"`
	OK           bool   `json:"equal"`
	Lines        int64  `json:"lines"`
	Records      int64  `json:"records"`
	Publications int64  `json:"publications"`
	Compared     int64  `json:"figuresCompared"`
	Total        int64  `json:"mismatchesTotal"`
	Mismatches   []struct {
		Line  int64  `json:"line"`
		Seq   int64  `json:"seq"`
		Type  string `json:"type"`
		Field string `json:"field"`
		Got   string `json:"got"`
		Want  string `json:"want"`
	} `json:"mismatches"`
	// TakenAsGiven are the fields that only the hashes protect, wherever Shows does not apply.
	TakenAsGiven []struct {
		Fields string `json:"fields"`
		Shows  string `json:"shows"`
	} `json:"takenAsGiven"`
}

type replayCheck struct {
	OK           bool     `json:"ok"`
	Records      int64    `json:"records"`
	Publications int64    `json:"publications"`
	Findings     []string `json:"findings"`
}

// verifySession makes the three checks; the oracle runs beside the other two. An error means that they could not be made, and that the
// hashes do not tell why.
func verifySession(ctx context.Context, dir, oracle string, progress *progress) (*verification, error) {
	asking, stop := context.WithCancel(ctx)
	defer stop()
	v := &verification{Session: dir}
	counted := &countingReader{}
	asked := make(chan error, 1)
	lines, unread := ledger.OpenLines(dir)
	if unread == nil {
		counted.Reader = lines
		go func() {
			defer lines.Close()
			asked <- v.Oracle.ask(asking, oracle, counted)
		}()
	} else {
		asked <- unread
	}
	show := func(doing string, done int64) {
		progress.show("%s %d MB; oracle %d MB of lines", doing, done>>20, counted.bytes.Load()>>20)
	}
	err := v.hashes(ctx, dir, show)
	if err == nil && unread == nil {
		unread = v.Replay.run(ctx, dir, show)
	}
	if err != nil || unread != nil {
		stop()
	}
	stopped := wait(asked, func() { show("hashes and replay done,", v.Hashes.Bytes) })
	if unread == nil {
		unread = stopped
	}
	if err = errors.Join(err, unread); err != nil {
		if v.Hashes.OK || v.Hashes.Findings == nil || ctx.Err() != nil {
			return nil, err
		}
		v.Unfinished, v.Oracle.OK = err.Error(), false
	} else if o, r := &v.Oracle, &v.Replay; o.Records != r.Records || o.Publications != r.Publications {
		r.OK = false
		r.Findings = append(r.Findings, fmt.Sprintf("it saw %d records and %d publications, the oracle %d and %d", r.Records, r.Publications, o.Records, o.Publications))
	}
	v.OK = v.Hashes.OK && v.Oracle.OK && v.Replay.OK
	v.judge()
	return v, nil
}

// countingReader says how far a reading in another goroutine has come.
type countingReader struct {
	io.Reader
	bytes atomic.Int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.bytes.Add(int64(n))
	return n, err
}

// ask runs the oracle on a log's lines.
func (o *oracleCheck) ask(ctx context.Context, program string, lines io.Reader) error {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, program, "-")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = lines, &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 1) {
		return fmt.Errorf("%s: %w: %.500s", program, err, bytes.TrimSpace(stderr.Bytes()))
	}
	if err := json.Unmarshal(stdout.Bytes(), o); err != nil {
		return fmt.Errorf("%s: expected one JSON object, found %.100q: %w", program, stdout.Bytes(), err)
	}
	o.Program = program
	o.OK = o.OK && err == nil && o.Total == 0
	return nil
}

// wait waits for the oracle, and calls tick meanwhile.
func wait(asked <-chan error, tick func()) error {
	ticker := time.NewTicker(progressEvery)
	defer ticker.Stop()
	for {
		select {
		case err := <-asked:
			return err
		case <-ticker.C:
			tick()
		}
	}
}

func (v *verification) hashes(ctx context.Context, dir string, show func(doing string, done int64)) error {
	h := &v.Hashes
	m, findings, err := ledger.VerifySession(ctx, dir, func(bytes int64) {
		h.Bytes += bytes
		show("hashes", h.Bytes)
	})
	if err != nil {
		return err
	}
	h.Findings = []string{}
	for _, f := range findings {
		if f.Leftover {
			h.Leftovers = append(h.Leftovers, f.String())
		} else {
			h.Findings = append(h.Findings, f.String())
		}
	}
	h.OK = len(h.Findings) == 0
	if m != nil {
		h.Files, v.SessionID, v.State, v.Evidence = len(m.Files), m.SessionID, stateText(m), string(m.Evidence)
	}
	return nil
}

func (r *replayCheck) run(ctx context.Context, dir string, show func(doing string, done int64)) error {
	log, err := input.OpenLog(ctx, dir)
	if err != nil {
		return err
	}
	defer log.Close()
	log.Progress = func(bytes int64) { show("replay", bytes) }
	r.Findings = []string{}
	var differs *replay.Difference
	result, err := replay.Run(log, replay.Options{Check: true})
	if err != nil && !errors.As(err, &differs) {
		return err
	}
	if differs != nil {
		r.Findings = append(r.Findings, differs.Error())
	}
	for _, f := range result.Faults {
		r.Findings = append(r.Findings, fmt.Sprintf("line %d: %v", f.Line, f.Err))
	}
	r.Records, r.Publications, r.OK = result.Records, result.Publications, len(r.Findings) == 0
	return nil
}

// judge says in words what the checks prove, and what no check of a file can.
func (v *verification) judge() {
	v.Proved, v.NotProved = []string{}, []string{}
	say := func(ok bool, proved, not string) {
		if ok {
			v.Proved = append(v.Proved, proved)
		} else {
			v.NotProved = append(v.NotProved, not)
		}
	}
	say(v.Hashes.OK, "no byte of the session has changed since it was sealed, if the manifest has not",
		"that the files are those that were sealed: they are not")
	figures, publications := "the oracle computes others from the native integers", "the recorded events give others"
	if v.Unfinished != "" {
		figures, publications = "the oracle did not get to their end", "the replay did not get to their end"
	}
	say(v.Oracle.OK, "every publication, and every record's presentation, frame time, lifetime, refresh multiple and quality, follow from the native integers",
		"the figures: "+figures)
	say(v.Replay.OK, "the window of this program computes the same publications from the recorded events",
		"the publications: "+publications)
	v.NotProved = append(v.NotProved,
		"that manifest and session were not replaced together: `framebridge ledger verify` knows the manifest's hash",
		"that the native integers are when frames reached the glass: this is arithmetic and a chain of data, not physical truth")
}

// print writes one screen.
func (v *verification) print(w io.Writer) error {
	var b bytes.Buffer
	line := func(label, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s %s\n", label, fmt.Sprintf(format, args...))
	}
	verdict := map[bool]string{true: "ok ", false: "NOT"}
	line("session", "%s (%s), %s, evidence %s", v.Session, v.SessionID, v.State, v.Evidence)
	line("hashes", "%s  %d files, %.1f MB, against %s", verdict[v.Hashes.OK], v.Hashes.Files, float64(v.Hashes.Bytes)/1e6, ledger.ManifestName)
	line("oracle", "%s  %d records and %d publications computed from native integers, %d figures compared", verdict[v.Oracle.OK], v.Oracle.Records, v.Oracle.Publications, v.Oracle.Compared)
	line("replay", "%s  %d publications computed by this program's own window", verdict[v.Replay.OK], v.Replay.Publications)
	v.printFindings(&b)
	for _, f := range v.Hashes.Leftovers {
		line("leftover", "%s", f)
	}
	if v.Unfinished != "" {
		line("unfinished", "%s", v.Unfinished)
	}
	for i, p := range v.Proved {
		line(first(i, "proved"), "%s", p)
	}
	for i, p := range v.NotProved {
		line(first(i, "not proved"), "%s", p)
	}
	var never, partly []string
	for _, g := range v.Oracle.TakenAsGiven {
		if g.Shows == "" {
			never = append(never, g.Fields)
		} else {
			partly = append(partly, g.Fields)
		}
	}
	if v.Unfinished != "" {
		_, err := w.Write(b.Bytes())
		return err // the oracle did not tell which fields it takes as given
	}
	fmt.Fprintf(&b, "\nonly the hashes protect these, since nothing else in the session tells them again:\n")
	printFields(&b, never)
	fmt.Fprintf(&b, "and in part (--json says when a change of them shows):\n")
	printFields(&b, partly)
	_, err := w.Write(b.Bytes())
	return err
}

func first(i int, label string) string {
	if i == 0 {
		return label
	}
	return ""
}

// maxShown keeps the findings on one screen; --json has more.
const maxShown = 5

func (v *verification) printFindings(w io.Writer) {
	show := func(all int64, list []string) {
		for i, f := range list {
			if i == maxShown {
				fmt.Fprintf(w, "  and %d more (--json)\n", all-maxShown)
				break
			}
			fmt.Fprintf(w, "  WRONG  %s\n", f)
		}
	}
	show(int64(len(v.Hashes.Findings)), v.Hashes.Findings)
	var mismatches []string
	for _, m := range v.Oracle.Mismatches {
		mismatches = append(mismatches, strings.Join(strings.Fields(fmt.Sprintf("line %d %s %s: found %s, expected %s", m.Line, m.Type, m.Field, m.Got, m.Want)), " "))
	}
	show(v.Oracle.Total, mismatches)
	show(int64(len(v.Replay.Findings)), v.Replay.Findings)
}

// printFields prints fields, those of one type together.
func printFields(w io.Writer, fields []string) {
	for len(fields) > 0 {
		kind, _, _ := strings.Cut(fields[0], " ")
		var names []string
		for len(fields) > 0 {
			k, name, _ := strings.Cut(fields[0], " ")
			if k != kind {
				break
			}
			names = append(names, strings.TrimPrefix(name, "payload."))
			fields = fields[1:]
		}
		fmt.Fprintf(w, "  %-27s %s\n", kind, strings.Join(names, ", "))
	}
}
