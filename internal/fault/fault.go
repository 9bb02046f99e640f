// Package fault names the moments at which a relay can be made to fail, for tests of real
// processes. It guarantees that a binary built without the tag "fault" has none of it: its
// functions are then empty and the compiler removes them.
//
// A binary built with the tag reads OUTBOX_FAULT, a list such as "after-publish:3:kill". At the
// third time the point is reached the process kills itself with SIGKILL, without running a deferred
// call or flushing a buffer. "stop" in place of "kill" is SIGSTOP: the process stands still until
// somebody sends it SIGCONT. OUTBOX_FAULT_POISON holds the id of an event whose publishing kills
// the process every time.
package fault

// Point is a moment in the relay's turn.
type Point string

// The points, in the order of a turn.
const (
	AfterClaim    Point = "after-claim"
	BeforePublish Point = "before-publish" // the lease was looked at for the last time
	// The sink has taken a part of the batch: a batch larger than what the sink sends at once.
	MidBatch     Point = "mid-batch"
	AfterPublish Point = "after-publish" // the sink has answered, nothing is settled
	BeforeSettle Point = "before-settle" // the outcomes are decided, the statement is about to be sent
)
