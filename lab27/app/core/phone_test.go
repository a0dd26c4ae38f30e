//go:build cgo

package core_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/framebridge/framebridge/lab27"
	"github.com/framebridge/framebridge/lab27/app/core"
)

const (
	digest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	nonce  = "6b1f3c4e-2a55-4d0c-9a7e-0f1e2d3c4b5a"

	msTicks = 24_000 // of a 125/3 timebase
	// The panel of a real phone: a refresh is a tick short of 1/120 s.
	refreshTicks = 199_999
)

var wallStart = time.Date(2025, 11, 3, 9, 30, 0, 0, time.UTC)

// phone is a simulated iPhone: a clock that only moves when told to, a panel that shows a committed drawable at the second refresh
// after the commit, and a disk in a directory.
type phone struct {
	core.Files
	root string
	t    *testing.T
	app  *core.App

	now       atomic.Uint64 // mach absolute ticks
	slept     uint64        // continuous - absolute
	drift     uint64        // what reading a clock takes
	available core.Available
	thermal   int
	hz        int
	cpuNs     uint64
	footprint uint64
	released  bool
	noUsage   bool

	coming   []shown
	lost     map[int]bool // their handlers never come
	dropped  map[int]bool
	noMore   int // submission that finds no drawable
	glass    []uint64
	drawable uint64 // of the first submission; it rises by one
}

type shown struct {
	n        int
	drawable uint64
	at       uint64
}

func newPhone(t *testing.T) *phone {
	t.Helper()
	root := t.TempDir()
	files, err := core.NewDirectory(root)
	if err != nil {
		t.Fatal(err)
	}
	p := &phone{
		Files: files, root: root, t: t, slept: 7403 * 1000 * msTicks, drift: 2, drawable: 1, footprint: 40 << 20,
		available: core.Available{Foreground: true, Canvas: true, MetalDevice: true, MetalQueue: true},
	}
	p.now.Store(1_536_005_260_807)
	return p
}

func (p *phone) launch() *core.App {
	p.t.Helper()
	app, err := core.New(core.Config{
		BundleID: "com.framebridge.lab27", AppVersion: "1.0", SourceDigest: digest, DeviceModel: "iPhone15,2", OSVersion: "18.5", PID: 431,
		MaximumHz: 120, Simulated: true, TimebaseNumer: 125, TimebaseDenom: 3,
	}, p)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(app.Close)
	p.app = app
	return app
}

func (p *phone) MachAbsolute() uint64   { return p.now.Add(p.drift) }
func (p *phone) MachContinuous() uint64 { return p.now.Load() + p.slept }
func (p *phone) MediaSeconds() float64  { return float64(p.now.Load()) * 125 / 3 / 1e9 }
func (p *phone) WallUnixNs() int64 {
	return wallStart.UnixNano() + int64(p.now.Load()-1_536_005_260_807)*125/3
}
func (p *phone) Available() core.Available { return p.available }
func (p *phone) ThermalState() int         { return p.thermal }
func (p *phone) Usage() (uint64, uint64, bool) {
	p.cpuNs += 1_000_000
	return p.cpuNs, p.footprint, !p.noUsage
}
func (p *phone) SetRate(hz int)        { p.hz = hz }
func (p *phone) DelayMain(ms int)      { p.now.Add(uint64(ms) * msTicks) }
func (p *phone) ReleaseWorkload() bool { p.released = true; return true }

func (p *phone) Present(n int, phase string, reference bool) (uint64, bool) {
	if n == p.noMore {
		return 0, false
	}
	id := p.drawable + uint64(n) - 1
	at := (p.now.Load()/refreshTicks + 2) * refreshTicks
	if len(p.coming) > 0 {
		at = max(at, p.coming[len(p.coming)-1].at+refreshTicks)
	}
	if reference {
		p.coming = append(p.coming, shown{n, id, at})
	}
	return id, true
}

// deliver calls the handlers of what has been shown by now.
func (p *phone) deliver() {
	for len(p.coming) > 0 && p.coming[0].at <= p.now.Load() {
		s := p.coming[0]
		p.coming = p.coming[1:]
		if !p.dropped[s.n] {
			p.glass = append(p.glass, s.at)
		}
		switch {
		case p.lost[s.n]:
		case p.dropped[s.n]:
			p.app.Presented(s.n, s.drawable, 0, 0)
		default:
			p.app.Presented(s.n, s.drawable, 289, int64(s.at*125/3))
		}
	}
}

// beat waits for the next refresh that the display link wants and ticks.
func (p *phone) beat() core.State {
	every := uint64(2)
	if p.hz == 30 {
		every = 4
	}
	refresh := p.now.Load()/refreshTicks + 1
	for refresh%every != 0 {
		refresh++
	}
	p.now.Store(refresh * refreshTicks)
	p.deliver()
	return p.app.Tick()
}

// run ticks until the run is over, or for at most so many beats.
func (p *phone) run(beats int) core.State {
	state := p.app.Status().State
	for i := 0; i < beats && (state == core.Running || state == core.Draining); i++ {
		state = p.beat()
	}
	return state
}

// frames is what the session around the run recorded.
func (p *phone) frames() []lab27.Frame {
	frames := []lab27.Frame{{RawSequence: 1, EndMach: int64(p.glass[0] - 6*refreshTicks + p.slept), HasEnd: true, DisplayID: 1}}
	for i, at := range p.glass {
		frames = append(frames, lab27.Frame{
			RawSequence: int64(i + 2), EndMach: int64(at + p.slept), PreviousMach: frames[i].EndMach, SurfaceID: 289, DisplayID: 1, HasEnd: true, Valid: true,
		})
	}
	return frames
}

func request(t *testing.T, purpose lab27.Purpose, permille int64) lab27.Request {
	t.Helper()
	r, err := lab27.NewRequest("run-1", purpose, permille, "1.0", digest, nonce, wallStart)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (p *phone) put(path string, content []byte) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.root, path), content, 0o644); err != nil {
		p.t.Fatal(err)
	}
}

func (p *phone) send(r lab27.Request) { p.put("pending/"+r.FileName(), r.AppendJSON(nil)) }

func (p *phone) names(directory string) []string {
	p.t.Helper()
	entries, err := os.ReadDir(filepath.Join(p.root, directory))
	if err != nil {
		p.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func (p *phone) bundle(run string) fs.FS { return os.DirFS(filepath.Join(p.root, "runs", run)) }

// started is a phone with a run under way.
func started(t *testing.T, purpose lab27.Purpose, permille int64) *phone {
	t.Helper()
	p := newPhone(t)
	p.send(request(t, purpose, permille))
	p.launch()
	if state := p.app.Poll(); state != core.Running {
		t.Fatalf("state %v, refused: %q", state, p.app.Status().Refusal)
	}
	return p
}
