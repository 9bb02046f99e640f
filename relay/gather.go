package relay

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/fault"
)

// A settle of two records costs the database nearly as much as one of fifty. So a worker that has published few goes on
// claiming and publishing for a moment, and one settle records all of it. What it has gathered is left out of its own
// claims; nobody else may read its lanes. A relay that dies leaves as much to be published again as after a batch, at
// most. What a sink owes is gathered too: later events of its lane go the same way, settled or not. Whatever else is
// not plainly delivered is settled at once. (docs/adr/0036)
const (
	gatherFor     = 10 * time.Millisecond
	gatherRecords = 100 // each is one more entry that the next claim walks over
)

// gather adds to what was published what comes within gatherFor. It ends sooner if the worker has to stop, if the lease
// ends, or at the first claim that does not go well, which the next turn makes again.
func (w *worker) gather(
	ctx, hardStop context.Context, pass *ticket, lanes []outbox.Lane, until time.Time, held outbox.HeldKeys, sum published,
) published {
	began := time.Now()
	end := began.Add(gatherFor)
	changes := w.keeper.paused().changes
	for sum.plain() && sum.claimed < gatherRecords && !over(until) {
		rest := time.Until(end)
		if rest <= 0 {
			break
		}
		// From one claim's beginning to the next.
		w.pause(ctx, min(time.Until(began.Add(w.cfg.PollMin)), rest), true)
		if ctx.Err() != nil || w.keeper.paused().changes != changes {
			break
		}
		began = time.Now()
		records, err := w.claim(ctx, lanes, outbox.ClaimLimit{
			Records: gatherRecords, Bytes: w.cfg.BatchBytes, WithoutEvents: sum.events(),
		})
		if err != nil || over(until) {
			break
		}
		if len(records) == 0 {
			continue
		}
		took := time.Since(began)
		fault.Hit(fault.AfterClaim)
		next := w.publishBatch(hardStop, pass, lanes, until, records, held)
		next.report.Claim = took
		sum.add(next)
	}
	return sum
}

// events returns the ids of what waits to be settled.
func (p *published) events() []uuid.UUID {
	ids := make([]uuid.UUID, len(p.outcomes))
	for i := range p.outcomes {
		ids[i] = p.outcomes[i].Record.ID
	}
	return ids
}
