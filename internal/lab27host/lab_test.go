package lab27host

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/danielpaulus/go-ios/ios"
	"github.com/google/uuid"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/framebridge/framebridge/internal/device"
	"github.com/framebridge/framebridge/internal/sim"
	"github.com/framebridge/framebridge/lab27"
	"github.com/framebridge/framebridge/lab27/app"
)

func TestMain(m *testing.M) {
	ios.SetLogger(slog.New(slog.DiscardHandler)) // connections are cut here on purpose
	goleak.VerifyTestMain(m)
}

// phoneLab is a lab with one phone that carries the app, and the way to it.
type phoneLab struct {
	*testing.T
	lab   *sim.Lab
	phone *device.Phone
	agent device.Agent
	root  string // the app's Documents/lab27 on this machine
}

func newPhoneLab(t *testing.T, release string) *phoneLab {
	t.Helper()
	if !sim.HasLab27 {
		t.Skip("SKIPPED: built without a C compiler, the simulated lab has no Lab27 app")
	}
	c := sim.DefaultDevice("00008101-00000000000000AA", release)
	c.Lab27 = true
	lab, err := sim.New(sim.Config{Speed: 1, Devices: []sim.DeviceConfig{c}}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lab.Close() })
	address, err := lab.Listen("unix:" + filepath.Join(t.TempDir(), "mux"))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("USBMUXD_SOCKET_ADDRESS", address)
	p := &phoneLab{T: t, lab: lab}
	if p.agent.Host, p.agent.Port, err = lab.ListenTunnels("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	documents, err := lab.Documents(c.UDID, BundleID)
	if err != nil {
		t.Fatal(err)
	}
	p.root = filepath.Join(documents, "lab27")
	entry, err := device.Find(t.Context(), c.UDID)
	if err != nil {
		t.Fatal(err)
	}
	if p.phone, err = device.Open(t.Context(), entry, p.agent); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *phoneLab) do(kind string, f sim.Fault) {
	p.Helper()
	f.Kind = kind
	if _, err := p.lab.Apply(context.Background(), p.phone.UDID, f); err != nil {
		p.Fatal(err)
	}
}

func (p *phoneLab) open(via Via) device.Files {
	p.Helper()
	files, err := OpenFiles(p.Context(), p.phone, BundleID, via)
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { files.Close() })
	return files
}

func (p *phoneLab) request(name string, permille int64) lab27.Request {
	p.Helper()
	r, err := lab27.NewRequest(name, lab27.PurposeRehearsal, permille, app.Version(), app.SourceDigest(), uuid.NewString(), time.Now())
	if err != nil {
		p.Fatal(err)
	}
	return r
}

// waitFor waits until a file of the app's is there.
func (p *phoneLab) waitFor(name string) {
	p.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(p.root, name)); err == nil {
			return
		}
		if time.Now().After(end) {
			p.Fatalf("%s does not come", name)
		}
	}
}

// run has the app make a run, the shortest one, and gives its bundle as it stands on the phone.
func (p *phoneLab) run(name string) map[string][]byte {
	p.Helper()
	r := p.request(name, 10)
	p.do("relaunch", sim.Fault{Bundle: BundleID})
	files := p.open(ViaAFC).(*device.Documents)
	if err := Send(p.Context(), files, &r); err != nil {
		p.Fatal(err)
	}
	p.waitFor("runs/" + name + "/" + lab27.SummaryFile)
	time.Sleep(200 * time.Millisecond) // its last byte
	bundle := map[string][]byte{}
	for _, name := range lab27.BundleFiles {
		text, err := os.ReadFile(filepath.Join(p.root, "runs", r.RunName, name))
		if err != nil {
			p.Fatal(err)
		}
		bundle[name] = text
	}
	return bundle
}
