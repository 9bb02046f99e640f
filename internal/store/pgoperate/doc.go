// Package pgoperate shows operators the outbox tables of a PostgreSQL database, and does what they ask: the
// implementation of internal/store/operate that the command has.
//
// Guaranteed: a change and its record in outbox_audit are one transaction. No lease is asked for: what a relay has in
// hand meanwhile it settles first, or its settle changes nothing.
//
// Not guaranteed: that a list is cheap. A filter that no index serves reads the table. A role that row-level security
// shows one tenant's rows sees those, and says for whom.
//
// Every statement is a file in sql/, named by its verb, with its locks and the index that serves it in its header.
package pgoperate
