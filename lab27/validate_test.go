package lab27_test

import (
	"testing"

	"github.com/framebridge/framebridge/lab27"
)

func TestCompleteBundle(t *testing.T) {
	f := newFixture(t, lab27.PurposeRehearsal, 100)
	r := f.report()
	if r.State != lab27.Complete {
		t.Fatalf("%s: %v", r.State, r.Err())
	}
	t.Logf("%+v %+v", r.Phases, r.Tail)
	m := f.qualify(t)
	t.Logf("%+v", m.Verdict)
}
