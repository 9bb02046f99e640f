package outbox

import "context"

// Subscriber hears what a sink publishes, as it is published. One serves a whole process. It has no
// history: who needs that reads the database first.
type Subscriber interface {
	// Subscribe has l told of every message that is published on channel from when the broker
	// acknowledges, until stop is called. It returns once the broker has acknowledged, or when ctx
	// ends or the broker cannot be reached. Then acknowledged is false, and l is told by Resumed
	// when it has been. Any number of subscriptions of one channel cost the broker one. stop
	// returns after the last call of l.
	Subscribe(ctx context.Context, channel string, l Listener) (acknowledged bool, stop func())
}

// Listener is told what happens on a channel, by one goroutine at a time. It must not block: the
// other channels wait meanwhile.
type Listener interface {
	// Message is called for each message. The bytes are the listener's to keep.
	Message(payload []byte)
	// Lost is called when the connection breaks: from now on messages may be missed.
	Lost()
	// Resumed is called when the broker has acknowledged after a Lost, or after a Subscribe that
	// was not acknowledged: what was published in between did not arrive.
	Resumed()
}
