package main

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/framebridge/framebridge/internal/sim"
)

func listed(t *testing.T) map[string]attached {
	t.Helper()
	var list []attached
	if err := json.Unmarshal([]byte(must(t, "devices", "--json").stdout), &list); err != nil {
		t.Fatal(err)
	}
	by := map[string]attached{}
	for _, a := range list {
		by[a.UDID] = a
	}
	return by
}

func TestDevicesKnowsWhichPhonesCanHaveATunnelOfTheRecordings(t *testing.T) {
	lab, udids := startLab(t, "[{for: 1h, hz: 60}]", "26.0", "26.0", "17.2")
	t.Setenv("GO_IOS_AGENT_PORT", freePort(t))
	if _, err := lab.Apply(context.Background(), udids[1], sim.Fault{Kind: "wifi"}); err != nil {
		t.Fatal(err)
	}
	by := listed(t)
	for i, want := range []attached{
		{Usable: true, OwnTunnel: true},
		{Code: "needs-tunnel", Remedy: "plug it in by cable"},
		{Code: "needs-tunnel", Remedy: "sudo framebridge tunnel --kernel"},
	} {
		if a := by[udids[i]]; a.Usable != want.Usable || a.OwnTunnel != want.OwnTunnel || a.Code != want.Code || a.Remedy != want.Remedy {
			t.Errorf("iOS %s by %s: %+v, want %+v", a.OSVersion, a.Connection, a, want)
		}
	}
}

func TestDevicesWaitsForSilentPhonesAtOnce(t *testing.T) {
	lab, udids := startLab(t, "[{for: 1h, hz: 60}]", "16.7", "16.7", "16.7")
	for _, udid := range udids[:2] {
		if _, err := lab.Apply(context.Background(), udid, sim.Fault{Kind: "hang", Service: "lockdownd"}); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	by := listed(t)
	if took := time.Since(began); took > 12*time.Second { // each keeps it waiting for eight
		t.Errorf("it took %s", took)
	}
	if by[udids[0]].Code != "no-answer" || by[udids[1]].Code != "no-answer" || !by[udids[2]].Usable {
		t.Errorf("%+v, want the third alone usable", by)
	}
}
