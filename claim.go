package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// How many batches one claim may bring. A part of a claim's price does not depend on how much it returns: it walks over
// the index entries of what was delivered since the last vacuum, if a long transaction keeps them (measured: 10 to 14
// ms for 100,000), and over what waits behind blocked keys (70 to 90 ms for 100,000). So one that took longer than what
// was done with its records brings more the next time. BatchBytes bounds it too.
const (
	batchesPerClaim    = 4
	maxBatchesPerClaim = 16
)

// A claim without what is paused walks over their backlog, however little it brings. One that brings nothing is not made
// again before it has been idle for so many times as long as it took, and maxRest at most.
const (
	restsPerClaim = 10
	maxRest       = 5 * time.Second
)

const maxPatience = 3 // doublings of a claim's time

// A claim that the server ended for a limit of its own (statement_timeout), which more patience does not change, asks
// for a quarter of the records at the next try, down to one, and for twice as many after some full ones.
const (
	modestyStep   = 2 // bits
	maxModesty    = 16
	claimsPerStep = 8
)

const (
	probeRecords = 10 // first try whether a sink is there again
	// A sink that refuses quicker than this is shown the next batch of a probe too.
	probeTime      = 100 * time.Millisecond
	recoveryClaims = 10 // a second, at least, while a backlog drains at RecoveryRate
)

// limit is what the next claim may bring.
func (w *worker) limit(pass *ticket) ClaimLimit {
	limit := ClaimLimit{Records: w.batches * w.cfg.BatchRecords, Bytes: w.cfg.BatchBytes, Fair: w.fair}
	switch {
	case pass.probe:
		limit = ClaimLimit{Records: min(pass.limit, maxBatchesPerClaim*w.cfg.BatchRecords), Bytes: w.cfg.BatchBytes}
	case w.outage != pass.outage && w.cfg.RecoveryRate > 0:
		// What is claimed goes out in one go, and the pause comes after it.
		limit.Records = min(limit.Records, max(w.cfg.RecoveryRate/recoveryClaims, 1))
	}
	return limit
}

// full tells whether a claim left something behind for the next one, as far as one can see from it.
func (w *worker) full(records []*Record) bool {
	if len(records) >= w.cfg.BatchRecords {
		return true
	}
	bytes := 0
	for _, r := range records {
		bytes += len(r.Payload)
	}
	return bytes > w.cfg.BatchBytes/2 // ended for the size of its payloads
}

// adapt learns from a turn for the next claim: how long its claim took, and the rest. While claims come back full there
// is a backlog, and every second one is for all tenants: in the others whoever wrote the backlog is first.
func (w *worker) adapt(full bool, claim, rest time.Duration) {
	fair := w.fair
	w.fair = full && !fair
	switch {
	case !full:
		w.batches = batchesPerClaim
	case fair: // looks at each tenant, and says nothing about the others
	case claim > rest:
		w.batches = min(2*w.batches, maxBatchesPerClaim)
	case 3*claim < rest:
		w.batches = max(w.batches/2, batchesPerClaim)
	}
}

// claim reads the next records of the lanes. It is a plain read: who may read a lane is settled by the lease, so
// claiming costs no write and leaves nothing behind when the relay dies.
//
// It asks by state and never by "position > last": a lower position may commit later, and would be lost.
//
// One that ran out of time is given twice as much at the next try, up to 8 times DatabaseTimeout: a single row may take
// longer than that to turn into text (15 s for a number that is 1 GB long, on a busy machine), and with the same limit
// it would hold its lanes for ever.
func (w *worker) claim(ctx context.Context, lanes []Lane, limit ClaimLimit) ([]*Record, error) {
	limit = w.unsettled.exclude(limit)
	limit.Paused, limit.Destination = w.keeper.paused().Paused, w.cfg.Destination
	limit.Records = max(limit.Records>>w.modesty, 1)
	// A connection whose other end has vanished would never answer, and the relay would stand still without an error.
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, w.cfg.DatabaseTimeout<<w.patience)
	defer cancel()
	records, err := w.store.Claim(limited, lanes, limit)
	if err != nil {
		switch {
		case ctx.Err() != nil:
		case limited.Err() != nil:
			w.patience = min(w.patience+1, maxPatience)
		case errors.Is(err, context.DeadlineExceeded): // the server's own limit
			w.modesty, w.fulfilled = min(w.modesty+modestyStep, maxModesty), 0
		}
		return nil, fmt.Errorf("claim: %w", err)
	}
	w.patience = 0
	w.rest = 0
	if limit.Paused.Parts() && len(records) == 0 {
		w.rest = min(restsPerClaim*time.Since(began), maxRest)
	}
	w.recall.answered(time.Now())
	switch {
	case len(records) < limit.Records:
		w.modesty = 0
	case w.modesty > 0:
		if w.fulfilled++; w.fulfilled >= claimsPerStep {
			w.modesty, w.fulfilled = w.modesty-1, 0
		}
	}
	return records, nil
}
