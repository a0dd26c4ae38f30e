// Command p95bench measures what the P95 window costs a recording: the cost gates of p95-window.md. scripts/bench-p95 runs it.
//
// The same tap bytes go through the whole pipeline (decode, raw record, encoded line) with the window off and on, in turn. Off is the
// recorder with its P95 switched off: the other display figures are computed and published all the same, so that the difference is the
// window. The stream is that of iOS 26 by default, whose pipeline is the fastest one, and so the hardest to be measured against. How
// much a recording costs without any figures at all is measured beside it, and gates nothing.
//
//	main.go      flags, turns, files
//	pipeline.go  the scenes, and one run of one of them
//	window.go    the window alone: a record at 1,200 and 4,096 values, and what p95 allocates
//	report.go    figures, gates and how they are told
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

const (
	exitPassed = 0
	exitGate   = 1
	exitFailed = 2
)

func main() {
	dir := flag.String("o", "bench", "directory for the result, a new file each time")
	release := flag.String("os", "26.0", "iOS release whose tap stream is decoded")
	runs := flag.Int("runs", 0, "runs of each kind in each scene, three or more (default: 25 of a, 15 of b, 7 of c)")
	only := flag.String("scene", "", "one scene alone: a, b or c")
	flag.Parse()
	if flag.NArg() > 0 || *runs < 0 || *runs > 0 && *runs < 3 || len(*only) > 1 || !strings.Contains("abc", *only) {
		fmt.Fprintln(os.Stderr, "p95bench: expected -o DIR, -os RELEASE, -runs N with N of 3 or more, -scene a, b or c")
		os.Exit(exitFailed)
	}
	passed, err := run(*dir, *release, *runs, *only)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "p95bench:", err)
		os.Exit(exitFailed)
	case !passed:
		os.Exit(exitGate)
	}
	os.Exit(exitPassed)
}

func run(dir, release string, runs int, only string) (passed bool, err error) {
	file, err := newFile(dir, time.Now())
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	r := newReport(release)
	for _, s := range scenes {
		if only != "" && only != s.Name {
			continue
		}
		if runs > 0 {
			s.Runs = runs
		}
		result, err := measure(s, release)
		if err != nil {
			return false, err
		}
		r.Scenes = append(r.Scenes, *result)
	}
	if only == "" {
		r.Window = measureWindow()
	}
	r.judge()
	out := json.NewEncoder(file)
	out.SetIndent("", " ")
	if err := out.Encode(r); err != nil {
		return false, err
	}
	r.print(os.Stdout, file.Name())
	return r.Passed, nil
}

// newFile makes a new file for a result. Nothing that is there is ever written over.
func newFile(dir string, now time.Time) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	const attempts = 100 // runs that begin within one second
	for i := range attempts {
		name := filepath.Join(dir, fmt.Sprintf("p95-%s-%02d.json", now.UTC().Format("20060102T150405Z"), i))
		f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if !errors.Is(err, os.ErrExist) {
			return f, err
		}
	}
	return nil, fmt.Errorf("%s: %d results of this second are there already", dir, attempts)
}

// measure runs a scene in turn without and with the window, and then for what those runs must not be disturbed by.
func measure(s sceneSpec, release string) (*sceneResult, error) {
	in, err := newInput(s, release)
	if err != nil {
		return nil, fmt.Errorf("scene %s: %w", s.Name, err)
	}
	result := &sceneResult{Name: s.Name, What: s.What}
	turn := func(m mode) error {
		runtime.GC()
		one, err := in.run(s, m, nil)
		if err != nil {
			return fmt.Errorf("scene %s, %s: %w", s.Name, m, err)
		}
		result.Records, result.WireBytes = one.records, int64(len(in.wire))
		result.Runs = append(result.Runs, one.figures)
		return nil
	}
	// One of each to warm up, in the file as well. Then off and on take turns at going first, so that a slow drift of the machine weighs
	// on both alike.
	for _, m := range [...]mode{none, off, on} {
		if err := turn(m); err != nil {
			return nil, err
		}
		result.Runs[len(result.Runs)-1].WarmUp = true
	}
	for i := range s.Runs {
		first, second := off, on
		if i%2 == 1 {
			first, second = on, off
		}
		for _, m := range [...]mode{first, second} {
			if err := turn(m); err != nil {
				return nil, err
			}
		}
		if i < 3 {
			if err := turn(none); err != nil {
				return nil, err
			}
		}
	}
	watch := &stopwatch{took: make([]int64, 0, in.publications(s))}
	runtime.GC()
	if _, err := in.run(s, on, watch); err != nil {
		return nil, err
	}
	result.Publication = watch.figures()
	result.conclude()
	return result, nil
}
