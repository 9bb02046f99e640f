// Package migrations makes and upgrades the PostgreSQL tables of Outbox. The command does more with
// them: status, plan, down, legacy tables, exports for other migration tools (outbox migrate).
//
// There are three sets, each with its own version table, so that an application takes only what it
// uses. core has outbox_events, job_dlq, apps and lane leases, events has event_outbox, crawl has
// runs, their log and their outbox. events and crawl stand on core. The files are ordinary
// golang-migrate files in internal/store/pgmigrations, and Encore reads the same format; nothing in
// them needs this package.
//
// Guaranteed: every file is one transaction with the record of its version, and may run twice. A
// process killed at any point leaves a schema that Up completes. Any number of processes may call
// Up at once. No error carries the database URL.
//
// Not guaranteed: that a schema newer than this build is understood (it is left alone).
package migrations

import (
	"context"

	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
)

// Up brings the sets (none: core and events, and what the database has of the others) to the newest
// version that this build has, core first. It is safe to call from many processes at once, and
// where there is nothing to do. Tables of ours that were there before are adopted; where they
// cannot be, Up changes nothing and says why.
//
// What another migration tool has applied (outbox migrate export) is left to it: there is nothing
// to do, or an error where it lacks something.
//
// When ctx ends, Up finishes the file under way and stops before the next.
func Up(ctx context.Context, databaseURL string, sets ...string) error {
	return pgmigrations.Up(ctx, databaseURL, sets...)
}

// ApplyRoles creates the group roles outbox_owner, outbox_producer, outbox_run_producer,
// outbox_relay, outbox_reader, outbox_operator, outbox_gateway, outbox_worker and outbox_consumer
// where they are missing. It hands the tables over to outbox_owner and gives each role exactly what
// roles.sql says on the tables that exist. It takes a superuser, or the tables' owner with
// CREATEROLE, and may run any number of times; run it again after Up has added tables.
func ApplyRoles(ctx context.Context, databaseURL string) error {
	return pgmigrations.ApplyRoles(ctx, databaseURL)
}
