package sqliteoperate

import (
	"embed"
	"sync"

	"github.com/outboxrelay/outbox/internal/store/sqlfile"
	"github.com/outboxrelay/outbox/internal/store/sqlitefile"
	"github.com/outboxrelay/outbox/internal/store/sqlitetable"
	"github.com/outboxrelay/outbox/store/sqlite"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

// parseSQL parses the files once: opening a table asks for them several times.
var parseSQL = sync.OnceValues(func() (*sqlfile.Set, error) { return sqlitetable.Parse(sqlFiles) })

// plain returns a statement that needs no names.
func plain(name string) (string, error) {
	t, err := parseSQL()
	if err != nil {
		return "", err
	}
	return t.Statement(name, nil)
}

// file is a DB as internal/store/sqlitetable asks it.
func file(db *sqlite.DB) sqlitetable.File {
	return sqlitetable.File{Reads: db.Reads(), Explain: sqlitefile.Explain}
}
