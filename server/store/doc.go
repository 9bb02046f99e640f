// Package store keeps the server's own tables, of any database: runs of a crawler with their log,
// and the tokens of the API. It is crawl.Store and token.Store. What differs is a [Database]: its
// statements, which are files of the same names, and how it runs them. Packages pgstore and
// sqlitestore have one each.
//
// Guaranteed: a change of a run, its events in the log and their copies for the relay are one
// transaction. A run's events are numbered without a gap also beside plain SQL that appends. Every
// statement of a gateway names its tenant. A statement is filled in at each call (4.4 µs), and each
// value is an argument.
//
// Not guaranteed: that two gateways which create runs of one tenant at the same moment do not pass
// its limit by one.
package store
