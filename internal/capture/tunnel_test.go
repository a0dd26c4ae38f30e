package capture

import (
	"context"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/internal/device"
	"github.com/framebridge/framebridge/internal/sim"
	"github.com/framebridge/framebridge/ledger"
	"github.com/framebridge/framebridge/p95"
)

// workers makes tunnel workers of the test binary, and can kill the last one.
type workers struct {
	mu   sync.Mutex
	last *exec.Cmd
}

func (w *workers) command(ctx context.Context, udid string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), "FRAMEBRIDGE_TEST_WORKER="+udid)
	w.mu.Lock()
	w.last = cmd
	w.mu.Unlock()
	return cmd
}

func (w *workers) kill(t *testing.T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.last.Process.Signal(syscall.SIGKILL); err != nil {
		t.Errorf("kill the tunnel's process: %v", err)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("open files cannot be counted here: %v", err)
	}
	return len(list)
}

func TestRecordingGoesOnThroughTunnelRestartsAndKilledTunnels(t *testing.T) {
	times := 2 // of each
	if long() {
		times = 10
	}
	lab := startLab(t, "26.0", "[{for: 1h, hz: 120}]")
	files := openFiles(t)
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	w := &workers{}
	o := options(t, 0)
	o.Agent = device.Agent{Host: "127.0.0.1", Port: 1} // nobody: the recording runs its own
	o.TunnelWorker = w.command
	ctx, stop := context.WithCancel(zerolog.New(io.Discard).WithContext(context.Background()))
	defer stop()

	// Each disturbance comes at a random moment of a connection that delivers.
	var mu sync.Mutex
	var source string
	var frames int64
	o.Progress = func(p Progress) {
		mu.Lock()
		source, frames = p.Source, p.Totals.Frames
		mu.Unlock()
	}
	delivering := func() {
		t.Helper()
		mu.Lock()
		was := frames
		mu.Unlock()
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			mu.Lock()
			ok := source == "connected" && frames > was+60
			mu.Unlock()
			if ok {
				return
			}
			if time.Now().After(deadline) {
				t.Error("no frames for 30 s")
				stop()
				return
			}
		}
	}
	rng := rand.New(rand.NewPCG(7, 7))
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer stop()
		for range times {
			for _, disturb := range []func(){
				func() {
					if _, err := lab.Apply(ctx, udid, sim.Fault{Kind: "tunnel-restart"}); err != nil {
						t.Error(err)
					}
				},
				func() { w.kill(t) },
			} {
				delivering()
				time.Sleep(time.Duration(rng.Int64N(int64(1200 * time.Millisecond))))
				disturb()
			}
		}
		delivering()
		time.Sleep(2 * time.Second)
	}()
	result, err := Run(ctx, o)
	<-done
	if err != nil {
		t.Fatal(err)
	}
	if result.Manifest.Counts[ledger.TypeSourceGap] != int64(2*times) {
		t.Errorf("%d gaps, want one for each of %d disturbances", result.Manifest.Counts[ledger.TypeSourceGap], 2*times)
	}
	s := read(t, o.Dir)
	s.nothingBridged()
	decodesToItself(t, o.Dir)
	replaysAsRecorded(t, o.Dir)
	disconnected := 0
	for _, state := range all[ledger.SourceState](s) {
		if state.State == "disconnected" {
			disconnected++
			if state.Cause == "" {
				t.Error("a disconnection without a cause")
			}
		}
	}
	if disconnected != 2*times {
		t.Errorf("%d disconnections, want %d", disconnected, 2*times)
	}
	var generation int64 = -1
	for _, b := range all[adapter.Binding](s) {
		if b.SourceEpoch != 1 {
			t.Errorf("source epoch %d: the phone never restarted", b.SourceEpoch)
		}
		if b.ReconnectGeneration < generation {
			t.Errorf("reconnect generation %d after %d", b.ReconnectGeneration, generation)
		}
		generation = b.ReconnectGeneration
	}
	if generation != int64(2*times) {
		t.Errorf("the last reconnect generation is %d, want %d", generation, 2*times)
	}
	receipts := all[p95.Receipt](s)
	if last := receipts[len(receipts)-1]; last.Quality != p95.Valid {
		t.Errorf("the last publication is %s, want valid", last.Quality)
	}
	lab.Close()
	if now := openFiles(t); now > files {
		t.Errorf("%d open files, %d before", now, files)
	}
}

// What is wrong mid-recording shows within ten seconds as a source.state with its code, never as a hang, and recording goes on when it
// is over.
func TestEveryTunnelFaultShowsWithinTenSecondsAndPasses(t *testing.T) {
	for _, c := range []struct {
		fault string
		parts sim.Fault
		codes []device.Code // any of these
	}{
		{fault: "tunnel-gone", codes: []device.Code{device.NeedsTunnel, device.ConnectionLost}},
		{fault: "half-open", codes: []device.Code{device.NoAnswer}},
		{fault: "lock", codes: nil}, // a locked phone goes on sending; nothing to see
	} {
		t.Run(c.fault, func(t *testing.T) {
			lab := startLab(t, "26.0", "[{for: 1h, hz: 60}]")
			w := &workers{}
			o := options(t, 0)
			o.Agent = device.Agent{Host: "127.0.0.1", Port: 1}
			o.TunnelWorker = w.command
			ctx, stop := context.WithCancel(zerolog.New(io.Discard).WithContext(context.Background()))
			defer stop()
			var mu sync.Mutex
			var causes []string
			var back bool
			o.Progress = func(p Progress) {
				mu.Lock()
				defer mu.Unlock()
				if p.Source != "connected" {
					causes = append(causes, p.Cause)
				}
				back = p.Source == "connected" && p.Receipt.Quality == p95.Valid
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer stop()
				time.Sleep(3 * time.Second)
				f := c.parts
				f.Kind = c.fault
				if c.codes != nil {
					f.For = sim.Duration(11 * time.Second)
				}
				if _, err := lab.Apply(ctx, udid, f); err != nil {
					t.Error(err)
				}
				time.Sleep(10 * time.Second)
				mu.Lock()
				seen := append([]string(nil), causes...)
				mu.Unlock()
				if c.codes == nil && len(seen) > 0 || c.codes != nil && !names(seen, c.codes) {
					t.Errorf("within ten seconds the causes were %q, want one of %v", seen, c.codes)
				}
				for deadline := time.Now().Add(25 * time.Second); ; time.Sleep(100 * time.Millisecond) {
					mu.Lock()
					ok := back
					mu.Unlock()
					if ok {
						return
					}
					if time.Now().After(deadline) {
						t.Error("P95 did not come back")
						return
					}
				}
			}()
			_, err := Run(ctx, o)
			<-done
			if err != nil {
				t.Fatal(err)
			}
			read(t, o.Dir).nothingBridged()
		})
	}
}

func names(causes []string, codes []device.Code) bool {
	for _, cause := range causes {
		for _, code := range codes {
			if len(cause) > len(code) && cause[:len(code)] == string(code) {
				return true
			}
		}
	}
	return false
}
