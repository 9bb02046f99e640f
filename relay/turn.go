package relay

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/fault"
)

// turn is what one turn of a worker goes by.
type turn struct {
	hardStop context.Context // what was begun is finished until it ends
	pass     *ticket
	lanes    []outbox.Lane
	until    time.Time       // when publishing must have ended
	held     outbox.HeldKeys // of what was claimed in it
	changes  int             // of what operators have paused, when it began
	began    time.Time
	used     int // records of its claim of which something became: settled, or under way
}

// turn is one claim and, batch by batch, publish and settle; and then a trial of each suspect lane.
func (w *worker) turn(ctx context.Context, t *turn) (claimed int, err error) {
	if !w.ready() {
		return 0, nil
	}
	if err := w.settleAgain(t.hardStop, t.lanes); err != nil {
		return 0, err
	}
	if err := w.prepare(t.hardStop, w, t.lanes); err != nil {
		return 0, err
	}
	trusted, suspects := w.quarantine.sift(t.lanes, &w.cfg)
	w.quarantine.alone = !t.pass.alone && slices.ContainsFunc(suspects, (*suspicion).single)
	if t.pass.alone {
		trusted = nil // the other workers are waiting
	}
	if len(trusted) > 0 {
		if claimed, err = w.turnTrusted(ctx, t.of(trusted)); err != nil {
			return claimed, err
		}
	}
	for _, s := range suspects {
		if ctx.Err() != nil || w.lapsed(t) {
			break
		}
		if s.single() != t.pass.alone {
			continue
		}
		if !w.cfg.breaker.resume(t.pass) {
			break
		}
		n, err := w.try(ctx, t.of(s.lanes), s)
		if claimed += n; err != nil {
			return claimed, err
		}
	}
	return claimed, nil
}

// lapsed tells whether the time in which the lanes of a turn may be used for publishing is over.
// The lease may have been renewed while a claim took longer than what was left of it. Without this
// look its records would be thrown away each time.
func (w *worker) lapsed(t *turn) bool {
	t.until = w.keeper.extended(t.lanes, t.until)
	return over(t.until)
}

// of is the turn for some of its lanes.
func (t *turn) of(lanes []outbox.Lane) *turn {
	part := *t
	part.lanes, part.held = lanes, outbox.HeldKeys{}
	return &part
}

func (w *worker) turnTrusted(ctx context.Context, t *turn) (claimed int, err error) {
	if w.idle == w.cfg.PollMax && w.quiet() {
		return 0, w.prove(t)
	}
	began := time.Now()
	limit := w.pacer.limit(t.pass, &w.cfg)
	if w.inflight.wholly > 0 {
		limit.Records = min(limit.Records, unsettledProbe)
	}
	records, err := w.claim(ctx, t.lanes, limit)
	if err != nil {
		return 0, err
	}
	if len(records) == 0 {
		return 0, w.prove(t)
	}
	fault.Hit(fault.AfterClaim)
	w.claimed.Store(began.UnixNano())
	took := time.Since(began)
	if w.lapsed(t) { // another relay may hold the lanes before the answer
		return 0, fmt.Errorf("claim: it took %s, the lease is too close to its end to publish",
			took.Round(time.Millisecond))
	}
	claimedAt, full := time.Now(), w.full(records, limit.Records)
	defer func() {
		w.pacer.adapt(full, took, time.Since(claimedAt))
		w.pacer.got(records, t.used)
	}()
	if err := w.publishAll(ctx, t, records, full, took); err != nil {
		return len(records), err
	}
	return len(records), w.prove(t)
}

// publishAll publishes and settles what was claimed, batch by batch. took is how long the claim
// was.
func (w *worker) publishAll(
	ctx context.Context, t *turn, records []*outbox.Record, full bool, took time.Duration,
) error {
	var down error
	began := time.Now()
	few := !full && len(records) < gatherRecords && !t.pass.probe && !w.pacer.recovering(t.pass) &&
		w.inflight.wholly == 0
	for batch := range slices.Chunk(records, w.cfg.BatchRecords) {
		if !w.cfg.breaker.resume(t.pass) {
			break // claimed again once the others have had their turns
		}
		b := w.publishBatch(t, batch)
		b.report.Claim, took = took, 0
		if few {
			b = w.gather(ctx, t, b)
		}
		lost, err := w.settleBatch(t, b)
		if class, _ := outbox.Classify(err); t.pass.probe && class == outbox.ClassUnavailable &&
			time.Since(began) < probeTime {
			down = err // what the sink can take may come in the next batch
		} else if err != nil {
			return err
		}
		if lost || w.mustEnd(ctx, t) {
			break
		}
	}
	if !w.cfg.breaker.isOpen() {
		return nil
	}
	return down
}

// mustEnd tells whether what is left of a claim is claimed again: by whoever holds its lanes then,
// without what was paused meanwhile, or, after a probe that got through, at the rate of a recovery.
// A renewal does not put off the end: another relay may wait for its share of the lanes.
func (w *worker) mustEnd(ctx context.Context, t *turn) bool {
	return ctx.Err() != nil || over(t.until) || w.keeper.paused().changes != t.changes ||
		t.pass.probe && w.cfg.breaker.recovered()
}

// prove marks the lanes that a finished turn has cleared of suspicion.
func (w *worker) prove(t *turn) error {
	if proven := w.quarantine.proven(t.lanes); len(proven) > 0 {
		return w.keeper.mark(t.hardStop, proven...)
	}
	return nil
}

// A settle of two records costs the database nearly as much as one of fifty. So a worker that has
// published few goes on claiming and publishing for a moment, and one settle records all of it.
// What it has gathered is left out of its own claims; nobody else may read its lanes. A relay that
// dies leaves as much to be published again as after a batch, at most. What a sink owes is gathered
// too: later events of its lane go the same way, settled or not. Whatever else is not plainly
// delivered is settled at once. (docs/adr/0003)
const (
	gatherFor     = 10 * time.Millisecond
	gatherRecords = 100 // each is one more entry that the next claim walks over
)

// gather adds to what was published what comes within gatherFor. It ends sooner if the worker has
// to stop, if the lease ends, or at the first claim that does not go well, which the next turn
// makes again.
func (w *worker) gather(ctx context.Context, t *turn, sum published) published {
	began := time.Now()
	end := began.Add(gatherFor)
	for sum.plain() && sum.claimed < gatherRecords && !over(t.until) {
		rest := time.Until(end)
		if rest <= 0 {
			break
		}
		// From one claim's beginning to the next.
		w.sleep(ctx, min(time.Until(began.Add(max(w.cfg.PollMin, w.pacer.rest))), rest), true)
		if ctx.Err() != nil || w.keeper.paused().changes != t.changes {
			break
		}
		began = time.Now()
		records, err := w.claim(ctx, t.lanes, outbox.ClaimLimit{
			Records: gatherRecords, Bytes: w.cfg.BatchBytes, WithoutEvents: sum.events(),
		})
		if err != nil || over(t.until) {
			break
		}
		if len(records) == 0 {
			continue
		}
		took := time.Since(began)
		fault.Hit(fault.AfterClaim)
		next := w.publishBatch(t, records)
		next.report.Claim = took
		sum.add(next)
	}
	return sum
}

// published is what was published and is not settled yet.
type published struct {
	verdict
	claimed int  // records
	down    bool // the sink
	report  outbox.BatchReport
}

// plain tells whether everything was delivered, or left to the relays of sinks that owe it.
func (p *published) plain() bool {
	return !p.down && len(p.outcomes) == p.claimed &&
		!slices.ContainsFunc(p.outcomes, func(o outbox.Outcome) bool { return o.State != outbox.Delivered })
}

// add takes over what was published after p.
func (p *published) add(next published) {
	p.outcomes = append(p.outcomes, next.outcomes...)
	p.duplicates, p.owed = p.duplicates+next.duplicates, p.owed+next.owed
	p.unsubscribed += next.unsubscribed
	p.claimed += next.claimed
	p.down, p.unavailable = next.down, next.unavailable
	addReport(&p.report, next.report)
}

// events returns the ids of what waits to be settled.
func (p *published) events() []uuid.UUID {
	ids := make([]uuid.UUID, len(p.outcomes))
	for i := range p.outcomes {
		ids[i] = p.outcomes[i].Record.ID
	}
	return ids
}
