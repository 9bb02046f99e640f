// Package pgstore keeps the server's own tables in PostgreSQL: runs of a crawler with their log, and the tokens of the
// API. It is crawl.Store and token.Store on the tables of migration sets crawl and core, which package
// store/postgres/migrations makes. Their events leave through store/postgres, as those of any application.
//
// Guaranteed: a change of a run, its events in the log and their copies for the relay are one transaction. A run's
// events are numbered without a gap also beside plain SQL that appends. Every statement of a gateway names its tenant,
// and row-level security stands behind that. What a login lacks is said when the process starts, all at once and with
// the role that cures it.
//
// Not guaranteed: that a session of a relay fits. The pool is one of plain sessions, which postgres.Adapt may have made
// fit for a pooler.
//
// Every statement is a file in sql/, named by what it is about and its verb, with its locks and the index that serves
// it in its header.
package pgstore
