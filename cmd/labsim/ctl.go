package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/framebridge/framebridge/internal/sim"
)

func newCtl() *cobra.Command {
	var (
		control, device, lasts, delay string
		within                        time.Duration
		c                             sim.Command
	)
	cmd := &cobra.Command{
		Use:   "ctl [KIND]",
		Short: "Do something to a phone of a running lab, or ask how its phones are",
		Long: `Does what KIND says to a phone, and prints as JSON what was done and when. Without KIND it prints how every phone is.

Kinds, and what they take:
` + sim.FaultHelp() + `
Faults of payloads need a running tap, that is a capture.

  labsim ctl
  labsim ctl lose --count 2
  labsim ctl hang --service com.apple.mobile.mobile_image_mounter --for 10s
  labsim ctl service-missing --service com.apple.instruments.dtservicehub
  labsim ctl scene --step '{for: 3s, idle: true}'

The socket's own protocol is the same in JSON lines: {"device": UDID, "kind": "lose", "count": 2}.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				c.Kind = args[0]
			}
			c.Device, c.Within = device, sim.Duration(within)
			for _, d := range []struct {
				flag, text string
				to         *sim.Duration
			}{{"for", lasts, &c.For}, {"delay", delay, &c.Delay}} {
				if d.text == "" {
					continue
				}
				if err := d.to.UnmarshalText([]byte(d.text)); err != nil {
					return usageError{fmt.Errorf("--%s: %w", d.flag, err)}
				}
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), within+time.Second)
			defer cancel()
			reply, err := sim.Do(ctx, control, c)
			if err != nil {
				return err
			}
			out := json.NewEncoder(cmd.OutOrStdout())
			out.SetIndent("", "  ")
			if reply.Ack != nil {
				return out.Encode(reply.Ack)
			}
			return out.Encode(reply.Devices)
		},
	}
	f := cmd.Flags()
	f.StringVar(&control, "control", defaultControl(), "the lab's control socket")
	f.StringVarP(&device, "udid", "u", "", "the phone; may be left out where there is one")
	f.StringVar(&lasts, "for", "", "how long, such as 3s")
	f.IntVar(&c.Count, "count", 0, "how many payloads (default 1)")
	f.StringVar(&c.Service, "service", "", "a service: lockdownd, rsd, tunnel-agent, or the full name of one of theirs or of Instruments'")
	f.StringVar(&delay, "delay", "", "how late answers are, such as 800ms")
	f.StringVar(&c.Error, "error", "", "lockdownd's word for refusing, such as PasswordProtected")
	f.StringVar(&c.Bundle, "bundle", "", "an app (default: the scene's)")
	f.StringVar(&c.Step, "step", "", "a step of a scene, as YAML")
	f.DurationVar(&within, "within", time.Duration(sim.DefaultWithin), "how long to wait for payloads")
	return cmd
}

// refused says whether the lab said no, as opposed to not being there.
func refused(err error) bool { return errors.Is(err, sim.ErrRefused) }

// comment makes YAML comments of a text.
func comment(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimRight("# "+line, " \n") + "\n")
	}
	return b.String()
}
