package export

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What a session's tables must hold, from events.jsonl with the standard library alone. A column is a path in the event; a figure of N
// decimals, as an integer, is name=path*N. The type is the events', and each makes the rows in the comment beside it.
var contract = []struct {
	table, typ, columns string
	rows                func(event map[string]any) []map[string]any
}{
	{"frames", "display.frame-lifetime.raw", "seq hostNs origin rawSequence sourceEpoch reconnectGeneration payload.swapId payload.frameSeed payload.displayId payload.surfaceId " +
		"payload.beginMach payload.endMach payload.previousMach payload.refreshIntervalMach payload.bufferCount payload.skipRequest payload.displayTargetMach payload.inputMach " +
		"payload.renderBeginMach payload.renderEndMach payload.nativeId payload.presentationNs frameTimeNs=payload.frameTimeMs*6 lifetimeNs=payload.lifetimeMs*6 " +
		"refreshMultipleMilli=payload.refreshMultiple*3 payload.quality payload.qualityReason payload.decoded payload.verified payload.droppedBefore payload.predecessorSkewMach " +
		"payload.presentFields", withOrigins},
	{"contributors", "display.frame-contributors", "seq hostNs frameSeed displayId position process.pid process.name", byProcess},
	{"publications", "p95.publication", "seq hostNs dueNs valueNs=valueMs*6 quality lastPresentationNs lastHostNs windowLeftNs windowRightNs segment target.bundleId target.pid target.generation " +
		"sourceEpoch reconnectGeneration displayId timebaseNumer=timebase.numer timebaseDenom=timebase.denom n rank firstRawSequence=firstSample.rawSequence " +
		"firstPresentationNs=firstSample.presentationNs lastSampleRawSequence=lastSample.rawSequence lastSamplePresentationNs=lastSample.presentationNs lastRawSequence " +
		"clearReason=lastClear.reason clearRawSequence=lastClear.rawSequence clearHostNs=lastClear.hostNs bridgeQualified=clockBridge.qualified bridgeWidthNs=clockBridge.widthNs " +
		"bridgeAgeLowerBoundNs=clockBridge.ageLowerBoundNs other.fps frameTimeNs=other.frameTimeMs*6 refreshMilliHz=other.refreshHz*3 jitterUs=other.jitterMs*3 " +
		"hitchUsPerS=other.hitchMsPerS*3 other.missedRefreshes", nil},
	{"gaps", "source.gap", "seq hostNs reason rows bytes messages", nil},
	{"target_binds", "target.bind", "seq hostNs bundleId pid generation sourceEpoch reconnectGeneration primaryDisplayId timebaseNumer=timebase.numer timebaseDenom=timebase.denom", nil},
	{"target_states", "target.state", "seq hostNs foreground by", nil},
	{"clock_bridges", "clock.bridge", "seq hostNs hostSendNs hostReceiveNs deviceContinuousMach deviceAbsoluteMach timebaseNumer=timebase.numer timebaseDenom=timebase.denom", nil},
	{"source_states", "source.state", "seq hostNs state cause", nil},
	{"session", "session.start", "seq hostNs sessionId name toolName=tool.name toolVersion=tool.version hostName=host.name hostOs=host.os hostArch=host.arch hostCpus=host.cpus hostPid=host.pid " +
		"deviceUdid=device.udid deviceProductType=device.productType deviceOsVersion=device.osVersion deviceSimulated=device.simulated evidence policy " +
		"monotonicNs=clock.monotonicNs wallNs=clock.wallNs noHostClock", withHostClock},
	{"session_end", "session.end", "seq hostNs state reason", nil},
	{"counts", "session.end", "seq kind name count", byCount},
}

// originColumns are those of the table origins, whose rows are numbered as they first appear.
const originColumns = "origin schema sessionId source.service source.channel source.selector source.adapter_id source.adapter_version source.scope source.raw_unit target.bundleId target.pid " +
	"target.generation p95PublicationPolicy payload.subsystem payload.category payload.name timebaseNumer=payload.timebase.numer timebaseDenom=payload.timebase.denom"

var originNumbers map[string]int // of the session that is read

func withOrigins(event map[string]any) []map[string]any {
	key := fmt.Sprint(pick(event, originColumns)[1:])
	if originNumbers[key] == 0 {
		originNumbers[key] = len(originNumbers) + 1
	}
	event["origin"] = json.Number(fmt.Sprint(originNumbers[key]))
	payload := event["payload"].(map[string]any)
	if list, ok := payload["presentFields"]; ok {
		text, _ := json.Marshal(list)
		payload["presentFields"] = string(text)
	}
	return []map[string]any{event}
}

func byProcess(event map[string]any) (rows []map[string]any) {
	list := event["processes"].([]any)
	for i, process := range list {
		row := maps.Clone(event)
		row["position"], row["process"] = json.Number(fmt.Sprint(i)), process
		rows = append(rows, row)
	}
	if len(list) == 0 {
		rows = append(rows, event)
	}
	return rows
}

func withHostClock(event map[string]any) []map[string]any {
	event["noHostClock"] = event["hostClock"] == "none"
	return []map[string]any{event}
}

func byCount(event map[string]any) (rows []map[string]any) {
	add := func(kind, name string, n any) {
		rows = append(rows, map[string]any{"seq": event["seq"], "kind": kind, "name": name, "count": n})
	}
	lines := event["counts"].(map[string]any)
	for _, typ := range strings.Fields("session.start target.bind target.state clock.bridge display.frame-lifetime.raw display.frame-contributors source.gap source.state p95.publication session.end") {
		add("line", typ, lines[typ])
	}
	extra := event["extra"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		add("extra", name, extra[name])
	}
	return rows
}

// pick takes an event's values in the order of columns.
func pick(event map[string]any, columns string) (row []any) {
	for column := range strings.FieldsSeq(columns) {
		_, path, named := strings.Cut(column, "=")
		if !named {
			path = column
		}
		path, places, scaled := strings.Cut(path, "*")
		var v any = event
		for name := range strings.SplitSeq(path, ".") {
			inside, _ := v.(map[string]any)
			v = inside[name]
		}
		if n, ok := v.(json.Number); ok && scaled {
			v = shifted(string(n), int(places[0]-'0'))
		}
		row = append(row, v)
	}
	return row
}

// shifted moves the point of a decimal to the right.
func shifted(decimal string, places int) json.Number {
	whole, fraction, _ := strings.Cut(decimal, ".")
	n := strings.TrimLeft(whole+fraction+strings.Repeat("0", places-len(fraction)), "0")
	if n == "" {
		n = "0"
	}
	return json.Number(n)
}

func names(columns string) (names []string) {
	for column := range strings.FieldsSeq(columns) {
		name, _, named := strings.Cut(column, "=")
		if !named {
			name = column[strings.LastIndexByte(column, '.')+1:]
		}
		names = append(names, name)
	}
	return names
}

// expected are the rows that events of a type make.
func expected(t *testing.T, dir, typ, columns string, rows func(map[string]any) []map[string]any) iter.Seq[[]any] {
	return func(yield func([]any) bool) {
		for line := range linesOf(t, open(t, filepath.Join(dir, "events.jsonl"))) {
			if !bytes.Contains(line, []byte(`"type":"`+typ+`"`)) {
				continue
			}
			event := map[string]any{}
			decode(t, line, &event)
			made := []map[string]any{event}
			if rows != nil {
				made = rows(event)
			}
			for _, row := range made {
				if !yield(pick(row, columns)) {
					return
				}
			}
		}
	}
}

func open(t *testing.T, path string) io.Reader {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func linesOf(t *testing.T, r io.Reader) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		s := bufio.NewScanner(r)
		s.Buffer(nil, 64<<20)
		for s.Scan() {
			if !yield(s.Bytes()) {
				return
			}
		}
		if s.Err() != nil {
			t.Error(s.Err())
		}
	}
}

func decode(t *testing.T, line []byte, to any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	if err := d.Decode(to); err != nil {
		t.Fatalf("%v: %.300s", err, line)
	}
}

// compare reads two tables side by side. It returns the number of rows.
func compare(t *testing.T, what string, want, got iter.Seq[[]any], same func(want, got any) bool) (n int) {
	t.Helper()
	next, stop := iter.Pull(got)
	defer stop()
	for w := range want {
		g, ok := next()
		if !ok {
			t.Fatalf("%s: only %d rows", what, n)
		}
		if !slices.EqualFunc(w, g, same) {
			t.Fatalf("%s: row %d is\n%v, want\n%v", what, n, g, w)
		}
		n++
	}
	if g, ok := next(); ok {
		t.Fatalf("%s: %d rows and then %v", what, n, g)
	}
	return n
}

func equal(want, got any) bool { return want == got }

// program finds a foreign reader, or skips the test.
func program(t *testing.T, name, debian string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s IS MISSING, and what it should read back is not tested: ./scripts/setup (Debian: apt-get install %s)", strings.ToUpper(name), debian)
	}
	return path
}

// output runs a reader and yields the lines that it prints.
func output(t *testing.T, dir, name string, args ...string) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		for line := range linesOf(t, out) {
			if !yield(line) {
				cmd.Process.Kill()
				break
			}
		}
		if err := cmd.Wait(); err != nil || stderr.Len() > 0 {
			t.Errorf("%s: %v %s", filepath.Base(name), err, stderr.String())
		}
	}
}
