package device

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Files reads an app's documents on a phone, whichever service carries them: Documents (AFC, every release) or FileService (iOS 17 and
// later). Paths are relative to the app's Documents directory. Neither is safe for use by several goroutines.
type Files interface {
	// List names what a directory holds; fs.ErrNotExist where the service says that there is none.
	List(ctx context.Context, dir string) ([]string, error)
	// Copy reads a file into w and returns its length. A longer one than atMost is ErrTooLong, before or as soon as that shows.
	Copy(ctx context.Context, w io.Writer, path string, atMost int64) (int64, error)
	Close() error
}

// ErrTooLong says that a file on the phone is longer than it may be.
var ErrTooLong = errors.New("longer than allowed")

func tooLong(path string, bytes uint64, atMost int64) error {
	return fmt.Errorf("%s on the phone has %d bytes, at most %d are read: %w", path, bytes, atMost, ErrTooLong)
}

// documentsRoot is where an app's documents are, in its data container.
const documentsRoot = "Documents"

// copyChunk is how much is read at a time. Each piece has StepTimeout.
const copyChunk = 64 << 10

// lostOr names the condition behind an exchange that failed: no answer, an end of the connection, or an answer of another shape.
func lostOr(ctx context.Context, err error, who string) error {
	if err, explained := silence(ctx, err, "the "+who); explained {
		return err
	}
	return problem(BadAnswer, err, "", "the %s answers with something else", who)
}

// appMissing is for services that do not know an app.
func appMissing(udid, bundleID string, err error) error {
	return problem(AppMissing, err, "install it, signed for this phone; its Info.plist must share its files", "%s does not give the documents of %s", udid, bundleID)
}

// Again finds the phone anew, after it was away: usbmuxd then knows it by another number.
func (p *Phone) Again(ctx context.Context) (*Phone, error) {
	entry, err := Find(ctx, p.UDID)
	if err != nil {
		return nil, err
	}
	var agent Agent
	if via, ok := p.developer.(*rsdTransport); ok {
		agent = via.agent
	}
	return Open(ctx, entry, agent)
}
