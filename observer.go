package outbox

import "time"

// Observer is told what a relay does, by several goroutines at the same time: it must be quick and
// safe for concurrent use.
type Observer interface {
	// ObserveBatch is called for every batch that had records.
	ObserveBatch(BatchReport)
	// ObserveRemoved is called after each batch of a retention. action is archived or deleted.
	ObserveRemoved(table, action string, rows int)
	// ObserveRun is called after each run of a retention, and each failure to run.
	ObserveRun(table string, err error)
}

// BatchReport is what one turn of the relay did. Counts are records, but for Duplicates and
// Recalled, which count deliveries.
type BatchReport struct {
	Table      string
	Claimed    int
	Settled    Settled
	Duplicates int // refused by the sink as copies
	// Recalled counts deliveries that the relay had published before, and the database has
	// forgotten that: they were settled again, and not published.
	Recalled int
	// Unsubscribed counts those that were for all subscribers of the sink, of which there are none.
	// They are Settled as delivered.
	Unsubscribed int
	// Owed counts deliveries of a table with Routes that their sinks did not take at once:
	// outbox_deliveries has them.
	Owed int
	// Unavailable says that the sink, or a part of it, was down.
	Unavailable bool
	// Latencies is, for each delivered record that was not replayed (its letter may be weeks old),
	// the time from its insert (its transaction's start) to the sink's answer. Valid during the
	// call.
	Latencies []time.Duration
	// Slowest is the record of the longest of Latencies, nil if there are none.
	Slowest                *Record
	Claim, Publish, Settle time.Duration
}
