package dtx

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"howett.net/plist"
)

func archiveOf(top map[string]any, objects ...any) []byte {
	return must(plist.Marshal(map[string]any{"$version": 100000, "$archiver": "NSKeyedArchiver", "$top": top, "$objects": objects}, plist.BinaryFormat))
}

func TestArchivedValuesComeBack(t *testing.T) {
	for _, v := range []any{"text", uint64(7), int64(-7), 2.5, true, []byte{1, 2}, []any{"a", uint64(1)}, map[string]any{"k": []any{}}} {
		if got, err := Unarchive(must(Archive(v))); err != nil || !reflect.DeepEqual(got, v) {
			t.Errorf("%#v came back as %#v, %v", v, got, err)
		}
	}
	if v, err := Unarchive(archiveOf(map[string]any{"root": plist.UID(0)}, "$null")); v != nil || err != nil {
		t.Errorf("archived nil came back as %#v, %v", v, err)
	}
}

func TestArchiveRefusesTypesItDoesNotKnow(t *testing.T) {
	for _, v := range []any{nil, make(chan int), struct{ X int }{}} {
		if _, err := Archive(v); err == nil {
			t.Errorf("%T was archived", v)
		}
	}
}

// Most of these end the process in the decoders behind Unarchive, by stack overflow, or take all of its memory: nothing there can be recovered from.
func TestUnarchiveRefusesArchivesThatCouldEndTheProcess(t *testing.T) {
	class := map[string]any{"$classname": "NSArray", "$classes": []any{"NSArray"}}
	array := func(items ...plist.UID) any { return map[string]any{"NS.objects": items, "$class": plist.UID(1)} }
	root := map[string]any{"root": plist.UID(2)}

	doubling := []any{"$null", class}
	for i := range 40 { // each array holds the next one twice
		doubling = append(doubling, array(plist.UID(i+3), plist.UID(i+3)))
	}
	doubling = append(doubling, "end")

	tap := map[string]any{"$classname": "DTTapMessage", "$classes": []any{"DTTapMessage"}}
	dict := map[string]any{"$classname": "NSDictionary", "$classes": []any{"NSDictionary"}}
	ring := archiveOf(root, "$null", tap, map[string]any{"DTTapMessagePlist": plist.UID(3), "$class": plist.UID(1)},
		map[string]any{"NS.keys": []any{plist.UID(4)}, "NS.objects": []any{plist.UID(2)}, "$class": plist.UID(5)}, "k", dict)

	good := must(Archive("x"))
	patched := func(fromEnd int, b ...byte) []byte {
		p := bytes.Clone(good)
		copy(p[len(p)-fromEnd:], b)
		return p
	}
	utf16 := bytes.Replace(archiveOf(root, doubling...), []byte("\x58$objects"), []byte("\x64\x00$\x00o\x00b\x00j"), 1)

	for _, c := range []struct {
		name    string
		archive []byte
		errHas  string
	}{
		{"parentheses of the text format, one level each", bytes.Repeat([]byte("("), 4<<20), "expected a binary property list"},
		{"XML", []byte("<?xml version=\"1.0\"?><plist><array>" + strings.Repeat("<array>", 100) + "</plist>"), "expected a binary property list"},
		{"larger than an archive may be", append([]byte("bplist00"), make([]byte, 8<<20)...), "expected at most 8388608 bytes, found 8388616"},
		{"shared objects that unfold to 2^40", archiveOf(root, doubling...), "unfolds to more than 1048576 objects"},
		{"an array in itself", archiveOf(root, "$null", class, array(2)), "nest more than 256 deep, or in a circle"},
		{"a message in its own dictionary", ring, "nest more than 256 deep, or in a circle"},
		{"references of no bytes", patched(25, 0), "references of 0 bytes"},
		{"more objects than offsets", patched(24, 0x7F, 0xFF), "do not fit"},
		{"objects beyond the end", patched(8, 0x7F, 0xFF), "do not fit"},
		{"keys that only a decoder can read", utf16, "expected an archive with plain keys, found one of type 0x6"},
		{"no archive", must(plist.Marshal([]any{1}, plist.BinaryFormat)), "a property list that is no dictionary"},
		{"no objects", must(plist.Marshal(map[string]any{"$top": root}, plist.BinaryFormat)), "without $objects and $top"},
	} {
		start := time.Now()
		v, err := Unarchive(c.archive)
		if err == nil || !strings.Contains(err.Error(), c.errHas) {
			t.Errorf("%s: %v, error %v, want %q", c.name, v, err, c.errHas)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%s: took %v to refuse", c.name, took)
		}
	}
}

func TestUnarchiveErrorsAreOneLine(t *testing.T) {
	broken := archiveOf(map[string]any{"root": plist.UID(1)}, "$null", map[string]any{"NSCode": -1, "$class": plist.UID(2)},
		map[string]any{"$classname": "NSError", "$classes": []any{"NSError"}}) // go-ios panics and recovers with a stack trace
	if _, err := Unarchive(broken); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v", err)
	}
}

func TestDeviceErrorsKeepTheirText(t *testing.T) {
	class := func(name string) any { return map[string]any{"$classname": name, "$classes": []any{name, "NSObject"}} }
	refusal := func(code any, value any) []byte {
		return archiveOf(map[string]any{"root": plist.UID(1)}, "$null",
			map[string]any{"NSCode": code, "NSDomain": plist.UID(2), "NSUserInfo": plist.UID(3), "$class": plist.UID(4)}, "DTXMessage",
			map[string]any{"NS.keys": []plist.UID{5, 6}, "NS.objects": []plist.UID{7, 8}, "$class": plist.UID(9)}, class("NSError"),
			"NSURL", "NSLocalizedDescription", map[string]any{"$class": plist.UID(10)}, value, class("NSDictionary"), class("SomethingUnknown"))
	}
	noInfo := archiveOf(map[string]any{"root": plist.UID(1)}, "$null",
		map[string]any{"NSCode": 3, "NSDomain": plist.UID(2), "NSUserInfo": plist.UID(0), "$class": plist.UID(3)}, "D", class("NSError"))
	for _, c := range []struct {
		archive []byte
		want    RemoteError
		text    string
	}{
		{refusal(1, "Unable to publish channel"), RemoteError{"DTXMessage", 1, "Unable to publish channel"}, "device error: Unable to publish channel (DTXMessage 1)"},
		{refusal(-402, map[string]any{"NS.string": "no", "$class": plist.UID(10)}), RemoteError{"DTXMessage", -402, "no"}, "device error: no (DTXMessage -402)"},
		{noInfo, RemoteError{"D", 3, "no description"}, "device error: no description (D 3)"},
		{must(Archive("just text")), RemoteError{Description: "just text"}, "device error: just text"},
		{nil, RemoteError{Description: `unreadable (expected a binary property list, found 0 bytes beginning "")`},
			`device error: unreadable (expected a binary property list, found 0 bytes beginning "")`},
		{must(archiveError(RemoteError{"X", -7, "ours"})), RemoteError{"X", -7, "ours"}, "device error: ours (X -7)"},
	} {
		_, err := Message{Type: TypeError, Payload: c.archive}.value()
		var got *RemoteError
		if !errors.As(err, &got) || *got != c.want || err.Error() != c.text {
			t.Errorf("got %q, want %q", err, c.text)
		}
	}
}

func FuzzUnarchive(f *testing.F) {
	f.Add(must(Archive(map[string]any{"k": []any{uint64(1), "x", true, 1.5, []byte{1}}})))
	f.Add(must(archiveError(RemoteError{"X", -7, "ours"})))
	if b := capture("activity-trace-tap-status.bin"); b != nil {
		f.Add(b[48:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := Unarchive(b); err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("error of several lines: %v", err)
		}
		_ = unarchiveError(b).Error()
	})
}
