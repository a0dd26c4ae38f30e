package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/framebridge/framebridge/internal/capture"
	"github.com/framebridge/framebridge/internal/jsonline"
	"github.com/framebridge/framebridge/p95"
)

// liveLine shows how a recording goes: one line that is written over on a terminal, a line a second elsewhere.
type liveLine struct {
	w        io.Writer
	terminal bool
	shown    int // characters of the line that stands there
}

func newLiveLine(w io.Writer) *liveLine {
	f, isFile := w.(*os.File)
	return &liveLine{w: w, terminal: isFile && term.IsTerminal(int(f.Fd()))}
}

func (l *liveLine) show(p capture.Progress) { l.text(liveText(p)) }

func (l *liveLine) text(text string) {
	if !l.terminal {
		fmt.Fprintln(l.w, text)
		return
	}
	fmt.Fprintf(l.w, "\r%s%s", text, strings.Repeat(" ", max(0, l.shown-len(text))))
	l.shown = len(text)
}

func (l *liveLine) notice(text string) {
	l.end()
	fmt.Fprintln(l.w, "note:", text)
}

// end leaves the line that stands there.
func (l *liveLine) end() {
	if l.shown > 0 {
		fmt.Fprintln(l.w)
		l.shown = 0
	}
}

func liveText(p capture.Progress) string {
	r := p.Receipt
	value := string(r.Quality)
	if r.Quality == p95.Valid {
		value = scaled(r.ValueNs, 6, 3) + " ms"
	} else if r.Quality == p95.Warmup && r.LastClear.Known {
		value += " (" + string(r.LastClear.Reason) + ")"
	}
	text := fmt.Sprintf("%6.1f s  fps %3s  frame %7s ms  P95 %-18s  hitch %6s ms/s  missed %2s  gaps %d",
		float64(p.ElapsedNs)/1e9, scaled(r.Other.FPS, 0, 0), scaled(r.Other.FrameTimeNs, 6, 3), value,
		scaled(r.Other.HitchUsPerS, 3, 1), scaled(r.Other.MissedRefreshes, 0, 0), p.Totals.Gaps)
	if p.Source != "connected" {
		text += "  " + p.Source
		if code, _, ok := strings.Cut(p.Cause, ":"); ok {
			text += " (" + code + ")"
		}
	}
	return text
}

// scaled is n / 10^places for people, cut (not rounded) to so many decimals; "-" for null.
func scaled(n p95.Int, places, decimals int) string {
	if !n.Known {
		return "-"
	}
	cut := n.N
	for range places - decimals {
		cut /= 10
	}
	return string(jsonline.AppendDecimal(nil, cut, decimals))
}
