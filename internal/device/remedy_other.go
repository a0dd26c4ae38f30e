//go:build !linux

package device

// macOS runs usbmuxd by itself as soon as a phone is plugged in.
const usbmuxdRemedy = "plug the phone in by cable; if it stays so, restart the Mac"
