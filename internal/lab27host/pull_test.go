package lab27host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/framebridge/framebridge/internal/device"
	"github.com/framebridge/framebridge/lab27"
)

func quiet(string) {}

// holds checks a directory of pulled files: none has its own name and another content than on the phone. It tells whether all are there.
func holds(t *testing.T, dir string, bundle map[string][]byte) (all bool) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), unfinished) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if want, known := bundle[e.Name()]; !known || !bytes.Equal(text, want) {
			t.Fatalf("%s has its name and %d bytes, on the phone it has %d, or others", e.Name(), len(text), len(want))
		}
		found++
	}
	return found == len(bundle)
}

func onPhoneStill(t *testing.T, p *phoneLab, run string, bundle map[string][]byte) {
	t.Helper()
	for name, want := range bundle {
		if text, err := os.ReadFile(filepath.Join(p.root, "runs", run, name)); err != nil || !bytes.Equal(text, want) {
			t.Errorf("%s on the phone: %v, or it was changed", name, err)
		}
	}
}

func TestABundleIsPulledByEitherServiceAndHeldAgainstItsSummary(t *testing.T) {
	p := newPhoneLab(t, "26.0")
	bundle := p.run("run-1")
	for _, via := range []Via{ViaAFC, ViaFileService} {
		dir := filepath.Join(t.TempDir(), "bundle")
		files := p.open(via)
		var told []string
		got, err := Pull(t.Context(), files, "run-1", dir, func(name string) { told = append(told, name) })
		if err != nil || !got.Sealed || len(got.Files) != 5 || strings.Join(told, " ") != "summary.json plan.json events.jsonl requests.jsonl presented.jsonl" {
			t.Errorf("%s: %+v, %v, told %v", via, got, err, told)
		}
		if !holds(t, dir, bundle) {
			t.Errorf("%s: files are missing", via)
		}
		if r := lab27.Validate(os.DirFS(dir), nil); r.State != lab27.Complete {
			t.Errorf("%s: %v", via, r.Err())
		}
		// What is here is not fetched again, but for the summary.
		if got, err = Pull(t.Context(), files, "run-1", dir, quiet); err != nil || got.Bytes != int64(len(bundle[lab27.SummaryFile])) {
			t.Errorf("%s, again: %+v, %v", via, got, err)
		}
		if _, err := Pull(t.Context(), files, "run-2", dir, quiet); !errors.Is(err, ErrNoRun) || !strings.Contains(err.Error(), "run-1") {
			t.Errorf("%s: a run that is not there: %v", via, err)
		}
		for _, name := range []string{"", ".", "..", "../pending", "run-1/plan.json", "/run-1"} {
			if _, err := Pull(t.Context(), files, name, dir, quiet); !errors.Is(err, ErrNoRun) {
				t.Errorf("%s: run %q: %v", via, name, err)
			}
		}
	}
	onPhoneStill(t, p, "run-1", bundle)
	other := p.run("run-2")
	dir := filepath.Join(t.TempDir(), "bundle")
	files := p.open(ViaAFC)
	if _, err := Pull(t.Context(), files, "run-1", dir, quiet); err != nil {
		t.Fatal(err)
	}
	if _, err := Pull(t.Context(), files, "run-2", dir, quiet); !errors.Is(err, ErrOtherRun) || !holds(t, dir, bundle) {
		t.Errorf("into the directory of another run: %v", err)
	}
	onPhoneStill(t, p, "run-2", other)
}

func TestAPullReplacesNothingThatIsNotOfItsRun(t *testing.T) {
	p := newPhoneLab(t, "16.7")
	bundle := p.run("run-1")
	files := p.open(ViaAFC)
	plan := string(bundle[lab27.PlanFile])
	var request struct{ Request struct{ Nonce string } }
	if err := json.Unmarshal([]byte(plan), &request); err != nil {
		t.Fatal(err)
	}
	elsewhere := strings.Replace(plan, request.Request.Nonce, "00000000-0000-4000-8000-000000000000", 1)
	unsealed := func(seal bool) { // takes the run's summary away, or puts it back
		name := filepath.Join(p.root, "runs/run-1", lab27.SummaryFile)
		var err error
		if seal {
			err = os.WriteFile(name, bundle[lab27.SummaryFile], 0o644)
		} else {
			err = os.Remove(name)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		there    map[string]string
		sealed   bool // is pulled
		unsealed bool
	}{
		"somebody's plan":                          {map[string]string{lab27.PlanFile: "{\"milestones\":[]}\n"}, false, false},
		"somebody's requests":                      {map[string]string{lab27.RequestsFile: "mine\n"}, false, false},
		"somebody's summary":                       {map[string]string{lab27.SummaryFile: "{}\n"}, false, false},
		"a run of the same name, of another phone": {map[string]string{lab27.PlanFile: elsewhere}, false, true}, // unsealed, nothing tells
		"this run's own files, without a plan":     {map[string]string{lab27.EventsFile: string(bundle[lab27.EventsFile]), lab27.SummaryFile: string(bundle[lab27.SummaryFile])}, true, false},
		"what was left half":                       {map[string]string{lab27.RequestsFile + unfinished: "half"}, true, true},
		"a file of another name":                   {map[string]string{"notes.txt": "mine\n"}, true, true},
	} {
		for _, seal := range []bool{false, true} {
			dir := t.TempDir()
			for file, text := range c.there {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want := c.sealed
			if !seal {
				unsealed(false)
				want = c.unsealed
			}
			_, err := Pull(t.Context(), files, "run-1", dir, quiet)
			if !seal {
				unsealed(true)
			}
			if want && err != nil || !want && !errors.Is(err, ErrOtherRun) {
				t.Errorf("%s, sealed %t: %v", name, seal, err)
			}
			for file, text := range c.there {
				if got, err := os.ReadFile(filepath.Join(dir, file)); !want && (err != nil || string(got) != text) {
					t.Errorf("%s, sealed %t: %s was changed", name, seal, file)
				}
			}
		}
	}
}

// The app was killed while it wrote its plan, and nothing else tells whose run the directory has.
func TestAPullOfARunWhosePlanIsTornGoesOn(t *testing.T) {
	p := newPhoneLab(t, "16.7")
	bundle := p.run("run-1")
	files := p.open(ViaAFC)
	run := filepath.Join(p.root, "runs/run-1")
	plan := bundle[lab27.PlanFile]
	if err := errors.Join(os.Remove(filepath.Join(run, lab27.SummaryFile)), os.WriteFile(filepath.Join(run, lab27.PlanFile), plan[:len(plan)/2], 0o644)); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for range 2 {
		if got, err := Pull(t.Context(), files, "run-1", dir, quiet); err != nil || got.Sealed || len(got.Files) != 4 {
			t.Errorf("%+v, %v", got, err)
		}
	}
	other := filepath.Join(dir, lab27.EventsFile)
	if err := os.WriteFile(other, []byte("mine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Pull(t.Context(), files, "run-1", dir, quiet); !errors.Is(err, ErrOtherRun) {
		t.Errorf("with another file: %v", err)
	}
	// What was torn is whole now, and sealed.
	if err := errors.Join(os.Remove(other), os.WriteFile(filepath.Join(run, lab27.SummaryFile), bundle[lab27.SummaryFile], 0o644),
		os.WriteFile(filepath.Join(run, lab27.PlanFile), plan, 0o644)); err != nil {
		t.Fatal(err)
	}
	if got, err := Pull(t.Context(), files, "run-1", dir, quiet); err != nil || !got.Sealed || !holds(t, dir, bundle) {
		t.Errorf("%+v, %v", got, err)
	}
}

// cutOff ends every copy after so many bytes of all files together, as a cable does.
type cutOff struct {
	device.Files
	left int64
}

var errCut = errors.New("the cable was pulled")

func (c *cutOff) Copy(ctx context.Context, w io.Writer, path string, atMost int64) (int64, error) {
	return c.Files.Copy(ctx, &cutWriter{c, w}, path, atMost)
}

type cutWriter struct {
	c *cutOff
	w io.Writer
}

func (w *cutWriter) Write(b []byte) (int, error) {
	n := min(int64(len(b)), w.c.left)
	w.c.left -= n
	if _, err := w.w.Write(b[:n]); err != nil {
		return 0, err
	}
	if n < int64(len(b)) {
		return int(n), errCut
	}
	return len(b), nil
}

// inMemory is a directory whose syncs cost nothing, where the system has such.
func inMemory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "pull")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// FRAMEBRIDGE_LONG has every byte; by default it is every 97th.
func TestAnInterruptedPullAtAnyByteResumes(t *testing.T) {
	p := newPhoneLab(t, "16.7")
	bundle := p.run("run-1")
	all := 0
	for _, text := range bundle {
		all += len(text)
	}
	step := 97
	if os.Getenv("FRAMEBRIDGE_LONG") != "" {
		step = 1
	}
	files := p.open(ViaAFC)
	parent := inMemory(t)
	for at := 0; at < all; at += step {
		dir := filepath.Join(parent, "bundle")
		if _, err := Pull(t.Context(), &cutOff{files, int64(at)}, "run-1", dir, quiet); !errors.Is(err, errCut) {
			t.Fatalf("cut at byte %d of %d: %v", at, all, err)
		}
		if holds(t, dir, bundle) {
			t.Fatalf("cut at byte %d of %d, and all is there", at, all)
		}
		got, err := Pull(t.Context(), files, "run-1", dir, quiet)
		if err != nil || !got.Sealed || !holds(t, dir, bundle) {
			t.Fatalf("resumed after byte %d: %+v, %v", at, got, err)
		}
		// What was whole was not fetched again: the plan is the first after the summary, which comes each time.
		if first := len(bundle[lab27.SummaryFile]) + len(bundle[lab27.PlanFile]); at > first && got.Bytes > int64(all-len(bundle[lab27.PlanFile])) {
			t.Fatalf("resumed after byte %d: %d of %d bytes were fetched again", at, got.Bytes, all)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	onPhoneStill(t, p, "run-1", bundle)
}

// pulledCable carries connections to usbmuxd, and ends them all after so many bytes from the phone.
type pulledCable struct {
	ln   net.Listener
	to   string
	work sync.WaitGroup
	mu   sync.Mutex
	left int
}

func newPulledCable(t *testing.T) *pulledCable {
	t.Helper()
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "cable"))
	if err != nil {
		t.Fatal(err)
	}
	c := &pulledCable{ln: ln, to: strings.TrimPrefix(os.Getenv("USBMUXD_SOCKET_ADDRESS"), "UNIX://")}
	t.Setenv("USBMUXD_SOCKET_ADDRESS", "UNIX://"+ln.Addr().String())
	c.work.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			c.work.Go(func() { c.carry(conn) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		c.work.Wait()
	})
	return c
}

func (c *pulledCable) carry(conn net.Conn) {
	defer conn.Close()
	phone, err := net.Dial("unix", c.to)
	if err != nil {
		return
	}
	defer phone.Close()
	c.work.Go(func() { io.Copy(phone, conn); phone.Close() })
	buf := make([]byte, 512)
	for {
		n, err := phone.Read(buf)
		c.mu.Lock()
		n = min(n, c.left)
		c.left -= n
		gone := c.left == 0
		c.mu.Unlock()
		if _, writeErr := conn.Write(buf[:n]); err != nil || writeErr != nil || gone {
			return
		}
	}
}

// plug lets so many bytes through from now on, and tells how many were left.
func (c *pulledCable) plug(bytes int) (left int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	left, c.left = c.left, bytes
	return left
}

func TestAPullGoesOnAfterTheCableWasPulledAsOftenAsItTakes(t *testing.T) {
	p := newPhoneLab(t, "15.8")
	bundle := p.run("run-1")
	cable := newPulledCable(t)
	rng := rand.New(rand.NewPCG(27, 1))
	dir := filepath.Join(t.TempDir(), "bundle")
	once := func(pull bool) error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		entry, err := device.Find(ctx, p.phone.UDID)
		if err != nil {
			return err
		}
		phone, err := device.Open(ctx, entry, device.Agent{})
		if err != nil {
			return err
		}
		files, err := phone.OpenDocuments(ctx, BundleID)
		if err != nil {
			return err
		}
		defer files.Close()
		if pull {
			_, err = Pull(ctx, files, "run-1", dir, quiet)
		}
		return err
	}
	const enough = 1 << 30
	cable.plug(enough)
	if err := once(false); err != nil {
		t.Fatal(err)
	}
	beforeFiles := enough - cable.plug(0)
	for attempt := 1; ; attempt++ {
		cable.plug(beforeFiles - 2000 + rng.IntN(12_000)) // all files are some 14 KB
		err := once(true)
		if _, statErr := os.Stat(dir); statErr == nil {
			if all := holds(t, dir, bundle); err == nil {
				if !all {
					t.Error("done, and files are missing")
				}
				t.Logf("done at attempt %d", attempt)
				return
			}
		}
		if device.CodeOf(err) == "" {
			t.Errorf("attempt %d: %v, want a condition of the connection", attempt, err)
		}
		if attempt == 100 {
			t.Fatalf("not done after %d attempts: %v", attempt, err)
		}
	}
}

func TestWhatTheSummaryDoesNotVouchForStaysUnfinished(t *testing.T) {
	p := newPhoneLab(t, "16.7")
	bundle := p.run("run-1")
	files := p.open(ViaAFC)
	path := filepath.Join(p.root, "runs/run-1", lab27.PresentedFile)
	put := func(content []byte) {
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	sealed := bundle[lab27.PresentedFile]
	flipped := bytes.Clone(sealed)
	flipped[len(flipped)/2] ^= 1
	for name, content := range map[string][]byte{"a flipped bit": flipped, "a byte too few": sealed[:len(sealed)-1], "a byte too many": append(bytes.Clone(sealed), '\n'), "empty": nil} {
		put(content)
		dir := filepath.Join(t.TempDir(), "bundle")
		_, err := Pull(t.Context(), files, "run-1", dir, quiet)
		if !errors.Is(err, lab27.Hash) && !errors.Is(err, device.ErrTooLong) || !strings.Contains(err.Error(), "presented.jsonl") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(filepath.Join(dir, lab27.PresentedFile+unfinished)); err != nil {
			t.Errorf("%s: what came is not there as .part: %v", name, err)
		}
		if holds(t, dir, bundle) {
			t.Errorf("%s: all is there", name)
		}
		put(sealed) // it was only being written
		if got, err := Pull(t.Context(), files, "run-1", dir, quiet); err != nil || !got.Sealed || !holds(t, dir, bundle) {
			t.Errorf("%s, mended: %v", name, err)
		}
	}
	// A summary that cannot be believed: longer than any, or altered.
	summary := filepath.Join(p.root, "runs/run-1", lab27.SummaryFile)
	altered := bytes.Replace(bundle[lab27.SummaryFile], []byte(`"complete"`), []byte(`"completf"`), 1)
	for name, content := range map[string][]byte{"too long": make([]byte, maxSummaryBytes+1), "altered": altered, "torn": bundle[lab27.SummaryFile][:500]} {
		if err := os.WriteFile(summary, content, 0o644); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "bundle")
		if _, err := Pull(t.Context(), files, "run-1", dir, quiet); err == nil || holds(t, dir, bundle) {
			t.Errorf("a summary that is %s: accepted", name)
		}
	}
}

func TestAnUnsealedRunIsPulledAsItIsAndLaterWhole(t *testing.T) {
	p := newPhoneLab(t, "16.7")
	bundle := p.run("run-1")
	run := filepath.Join(p.root, "runs/run-1")
	// As it stood while the app was writing: no summary yet, and half of the presentations.
	if err := os.Rename(filepath.Join(run, lab27.SummaryFile), filepath.Join(p.root, "summary")); err != nil {
		t.Fatal(err)
	}
	half := bundle[lab27.PresentedFile][:1000]
	if err := os.WriteFile(filepath.Join(run, lab27.PresentedFile), half, 0o644); err != nil {
		t.Fatal(err)
	}
	files := p.open(ViaAFC)
	dir := filepath.Join(t.TempDir(), "bundle")
	got, err := Pull(t.Context(), files, "run-1", dir, quiet)
	if err != nil || got.Sealed || len(got.Files) != 4 {
		t.Errorf("%+v, %v", got, err)
	}
	if r := lab27.Validate(os.DirFS(dir), nil); r.State != lab27.Partial || !errors.Is(r.Err(), lab27.ErrPartial) {
		t.Errorf("%v", r.Err())
	}
	if err := errors.Join(os.Rename(filepath.Join(p.root, "summary"), filepath.Join(run, lab27.SummaryFile)), os.WriteFile(filepath.Join(run, lab27.PresentedFile), bundle[lab27.PresentedFile], 0o644)); err != nil {
		t.Fatal(err)
	}
	if got, err := Pull(t.Context(), files, "run-1", dir, quiet); err != nil || !got.Sealed || !holds(t, dir, bundle) {
		t.Errorf("%+v, %v", got, err)
	}
	// An app that wrote on and on would not fill this machine's disk.
	long := filepath.Join(p.root, "runs/run-3")
	if err := os.Mkdir(long, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(long, lab27.PlanFile), bundle[lab27.PlanFile], 0o644),
		os.WriteFile(filepath.Join(long, lab27.EventsFile), make([]byte, lab27.MaxBundleBytes), 0o644)); err != nil {
		t.Fatal(err)
	}
	if _, err := Pull(t.Context(), files, "run-3", filepath.Join(t.TempDir(), "long"), quiet); !errors.Is(err, device.ErrTooLong) {
		t.Errorf("more than 2 MiB: %v", err)
	}
}
