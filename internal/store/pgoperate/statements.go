package pgoperate

import (
	"embed"
	"sync"

	"github.com/outboxrelay/outbox/internal/store/pgtable"
	"github.com/outboxrelay/outbox/internal/store/sqlfile"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

// parseSQL parses the files once: opening a table asks for them several times.
var parseSQL = sync.OnceValues(func() (*sqlfile.Set, error) { return pgtable.Parse(sqlFiles) })

// plain returns a statement that needs no names.
func plain(name string) (string, error) {
	t, err := parseSQL()
	if err != nil {
		return "", err
	}
	return t.Statement(name, nil)
}
