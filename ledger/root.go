package ledger

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// ErrNoRoot says that nothing tells where to keep sessions.
var ErrNoRoot = errors.New("no place for sessions: give --root, or set FRAMEBRIDGE_ROOT or HOME")

// Root is where sessions and the ledger live: the flag, else $FRAMEBRIDGE_ROOT, else ~/.local/share/framebridge. Each argument is
// "" where it is not given.
func Root(flag, env, home string) (string, error) {
	switch {
	case flag != "":
		return flag, nil
	case env != "":
		return env, nil
	case home != "":
		return filepath.Join(home, ".local", "share", "framebridge"), nil
	}
	return "", ErrNoRoot
}

// SessionDir is where the session of that name lives under a root.
func SessionDir(root, name string) string { return filepath.Join(root, "sessions", name) }

// Dir is where the attempt ledger lives under a root.
func Dir(root string) string { return filepath.Join(root, "ledger") }

// maxNameBytes leaves room for suffixes within the 255 bytes that common file systems allow a name.
const maxNameBytes = 200

// CheckName says what is wrong with a session's name. It becomes the name of a directory, on any file system.
func CheckName(name string) error {
	if name == "" || len(name) > maxNameBytes {
		return fmt.Errorf("session name %.40q: expected 1 to %d bytes, found %d", name, maxNameBytes, len(name))
	}
	for i := range len(name) {
		c := name[i]
		word := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !word && (i == 0 || !strings.ContainsRune("._-", rune(c))) {
			return fmt.Errorf("session name %q: expected letters, digits and, not at the start, one of ._-; found %q at byte %d", name, c, i)
		}
	}
	return nil
}

// DefaultName names a session after the moment and the device: 20261129T213805.123Z-00008110. Two of one device need another
// millisecond.
func DefaultName(wall time.Time, udid string) string {
	device := strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' {
			return r
		}
		return -1
	}, udid)
	const deviceBytes = 8 // enough to tell the phones of a lab apart; the whole UDID is in session.start
	if len(device) > deviceBytes {
		device = device[:deviceBytes]
	}
	name := wall.UTC().Format("20060102T150405.000Z")
	if device != "" {
		name += "-" + device
	}
	return name
}
