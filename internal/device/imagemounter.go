package device

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

const imageMounterService = "com.apple.mobile.mobile_image_mounter"

// CheckDeveloperServices asks the image mounter for what instruments need: developer mode (iOS 16 and later) and a mounted developer
// disk image. nil where both are there.
func (p *Phone) CheckDeveloperServices(ctx context.Context) error {
	if err := p.CheckDeveloperMode(ctx); err != nil {
		return err
	}
	return p.CheckDeveloperImage(ctx)
}

// CheckDeveloperMode is nil where developer mode is on, or the release knows no such mode.
func (p *Phone) CheckDeveloperMode(ctx context.Context) error {
	if p.Major() < 16 {
		return nil
	}
	answer, err := p.askImageMounter(ctx, map[string]any{"Command": "QueryDeveloperModeStatus"})
	if err != nil {
		return err
	}
	if on, ok := answer["DeveloperModeStatus"].(bool); !ok {
		return problem(BadAnswer, nil, "", "the image mounter does not say whether developer mode is on")
	} else if !on {
		// A phone fresh from the shop hides the switch until a host asks it to show it.
		return problem(DeveloperModeOff, nil, "run `ios devmode reveal --udid="+p.UDID+"`, then on the phone: Settings > Privacy & Security > Developer Mode",
			"developer mode is off on %s", p.UDID)
	}
	return nil
}

// CheckDeveloperImage is nil where a developer disk image is mounted.
func (p *Phone) CheckDeveloperImage(ctx context.Context) error {
	kind := "Developer"
	if p.Major() >= 17 {
		kind = "Personalized"
	}
	answer, err := p.askImageMounter(ctx, map[string]any{"Command": "LookupImage", "ImageType": kind})
	if err != nil {
		return err
	}
	if signatures, _ := answer["ImageSignature"].([]any); len(signatures) == 0 {
		return problem(DeveloperImageMissing, nil, imageRemedy(p.UDID), "no developer disk image is mounted on %s", p.UDID)
	}
	return nil
}

func (p *Phone) askImageMounter(ctx context.Context, request map[string]any) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(ctx, StepTimeout)
	defer cancel()
	conn, err := p.plain.connect(ctx, imageMounterService)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer bound(ctx, conn)()
	var answer map[string]any
	if err := askPlist(conn, request, &answer); err != nil {
		err, _ = silence(ctx, fmt.Errorf("image mounter: %w", err), "the image mounter")
		return nil, err
	}
	if word, ok := answer["Error"]; ok {
		err := errors.New(fmt.Sprint(word))
		if strings.Contains(err.Error(), "Locked") {
			return nil, problem(Locked, err, "unlock the phone", "%s is locked", p.UDID)
		}
		return nil, problem(ServiceRefused, err, "", "the image mounter refuses %v", request["Command"])
	}
	return answer, nil
}
