package ledger

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/internal/jsonline"
	"github.com/framebridge/framebridge/p95"
)

// AppendLine appends the event as one line with its newline. Nothing is allocated when dst has room, session.end apart.
func AppendLine(dst []byte, e *Event) []byte {
	switch v := e.Value.(type) {
	case *adapter.Record:
		return append(v.AppendJSON(dst, e.Seq), '\n')
	case *p95.Receipt:
		return append(v.AppendJSON(dst, e.Seq), '\n')
	}
	dst = append(dst, `{"seq":`...)
	dst = strconv.AppendInt(dst, e.Seq, 10)
	dst = appendInt(dst, "hostNs", e.HostNs)
	dst = appendText(dst, "type", string(e.Type()))
	switch v := e.Value.(type) {
	case *Start:
		dst = appendStart(dst, v)
	case *adapter.Binding:
		dst = appendText(dst, "bundleId", v.Target.BundleID)
		dst = appendInt(dst, "pid", v.Target.PID)
		dst = appendInt(dst, "generation", v.Target.Generation)
		dst = appendInt(dst, "sourceEpoch", v.SourceEpoch)
		dst = appendInt(dst, "reconnectGeneration", v.ReconnectGeneration)
		dst = appendInt(dst, "primaryDisplayId", v.PrimaryDisplayID)
		dst = appendTimebase(dst, v.Timebase)
	case *TargetState:
		dst = appendBool(dst, "foreground", v.Foreground)
		dst = appendText(dst, "by", v.By)
	case *p95.ClockBridge:
		dst = appendInt(dst, "hostSendNs", v.HostSendNs)
		dst = appendInt(dst, "hostReceiveNs", v.HostReceiveNs)
		if v.HasContinuous {
			dst = appendInt(dst, "deviceContinuousMach", v.DeviceContinuousMach)
		} else {
			dst = append(dst, `,"deviceContinuousMach":null`...)
		}
		dst = appendInt(dst, "deviceAbsoluteMach", v.DeviceAbsoluteMach)
		dst = appendTimebase(dst, v.Timebase)
	case *adapter.Contributors:
		dst = appendInt(dst, "frameSeed", v.FrameSeed)
		dst = appendInt(dst, "displayId", v.DisplayID)
		dst = append(dst, `,"processes":[`...)
		for i, p := range v.Processes {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, `{"pid":`...)
			dst = strconv.AppendInt(dst, p.PID, 10)
			if p.Name != "" {
				dst = appendText(dst, "name", p.Name)
			}
			dst = append(dst, '}')
		}
		dst = append(dst, ']')
	case *SourceGap:
		dst = appendText(dst, "reason", v.Reason)
		dst = appendInt(dst, "rows", v.Rows)
		dst = appendInt(dst, "bytes", v.Bytes)
		dst = appendInt(dst, "messages", v.Messages)
	case *SourceState:
		dst = appendText(dst, "state", v.State)
		dst = appendText(dst, "cause", v.Cause)
	case *End:
		dst = appendEnd(dst, v)
	}
	return append(dst, "}\n"...)
}

func appendKey(dst []byte, key string) []byte {
	dst = append(dst, ',', '"')
	dst = append(dst, key...)
	return append(dst, '"', ':')
}

func appendInt(dst []byte, key string, v int64) []byte {
	return strconv.AppendInt(appendKey(dst, key), v, 10)
}

func appendBool(dst []byte, key string, v bool) []byte {
	return strconv.AppendBool(appendKey(dst, key), v)
}

func appendText(dst []byte, key, v string) []byte {
	return jsonline.AppendString(appendKey(dst, key), v)
}

func appendTimebase(dst []byte, t adapter.Timebase) []byte {
	dst = append(dst, `,"timebase":{"numer":`...)
	dst = strconv.AppendInt(dst, t.Numer, 10)
	dst = appendInt(dst, "denom", t.Denom)
	return append(dst, '}')
}

func appendStart(dst []byte, v *Start) []byte {
	dst = appendText(dst, "sessionId", v.SessionID)
	dst = appendText(dst, "name", v.Name)
	dst = append(dst, `,"tool":{"name":`...)
	dst = jsonline.AppendString(dst, v.Tool.Name)
	dst = appendText(dst, "version", v.Tool.Version)
	dst = append(dst, `},"host":{"name":`...)
	dst = jsonline.AppendString(dst, v.Host.Name)
	dst = appendText(dst, "os", v.Host.OS)
	dst = appendText(dst, "arch", v.Host.Arch)
	dst = appendInt(dst, "cpus", v.Host.CPUs)
	dst = appendInt(dst, "pid", v.Host.PID)
	dst = append(dst, `},"device":{"udid":`...)
	dst = jsonline.AppendString(dst, v.Device.UDID)
	dst = appendText(dst, "productType", v.Device.ProductType)
	dst = appendText(dst, "osVersion", v.Device.OSVersion)
	dst = appendBool(dst, "simulated", v.Device.Simulated)
	dst = append(dst, '}')
	dst = appendText(dst, "evidence", string(v.Evidence))
	dst = appendText(dst, "policy", v.Policy)
	dst = append(dst, `,"clock":{"monotonicNs":`...)
	dst = strconv.AppendInt(dst, v.Clock.MonotonicNs, 10)
	dst = appendInt(dst, "wallNs", v.Clock.WallNs)
	dst = append(dst, '}')
	if v.NoHostClock {
		dst = append(dst, `,"hostClock":"none"`...)
	}
	return dst
}

// A session.end line must be readable whatever was counted: past these bounds the rest is summed up under one name.
const (
	maxExtraBytes = jsonline.MaxLineBytes / 2
	maxExtraNames = jsonline.MaxMembers / 2
	extraRest     = "others"
)

func appendEnd(dst []byte, v *End) []byte {
	dst = appendText(dst, "state", string(v.State))
	dst = appendText(dst, "reason", v.Reason)
	dst = append(dst, `,"counts":{`...)
	for i, t := range types {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = jsonline.AppendString(dst, string(t))
		dst = append(dst, ':')
		dst = strconv.AppendInt(dst, v.Counts[i], 10)
	}
	dst = append(dst, `},"extra":{`...)
	extra := make(map[string]int64, len(v.Extra)) // names that differ only in what is no UTF-8 are written alike
	for name, n := range v.Extra {
		extra[strings.ToValidUTF8(name, "\uFFFD")] += n
	}
	names := slices.Sorted(maps.Keys(extra))
	from := len(dst)
	member := func(name string, n int64) {
		if len(dst) > from {
			dst = append(dst, ',')
		}
		dst = jsonline.AppendString(dst, name)
		dst = append(dst, ':')
		dst = strconv.AppendInt(dst, n, 10)
	}
	var rest int64
	written := 0
	for _, name := range names {
		// 6: an escape such as \u0001 is the longest form of a byte.
		if name == extraRest || written == maxExtraNames || len(dst)-from+6*len(name) > maxExtraBytes {
			rest += extra[name]
			continue
		}
		member(name, extra[name])
		written++
	}
	if written < len(names) {
		member(extraRest, rest)
	}
	return append(dst, '}')
}

// Parser reads event lines one at a time. What it returns is its own memory, good until the next line.
type Parser struct {
	scanner jsonline.Scanner
	records adapter.RecordParser
	fields  present

	start        Start
	bind         adapter.Binding
	state        TargetState
	bridge       p95.ClockBridge
	record       adapter.Record
	contributors adapter.Contributors
	gap          SourceGap
	source       SourceState
	receipt      p95.Receipt
	end          End
}

// Parse reads one line, without its newline, into e. It refuses the line as a whole where a member that its type needs is missing or
// of another kind (of a raw record any may be missing: the window judges that), and whatever internal/jsonline refuses. Members
// that it does not know are read past.
func (p *Parser) Parse(line []byte, e *Event) error {
	*e = Event{}
	typ, err := p.envelope(line, e)
	if err != nil {
		return err
	}
	s := &p.scanner
	switch typ {
	case TypeRawRecord:
		e.Value = &p.record
		_, err = p.records.Parse(line, &p.record)
		return err
	case TypePublication:
		e.Value = &p.receipt
		_, p.receipt, err = p95.ParseReceipt(line)
		return err
	}
	p.fields = 0
	s.Start(line)
	switch typ {
	case TypeSessionStart:
		e.Value = p.parseStart()
	case TypeTargetBind:
		e.Value = p.parseBind()
	case TypeTargetState:
		e.Value = p.parseState()
	case TypeClockBridge:
		e.Value = p.parseBridge()
	case TypeContributors:
		e.Value = p.parseContributors()
	case TypeSourceGap:
		e.Value = p.parseGap()
	case TypeSourceState:
		e.Value = p.parseSource()
	case TypeSessionEnd:
		e.Value = p.parseEnd()
	default:
		return fmt.Errorf("type: %.60q is not known", typ)
	}
	return s.End()
}

// envelope reads what every line has. The lines that this program writes begin with it, and then nothing else is looked at here:
// whoever reads the rest of the line reads all of it.
func (p *Parser) envelope(line []byte, e *Event) (Type, error) {
	if rest, ok := bytes.CutPrefix(line, []byte(`{"seq":`)); ok {
		seq, rest, okSeq := leadingInt(rest)
		rest, okKey := bytes.CutPrefix(rest, []byte(`,"hostNs":`))
		hostNs, rest, okHost := leadingInt(rest)
		rest, okType := bytes.CutPrefix(rest, []byte(`,"type":"`))
		if okSeq && okKey && okHost && okType && seq >= 1 {
			for _, t := range types {
				if len(rest) > len(t) && rest[len(t)] == '"' && string(rest[:len(t)]) == string(t) {
					e.Seq, e.HostNs = seq, hostNs
					return t, nil
				}
			}
		}
	}
	p.fields = 0
	typ := ""
	s := &p.scanner
	s.Start(line)
	for s.Next() {
		switch string(s.Key()) {
		case "seq":
			p.int(0, &e.Seq)
		case "hostNs":
			p.int(1, &e.HostNs)
		case "type":
			p.text(2, &typ)
		}
	}
	if typ == string(TypeRawRecord) {
		p.mark(1, true) // the window judges a record without one
	}
	p.need("seq", "hostNs", "type")
	if e.Seq < 1 {
		s.Fail("seq: expected 1 or more, found %d", e.Seq)
	}
	return Type(typ), s.End()
}

// leadingInt reads a number of at most 18 digits in its one canonical form; anything else is left to the scanner.
func leadingInt(b []byte) (n int64, rest []byte, ok bool) {
	i := 0
	for i < len(b) && '0' <= b[i] && b[i] <= '9' {
		if i == 18 {
			return 0, b, false
		}
		n = n*10 + int64(b[i]-'0')
		i++
	}
	return n, b[i:], i == 1 || i > 1 && b[0] != '0'
}

// present is the set of an object's members that were there and of the right kind, by their place in the list given to need.
type present uint32

func (p *Parser) mark(i int, ok bool) {
	if ok {
		p.fields |= 1 << i
	}
}

func (p *Parser) int(i int, to *int64) {
	v, ok := p.scanner.Int64()
	*to = v
	p.mark(i, ok)
}

func (p *Parser) bool(i int, to *bool) {
	v, ok := p.scanner.Bool()
	*to = v
	p.mark(i, ok)
}

func (p *Parser) text(i int, to *string) {
	v, ok := p.scanner.Bytes()
	if string(v) != *to { // most are what the line before had
		*to = string(v)
	}
	p.mark(i, ok)
}

// need rejects the line where one of an object's members is missing or of the wrong kind.
func (p *Parser) need(names ...string) {
	for i, name := range names {
		if p.fields&(1<<i) == 0 {
			p.scanner.Fail("%s: missing, or not of its kind", name)
			return
		}
	}
}

func (p *Parser) oneOf(name, found string, words ...string) {
	if !slices.Contains(words, found) {
		p.scanner.Fail("%s: expected one of %q, found %.60q", name, words, found)
	}
}

// object runs read for each member of the object ahead, and then checks that those named were there. It keeps the marks of the object
// around it.
func (p *Parser) object(i int, read func(key []byte), names ...string) {
	outer := p.fields
	p.fields = 0
	ok := p.scanner.Object()
	if ok {
		for p.scanner.Next() {
			read(p.scanner.Key())
		}
		p.need(names...)
	}
	p.fields = outer
	p.mark(i, ok)
}

func (p *Parser) tool(i int, to *Tool) {
	p.object(i, func(key []byte) {
		switch string(key) {
		case "name":
			p.text(0, &to.Name)
		case "version":
			p.text(1, &to.Version)
		}
	}, "name", "version")
}

func (p *Parser) timebase(i int, to *adapter.Timebase) {
	*to = adapter.Timebase{}
	p.object(i, func(key []byte) {
		switch string(key) {
		case "numer":
			p.int(0, &to.Numer)
		case "denom":
			p.int(1, &to.Denom)
		}
	}, "numer", "denom")
}

func (p *Parser) parseStart() *Start {
	v := &p.start
	v.NoHostClock = false
	evidence := ""
	for p.scanner.Next() {
		switch string(p.scanner.Key()) {
		case "sessionId":
			p.text(0, &v.SessionID)
		case "name":
			p.text(1, &v.Name)
		case "tool":
			p.tool(2, &v.Tool)
		case "host":
			p.object(3, func(key []byte) {
				switch string(key) {
				case "name":
					p.text(0, &v.Host.Name)
				case "os":
					p.text(1, &v.Host.OS)
				case "arch":
					p.text(2, &v.Host.Arch)
				case "cpus":
					p.int(3, &v.Host.CPUs)
				case "pid":
					p.int(4, &v.Host.PID)
				}
			}, "name", "os", "arch", "cpus", "pid")
		case "device":
			p.object(4, func(key []byte) {
				switch string(key) {
				case "udid":
					p.text(0, &v.Device.UDID)
				case "productType":
					p.text(1, &v.Device.ProductType)
				case "osVersion":
					p.text(2, &v.Device.OSVersion)
				case "simulated":
					p.bool(3, &v.Device.Simulated)
				}
			}, "udid", "productType", "osVersion", "simulated")
		case "evidence":
			p.text(5, &evidence)
		case "policy":
			p.text(6, &v.Policy)
		case "clock":
			p.object(7, func(key []byte) {
				switch string(key) {
				case "monotonicNs":
					p.int(0, &v.Clock.MonotonicNs)
				case "wallNs":
					p.int(1, &v.Clock.WallNs)
				}
			}, "monotonicNs", "wallNs")
		case "hostClock":
			hostClock := ""
			p.text(8, &hostClock)
			p.oneOf("hostClock", hostClock, "none")
			v.NoHostClock = true
		}
	}
	p.need("sessionId", "name", "tool", "host", "device", "evidence", "policy", "clock")
	v.Evidence = Evidence(evidence)
	if err := v.check(); err != nil {
		p.scanner.Fail("%v", err)
	}
	return v
}

func (p *Parser) parseBind() *adapter.Binding {
	v := &p.bind
	for p.scanner.Next() {
		switch string(p.scanner.Key()) {
		case "bundleId":
			p.text(0, &v.Target.BundleID)
		case "pid":
			p.int(1, &v.Target.PID)
		case "generation":
			p.int(2, &v.Target.Generation)
		case "sourceEpoch":
			p.int(3, &v.SourceEpoch)
		case "reconnectGeneration":
			p.int(4, &v.ReconnectGeneration)
		case "primaryDisplayId":
			p.int(5, &v.PrimaryDisplayID)
		case "timebase":
			p.timebase(6, &v.Timebase)
		}
	}
	p.need("bundleId", "pid", "generation", "sourceEpoch", "reconnectGeneration", "primaryDisplayId", "timebase")
	return v
}

func (p *Parser) parseState() *TargetState {
	v := &p.state
	for p.scanner.Next() {
		switch string(p.scanner.Key()) {
		case "foreground":
			p.bool(0, &v.Foreground)
		case "by":
			p.text(1, &v.By)
		}
	}
	p.need("foreground", "by")
	p.oneOf("by", v.By, "notification", "process-list", "launch", "operator", "import")
	return v
}

func (p *Parser) parseBridge() *p95.ClockBridge {
	v := &p.bridge
	for p.scanner.Next() {
		switch string(p.scanner.Key()) {
		case "hostSendNs":
			p.int(0, &v.HostSendNs)
		case "hostReceiveNs":
			p.int(1, &v.HostReceiveNs)
		case "deviceContinuousMach":
			v.DeviceContinuousMach, v.HasContinuous = 0, false
			if p.scanner.Null() {
				p.mark(2, true)
				continue
			}
			p.int(2, &v.DeviceContinuousMach)
			v.HasContinuous = true
		case "deviceAbsoluteMach":
			p.int(3, &v.DeviceAbsoluteMach)
		case "timebase":
			p.timebase(4, &v.Timebase)
		}
	}
	p.need("hostSendNs", "hostReceiveNs", "deviceContinuousMach", "deviceAbsoluteMach", "timebase")
	return v
}

func (p *Parser) parseContributors() *adapter.Contributors {
	v := &p.contributors
	v.Processes = v.Processes[:0]
	for p.scanner.Next() {
		switch string(p.scanner.Key()) {
		case "frameSeed":
			p.int(0, &v.FrameSeed)
		case "displayId":
			p.int(1, &v.DisplayID)
		case "processes":
			ok := p.scanner.Array()
			for ok && p.scanner.Next() {
				p.process(v)
			}
			p.mark(2, ok)
		}
	}
	p.need("frameSeed", "displayId", "processes")
	return v
}

// process reads one more process into v, over what an earlier line left in its place.
func (p *Parser) process(v *adapter.Contributors) {
	if len(v.Processes) < cap(v.Processes) {
		v.Processes = v.Processes[:len(v.Processes)+1]
	} else {
		v.Processes = append(v.Processes, adapter.Contributor{})
	}
	c := &v.Processes[len(v.Processes)-1]
	outer := p.fields
	p.fields = 0
	if p.scanner.Object() {
		for p.scanner.Next() {
			switch string(p.scanner.Key()) {
			case "pid":
				p.int(0, &c.PID)
			case "name":
				p.text(1, &c.Name)
			}
		}
	}
	if p.fields&(1<<1) == 0 {
		c.Name = ""
	}
	p.need("pid")
	p.fields = outer
}

func (p *Parser) parseGap() *SourceGap {
	v := &p.gap
	for p.scanner.Next() {
		switch string(p.scanner.Key()) {
		case "reason":
			p.text(0, &v.Reason)
		case "rows":
			p.int(1, &v.Rows)
		case "bytes":
			p.int(2, &v.Bytes)
		case "messages":
			p.int(3, &v.Messages)
		}
	}
	p.need("reason", "rows", "bytes", "messages")
	return v
}

func (p *Parser) parseSource() *SourceState {
	v := &p.source
	for p.scanner.Next() {
		switch string(p.scanner.Key()) {
		case "state":
			p.text(0, &v.State)
		case "cause":
			p.text(1, &v.Cause)
		}
	}
	p.need("state", "cause")
	p.oneOf("state", v.State, "connected", "disconnected", "reconnecting")
	return v
}

func (p *Parser) parseEnd() *End {
	v := &p.end
	*v = End{Extra: map[string]int64{}}
	state := ""
	for p.scanner.Next() {
		switch string(p.scanner.Key()) {
		case "state":
			p.text(0, &state)
		case "reason":
			p.text(1, &v.Reason)
		case "counts":
			names := make([]string, len(types))
			for i, t := range types {
				names[i] = string(t)
			}
			p.object(2, func(key []byte) {
				if i := Type(key).index(); i >= 0 {
					p.int(i, &v.Counts[i])
				}
			}, names...)
		case "extra":
			p.object(3, func(key []byte) {
				n, ok := p.scanner.Int64()
				if !ok {
					p.scanner.Fail("expected an integer")
				}
				v.Extra[string(key)] = n
			})
		}
	}
	p.need("state", "reason", "counts", "extra")
	p.oneOf("state", state, string(StateComplete), string(StatePartial))
	v.State = State(state)
	return v
}
