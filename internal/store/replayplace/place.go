// Package replayplace says where a page of a replay of dead letters ended, as a text that the next
// request gives back.
//
// Guaranteed: what String wrote, Parse reads, whatever the table is called.
//
// Not guaranteed: that the place still exists. A page begins behind it all the same.
package replayplace

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/deadletter"
)

// Place is where a page of a replay ended: everything of the event there was in it. Its text is
// deadletter.ReplayPage.Next.
type Place struct {
	Table    string
	Position int64
	Event    uuid.UUID
}

func (p Place) String() string { return fmt.Sprintf("%d/%s/%s", p.Position, p.Event, p.Table) }

// Parse reads deadletter.ReplayRequest.After: nil for "", the beginning. What no page ended with is
// a deadletter.ErrFilter.
func Parse(s string) (*Place, error) {
	if s == "" {
		return nil, nil
	}
	parts := strings.SplitN(s, "/", 3)
	if len(parts) == 3 {
		position, err := strconv.ParseInt(parts[0], 10, 64)
		event, err2 := uuid.Parse(parts[1])
		if err == nil && err2 == nil {
			return &Place{Table: parts[2], Position: position, Event: event}, nil
		}
	}
	return nil, fmt.Errorf("%w: after is %q, want what the previous page ended with", deadletter.ErrFilter, s)
}

// Apart parts letters so that no part has two of one event.
func Apart[L any](letters []L, event func(L) uuid.UUID) (parts [][]L) {
	of := map[uuid.UUID]int{} // how many parts have the event
	for _, l := range letters {
		n := of[event(l)]
		of[event(l)]++
		if n == len(parts) {
			parts = append(parts, nil)
		}
		parts[n] = append(parts[n], l)
	}
	return parts
}
