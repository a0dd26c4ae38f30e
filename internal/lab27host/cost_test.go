package lab27host

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/framebridge/framebridge/lab27"
)

func TestHostSamplesAreOfAQuarterAndOfAll(t *testing.T) {
	bundle := fstest.MapFS{}
	for name, rows := range map[string]int{lab27.RequestsFile: 103, lab27.PresentedFile: 102} {
		bundle[name] = &fstest.MapFile{Data: []byte("{\"columns\":[]}\n" + strings.Repeat("[1]\n", rows))}
	}
	less, err := cut(bundle)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{lab27.RequestsFile: 25, lab27.PresentedFile: 25} {
		f, err := less.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		text := new(strings.Builder)
		if _, err := f.(table).WriteTo(text); err != nil || strings.Count(text.String(), "[1]\n") != want || !strings.HasPrefix(text.String(), "{\"columns\"") {
			t.Errorf("%s: %d rows of %q, want %d", name, strings.Count(text.String(), "[1]\n"), text.String()[:15], want)
		}
	}
	frames := make([]lab27.Frame, 41)
	samples, err := HostSamples(bundle, lab27.MatchInput{Frames: frames})
	if err != nil || len(samples) != 2 || samples[0].Ns < 1 || samples[1].Ns < 1 || samples[0].Rows > samples[1].Rows/4 {
		t.Errorf("%+v, %v", samples, err)
	}
	bundle[lab27.PresentedFile].Data = make([]byte, lab27.MaxBundleBytes)
	if _, err := HostSamples(bundle, lab27.MatchInput{}); err != nil {
		t.Errorf("presentations of 2 MiB: %v", err)
	}
	bundle[lab27.PresentedFile].Data = make([]byte, lab27.MaxBundleBytes+1)
	if _, err := HostSamples(bundle, lab27.MatchInput{}); !errors.Is(err, lab27.Bounds) {
		t.Errorf("presentations of 2 MiB and a byte: %v", err)
	}
	delete(bundle, lab27.PresentedFile)
	if _, err := HostSamples(bundle, lab27.MatchInput{}); err == nil {
		t.Error("a bundle without presentations is measured")
	}
}
