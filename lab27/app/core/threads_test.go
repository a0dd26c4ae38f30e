//go:build cgo

package core_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/framebridge/framebridge/lab27"
	"github.com/framebridge/framebridge/lab27/app/core"
)

// threads builds testdata/threads.c with the core's sources, and runs it on a request.
func threads(t *testing.T, mode string, flags ...string) (output string, documents string, sent lab27.Request) {
	t.Helper()
	sources, err := filepath.Glob("lab27*.c")
	if err != nil || len(sources) < 4 {
		t.Fatalf("sources %v, %v", sources, err)
	}
	program := filepath.Join(t.TempDir(), "threads")
	args := append(flags, "-std=c11", "-D_GNU_SOURCE", "-pthread", "-o", program, "testdata/threads.c")
	if out, err := exec.Command("cc", append(args, sources...)...).CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	documents = t.TempDir()
	if _, err := core.NewDirectory(documents); err != nil {
		t.Fatal(err)
	}
	// 1.4 s with a tick every 200 µs: hundreds or thousands of requests, as the machine has time, and handlers all the while.
	sent, err = lab27.NewRequest("run-1", lab27.PurposeRehearsal, 10, "1.0", digest, nonce, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(documents, "pending", sent.FileName()), sent.AppendJSON(nil), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(program, mode, documents).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return strings.TrimSpace(string(out)), documents, sent
}

func TestCoreIsCleanWithRealThreads(t *testing.T) {
	for name, flags := range map[string][]string{
		"thread sanitizer":                          {"-O1", "-g", "-fsanitize=thread"},
		"address and undefined-behaviour sanitizer": {"-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"},
	} {
		t.Run(name, func(t *testing.T) {
			out, documents, sent := threads(t, "run", flags...)
			r := lab27.Validate(os.DirFS(filepath.Join(documents, "runs", "run-1")), &sent)
			for _, p := range r.Problems {
				// Four threads and no panel: presented times need not rise, and on a busy machine phases end late. All else must hold.
				if p.Kind != lab27.Phase && (p.File != lab27.PresentedFile || p.Kind != lab27.Order) {
					t.Error(p)
				}
			}
			if out != "finished" || r.Summary == nil || r.Summary.Submitted < 100 || r.Summary.Presented != r.Summary.Submitted {
				t.Fatalf("%s: summary %+v", out, r.Summary)
			}
			t.Logf("%d requests, in the run: %+v", r.Summary.Submitted, *r.Summary.HandlerCost)
		})
	}
}

func TestHandlerTakesLessThanAMicrosecond(t *testing.T) {
	out, _, _ := threads(t, "cost", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror")
	ns, err := strconv.ParseFloat(out, 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("a handler takes %.1f ns, its two clock readings included", ns)
	if ns <= 0 || ns > 1000 { // the contract's gate is a thousand times higher
		t.Errorf("a handler takes %.1f ns", ns)
	}
}
