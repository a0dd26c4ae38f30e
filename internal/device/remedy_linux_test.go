package device

import (
	"testing"
	"testing/fstest"
)

func TestPhonesOnTheBusAreTheOnesWithApplesNumbers(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	root := fstest.MapFS{
		"sys/bus/usb/devices/1-1/idVendor": file("05ac\n"), "sys/bus/usb/devices/1-1/idProduct": file("12a8\n"), // an iPhone
		"sys/bus/usb/devices/1-2/idVendor": file("05ac\n"), "sys/bus/usb/devices/1-2/idProduct": file("024f\n"), // a keyboard
		"sys/bus/usb/devices/1-3/idVendor": file("18d1\n"), "sys/bus/usb/devices/1-3/idProduct": file("12a8\n"), // another maker's
		"sys/bus/usb/devices/1-4/idVendor": file("05ac\n"),
	}
	if n := appleOnBus(root); n != 1 {
		t.Errorf("%d phones, want 1", n)
	}
	if n := appleOnBus(fstest.MapFS{}); n != 0 {
		t.Errorf("%d phones without a bus", n)
	}
}
