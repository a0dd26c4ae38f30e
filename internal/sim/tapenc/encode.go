package tapenc

import (
	"github.com/framebridge/framebridge/internal/sim/scene"
)

// Tables, by id.
const (
	tableLog = iota
	tableLogArg
	tableSignpost
	tableSignpostArg
)

// columns are the four tables' columns in this release. Releases add some; which and where is known of none of them, so here the later
// ones have an emit-location, and from iOS 18 on the message is not the last column.
func columns(os scene.OS) [4][]string {
	images := []string{"sender-image-path", "process-image-path"}
	tail := append(images, "message")
	if os.Major >= 16 {
		tail = append(append([]string{}, images...), "emit-location", "message")
	}
	if os.Major >= 18 {
		tail = []string{"message", "emit-location", "sender-image-path", "process-image-path"}
	}
	with := func(head ...string) []string { return append(head, tail...) }
	return [4][]string{
		tableLog:    with("time", "thread", "process", "message-type", "format-string", "backtrace", "subsystem", "category"),
		tableLogArg: {"time", "thread", "process", "name", "value"},
		tableSignpost: with("time", "thread", "process", "event-type", "scope", "identifier", "name", "format-string", "backtrace",
			"subsystem", "category"),
		tableSignpostArg: {"time", "thread", "process", "event-type", "scope", "identifier", "name", "arg-name", "value", "message"},
	}
}

// fixedWords stand on the stack from the beginning: the session's name in processes, levels, types and scopes.
var fixedWords = []string{"TODO", "Default", "Debug", "Info", "Error", "Fault", "Begin", "Event", "End", "Thread", "Process", "System"}

var tableNames = [4]string{"os-log", "os-log-arg", "os-signpost", "os-signpost-arg"}

// column says what a column of a row holds.
type column int

const (
	colTime column = iota
	colThread
	colProcess
	colType
	colScope
	colIdentifier
	colName
	colFormat
	colBacktrace
	colSubsystem
	colCategory
	colSenderPath
	colProcessPath
	colLocation
	colMessage
	colArgName
	colArgValue
)

// A log line's message-type is what a signpost's event-type is. The name of an argument's row in os-log-arg is the argument's.
var rowColumns = map[string]column{
	"time": colTime, "thread": colThread, "process": colProcess, "event-type": colType, "message-type": colType, "scope": colScope,
	"identifier": colIdentifier, "name": colName, "format-string": colFormat, "backtrace": colBacktrace,
	"subsystem": colSubsystem, "category": colCategory, "sender-image-path": colSenderPath, "process-image-path": colProcessPath,
	"emit-location": colLocation, "message": colMessage, "arg-name": colArgName, "value": colArgValue,
}

// atom is a string that stays on the stack once it was needed.
type atom int

// absent is the index of an item that is not on the stack.
const absent = -1

// message is a format string taken apart, ready to be written.
type message struct {
	format   atom
	parts    []atom // of literal text; absent for an argument
	args     []argument
	location int   // index of its emit-location
	reset    int64 // the reset since which everything it needs is on the stack
}

type argument struct {
	typ        string
	kind, name atom
}

// keptTextBytes is the length from which on an argument's text stays on the stack.
const keptTextBytes = 17

// value is a number, text or bytes, as its type wants, to be written in place or, where index is not absent, copied from the stack.
type value struct {
	index int
	num   uint64
	text  string
	bytes []byte
}

func numValue(v uint64) value  { return value{index: absent, num: v} }
func textValue(s string) value { return value{index: absent, text: s} }
func dataValue(b []byte) value { return value{index: absent, bytes: b} }

// row is what the columns of a row hold. Indexes are of items on the stack; an absent time or identifier is written in place.
type row struct {
	message                   *message
	typ, scope                atom
	name, subsystem, category atom
	path                      atom
	thread, process           int // indexes of their structs
	time, identifier          value
	backtrace                 bool
}

type threadKey struct{ pid, tid int64 }

// encoder turns events into words. It lives as long as one tap.
type encoder struct {
	stack
	form        form
	limit       int
	keepNumbers bool
	names       [4][]string
	columns     [4][]column
	resets      int64
	rows        int64

	atoms     map[string]atom
	strings   []string
	at        []int // by atom: its index on the stack, or absent
	processes map[int64]int
	threads   map[threadKey]int
	sources   map[*scene.Source]*message
	context   *message
	lifetime  [2]*message // without and with input
	update    [8]*message
	ends      [2]value // by display: the last end, while it is on the stack

	todo, narrative, scopeProcess, begin, end, event atom
	ca, plain, stalls                                atom
	nameLifetime, nameUpdate, nameContext            atom

	vals  []value
	bytes []byte
	args  int // index of the first argument struct of the record that is being written

	// told is called after the end of a frame's last row; from is where in buf the first byte that belongs to it is.
	told func(f *scene.Frame, from int)
}

func newEncoder(os scene.OS, limit int, keepNumbers bool) *encoder {
	e := &encoder{form: formOf(os), limit: limit, keepNumbers: keepNumbers, names: columns(os),
		atoms: map[string]atom{}, processes: map[int64]int{}, threads: map[threadKey]int{}, sources: map[*scene.Source]*message{}}
	for id, names := range e.names {
		for _, n := range names {
			e.columns[id] = append(e.columns[id], rowColumns[n])
		}
	}
	e.todo, e.narrative, e.scopeProcess = e.atom("TODO"), e.atom(typeNarrative), e.atom("Process")
	e.begin, e.end, e.event = e.atom("Begin"), e.atom("End"), e.atom("Event")
	e.ca, e.plain, e.stalls = e.atom(subsystemCA), e.atom(categoryPlain), e.atom(categoryStalls)
	e.nameLifetime, e.nameUpdate, e.nameContext = e.atom(nameLifetime), e.atom(nameUpdate), e.atom(nameContextInfo)
	e.context = e.compile(contextInfoFormat(e.form))
	for i := range e.lifetime {
		e.lifetime[i] = e.compile(lifetimeFormat(e.form, i == 1))
	}
	for i := range e.update {
		e.update[i] = e.compile(updateFormat(i&1 != 0, i&2 != 0, i&4 != 0))
	}
	e.restart()
	return e
}

func (e *encoder) atom(s string) atom {
	a, ok := e.atoms[s]
	if !ok {
		a = atom(len(e.strings))
		e.atoms[s] = a
		e.strings = append(e.strings, s)
		e.at = append(e.at, absent)
	}
	return a
}

func (e *encoder) compile(format string) *message {
	m := &message{format: e.atom(format)}
	for _, p := range parse(format) {
		if p.typ == typeNarrative {
			m.parts = append(m.parts, e.atom(p.text))
			continue
		}
		m.parts = append(m.parts, absent)
		m.args = append(m.args, argument{typ: p.typ, kind: e.atom(p.typ), name: e.atom(p.text)})
	}
	return m
}

// restart empties the stack and defines the tables again.
func (e *encoder) restart() {
	e.reset()
	e.resets++
	for i := range e.at {
		e.at[i] = absent
	}
	clear(e.processes)
	clear(e.threads)
	for i := range e.ends {
		e.ends[i].index = absent
	}
	for id, names := range e.names {
		e.null()
		e.null()
		e.text(tableNames[id])
		for _, n := range names {
			e.text(n)
		}
		e.group(len(names))
		e.table(id)
	}
	for _, word := range fixedWords {
		e.share(e.atom(word))
	}
}

// share makes sure that a is on the stack. Everything that a record copies is shared before its first argument: what is pushed
// later would be dropped with the arguments.
func (e *encoder) share(a atom) {
	if e.at[a] == absent {
		e.text(e.strings[a])
		e.at[a] = e.depth - 1
	}
}

func (e *encoder) copyAtom(a atom) { e.copy(e.at[a]) }

// keep pushes a number that stays, where the tap keeps numbers.
func (e *encoder) keep(v uint64) value {
	if !e.keepNumbers {
		return numValue(v)
	}
	e.num(v)
	return value{e.depth - 1, v, "", nil}
}

func (e *encoder) keepTime(t int64) value {
	v := e.keep(uint64(t))
	if v.index != absent {
		e.mark()
	}
	return v
}

func (e *encoder) time(v *value) {
	e.value(typeUint64, v)
	if v.index == absent {
		e.mark()
	}
}

// record begins a record of message m: all that its rows copy is on the stack afterwards.
func (e *encoder) record(m *message, name, subsystem, category atom, p *scene.Process, tid int64) row {
	r := row{message: m, typ: e.event, scope: e.scopeProcess, name: name, subsystem: subsystem, category: category, path: e.atom(p.Path)}
	if m.reset != e.resets {
		m.reset = e.resets
		e.share(m.format)
		e.share(e.narrative)
		for _, p := range m.parts {
			if p != absent {
				e.share(p)
			}
		}
		for _, a := range m.args {
			e.share(a.kind)
			e.share(a.name)
		}
		e.chunk(0x95ec3610e01a3730, 8) // some image's UUID
		e.chunk(0x9cd5b6b18c5b0560, 8)
		e.group(2)
		e.num(0x1000 + 4*uint64(m.format))
		e.group(2)
		m.location = e.depth - 1
	}
	e.share(name)
	e.share(subsystem)
	e.share(category)
	e.share(r.path)
	var ok bool
	if r.process, ok = e.processes[p.PID]; !ok {
		e.num(uint64(p.PID))
		e.copyAtom(e.todo)
		e.group(2)
		r.process = e.depth - 1
		e.processes[p.PID] = r.process
	}
	key := threadKey{p.PID, tid}
	if r.thread, ok = e.threads[key]; !ok {
		e.num(uint64(tid))
		e.copy(r.process)
		e.group(2)
		r.thread = e.depth - 1
		e.threads[key] = r.thread
	}
	return r
}

// arguments pushes a struct of type and value for each argument.
func (e *encoder) arguments(m *message, vals []value) {
	// Long texts stay on the stack like every other string, short ones are written in place.
	for i := range m.args {
		if v := &vals[i]; len(v.text) >= keptTextBytes {
			a := e.atom(v.text)
			e.share(a)
			v.index = e.at[a]
		}
	}
	e.args = e.depth
	for i := range m.args {
		e.copyAtom(m.args[i].kind)
		e.value(m.args[i].typ, &vals[i])
		e.group(2)
	}
}

func (e *encoder) value(typ string, v *value) {
	switch {
	case v.index != absent:
		e.copy(v.index)
	case typ == typeString:
		e.text(v.text)
	case typ == typeData || typ == typeUUID:
		e.data(v.bytes)
	default:
		e.num(v.num)
	}
}

// done drops the record's arguments. Now and then the encoder checks its stack.
func (e *encoder) done(m *message) {
	e.drop(len(m.args))
	if e.rows%16 == 0 {
		e.check()
	}
}

func (e *encoder) row(table int, r *row) {
	e.columnsOf(table, r, absent, nil)
}

// columnsOf writes one row; arg is the argument that a row of an -arg table is about.
func (e *encoder) columnsOf(table int, r *row, arg int, v *value) {
	m := r.message
	for _, c := range e.columns[table] {
		switch c {
		case colTime:
			e.time(&r.time)
		case colThread:
			e.copy(r.thread)
		case colProcess:
			e.copy(r.process)
		case colType:
			e.copyAtom(r.typ)
		case colScope:
			e.copyAtom(r.scope)
		case colIdentifier:
			e.value(typeUint64, &r.identifier)
		case colName:
			if table == tableLogArg {
				e.copyAtom(m.args[arg].name)
			} else {
				e.copyAtom(r.name)
			}
		case colFormat:
			e.copyAtom(m.format)
		case colBacktrace:
			e.backtrace(r)
		case colSubsystem:
			e.copyAtom(r.subsystem)
		case colCategory:
			e.copyAtom(r.category)
		case colSenderPath, colProcessPath:
			e.copyAtom(r.path)
		case colLocation:
			e.copy(m.location)
		case colArgName:
			e.copyAtom(m.args[arg].name)
		case colArgValue:
			e.value(m.args[arg].typ, v)
		case colMessage:
			if arg != absent {
				e.copy(e.args + arg)
			} else {
				e.message(m)
			}
		}
	}
	e.stack.row(table, len(e.columns[table]))
	e.rows++
}

func (e *encoder) backtrace(r *row) {
	if !r.backtrace {
		e.null()
		return
	}
	for i := range uint64(3) {
		e.num(0x1_8000_0000 + i*0x1_2344)
	}
	e.group(3)
}

// message is null when there is none, else one struct of [type, text] and the arguments' structs.
func (e *encoder) message(m *message) {
	if len(m.parts) == 0 {
		e.null()
		return
	}
	arg := e.args
	for _, p := range m.parts {
		if p == absent {
			e.copy(arg)
			arg++
			continue
		}
		e.copyAtom(e.narrative)
		e.copyAtom(p)
		e.group(2)
	}
	e.group(len(m.parts))
}

// see writes what the filter lets through.
func (e *encoder) see(ev *scene.Event, filter *Filter) {
	wanted := false
	if f := ev.Frame; f != nil {
		wanted = filter.wants(subsystemCA, category(f))
	} else {
		src := ev.Foreign.Source
		wanted = filter.wants(src.Subsystem, src.Category) && (filter.Logs || !src.Log)
	}
	if !wanted {
		return
	}
	if e.depth > e.limit {
		e.restart()
	}
	switch {
	case ev.Foreign != nil:
		e.foreign(ev.Mach, ev.Foreign)
	case e.form.update:
		e.frameUpdate(ev.Mach, ev.Frame, ev.Server)
	default:
		e.frameLifetime(ev.Mach, ev.Frame, ev.Server)
	}
}

func (e *encoder) category(f *scene.Frame) atom {
	if f.Stalled {
		return e.stalls
	}
	return e.plain
}

func (e *encoder) frameUpdate(mach int64, f *scene.Frame, server *scene.Process) {
	from := len(e.buf)
	m := e.update[variant(f)]
	r := e.record(m, e.nameUpdate, e.ca, e.category(f), server, f.Thread)
	r.identifier = e.keep(nativeID(f))
	r.time = e.keepTime(mach)
	e.bytes = appendContributors(e.bytes[:0], f)
	e.vals = append(e.vals[:0], numValue(uint64(f.Base)), numValue(args1(f)), numValue(args2(f)), dataValue(e.bytes),
		numValue(interval(f, f.Begin, f.End)), numValue(interval(f, f.RenderBegin, f.RenderEnd)), numValue(offset(f, f.Ready)&0xffffffff),
		numValue(uint64(f.Previous)))
	if hasGPU(f) {
		e.vals = append(e.vals, numValue(interval(f, f.GPUBegin, f.GPUEnd)))
	}
	if hasProcess(f) {
		e.vals = append(e.vals, numValue(interval(f, f.ProcessBegin, f.ProcessEnd)))
	}
	if hasTarget(f) {
		e.vals = append(e.vals, numValue(offset(f, f.DisplayTarget)))
	}
	e.arguments(m, e.vals)
	e.row(tableSignpost, &r)
	e.tell(f, from)
	e.done(m)
}

// frameLifetime writes the contributors and then the frame's two rows, which stand next to each other: the loader makes them of one event.
func (e *encoder) frameLifetime(mach int64, f *scene.Frame, server *scene.Process) {
	from := len(e.buf)
	seed := e.keep(uint64(f.FrameSeed))
	for i := range f.Contributors {
		e.contextInfo(mach, f, &f.Contributors[i], server, seed)
	}
	m := e.lifetime[0]
	if e.form.input && f.Input != 0 {
		m = e.lifetime[1]
	}
	r := e.record(m, e.nameLifetime, e.ca, e.category(f), server, f.Thread)
	r.identifier = e.keep(uint64(f.SwapID))
	end := e.keepTime(f.End)
	e.vals = append(e.vals[:0], seed, numValue(uint64(f.Refresh)), numValue(uint64(f.Buffers)), e.previous(f), numValue(uint64(f.Skip)),
		numValue(uint64(f.DisplayID)), numValue(uint64(f.SurfaceID)), numValue(uint64(f.DisplayTarget)), numValue(uint64(f.Input)))
	e.ends[f.DisplayID-1] = end
	e.arguments(m, e.vals)
	r.typ, r.time = e.begin, numValue(uint64(f.Begin))
	e.row(tableSignpost, &r)
	r.typ, r.time = e.end, end
	e.row(tableSignpost, &r)
	e.tell(f, from)
	e.done(m)
}

// previous is a copy of the display's last end where that is on the stack.
func (e *encoder) previous(f *scene.Frame) value {
	if last := e.ends[f.DisplayID-1]; last.index != absent && last.num == uint64(f.Previous) {
		return last
	}
	return numValue(uint64(f.Previous))
}

func (e *encoder) tell(f *scene.Frame, from int) {
	if e.told != nil {
		e.told(f, from)
	}
}

func (e *encoder) contextInfo(mach int64, f *scene.Frame, c *scene.Contributor, server *scene.Process, seed value) {
	m := e.context
	r := e.record(m, e.nameContext, e.ca, e.category(f), server, f.Thread)
	r.time, r.identifier = numValue(uint64(mach)), numValue(uint64(f.SwapID))
	e.vals = append(e.vals[:0], numValue(uint64(c.PID)), seed)
	if e.form.display {
		e.vals = append(e.vals, numValue(uint64(f.DisplayID)))
	}
	e.vals = append(e.vals, numValue(uint64(c.EarliestCommit)), numValue(uint64(c.Previous)), textValue(c.Name))
	e.arguments(m, e.vals)
	e.row(tableSignpost, &r)
	e.done(m)
}

func (e *encoder) foreign(mach int64, x *scene.Foreign) {
	src := x.Source
	m := e.sources[src]
	if m == nil {
		m = e.compile(src.Format)
		e.sources[src] = m
	}
	r := e.record(m, e.atom(src.Name), e.atom(src.Subsystem), e.atom(src.Category), x.Process, x.Thread)
	r.typ, r.time, r.identifier, r.backtrace = e.atom(x.Type), numValue(uint64(mach)), numValue(x.Identifier), src.Backtrace
	e.vals = e.vals[:0]
	for i := range x.Args {
		e.vals = append(e.vals, value{absent, x.Args[i].Num, x.Args[i].Text, x.Args[i].Bytes})
	}
	table := tableSignpost
	if src.Log {
		table = tableLog
	}
	e.arguments(m, e.vals)
	e.row(table, &r)
	if src.ArgRows {
		for i := range m.args {
			e.columnsOf(table+1, &r, i, &e.vals[i])
		}
	}
	e.done(m)
}
