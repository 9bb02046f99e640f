// Package tables is what every store knows of outbox tables: the layouts that say which columns play which part, what
// people are shown of a table's rows, lanes and dead letters, and why a table cannot be served.
//
// Guaranteed: a layout that Validate accepts names what each part needs, under names that every store can quote.
//
// Not guaranteed: that a database has such a table. A store's Open looks, and answers with a SchemaError.
package tables
