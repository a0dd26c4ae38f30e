package tap

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
)

// stream is words as wire.md writes them, in the order of the wire.
func stream(words string) []byte {
	var out []byte
	for _, word := range strings.Fields(words) {
		b, err := hex.DecodeString(word)
		if err != nil || len(b) != 2 {
			panic("not a word: " + word)
		}
		out = binary.LittleEndian.AppendUint16(out, binary.BigEndian.Uint16(b))
	}
	return out
}

// log is a Handler that writes down all it is told.
type log struct {
	columns []string
	lines   []string
}

func (l *log) Row(r *Row) {
	line := r.Table()
	for i, name := range l.columns {
		line += " " + name + "=" + show(r.Value(i))
	}
	l.lines = append(l.lines, line)
}

func (l *log) Gap(g Gap) {
	l.lines = append(l.lines, fmt.Sprintf("%s rows=%d bytes=%d", g.Reason, g.Rows, g.Bytes))
}

func show(v Value) string {
	switch {
	case v.IsNull():
		return "null"
	case v.IsStruct():
		parts := []string{}
		for i := range v.Len() {
			parts = append(parts, show(v.At(i)))
		}
		return "[" + strings.Join(parts, " ") + "]"
	}
	return hex.EncodeToString(v.Bytes())
}
