package sim

import (
	"context"
	"io"
	"net"
)

// mobile_image_mounter: whether developer services can be had is asked here before anything else. Images are mounted by a command to
// the lab, not through this service.
const imageMounterName = "com.apple.mobile.mobile_image_mounter"

// imageSignature stands for the signature of a mounted image.
var imageSignature = []byte("simulated image signature")

func serveImageMounter(ctx context.Context, d *Device, conn net.Conn) error {
	for {
		request, err := readPlist(conn)
		if err == io.EOF || err == nil && str(request, "Command") == "Hangup" {
			return nil
		}
		if err != nil {
			return err
		}
		if err := d.beforeAnswer(ctx, imageMounterName); err != nil {
			return err
		}
		if err := writePlist(conn, d.imageAnswer(request)); err != nil {
			return err
		}
	}
}

func (d *Device) imageAnswer(request map[string]any) map[string]any {
	command := str(request, "Command")
	if d.locked() && (command == "LookupImage" || command == "CopyDevices") {
		return refusal("DeviceLocked")
	}
	kind, mountPath := "Developer", "/Developer"
	if d.os.Major >= 17 {
		kind, mountPath = "Personalized", "/System/Developer"
	}
	mounted := d.imageMounted()
	switch command {
	case "LookupImage":
		present := mounted && str(request, "ImageType") == kind
		signatures := []any{}
		if present {
			signatures = append(signatures, imageSignature)
		}
		return map[string]any{"ImagePresent": present, "ImageSignature": signatures, "Status": "Complete"}
	case "CopyDevices":
		entries := []any{}
		if mounted {
			entries = append(entries, map[string]any{"DiskImageType": kind, "ImageSignature": imageSignature, "IsMounted": true, "MountPath": mountPath})
		}
		return map[string]any{"EntryList": entries, "Status": "Complete"}
	case "QueryDeveloperModeStatus":
		if d.os.Major < 16 {
			return refusal("UnknownCommand")
		}
		return map[string]any{"DeveloperModeStatus": d.developerMode()}
	}
	return refusal("UnknownCommand")
}
