package dtx

import (
	"fmt"
	"strings"

	"github.com/danielpaulus/go-ios/ios/nskeyedarchiver"
	"howett.net/plist"

	"github.com/framebridge/framebridge/internal/plistcheck"
)

// mostOfArchive bounds an archived object. The largest of interest, a process list, takes some 100 KiB. Each container counts about three
// levels of depth, being an object, a list and a reference.
var mostOfArchive = plistcheck.Bounds{Bytes: 8 << 20, Depth: 256, Objects: 1 << 20}

// go-ios fills its class tables on first use, without a lock; from here it happens before any goroutine can race for it.
func init() {
	nskeyedarchiver.SetupDecoders()
	nskeyedarchiver.SetupEncoders()
}

// Archive encodes v, of the types that go-ios's archiver knows, as a binary NSKeyedArchiver document.
func Archive(v any) (b []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			b, err = nil, fmt.Errorf("archive %T: %v", v, r)
		}
	}()
	b, err = nskeyedarchiver.ArchiveBin(v)
	if err != nil {
		return nil, fmt.Errorf("archive %T: %w", v, err)
	}
	return b, nil
}

// Unarchive decodes a binary NSKeyedArchiver document to what go-ios makes of it: string, uint64, int64, float64, bool, []byte,
// []any, map[string]any, nil, and its own types for dates, errors, tap messages and the like.
func Unarchive(b []byte) (v any, err error) {
	defer func() {
		if r := recover(); r != nil {
			v, err = nil, fmt.Errorf("unarchive: %v", r)
		}
	}()
	if err := plistcheck.Archive(b, mostOfArchive); err != nil {
		return nil, fmt.Errorf("unarchive: %w", err)
	}
	objects, err := nskeyedarchiver.Unarchive(b)
	if err != nil {
		text, _, _ := strings.Cut(err.Error(), "\n") // a stack trace follows where go-ios itself recovered
		return nil, fmt.Errorf("unarchive: %s", text)
	}
	if len(objects) != 1 {
		return nil, fmt.Errorf("unarchive: expected one root object, found %d", len(objects))
	}
	if objects[0] == "$null" { // how an archive spells nil; go-ios takes it for a string
		return nil, nil
	}
	return objects[0], nil
}

// RemoteError is an ERROR answer: the NSError that the device sent.
type RemoteError struct {
	Domain      string
	Code        int64
	Description string
}

func (e *RemoteError) Error() string {
	if e.Domain == "" {
		return "device error: " + e.Description
	}
	return fmt.Sprintf("device error: %s (%s %d)", e.Description, e.Domain, e.Code)
}

// unarchiveError reads an archived NSError by its fields. go-ios's decoder gives up on negative codes and on a user info that
// holds any class unknown to it, and the text is lost with it; a device's reason for refusing is worth more than that.
func unarchiveError(b []byte) *RemoteError {
	unreadable := func(err error) *RemoteError { return &RemoteError{Description: fmt.Sprintf("unreadable (%v)", err)} }
	if err := plistcheck.Archive(b, mostOfArchive); err != nil {
		return unreadable(err)
	}
	var doc struct {
		Top     map[string]plist.UID `plist:"$top"`
		Objects []any                `plist:"$objects"`
	}
	if err := unmarshal(b, &doc); err != nil {
		return unreadable(err)
	}
	deref := func(v any) any {
		if uid, ok := v.(plist.UID); ok && uint64(uid) < uint64(len(doc.Objects)) {
			v = doc.Objects[uid]
		}
		if object, ok := v.(map[string]any); ok && object["NS.string"] != nil {
			return object["NS.string"] // a mutable string
		}
		return v
	}
	root, ok := deref(doc.Top["root"]).(map[string]any)
	if !ok || root["NSCode"] == nil {
		v, err := Unarchive(b)
		if err != nil {
			return unreadable(err)
		}
		return &RemoteError{Description: fmt.Sprint(v)}
	}
	e := &RemoteError{Description: "no description"}
	e.Domain, _ = deref(root["NSDomain"]).(string)
	switch code := deref(root["NSCode"]).(type) {
	case uint64:
		e.Code = int64(code)
	case int64:
		e.Code = code
	}
	info, _ := deref(root["NSUserInfo"]).(map[string]any)
	keys, _ := info["NS.keys"].([]any)
	values, _ := info["NS.objects"].([]any)
	for i := range min(len(keys), len(values)) {
		if text, ok := deref(values[i]).(string); ok && deref(keys[i]) == "NSLocalizedDescription" {
			e.Description = text
		}
	}
	return e
}

func unmarshal(b []byte, v any) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("property list: %v", r)
		}
	}()
	_, err = plist.Unmarshal(b, v)
	return err
}

// archiveError builds the archive of an NSError, which go-ios can read but not write.
func archiveError(e RemoteError) ([]byte, error) {
	class := func(names ...string) map[string]any { return map[string]any{"$classname": names[0], "$classes": names} }
	return plist.Marshal(map[string]any{
		"$version": 100000, "$archiver": "NSKeyedArchiver", "$top": map[string]any{"root": plist.UID(1)},
		"$objects": []any{
			"$null",
			map[string]any{"NSCode": e.Code, "NSDomain": plist.UID(2), "NSUserInfo": plist.UID(3), "$class": plist.UID(6)},
			e.Domain,
			map[string]any{"NS.keys": []plist.UID{4}, "NS.objects": []plist.UID{5}, "$class": plist.UID(7)},
			"NSLocalizedDescription", e.Description,
			class("NSError", "NSObject"), class("NSDictionary", "NSObject"),
		},
	}, plist.BinaryFormat)
}
