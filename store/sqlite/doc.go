// Package sqlite keeps outboxes in an SQLite file: it writes events inside the caller's
// transaction, and its DB is the database that a relay serves. It is for services of one host that
// want nothing installed, and the same as package store/postgres but for what is said here.
//
// # What is guaranteed
//
//   - An event exists exactly if the transaction that wrote it committed, also after a SIGKILL or a
//     power cut at any moment. A commit is on the disk before it returns (WAL, synchronous=FULL).
//   - A claim sees every committed undelivered row. Commits are in the order of positions, because
//     SQLite has one writer at a time.
//   - A settle changes nothing on a lane that has gone to another relay.
//   - Several processes of one host may share a file, and relays give way to who writes.
//   - Whoever has a DB open whose file is deleted or replaced, or the -wal or -shm beside it, is
//     told so (ErrReplaced) by Begin or by Commit. No DB goes on with a file that nobody else will
//     ever see.
//
// # What is not
//
//   - Anything on a network file system, or from several hosts.
//   - Row-level security and roles: whoever may open the file sees and changes all tenants.
//   - That writers of different keys do not wait for each other, so a transaction should be short.
//   - A second SQLite library (github.com/mattn/go-sqlite3, …) on the file in a process that has it
//     open as a DB, or the file opened and closed there by other means (os.Open). The system's
//     locks belong to the process. Either takes this package's away, and the file is damaged or
//     commits are lost.
//
// An application's own handle is sql.Open("sqlite", Source(path)), which is not told of a file that
// was replaced. Other libraries, from SQLite 3.37, write from other processes. See NewWriter.
//
// Payloads are kept as they were written, byte for byte, where PostgreSQL's jsonb has its own
// spelling.
//
// It does not create tables: package store/sqlite/migrations does. Tables of another shape are
// served through a [outbox.Layout]. Every statement is a file in sql/, named by its verb as
// PostgreSQL's are.
package sqlite
