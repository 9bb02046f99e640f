// Package operatetest holds the contracts of internal/store/operate and internal/store/retention as
// tests. What people see of a table and do about it, and how its old rows leave, is the same on
// every database. Each implementation runs Suite.
//
// Guaranteed: an implementation that passes keeps what the interfaces ask of it, in the cases
// tested, also beside relays.
//
// Not guaranteed: which index serves a statement, and what a database's roles may do. An
// implementation tests that beside its code.
package operatetest
