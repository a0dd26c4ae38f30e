package capture

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/ledger"
)

func TestARecordingLastsAsLongAsWhatGoesOnAroundIt(t *testing.T) {
	startLab(t, "16.7", "[{for: 1h, hz: 60}]")
	failure := errors.New("the other side gave up")
	for _, c := range []struct {
		name   string
		around func(ctx context.Context, cancel func()) error
		seal   error
		state  ledger.State
		reason string
	}{
		{"it returns", func(context.Context, func()) error { return nil }, nil, ledger.StateComplete, ""},
		{"it fails", func(context.Context, func()) error { return failure }, nil, ledger.StatePartial, failure.Error()},
		{"what comes before sealing fails", func(context.Context, func()) error { return nil }, failure, ledger.StatePartial, failure.Error()},
		{"an interruption is for it to answer", func(ctx context.Context, cancel func()) error {
			cancel()
			<-ctx.Done()
			return nil
		}, nil, ledger.StatePartial, "interrupted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			o := options(t, time.Millisecond) // which does not count
			o.Launch = true
			var pid int64
			o.Around = func(ctx context.Context, on Started) error {
				pid = on.PID
				if on.Phone.UDID != udid {
					t.Errorf("phone %s", on.Phone.UDID)
				}
				err := c.around(ctx, cancel)
				time.Sleep(time.Second)
				return err
			}
			o.BeforeSeal = func() error {
				text, err := os.ReadFile(filepath.Join(o.Dir, ledger.EventsName))
				if err != nil || strings.Count(string(text), `"type":"display.frame-lifetime.raw"`) < 20 {
					t.Errorf("%v: not all of the recording is on disk", err)
				}
				if err := os.Mkdir(filepath.Join(o.Dir, "beside"), 0o755); err != nil {
					return err
				}
				return errors.Join(c.seal, os.WriteFile(filepath.Join(o.Dir, "beside", "note"), []byte("x"), 0o644))
			}
			r, err := Run(ctx, o)
			wantErr := c.reason == failure.Error()
			if errors.Is(err, failure) != wantErr || r == nil || r.Manifest == nil {
				t.Fatalf("%+v, %v", r, err)
			}
			if m := r.Manifest; m.State != c.state || m.Reason != c.reason || r.Interrupted != (c.reason == "interrupted") {
				t.Errorf("state %s, reason %q", m.State, m.Reason)
			}
			if !slices.ContainsFunc(r.Manifest.Files, func(f ledger.ManifestedFile) bool { return f.Name == "beside/note" && f.Size == 1 }) {
				t.Errorf("the manifest lacks what was put there: %+v", r.Manifest.Files)
			}
			if b := all[adapter.Binding](read(t, o.Dir)); len(b) == 0 || b[0].Target.PID != pid {
				t.Errorf("the recording is bound to %+v, and pid %d was told", b, pid)
			}
		})
	}
}
