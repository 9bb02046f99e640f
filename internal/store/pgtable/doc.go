// Package pgtable is what the store of relays (store/postgres) and that of operators
// (internal/store/pgcold) both know of an outbox table in PostgreSQL. That is how its layout is
// quoted, what its keys, lanes and undelivered rows are, and the one name that it has. It is also
// how a row of it dies, for whom a session speaks, and how an action is recorded.
//
// Guaranteed: names and texts of a layout reach SQL quoted, and both stores find the same rows in
// the same lanes.
//
// Not guaranteed: that the table is there, or that the role may touch it. internal/store/pgschema
// asks.
package pgtable
