package outboxtest

import (
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
)

// SinkFeatures declares what a sink promises beyond the contract of outbox.Sink.
type SinkFeatures struct {
	// RefusesDuplicates: a delivery that comes again (same event id, destination and generation) does not reach the
	// destination twice, and is answered as Duplicate. One with a higher generation does.
	RefusesDuplicates bool
}

// SinkHarness is a sink connected to a running broker, fresh for one test.
type SinkHarness struct {
	// Sink has the default envelope, outbox.CloudEvent.
	Sink outbox.Sink
	// Listen makes a destination that nobody else uses, and delivers the messages that arrive there from now on until
	// the test ends, in one order (of a partitioned topic: make one partition).
	Listen func(t *testing.T) (destination string, messages <-chan []byte)
	// Refusing is a destination that refuses every message for a reason of its own (no such topic, not permitted), or
	// "" if there is no such thing.
	Refusing string
	// Stall makes the broker stop answering until resume is called; nil if the harness cannot.
	Stall func(t *testing.T) (resume func())
}

// patience is how long a message may take to arrive: far above what a broker on a busy machine needs.
const patience = 5 * time.Minute

// SinkSuite runs the contract against sinks made by newHarness, one a test.
func SinkSuite(t *testing.T, features SinkFeatures, newHarness func(t *testing.T) SinkHarness) {
	run := func(name string, test func(*testing.T, *suite)) {
		t.Run(name, func(t *testing.T) {
			test(t, &suite{SinkHarness: newHarness(t)})
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
	able("returns when its context ends", probe.Stall != nil, returnsWhenContextEnds)
}
