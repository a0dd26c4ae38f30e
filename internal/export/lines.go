package export

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/framebridge/framebridge/internal/jsonline"
	"github.com/framebridge/framebridge/ledger"
)

// lineFiles is the sink of csv and jsonl: a directory with a file of lines for each table.
type lineFiles struct {
	files map[*Table]*lineFile
	line  func(dst []byte, t *Table, cells []cell) []byte
	text  []byte
}

type lineFile struct {
	*bufio.Writer
	file *os.File
}

func newLineFiles(dir, extension string, header func(dst []byte, t *Table) []byte, line func([]byte, *Table, []cell) []byte) (*lineFiles, error) {
	l := &lineFiles{files: map[*Table]*lineFile{}, line: line}
	for _, t := range Tables {
		f, err := os.OpenFile(filepath.Join(dir, t.Name+extension), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return nil, errors.Join(err, l.close())
		}
		l.files[t] = &lineFile{bufio.NewWriterSize(f, 64<<10), f}
		if _, err := l.files[t].Write(header(nil, t)); err != nil {
			return nil, errors.Join(err, l.close())
		}
	}
	return l, nil
}

func (l *lineFiles) row(_ *ledger.Event, t *Table, cells []cell) error {
	l.text = l.line(l.text[:0], t, cells)
	_, err := l.files[t].Write(l.text)
	return err
}

func (l *lineFiles) close() error {
	var errs []error
	for _, f := range l.files {
		errs = append(errs, f.Flush(), f.file.Close())
	}
	return errors.Join(errs...)
}

func newCSV(dir string) (sink, error) {
	return newLineFiles(dir, ".csv", func(dst []byte, t *Table) []byte {
		for i, c := range t.Columns {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, c.Name...)
		}
		return append(dst, '\n')
	}, appendCSV)
}

// appendCSV quotes texts where RFC 4180 asks for it, and the empty text, which null would be else.
func appendCSV(dst []byte, t *Table, cells []cell) []byte {
	for i, c := range cells {
		if i > 0 {
			dst = append(dst, ',')
		}
		switch {
		case !c.known:
		case t.Columns[i].Kind == Integer:
			dst = strconv.AppendInt(dst, c.n, 10)
		case t.Columns[i].Kind == Boolean:
			dst = strconv.AppendBool(dst, c.n == 1)
		case c.text == "" || strings.ContainsAny(c.text, "\",\r\n"):
			dst = append(dst, '"')
			dst = append(dst, strings.ReplaceAll(c.text, `"`, `""`)...)
			dst = append(dst, '"')
		default:
			dst = append(dst, c.text...)
		}
	}
	return append(dst, '\n')
}

func newJSONL(dir string) (sink, error) {
	return newLineFiles(dir, ".jsonl", func(dst []byte, _ *Table) []byte { return dst }, appendJSONL)
}

func appendJSONL(dst []byte, t *Table, cells []cell) []byte {
	for i, c := range cells {
		dst = append(dst, `,"`...)
		if i == 0 {
			dst[len(dst)-2] = '{'
		}
		dst = append(dst, t.Columns[i].Name...)
		dst = append(dst, `":`...)
		switch {
		case !c.known:
			dst = append(dst, "null"...)
		case t.Columns[i].Kind == Integer:
			dst = strconv.AppendInt(dst, c.n, 10)
		case t.Columns[i].Kind == Boolean:
			dst = strconv.AppendBool(dst, c.n == 1)
		default:
			dst = jsonline.AppendString(dst, c.text)
		}
	}
	return append(dst, "}\n"...)
}
