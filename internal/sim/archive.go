package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"howett.net/plist"
)

// An NSKeyedArchiver archive is a property list: $objects is a flat list of objects, which refer to each other by their place in it
// (UIDs), $top names the root. go-ios archives only what a host sends; a device also sends dates, dictionaries keyed by number, and
// messages of its own classes: hence an archiver of our own. What clients send is read by package dtx.
//
// Values: nil, string, bool, integers, float64, []byte, time.Time, []any, map[string]any, map[uint64]any, object.

// object is an instance of a class that Foundation's plain values do not cover. Fields holding plain numbers stay in place, all else is referred to.
type object struct {
	classes []string // the class, then what it inherits from
	fields  map[string]any
}

// tapMessage is what a tap says about itself; the dictionary's meaning is the tap's own.
func tapMessage(class string, dict map[string]any) object {
	return object{[]string{class, "DTTapMessage", "NSObject"}, map[string]any{
		"DTTapMessagePlist": object{[]string{"NSMutableDictionary", "NSDictionary", "NSObject"}, dictFields(dict)}}}
}

// refs is a list of values to be referred to: NS.objects and NS.keys.
type refs []any

func dictFields[K cmp.Ordered](m map[K]any) map[string]any {
	keys, values := make(refs, 0, len(m)), make(refs, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		keys, values = append(keys, k), append(values, m[k])
	}
	return map[string]any{"NS.keys": keys, "NS.objects": values}
}

// foundationEpoch is 2001-01-01 00:00:00 UTC, the zero of NSDate, in Unix seconds.
const foundationEpoch = 978307200

type archiver struct {
	objects []any
	classes map[string]plist.UID
}

// archive encodes v as a binary archive.
func archive(v any) ([]byte, error) {
	a := archiver{objects: []any{"$null"}, classes: map[string]plist.UID{}}
	root, err := a.add(v)
	if err != nil {
		return nil, err
	}
	return plist.Marshal(map[string]any{"$version": uint64(100_000), "$archiver": "NSKeyedArchiver",
		"$top": map[string]any{"root": root}, "$objects": a.objects}, plist.BinaryFormat)
}

func (a *archiver) add(v any) (plist.UID, error) {
	switch v := v.(type) {
	case nil:
		return 0, nil
	case string, bool, int, int64, int32, uint64, uint32, float64, []byte:
		a.objects = append(a.objects, v)
		return plist.UID(len(a.objects) - 1), nil
	case time.Time:
		seconds := float64(v.UnixNano())/1e9 - foundationEpoch
		return a.add(object{[]string{"NSDate", "NSObject"}, map[string]any{"NS.time": seconds}})
	case []any:
		return a.add(object{[]string{"NSArray", "NSObject"}, map[string]any{"NS.objects": refs(v)}})
	case map[string]any:
		return a.add(object{[]string{"NSDictionary", "NSObject"}, dictFields(v)})
	case map[uint64]any:
		return a.add(object{[]string{"NSDictionary", "NSObject"}, dictFields(v)})
	case object:
		return a.addObject(v)
	}
	return 0, fmt.Errorf("archive: %T is no value that this archiver knows", v)
}

func (a *archiver) addObject(o object) (plist.UID, error) {
	out := map[string]any{}
	at := len(a.objects)
	a.objects = append(a.objects, out)
	for _, key := range slices.Sorted(maps.Keys(o.fields)) {
		switch value := o.fields[key].(type) {
		case int64, uint64, float64, bool:
			out[key] = value
		case refs:
			list := make([]plist.UID, len(value))
			for i, item := range value {
				uid, err := a.add(item)
				if err != nil {
					return 0, err
				}
				list[i] = uid
			}
			out[key] = list
		default:
			uid, err := a.add(value)
			if err != nil {
				return 0, err
			}
			out[key] = uid
		}
	}
	class, known := a.classes[o.classes[0]]
	if !known {
		class = plist.UID(len(a.objects))
		a.classes[o.classes[0]] = class
		a.objects = append(a.objects, map[string]any{"$classname": o.classes[0], "$classes": o.classes})
	}
	out["$class"] = class
	return plist.UID(at), nil
}
