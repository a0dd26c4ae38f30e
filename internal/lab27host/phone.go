// Package lab27host is the host's side of Lab27 that touches the world: it sends requests to the app on a phone, waits for it, pulls its
// bundles, and matches them with sessions. What any of it means is decided in package lab27.
//
//	phone.go    the app's directories on a phone: what is there, sending a request, cancelling a run
//	pull.go     a bundle from the phone to this machine, file by file
//	session.go  a session's frames, read for a match; what a match leaves
//	run.go      one run from the request to the verdict, with a recording around it
//	cost.go     how long this machine takes for a match
//
// Requests are written by AFC, which every release has, and bundles are read by AFC or the file service. The app's own files are never
// deleted or changed, and what is read of them is bounded before it is read.
package lab27host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/framebridge/framebridge/internal/device"
	"github.com/framebridge/framebridge/lab27"
)

// BundleID is the app's.
const BundleID = "com.framebridge.lab27"

// Via is the service by which bundles are read.
type Via string

const (
	ViaAFC         Via = "afc"
	ViaFileService Via = "fileservice" // iOS 17 and later
)

// OpenFiles opens the app's documents by a service.
func OpenFiles(ctx context.Context, p *device.Phone, bundleID string, via Via) (device.Files, error) {
	if via == ViaFileService {
		return p.OpenFileService(ctx, bundleID)
	}
	return p.OpenDocuments(ctx, bundleID)
}

// unfinished ends the names of files that are still being copied.
const unfinished = ".part"

// maxNoteBytes bounds a refusal's note; one has some 200 bytes.
const maxNoteBytes = 4 << 10

// phone is the app on a phone, over a connection that is made again when it was lost.
type phone struct {
	device   *device.Phone
	bundleID string
	files    *device.Documents // nil where there is no connection
}

// do runs an exchange with the app's files. One that fails by the connection's fault, or is given up, closes it, so that the next begins
// with another.
func (p *phone) do(ctx context.Context, exchange func(*device.Documents) error) error {
	if p.files == nil {
		files, err := p.device.OpenDocuments(ctx, p.bundleID)
		if device.CodeOf(err) == device.ConnectionLost || device.CodeOf(err) == device.NotAttached {
			var again *device.Phone
			if again, err = p.device.Again(ctx); err == nil {
				p.device = again
				files, err = again.OpenDocuments(ctx, p.bundleID)
			}
		}
		if err != nil {
			return err
		}
		p.files = files
	}
	err := exchange(p.files)
	if device.CodeOf(err) != "" || ctx.Err() != nil {
		p.close()
	}
	return err
}

func (p *phone) close() {
	if p.files != nil {
		p.files.Close()
		p.files = nil
	}
}

// list names what one of the app's directories holds; nothing where the app has not made it yet.
func list(ctx context.Context, from device.Files, dir string) ([]string, error) {
	names, err := from.List(ctx, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	slices.Sort(names)
	return names, err
}

// onPhone is what is in the app's directories. A request that is still being copied is not one yet.
func onPhone(ctx context.Context, from device.Files) (on lab27.OnPhone, err error) {
	for _, d := range []struct {
		dir string
		to  *[]string
	}{{lab27.PhonePending, &on.Pending}, {lab27.PhoneConsumed, &on.Consumed}, {lab27.PhoneRefused, &on.Refused}, {lab27.PhoneRuns, &on.Runs}} {
		if *d.to, err = list(ctx, from, d.dir); err != nil {
			return on, err
		}
	}
	on.Pending = slices.DeleteFunc(on.Pending, func(name string) bool { return strings.HasSuffix(name, unfinished) })
	return on, nil
}

// Runs names the runs whose bundles are on the phone.
func Runs(ctx context.Context, from device.Files) ([]string, error) {
	return list(ctx, from, lab27.PhoneRuns)
}

// Check refuses a request that could not run once and alone on the phone as it is.
func Check(ctx context.Context, files *device.Documents, r *lab27.Request) error {
	on, err := onPhone(ctx, files)
	if err != nil {
		return err
	}
	return r.CheckUnused(on)
}

// Send puts a request where the app looks for one, which it does once a second while it is in front.
func Send(ctx context.Context, files *device.Documents, r *lab27.Request) error {
	if err := Check(ctx, files, r); err != nil {
		return err
	}
	for _, dir := range []string{path.Dir(lab27.PhonePending), lab27.PhonePending} { // the app may never have run
		if err := files.MakeDir(ctx, dir); err != nil {
			return err
		}
	}
	return files.Put(ctx, pending(r), r.AppendJSON(nil))
}

func pending(r *lab27.Request) string { return path.Join(lab27.PhonePending, r.FileName()) }

// withdraw takes back a request that the app has not consumed yet: under its unfinished name it is none. It fails where the app was faster.
func withdraw(ctx context.Context, files *device.Documents, r *lab27.Request) error {
	return files.Rename(ctx, pending(r), pending(r)+unfinished)
}

// RefusedError is the app's refusal of a request.
type RefusedError struct {
	lab27.Refusal
}

func (e *RefusedError) Error() string {
	s := "Lab27 refuses the request: " + e.Reason
	if e.Detail != "" {
		s += " (" + e.Detail + ")"
	}
	if remedy := remedies[e.Reason]; remedy != "" {
		s += " — " + remedy
	}
	return s
}

// remedies are what a person can do about the reasons that the app gives.
var remedies = map[string]string{
	"two-pending":      "another request was sent at the same time; send one at a time",
	"expired":          "set the phone's clock, or this machine's",
	"not-yet-valid":    "set the phone's clock, or this machine's",
	"other-build":      "install the app that was built from this program's sources, or name the build with --app-version and --source-digest",
	"not-foreground":   "unlock the phone and leave the app in front",
	"thermal":          "let the phone cool down",
	"already-ran":      "start the app again: it runs once in each life of its process",
	"other-workload":   "wait until the app's other run is over",
	"no-canvas":        "unlock the phone and leave the app in front",
	"run-name-used":    "choose another --name",
	"nonce-used":       "send a new request",
	"no-run-directory": "free some space on the phone",
	"no-plan":          "free some space on the phone",
	"not-consumed":     "free some space on the phone",
}

// taken reports whether the app has consumed a request. A refusal is a *RefusedError.
func taken(ctx context.Context, files *device.Documents, r *lab27.Request) (bool, error) {
	on, err := onPhone(ctx, files)
	if err != nil {
		return false, err
	}
	if slices.Contains(on.Consumed, r.FileName()) {
		return true, nil
	}
	name := r.RefusalNote(on.Refused)
	if name == "" {
		return false, nil
	}
	var note strings.Builder
	if _, err := files.Copy(ctx, &note, path.Join(lab27.PhoneRefused, name), maxNoteBytes); err != nil {
		return false, err
	}
	refusal, err := lab27.ParseRefusal([]byte(note.String()))
	if err != nil {
		return false, fmt.Errorf("%s on the phone: %w", name, err)
	}
	return false, &RefusedError{refusal}
}
