// Package tables is what every store knows of outbox tables besides what a relay needs: what people are shown of a
// table's rows, lanes and pauses, the rows of the event bus, and the migration sets.
//
// Guaranteed: both stores show the same of the same rows.
//
// Not guaranteed: that a database has such a table. A store's Open looks, and answers with an *outbox.SchemaError.
package tables
