// Package sqliteoperate shows operators the outbox tables of a SQLite file, and does what they ask: the implementation
// of internal/store/operate that the command has.
//
// Guaranteed: a change and its record in outbox_audit are one transaction. No lease is asked for: what a relay has in
// hand meanwhile it settles first, or its settle changes nothing.
//
// Not guaranteed: that a list is cheap. A filter that no index serves reads the table. A change holds up other writers
// as long as it takes.
//
// Every statement is a file in sql/, named by its verb, with the index that serves it in its header.
package sqliteoperate
