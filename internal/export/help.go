package export

import (
	"fmt"
	"strings"
)

// Help describes the formats, and the tables column by column.
func Help() string {
	var b strings.Builder
	b.WriteString("Formats:\n")
	for _, f := range Formats {
		fmt.Fprintf(&b, "  %-9s %s\n", f.Name, indented(f.Doc, 12))
	}
	b.WriteString(`
Tables. Names of columns are those of the events, with a unit added where an integer stands for a decimal (frameTimeNs is frameTimeMs
times 10^6). Integers have 64 bits: read them as such, a double keeps only 53. A column with ? may be null.
`)
	for _, t := range Tables {
		fmt.Fprintf(&b, "\n%s: %s\n", t.Name, indented(t.Doc, 2))
		for _, c := range t.Columns {
			kind := c.Kind.String()
			if c.Nullable {
				kind += "?"
			}
			fmt.Fprintf(&b, "  %-24s %-8s  %s\n", c.Name, kind, c.Doc)
		}
	}
	return b.String()
}

func indented(text string, columns int) string {
	return strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", columns))
}
