// Package operatetest holds the contract of internal/operate as tests: what people see of a table and do about it is
// the same on every database. Each implementation runs Suite.
//
// Guaranteed: an implementation that passes keeps what operate.Browser and operate.Pauses ask of it, in the cases
// tested, also beside relays.
//
// Not guaranteed: which index serves a statement, and what a database's roles may do. An implementation tests that
// beside its code.
package operatetest
