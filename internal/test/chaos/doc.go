// Package chaos makes everything fail that can fail under an outbox, with real processes, and
// compares what was written with what arrived.
//
// Each fault of the table in faults_test.go runs against the outbox command as it is built for
// users, but for its fault points, with PostgreSQL, Redis and producers that go on writing
// meanwhile. Guaranteed by a test that passes: the fault struck, as counted from what it left
// behind; everything drained after it; nothing was lost, invented, duplicated or out of order; and
// what became of three keys' rows is a run of the model (package tracetest).
//
// The table in stream_faults_test.go is about what comes after: runs that `outbox serve` streams
// and crawls. There the log is what was written, and each viewer's joined record what arrived.
//
// The table in sink_faults_test.go has another sink in the place of Redis Pub/Sub, and what befalls
// the server behind it. What arrived is read at the end, and copies are counted where the sink
// refuses none.
//
// The tests of SQLite have one file in the place of PostgreSQL, and this binary, started again, in
// that of the producers: programs that write are killed there too.
//
// Not guaranteed: that a fault strikes at the same instruction again. The seed decides what is
// chosen (when, how often, which relay), not what the scheduler makes of it.
//
// It guarantees nothing to users and nothing imports it, so what it depends on costs them nothing.
package chaos
