// Package model is the protocol of relays and groups as a state machine, small enough to be
// searched through.
//
// [Next] says what may happen in a state; [Check] says what must hold in each. A search visits
// every state that two relays can reach with three events of two keys, two crashes or pauses, a
// failover and a replay, whatever the order of their steps. A [Mutant] leaves one rule of the
// protocol out, and the search finds the run in which that shows.
//
// [Accept] asks the same function whether a trace can be: what was seen of a system that runs, with
// the steps between that nobody sees. Package tracetest makes traces of relays on real databases.
//
// Guaranteed: what Check says holds in all runs of the model within these bounds.
//
// Not guaranteed: that the code does what the model does, beyond the traces that were made of it.
package model
