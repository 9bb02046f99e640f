package pgtable

import (
	"embed"
	"io/fs"

	"github.com/outboxrelay/outbox/internal/store/sqlfile"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

var files = sqlfile.Folder(sqlFiles)

// Files are the statements of a store, which may use the templates of this package and have its
// statements, and those of what is beside it.
func Files(of fs.FS, beside ...fs.FS) sqlfile.Files {
	return sqlfile.Folder(of, append(beside, sqlFiles)...)
}
