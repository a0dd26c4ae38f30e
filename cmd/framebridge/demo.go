package main

import (
	"fmt"
	"os"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/framebridge/framebridge/internal/capture"
	"github.com/framebridge/framebridge/internal/sim"
	"github.com/framebridge/framebridge/internal/sim/scene"
)

const (
	demoUDID = "00008101-00FDEB0000000001"
	// demoScene: 60 Hz with a late frame now and then, a pause, and 120 Hz would need a newer phone than iOS 16 over cable shows.
	demoScene = `
- {for: 4s, hz: 60}
- {for: 5s, hz: 60, jank: {every: 20, delay: 40ms}}
- {for: 10s, hz: 60}
`
)

func newDemo() *cobra.Command {
	var dir, root string
	var duration time.Duration
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Record a simulated phone for 15 seconds: no phone, no set-up, no root",
		Long: `Starts a simulated lab in this process, records its phone for 15 seconds with some jank, shows the live line, and leaves a
session on disk with its summary. The session is marked as simulated and can never count as a real device's.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if duration <= 0 {
				return fail(exitUsage, "--duration: expected some seconds, found %s", duration)
			}
			spec, err := scene.Parse([]byte(demoScene))
			if err != nil {
				return err
			}
			phone := sim.DefaultDevice(demoUDID, "16.7")
			phone.Scene = spec
			lab, err := sim.New(sim.Config{Speed: 1, Devices: []sim.DeviceConfig{phone}}, zerolog.Nop())
			if err != nil {
				return err
			}
			defer lab.Close()
			address, err := lab.Listen("127.0.0.1:0")
			if err != nil {
				return err
			}
			// From here on everything goes the way that it goes with a real phone.
			os.Setenv("USBMUXD_SOCKET_ADDRESS", address)
			o := capture.Options{UDID: demoUDID, BundleID: spec.App.Bundle, Duration: duration, KeepWire: true, Dir: dir}
			if err := placeSession(&o.Dir, root, demoUDID); err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "a simulated iPhone (iOS 16.7) shows an app with some jank; recording it for %s\n", duration)
			result, err := runCapture(cmd.Context(), o, out, false)
			if err != nil {
				return err
			}
			s, err := summarise(cmd.Context(), result.Dir)
			if err != nil {
				return err
			}
			fmt.Fprintln(out)
			printSummary(out, s)
			fmt.Fprintf(out, "\nlook further:\n  framebridge replay %[1]s --check\n  framebridge decode %[1]s/wire.bin | head\n", result.Dir)
			return nil
		},
	}
	cmd.Flags().StringVarP(&dir, "output", "o", "", "the session's directory, which must not exist (default: a new one under --root)")
	cmd.Flags().StringVar(&root, "root", "", rootHelp)
	cmd.Flags().DurationVar(&duration, "duration", 15*time.Second, "how long")
	return cmd
}
