package pgtable

import (
	"embed"
	"io/fs"
	"sync"

	"github.com/outboxrelay/outbox/internal/store/sqlfile"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

// Parse reads the statements of a store, which may use the templates of this package and have its statements, and those
// of what is beside it.
func Parse(files fs.FS, beside ...fs.FS) (*sqlfile.Set, error) {
	return sqlfile.Parse(files, "sql/*.sql", append(beside, sqlFiles)...)
}

// parseSQL parses the files once: opening a store asks for them several times.
var parseSQL = sync.OnceValues(func() (*sqlfile.Set, error) { return sqlfile.Parse(sqlFiles, "sql/*.sql") })

// plain returns a statement that needs no names.
func plain(name string) (string, error) {
	t, err := parseSQL()
	if err != nil {
		return "", err
	}
	return t.Statement(name, nil)
}
