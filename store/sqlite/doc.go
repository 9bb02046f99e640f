// Package sqlite keeps outboxes in an SQLite file: it writes events inside the caller's transaction and is the Store that a relay reads from. It is for services of
// one host that want nothing installed, and the same as package store/postgres but for what is said here.
//
// Guaranteed: an event exists exactly if the transaction that wrote it committed, also after a SIGKILL or a power cut at any moment (WAL, synchronous=FULL: a commit is
// on the disk before it returns); a claim sees every committed undelivered row, and commits are in the order of positions, because SQLite has one writer at a time; a
// settle changes nothing on a lane that has gone to another relay; several processes of one host may share a file; whoever has a file open that is
// deleted or replaced is told so (ErrReplaced), and does not go on with one that nobody else will ever see.
//
// Not guaranteed: anything on a network file system; several hosts; row-level security and roles: whoever may open the file sees and changes all tenants. Writers wait
// for each other, also those of different keys, so a transaction should be short.
//
// Payloads are kept as they were written, byte for byte, where PostgreSQL's jsonb has its own spelling.
//
// It does not create tables: package store/sqlite/migrations does. Tables of another shape are served through a [tables.Layout]. Every statement is a file in sql/, named by its
// verb as PostgreSQL's are.
package sqlite
