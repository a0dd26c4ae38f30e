package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/framebridge/framebridge/internal/input"
)

// progress shows on a terminal how far something has come, if it takes longer than two seconds.
type progress struct {
	began  time.Time
	last   time.Time
	silent bool
}

const progressAfter, progressEvery = 2 * time.Second, time.Second / 2

func newProgress() *progress { return &progress{began: time.Now(), silent: !stderr.terminal} }

// newProgressBesideStdout is for what goes to stdout as it is made. That shows by itself how far it is, and a line between would only be
// in its way, unless stdout is a file.
func newProgressBesideStdout() *progress {
	p := newProgress()
	info, err := os.Stdout.Stat()
	p.silent = p.silent || err != nil || !info.Mode().IsRegular()
	return p
}

func (p *progress) show(format string, args ...any) {
	now := time.Now()
	if p.silent || now.Sub(p.began) < progressAfter || now.Sub(p.last) < progressEvery {
		return
	}
	p.last = now
	stderr.show(fmt.Sprintf(format, args...))
}

// megabytes shows how much has been read.
func (p *progress) megabytes(doing string, bytes int64) { p.show("%s %d MB", doing, bytes>>20) }

func (p *progress) end() { stderr.leave() }

// openLog opens a session's log for a command.
func openLog(ctx context.Context, path string, p *progress) (*input.Log, error) {
	log, err := input.OpenLog(ctx, path)
	if err != nil {
		return nil, unreadable(err)
	}
	log.Progress = func(bytes int64) { p.megabytes("reading", bytes) }
	return log, nil
}

// watchedFile tells how far the reading of a file has come.
type watchedFile struct {
	io.ReadCloser
	progress *progress
	bytes    int64
}

func (f *watchedFile) Read(b []byte) (int, error) {
	n, err := f.ReadCloser.Read(b)
	f.bytes += int64(n)
	f.progress.megabytes("reading", f.bytes)
	return n, err
}

// openFile opens a file for a command.
func openFile(ctx context.Context, path string, p *progress) (io.ReadCloser, error) {
	f, err := input.Open(ctx, path)
	if err != nil {
		return nil, unreadable(err)
	}
	return &watchedFile{ReadCloser: f, progress: p}, nil
}
