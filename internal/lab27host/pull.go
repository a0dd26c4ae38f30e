package lab27host

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/framebridge/framebridge/internal/device"
	"github.com/framebridge/framebridge/lab27"
)

// ErrNoRun says that the phone has no bundle of that name.
var ErrNoRun = errors.New("no such run on the phone")

// ErrOtherRun says that a directory holds another bundle than the one that is pulled, or files of none that can be told.
var ErrOtherRun = errors.New("holds another bundle than this run's; choose another directory")

// maxSummaryBytes bounds a summary before its own figures are known; one has 3 KB.
const maxSummaryBytes = 64 << 10

// Pulled is what a pull has left in its directory.
type Pulled struct {
	Run    string   `json:"run"`
	Dir    string   `json:"dir"`
	Sealed bool     `json:"sealed"` // the app has sealed it, and every file here has the size and hash that the summary says
	Files  []string `json:"files"`  // that are here
	Bytes  int64    `json:"bytes"`  // that this pull fetched
}

// Pull brings a run's bundle into dir. A file gets its name only when all of it is there and its size and SHA-256 are those of the summary;
// until then its name ends in .part. What an earlier pull brought stays, what it left half is fetched again. An unsealed run, whose app
// ended too early, is brought as it is; a later pull may find it sealed. Nothing else is replaced: dir may hold what was pulled of this run,
// which its plan tells, beginnings of the phone's files, or nothing by these names. progress is told each file's name before it comes.
//
// The summary comes first, since it vouches for the others, and gets its name last, so that its being there means that all are.
func Pull(ctx context.Context, from device.Files, run, dir string, progress func(name string)) (*Pulled, error) {
	if run == "" || run != path.Base(path.Clean(run)) || !filepath.IsLocal(run) {
		return nil, fmt.Errorf("%q: %w", run, ErrNoRun)
	}
	runs, err := Runs(ctx, from)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(runs, run) {
		return nil, fmt.Errorf("%s: %w; there are: %s", run, ErrNoRun, strings.Join(runs, ", "))
	}
	there, err := list(ctx, from, path.Join(lab27.PhoneRuns, run))
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	p := &pull{from: from, run: run, dir: dir, there: there, progress: progress, result: Pulled{Run: run, Dir: dir, Files: []string{}}}
	if slices.Contains(there, lab27.SummaryFile) {
		err = p.sealed(ctx)
	} else {
		err = p.unsealed(ctx)
	}
	return &p.result, err
}

type pull struct {
	from     device.Files
	run, dir string
	there    []string // the phone's files
	progress func(string)
	result   Pulled
}

// checkDir refuses a directory in which a file would be replaced that is not of this run. seals are nil for an unsealed run.
func (p *pull) checkDir(ctx context.Context, nonce string, seals []lab27.FileSeal) error {
	plan := lab27.Validate(os.DirFS(p.dir), nil).Plan
	if plan != nil && plan.Request.RunName == p.run && (plan.Request.Nonce == nonce || nonce == "") {
		return nil
	}
	for i, name := range lab27.BundleFiles {
		path := filepath.Join(p.dir, name)
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) || seals != nil && whole(path, seals[i]) {
			continue
		}
		begun, err := p.begun(ctx, name)
		if err != nil {
			return err
		}
		if !begun {
			return fmt.Errorf("%s %w", p.dir, ErrOtherRun)
		}
	}
	return nil
}

// begun reports whether the phone's file begins with what stands here under its name, so that nothing is lost where it is fetched again: a
// plan that is torn tells nobody's run.
func (p *pull) begun(ctx context.Context, name string) (bool, error) {
	here, err := readFile(os.DirFS(p.dir), name, lab27.MaxBundleBytes)
	if err != nil || !slices.Contains(p.there, name) {
		return false, nil
	}
	var phone bytes.Buffer
	if _, err := p.from.Copy(ctx, &phone, p.remote(name), lab27.MaxBundleBytes); err != nil {
		return false, err
	}
	return bytes.HasPrefix(phone.Bytes(), here), nil
}

func (p *pull) sealed(ctx context.Context) error {
	var text bytes.Buffer
	p.progress(lab27.SummaryFile)
	if _, err := p.from.Copy(ctx, &text, p.remote(lab27.SummaryFile), maxSummaryBytes); err != nil {
		return err
	}
	summary, err := lab27.ParseSummary(text.Bytes())
	if err != nil {
		return fmt.Errorf("%s on the phone: %w", p.remote(lab27.SummaryFile), err)
	}
	p.result.Bytes += int64(text.Len())
	all := int64(text.Len())
	for _, seal := range summary.Files {
		if all += seal.Bytes; seal.Bytes < 0 || all > lab27.MaxBundleBytes {
			return fmt.Errorf("run %s: %w: its summary tells of %d bytes, at most %d are pulled", p.run, lab27.Bounds, all, lab27.MaxBundleBytes)
		}
	}
	sum := sha256.Sum256(text.Bytes())
	seals := append(summary.Files[:], lab27.FileSeal{Bytes: int64(text.Len()), SHA256: hex.EncodeToString(sum[:])}) // one for each of BundleFiles
	if err := p.checkDir(ctx, summary.Nonce, seals); err != nil {
		return err
	}
	for i, seal := range summary.Files {
		name := lab27.BundleFiles[i]
		if whole(filepath.Join(p.dir, name), seal) {
			p.result.Files = append(p.result.Files, name)
			continue
		}
		if err := p.fetch(ctx, name, seal.Bytes, &seal); err != nil {
			return err
		}
	}
	if err := p.keep(lab27.SummaryFile, func(w io.Writer) error { _, err := w.Write(text.Bytes()); return err }); err != nil {
		return err
	}
	p.result.Sealed = true
	return nil
}

// unsealed brings what there is; nothing vouches for it.
func (p *pull) unsealed(ctx context.Context) error {
	if err := p.checkDir(ctx, "", nil); err != nil {
		return err
	}
	left := int64(lab27.MaxBundleBytes)
	for _, name := range lab27.BundleFiles {
		if !slices.Contains(p.there, name) {
			continue
		}
		before := p.result.Bytes
		if err := p.fetch(ctx, name, left, nil); err != nil {
			return err
		}
		left -= p.result.Bytes - before
	}
	return nil
}

func (p *pull) remote(name string) string { return path.Join(lab27.PhoneRuns, p.run, name) }

// fetch brings one file. It keeps its unfinished name where it is not what seal says.
func (p *pull) fetch(ctx context.Context, name string, atMost int64, seal *lab27.FileSeal) error {
	p.progress(name)
	return p.keep(name, func(w io.Writer) error {
		sum := sha256.New()
		n, err := p.from.Copy(ctx, io.MultiWriter(w, sum), p.remote(name), atMost)
		if err != nil {
			return err
		}
		p.result.Bytes += n
		if got := hex.EncodeToString(sum.Sum(nil)); seal != nil && (n != seal.Bytes || got != seal.SHA256) {
			return fmt.Errorf("%s: %w: %d bytes with SHA-256 %s came, the summary says %d with %s; what came is left as %s",
				p.remote(name), lab27.Hash, n, got, seal.Bytes, seal.SHA256, name+unfinished)
		}
		return nil
	})
}

// keep writes a file under its unfinished name, and gives it its own when all of it is on disk.
func (p *pull) keep(name string, write func(io.Writer) error) error {
	if err := writeWhole(filepath.Join(p.dir, name), write); err != nil {
		return err
	}
	p.result.Files = append(p.result.Files, name)
	return nil
}

// writeWhole writes a file that has its name only when all of it is on disk.
func writeWhole(name string, write func(io.Writer) error) error {
	f, err := os.OpenFile(name+unfinished, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(name+unfinished, name); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// whole reports whether a file is as sealed.
func whole(name string, seal lab27.FileSeal) bool {
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, io.LimitReader(f, seal.Bytes+1))
	return err == nil && n == seal.Bytes && hex.EncodeToString(sum.Sum(nil)) == seal.SHA256
}
