// Package tracetest runs relays that die, sleep and are refused, and a consumer that dies, writes down what they do to
// a real database, and asks internal/test/model whether its protocol has such a run.
//
// A run has the model's size: two relays and three events of two keys. Each call of the database and each message is
// made under one lock, so that the trace has them in the order in which the database had them. What it cannot see, such
// as a lease that lapses, the model fills in.
//
// Guaranteed: what is accepted is a run of the protocol that the search of the model has shown to be safe.
//
// Not guaranteed: anything about calls that overlap in the database, for which internal/test/chaos is there.
package tracetest
