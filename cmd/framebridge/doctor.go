package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/framebridge/framebridge/internal/capture"
	"github.com/framebridge/framebridge/internal/device"
	"github.com/framebridge/framebridge/internal/tunnel"
)

// check is one precondition.
type check struct {
	Name   string      `json:"name"`
	OK     bool        `json:"ok"`
	Found  string      `json:"found"`
	Code   device.Code `json:"code,omitempty"`
	Remedy string      `json:"remedy,omitempty"`
}

// diagnosis is what doctor found of one phone.
type diagnosis struct {
	Facts  device.Facts    `json:"device"`
	Checks []check         `json:"checks"`
	Survey *capture.Survey `json:"survey"` // null where the tap could not be asked
}

func (d *diagnosis) ok() bool {
	for _, c := range d.Checks {
		if !c.OK {
			return false
		}
	}
	return true
}

// surveyFor is how long doctor listens to the tap.
const surveyFor = 3 * time.Second

func newDoctor() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor [UDID]",
		Short: "Check each precondition of a recording, with the remedy for what is missing",
		Long: `Checks, one after the other, what a recording needs: usbmuxd, the phone, its pairing, developer mode, the developer disk
image, the instruments service. Where one is missing, the line says what mends it, and the checks behind it are left out.

Then it listens to the tap for three seconds and counts what this phone really sends, with an example of each, and says
whether the native form of its release is known. Do something on the screen meanwhile: a still screen draws no frames.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			udid := ""
			if len(args) > 0 {
				udid = args[0]
			}
			d := diagnose(cmd.Context(), udid)
			if err := cmd.Context().Err(); err != nil {
				return err // what failed then is no fault of the phone's
			}
			if asJSON {
				if err := json.NewEncoder(cmd.OutOrStdout()).Encode(d); err != nil {
					return err
				}
			} else {
				printDiagnosis(cmd.OutOrStdout(), d)
			}
			if !d.ok() {
				return fail(exitDevice, "not ready: see the remedy above")
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

func explain(err error) (code device.Code, what, remedy string) {
	var p *device.Problem
	if errors.As(err, &p) {
		return p.Code, p.What, p.Remedy
	}
	return "error", err.Error(), ""
}

func diagnose(ctx context.Context, udid string) *diagnosis {
	d := &diagnosis{}
	add := func(name, found string, err error) bool {
		c := check{Name: name, OK: err == nil, Found: found}
		if err != nil {
			c.Code, c.Found, c.Remedy = explain(err)
		}
		d.Checks = append(d.Checks, c)
		return c.OK
	}
	entries, err := device.List(ctx)
	if !add("usbmuxd", fmt.Sprintf("answers, %d attached", len(entries)), err) {
		return d
	}
	entry, err := device.Find(ctx, udid)
	if !add("attached", entry.UDID+" by "+entry.Connection, err) {
		return d
	}
	d.Facts, err = device.ReadFacts(ctx, entry)
	if !add("answers", fmt.Sprintf("%s, iOS %s (%s)", d.Facts.ProductType, d.Facts.OSVersion, d.Facts.BuildVersion), err) {
		return d
	}
	phone, err := device.Open(ctx, entry, device.DefaultAgent())
	if err == nil {
		err = phone.CheckPairing(ctx)
	}
	if !add("paired", "yes", err) {
		return d
	}
	if phone.Major() >= 16 && !add("developer mode", "on", phone.CheckDeveloperMode(ctx)) {
		return d
	}
	if !add("developer disk image", "mounted", phone.CheckDeveloperImage(ctx)) {
		return d
	}
	if phone.NeedsTunnel() {
		agent, stop, err := tunnel.Ensure(ctx, phone.Facts, device.DefaultAgent(), tunnelWorker(false))
		if err == nil {
			defer stop()
			phone, err = device.Open(ctx, entry, agent)
		}
		found := ""
		if err == nil {
			found, err = phone.CheckTunnel(ctx)
		}
		if !add("tunnel", found, err) {
			return d
		}
		if agent != device.DefaultAgent() {
			c := &d.Checks[len(d.Checks)-1]
			c.Found = "no agent has one; this check made its own, as a recording does"
			c.Remedy = "framebridge tunnel, where several programs shall share one"
		}
	}
	survey, err := capture.Listen(ctx, phone, surveyFor)
	if add("tap", fmt.Sprintf("listened for %s", surveyFor), err) {
		d.Survey = survey
		d.Checks = append(d.Checks, surveyCheck(survey, phone.Facts))
	}
	return d
}

// surveyCheck says whether frames were seen in a form that is known.
func surveyCheck(s *capture.Survey, f device.Facts) check {
	c := check{Name: "frames", OK: s.Frames > 0 && s.Unusable == 0}
	switch {
	case s.Unusable > 0:
		c.Found = fmt.Sprintf("%d frames that can be used and %d that cannot: iOS %s leaves out something that is needed; there is %s", s.Frames, s.Unusable, f.OSVersion,
			strings.Join(s.Present, ", "))
		c.Remedy = "report this line and the list below"
	case s.Frames > 0:
		c.Found = fmt.Sprintf("%d frames as %s, on %s", s.Frames, strings.Join(s.Forms, " and "), s.DisplayText())
	case s.Rows == 0:
		c.Found, c.Remedy = "nothing was drawn, or the phone sends no signposts", "unlock the phone, move something on its screen, and run doctor again"
	default:
		c.Found = fmt.Sprintf("%d rows and no frame in a known form: iOS %s may use another", s.Rows, f.OSVersion)
		c.Remedy = "move something on the screen and run doctor again; if it stays so, report the list below"
	}
	return c
}

func printDiagnosis(w io.Writer, d *diagnosis) {
	for _, c := range d.Checks {
		mark := "ok  "
		if !c.OK {
			mark = "FAIL"
		}
		fmt.Fprintf(w, "%s  %-21s %s\n", mark, c.Name, c.Found)
		if c.Remedy != "" {
			fmt.Fprintf(w, "      -> %s\n", c.Remedy)
		}
	}
	if d.Facts.Simulated {
		fmt.Fprintln(w, "note  this device is simulated: nothing recorded from it counts as a real device's")
	}
	s := d.Survey
	if s == nil {
		return
	}
	if s.AdjustmentTicks != nil {
		fmt.Fprintf(w, "note  each frame's end lies %d ticks after the next one's previous: the log loader adds an adjustment to row times\n", *s.AdjustmentTicks)
	}
	if s.NoDisplayIDs {
		fmt.Fprintln(w, "note  this release does not report displays: an external one would break the chain of frames again and again")
	}
	if s.Gaps > 0 {
		fmt.Fprintf(w, "note  the row stream broke %d times\n", s.Gaps)
	}
	fmt.Fprintf(w, "\nwhat the tap sent in %s (%d rows):\n", surveyFor, s.Rows)
	others := 0
	for _, n := range s.Names {
		if n.Subsystem != renderServer {
			if others++; others > maxOthersShown {
				continue
			}
		}
		fmt.Fprintf(w, "%6d  %s  %s  %s\n", n.Rows, n.Subsystem, n.Category, n.Name)
		if n.Example != "" {
			fmt.Fprintf(w, "        %s\n", n.Example)
		}
	}
	if others > maxOthersShown {
		fmt.Fprintf(w, "        and %d kinds more (--json has all)\n", others-maxOthersShown)
	}
}

const (
	renderServer   = "com.apple.coreanimation"
	maxOthersShown = 12
)
