package scene

import "math"

// What other programs log while frames are shown. Names, categories and messages of Apple's programs are those seen in recordings;
// the last ones of the list are there to be mistaken for frames.
var (
	srcCommit = Source{Subsystem: "com.apple.coreanimation", Category: "Transaction", Name: "Commit", Format: " seed=%{public, name=seed}#x"}
	srcLoop   = Source{Subsystem: "com.apple.coreanimation", Category: "performance_instrumentation", Name: "CompositeLoop"}
	srcRender = Source{Subsystem: "com.apple.coreanimation", Category: "IOMFBServer", Name: "RenderInterval",
		Format: "ID is update seed. refresh_interval=%{public, name=refresh_interval}llu display_id=%{public, name=display_id}#x "}
	srcNetwork = Source{Subsystem: "com.apple.network", Category: "activity", Name: "nw_activity",
		Format: "<%{public, name=domain}u : %{public, name=label}u [%{private, name=token}s]>", Backtrace: true}
	srcTile = Source{Subsystem: "com.example.app", Category: "PointsOfInterest", Name: "LoadTile",
		Format: "tile=%{public, name=tile}d kind=%{public, name=kind}s path=%{public, name=path}s" +
			" url=%{private, name=url}s ms=%{public, name=ms}.2f", ArgRows: true}
	srcSnapshot = Source{Subsystem: "com.example.app", Category: "Debug", Name: "Snapshot", Format: "state=%{public, name=state}.*P"}
	srcLog      = Source{Log: true, Subsystem: "com.apple.coreanimation", Category: "IOMFBServer",
		Format: "surface %{public}p of client %{public, uuid_t}.16P is late", ArgRows: true}
	// An app may call its signposts what it likes.
	srcLookalike = Source{Subsystem: "com.example.app", Category: "IOMFBServer", Name: "FrameLifetime",
		Format: "ID is swap ID. frame_seed=%{public, name=frame_seed}#x refresh_interval=%{public, name=refresh_interval}llu"}
)

var tilePaths = []string{"Tiles/0/first.png", "Tiles/0/another.png", "Tiles/1/the-last-one.png"}

// exclusive is OS_SIGNPOST_ID_EXCLUSIVE.
const exclusive = 0xeeeeb0b5b2b2eeee

// A snapshot has more 8-byte chunks than a short struct word can count.
const snapshotBytes = 2100

// foreign is the state of what others log.
type foreign struct {
	count  int
	seed   uint64
	event  Foreign
	args   [5]Arg
	state  [snapshotBytes]byte
	daemon Process
}

func (d *Device) planNoise(t int64) {
	d.nextNoise = never
	if d.spec.Noise > 0 && d.step.Event == "" {
		d.nextNoise = t + 1 + d.rng.Int64N(2*d.ticksPerSec/int64(d.spec.Noise))
	}
}

// emitForeign shows the next of them. Intervals take two turns: Begin and End.
func (d *Device) emitForeign(t int64) {
	x := &d.foreign
	turn := x.count
	x.count++
	x.daemon = Process{PID: 120, Name: "mobileassetd", Path: "/usr/libexec/mobileassetd"}
	e := &x.event
	*e = Foreign{Process: &d.processes[0], Thread: 0x2000 + d.rng.Int64N(4), Type: "Event", Identifier: exclusive}
	interval := func() {
		e.Type = "Begin"
		e.Identifier = uint64(turn) + 1
		if turn%2 == 1 {
			e.Type, e.Identifier = "End", uint64(turn)
		}
	}
	app := d.app(d.spec.App.Bundle)
	pick := turn / 2 % 16 // each source twice in a row, so that intervals close
	if app != nil {
		e.Process = app
	}
	set := func(s *Source, args ...Arg) { e.Source, e.Args = s, x.args[:copy(x.args[:], args)] }
	switch {
	case pick == 3:
		e.Process = &d.backboardd
		set(&srcRender, Arg{Num: uint64(d.displays[0].period)}, Arg{Num: 1})
		interval()
	case pick == 5:
		e.Process = &x.daemon
		set(&srcNetwork, Arg{Num: 62}, Arg{Num: 2}, Arg{})
		interval()
	case pick == 7:
		e.Process = &d.backboardd
		set(&srcLog, Arg{Num: 0x1_0480_0000 + d.rng.Uint64N(1<<20)*64}, Arg{Bytes: x.state[:16]})
		e.Type = "Default"
	case pick == 9:
		set(&srcTile, Arg{Num: uint64(turn)}, Arg{Text: "png"}, Arg{Text: tilePaths[turn/2%len(tilePaths)]}, Arg{},
			Arg{Num: math.Float64bits(1.25)})
		interval()
	case pick == 11:
		set(&srcLookalike, Arg{Num: uint64(d.frameSeed + 1)}, Arg{Num: 1})
		interval()
	case pick == 13 && turn%2 == 1:
		for i := range x.state {
			x.state[i] = byte(i + turn)
		}
		set(&srcSnapshot, Arg{Bytes: x.state[:]})
	case pick%2 == 0:
		x.seed += uint64(turn % 2)
		set(&srcCommit, Arg{Num: x.seed})
		interval()
	default:
		e.Process = &d.backboardd
		set(&srcLoop)
	}
	d.show(t, nil, e)
	d.planNoise(t)
}
