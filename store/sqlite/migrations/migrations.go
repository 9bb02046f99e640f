// Package migrations makes and upgrades the SQLite tables of Outbox. The command has more of it:
// status, print and down (outbox migrate).
//
// There are the same three sets as for PostgreSQL, each with its own version table. core has
// outbox_events, job_dlq, apps and lane leases, events has event_outbox, crawl has runs, their log
// and their outbox. events and crawl stand on core.
//
// Guaranteed: what one call changes is one transaction, so a process killed at any point leaves the
// file as it was; any number of processes may call Up at once.
//
// Not guaranteed: that a schema newer than this build is understood (it is left alone).
package migrations

import (
	"context"
	"database/sql"

	"github.com/outboxrelay/outbox/internal/store/sqlitemigrations"
)

// Up brings the sets (none: core and events, and what the file has of the others) to the newest
// version that this build has, core first, in one transaction. It is safe to call from many
// processes at once, and where there is nothing to do. db is a database whose transactions begin
// with BEGIN IMMEDIATE: sqlite.DB's Begin does.
//
// When ctx ends, nothing is changed.
func Up(ctx context.Context, db *sql.DB, sets ...string) error {
	return sqlitemigrations.Up(ctx, db, sets...)
}
