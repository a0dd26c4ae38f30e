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
	var address, control, tunnels string
	var verbose bool
	cmd := &cobra.Command{
		Use:   "run LAB.yaml",
		Short: "Run a lab until it is interrupted",
		Long: `Runs the lab that LAB.yaml describes (see labsim example) until SIGINT or SIGTERM.

It prints the lines that lead programs to it:
  export USBMUXD_SOCKET_ADDRESS=UNIX:///tmp/labsim-usbmuxd
  export GO_IOS_AGENT_HOST=127.0.0.1
  export GO_IOS_AGENT_PORT=39201
libimobiledevice's tools, go-ios and framebridge honour the first; go-ios and framebridge find the tunnels to phones of
iOS 17 and later by the others. With --tunnels "" there is no tunnel agent: framebridge tunnel makes tunnels itself.`,
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
			lines := fmt.Sprintf("export USBMUXD_SOCKET_ADDRESS=%s\n", env)
			if err == nil && tunnels != "" {
				var host string
				var port int
				host, port, err = lab.ListenTunnels(tunnels)
				lines += fmt.Sprintf("export GO_IOS_AGENT_HOST=%s\nexport GO_IOS_AGENT_PORT=%d\n", host, port)
			}
			if err != nil {
				return errors.Join(err, lab.Close())
			}
			fmt.Fprint(cmd.OutOrStdout(), lines)
			<-cmd.Context().Done()
			return lab.Close()
		},
	}
	cmd.Flags().StringVar(&address, "listen", "unix:"+filepath.Join(os.TempDir(), "labsim-usbmuxd"), "usbmuxd's socket: unix:PATH or host:port")
	cmd.Flags().StringVar(&control, "control", defaultControl(), `socket for labsim ctl; "" for none`)
	cmd.Flags().StringVar(&tunnels, "tunnels", "127.0.0.1:0", `where the tunnel agent listens, host:port; "" for no agent`)
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
