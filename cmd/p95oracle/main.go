// Command p95oracle computes a session's figures again, from raw integers alone, and compares them with what was recorded.
//
// It shares no code with the product: it imports the standard library only and nothing of this module, and was written from the
// contracts. It reads events.jsonl, takes native integers, target, foreground, clock and gap events from it, and computes every
// publication and every raw record's figures and quality. No value is taken from a receipt (but the time N at which it was
// published) or from a record's derived figures.
//
//	json.go     a line of JSON, numbers kept as digits
//	event.go    what the oracle takes from each type of line
//	ticks.go    ticks to ns, decimals
//	judge.go    a record's quality and figures, by raw-record.md
//	window.go   the window and its publications, by p95-window.md
//	other.go    the other display figures
//	oracle.go   one pass over a log
//	compare.go  every comparison of a line with what was computed
//	report.go   the output, and what is taken as given
//
// Where the contracts leave room it does what the product's packages p95 and adapter say in their comments that they do.
//
// What it proves is the arithmetic and the chain of data, not that the integers are what happened on the glass.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

const (
	exitEqual      = 0
	exitMismatch   = 1
	exitUnreadable = 2
)

const usage = `usage: p95oracle SESSION

Computes every publication and every raw record's figures of a session again, from native integers, and compares.
SESSION is a session directory, its events.jsonl, or - for a log on stdin (zstd -dc events.jsonl.zst | p95oracle -).
Prints one JSON object. Exit codes: 0 all equal; 1 a mismatch; 2 the log cannot be read.`

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) != 1 || args[0] == "-h" || args[0] == "--help" {
		fmt.Fprintln(stderr, usage)
		return exitUnreadable
	}
	in := stdin
	if args[0] != "-" {
		f, err := open(args[0])
		if err != nil {
			fmt.Fprintln(stderr, "p95oracle:", err)
			return exitUnreadable
		}
		defer f.Close()
		in = f
	}
	report, err := newOracle().read(in)
	if err != nil {
		fmt.Fprintf(stderr, "p95oracle: %s: %v\n", args[0], err)
		return exitUnreadable
	}
	out := json.NewEncoder(stdout)
	out.SetEscapeHTML(false)
	out.SetIndent("", " ")
	if err := out.Encode(report); err != nil {
		fmt.Fprintln(stderr, "p95oracle:", err)
		return exitUnreadable
	}
	if !report.Equal {
		return exitMismatch
	}
	return exitEqual
}

func open(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		log := filepath.Join(path, "events.jsonl")
		if _, err := os.Stat(log + ".zst"); err == nil {
			if _, err := os.Stat(log); errors.Is(err, os.ErrNotExist) {
				return nil, fmt.Errorf("%s is compressed, and the oracle reads with the standard library alone: zstd -dc %s.zst | p95oracle -", log, log)
			}
		}
		path = log
	}
	return os.Open(path)
}
