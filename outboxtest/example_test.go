package outboxtest_test

import (
	"fmt"

	"github.com/outboxrelay/outbox/outboxtest"
)

// A load test of one's own staging: what the producer noted and what a subscriber noted, compared
// after everything had drained. Event c was given up and is a dead letter, and the answer to the
// COMMIT of d was lost.
func ExampleCheck() {
	report := outboxtest.Check(outboxtest.History{
		Written: []outboxtest.Written{
			{ID: "a", Key: "Order/1", Order: 1, Outcome: outboxtest.Acknowledged},
			{ID: "b", Key: "Order/1", Order: 2, Outcome: outboxtest.Acknowledged},
			{ID: "c", Key: "Order/2", Order: 1, Outcome: outboxtest.Acknowledged},
			{ID: "d", Key: "Order/2", Order: 2, Outcome: outboxtest.Unknown},
			{ID: "e", Key: "Order/3", Order: 1, Outcome: outboxtest.RolledBack},
		},
		Received: []outboxtest.Received{{ID: "b"}, {ID: "d"}, {ID: "a"}},
		Dead:     []outboxtest.DeadLetter{{ID: "c"}},
	})
	fmt.Println(report.Err())
	// Output:
	// acknowledged 3  rolled back 1  unknown 1  received 3  dead 1  lost 0  invented 0  duplicated 0  out of order 1
	// out of order: event a, number 1 of key "Order/1", arrived (message 2, no destination named) after number 2
}
