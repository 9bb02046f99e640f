// Package pgschema asks a PostgreSQL database what it has and what the session's role may do with
// it, for the stores that check this when they are opened. These are store/postgres for the tables
// of outboxes, server/pgstore for those of the server.
//
// Guaranteed: it changes nothing and locks no table. A privilege counts wherever it comes from,
// because the server is asked for privileges and not for roles.
//
// Not guaranteed: that the answer still holds when a statement runs. Rights can be taken away, and
// tables too.
package pgschema
