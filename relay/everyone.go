package relay

import (
	"cmp"
	"context"
	"slices"

	"github.com/outboxrelay/outbox"
)

// everyone is the destination of an event that goes to all receivers which have subscribed to it at its sink. Such an
// event becomes a delivery for each of them, so that what it was delivered to and its dead letter name them. They are
// found again at each attempt: who has come since gets it too, and who has left holds nobody up.
const everyone = "*"

// askSubscriptions learns who has subscribed, for a batch that has events for everyone. It asks after the claim: who
// subscribed before an event was committed gets it.
func (r *tableRelay) askSubscriptions(ctx context.Context, records []*outbox.Record) {
	subscriptions := outbox.AbilitiesOf(r.sink).Subscriptions
	if subscriptions == nil || !slices.ContainsFunc(records, func(rec *outbox.Record) bool {
		return len(rec.Destinations) == 0 && r.cfg.table.Destination.String() == everyone ||
			slices.Contains(rec.Destinations, everyone)
	}) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.DatabaseTimeout)
	defer cancel()
	known, err := subscriptions(ctx)
	if err != nil {
		r.subscriptions.Store(nil)
		return
	}
	r.subscriptions.Store(&known)
}

// expand returns the destinations of a record with its subscribers in the place of everyone. As long as nobody knows
// them it stays as it is, and the sink says so.
func (r *tableRelay) expand(rec *outbox.Record, wanted []string) (all []string) {
	known := r.subscriptions.Load()
	if known == nil || !slices.Contains(wanted, everyone) {
		return wanted
	}
	of := *rec
	of.TenantID = cmp.Or(rec.TenantID, "default")
	add := func(name string) {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	for _, name := range wanted {
		if name != everyone {
			add(name)
			continue
		}
		for i := range *known {
			if (*known)[i].Fits(&of) {
				add((*known)[i].Destination)
			}
		}
	}
	return all
}
