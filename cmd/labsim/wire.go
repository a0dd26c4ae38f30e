package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/framebridge/framebridge/internal/sim/scene"
	"github.com/framebridge/framebridge/internal/sim/tapenc"
)

func newWire() *cobra.Command {
	var (
		release, scenePath, out, truth string
		duration, interval             time.Duration
		seed                           uint64
		torn                           bool
	)
	cmd := &cobra.Command{
		Use:   "wire --os VERSION --duration D -o WIRE",
		Short: "Write what the tap of any iOS release would send, as a wire file",
		Long: `Lets a phone of any release from iOS 14 to 26 live through a scene, and writes the payloads of its tap as a wire file:
little-endian u32 length, i64 host ns, bytes, repeated; length 0 where the tap began anew after a restart. framebridge
decode reads it. The same arguments always give the same bytes.

--truth writes the frames beside it, one JSON line each, as the scene has them.

` + scene.Doc,
		Args: exactly(0, "none"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			v, err := scene.ParseOS(release)
			if err != nil {
				return usageError{fmt.Errorf("--os: %w", err)}
			}
			c := tapenc.WireConfig{Spec: scene.Default(), OS: v, Seed: seed, Duration: duration, Interval: interval, Tap: tapenc.Config{Tear: torn}}
			if scenePath != "" {
				text, err := os.ReadFile(scenePath)
				if err == nil {
					c.Spec, err = scene.Parse(text)
				}
				if err != nil {
					return usageError{fmt.Errorf("--scene %s: %w", scenePath, err)}
				}
			}
			if duration <= 0 || interval <= 0 {
				return usageError{fmt.Errorf("--duration %s, --interval %s: write durations above zero, such as 10s", duration, interval)}
			}
			frames, err := writeWire(out, truth, c)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: %d frames of iOS %s\n", out, frames, v)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&release, "os", "", "iOS release, such as 26.0")
	f.StringVar(&scenePath, "scene", "", "scene file (default: an app at 60 Hz)")
	f.DurationVar(&duration, "duration", 0, "host time from the begin of the scene, such as 10s")
	f.DurationVar(&interval, "interval", 100*time.Millisecond, "time between payloads")
	f.Uint64Var(&seed, "seed", 1, "another number gives other jitter, pids and torn places")
	f.BoolVar(&torn, "torn", false, "end payloads at any byte")
	f.StringVarP(&out, "out", "o", "", "the wire file, which must not exist")
	f.StringVar(&truth, "truth", "", "also write the frames as JSON lines to this file, which must not exist")
	for _, required := range []string{"os", "duration", "out"} {
		if err := cmd.MarkFlagRequired(required); err != nil {
			panic(err) // a flag that is not there: a mistake in this function
		}
	}
	return cmd
}

// writeWire makes both files; nothing that is there already is written over.
func writeWire(out, truth string, c tapenc.WireConfig) (frames int64, err error) {
	wire, err := create(out)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, wire.Close()) }()
	var lines io.Writer = io.Discard
	if truth != "" {
		f, err := create(truth)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		lines = f
	}
	return tapenc.WriteWire(wire, lines, c)
}

func create(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, os.ErrExist) {
		return nil, usageError{fmt.Errorf("%w: choose another name", err)}
	}
	return f, err
}
