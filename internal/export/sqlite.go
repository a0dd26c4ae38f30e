package export

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	_ "modernc.org/sqlite" // the driver

	"github.com/framebridge/framebridge/ledger"
)

// database is the sink of sqlite: one file, filled in one transaction.
type database struct {
	db      *sql.DB
	tx      *sql.Tx
	inserts map[*Table]*sql.Stmt
	values  []any
}

// The file is new and nobody else has it: what a crash leaves of it is thrown away. Pages of 16 KiB halve the work of filling it.
const pragmas = "?_pragma=page_size(16384)&_pragma=journal_mode(off)&_pragma=synchronous(off)&_pragma=locking_mode(exclusive)&_pragma=cache_size(-32768)"

var sqliteTypes = [...]string{Integer: "INTEGER", Text: "TEXT", Boolean: "INTEGER"}

func newSQLite(path string) (sink, error) {
	db, err := sql.Open("sqlite", "file:"+escapePath(path)+pragmas)
	if err != nil {
		return nil, err
	}
	d := &database{db: db, inserts: map[*Table]*sql.Stmt{}}
	if d.tx, err = db.BeginTx(context.Background(), nil); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	for _, t := range Tables {
		var columns []string
		for _, c := range t.Columns {
			column := fmt.Sprintf("%q %s", c.Name, sqliteTypes[c.Kind])
			if !c.Nullable {
				column += " NOT NULL"
			}
			columns = append(columns, column)
		}
		if _, err = d.tx.Exec(fmt.Sprintf("CREATE TABLE %q (%s) STRICT", t.Name, strings.Join(columns, ", "))); err != nil {
			break
		}
		if d.inserts[t], err = d.tx.Prepare(fmt.Sprintf("INSERT INTO %q VALUES (?%s)", t.Name, strings.Repeat(", ?", len(t.Columns)-1))); err != nil {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return d, nil
}

func (d *database) row(_ *ledger.Event, t *Table, cells []cell) error {
	d.values = d.values[:0]
	for i, c := range cells {
		switch {
		case !c.known:
			d.values = append(d.values, nil)
		case t.Columns[i].Kind == Text:
			d.values = append(d.values, c.text)
		default:
			d.values = append(d.values, c.n)
		}
	}
	_, err := d.inserts[t].Exec(d.values...)
	return err
}

func (d *database) close() error {
	_, err := d.tx.Exec(`CREATE INDEX "frames_by_presentation" ON "frames" ("presentationNs")`)
	if err == nil {
		err = d.tx.Commit()
	}
	return errors.Join(err, d.db.Close())
}

// escapePath makes a path part of a URI.
func escapePath(path string) string {
	return strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(path)
}
