package capture

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/framebridge/framebridge/adapter"
	"github.com/framebridge/framebridge/dtx"
	"github.com/framebridge/framebridge/dtx/tap"
	"github.com/framebridge/framebridge/internal/device"
)

// Survey is what a phone's tap sends while somebody listens.
type Survey struct {
	Rows      int64               `json:"rows"`
	Frames    int64               `json:"frames"`   // that can be used
	Unusable  int64               `json:"unusable"` // of a known form's name, but without what it needs
	Present   []string            `json:"present"`  // arguments that an unusable one had
	Gaps      int64               `json:"gaps"`
	Forms     []string            `json:"forms"` // names of the frame forms that were seen
	ByDisplay map[int64]int64     `json:"framesByDisplay"`
	Names     []adapter.NameCount `json:"names"`
	// AdjustmentTicks is a constant by which frames' ends lie after the next frames' previous; null where there is none.
	AdjustmentTicks *int64 `json:"adjustmentTicks"`
	NoDisplayIDs    bool   `json:"noDisplayIds"`
}

// DisplayText names the displays that frames were on.
func (s *Survey) DisplayText() string { return displayList(s.ByDisplay) }

// Listen asks the phone's tap for every signpost there is, and counts them. Nothing is recorded.
func Listen(ctx context.Context, phone *device.Phone, howLong time.Duration) (*Survey, error) {
	in, err := phone.OpenInstruments(ctx)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	info, err := in.DeviceInfo(ctx)
	if err != nil {
		return nil, err
	}
	clocks, err := info.MachTime(ctx)
	if err != nil {
		return nil, err
	}
	t, err := in.StartTap(ctx, clocks.Timebase, "")
	if err != nil {
		return nil, err
	}
	a := adapter.New(adapter.SourceGoIOS, "", "")
	if err := a.Bind(adapter.Binding{SourceEpoch: 1, Timebase: clocks.Timebase}); err != nil {
		return nil, err
	}
	s := &Survey{ByDisplay: map[int64]int64{}}
	listening, cancel := context.WithTimeout(ctx, howLong)
	defer cancel()
	for {
		m, err := t.Receive(listening)
		if errors.Is(listening.Err(), context.DeadlineExceeded) {
			break
		}
		if err != nil {
			return nil, err
		}
		if m.Type == dtx.TypeData {
			a.Message(m.HostNs, m.Payload, (*surveyRows)(s))
		}
	}
	counts := a.Counts()
	s.Rows, s.Names = counts.Rows, counts.Names
	if ticks, ok := counts.Offset.Adjustment(); ok {
		s.AdjustmentTicks = &ticks
	}
	s.NoDisplayIDs = s.Frames > 0 && s.ByDisplay[0] == s.Frames
	return s, nil
}

type surveyRows Survey

func (s *surveyRows) Record(r *adapter.Record) {
	if r.Quality == adapter.QualityUnsupportedSchema {
		s.Unusable++
		s.Present = append(s.Present[:0], r.PresentFields...)
		return
	}
	s.Frames++
	s.ByDisplay[r.DisplayID]++
	if !slices.Contains(s.Forms, r.Name) {
		s.Forms = append(s.Forms, r.Name)
	}
}
func (s *surveyRows) Contributors(*adapter.Contributors) {}
func (s *surveyRows) Gap(tap.Gap)                        { s.Gaps++ }
