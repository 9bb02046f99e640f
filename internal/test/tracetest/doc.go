// Package tracetest asks internal/test/model whether its protocol has the runs that systems have
// had.
//
// [Suite] runs relays that die, sleep and are refused, and a consumer that dies, on a real
// database. A run has the model's size: two relays and three events of two keys. Each call of the
// database and each message is made under one lock, so that the trace has them in the order in
// which the database had them. What it cannot see, such as a lease that lapses, the model fills in.
//
// [Watch] has the database of any other test write down what becomes of the events of some keys,
// and [Watched] asks the model of each two that followed each other. There the calls overlap, and
// processes are killed. What was published is not seen, only what was recorded of it.
//
// Guaranteed: what is accepted is a run of the protocol that the search of the model has shown to
// be safe.
//
// Not guaranteed: that who settled is who held the lane, where Watch has written it down. The
// statement asks for it, and [Suite] asks the statement.
package tracetest
