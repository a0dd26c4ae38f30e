//go:build !cgo

package sim

import (
	"strings"
	"testing"

	"github.com/rs/zerolog"
)

func TestWithoutACompilerAPhoneWithTheReferenceAppIsRefusedWithTheReason(t *testing.T) {
	_, err := Parse([]byte("devices:\n  - udid: 00008110-000A1B2C3D4E5F60\n    os: \"16.7\"\n    lab27: true\n"))
	if err == nil || !strings.Contains(err.Error(), "line 4") || !strings.Contains(err.Error(), "install gcc") {
		t.Errorf("%v", err)
	}
	c := DefaultDevice(udid16, "16.7")
	c.Lab27 = true
	if _, err := newLab(Config{Speed: 1, Devices: []DeviceConfig{c}}, keys, zerolog.Nop()); err == nil || !strings.Contains(err.Error(), "install gcc") {
		t.Errorf("%v", err)
	}
}
