// Package input opens the files and logs that a command reads, and lets go of them when the command is not wanted any more.
package input

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/framebridge/framebridge/ledger"
)

// Open opens a file for reading. Reading ends with the error of ctx when that ends, even where nobody writes into a pipe: the file is
// opened and read in a goroutine, which is left behind if it hangs.
func Open(ctx context.Context, path string) (io.ReadCloser, error) {
	r, w := io.Pipe()
	opened := make(chan error, 1)
	go func() {
		f, err := os.Open(path)
		opened <- err
		if err != nil {
			return
		}
		defer f.Close()
		_, err = io.Copy(w, f)
		w.CloseWithError(err)
	}()
	context.AfterFunc(ctx, func() { w.CloseWithError(ctx.Err()) })
	select {
	case err := <-opened:
		return r, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// ErrUnreadable says that a log cannot be read, or not to its end, or that no line of it is an event.
var ErrUnreadable = errors.New("no readable event log")

// Log yields the events of a session's log.
type Log struct {
	*ledger.Reader
	io.Closer
	// Progress is told now and then how many bytes of lines were read. It may be nil.
	Progress func(bytes int64)

	ctx   context.Context
	event bool              // one was read
	first *ledger.LineError // the first line that is none
}

// OpenLog opens what ledger.OpenLog does; reading ends as that of Open.
func OpenLog(ctx context.Context, path string) (*Log, error) {
	if info, err := os.Stat(path); err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		r, err := Open(ctx, path)
		if err != nil {
			return nil, err
		}
		return &Log{Reader: ledger.NewReader(r), Closer: r, ctx: ctx}, nil
	}
	log, err := ledger.OpenLog(path)
	if err != nil {
		return nil, err
	}
	return &Log{Reader: log.Reader, Closer: log, ctx: ctx}, nil
}

// Next is that of ledger.Reader, but that the end is an ErrUnreadable where no line was an event: damage leaves some, and what has none
// is something else.
func (l *Log) Next(e *ledger.Event) error {
	const linesPerLook = 4096 // some milliseconds
	if l.Line()%linesPerLook == 0 {
		if l.ctx.Err() != nil {
			return l.ctx.Err()
		}
		if l.Progress != nil {
			l.Progress(l.Offset())
		}
	}
	err := l.Reader.Next(e)
	var bad *ledger.LineError
	switch {
	case err == nil:
		l.event = true
	case errors.As(err, &bad):
		if l.first == nil {
			l.first = bad
		}
	case errors.Is(err, io.EOF) && l.first != nil && !l.event:
		return fmt.Errorf("%w: no line of it is an event of a session: %v", ErrUnreadable, l.first)
	case errors.Is(err, io.EOF) && !l.event:
		return fmt.Errorf("%w: it is empty", ErrUnreadable)
	case !errors.Is(err, io.EOF) && !errors.Is(err, context.Canceled):
		return fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return err
}
