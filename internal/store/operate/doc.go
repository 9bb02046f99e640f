// Package operate is what operators see of outbox tables, and what they do about it. Rows and lanes
// are shown; events are retried now, skipped, delivered again, or paused. The command serves it, in
// any database that internal/store/cold knows.
//
// Guaranteed: both databases show the same of the same rows, and whatever changes something is
// recorded in outbox_audit in the same transaction.
//
// Not guaranteed: that what is shown still holds. Relays go on meanwhile, and nobody's rows are
// locked to be looked at.
package operate
