package tapenc

import "strings"

// The names of value types in a row's message: text, integers of either sign, hexadecimal, floating point and so on.
const (
	typeNarrative = "narrative-text"
	typeString    = "string"
	typeUint64    = "uint64"
	typeHex       = "uint64-hex-lowercase"
	typeDecimal   = "fixed-decimal"
	typeAddress   = "address"
	typeData      = "data"
	typeUUID      = "uuid"
	typePrivate   = "private"
)

// part is a piece of a message: literal text (typeNarrative), or an argument of another type and, in text, its name.
type part struct{ typ, text string }

// parse takes an os_log format string apart, as the loader does: arguments that stand for the interval's own begin and end are left
// out, the text around them stays. It knows the formats of this package and of scene, not the whole language.
func parse(format string) (parts []part) {
	for format != "" {
		text, rest, found := strings.Cut(format, "%")
		if text != "" {
			parts = append(parts, part{typeNarrative, text})
		}
		if !found {
			break
		}
		options := ""
		if strings.HasPrefix(rest, "{") {
			options, rest, _ = strings.Cut(rest[1:], "}")
		}
		n := strings.IndexAny(rest, "duxfpsP")
		if n < 0 {
			break
		}
		conversion := rest[:n+1]
		format = rest[n+1:]
		typ := typeUint64
		switch {
		case strings.Contains(options, "begin_time") || strings.Contains(options, "end_time"):
			continue
		case strings.Contains(options, "private"):
			typ = typePrivate
		case strings.Contains(options, "uuid_t"):
			typ = typeUUID
		default:
			switch conversion[len(conversion)-1] {
			case 'f':
				typ = typeDecimal
			case 'x':
				typ = typeHex
			case 'p':
				typ = typeAddress
			case 's':
				typ = typeString
			case 'P':
				typ = typeData
			}
		}
		parts = append(parts, part{typ, argName(options)})
	}
	return parts
}

func argName(options string) string {
	for _, o := range strings.Split(options, ",") {
		if name, ok := strings.CutPrefix(strings.TrimSpace(o), "name="); ok {
			return name
		}
	}
	return ""
}
