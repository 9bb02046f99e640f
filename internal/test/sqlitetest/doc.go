// Package sqlitetest is store/sqlite as the suites ask for a store under test:
// outboxtest.StoreSuite, and that of operators.
//
// Guaranteed: each test has a file of its own with the tables of all migration sets, closed when
// the test ends.
//
// Not guaranteed: the order in which rows of one millisecond are listed.
package sqlitetest
