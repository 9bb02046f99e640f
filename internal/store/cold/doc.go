// Package cold is how people and clocks ask a database: seldom, and for anything. Letters of the
// dead, rows to look at and pauses are the same code for every database. What differs is a
// [Database]: its statements, which are files, how it takes an argument, and what its catalog says.
//
// The hot path (write, claim, settle, lease, wake) is each store's own.
//
// Guaranteed: what [Write] runs is one transaction, which is begun anew where another's sake ended
// it. A statement sees of its data only what its file names, and each value is an argument. Not
// guaranteed: the order in which a statement's conditions are tried.
package cold
