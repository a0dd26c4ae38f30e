package report

import (
	"html"
	"html/template"
	"strconv"
	"strings"
)

// svg is a drawing that is being written. All that comes into it is escaped here.
type svg struct{ text strings.Builder }

// number has two decimals at most: a hundredth of a unit is far below what is seen.
func number(v float64) string {
	s := strconv.FormatFloat(v, 'f', 2, 64)
	return strings.TrimRight(strings.TrimRight(s, "0"), ".")
}

// open begins an element; attributes come in pairs.
func (s *svg) open(element string, attributes ...string) {
	s.text.WriteString("<" + element)
	for i := 0; i < len(attributes); i += 2 {
		s.text.WriteString(" " + attributes[i] + `="` + html.EscapeString(attributes[i+1]) + `"`)
	}
	s.text.WriteString(">")
}

func (s *svg) close(element string) { s.text.WriteString("</" + element + ">") }

func (s *svg) leaf(element string, attributes ...string) {
	s.open(element, attributes...)
	s.close(element)
}

// words is an element that holds nothing but text.
func (s *svg) words(element, text string, attributes ...string) {
	s.open(element, attributes...)
	s.text.WriteString(html.EscapeString(text))
	s.close(element)
}

func (s *svg) html() template.HTML { return template.HTML(s.text.String()) }
