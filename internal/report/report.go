// Package report makes one HTML file of a session: everything that a person wants to see of it, without a network, on screen and on paper.
//
// | file | decides |
// |---|---|
// | report.go | what is read and checked: the log twice, and the files' hashes |
// | series.go | how an hour of frames becomes the columns of a chart, without hiding one |
// | chart.go, svg.go | how columns are drawn |
// | page.go, page.html, page.css, page.js | the page, its words and its figures |
//
// The figures are those of internal/summary, and none is computed twice. Names come from phones and files of anyone's making: they reach
// the page as text only, and the page forbids itself every script but its own and everything from elsewhere.
package report

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/framebridge/framebridge/internal/input"
	"github.com/framebridge/framebridge/internal/replay"
	"github.com/framebridge/framebridge/internal/summary"
	"github.com/framebridge/framebridge/ledger"
)

// Report is what is told of a session.
type Report struct {
	Tool    ledger.Tool  // that makes the report
	Start   ledger.Start // the zero Start where the log has none
	Summary *summary.Summary
	Checks  []Check

	manifest *ledger.Manifest // nil where the session is not sealed
	charts   *collector
}

// Check is something that was looked at, and what that proves.
type Check struct {
	Name    string
	Outcome Outcome
	Text    string
	Details []string // what was found, at most maxDetails
}

// Outcome is how a check ended.
type Outcome uint8

const (
	Passed Outcome = iota + 1
	Failed
	NotMade
)

func (o Outcome) String() string {
	return [...]string{Passed: "passed", Failed: "failed", NotMade: "not made"}[o]
}

// Class is how the page's style calls it.
func (o Outcome) Class() string {
	return [...]string{Passed: "passed", Failed: "failed", NotMade: "not-made"}[o]
}

// maxDetails bounds the findings that are told of one check.
const maxDetails = 20

// Of reads the session in dir, and checks it. It shows what it is doing, and how many bytes of the log or the files it has read for that.
func Of(ctx context.Context, dir string, tool ledger.Tool, show func(doing string, bytes int64)) (*Report, error) {
	r := &Report{Tool: tool}
	read := func(doing string, do func(*watchedLog) error) error {
		log, err := input.OpenLog(ctx, dir)
		if err != nil {
			return err
		}
		defer log.Close()
		log.Progress = func(bytes int64) { show(doing, bytes) }
		return do(&watchedLog{Log: log})
	}
	err := read("counting", func(log *watchedLog) (err error) {
		log.watch = func(e *ledger.Event) {
			if s, ok := e.Value.(*ledger.Start); ok {
				r.Start = *s
			}
		}
		r.Summary, err = summary.Of(log)
		return err
	})
	if err != nil {
		return nil, err
	}
	hashes, err := r.checkHashes(ctx, dir, show)
	if err != nil {
		return nil, err
	}
	var replayed Check
	err = read("replaying", func(log *watchedLog) (err error) {
		r.charts = newCollector(r.Summary)
		log.watch = r.charts.event
		replayed, err = checkReplay(log)
		r.charts.finish()
		return err
	})
	if err != nil {
		return nil, err
	}
	r.Checks = []Check{hashes, replayed, {
		Name: "Independent oracle", Outcome: NotMade,
		Text: "This report does not run it. `framebridge verify` does: a program that shares no code with this one computes every publication again from the native integers.",
	}}
	return r, nil
}

// watchedLog lets others see the events that a reader of the log reads.
type watchedLog struct {
	*input.Log
	watch func(*ledger.Event)
}

func (w *watchedLog) Next(e *ledger.Event) error {
	err := w.Log.Next(e)
	if err == nil {
		w.watch(e)
	}
	return err
}

// checkHashes compares the files with the manifest.
func (r *Report) checkHashes(ctx context.Context, dir string, show func(doing string, bytes int64)) (Check, error) {
	c := Check{Name: "Files and hashes"}
	hashed := int64(0)
	m, findings, err := ledger.VerifySession(ctx, dir, func(bytes int64) {
		hashed += bytes
		show("hashing", hashed)
	})
	r.manifest = m
	wrong := 0
	for _, f := range findings {
		if !f.Leftover {
			wrong++
		}
	}
	switch {
	case errors.Is(err, os.ErrNotExist):
		c.Outcome, c.Text = NotMade, "The session is not sealed: nothing says what its files should hold."
	case err != nil:
		return c, err
	case wrong > 0:
		c.Outcome, c.Text = Failed, fmt.Sprintf("%d differences from manifest.json: this is not what was sealed.", wrong)
	default:
		c.Outcome = Passed
		c.Text = "Every file is byte for byte what manifest.json names. Who keeps that file, or the ledger's entry of it, elsewhere can tell whether all was changed together."
	}
	for _, f := range findings {
		c.detail(f.String())
	}
	return c, nil
}

// checkReplay computes the publications again. It reads the log to its end whatever it finds.
func checkReplay(log *watchedLog) (Check, error) {
	c := Check{Name: "Replay"}
	result, err := replay.Run(log, replay.Options{Check: true})
	var differs *replay.Difference
	switch {
	case errors.As(err, &differs):
		c.Outcome, c.Text = Failed, "A publication is not what the recorded events give."
		c.detail(differs.Error())
		if err := drain(log); err != nil {
			return c, err
		}
	case err != nil:
		return c, err
	case result.Publications == 0:
		c.Outcome, c.Text = NotMade, "The session holds no publication."
	default:
		c.Outcome = Passed
		c.Text = fmt.Sprintf("All %d publications, each with its value, window, rank and identity, were computed again from %d recorded frames, and are as recorded.", result.Publications, result.Records)
	}
	for _, f := range result.Faults {
		c.detail(fmt.Sprintf("line %d: %v", f.Line, f.Err))
	}
	return c, nil
}

func drain(log *watchedLog) error {
	var e ledger.Event
	for {
		err := log.Next(&e)
		var bad *ledger.LineError
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !errors.As(err, &bad) {
			return err
		}
	}
}

func (c *Check) detail(text string) {
	if len(c.Details) < maxDetails {
		c.Details = append(c.Details, text)
	} else if len(c.Details) == maxDetails {
		c.Details = append(c.Details, "and more")
	}
}

// Passed reports whether nothing was found wrong.
func (r *Report) Passed() bool {
	for _, c := range r.Checks {
		if c.Outcome == Failed {
			return false
		}
	}
	return true
}
