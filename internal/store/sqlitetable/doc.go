// Package sqlitetable is what the store of relays (store/sqlite) and that of operators
// (internal/store/sqlitecold) both know of an outbox table in SQLite. That is how its layout is
// quoted, what its keys, lanes and undelivered rows are, and how its values are read. It is also
// what the file's schema says of it, how a row of it dies, and how an action is recorded.
//
// Guaranteed: names and texts of a layout reach SQL quoted, and both stores find the same rows in
// the same lanes. A value of another type than the layout's is read as what it is and no error.
//
// Not guaranteed: that errors have the names that callers branch on. [File.Explain] gives them
// those, and whoever runs a statement of his own does so himself.
package sqlitetable
