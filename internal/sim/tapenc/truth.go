package tapenc

import (
	"encoding/json"
	"strconv"

	"github.com/framebridge/framebridge/internal/sim/scene"
)

// appendTruth writes what the rows of f tell in this form, as one JSON object: the members of the .frames.jsonl files and, where
// told, displayTargetMach, inputMach, renderBeginMach, renderEndMach, nativeId and contributors.
func appendTruth(dst []byte, o form, f *scene.Frame) []byte {
	name, display, surface := nameLifetime, f.DisplayID, f.SurfaceID
	if o.update {
		name, surface = nameUpdate, 0
	} else if !o.display {
		display, surface = 0, 0
	}
	dst = append(dst, `{"name":"`...)
	dst = append(dst, name...)
	dst = append(dst, `","category":"`...)
	dst = append(dst, category(f)...)
	dst = append(dst, '"')
	member := func(key string, v int64) {
		dst = append(dst, `,"`...)
		dst = append(dst, key...)
		dst = append(dst, `":`...)
		dst = strconv.AppendInt(dst, v, 10)
	}
	optional := func(key string, v int64, told bool) {
		if told && v != 0 {
			member(key, v)
		}
	}
	member("swapId", f.SwapID)
	member("frameSeed", f.FrameSeed)
	member("displayId", display)
	member("surfaceId", surface)
	member("beginMach", f.Begin)
	member("endMach", f.End)
	member("previousMach", f.Previous)
	member("refreshIntervalMach", f.Refresh)
	member("bufferCount", f.Buffers)
	member("skipRequest", f.Skip)
	optional("displayTargetMach", f.DisplayTarget, o.target || o.update && hasTarget(f))
	optional("inputMach", f.Input, o.input)
	optional("renderBeginMach", f.RenderBegin, o.update)
	optional("renderEndMach", f.RenderEnd, o.update)
	if o.update {
		member("nativeId", int64(nativeID(f)))
	}
	dst = append(dst, `,"contributors":[`...)
	for i := range f.Contributors {
		c := &f.Contributors[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"pid":`...)
		dst = strconv.AppendInt(dst, c.PID, 10)
		if !o.update {
			name, _ := json.Marshal(c.Name)
			dst = append(append(dst, `,"name":`...), name...)
		}
		dst = append(dst, '}')
	}
	return append(dst, "]}"...)
}
