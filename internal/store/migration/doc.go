// Package migration is what the stores know of the migration sets. That is which sets there are,
// which tables they make, what a database has of them and what they do to tables that were there
// before.
//
// Guaranteed: both databases have the same sets under the same names.
//
// Not guaranteed: that a database has a table. CheckColumns answers with an *outbox.SchemaError,
// which says what to do.
package migration
