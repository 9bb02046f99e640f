// Package pgmigrations holds the PostgreSQL schema of Outbox as numbered plain SQL and applies it.
//
// There are four sets, each with its own version table, so that an application takes only what it
// uses. core has outbox_events, job_dlq, apps and lane leases, events has event_outbox, crawl has
// runs, their log and their outbox. log has outbox_log, and is applied only where it is named. All
// stand on core. The files and the version tables are those of golang-migrate, and Encore reads the
// same format; nothing in them needs this package.
//
// Guaranteed: every file is one transaction with the record of its version, and may run twice. A
// process killed at any point leaves a schema that Up completes. Any number of processes may call
// Up at once. No error carries the database URL.
//
// Not guaranteed: that a schema newer than this build is understood (it is left alone).
package pgmigrations

import (
	"context"
	"embed"
	"io"
	"io/fs"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/internal/store/migration"
	"github.com/outboxrelay/outbox/internal/store/sqlfile"
)

var (
	//go:embed core/*.sql events/*.sql crawl/*.sql log/*.sql
	files embed.FS
	//go:embed sql/*.sql
	sqlFiles embed.FS
)

var embedded = migration.Files{Files: files}

var statements = sqlfile.Folder(sqlFiles)

// Sets are the known migration sets in the order in which they are applied. Treat it as a constant.
var Sets = migration.Sets

// every set that there is, in the order in which they are applied.
var every = slices.Concat(migration.Sets, migration.Optional)

// Required is the version that a database must have for this build: the newest embedded one of the
// set, 0 for an unknown set.
func Required(set string) uint { return embedded.Required(set) }

// Print writes the up files of the sets (none: all sets) as they are, in the order of application:
// what a database administrator reads before, or runs instead of, Up.
func Print(w io.Writer, sets ...string) error { return embedded.Print(w, sets...) }

// statement fills a file of sql/ in, without its head. What can go wrong with that is a broken
// build.
func statement(name string, values any) string {
	text, err := statements.Statement(name, values)
	if err != nil {
		panic("migrations: " + err.Error())
	}
	return text
}

// asker is a connection or a transaction.
type asker interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// each runs a file of sql/, and calls row for each of its rows, after the row's columns have been
// put where dst says.
func each(ctx context.Context, db asker, name string, args, dst []any, row func() error) error {
	rows, err := db.Query(ctx, statement(name, nil), args...)
	if err != nil {
		return err
	}
	_, err = pgx.ForEachRow(rows, dst, row)
	return err
}

// texts are the rows of a file that has one column.
func texts(ctx context.Context, db asker, name string, args ...any) (all []string, err error) {
	var one string
	err = each(ctx, db, name, args, []any{&one}, func() error {
		all = append(all, one)
		return nil
	})
	return all, err
}

// content is a file of a set.
func content(path string) string {
	text, err := fs.ReadFile(files, path)
	if err != nil {
		panic("migrations: " + err.Error()) // a broken build too
	}
	return string(text)
}
