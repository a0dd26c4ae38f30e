package capture

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/internal/sim/scene"
	"github.com/framebridge/framebridge/internal/sim/tapenc"
	"github.com/framebridge/framebridge/ledger"
)

// twoEpochs is a wire file of a second from host time 1 s on, a payload every 100 ms, and the lines of an event log with which the
// payloads from 1.5 s on are of a second epoch.
func twoEpochs(t *testing.T) (wire []byte, log []string) {
	t.Helper()
	spec, err := scene.Parse([]byte("[{for: 1h, hz: 60}]"))
	if err != nil {
		t.Fatal(err)
	}
	version, err := scene.ParseOS("18.5")
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	c := tapenc.WireConfig{Spec: spec, OS: version, Seed: 1, Duration: time.Second, HostNs: 1_000_000_000}
	if _, err := tapenc.WriteWire(&b, io.Discard, c); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), []string{
		`{"seq":1,"hostNs":900000000,"type":"session.start","sessionId":"5f0c7a52-0000-4000-8000-000000000001","name":"x",` +
			`"tool":{"name":"t","version":"1"},"host":{"name":"h","os":"linux","arch":"amd64","cpus":2,"pid":3},` +
			`"device":{"udid":"u","productType":"iPhone15,2","osVersion":"18.5","simulated":true},"evidence":"E2",` +
			`"policy":"p95-window-segment.v2","clock":{"monotonicNs":900000000,"wallNs":5}}`,
		`{"seq":2,"hostNs":950000000,"type":"target.bind","bundleId":"a","pid":5,"generation":1,"sourceEpoch":1,"reconnectGeneration":0,` +
			`"primaryDisplayId":1,"timebase":{"numer":125,"denom":3}}`,
		`{"seq":3,"hostNs":1450000000,"type":"source.state","state":"connected","cause":""}`,
		`{"seq":4,"hostNs":1450000000,"type":"target.bind","bundleId":"a","pid":6,"generation":2,"sourceEpoch":2,"reconnectGeneration":0,` +
			`"primaryDisplayId":1,"timebase":{"numer":125,"denom":3}}`,
		`{"seq":5,"hostNs":1460000000,"type":"source.state","state":"connected","cause":""}`,
	}
}

// decodeBeside decodes a wire file with an event log beside it.
func decodeBeside(t *testing.T, wire []byte, log string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, ledger.EventsName), []byte(log), 0o644); err != nil {
		t.Fatal(err)
	}
	ids, err := ReadIdentities(dir)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	_, err = Decode(bytes.NewReader(wire), adapter.Timebase{Numer: 125, Denom: 3}, ids, &Lines{W: &out})
	return out.String(), err
}

func TestDecodeGivesNoFrameToAnotherThanWhomItWasRecordedFor(t *testing.T) {
	wire, log := twoEpochs(t)
	whole := strings.Join(log, "\n") + "\n"
	want, err := decodeBeside(t, wire, whole)
	if err != nil {
		t.Fatal(err)
	}
	if first, second := strings.Count(want, `"sourceEpoch":1,`), strings.Count(want, `"sourceEpoch":2,`); first < 20 || second < 20 {
		t.Fatalf("%d frames of epoch 1 and %d of epoch 2", first, second)
	}
	without := func(i int) string {
		return strings.Join(append(append([]string{}, log[:i]...), log[i+1:]...), "\n") + "\n"
	}
	for name, c := range map[string]struct{ log, want string }{
		"a bind that is damaged":          {strings.Replace(whole, `"sourceEpoch":2`, `"sourceEpoch":x`, 1), "line 4, byte 659: line rejected: "},
		"a line that says nothing":        {strings.Replace(whole, log[3], "garbage", 1), "line 4, byte 659: line rejected: "},
		"a bind that is missing":          {without(3), "line 4, byte 659: lines missing: expected seq 4, found 5"},
		"a bind that was written again":   {whole + log[3] + "\n", "line 6, byte 927: line out of order: expected seq 6, found 4"},
		"a start that is damaged":         {strings.Replace(whole, `"E2"`, `"E9"`, 1), "line 1, byte 0: line rejected: "},
		"the first bind damaged":          {strings.Replace(whole, `"pid":5`, `"pid":`, 1), "line 2, byte 392: line rejected: "},
		"no bind":                         {log[0] + "\n", "binds no target"},
		"the log of another recording":    {strings.Replace(whole, "950000000", "1000000000", 1), "the payload at byte 0 of the wire file came at host time 1000000000 ns, before the first target.bind"},
		"another line that is damaged":    {strings.Replace(whole, `"connected"`, `"con`, 1), ""},
		"a last line that is not whole":   {strings.TrimSuffix(whole, "\n"), ""},
		"another line written once again": {whole + log[4] + "\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := decodeBeside(t, wire, c.log)
			if c.want == "" && (err != nil || got != want) {
				t.Errorf("%v; decoded %d bytes, want the same %d", err, len(got), len(want))
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "decode the wire file alone, from another directory")) {
				t.Errorf("found %v\nwant %s", err, c.want)
			}
		})
	}
}
