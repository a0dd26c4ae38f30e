package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/framebridge/framebridge/internal/report"
)

func newReport() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "report DIR",
		Short: "Write a session's report: one HTML file, for screen and paper, without a network",
		Long: `Writes one HTML file that needs nothing else: frame times over time with the P95 and gaps, their distribution, hitches, refresh
rates and segments, frames by process, what was checked and what was not, identities and hashes. Its figures are those of
framebridge summary. While writing, it compares the files with the manifest and computes every publication again.

A chart's column shows the shortest and the longest of its time, so that no spike is hidden. Exit codes: 0 written; 1
written, and it tells that a check failed; 2 the session cannot be read, or the name is taken; 4 interrupted, nothing is left.`,
		Example: "  framebridge demo -o run1 && framebridge report run1 && xdg-open run1.html",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if info, err := os.Stat(args[0]); err != nil {
				return fail(exitUsage, "%w", err)
			} else if !info.IsDir() {
				return fail(exitUsage, "%s: expected a session's directory, found a file", args[0])
			}
			path, err := placeBeside(output, args[0], ".html")
			if err != nil {
				return err
			}
			r, err := writeReport(cmd.Context(), args[0], path)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), path)
			if !r.Passed() {
				return fail(exitMismatch, "%s is written, and tells that a check failed: this session is not as it was recorded", path)
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "the file, which must not exist (default: in the working directory, called after the session)")
	return cmd
}

// writeReport writes beside path, under the name with .unfinished, and renames at the end: what has the name is whole. Where it fails, or
// ctx ends, nothing is left.
func writeReport(ctx context.Context, dir, path string) (*report.Report, error) {
	if err := free(path); err != nil {
		return nil, err
	}
	unfinished := path + ".unfinished"
	f, err := os.OpenFile(unfinished, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, os.ErrExist) {
		return nil, fail(exitUsage, "%s: %w: another report is being written there, or one that was killed left it; remove it, or give another name with -o", unfinished, os.ErrExist)
	}
	if err != nil {
		return nil, fail(exitUsage, "%w", err)
	}
	defer os.Remove(unfinished)
	defer f.Close()
	progress := newProgress()
	r, err := report.Of(ctx, dir, tool, progress.megabytes)
	progress.end()
	switch {
	case errors.Is(err, context.Canceled):
		return nil, fail(exitPartial, "interrupted: no report was written")
	case err != nil:
		return nil, fail(exitUsage, "%s: %w", dir, err)
	}
	w := bufio.NewWriter(f)
	if err := errors.Join(r.WriteHTML(w), w.Flush(), f.Close()); err != nil {
		return nil, fail(exitFailed, "%w", err)
	}
	if err := free(path); err != nil {
		return nil, err
	}
	if err := os.Rename(unfinished, path); err != nil {
		return nil, fail(exitFailed, "%w", err)
	}
	return r, nil
}

// free refuses a name that is taken.
func free(path string) error {
	if _, err := os.Lstat(path); err == nil {
		return fail(exitUsage, "%s: %w; give another name with -o", path, os.ErrExist)
	}
	return nil
}
