package lab27host

import (
	"bytes"
	"io/fs"
	"time"

	"github.com/framebridge/framebridge/lab27"
)

// hostRounds is how often each part is timed; the shortest counts, since whatever else the machine did only adds.
const hostRounds = 5

// HostSamples times what this machine takes to judge and match a complete bundle: a quarter of its rows and of the session's frames, and all.
func HostSamples(bundle fs.FS, in lab27.MatchInput) ([]lab27.HostSample, error) {
	quarter, err := cut(bundle)
	if err != nil {
		return nil, err
	}
	few := in
	few.Frames, few.Gaps = in.Frames[:len(in.Frames)/4], nil
	var samples []lab27.HostSample
	for _, part := range []struct {
		bundle fs.FS
		in     lab27.MatchInput
	}{{quarter, few}, {bundle, in}} {
		var s lab27.HostSample
		for range hostRounds {
			began := time.Now()
			part.in.Report = lab27.Validate(part.bundle, nil)
			if _, err := lab27.Qualify(part.in); err != nil {
				return nil, err
			}
			took := int64(time.Since(began))
			if s.Ns == 0 || took < s.Ns {
				s.Ns = took
			}
			s.Rows = int64(len(part.in.Report.Submissions) + len(part.in.Report.Presentations) + len(part.in.Frames))
		}
		samples = append(samples, s)
	}
	return samples, nil
}

// cut is a bundle of which two tables have a quarter of their rows.
func cut(bundle fs.FS) (fs.FS, error) {
	less := cutBundle{bundle, map[string][]byte{}}
	for _, name := range []string{lab27.RequestsFile, lab27.PresentedFile} {
		text, err := readFile(bundle, name, lab27.MaxBundleBytes)
		if err != nil {
			return nil, err
		}
		lines := bytes.SplitAfter(text, []byte("\n"))
		const notRows = 2 // the columns before them, nothing after the last newline
		less.tables[name] = bytes.Join(lines[:1+max(0, len(lines)-notRows)/4], nil)
	}
	return less, nil
}

type cutBundle struct {
	fs.FS
	tables map[string][]byte
}

// Open implements fs.FS.
func (b cutBundle) Open(name string) (fs.File, error) {
	if text, ok := b.tables[name]; ok {
		return table{bytes.NewReader(text)}, nil
	}
	return b.FS.Open(name)
}

type table struct{ *bytes.Reader }

func (table) Stat() (fs.FileInfo, error) { return nil, fs.ErrInvalid }
func (table) Close() error               { return nil }
