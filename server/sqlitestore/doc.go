// Package sqlitestore keeps the server's own tables in an SQLite file: runs of a crawler with their log, and the tokens
// of the API. It is crawl.Store and token.Store on a sqlite.DB, and the same as package pgstore but for what is said
// here.
//
// Guaranteed: several processes of one host may share the file, each change of them is whole, and a run is one
// worker's. What PostgreSQL would refuse as JSON is refused here too, so that what was tried on a file works in
// production.
//
// Not guaranteed: row-level security and roles. Whoever may open the file sees and changes all tenants, and
// CheckGateway and CheckWorker find nothing missing.
//
// Every statement is a file in sql/ of the name that it has in pgstore.
package sqlitestore
