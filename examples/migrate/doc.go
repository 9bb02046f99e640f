// Package migrate holds one test for each migration tool whose folder `outbox migrate export`
// writes and that is no part of Outbox's own tests. They are goose and Atlas, by their libraries,
// on a real server. Each applies the folder, compares the tables with those of `outbox migrate up`,
// sees a relay deliver, and goose takes them away again. golang-migrate, and Encore, which is built
// on it, are tried in internal/store/pgmigrations. It is a module of its own, so what it needs
// costs nobody anything.
//
// make migrators runs it.
package migrate
