package app_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/framebridge/framebridge/lab27/app"
)

func TestBuildScriptAndHostAgreeOnTheSourceDigest(t *testing.T) {
	out, err := exec.Command("sh", "ios/source-digest").Output()
	if err != nil {
		t.Fatal(err)
	}
	if want := app.SourceDigest(); strings.TrimSpace(string(out)) != want {
		t.Errorf("the script says %s, the host %s", out, want)
	}
}

func TestVersionIsTheAppsOwn(t *testing.T) {
	if v := app.Version(); v != "1.0" { // as it stands in Info.plist
		t.Errorf("%q", v)
	}
}
