package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outboxrelay/outbox"
)

// claim reads the next records of the lanes. It is a plain read: who may read a lane is settled by
// the lease, so claiming costs no write and leaves nothing behind when the relay dies.
//
// It asks by state and never by "position > last": a lower position may commit later, and would be
// lost.
//
// One that ran out of time while the database answered others is given 32 times DatabaseTimeout at
// the next try. With less a single row could hold its lanes for ever. Numbers that are 1 GB long
// took 2 to 170 s to turn into text, on a machine with less or more to do; each try goes on at the
// server and slows the next. One that took long leaves the next as much: it may have brought what
// is before such a row.
func (w *worker) claim(ctx context.Context, lanes []outbox.Lane, limit outbox.ClaimLimit) ([]*outbox.Record, error) {
	limit = w.inflight.exclude(limit)
	limit.Paused, limit.Destination = w.keeper.paused().Paused, w.cfg.table.Destination
	if w.owesPaused() {
		limit.Paused.Destinations = nil // its sink owes what goes there, and others do not wait for it
	}
	if !w.cfg.table.Layout.KeepsState() {
		limit.Paused.Topics = nil // likewise: a position passes everything
	}
	limit.Records = w.pacer.modest(limit.Records)
	// A connection whose other end has vanished would never answer, and the relay would stand still
	// without an error.
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, w.pacer.timeout(&w.cfg))
	defer cancel()
	records, err := w.store.Claim(limited, lanes, limit)
	w.bar(err)
	if err != nil {
		if ctx.Err() == nil {
			w.pacer.failed(err, limited.Err() != nil, w.answers(began))
		}
		return nil, fmt.Errorf("claim: %w", err)
	}
	took := time.Since(began)
	w.pacer.relax(&w.cfg, took)
	w.pacer.answered(limit, len(w.inflight.waiting), len(records), took)
	w.inflight.taken.answered(time.Now())
	return records, nil
}

// bar notes whether a claim was refused because the table cannot be served as it is, until one
// succeeds.
func (w *worker) bar(err error) {
	var refusal *outbox.RefusedError
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil:
		w.barred = ""
	case errors.As(err, &refusal) && refusal.Whole:
		w.barred, w.idle = "nothing is delivered: "+refusal.Err.Error(), w.cfg.PollMin // an idle worker claims nothing
	}
}

// answers tells whether the database has answered what was asked since a time.
func (r *tableRelay) answers(since time.Time) bool {
	g := r.seen.Load()
	return g != nil && g.asked.After(since) || r.keeper.renewedAfter(since)
}

// full tells whether a claim of at most so many left something behind for the next one, as far as
// one can see from it.
func (w *worker) full(records []*outbox.Record, most int) bool {
	if len(records) >= min(w.cfg.BatchRecords, most) {
		return true
	}
	bytes := 0
	for _, r := range records {
		bytes += len(r.Payload)
	}
	return bytes > w.cfg.BatchBytes/2 // ended for the size of its payloads
}

// How many batches one claim may bring. A part of a claim's price does not depend on how much it
// returns. It walks over the index entries of what was delivered since the last vacuum, if a long
// transaction keeps them (measured: 10 to 14 ms for 100,000). It also walks over what waits behind
// blocked keys (70 to 90 ms for 100,000). So one that took longer than what was done with its
// records brings more the next time. BatchBytes bounds it too.
const (
	batchesPerClaim    = 4
	maxBatchesPerClaim = 16
)

// A claim walks over what it leaves out, however little it brings: what is paused, and what is
// behind an event that waits in the worker. The next one is not made before so many times as long
// as it took, and so long at most. Where all that there is is paused, rests up to maxWaitingRest
// are left out: others' events end the pauses of an idle worker.
const (
	restsPerPaused  = 10
	maxPausedRest   = 5 * time.Second
	restsPerWaiting = 3
	maxWaitingRest  = 200 * time.Millisecond
	lullsPerEmpty   = 10 // of what a sink owes: behind a failing head most claims find nothing; a wake ends a lull
)

const maxPatience = 5 // doublings of a claim's time

// After a claim that the server ended for a limit of its own (statement_timeout), more patience
// changes nothing. The next try asks for a quarter of the records, down to one, and for twice as
// many after some full ones.
const (
	modestyStep   = 2 // bits
	maxModesty    = 16
	claimsPerStep = 8
)

// A sink that does not get through what a claim brings, such as one of slow receivers, has the rest
// claimed again. (Measured, webhooks at 850 events/s: each was read 25 times.) So the next one asks
// for as much as had twice as many keys as the sink got through records. Where it got through as
// many as there were keys it may be one key that holds it up, and the others' events stand behind
// that key's: the next claim brings all it can.
const leastClaim = 100

const recoveryClaims = 10 // a second, at least, while a backlog drains at RecoveryRate

// pacer says how much a worker's next claim asks for, how long that claim may take, and how long to
// rest after it. It learns from the claims before.
type pacer struct {
	batches int           // that the next claim may bring
	fair    bool          // whether the next claim is one for all tenants
	outage  int           // the last one of the sink whose backlog this worker has drained
	rest    time.Duration // before the next claim: the last walked over what it was to leave out
	most    int           // that the next claim may bring, for a sink that gets through less; 0: no less
	lulls   int           // lullsPerEmpty, of what is owed
	lull    time.Duration // before the next claim, if nothing wakes: the last found nothing

	patience  int // how often the time of the next claim is doubled
	modesty   int // by how many bits the next claim asks for less because of that
	fulfilled int // full claims since
}

func newPacer() pacer { return pacer{batches: batchesPerClaim} }

// recovering tells whether the backlog of the sink's last outage is not drained yet.
func (p *pacer) recovering(pass *ticket) bool { return p.outage != pass.outage }

// limit is what the next claim may bring.
func (p *pacer) limit(pass *ticket, cfg *tableConfig) outbox.ClaimLimit {
	limit := outbox.ClaimLimit{Records: p.batches * cfg.BatchRecords, Bytes: cfg.BatchBytes, Fair: p.fair}
	switch {
	case pass.probe:
		limit = outbox.ClaimLimit{Records: min(pass.limit, maxBatchesPerClaim*cfg.BatchRecords), Bytes: cfg.BatchBytes}
	case p.recovering(pass) && cfg.RecoveryRate > 0:
		// What is claimed goes out in one go, and the pause comes after it.
		limit.Records = min(limit.Records, max(cfg.RecoveryRate/recoveryClaims, 1))
	case p.most > 0:
		limit.Records = min(limit.Records, p.most)
	}
	return limit
}

// got learns of how many of the records that a claim brought something became.
func (p *pacer) got(records []*outbox.Record, used int) {
	switch {
	case 4*used < len(records):
		p.most = 0
		if most, keys := leading(records, 2*used); keys > used {
			p.most = max(most, leastClaim)
		}
	case 4*used < 3*len(records):
	case len(records) < p.most: // it was all there is, or all that a claim may bring
		p.most = 0
	default:
		p.most *= 2
	}
}

// leading is how many records of a claim have so many keys, and how many those are: fewer where all
// have fewer.
func leading(records []*outbox.Record, most int) (n, keys int) {
	seen := map[int64]bool{}
	for _, rec := range records {
		if !rec.Keyed || !seen[rec.OrderKey] {
			keys++
		}
		if seen[rec.OrderKey] = true; keys > most {
			return n, most
		}
		n++
	}
	return n, keys
}

// modest is how many records to ask for instead of so many.
func (p *pacer) modest(records int) int { return max(records>>p.modesty, 1) }

// timeout is how long the next claim may take.
func (p *pacer) timeout(cfg *tableConfig) time.Duration { return cfg.DatabaseTimeout << p.patience }

// relax leaves the next claim as much time as one needed that took so long, and was answered.
func (p *pacer) relax(cfg *tableConfig, took time.Duration) {
	for p.patience > 0 && took < cfg.DatabaseTimeout<<(p.patience-1) {
		p.patience--
	}
}

// failed learns from a claim that failed. ended says that it ran out of timeout, and answers that
// the database was there meanwhile: it was not the connection.
func (p *pacer) failed(err error, ended, answers bool) {
	switch {
	case ended && answers:
		p.patience = maxPatience
	case !ended && errors.Is(err, context.DeadlineExceeded): // the server's own limit
		p.modesty, p.fulfilled = min(p.modesty+modestyStep, maxModesty), 0
	}
}

// answered learns from a claim within limit that brought so many records, while some waited in the
// worker.
func (p *pacer) answered(limit outbox.ClaimLimit, waiting, records int, took time.Duration) {
	p.rest, p.lull = 0, 0
	if records == 0 {
		p.lull = min(time.Duration(p.lulls)*took, maxWaitingRest)
	}
	switch paused := restsPerPaused * took; {
	case limit.Paused.Parts() && records == 0 && paused > maxWaitingRest:
		p.rest = min(paused, maxPausedRest)
	case waiting > 0 && records < limit.Records:
		p.rest = min(restsPerWaiting*took, maxWaitingRest)
	}
	switch {
	case records < limit.Records:
		p.modesty = 0
	case p.modesty > 0:
		if p.fulfilled++; p.fulfilled >= claimsPerStep {
			p.modesty, p.fulfilled = p.modesty-1, 0
		}
	}
}

// adapt learns from a turn: how long its claim took, and the rest. While claims come back full
// there is a backlog, and every second one is for all tenants: in the others whoever wrote the
// backlog is first.
func (p *pacer) adapt(full bool, claim, rest time.Duration) {
	fair := p.fair
	p.fair = full && !fair
	switch {
	case !full:
		p.batches = batchesPerClaim
	case fair: // looks at each tenant, and says nothing about the others
	case claim > rest:
		p.batches = min(2*p.batches, maxBatchesPerClaim)
	case 3*claim < rest:
		p.batches = max(p.batches/2, batchesPerClaim)
	}
}
