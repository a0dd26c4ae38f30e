package adapter

import "github.com/framebridge/framebridge/dtx/tap"

// categoryID is one of the categories that frames are told under; the last bit says which of a subsystem's two it is.
type categoryID uint8

const (
	categoryIOMFB categoryID = iota
	categoryIOMFBStalls
	categorySkyLight
	categorySkyLightStalls
	categoryCount
)

// twin is the other category of the same subsystem: the device uses one of the two for each frame.
func (c categoryID) twin() categoryID { return c ^ 1 }

// frameCategories are the render server's own, on iOS and on macOS.
var frameCategories = [categoryCount]struct{ subsystem, category string }{
	categoryIOMFB:          {"com.apple.coreanimation", "IOMFBServer"},
	categoryIOMFBStalls:    {"com.apple.coreanimation", "IOMFBServer.Stalls"},
	categorySkyLight:       {"com.apple.SkyLight", "tracing"},
	categorySkyLightStalls: {"com.apple.SkyLight", "tracing.stalls"},
}

func frameCategory(subsystem, category string) (id categoryID, ok bool) {
	for i, c := range frameCategories {
		if c.subsystem == subsystem && c.category == category {
			return categoryID(i), true
		}
	}
	return 0, false
}

type eventType uint8

const (
	eventUnknown eventType = iota
	eventNone              // null
	eventBegin
	eventEnd
	eventSingle // "Event": one moment, no interval
)

func eventTypeOf(word []byte) eventType {
	switch string(word) {
	case "Begin":
		return eventBegin
	case "End":
		return eventEnd
	case "Event":
		return eventSingle
	}
	return eventUnknown
}

// signpost is one row in the hands of a form.
type signpost struct {
	category   categoryID
	event      eventType
	time       tap.Value
	identifier tap.Value
	args       arguments
}

// reading is what a frame form made of one row.
type reading struct {
	whole bool // a frame is complete, in the record
	// fault is why it cannot be judged, a word of Record.QualityReason; "" where it can.
	fault string
	// unreadable says, where it is not empty, what kept the row from being read at all.
	unreadable string
}

// frameForm is one of the native forms in which a release tells of frames. A new one costs a file, with the names of its arguments (a
// resolver) and an implementation of this, and a line in New.
type frameForm interface {
	// read takes one row. Where that completes a frame, its native integers and presentFields are in r, and the processes that
	// contributed to it, if the form tells them, in c.
	read(s *signpost, r *Record, c *Contributors) reading
	// reset forgets half frames, because the connection ended.
	reset()
}
