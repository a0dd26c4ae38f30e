// Command labsim is a simulated device lab: a usbmuxd and a tunnel agent with iPhones behind them, for programs that talk to real ones.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/framebridge/framebridge/internal/sim"
)

// Exit codes, for scripts.
const (
	exitOK      = 0
	exitRefused = 1 // the lab did not do what it was asked to
	exitUsage   = 2 // wrong arguments, or a description that cannot be read
	exitFailed  = 3 // anything else
)

// usageError marks what is the caller's to mend.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

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
	fmt.Fprintln(os.Stderr, "labsim:", err)
	return exitCode(err)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "labsim",
		Short: "A simulated lab: usbmuxd, tunnels and iPhones that speak the real protocols",
		Long: `labsim plays a device lab in one process: usbmuxd, a tunnel agent, and behind them iPhones of iOS 14 to 26 with lockdownd,
service discovery, Instruments' services, the activity trace tap and their apps' files, and with lab27: true the reference
app of framebridge lab27` + leftOut() + `.

Programs that talk to real phones talk to it as they are: point them at its sockets. Every phone says of itself that it is
simulated (lockdown value FramebridgeSimulated, and the same among the properties of service discovery).

First steps:
  labsim example > lab.yaml            a lab with everything explained
  labsim run lab.yaml                  runs it, and prints the variables that lead to it
  idevice_id -l                        (in another shell, with those variables) lists its phones
  labsim ctl disconnect --for 3s       pulls a phone's cable for three seconds
  labsim wire --os 26.0 --duration 10s -o wire.bin     what the tap of any release would send, as a file

Exit codes: 0 done; 1 the lab refused a command; 2 wrong arguments or an unreadable description; 3 anything else.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{fmt.Errorf("%w (see --help)", err)} })
	root.AddCommand(newRun(), newCtl(), newWire(), newExample())
	return root
}

// leftOut says what a program that was built without a C compiler lacks.
func leftOut() string {
	if sim.HasLab27 {
		return ""
	}
	return " (which this program lacks: it was built without a C compiler)"
}

func exitCode(err error) int {
	var usage usageError
	switch {
	case errors.As(err, &usage):
		return exitUsage
	case refused(err):
		return exitRefused
	}
	return exitFailed
}

// exactly is cobra.ExactArgs with a message that says what is expected.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return usageError{fmt.Errorf("%s: expected %s, found %d arguments (see --help)", cmd.CommandPath(), what, len(args))}
		}
		return nil
	}
}
