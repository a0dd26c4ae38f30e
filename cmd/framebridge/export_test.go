package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/framebridge/framebridge/internal/sessiontest"
)

// recordSynthetic records a session of a minute, or of an hour in scripts/test-long.
func recordSynthetic(t *testing.T, compress bool) (dir string) {
	t.Helper()
	seconds := int64(60)
	if long() {
		seconds = 3600
	}
	dir = filepath.Join(t.TempDir(), "run")
	sessiontest.Session{Seconds: seconds, Compress: compress}.Record(t, dir)
	return dir
}

// An hour at 120 Hz, 443,000 frames and 610 MB of lines, in less than 15 s and 256 MiB. Time is that of the CPU: on a machine with nothing
// else to do the clock shows no more, and on a busy one it says nothing of the program.
func TestExportsTakeLittleTimeAndMemory(t *testing.T) {
	dir := recordSynthetic(t, false)
	for _, format := range []string{"csv", "jsonl", "sqlite", "parquet", "perfetto"} {
		out := filepath.Join(t.TempDir(), "out")
		began := time.Now()
		cpu, peakMiB := measured(t, "export", dir, "--format", format, "-o", out)
		t.Logf("%-8s %6.2f s of CPU, %6.2f s by the clock, %4d MiB", format, cpu.Seconds(), time.Since(began).Seconds(), peakMiB)
		if cpu > 15*time.Second || peakMiB > 256 {
			t.Errorf("%s takes %s of CPU and %d MiB, at most 15 s and 256 MiB are allowed", format, cpu, peakMiB)
		}
	}
}

func TestExportIsCalledAfterTheSession(t *testing.T) {
	dir := recordSynthetic(t, false)
	t.Chdir(t.TempDir())
	for format, made := range map[string]string{"csv": "run-csv/frames.csv", "sqlite": "run.sqlite", "perfetto": "run.perfetto-trace"} {
		e := must(t, "export", dir, "--format", format, "--json")
		var result struct {
			Format, Path string
			Rows         map[string]int64
			BadLines     int64
		}
		if err := json.Unmarshal([]byte(e.stdout), &result); err != nil || result.Format != format || result.Rows["frames"] == 0 || result.Rows["gaps"] != 1 || result.BadLines != 0 {
			t.Errorf("%s: %v %+v", format, err, result)
		}
		if _, err := os.Stat(made); err != nil {
			t.Errorf("%s: %v", format, err)
		}
	}
	if e := must(t, "export", filepath.Join(dir, "events.jsonl"), "--format", "jsonl"); !strings.HasPrefix(e.stdout, "run-jsonl: ") {
		t.Errorf("of a log file: %s", e.stdout)
	}
}

func TestExportErrorsNamePlaceAndRemedy(t *testing.T) {
	dir := recordSynthetic(t, false)
	taken := filepath.Join(t.TempDir(), "taken")
	if err := os.WriteFile(taken, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no format":           {[]string{"export", dir}, exitUsage, "--format: expected one of csv, jsonl, sqlite, parquet, perfetto"},
		"unknown format":      {[]string{"export", dir, "--format", "xlsx"}, exitUsage, `found "xlsx"`},
		"no session":          {[]string{"export", t.TempDir(), "--format", "csv"}, exitUsage, "is no session"},
		"taken":               {[]string{"export", dir, "--format", "csv", "-o", taken}, exitUsage, "-o"},
		"into the session":    {[]string{"export", dir, "--format", "csv", "-o", filepath.Join(dir, "x")}, exitUsage, "elsewhere"},
		"nowhere":             {[]string{"export", dir, "--format", "csv", "-o", filepath.Join(taken, "x", "y")}, exitUsage, "not a directory"},
		"a device that fills": {[]string{"export", dir, "--format", "csv", "-o", "/dev/full"}, exitUsage, "exists"},
	} {
		t.Run(name, func(t *testing.T) {
			e := command(t, c.args...)
			if e.code != c.code || !strings.Contains(e.stderr, c.want) || strings.Count(strings.TrimSpace(e.stderr), "\n") > 0 {
				t.Errorf("exit code %d, %q; want %d and one line with %q", e.code, e.stderr, c.code, c.want)
			}
		})
	}
}
