package ledger

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"

	"github.com/framebridge/framebridge/internal/jsonline"
)

// Names within a session directory.
const (
	EventsName     = "events.jsonl"
	CompressedName = "events.jsonl.zst"
	WireName       = "wire.bin"
	ManifestName   = "manifest.json"
	lockName       = "lock"
)

// Fault is what is wrong at a place in an event log.
type Fault uint8

const (
	FaultRejected Fault = iota + 1 // a line that cannot be read; to the window it is a source.gap
	FaultHole                      // seq is not the next one: lines are missing before this one, which Next returns after this error
	FaultOrder                     // seq is not above the line before: the line is refused
	FaultTorn                      // the file ends within a line: the process that wrote it was killed
)

var faultNames = [...]string{FaultRejected: "line rejected", FaultHole: "lines missing", FaultOrder: "line out of order", FaultTorn: "torn last line"}

func (f Fault) String() string { return faultNames[f] }

// LineError says what is wrong with one line. Reading can go on after it.
type LineError struct {
	Fault  Fault
	Line   int64 // 1-based
	Offset int64 // of the line's first byte, in a compressed log of the lines inside
	Type   Type  // that the line says it is; "" where that is not known, and for lines that are missing
	Err    error
}

func (e *LineError) Error() string {
	return fmt.Sprintf("line %d, byte %d: %s: %v", e.Line, e.Offset, e.Fault, e.Err)
}

func (e *LineError) Unwrap() error { return e.Err }

var (
	errTooLong = fmt.Errorf("longer than %d bytes", jsonline.MaxLineBytes)
	errTorn    = errors.New("no newline at its end")
)

// lineReader reads lines of bounded length. It keeps one in memory.
type lineReader struct {
	in     *bufio.Reader
	buffer []byte // a line that was longer than what in holds
	line   int64  // of the line read last, from 1
	start  int64  // where it begins
	offset int64  // where the next one begins
}

func newLineReader(r io.Reader) lineReader {
	const bufferBytes = 256 << 10 // a second of one device at 120 Hz
	return lineReader{in: bufio.NewReaderSize(r, bufferBytes)}
}

// next returns a whole line without its newline, valid until the next call. It returns errTooLong for a line beyond the bound,
// after which reading goes on, errTorn where the input ends within a line, and io.EOF at its end.
func (r *lineReader) next() ([]byte, error) {
	r.buffer = r.buffer[:0]
	r.start = r.offset
	tooLong := false
	for {
		part, err := r.in.ReadSlice('\n')
		if r.offset == r.start && len(part) > 0 {
			r.line++
		}
		r.offset += int64(len(part))
		whole := part
		if len(r.buffer) > 0 || err != nil {
			if !tooLong {
				r.buffer = append(r.buffer, part...)
			}
			whole = r.buffer
		}
		tooLong = tooLong || len(whole) > jsonline.MaxLineBytes+1 // and its newline
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && r.offset == r.start:
			return nil, io.EOF
		case errors.Is(err, io.EOF):
			return nil, errTorn
		case err != nil:
			return nil, err
		case tooLong:
			return nil, errTooLong
		}
		return whole[:len(whole)-1], nil
	}
}

// Line and Offset tell where the line read last stands: its number, from 1, and the offset of its first byte.
func (r *lineReader) Line() int64   { return r.line }
func (r *lineReader) Offset() int64 { return r.start }

func (r *lineReader) fault(f Fault, err error) *LineError {
	return &LineError{Fault: f, Line: r.line, Offset: r.start, Err: err}
}

// Reader yields the events of a log in their order.
type Reader struct {
	lineReader
	parser Parser

	lastSeq  int64 // of the last good line
	rejected int64 // lines since then, which stood in the place of some
	// ifWrong is what the next seq is if that of the last line, which followed a hole, is itself what was damaged; else 0.
	ifWrong int64
	held    Event // the line behind a hole, for the next call
	holding bool
}

// NewReader reads lines of an events.jsonl.
func NewReader(r io.Reader) *Reader { return &Reader{lineReader: newLineReader(r)} }

// Next reads one event into e, whose Value is good until the next call. It returns io.EOF at the end, and a *LineError for a line
// that is no good, after which reading goes on. Every other error is the source's.
func (r *Reader) Next(e *Event) error {
	if r.holding {
		*e, r.held, r.holding = r.held, Event{}, false
		return nil
	}
	line, err := r.next()
	switch {
	case errors.Is(err, errTooLong):
		r.rejected++
		return r.fault(FaultRejected, err)
	case errors.Is(err, errTorn):
		return r.fault(FaultTorn, err)
	case err != nil:
		return err
	}
	if err := r.parser.Parse(line, e); err != nil {
		bad := r.fault(FaultRejected, err)
		bad.Type = e.Type()
		*e = Event{}
		r.rejected++
		return bad
	}
	want := r.lastSeq + 1
	switch {
	case e.Seq > want+r.rejected:
		err := r.fault(FaultHole, fmt.Errorf("expected seq %d, found %d", want+r.rejected, e.Seq))
		r.held, r.holding = *e, true
		*e = Event{}
		r.ifWrong = want + r.rejected + 1
		r.lastSeq, r.rejected = r.held.Seq, 0
		return err
	case e.Seq < want && e.Seq != r.ifWrong:
		err := r.fault(FaultOrder, fmt.Errorf("expected seq %d, found %d", want, e.Seq))
		err.Type = e.Type()
		*e = Event{}
		r.rejected++
		return err
	}
	r.lastSeq, r.rejected, r.ifWrong = e.Seq, 0, 0
	return nil
}

// Log is an event log opened for reading.
type Log struct {
	*Reader
	io.Closer
}

// OpenLog opens the event log of a session directory, or a log file itself, as OpenLines does.
func OpenLog(path string) (*Log, error) {
	lines, err := OpenLines(path)
	if err != nil {
		return nil, err
	}
	return &Log{NewReader(lines), lines}, nil
}

// OpenLines opens the lines of a session as they were written: those of a log file itself, or of a session directory, compressed or not.
// Of a sealed session it is the form that the manifest names, whatever stands beside that.
func OpenLines(path string) (io.ReadCloser, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("open event log: %w", err)
	}
	open := os.Open
	if info.IsDir() {
		if path, err = logIn(path); err != nil {
			return nil, err
		}
		open = openRegular
	}
	f, err := open(path)
	if err != nil {
		return nil, fmt.Errorf("open event log: %w", err)
	}
	if filepath.Ext(path) != ".zst" {
		return f, nil
	}
	d, err := newDecoder(f)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("open event log %s: %w", path, err)
	}
	return &unpacked{d, f}, nil
}

// logIn is where a session directory has its log. Before there is a manifest both forms may be there, for a moment of the sealing; then they
// are equal. A manifest that cannot be read counts as none, so that what is left of a damaged session can be looked at.
func logIn(dir string) (string, error) {
	if m, err := ReadManifest(dir); err == nil {
		named, _, err := m.log()
		return filepath.Join(dir, named.Name), err
	}
	for _, name := range []string{EventsName, CompressedName} {
		path := filepath.Join(dir, name)
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is no session: expected %s or %s in it: %w", dir, EventsName, CompressedName, os.ErrNotExist)
}

// unpacked is a compressed file opened for reading.
type unpacked struct {
	*zstd.Decoder
	file *os.File
}

func (u *unpacked) Close() error {
	u.Decoder.Close()
	return u.file.Close()
}

// newDecoder bounds what a compressed file can make the reader allocate; 8 MiB is the window of our own.
func newDecoder(r io.Reader) (*zstd.Decoder, error) {
	return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(8<<20), zstd.WithDecoderLowmem(true))
}
