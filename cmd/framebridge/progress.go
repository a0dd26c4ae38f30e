package main

import (
	"fmt"
	"time"
)

// progress shows how far something has come, if it takes longer than two seconds.
type progress struct {
	began time.Time
	last  time.Time
}

const progressAfter, progressEvery = 2 * time.Second, time.Second / 2

func newProgress() *progress { return &progress{began: time.Now()} }

func (p *progress) show(format string, args ...any) {
	now := time.Now()
	if now.Sub(p.began) < progressAfter || now.Sub(p.last) < progressEvery {
		return
	}
	p.last = now
	stderr.show(fmt.Sprintf(format, args...))
}

func (p *progress) end() { stderr.leave() }
