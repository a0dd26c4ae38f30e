package main

import (
	"fmt"
	"io"
	"time"
)

// progress shows how far something has come, if it takes longer than two seconds.
type progress struct {
	line  *liveLine
	began time.Time
	last  time.Time
}

const progressAfter, progressEvery = 2 * time.Second, time.Second / 2

func newProgress(w io.Writer) *progress { return &progress{line: newLiveLine(w), began: time.Now()} }

func (p *progress) show(format string, args ...any) {
	now := time.Now()
	if now.Sub(p.began) < progressAfter || now.Sub(p.last) < progressEvery {
		return
	}
	p.last = now
	p.line.text(fmt.Sprintf(format, args...))
}

func (p *progress) end() { p.line.end() }
