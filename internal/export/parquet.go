package export

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"

	"github.com/parquet-go/parquet-go"

	"github.com/framebridge/framebridge/ledger"
)

// A row group is what a writer holds in memory: 2^16 frames are nine minutes at 120 Hz and about 20 MB.
const rowsPerGroup = 1 << 16

// parquetFiles is the sink of parquet: a directory with a file for each table.
type parquetFiles map[*Table]*parquetFile

type parquetFile struct {
	file   *os.File
	writer *parquet.GenericWriter[any]
	row    []parquet.Row // one
}

func newParquet(dir string) (sink, error) {
	files := parquetFiles{}
	for _, t := range Tables {
		f, err := os.OpenFile(filepath.Join(dir, t.Name+".parquet"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return nil, errors.Join(err, files.close())
		}
		files[t] = &parquetFile{file: f, row: []parquet.Row{make(parquet.Row, len(t.Columns))},
			writer: parquet.NewGenericWriter[any](f, schemaOf(t), parquet.Compression(&parquet.Snappy), parquet.MaxRowsPerRowGroup(rowsPerGroup))}
	}
	return files, nil
}

// schemaOf is the table as a struct, since that keeps the order of its columns.
func schemaOf(t *Table) *parquet.Schema {
	var fields []reflect.StructField
	for i, c := range t.Columns {
		field := reflect.StructField{Name: fmt.Sprintf("C%d", i)}
		options := ""
		switch c.Kind {
		case Integer:
			field.Type, options = reflect.TypeFor[int64](), ",delta"
		case Text:
			field.Type, options = reflect.TypeFor[string](), ",dict"
		case Boolean:
			field.Type = reflect.TypeFor[bool]()
		}
		if c.Nullable {
			options += ",optional"
		}
		field.Tag = reflect.StructTag(`parquet:"` + c.Name + options + `"`)
		fields = append(fields, field)
	}
	return parquet.NewSchema(t.Name, parquet.SchemaOf(reflect.Zero(reflect.StructOf(fields)).Interface()))
}

func (p parquetFiles) row(_ *ledger.Event, t *Table, cells []cell) error {
	f := p[t]
	for i, c := range cells {
		var v parquet.Value
		level := 0 // of definition: 1 for a value that might have been null
		if c.known {
			switch t.Columns[i].Kind {
			case Integer:
				v = parquet.Int64Value(c.n)
			case Text:
				v = parquet.ByteArrayValue([]byte(c.text))
			case Boolean:
				v = parquet.BooleanValue(c.n == 1)
			}
			if t.Columns[i].Nullable {
				level = 1
			}
		}
		f.row[0][i] = v.Level(0, level, i)
	}
	_, err := f.writer.WriteRows(f.row)
	return err
}

func (p parquetFiles) close() error {
	var errs []error
	for _, f := range p {
		errs = append(errs, f.writer.Close(), f.file.Close())
	}
	return errors.Join(errs...)
}
