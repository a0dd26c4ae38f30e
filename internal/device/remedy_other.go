//go:build !linux

package device

import "io/fs"

const (
	// macOS runs usbmuxd by itself as soon as a phone is plugged in.
	usbmuxdRemedy    = "plug the phone in by cable; if it stays so, restart the Mac"
	usbRightsRemedy  = usbmuxdRemedy
	muxRestartRemedy = "unplug every phone, and restart the Mac if it stays so"
	// macOS's own remoted holds the phone's network interface until it is stopped.
	kernelTunnelRemedy = "sudo pkill -SIGSTOP remoted && sudo framebridge tunnel --kernel"
)

// appleOnBus is not known here: macOS lists what is attached by itself.
func appleOnBus(fs.FS) int { return 0 }
