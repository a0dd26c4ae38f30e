package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/framebridge/framebridge/internal/export"
	"github.com/framebridge/framebridge/internal/input"
)

func newExport() *cobra.Command {
	var names []string
	for _, f := range export.Formats {
		names = append(names, f.Name)
	}
	var format, output string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "export DIR --format " + strings.Join(names, "|"),
		Short: "Write a session as tables (CSV, JSON lines, SQLite, Parquet) or as a trace for Perfetto",
		Long: `Writes a session in another tool's form, without loss: integers stay integers, and null stays null. The session itself is only
read; what is written must not exist, and by default is made in the working directory, called after the session.

` + export.Help(),
		Example: "  framebridge export run1 --format sqlite && sqlite3 run1.sqlite 'SELECT count(*) FROM frames'\n" +
			"  framebridge export run1 --format parquet -o /data/run1",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, ok := export.FormatOf(format)
			if !ok {
				return fail(exitUsage, "--format: expected one of %s, found %q", strings.Join(names, ", "), format)
			}
			path, err := placeBeside(output, args[0], f.Suffix)
			if err != nil {
				return err
			}
			progress := newProgress()
			log, err := openLog(cmd.Context(), args[0], progress)
			if err != nil {
				return err
			}
			defer log.Close()
			result, err := export.Write(cmd.Context(), log, f, path)
			progress.end()
			switch {
			case errors.Is(err, os.ErrExist):
				return fail(exitUsage, "%w; give another name with -o", err)
			case errors.Is(err, context.Canceled):
				return fail(exitPartial, "interrupted: nothing was exported")
			case errors.Is(err, input.ErrUnreadable):
				return fail(exitUsage, "%s: %w", args[0], err)
			case err != nil:
				return fail(exitFailed, "%w", err)
			}
			if result.BadLines > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s: %d lines of the log cannot be read or are missing; bad_lines names them\n", args[0], result.BadLines)
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(result)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %d frames, %d publications, %d gaps\n", result.Path, result.Rows["frames"], result.Rows["publications"], result.Rows["gaps"])
			return nil
		},
	}
	cmd.Flags().StringVar(&format, "format", "", strings.Join(names, ", "))
	cmd.Flags().StringVarP(&output, "output", "o", "", "what to make, which must not exist (default: in the working directory, called after the session)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "tell what was written as one JSON object")
	return cmd
}

// placeBeside is where what is made of a session goes: output, or else the session's name with a suffix, in the working directory.
func placeBeside(output, session, suffix string) (string, error) {
	if output == "" {
		path, err := filepath.Abs(session)
		if err != nil {
			return "", err
		}
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			path = filepath.Dir(path) // of a log file
		}
		output = filepath.Base(path) + suffix
	}
	if err := export.Outside(output); err != nil {
		return "", fail(exitUsage, "%w", err)
	}
	return output, nil
}
