// Package storetest holds the contracts of crawl.Store and token.Store as tests. Whoever writes a
// store of the server runs StoreSuite against it, as outboxtest.StoreSuite is run against a store
// of the library.
//
// Guaranteed: a store that passes keeps what the two interfaces ask of it, in the cases tested, on
// the database that the harness runs, also when many ask at once.
//
// Not guaranteed: which index serves a statement, and what a database's roles may do. A store tests
// that beside its code.
//
// The package imports no database's driver.
package storetest
