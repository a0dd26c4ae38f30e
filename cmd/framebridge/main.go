// Command framebridge measures when frames really reach the glass of attached iPhones.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/danielpaulus/go-ios/ios"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/framebridge/framebridge/internal/device"
)

// Exit codes, for scripts.
const (
	exitOK       = 0
	exitMismatch = 1 // a check failed: what was recomputed differs from what was recorded
	exitUsage    = 2 // wrong arguments, or an input that cannot be read
	exitDevice   = 3 // a phone or a precondition is missing; the message names the remedy
	exitPartial  = 4 // interrupted: what was recorded, if anything, is sealed, but it is not complete
	exitFailed   = 5 // anything else
)

// exitError carries an exit code beside its message.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func fail(code int, format string, args ...any) error {
	return &exitError{code: code, err: fmt.Errorf(format, args...)}
}

// unreadable gives an error of reading what a command was given its exit code: that of an interruption where it is one.
func unreadable(err error) error {
	if errors.Is(err, context.Canceled) {
		return fail(exitPartial, "interrupted")
	}
	return &exitError{exitUsage, err}
}

func main() {
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

func run(ctx context.Context, args []string) int {
	root := newRoot()
	root.SetArgs(args)
	stdout := &output{File: os.Stdout}
	root.SetOut(stdout)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = stdout.lost()
	}
	if err == nil {
		return exitOK
	}
	var ee *exitError
	if errors.Is(err, context.Canceled) && !errors.As(err, &ee) {
		fmt.Fprintln(stderr, "framebridge: interrupted; nothing was recorded")
		return exitPartial
	}
	fmt.Fprintln(stderr, "framebridge:", err)
	switch {
	case errors.As(err, &ee):
		return ee.code
	case device.CodeOf(err) != "":
		return exitDevice
	}
	return exitFailed
}

func newRoot() *cobra.Command {
	var verbose bool
	root := &cobra.Command{
		Use:   "framebridge",
		Short: "Measure when frames really reach the glass of attached iPhones",
		Long: `framebridge records, for every frame of an iPhone's display, when it reached the glass: exact times from the
render server, live, from Linux or macOS, without Xcode. What it records can be re-derived by a stranger.

First steps:
  framebridge demo                        no phone needed: a simulated one, 15 seconds, a session on disk
  framebridge devices                     what is attached, and whether it can be recorded
  framebridge doctor UDID                 each precondition, and the one command that mends it
  framebridge capture --bundle com.example.app --duration 60s -o run1
  framebridge summary run1

Exit codes: 0 done; 1 a check found a difference; 2 wrong arguments or unreadable input; 3 a phone or a
precondition is missing; 4 interrupted, or sealed but partial; 5 anything else.`,
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRun: func(*cobra.Command, []string) {
			level := zerolog.WarnLevel
			if verbose {
				level = zerolog.DebugLevel
			}
			zerolog.TimeFieldFormat = time.RFC3339Nano
			log := zerolog.New(zerolog.ConsoleWriter{Out: stderr, TimeFormat: "15:04:05.000", NoColor: !stderr.terminal}).Level(level).With().Timestamp().Logger()
			ios.SetLogger(slog.New(zerolog.NewSlogHandler(log.With().Str("from", "go-ios").Logger())))
			zerolog.DefaultContextLogger = &log
		},
	}
	root.PersistentFlags().BoolVarP(&verbose, "verbose", "v", false, "log what happens on the wire to stderr")
	root.AddCommand(newDemo(), newDevices(), newDoctor(), newCapture(), newTunnel(), newDecode(), newReplay(), newVerify(), newImport(), newSummary(), newExport(), newReport(), newLab27(), newRecover(), newLedger(), newVerifyProof())
	usageErrors(root)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fail(exitUsage, "%w (see --help)", err) })
	return root
}

// usageErrors gives wrong arguments of every command their exit code, and has a word that is no command of a group be one.
func usageErrors(cmd *cobra.Command) {
	if cmd.HasSubCommands() && cmd.RunE == nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fail(exitUsage, "%s has no command %q (see %[1]s --help)", cmd.CommandPath(), args[0])
			}
			return cmd.Help()
		}
		cmd.Args = cobra.ArbitraryArgs
	}
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return fail(exitUsage, "%s: %w (see --help)", cmd.CommandPath(), err)
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		usageErrors(sub)
	}
}
