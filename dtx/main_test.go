package dtx

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// capture returns one of the real captures, or nil where they are not there.
func capture(name string) []byte {
	dir := os.Getenv("FRAMEBRIDGE_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "shared", "data")
	}
	b, err := os.ReadFile(filepath.Join(dir, "dtx", name))
	if err != nil {
		return nil
	}
	return b
}

func needCapture(t *testing.T, name string) []byte {
	t.Helper()
	b := capture(name)
	if b == nil {
		t.Skipf("SKIPPED, NOT TESTED: the real capture %s is missing: set FRAMEBRIDGE_DATA to the directory that holds dtx/", name)
	}
	return b
}

// addCaptures seeds a fuzz target with the short captures: fuzzing spends its whole time on making long ones shorter.
func addCaptures(f *testing.F) {
	for _, name := range []string{"testmanagerd-to-host.dump", "activity-trace-tap-status.bin", "notify-published-capabilities.bin"} {
		if b := capture(name); b != nil {
			f.Add(b)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
