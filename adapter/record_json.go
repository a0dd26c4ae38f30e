package adapter

import (
	"fmt"
	"strconv"

	"github.com/framebridge/framebridge/internal/jsonline"
)

// AppendJSON appends r as the event line seq, without the newline, in the field order of raw-record.md. What r does not have is
// null, or left out where the contract says so. It allocates nothing where dst has room: RecordJSONBytes is enough for most records.
func (r *Record) AppendJSON(dst []byte, seq int64) []byte {
	b := dst
	b = append(b, `{"seq":`...)
	b = strconv.AppendInt(b, seq, 10)
	b = r.number(b, `,"hostNs":`, HasHostNs, r.HostNs)
	b = append(b, `,"type":"`+RecordType+`","schema":`...)
	b = textOrNull(b, r.Schema)
	b = r.number(b, `,"rawSequence":`, HasRawSequence, r.RawSequence)
	b = append(b, `,"sessionId":`...)
	b = textOrNull(b, r.SessionID)
	b = append(b, `,"source":`...)
	if r.Fields&HasSource != 0 {
		b = append(b, `{"service":`...)
		b = jsonline.AppendString(b, r.Source.Service)
		b = append(b, `,"channel":`...)
		b = strconv.AppendInt(b, r.Source.Channel, 10)
		b = append(b, `,"selector":`...)
		b = jsonline.AppendString(b, r.Source.Selector)
		b = append(b, `,"adapter_id":`...)
		b = jsonline.AppendString(b, r.Source.AdapterID)
		b = append(b, `,"adapter_version":`...)
		b = strconv.AppendInt(b, r.Source.AdapterVersion, 10)
		b = append(b, `,"scope":`...)
		b = jsonline.AppendString(b, r.Source.Scope)
		b = append(b, `,"raw_unit":`...)
		b = jsonline.AppendString(b, r.Source.RawUnit)
		b = append(b, '}')
	} else {
		b = append(b, "null"...)
	}
	b = append(b, `,"target":`...)
	if r.Fields&HasTarget != 0 {
		b = append(b, `{"bundleId":`...)
		b = jsonline.AppendString(b, r.Target.BundleID)
		b = append(b, `,"pid":`...)
		b = strconv.AppendInt(b, r.Target.PID, 10)
		b = append(b, `,"generation":`...)
		b = strconv.AppendInt(b, r.Target.Generation, 10)
		b = append(b, '}')
	} else {
		b = append(b, "null"...)
	}
	b = r.number(b, `,"sourceEpoch":`, HasSourceEpoch, r.SourceEpoch)
	b = r.number(b, `,"reconnectGeneration":`, HasReconnectGeneration, r.ReconnectGeneration)
	if r.Policy != "" {
		b = append(b, `,"p95PublicationPolicy":`...)
		b = jsonline.AppendString(b, r.Policy)
	}

	b = append(b, `,"payload":{"subsystem":`...)
	b = jsonline.AppendString(b, r.Subsystem)
	b = append(b, `,"category":`...)
	b = jsonline.AppendString(b, r.Category)
	b = append(b, `,"name":`...)
	b = jsonline.AppendString(b, r.Name)
	b = r.number(b, `,"swapId":`, HasSwapID, r.SwapID)
	b = r.number(b, `,"frameSeed":`, HasFrameSeed, r.FrameSeed)
	b = r.number(b, `,"displayId":`, HasDisplayID, r.DisplayID)
	b = r.number(b, `,"surfaceId":`, HasSurfaceID, r.SurfaceID)
	b = r.number(b, `,"beginMach":`, HasBeginMach, r.BeginMach)
	b = r.number(b, `,"endMach":`, HasEndMach, r.EndMach)
	b = r.number(b, `,"previousMach":`, HasPreviousMach, r.PreviousMach)
	b = r.number(b, `,"refreshIntervalMach":`, HasRefreshIntervalMach, r.RefreshIntervalMach)
	b = r.number(b, `,"bufferCount":`, HasBufferCount, r.BufferCount)
	b = r.number(b, `,"skipRequest":`, HasSkipRequest, r.SkipRequest)
	b = r.reported(b, `,"displayTargetMach":`, HasDisplayTargetMach, r.DisplayTargetMach)
	b = r.reported(b, `,"inputMach":`, HasInputMach, r.InputMach)
	b = r.reported(b, `,"renderBeginMach":`, HasRenderBeginMach, r.RenderBeginMach)
	b = r.reported(b, `,"renderEndMach":`, HasRenderEndMach, r.RenderEndMach)
	b = r.reported(b, `,"nativeId":`, HasNativeID, r.NativeID)
	b = append(b, `,"timebase":`...)
	if r.Fields&HasTimebase != 0 {
		b = append(b, `{"numer":`...)
		b = strconv.AppendInt(b, r.Timebase.Numer, 10)
		b = append(b, `,"denom":`...)
		b = strconv.AppendInt(b, r.Timebase.Denom, 10)
		b = append(b, '}')
	} else {
		b = append(b, "null"...)
	}
	b = r.number(b, `,"presentationNs":`, HasPresentationNs, r.PresentationNs)
	b = r.decimal(b, `,"frameTimeMs":`, HasFrameTime, r.FrameTimeNs, msPlaces)
	b = r.decimal(b, `,"lifetimeMs":`, HasLifetime, r.LifetimeNs, msPlaces)
	b = r.decimal(b, `,"refreshMultiple":`, HasRefreshMultiple, r.RefreshMultipleMilli, multiplePlaces)
	b = append(b, `,"quality":`...)
	if r.Fields&HasQuality != 0 {
		b = jsonline.AppendString(b, r.Quality.String())
	} else {
		b = append(b, "null"...)
	}
	b = append(b, `,"qualityReason":`...)
	b = jsonline.AppendString(b, r.QualityReason)
	b = append(b, `,"decoded":`...)
	b = strconv.AppendBool(b, r.Decoded)
	b = append(b, `,"verified":`...)
	b = strconv.AppendBool(b, r.Verified)
	b = r.number(b, `,"droppedBefore":`, HasDroppedBefore, r.DroppedBefore)
	b = r.reported(b, `,"predecessorSkewMach":`, HasPredecessorSkew, r.PredecessorSkewMach)
	if r.Quality == QualityUnsupportedSchema || len(r.PresentFields) > 0 {
		b = append(b, `,"presentFields":[`...)
		for i, name := range r.PresentFields {
			if i > 0 {
				b = append(b, ',')
			}
			b = jsonline.AppendString(b, name)
		}
		b = append(b, ']')
	}
	return append(b, "}}"...)
}

const (
	// RecordJSONBytes is room enough for a record of this program whose target has an ordinary bundle id.
	RecordJSONBytes = 1400

	msPlaces       = 6 // frameTimeMs and lifetimeMs are ns / 10^6
	multiplePlaces = 3 // refreshMultiple is in thousandths
)

// number writes a member that is always there, null where r does not have it.
func (r *Record) number(b []byte, key string, has Fields, n int64) []byte {
	b = append(b, key...)
	if r.Fields&has == 0 {
		return append(b, "null"...)
	}
	return strconv.AppendInt(b, n, 10)
}

func (r *Record) decimal(b []byte, key string, has Fields, scaled int64, places int) []byte {
	b = append(b, key...)
	if r.Fields&has == 0 {
		return append(b, "null"...)
	}
	return jsonline.AppendDecimal(b, scaled, places)
}

// reported writes a member that is left out where r does not have it.
func (r *Record) reported(b []byte, key string, has Fields, n int64) []byte {
	if r.Fields&has == 0 {
		return b
	}
	return strconv.AppendInt(append(b, key...), n, 10)
}

func textOrNull(b []byte, s string) []byte {
	if s == "" {
		return append(b, "null"...)
	}
	return jsonline.AppendString(b, s)
}

// ParseRecord reads one event line of type display.frame-lifetime.raw; see RecordParser.Parse.
func ParseRecord(line []byte) (r Record, seq int64, err error) {
	var p RecordParser
	seq, err = p.Parse(line, &r)
	return r, seq, err
}

// RecordParser reads many event lines without allocating for each: it keeps the strings of the line before and uses them
// again where they are the same. The zero RecordParser is ready.
type RecordParser struct {
	scan  jsonline.Scanner
	texts [textCount]string
	names []string // the last PresentFields
}

// Places of RecordParser.texts.
const (
	textSession = iota
	textSchema
	textService
	textSelector
	textAdapterID
	textScope
	textRawUnit
	textBundle
	textPolicy
	textSubsystem
	textCategory
	textName
	textReason
	textCount
)

// Parse reads the record in line into r; r.PresentFields is valid until the next Parse. seq is 0 where the line has none.
//
// An error rejects the line as a whole: it is no strict JSON object, or a number stands outside int64, a fraction where an integer
// belongs, or a bool where a number belongs. A member that is missing, null or of another kind merely leaves its bit in r.Fields
// (or its string) unset; what that means is for the window to say.
func (p *RecordParser) Parse(line []byte, r *Record) (seq int64, err error) {
	*r = Record{}
	p.names = p.names[:0]
	s := &p.scan
	isRecord := false
	s.Start(line)
	for s.Next() {
		switch string(s.Key()) {
		case "seq":
			seq, _ = s.Int64()
		case "hostNs":
			p.integer(r, HasHostNs, &r.HostNs)
		case "type":
			text, _ := s.Bytes()
			isRecord = string(text) == RecordType
		case "schema":
			p.text(textSchema, &r.Schema)
		case "rawSequence":
			p.integer(r, HasRawSequence, &r.RawSequence)
		case "sessionId":
			p.text(textSession, &r.SessionID)
		case "source":
			p.source(r)
		case "target":
			p.target(r)
		case "sourceEpoch":
			p.integer(r, HasSourceEpoch, &r.SourceEpoch)
		case "reconnectGeneration":
			p.integer(r, HasReconnectGeneration, &r.ReconnectGeneration)
		case "p95PublicationPolicy":
			p.text(textPolicy, &r.Policy)
		case "payload":
			if s.Object() {
				for s.Next() {
					p.payload(r)
				}
			}
		}
	}
	if len(p.names) > 0 {
		r.PresentFields = p.names
	}
	if err := s.End(); err != nil {
		return 0, fmt.Errorf("raw record: %w", err)
	}
	if !isRecord {
		return 0, fmt.Errorf("raw record: want a line of type %q", RecordType)
	}
	return seq, nil
}

func (p *RecordParser) payload(r *Record) {
	s := &p.scan
	switch string(s.Key()) {
	case "subsystem":
		p.text(textSubsystem, &r.Subsystem)
	case "category":
		p.text(textCategory, &r.Category)
	case "name":
		p.text(textName, &r.Name)
	case "swapId":
		p.integer(r, HasSwapID, &r.SwapID)
	case "frameSeed":
		p.integer(r, HasFrameSeed, &r.FrameSeed)
	case "displayId":
		p.integer(r, HasDisplayID, &r.DisplayID)
	case "surfaceId":
		p.integer(r, HasSurfaceID, &r.SurfaceID)
	case "beginMach":
		p.integer(r, HasBeginMach, &r.BeginMach)
	case "endMach":
		p.integer(r, HasEndMach, &r.EndMach)
	case "previousMach":
		p.integer(r, HasPreviousMach, &r.PreviousMach)
	case "refreshIntervalMach":
		p.integer(r, HasRefreshIntervalMach, &r.RefreshIntervalMach)
	case "bufferCount":
		p.integer(r, HasBufferCount, &r.BufferCount)
	case "skipRequest":
		p.integer(r, HasSkipRequest, &r.SkipRequest)
	case "displayTargetMach":
		p.integer(r, HasDisplayTargetMach, &r.DisplayTargetMach)
	case "inputMach":
		p.integer(r, HasInputMach, &r.InputMach)
	case "renderBeginMach":
		p.integer(r, HasRenderBeginMach, &r.RenderBeginMach)
	case "renderEndMach":
		p.integer(r, HasRenderEndMach, &r.RenderEndMach)
	case "nativeId":
		p.integer(r, HasNativeID, &r.NativeID)
	case "timebase":
		p.timebase(r)
	case "presentationNs":
		p.integer(r, HasPresentationNs, &r.PresentationNs)
	case "frameTimeMs":
		p.decimal(r, HasFrameTime, &r.FrameTimeNs, msPlaces)
	case "lifetimeMs": // no figure that the window compares: an inexact one is as good as none
		if n, exact, ok := s.Decimal(msPlaces); ok && exact {
			r.LifetimeNs, r.Fields = n, r.Fields|HasLifetime
		}
	case "refreshMultiple":
		p.decimal(r, HasRefreshMultiple, &r.RefreshMultipleMilli, multiplePlaces)
	case "quality":
		if text, ok := s.Bytes(); ok {
			if r.Quality = parseQuality(text); r.Quality != QualityUnknown {
				r.Fields |= HasQuality
			}
		}
	case "qualityReason":
		p.text(textReason, &r.QualityReason)
	case "decoded":
		r.Decoded, _ = s.Bool()
	case "verified":
		r.Verified, _ = s.Bool()
	case "droppedBefore":
		p.integer(r, HasDroppedBefore, &r.DroppedBefore)
	case "predecessorSkewMach":
		p.integer(r, HasPredecessorSkew, &r.PredecessorSkewMach)
	case "presentFields":
		if s.Array() {
			for s.Next() {
				if text, ok := s.Bytes(); ok {
					p.names = append(p.names, string(text))
				}
			}
		}
	}
}

func (p *RecordParser) source(r *Record) {
	s := &p.scan
	if !s.Object() {
		return
	}
	var src Source
	there := 0
	count := func(ok bool) {
		if ok {
			there++
		}
	}
	for s.Next() {
		switch string(s.Key()) {
		case "service":
			count(p.text(textService, &src.Service))
		case "channel":
			n, ok := s.Int64()
			src.Channel = n
			count(ok)
		case "selector":
			count(p.text(textSelector, &src.Selector))
		case "adapter_id":
			count(p.text(textAdapterID, &src.AdapterID))
		case "adapter_version":
			n, ok := s.Int64()
			src.AdapterVersion = n
			count(ok)
		case "scope":
			count(p.text(textScope, &src.Scope))
		case "raw_unit":
			count(p.text(textRawUnit, &src.RawUnit))
		}
	}
	if there == 7 {
		r.Source, r.Fields = src, r.Fields|HasSource
	}
}

func (p *RecordParser) target(r *Record) {
	s := &p.scan
	if !s.Object() {
		return
	}
	var t Target
	var bundle, pid, generation bool
	for s.Next() {
		switch string(s.Key()) {
		case "bundleId":
			bundle = p.text(textBundle, &t.BundleID)
		case "pid":
			t.PID, pid = s.Int64()
		case "generation":
			t.Generation, generation = s.Int64()
		}
	}
	if bundle && pid && generation {
		r.Target, r.Fields = t, r.Fields|HasTarget
	}
}

func (p *RecordParser) timebase(r *Record) {
	s := &p.scan
	if !s.Object() {
		return
	}
	var t Timebase
	var numer, denom bool
	for s.Next() {
		switch string(s.Key()) {
		case "numer":
			t.Numer, numer = s.Int64()
		case "denom":
			t.Denom, denom = s.Int64()
		}
	}
	if numer && denom {
		r.Timebase, r.Fields = t, r.Fields|HasTimebase
	}
}

func (p *RecordParser) integer(r *Record, has Fields, to *int64) {
	if n, ok := p.scan.Int64(); ok {
		*to, r.Fields = n, r.Fields|has
	}
}

func (p *RecordParser) decimal(r *Record, has Fields, to *int64, places int) {
	if n, exact, ok := p.scan.Decimal(places); ok {
		*to, r.Fields = n, r.Fields|has
		if !exact {
			*to, r.InexactFigures = 0, true
		}
	}
}

func (p *RecordParser) text(place int, to *string) (ok bool) {
	text, ok := p.scan.Bytes()
	if ok && p.texts[place] != string(text) {
		p.texts[place] = string(text)
	}
	if ok {
		*to = p.texts[place]
	}
	return ok
}
