// Package pgtest is store/postgres as the suites ask for a store under test: outboxtest.StoreSuite,
// and that of operators.
//
// Guaranteed: what it opens is closed when the test ends.
//
// Not guaranteed: a database. Whoever tests names one, with the tables of all migration sets.
package pgtest
