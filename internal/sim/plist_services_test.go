package sim

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"reflect"
	"slices"
	"testing"
)

func TestImageMounterAnswersAsTheReleaseDoes(t *testing.T) {
	locked := DefaultDevice("00008110-000000000000000F", "16.7")
	locked.State.Locked = true
	startLab(t, DefaultDevice(udid15, "15.8"), DefaultDevice(udid16, "16.7"), DefaultDevice(udid17, "17.5"), locked)
	for _, c := range []struct {
		udid    string
		request map[string]any
		want    map[string]any // what the answer must hold
	}{
		{udid15, map[string]any{"Command": "QueryDeveloperModeStatus"}, map[string]any{"Error": "UnknownCommand"}},
		{udid16, map[string]any{"Command": "QueryDeveloperModeStatus"}, map[string]any{"DeveloperModeStatus": true}},
		{udid16, map[string]any{"Command": "LookupImage", "ImageType": "Developer"}, map[string]any{"ImagePresent": true}},
		{udid16, map[string]any{"Command": "LookupImage", "ImageType": "Personalized"}, map[string]any{"ImagePresent": false, "ImageSignature": []any{}}},
		{udid17, map[string]any{"Command": "LookupImage", "ImageType": "Personalized"}, map[string]any{"ImagePresent": true}},
		{udid16, map[string]any{"Command": "CopyDevices"}, map[string]any{"Status": "Complete"}},
		{locked.UDID, map[string]any{"Command": "LookupImage", "ImageType": "Developer"}, map[string]any{"Error": "DeviceLocked"}},
		{udid16, map[string]any{"Command": "Dance"}, map[string]any{"Error": "UnknownCommand"}},
	} {
		conn, err := connectService(c.udid, imageMounterName)
		if err != nil {
			t.Fatal(err)
		}
		answer := ask(t, conn, c.request)
		for key, want := range c.want {
			if !reflect.DeepEqual(answer[key], want) {
				t.Errorf("%v to %s: %s is %v, want %v", c.request, c.udid, key, answer[key], want)
			}
		}
		if c.request["Command"] == "CopyDevices" {
			list, _ := answer["EntryList"].([]any)
			if len(list) != 1 || list[0].(map[string]any)["MountPath"] != "/Developer" {
				t.Errorf("mounted: %v", answer)
			}
		}
		if err := writePlist(conn, map[string]any{"Command": "Hangup"}); err != nil {
			t.Fatal(err)
		}
		if _, err := readPlist(conn); err != io.EOF {
			t.Errorf("after Hangup: %v, want the end", err)
		}
		conn.Close()
	}
}

func TestLookupFindsAnAppAndTellsWhatWasAskedFor(t *testing.T) {
	startLab(t, DefaultDevice(udid15, "15.8"))
	conn, err := connectService(udid15, installationProxyName)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answer := ask(t, conn, map[string]any{"Command": "Lookup", "ClientOptions": map[string]any{
		"BundleIDs": []any{"com.example.app", "com.example.nothing"}, "ReturnAttributes": []any{"CFBundleExecutable", "Path", "Weather"}}})
	want := map[string]any{"com.example.app": map[string]any{"CFBundleExecutable": "Example", "Path": "/private/var/containers/Bundle/Application/Example.app"}}
	if answer["Status"] != "Complete" || !reflect.DeepEqual(answer["LookupResult"], want) {
		t.Errorf("%v, want %v", answer, want)
	}
	all, _ := ask(t, conn, map[string]any{"Command": "Lookup"})["LookupResult"].(map[string]any)
	if !slices.Equal(slices.Collect(maps.Keys(all)), []string{"com.example.app"}) {
		t.Errorf("without a list of bundles: %v", all)
	}
}

func TestPropertyListMessagesAreBounded(t *testing.T) {
	if _, err := readPlist(bytes.NewReader([]byte{0, 4, 0, 1})); err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a message of 262,145 bytes: %v, want a refusal before any of it is read", err)
	}
	if _, err := readPlist(bytes.NewReader([]byte{0, 4, 0, 0, 'x'})); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a message that is cut off: %v", err)
	}
	if _, err := readPlist(bytes.NewReader([]byte{0, 0, 0, 2, 'h', 'i'})); err == nil {
		t.Error("a message that is no dictionary was accepted")
	}
}
