package device

import (
	"io/fs"
	"strings"
)

const (
	usbmuxdRemedy = "sudo apt-get install -y usbmuxd && sudo systemctl start usbmuxd"
	// Debian's usbmuxd package brings the udev rule that gives usbmuxd the device.
	usbRightsRemedy    = "sudo apt-get install -y --reinstall usbmuxd && sudo udevadm control --reload && sudo systemctl restart usbmuxd, and plug the phone in again"
	muxRestartRemedy   = "sudo systemctl restart usbmuxd"
	kernelTunnelRemedy = "sudo framebridge tunnel --kernel"
)

// appleOnBus counts the phones and tablets on the USB bus: vendor 05ac, products 12a0 to 12af, as Linux tells in sysfs. root is the file
// system's root.
func appleOnBus(root fs.FS) (count int) {
	vendors, _ := fs.Glob(root, "sys/bus/usb/devices/*/idVendor") // a bad pattern is its only error
	for _, path := range vendors {
		vendor, err1 := fs.ReadFile(root, path)
		product, err2 := fs.ReadFile(root, strings.TrimSuffix(path, "idVendor")+"idProduct")
		if err1 == nil && err2 == nil && strings.TrimSpace(string(vendor)) == "05ac" && strings.HasPrefix(string(product), "12a") {
			count++
		}
	}
	return count
}
