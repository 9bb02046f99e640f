// Package pgstore is a PostgreSQL database as the server's stores ask it (server/store): its
// statements, which go in pipelines, and what the roles of a gateway and a worker may do. The
// tables are those of migration sets crawl and core, which package store/postgres/migrations makes.
// Their events leave through store/postgres, as those of any application.
//
// Guaranteed: a transaction that reads and then writes is two round trips, any other one. Row-level
// security stands behind the tenant that every statement of a gateway names. What a login lacks is
// said when the process starts, all at once and with the role that cures it.
//
// Not guaranteed: that a session of a relay fits. The pool is one of plain sessions, which
// postgres.Adapt may have made fit for a pooler.
//
// Every statement is a file in sql/, named by what it is about and its verb, with its locks and the
// index that serves it in its header.
package pgstore
