package adapter

import (
	"fmt"
	"io"
)

// SurfaceInterval is a row of Instruments' displayed-surfaces-interval: a display showed one surface for so long. It is a witness beside
// FrameLifetime and no record: it begins with its own recording, and has no frame seed and no ticks.
type SurfaceInterval struct {
	Display             string
	StartNs, DurationNs int64 // StartNs since the trace began
}

// ReadXctraceSurfaces reads a displayed-surfaces-interval export of Instruments.
func ReadXctraceSurfaces(r io.Reader) ([]SurfaceInterval, error) {
	var intervals []SurfaceInterval
	export := newExportReader(r)
	err := export.rows("displayed-surfaces-interval", func(values map[string]*element) error {
		if len(intervals) == maxXctraceFrames {
			return export.fail("more than %d surfaces; export a shorter part of the recording", maxXctraceFrames)
		}
		start, okStart := values["start"].number()
		duration, okDuration := values["duration"].number()
		if !okStart || !okDuration || start > maxXctraceNs || duration > maxXctraceNs {
			return export.fail("a displayed surface without start and duration in ns")
		}
		i := SurfaceInterval{StartNs: int64(start), DurationNs: int64(duration)}
		if e := values["display-name"]; e != nil {
			i.Display = e.text
		}
		intervals = append(intervals, i)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("displayed surfaces: %w", err)
	}
	return intervals, nil
}
