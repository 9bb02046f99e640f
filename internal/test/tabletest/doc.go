// Package tabletest fills the tables of a store under test, as programs without the library do, and
// settles what is in them. The suites of the library (outboxtest) and of operators
// (internal/test/operatetest) share it.
//
// Guaranteed: rows of one test are placed in the order of its calls, and their ids rise.
//
// Not guaranteed: anything of a store. What it promises, the suites ask.
package tabletest
