package tapenc

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/framebridge/framebridge/internal/sim/scene"
)

// WireConfig says what WriteWire writes.
type WireConfig struct {
	Spec     scene.Spec
	OS       scene.OS
	Seed     uint64        // of the scene, where Spec has none, and of the tap
	Duration time.Duration // host time, from the beginning of the scene
	Interval time.Duration // between payloads, as ur: 0 is 100 ms
	Tap      Config        // Truth and Seed are WriteWire's own
	// HostNs is the host's clock at the beginning; 0 is a plausible one.
	HostNs int64
}

const (
	defaultInterval = 100 * time.Millisecond
	defaultHostNs   = 91_000_000_000_000
)

// heartbeat is what the tap says once a second: a binary property list, here an empty dictionary.
var heartbeat = []byte("bplist00\xd0\x08" +
	"\x00\x00\x00\x00\x00\x00\x01\x01" + // sizes of an offset and of a reference
	"\x00\x00\x00\x00\x00\x00\x00\x01" + // objects
	"\x00\x00\x00\x00\x00\x00\x00\x00" + // the top one
	"\x00\x00\x00\x00\x00\x00\x00\x09") // where the offsets are

// WriteWire lets a phone live through a scene and writes the payloads of a tap on it as a wire file: little-endian u32 length, i64
// host ns, bytes; length 0 where the tap was opened anew after a restart. Beside it, truth gets one JSON line for each frame in
// the order of their ends in the stream. It returns the number of frames.
func WriteWire(wire, truth io.Writer, c WireConfig) (frames int64, err error) {
	if c.Duration <= 0 || c.Interval < 0 {
		return 0, fmt.Errorf("a duration of %s, a payload every %s: both must be above zero", c.Duration, c.Interval)
	}
	if c.Interval == 0 {
		c.Interval = defaultInterval
	}
	if c.HostNs == 0 {
		c.HostNs = defaultHostNs
	}
	w, lines := bufio.NewWriterSize(wire, 1<<18), bufio.NewWriterSize(truth, 1<<18)
	put := func(host time.Duration, b []byte) {
		var head [12]byte
		binary.LittleEndian.PutUint32(head[:], uint32(len(b)))
		binary.LittleEndian.PutUint64(head[4:], uint64(c.HostNs+int64(host)))
		w.Write(head[:]) // a bufio.Writer keeps its first error for Flush
		w.Write(b)
	}
	dev := scene.New(c.Spec, c.OS, c.Seed)
	c.Tap.Seed = c.Seed
	c.Tap.Truth = func(t Truth) {
		if t.Last != 0 {
			frames++
			lines.Write(t.Line)
			lines.WriteByte('\n')
		}
	}
	var tap *Tap
	opened := 0
	for host := time.Duration(0); host <= c.Duration; host += c.Interval {
		at := dev.DeviceTime(host)
		if tap == nil {
			if tap, err = Open(dev, at, c.Tap); errors.Is(err, scene.ErrDown) {
				continue
			} else if err != nil {
				return 0, err
			}
			if opened++; opened > 1 {
				put(host, nil)
			}
		}
		payloads, err := tap.Collect(at)
		if errors.Is(err, ErrGone) {
			tap.Close()
			tap = nil
			continue
		} else if err != nil {
			return 0, err
		}
		if host%time.Second < c.Interval {
			put(host, heartbeat)
		}
		for _, p := range payloads {
			put(host, p.Bytes)
		}
	}
	if tap != nil {
		tap.Close()
	}
	return frames, errors.Join(w.Flush(), lines.Flush())
}
