// Package pgmigrations holds the PostgreSQL schema of Outbox as numbered plain SQL and applies it.
//
// There are four sets, each with its own version table, so that an application takes only what it uses. core has
// outbox_events, job_dlq, apps and lane leases, events has event_outbox, crawl has runs, their log and their outbox.
// log has outbox_log, and is applied only where it is named. All stand on core. The files are ordinary golang-migrate
// files, and Encore reads the same format; nothing in them needs this package.
//
// Guaranteed: every file is one transaction and may run twice, so a process killed at any point leaves a schema that Up
// completes. Any number of processes may call Up at once. No error carries the database URL.
//
// Not guaranteed: that it works through a transaction pooler (the locks are session locks: connect
// directly), and that a schema newer than this build is understood (it is left alone).
package pgmigrations

import (
	"embed"
	"io"
	"slices"

	"github.com/outboxrelay/outbox/internal/store/migration"
	"github.com/outboxrelay/outbox/internal/store/sqlfile"
)

//go:embed core/*.sql events/*.sql crawl/*.sql log/*.sql
var files embed.FS

var embedded = migration.Files{Files: files}

// Sets are the known migration sets in the order in which they are applied. Treat it as a constant.
var Sets = migration.Sets

// every set that there is, in the order in which they are applied.
var every = slices.Concat(migration.Sets, migration.Optional)

// Required is the version that a database must have for this build: the newest embedded one of the set, 0 for
// an unknown set.
func Required(set string) uint { return embedded.Required(set) }

// Print writes the up files of the sets (none: all sets) as they are, in the order of application: what a
// database administrator reads before, or runs instead of, Up.
func Print(w io.Writer, sets ...string) error { return embedded.Print(w, sets...) }

// filled fills in one of the SQL files that are part of the program. What can go wrong with them is a broken build.
func filled(parse func() (*sqlfile.Set, error), render func(*sqlfile.Set) (string, error)) string {
	set, err := parse()
	if err != nil {
		panic("migrations: " + err.Error())
	}
	text, err := render(set)
	if err != nil {
		panic("migrations: " + err.Error())
	}
	return text
}
