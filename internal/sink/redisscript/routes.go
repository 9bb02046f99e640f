package redisscript

import (
	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

// routes holds where the ordering keys of a round go. The calls of a round run side by side, so two events of a key
// must not be in two of them: the later one would go out although the earlier one fails.
type routes map[int64]route

type route struct {
	id     uuid.UUID // of the key's first event in the round
	group  string    // of its first delivery
	events bool      // there are several events, all in that group
	groups bool      // there are several groups, all of that event
	closed bool      // a delivery was put off, and so is what follows
}

// follow tells whether d may be in the round beside what is there of its key.
func (r routes) follow(d *outbox.Delivery, group string) bool {
	at, known := r[d.OrderKey]
	switch {
	case !known:
		at = route{id: d.ID, group: group}
	case at.closed:
		return false
	case !at.groups && at.group == group:
		at.events = at.events || at.id != d.ID
	case !at.events && at.id == d.ID: // the same event's other destinations do not wait for each other
		at.groups = true
	default:
		at.closed = true
	}
	r[d.OrderKey] = at
	return !at.closed
}
