//go:build cgo

package core_test

import (
	"testing"

	"github.com/framebridge/framebridge/lab27"
	"github.com/framebridge/framebridge/lab27/app/core"
)

func TestWholeRehearsalIsSealedCompleteAndTheValidatorAgrees(t *testing.T) {
	p := started(t, lab27.PurposeRehearsal, 100)
	if state := p.run(100_000); state != core.Sealed {
		t.Fatalf("state %v: %+v", state, p.app.Status())
	}
	want := request(t, lab27.PurposeRehearsal, 100)
	r := lab27.Validate(p.bundle("run-1"), &want)
	if r.State != lab27.Complete {
		t.Fatalf("%s: %v", r.State, r.Err())
	}
	t.Logf("%+v", r.Summary)
	t.Logf("%+v %+v", r.Phases, r.Tail)
}
