// Package sqlitemigrations holds the SQLite schema of Outbox as numbered plain SQL and applies it.
//
// There are the same three sets as for PostgreSQL, each with its own version table. core has
// outbox_events, job_dlq, apps and lane leases, events has event_outbox, crawl has runs, their log
// and their outbox. events and crawl stand on core. The numbers within a set are SQLite's own: it
// began later, with less history.
//
// Guaranteed: what one call changes is one transaction, so a process killed at any point leaves the
// file as it was; any number of processes may call Up at once.
//
// Not guaranteed: that a schema newer than this build is understood (it is left alone).
package sqlitemigrations

import (
	"embed"
	"io"

	"github.com/outboxrelay/outbox/internal/store/migration"
)

//go:embed core/*.sql events/*.sql crawl/*.sql
var files embed.FS

var embedded = migration.Files{Files: files}

// Sets are the known migration sets in the order in which they are applied. Treat it as a constant.
var Sets = migration.Sets

// Required is the version that a file must have for this build: the newest embedded one of the set,
// 0 for an unknown set.
func Required(set string) uint { return embedded.Required(set) }

// Print writes the up files of the sets (none: all sets) as they are, in the order of application.
func Print(w io.Writer, sets ...string) error { return embedded.Print(w, sets...) }
