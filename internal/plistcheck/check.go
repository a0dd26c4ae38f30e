// Package plistcheck looks at property lists before they are decoded. The decoders that follow (howett.net/plist, and go-ios's of archives)
// recurse as deep as the bytes say, decode what is shared once for each reference (two hundred bytes can stand for 2^100 objects) and
// allocate what a count claims. Memory and the stack once exhausted, no recover helps.
package plistcheck

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
)

// Bounds are what a document may amount to.
type Bounds struct {
	Bytes   int // of the document
	Depth   int // how deep objects nest
	Objects int // that it unfolds to: those that are shared are counted each time they are met
}

// Message checks a property list in XML or in binary form. Other forms are refused: Apple's services have not sent them for decades.
func Message(b []byte, most Bounds) error {
	if bytes.HasPrefix(b, []byte("bplist")) {
		_, _, err := checkBinary(b, most)
		return err
	}
	if len(b) > most.Bytes {
		return tooLong(b, most)
	}
	return checkXML(b, most)
}

// Archive checks the archive of an NSKeyedArchiver, in binary form: the document, and the tree that its UIDs make of it.
func Archive(b []byte, most Bounds) error {
	w, top, err := checkBinary(b, most)
	if err != nil {
		return err
	}
	// The plain tree is sound. Once more from $top, now through the references between archived objects.
	roots, err := w.archived(top)
	if err != nil {
		return err
	}
	for _, ref := range roots {
		if err := w.visit(ref, 0); err != nil {
			return err
		}
	}
	return nil
}

func tooLong(b []byte, most Bounds) error {
	return fmt.Errorf("property list: expected at most %d bytes, found %d", most.Bytes, len(b))
}

func tooDeep(most Bounds) error {
	return fmt.Errorf("property list: objects nest more than %d deep, or in a circle", most.Depth)
}

func tooMany(most Bounds) error {
	return fmt.Errorf("property list: it unfolds to more than %d objects", most.Objects)
}

// checkXML counts elements with the reader that the decoder uses as well, to the end of the root, which must be <plist>: at any other the
// decoder tries yet another form. An error names no cause: the reader's "EOF" is not the connection's.
func checkXML(b []byte, most Bounds) error {
	d := xml.NewDecoder(bytes.NewReader(b))
	depth, objects := 0, 0
	for {
		token, err := d.Token()
		if err != nil {
			return fmt.Errorf("property list: neither binary nor XML to its end: it cannot be read at byte %d of %d", d.InputOffset(), len(b))
		}
		switch t := token.(type) {
		case xml.StartElement:
			if depth == 0 && t.Name.Local != "plist" {
				return errors.New("property list: expected the element plist, found another")
			}
			if depth++; depth > most.Depth {
				return tooDeep(most)
			}
			if objects++; objects > most.Objects {
				return tooMany(most)
			}
		case xml.EndElement:
			if depth--; depth == 0 {
				return nil
			}
		}
	}
}
