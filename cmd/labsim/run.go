package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/framebridge/framebridge/internal/sim"
	"github.com/framebridge/framebridge/internal/sim/scene"
)

// defaultControl is where run listens for commands and ctl finds it.
func defaultControl() string { return filepath.Join(os.TempDir(), "labsim-control") }

func newRun() *cobra.Command {
	var address, control string
	var verbose bool
	cmd := &cobra.Command{
		Use:   "run LAB.yaml",
		Short: "Run a lab until it is interrupted",
		Long: `Runs the lab that LAB.yaml describes (see labsim example) until SIGINT or SIGTERM.

It prints the line that leads programs to it:
  export USBMUXD_SOCKET_ADDRESS=UNIX:///tmp/labsim-usbmuxd
libimobiledevice's tools, go-ios and framebridge all honour it.

Phones of iOS 14 to 16 can be captured this way. Later ones are listed, and tell their facts, but their developer
services need a tunnel.`,
		Args: exactly(1, "one LAB.yaml"),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := os.ReadFile(args[0])
			if err != nil {
				return usageError{fmt.Errorf("%w: labsim example prints a lab to begin with", err)}
			}
			config, err := sim.Parse(text)
			if err != nil {
				return usageError{fmt.Errorf("%s: %w", args[0], err)}
			}
			level := zerolog.InfoLevel
			if verbose {
				level = zerolog.DebugLevel
			}
			log := zerolog.New(zerolog.ConsoleWriter{Out: cmd.ErrOrStderr(), TimeFormat: "15:04:05.000", NoColor: true}).Level(level).With().Timestamp().Logger()
			lab, err := sim.New(config, log)
			if err != nil {
				return err
			}
			env, err := lab.Listen(address)
			if err == nil && control != "" {
				err = lab.ListenControl(control)
			}
			if err != nil {
				return errors.Join(err, lab.Close())
			}
			fmt.Fprintf(cmd.OutOrStdout(), "export USBMUXD_SOCKET_ADDRESS=%s\n", env)
			<-cmd.Context().Done()
			return lab.Close()
		},
	}
	cmd.Flags().StringVar(&address, "listen", "unix:"+filepath.Join(os.TempDir(), "labsim-usbmuxd"), "usbmuxd's socket: unix:PATH or host:port")
	cmd.Flags().StringVar(&control, "control", defaultControl(), `socket for labsim ctl; "" for none`)
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "log every connection that ends and every refusal to stderr")
	return cmd
}

func newExample() *cobra.Command {
	return &cobra.Command{
		Use:   "example",
		Short: "Print a lab's YAML with everything explained",
		Args:  exactly(0, "none"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s\n%s\n%s", sim.Example, comment("Faults of a script (at:) and of labsim ctl, and what they take:\n\n"+sim.FaultHelp()),
				comment(scene.Doc))
			return err
		},
	}
}
