package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/framebridge/framebridge/internal/device"
	"github.com/framebridge/framebridge/internal/tunnel"
)

func newTunnel() *cobra.Command {
	var udid string
	var kernel, asJSON bool
	cmd := &cobra.Command{
		Use:   "tunnel",
		Short: "Keep tunnels to phones of iOS 17 and later, and tell where they are",
		Long: `Keeps a tunnel to every phone of iOS 17 and later that is attached by cable, as they come and go, and serves go-ios's
info API at 127.0.0.1:60105 (another port: $GO_IOS_AGENT_PORT), so that framebridge, go-ios and other programs on this host
find them. No root is needed: tunnels live in this program (iOS 17.4 and later). A recording that finds no agent runs one for
itself; this command is for several programs at once, and for tunnels that outlive a recording.

iOS 17.0 to 17.3 knows kernel tunnels only, which need root: sudo framebridge tunnel --kernel. That path is go-ios's own and
was never tested here.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serveTunnels(cmd.Context(), cmd.OutOrStdout(), udid, kernel, asJSON)
		},
	}
	cmd.Flags().StringVar(&udid, "udid", "", "only this phone")
	cmd.Flags().BoolVar(&kernel, "kernel", false, "kernel tunnels, which need root")
	cmd.Flags().BoolVar(&asJSON, "json", false, "each change as a JSON line")
	worker := &cobra.Command{
		Use: "worker", Short: "One tunnel, for as long as its standard input is open", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return tunnel.Work(cmd.Context(), udid, kernel, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	worker.Flags().StringVar(&udid, "udid", "", "the phone")
	worker.Flags().BoolVar(&kernel, "kernel", false, "a kernel tunnel")
	cmd.AddCommand(worker)
	return cmd
}

// tunnelWorker makes commands that run this program as a tunnel's worker.
func tunnelWorker(kernel bool) func(ctx context.Context, udid string) *exec.Cmd {
	return func(ctx context.Context, udid string) *exec.Cmd {
		self, err := os.Executable()
		if err != nil {
			self = os.Args[0]
		}
		return exec.CommandContext(ctx, self, "tunnel", "worker", "--udid", udid, fmt.Sprintf("--kernel=%v", kernel))
	}
}

func serveTunnels(ctx context.Context, out io.Writer, udid string, kernel, asJSON bool) error {
	ln, agent, err := tunnel.Listen(device.DefaultAgent())
	if err != nil {
		return err
	}
	var mu sync.Mutex
	supervisor := &tunnel.Supervisor{Worker: tunnelWorker(kernel), Only: udid}
	supervisor.Changed = func(udid string, t *device.Tunnel, why error) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case asJSON:
			line := map[string]any{"udid": udid, "tunnel": t, "why": nil}
			if why != nil {
				line["why"] = why.Error()
			}
			json.NewEncoder(out).Encode(line)
		case t != nil:
			fmt.Fprintf(out, "%s  %s  up: %s port %d\n", time.Now().Format(time.TimeOnly), udid, t.Address, t.RSDPort)
		case ctx.Err() == nil:
			fmt.Fprintf(out, "%s  %s  down: %v\n", time.Now().Format(time.TimeOnly), udid, why)
		}
	}
	if !asJSON {
		fmt.Fprintf(out, "tunnels are told of at http://%s/tunnels; Ctrl-C ends them\n", agent)
	}
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { supervisor.Run(ctx) })
	return tunnel.Serve(ctx, ln, supervisor)
}
