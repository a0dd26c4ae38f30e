package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/ledger"
)

// The oracle reads an hour of 120 Hz in seconds, and its memory does not grow with the session. In short tests the hour has two minutes.
func TestAnHourTakesSecondsAndAWindowsMemory(t *testing.T) {
	if raceEnabled {
		t.Skip("time and memory under the race detector say nothing")
	}
	seconds := 120
	if os.Getenv("FRAMEBRIDGE_LONG") != "" {
		seconds = 3600
	}
	dir := t.TempDir()
	binary, log := filepath.Join(dir, "p95oracle"), filepath.Join(dir, "events.jsonl")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	f, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	records := writeSteady(t, f, seconds)
	cmd := exec.Command(binary, log)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	peak := watchMemory(cmd.Process.Pid)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, out.Bytes())
	}
	took := time.Since(begin)
	cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	peakKB := <-peak
	t.Logf("%d records: %v, %v of CPU, %d kB at most", records, took, cpu, peakKB)
	if limit := time.Duration(seconds) * 5 * time.Millisecond; cpu > limit { // 18 s for the hour; an idle machine takes 4
		t.Errorf("%v of CPU for %d s of frames, want %v at most", cpu, seconds, limit)
	}
	if peakKB > 40<<10 {
		t.Errorf("%d kB of memory, want 40 MB at most, however long the session", peakKB)
	}
}

// watchMemory gives the most memory that a process held, in kB, when it has ended; 0 where there is no /proc. What wait tells counts the
// memory of this process too, which it had before it became another.
func watchMemory(pid int) <-chan int64 {
	peak := make(chan int64, 1)
	go func() {
		var most int64
		for {
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			_, rest, ok := bytes.Cut(status, []byte("VmHWM:"))
			if err != nil || !ok { // it has ended
				peak <- most
				return
			}
			var kB int64
			fmt.Sscan(string(rest), &kB)
			most = max(most, kB)
			time.Sleep(5 * time.Millisecond)
		}
	}()
	return peak
}

// writeSteady writes a session of a steady 120 Hz with contributors, in the way of a live recording.
func writeSteady(t *testing.T, f *os.File, seconds int) (records int64) {
	t.Helper()
	s := newSimulation(2, adapter.PolicyP95)
	s.bind()
	s.recorder.Foreground(s.hostNs, true, "launch")
	for i := range seconds * 10 {
		if i%50 == 0 {
			s.bridge()
		}
		for range 12 {
			f := s.next(1, 8_333_333)
			s.show(f)
			s.log.Append(&ledger.Event{HostNs: s.hostNs, Value: &adapter.Contributors{FrameSeed: f.seed, DisplayID: 1, Processes: []adapter.Contributor{{PID: 400, Name: "Example"}}}})
		}
		s.hostNs += 100_000_000
		s.arrive()
		s.regular()
		if _, err := f.Write(s.log.text); err != nil {
			t.Fatal(err)
		}
		s.log.text = s.log.text[:0]
	}
	if _, err := f.Write(s.finish()); err != nil {
		t.Fatal(err)
	}
	return s.log.counts.Of(ledger.TypeRawRecord)
}
