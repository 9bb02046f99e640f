package outboxtest

import (
	"testing"

	"github.com/outboxrelay/outbox"
)

// SinkFeatures declares what a sink promises beyond the contract of outbox.Sink.
type SinkFeatures struct {
	// RefusesDuplicates: a delivery that comes again (same event id, destination and generation)
	// does not reach the destination twice, and is answered as Duplicate. One with a higher
	// generation does.
	RefusesDuplicates bool
	// SilentDuplicates goes with RefusesDuplicates: the broker drops a copy without saying so,
	// which is answered as delivered.
	SilentDuplicates bool
	// Durable: what was answered as delivered is still there after the broker was killed and
	// started again.
	Durable bool
	// Headers is the prefix of the names under which binary mode sends the attributes of a
	// CloudEvent as headers, such as "ce-"; "" if the sink has no such mode.
	Headers string
	// LargestMessage is the size in bytes of the largest message that the broker takes as the
	// harness runs it; 0 if it has no limit below 4 MiB. A larger one fails for good, alone.
	LargestMessage int
}

// Arrived is what arrived at a destination.
type Arrived struct {
	Body    []byte
	Headers map[string]string // those that the transport has, or nil
}

// SinkHarness is a sink connected to a running broker, fresh for one test.
type SinkHarness struct {
	// Sink has the default envelope, outbox.CloudEvent.
	Sink outbox.Sink
	// Binary sends to the same broker in binary mode: the attributes are headers, the body is the
	// payload. Required with SinkFeatures.Headers.
	Binary outbox.Sink
	// Listen makes a destination that nobody else uses. It delivers the messages that arrive there
	// from now on until the test ends, in one order (of a partitioned topic: make one partition).
	// Of a place that is one for all, such as a file, the test's sink writes the destination beside
	// each message.
	Listen func(t *testing.T) (destination string, messages <-chan Arrived)
	// Stored returns the first n messages that the broker holds of a destination of Listen, in
	// their order. Required with SinkFeatures.Durable.
	Stored func(t *testing.T, destination string, n int) []Arrived
	// Restart kills the broker and starts it again with what it had stored. Required with
	// SinkFeatures.Durable; where nothing runs it does nothing.
	Restart func(t *testing.T)
	// Refusing is a destination that refuses every message for a reason of its own (no such topic,
	// not permitted), or "" if there is no such thing.
	Refusing string
	// Forbidden are destinations that no broker of this kind can have (a wildcard, a line break):
	// they are refused for good before they reach it.
	Forbidden []string
	// Stall makes the broker stop answering until resume is called; nil if the harness cannot.
	Stall func(t *testing.T) (resume func())
}

// SinkSuite runs the contract against sinks made by newHarness, one a test.
func SinkSuite(t *testing.T, features SinkFeatures, newHarness func(t *testing.T) SinkHarness) {
	run := func(name string, test func(*testing.T, *suite)) {
		t.Run(name, func(t *testing.T) {
			test(t, &suite{SinkHarness: newHarness(t), features: features})
		})
	}
	promised := func(name string, promise bool, test func(*testing.T, *suite)) {
		if !promise {
			t.Logf("%s: not promised by this sink", name)
			return
		}
		run(name, test)
	}

	run("answers every delivery", answersEvery)
	run("keeps the order of a key", keepsOrder)
	run("serves each destination of an event", servesEachDestination)
	run("carries the largest payload", carriesLargest)
	run("takes concurrent calls", takesConcurrentCalls)
	run("answers unavailable when its context has ended", answersEndedContext)
	run("builds a CloudEvent", buildsCloudEvent)
	promised("refuses a copy", features.RefusesDuplicates, refusesCopy)
	promised("refuses a copy within a batch", features.RefusesDuplicates, refusesCopyWithinBatch)
	promised("lets a replay through", features.RefusesDuplicates, letsReplayThrough)
	promised("keeps what it acknowledged", features.Durable, keepsAcknowledged)
	promised("sends attributes as headers", features.Headers != "", sendsAttributesAsHeaders)
	promised("refuses a message that is too large", features.LargestMessage > 0, refusesTooLarge)

	probe := newHarness(t)
	able := func(name string, can bool, test func(*testing.T, *suite)) {
		if !can {
			t.Logf("%s: not tested, the harness cannot provoke it", name)
			return
		}
		run(name, test)
	}
	able("holds a key behind its failed event", probe.Refusing != "", holdsKeyBehindFailure)
	able("serves other destinations of a failed event", probe.Refusing != "", servesOthersOfFailed)
	able("holds a key across a large batch", probe.Refusing != "", holdsKeyAcrossLargeBatch)
	able("refuses forbidden destinations", len(probe.Forbidden) > 0, refusesForbidden)
	able("returns when its context ends", probe.Stall != nil, returnsWhenContextEnds)
}
