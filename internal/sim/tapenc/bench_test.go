package tapenc

import (
	"testing"
	"time"

	"github.com/framebridge/framebridge/internal/sim/scene"
)

// BenchmarkFrame is what one frame at 120 Hz costs, from the scene to its share of a payload, contributors and others' signposts
// included. Eight phones make 960 frames a second.
func BenchmarkFrame(b *testing.B) {
	for _, os := range releases {
		b.Run(os, func(b *testing.B) {
			dev := scene.New(parseScene(b, "- {for: 1h, hz: 120, jank: {every: 100, delay: 40ms}}"), parseOS(b, os), 1)
			tap, err := Open(dev, 0, Config{})
			if err != nil {
				b.Fatal(err)
			}
			at, bytes := time.Duration(0), 0
			b.ReportAllocs()
			for n := 0; n < b.N; n += 12 {
				at += 100 * time.Millisecond
				payloads, err := tap.Collect(at)
				if err != nil {
					b.Fatal(err)
				}
				for _, p := range payloads {
					bytes += len(p.Bytes)
				}
			}
			b.ReportMetric(float64(bytes)/float64(b.N), "B/frame")
		})
	}
}
