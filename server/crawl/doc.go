// Package crawl keeps runs of a crawler and the log of what happened in them.
//
// Guaranteed: a run goes PENDING → RUNNING → COMPLETED, FAILED or CANCELLED and never back. Each
// change, the events that tell of it and their copies for the relay are one transaction. A run's
// events are numbered from 1 without a gap, in the order in which they were committed. Exactly one
// of them is terminal, and it is the last. A run that a [Worker] has begun comes to an end whatever
// happens to the worker.
//
// Not guaranteed: that a node runs once. A worker that dies in the middle of one leaves it to
// another, which begins the node again. The node's events are in the log once, because they are
// committed together with the step to the next node. Nor that a run driven from outside (crawler
// "external") ever ends.
//
// It contains no SQL and no HTTP: packages pgstore and sqlitestore keep the runs, package
// gateway serves them.
package crawl
