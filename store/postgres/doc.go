// Package postgres keeps outboxes in PostgreSQL: it writes events inside the caller's transaction,
// and its DB is the database that a relay serves.
//
// It guarantees that an event exists exactly if the transaction that wrote it committed. A claim
// sees every committed undelivered row, whatever order the commits had. A settle changes nothing on
// a lane that has gone to another relay.
//
// It does not create tables: package store/postgres/migrations does, or your own migration tool
// with the same SQL files. Tables of another shape are served through a [outbox.Layout]. Tested
// with PostgreSQL 15.
//
// Every statement is a file in sql/, named by its verb, with its locks and the index that serves it
// in its header.
package postgres
