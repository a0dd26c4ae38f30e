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
	exitPartial  = 4 // what was recorded is sealed, but it is not complete
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

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

func run(ctx context.Context, args []string) int {
	root := newRoot()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	fmt.Fprintln(os.Stderr, "framebridge:", err)
	var ee *exitError
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
precondition is missing; 4 sealed but partial; 5 anything else.`,
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRun: func(*cobra.Command, []string) {
			level := zerolog.WarnLevel
			if verbose {
				level = zerolog.DebugLevel
			}
			log := zerolog.New(zerolog.ConsoleWriter{Out: os.Stderr, TimeFormat: "15:04:05.000"}).Level(level).With().Timestamp().Logger()
			ios.SetLogger(slog.New(zerolog.NewSlogHandler(log.With().Str("from", "go-ios").Logger())))
			zerolog.DefaultContextLogger = &log
		},
	}
	root.PersistentFlags().BoolVarP(&verbose, "verbose", "v", false, "log what happens on the wire to stderr")
	root.AddCommand(newDemo(), newDevices(), newDoctor(), newCapture(), newTunnel(), newDecode(), newReplay(), newVerify(), newImport(), newSummary(), newExport(), newReport(), newRecover(), newLedger(), newVerifyProof())
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fail(exitUsage, "%w (see --help)", err) })
	return root
}
