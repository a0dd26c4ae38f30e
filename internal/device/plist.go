package device

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/danielpaulus/go-ios/ios"
	"howett.net/plist"

	"github.com/framebridge/framebridge/internal/plistcheck"
)

// mostOfMessage bounds a property list that usbmuxd or a phone's service sends. The longest, all of lockdownd's values or the list of a rack
// of phones, take some 20 KiB, are a few levels deep and have a thousand objects.
var mostOfMessage = plistcheck.Bounds{Bytes: 1 << 20, Depth: 64, Objects: 1 << 14}

// decodePlist decodes a message that stays within the bounds. Its errors are errUnreadable.
func decodePlist(b []byte, v any) error {
	err := plistcheck.Message(b, mostOfMessage)
	if err == nil {
		err = guarded(func() error { _, err := plist.Unmarshal(b, v); return err })
	}
	if err != nil && !errors.Is(err, errUnreadable) {
		err = fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return err
}

// Lockdownd and the services that it starts put the length of each message before it, in four bytes.

func writePlist(w io.Writer, message any) error {
	return ios.NewPlistCodecReadWriter(nil, w).Write(message)
}

func readPlist(r io.Reader, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	length := binary.BigEndian.Uint32(head[:])
	if int64(length) > int64(mostOfMessage.Bytes) {
		return fmt.Errorf("%w: expected a property list of at most %d bytes, found %d", errUnreadable, mostOfMessage.Bytes, length)
	}
	b := make([]byte, length)
	if _, err := io.ReadFull(r, b); err != nil {
		return err
	}
	return decodePlist(b, v)
}

// askPlist is one exchange.
func askPlist(rw io.ReadWriter, request, answer any) error {
	if err := writePlist(rw, request); err != nil {
		return err
	}
	return readPlist(rw, answer)
}
