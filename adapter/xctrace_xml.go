package adapter

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Bounds of an export of Instruments. A value that appears once is named by an id and may be referred to by any later row, so the
// values that frames need have to be kept.
const (
	maxXMLTokenBytes = 1 << 20   // one tag or text; the longest real ones are some hundred bytes
	maxXMLColumns    = 256       // real tables have up to 30
	maxXMLDepth      = 64        // the deepest real element is at nine
	maxXMLKeptBytes  = 512 << 20 // about two hours of frames at 120 Hz
)

// element is a value of a table in an export, as far as frames need it.
type element struct {
	tag      string
	text     string
	format   string // of a process: its name and pid, as shown
	children []*element
}

func (e *element) child(tag string) *element {
	for _, c := range e.children {
		if c.tag == tag {
			return c
		}
	}
	return nil
}

// number is the element's content as a whole number; ok is false where it is none, or there is no element.
func (e *element) number() (n uint64, ok bool) {
	if e == nil || e.text == "" || len(e.text) > 20 {
		return 0, false
	}
	for _, c := range []byte(e.text) {
		d := uint64(c - '0')
		if d > 9 || n > (1<<64-1-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, true
}

// keptTags are the elements that frames are made of, besides the numbers and texts of messages. One string for each.
var keptTags = [...]string{"start-time", "duration", "display-name", "string", "category", "subsystem", "os-signpost-identifier", "process", "pid",
	"os-log-metadata", "narrative-text", "uint64", "uint64-hex-lowercase"}

func keptTag(tag string) (same string, kept bool) {
	for _, t := range keptTags {
		if t == tag {
			return t, true
		}
	}
	return tag, kindOf(tag) == itemNumber
}

// exportReader reads an XML export of Instruments, row by row, with references resolved.
type exportReader struct {
	xml    *xml.Decoder
	token  *tokenReader
	values map[string]*element // by id
	kept   int64               // bytes, about
}

func newExportReader(r io.Reader) *exportReader {
	token := &tokenReader{r: r}
	return &exportReader{xml: xml.NewDecoder(token), token: token, values: map[string]*element{}}
}

// tokenReader bounds what encoding/xml may read, and so hold, for one token.
type tokenReader struct {
	r    io.Reader
	left int
}

var errTokenTooLong = errors.New("a tag or text that is too long")

func (t *tokenReader) Read(p []byte) (int, error) {
	if t.left <= 0 {
		return 0, fmt.Errorf("%w: more than %d bytes", errTokenTooLong, maxXMLTokenBytes)
	}
	n, err := t.r.Read(p[:min(len(p), t.left)])
	t.left -= n
	return n, err
}

func (x *exportReader) next() (xml.Token, error) {
	x.token.left = maxXMLTokenBytes
	return x.xml.Token()
}

// fail says where in the file something is wrong.
func (x *exportReader) fail(format string, args ...any) error {
	line, column := x.xml.InputPos()
	return fmt.Errorf("xctrace export, line %d, column %d: %w", line, column, fmt.Errorf(format, args...))
}

// rows calls row for each row of each table named schema, with the values by column. A missing value is nil.
func (x *exportReader) rows(schema string, row func(values map[string]*element) error) error {
	var columns []string
	inTable, tables := false, 0
	for depth := 0; ; {
		token, err := x.next()
		if err == io.EOF {
			if tables == 0 {
				return x.fail("no table %q; export one with: xctrace export --input FILE.trace --xpath '//table[@schema=\"%s\"]'", schema, schema)
			}
			return nil
		}
		if err != nil {
			return x.fail("%w", err)
		}
		switch t := token.(type) {
		case xml.StartElement:
			switch {
			case t.Name.Local == "schema":
				if columns, err = x.columns(depth); err != nil {
					return err
				}
				if inTable = attribute(t, "name") == schema; inTable {
					tables++
				}
			case t.Name.Local == "row":
				values := map[string]*element{}
				if err := x.row(depth, columns, values); err != nil {
					return err
				}
				if inTable {
					if err := row(values); err != nil {
						return err
					}
				}
			default:
				if depth++; depth > maxXMLDepth {
					return x.fail("nested deeper than %d", maxXMLDepth)
				}
			}
		case xml.EndElement:
			depth--
		}
	}
}

// columns reads the mnemonics of a schema, up to its end.
func (x *exportReader) columns(depth int) (columns []string, err error) {
	for inside := 1; inside > 0; {
		token, err := x.next()
		if err != nil {
			return nil, x.fail("%w", err)
		}
		switch t := token.(type) {
		case xml.StartElement:
			if t.Name.Local == "mnemonic" {
				mnemonic, err := x.text(depth + inside)
				if err != nil {
					return nil, err
				}
				if columns = append(columns, mnemonic); len(columns) > maxXMLColumns {
					return nil, x.fail("more than %d columns", maxXMLColumns)
				}
			} else if inside++; depth+inside > maxXMLDepth {
				return nil, x.fail("nested deeper than %d", maxXMLDepth)
			}
		case xml.EndElement:
			inside--
		}
	}
	return columns, nil
}

// text reads the characters up to the end of the element at hand.
func (x *exportReader) text(depth int) (string, error) {
	text := ""
	for {
		token, err := x.next()
		if err != nil {
			return "", x.fail("%w", err)
		}
		switch t := token.(type) {
		case xml.StartElement:
			if _, err := x.element(t, depth+1, false); err != nil {
				return "", err
			}
		case xml.CharData:
			if text += string(t); len(text) > maxXMLTokenBytes {
				return "", x.fail("%w", errTokenTooLong)
			}
		case xml.EndElement:
			return text, nil
		}
	}
}

// row reads the values of a row, up to its end.
func (x *exportReader) row(depth int, columns []string, values map[string]*element) error {
	for i := 0; ; {
		token, err := x.next()
		if err != nil {
			return x.fail("%w", err)
		}
		switch t := token.(type) {
		case xml.StartElement:
			e, err := x.element(t, depth+1, false)
			if err != nil {
				return err
			}
			if i < len(columns) && e.tag != "sentinel" {
				values[columns[i]] = e
			}
			i++
		case xml.EndElement:
			return nil
		}
	}
}

// element reads an element up to its end, or finds the one that it refers to. inValue is true inside another one that is kept.
func (x *exportReader) element(start xml.StartElement, depth int, inValue bool) (*element, error) {
	if depth > maxXMLDepth {
		return nil, x.fail("nested deeper than %d", maxXMLDepth)
	}
	e := &element{}
	var kept bool
	if e.tag, kept = keptTag(start.Name.Local); e.tag == "process" {
		e.format = attribute(start, "fmt")
	}
	id, ref := strings.Clone(attribute(start, "id")), attribute(start, "ref")
	if kept || inValue {
		const overhead = 200 // of the element, its place in its parent, and its entry in the map
		if x.kept += int64(overhead + len(e.format)); ref != "" {
			x.kept -= overhead
		}
	}
	hasChildren := e.tag == "process" || e.tag == "os-log-metadata"
	for open := true; open; {
		token, err := x.next()
		if err != nil {
			return nil, x.fail("%w", err)
		}
		switch t := token.(type) {
		case xml.StartElement:
			child, err := x.element(t, depth+1, hasChildren)
			if err != nil {
				return nil, err
			}
			if hasChildren {
				e.children = append(e.children, child)
			}
		case xml.CharData:
			if kept && !hasChildren {
				e.text += string(t)
				x.kept += int64(len(t))
			}
		case xml.EndElement:
			open = false
		}
		if x.kept > maxXMLKeptBytes {
			return nil, x.fail("more than %d bytes of values; export a shorter part of the recording", maxXMLKeptBytes)
		}
	}
	switch {
	case ref != "" && kept:
		value := x.values[ref]
		if value == nil || value.tag != e.tag {
			return nil, x.fail("<%s> refers to id %q, which no <%s> before it has", e.tag, ref, e.tag)
		}
		return value, nil
	case id != "" && kept:
		if x.values[id] != nil {
			return nil, x.fail("id %q is given twice", id)
		}
		x.values[id] = e
	}
	return e, nil
}

func attribute(start xml.StartElement, name string) string {
	for _, a := range start.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}
