package outboxtest

import (
	"slices"
	"time"
)

// Outcome is how the transaction that wrote an event ended, as far as its producer knows.
type Outcome int

const (
	// Acknowledged: COMMIT was answered. The event must arrive.
	Acknowledged Outcome = iota
	// RolledBack: the transaction certainly did not commit. The event must not arrive.
	RolledBack
	// Unknown: COMMIT was sent and its answer never came. The event may arrive or not.
	Unknown
)

// Written is one event as its producer recorded it. An event whose write was repeated with the same
// id may be recorded once for each attempt. One acknowledgement makes it acknowledged, and failing
// that one unknown outcome makes it unknown.
type Written struct {
	ID string
	// Key is what stays in order; "" for an event that has no order.
	Key string
	// Order rises within a key in the order of the commits. Only a producer that serialises on the
	// key knows it: it holds the aggregate's row lock, or it is the only one that writes the key.
	// Events of equal Order may arrive either way round.
	Order   int64
	Outcome Outcome
	// Destinations are where it must arrive, once each, and nowhere else. None means one
	// destination, whichever it is.
	Destinations []string
	// At is when the producer had its answer. It is needed only for MaxAge.
	At time.Time
}

// Received is one message as it arrived. What several subscribers received may be in one list, as
// long as the messages of one destination are in the order of their arrival.
type Received struct {
	ID          string
	Key         string // where the message carries it, it is compared with the key written; "" is not compared
	Destination string
	At          time.Time // needed only for MaxAge
}

// DeadLetter is a delivery that was given up and is visible as such. Destination "" stands for all
// of the event's destinations.
type DeadLetter struct {
	ID          string
	Destination string
}

// History is what happened from the first write until everything has drained.
type History struct {
	Written  []Written
	Received []Received
	Dead     []DeadLetter
	// MaxAge is how long an event may take from the producer's answer to its arrival, as told by
	// their clocks; zero or less is off.
	MaxAge time.Duration
}

// Check compares what was received with what was written, and finds
//
//   - lost: acknowledged, and at one of its destinations neither received nor a dead letter;
//   - invented: received or dead although it was rolled back or never written, received at a
//     destination or under a key that is not the event's;
//   - duplicated: received more than once at a destination. Each copy counts;
//   - out of order: received after a later event of the same key at the same destination. A dead
//     letter that arrives all the same was replayed, and a replay is out of order by its nature: it
//     does not count;
//   - stale: received more than MaxAge after the producer's answer.
//
// It takes about a second for a million events. Memory is that of h again, roughly.
func Check(h History) Report {
	c := checker{
		maxAge:   h.MaxAge,
		byID:     make(map[string]int, len(h.Written)),
		events:   make([]event, 0, len(h.Written)),
		arrivals: map[place]int{},
		dead:     map[place]bool{},
		furthest: map[lane]int64{},
	}
	for i := range h.Written {
		c.write(&h.Written[i])
	}
	for _, d := range h.Dead {
		c.bury(d)
	}
	for i := range h.Received {
		c.receive(i, &h.Received[i])
	}
	c.findLost()
	return c.report
}

// event is what was written and how often it arrived, if it has but one destination; otherwise
// checker.arrivals knows.
type event struct {
	*Written
	arrivals int
	dead     bool // at all destinations
}

// place is an event at one of its destinations, lane a key there.
type (
	place struct {
		event       int
		destination string
	}
	lane struct{ key, destination string }
)

type checker struct {
	report   Report
	maxAge   time.Duration
	byID     map[string]int
	events   []event
	arrivals map[place]int
	dead     map[place]bool
	furthest map[lane]int64 // the highest Order that has arrived
}

func (c *checker) write(w *Written) {
	i, again := c.byID[w.ID]
	if !again {
		c.byID[w.ID] = len(c.events)
		c.events = append(c.events, event{Written: w})
		return
	}
	if certainty(w.Outcome) > certainty(c.events[i].Outcome) {
		c.events[i].Written = w
	}
}

// certainty ranks outcomes by what they say about the event's existence.
func certainty(o Outcome) int {
	switch o {
	case Acknowledged:
		return 2
	case Unknown:
		return 1
	}
	return 0
}

func (c *checker) bury(d DeadLetter) {
	c.report.Dead++
	i, ok := c.byID[d.ID]
	switch {
	case !ok:
		c.report.Invented.add("event %s is a dead letter and was never written", d.ID)
	case c.events[i].Outcome == RolledBack:
		c.report.Invented.add("event %s is a dead letter and was rolled back", d.ID)
	case d.Destination == "" || len(c.events[i].Destinations) == 0:
		c.events[i].dead = true
	default:
		c.dead[place{i, d.Destination}] = true
	}
}

func (c *checker) receive(n int, r *Received) {
	c.report.Received++
	i, ok := c.byID[r.ID]
	if !ok {
		c.report.Invented.add("event %s arrived (message %d, %s) and was never written", r.ID, n, at(r.Destination))
		return
	}
	e := &c.events[i]
	switch {
	case e.Outcome == RolledBack:
		c.report.Invented.add("event %s arrived (message %d, %s) and was rolled back", r.ID, n, at(r.Destination))
		return
	case r.Key != "" && r.Key != e.Key:
		c.report.Invented.add("event %s arrived (message %d, %s) under key %q, its key is %q", r.ID, n, at(r.Destination),
			r.Key, e.Key)
		return
	case len(e.Destinations) > 0 && !slices.Contains(e.Destinations, r.Destination):
		c.report.Invented.add("event %s arrived (message %d) at %s, it was written for %q", r.ID, n, r.Destination,
			e.Destinations)
		return
	}
	if c.arrive(i, r.Destination) > 1 {
		c.report.Duplicated.add("event %s arrived again (message %d, %s)", r.ID, n, at(r.Destination))
		return
	}
	if c.maxAge > 0 && e.Outcome == Acknowledged && !e.At.IsZero() && !r.At.IsZero() && r.At.Sub(e.At) > c.maxAge {
		c.report.Stale.add("event %s arrived (message %d, %s) %s after it was acknowledged, the limit is %s", r.ID, n,
			at(r.Destination),
			r.At.Sub(e.At).Round(time.Millisecond), c.maxAge)
	}
	if e.Key == "" || c.isDead(i, r.Destination) {
		return
	}
	l := lane{e.Key, r.Destination}
	furthest, known := c.furthest[l]
	if known && e.Order < furthest {
		c.report.OutOfOrder.add("event %s, number %d of key %q, arrived (message %d, %s) after number %d", r.ID, e.Order,
			e.Key, n, at(r.Destination), furthest)
		return
	}
	c.furthest[l] = e.Order
}

// arrive counts, and returns how often event i has arrived at destination by now.
func (c *checker) arrive(i int, destination string) int {
	if len(c.events[i].Destinations) == 0 {
		c.events[i].arrivals++
		return c.events[i].arrivals
	}
	c.arrivals[place{i, destination}]++
	return c.arrivals[place{i, destination}]
}

func (c *checker) isDead(i int, destination string) bool {
	return c.events[i].dead || c.dead[place{i, destination}]
}

func (c *checker) findLost() {
	for i := range c.events {
		e := &c.events[i]
		switch e.Outcome {
		case RolledBack:
			c.report.RolledBack++
			continue
		case Unknown:
			c.report.Unknown++
			continue
		}
		c.report.Acknowledged++
		if len(e.Destinations) == 0 {
			if e.arrivals == 0 && !e.dead {
				c.report.Lost.add("event %s, number %d of key %q, was acknowledged and never arrived", e.ID, e.Order, e.Key)
			}
			continue
		}
		for _, d := range e.Destinations {
			if c.arrivals[place{i, d}] == 0 && !c.isDead(i, d) {
				c.report.Lost.add("event %s, number %d of key %q, was acknowledged and never arrived at %s", e.ID, e.Order, e.Key,
					d)
			}
		}
	}
}

func at(destination string) string {
	if destination == "" {
		return "no destination named"
	}
	return "at " + destination
}
