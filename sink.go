package outbox

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// Delivery is one event for one destination: what a Sink is handed.
type Delivery struct {
	*Record
	Sink        string   // its name, if the table has Routes
	Destination string   // channel, topic, subject, queue or URL
	Envelope    Envelope // of its table; nil: the sink's own
	Origin      uint64   // hash of the database and table that the event comes from, a part of sinks' duplicate keys
}

// AppendMessage appends what subscribers receive: by the delivery's own envelope, by the sink's, or
// as a CloudEvent.
func (d *Delivery) AppendMessage(dst []byte, sinks Envelope) []byte {
	switch {
	case d.Envelope != nil:
		return d.Envelope(dst, d)
	case sinks != nil:
		return sinks(dst, d)
	}
	return CloudEvent(dst, d)
}

// Result is a Sink's answer for one Delivery. A nil Err means delivered, as far as that sink
// promises anything.
type Result struct {
	Err       error
	Duplicate bool // the destination had it already and refused the copy; counts as delivered
}

// Sink publishes a batch and answers per delivery. It must
//
//   - keep the order of deliveries that have the same OrderKey (and Keyed set), and after one of
//     them failed publish no later event of that key: those are answered with ErrNotAttempted. The
//     same event's other destinations still go out;
//   - answer every delivery: the result has the length of the batch;
//   - treat an unknown outcome (timeout, lost reply) as a failure and switch off its client's
//     silent retries;
//   - class its errors with Permanent, RetryAfter, Postponed and Unavailable;
//   - return when ctx ends, the rest answered as Unavailable.
//
// Publish is called by up to relay.Config.Workers goroutines at a time, never with the same key,
// and several Relays may share a Sink.
type Sink interface {
	Publish(ctx context.Context, batch []Delivery) []Result
}

// Able is a Sink that can do more than publish, or wants to be treated in a way of its own. Who
// wraps a Sink passes its Abilities on, and changes those that he answers himself.
type Able interface {
	Sink
	// Abilities may be asked at any time, also for what is different than before.
	Abilities() Abilities
}

// Abilities are what a Sink can do besides publishing. What is nil or false it cannot, or does not
// need.
type Abilities struct {
	// Ping asks whether the broker answers.
	Ping func(ctx context.Context) error
	// Probe asks whether the broker takes messages at this moment. To answer a ping is not enough:
	// a broker that is out of memory does, and takes nothing.
	Probe func(ctx context.Context) error
	// Timeout returns how long the next batch may take, where the relay's PublishTimeout is too
	// short: the longer of both counts. In a table with routes the sink is not waited for: its
	// events go by outbox_deliveries from the beginning.
	Timeout func() time.Duration
	// Subscriptions returns who has subscribed to the events whose destination is "*". An error
	// says that nobody knows now.
	Subscriptions func(ctx context.Context) ([]Subscription, error)
	// Weaknesses returns what in the server's set-up may lose what it has confirmed, or double it,
	// although it answers.
	Weaknesses func(ctx context.Context) ([]Weakness, error)
	// TakesCopies says that the server takes again what it has. In a table with routes it is waited
	// for ten times RouteTimeout: what it has not answered by then arrives twice.
	TakesCopies bool
}

// Weakness is something in a server's set-up, and what to do about it.
type Weakness struct{ Says, Remedy string }

// AbilitiesOf returns those of a sink that is Able, or none.
func AbilitiesOf(s Sink) Abilities {
	if able, ok := s.(Able); ok {
		return able.Abilities()
	}
	return Abilities{}
}

// Subscription says which events go to a subscriber. Topic, Tenant and AggregateType are names, or
// patterns in which * stands for any text; an empty one fits everything.
type Subscription struct {
	Destination   string // the subscriber's name at the sink
	Topic         string
	Tenant        string
	AggregateType string
}

// Fits tells whether an event goes to the subscriber.
func (s *Subscription) Fits(rec *Record) bool {
	return (s.Topic == "" || fits(s.Topic, rec.Topic)) && (s.Tenant == "" || fits(s.Tenant, rec.TenantID)) &&
		(s.AggregateType == "" || fits(s.AggregateType, rec.AggregateType))
}

// HeldKeys are the keys of which nothing later may pass, each with the event that failed. A Sink
// has such a list for a batch; the zero value is not usable, make one.
type HeldKeys map[int64]uuid.UUID

// Hold has what comes after rec in its key wait. Without a key there is nothing to hold.
func (h HeldKeys) Hold(rec *Record) {
	if _, held := h[rec.OrderKey]; rec.Keyed && !held {
		h[rec.OrderKey] = rec.ID
	}
}

// Holds tells whether rec has a key that is held.
func (h HeldKeys) Holds(rec *Record) bool {
	if len(h) == 0 || !rec.Keyed {
		return false
	}
	_, held := h[rec.OrderKey]
	return held
}

// Behind tells whether rec is behind another event of its key that is held: that one's other
// destinations are served.
func (h HeldKeys) Behind(rec *Record) bool {
	if len(h) == 0 || !rec.Keyed {
		return false
	}
	first, held := h[rec.OrderKey]
	return held && first != rec.ID
}
