package sim

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/danielpaulus/go-ios/ios/nskeyedarchiver"
	"howett.net/plist"
)

// The archives are read back by go-ios, which shares no code with the archiver.
func TestArchivesAreReadByGoIOS(t *testing.T) {
	b, err := archive(map[string]any{
		"list": []any{"a", uint64(7), int64(-7), 2.5, true, []byte{1, 2}, map[string]any{"inner": "x"}},
		"date": time.Date(2021, 5, 11, 6, 30, 19, 0, time.UTC),
		"pids": map[uint64]any{68: []any{"backboardd"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	objects, err := nskeyedarchiver.Unarchive(b)
	if err != nil || len(objects) != 1 {
		t.Fatalf("%v, %v", objects, err)
	}
	got := objects[0].(map[string]any)
	wantList := []any{"a", uint64(7), int64(-7), 2.5, true, []byte{1, 2}, map[string]any{"inner": "x"}}
	if !reflect.DeepEqual(got["list"], wantList) {
		t.Errorf("list: %#v, want %#v", got["list"], wantList)
	}
	// 2021-05-11 06:30:19 UTC is 1,620,714,619 s after 1970.
	if date := got["date"].(nskeyedarchiver.NSDate).Timestamp; date.Unix() != 1620714619 {
		t.Errorf("date: %s", date)
	}
	if pids := got["pids"].(map[string]any); !reflect.DeepEqual(pids["uint64{68}"], []any{"backboardd"}) {
		t.Errorf("dictionary with numbers as keys: %#v", pids)
	}
}

func TestTapStatusIsWhatARealTapSends(t *testing.T) {
	root := os.Getenv("FRAMEBRIDGE_DATA")
	if root == "" {
		root = "../../../shared/data"
	}
	capture, err := os.ReadFile(filepath.Join(root, "dtx", "activity-trace-tap-status.bin"))
	if err != nil {
		t.Skipf("SKIPPED, THE REAL CAPTURES ARE MISSING: %v (set FRAMEBRIDGE_DATA)", err)
	}
	ours, err := archive(tapMessage("DTActivityTraceTapMessage", map[string]any{"k": uint64(0)}))
	if err != nil {
		t.Fatal(err)
	}
	read := func(b []byte) (v any) {
		if _, err := plist.Unmarshal(b, &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	real := read(capture[bytes.Index(capture, []byte("bplist00")):])
	// The same objects, whatever their order: each UID is followed.
	if got, want := follow(read(ours)), follow(real); !reflect.DeepEqual(got, want) {
		t.Errorf("ours   %v\nreal   %v", got, want)
	}
}

// follow unfolds an archive into a tree.
func follow(archive any) any {
	doc := archive.(map[string]any)
	objects := doc["$objects"].([]any)
	var tree func(v any) any
	tree = func(v any) any {
		switch v := v.(type) {
		case plist.UID:
			return tree(objects[v])
		case []any:
			out := make([]any, len(v))
			for i := range v {
				out[i] = tree(v[i])
			}
			return out
		case map[string]any:
			out := map[string]any{}
			for k := range v {
				out[k] = tree(v[k])
			}
			return out
		}
		return v
	}
	return []any{doc["$archiver"], doc["$version"], tree(doc["$top"])}
}
