// Package sqlitestore is an SQLite file as the server's stores ask it (server/store), on a
// sqlite.DB. It is the same as package pgstore but for what is said here.
//
// Guaranteed: several processes of one host may share the file, each change of them is whole, and a
// run is one worker's.
//
// Not guaranteed: row-level security and roles. Whoever may open the file sees and changes all
// tenants, and CheckGateway and CheckWorker find nothing missing.
//
// Every statement is a file in sql/ of the name that it has in pgstore.
package sqlitestore
