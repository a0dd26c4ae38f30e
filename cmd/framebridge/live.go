package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/framebridge/framebridge/internal/capture"
	"github.com/framebridge/framebridge/internal/jsonline"
	"github.com/framebridge/framebridge/p95"
)

// screen is standard error, shared by the live line and by whatever else is written there: what comes while a line stands there goes
// above it. Writing may block, as on a terminal that was stopped.
type screen struct {
	mu       sync.Mutex
	w        io.Writer
	terminal bool
	columns  int
	line     string // that stands there
}

var stderr = newScreen(os.Stderr)

func newScreen(f *os.File) *screen {
	s := &screen{w: f, terminal: term.IsTerminal(int(f.Fd()))}
	if s.terminal {
		s.columns, _, _ = term.GetSize(int(f.Fd()))
	}
	return s
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.line != "" {
		fmt.Fprint(s.w, "\r", strings.Repeat(" ", len(s.line)), "\r")
	}
	n, err := s.w.Write(b)
	if s.line != "" {
		fmt.Fprint(s.w, s.line)
	}
	return n, err
}

// show puts a line there: over the one before on a terminal, under it elsewhere.
func (s *screen) show(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.terminal {
		fmt.Fprintln(s.w, text)
		return
	}
	if s.columns > 1 && len(text) > s.columns-1 { // one that wraps cannot be written over
		text = text[:s.columns-1]
	}
	fmt.Fprintf(s.w, "\r%s%s", text, strings.Repeat(" ", max(0, len(s.line)-len(text))))
	s.line = text
}

// leave ends the line that stands there.
func (s *screen) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.line != "" {
		fmt.Fprintln(s.w)
		s.line = ""
	}
}

// output is standard output. What could not be written there is an error of the command in the end, unless the reader went away.
type output struct {
	*os.File
	mu  sync.Mutex
	err error // the first
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.File.Write(b)
	if err != nil && !errors.Is(err, syscall.EPIPE) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.err = cmp.Or(o.err, err)
	}
	return n, err
}

func (o *output) lost() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// outliveReaders has a reader that went away end the showing, and not the making of a session.
func outliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// presenter shows how a recording goes, in a goroutine of its own: a terminal that is stopped, or a pipe that nobody reads, must hold up
// nothing. Of live lines only the newest waits; of lines for programs many do, and any that are dropped are counted.
type presenter struct {
	live  chan string
	lines chan []byte
	done  chan struct{}
	lost  int
}

// maxWaitingLines of publications are a quarter of an hour.
const maxWaitingLines = 1000

// presentationPatience is how long the end waits for what has still to be shown.
const presentationPatience = 2 * time.Second

func newPresenter(out io.Writer) *presenter {
	p := &presenter{live: make(chan string, 1), lines: make(chan []byte, maxWaitingLines), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		live, lines := p.live, p.lines
		for live != nil || lines != nil {
			select {
			case text, ok := <-live:
				if !ok {
					live = nil
					continue
				}
				stderr.show(text)
			case line, ok := <-lines:
				if !ok {
					lines = nil
					continue
				}
				out.Write(line)
			}
		}
		stderr.leave()
	}()
	return p
}

func (p *presenter) show(text string) {
	select {
	case <-p.live: // an older one that nobody has seen
	default:
	}
	p.live <- text
}

func (p *presenter) print(line []byte) {
	select {
	case p.lines <- line:
	default:
		p.lost++
	}
}

// end waits a little for what has still to be shown. It reports whether out can be written to.
func (p *presenter) end() bool {
	close(p.live)
	close(p.lines)
	select {
	case <-p.done:
		return true
	case <-time.After(presentationPatience):
		return false
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
	text := fmt.Sprintf("%5.0f s  fps %3s  frame %7s ms  P95 %-9s  hitch %s ms/s  missed %s  gaps %d",
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
