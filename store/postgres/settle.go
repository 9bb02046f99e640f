package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/eventrow"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

// unsettledRetry is how long a row waits whose dead letter cannot be stored. Somebody has to act
// before it can.
const unsettledRetry = time.Hour

// Settle implements outbox.Store. All outcomes are one pipelined request, which the server runs as
// one transaction.
//
// If the server refuses that, for a reason that is not of the whole table (see whole), the batch is
// settled in halves until what it refuses is alone. Its row then waits, with the refusal as its
// error. What the server does not even take that for, what it refuses for the sake of another
// transaction, and all of several rows if none of them is taken, is returned as refused, and so is
// what is behind it in its key: were the relay to die now, all of it would go out again, in its
// order. Without this the lanes would stand still until somebody removed the row. A row that is
// locked is found at once and not waited for: see settle_left.sql.
func (s *store) Settle(
	ctx context.Context, owner uuid.UUID, lanes []outbox.Lane, outcomes []outbox.Outcome,
) (outbox.Settled, error) {
	var settled outbox.Settled
	var refusal outbox.RefusedError
	t := settling{store: s, owner: owner, lanes: lanes, settled: &settled, refusal: &refusal,
		removes: s.layout.Settle.Removes()}
	byPosition := func(a, b outbox.Outcome) int { return cmp.Compare(a.Record.Position, b.Record.Position) }
	if !slices.IsSortedFunc(outcomes, byPosition) { // nearly always they are
		outcomes = slices.SortedStableFunc(slices.Values(outcomes), byPosition)
	}
	err := t.settle(ctx, outcomes)
	if missing := len(outcomes) - settled.Delivered - settled.Retried - settled.Dead - len(refusal.Outcomes); err == nil &&
		missing > 0 && s.layout.Settle.Removes() {
		err = t.recount(ctx, outcomes)
	}
	settled.Lost = max(len(outcomes)-settled.Delivered-settled.Retried-settled.Dead-len(refusal.Outcomes), 0)
	switch {
	case err != nil:
		return outbox.Settled{}, pgtable.NameBlocker(ctx, s.pool, s.layout.Table, err)
	case len(refusal.Outcomes) > 0:
		return settled, &refusal
	}
	return settled, nil
}

// settling is the work of one Settle.
type settling struct {
	*store
	owner   uuid.UUID
	lanes   []outbox.Lane
	settled *outbox.Settled
	refusal *outbox.RefusedError
	alone   []refusedAlone // of this turn
	asked   bool           // whether the table's rights are there
	removes bool           // delivered rows leave the table
	kept    int            // delivered rows that the table does not let go; they are marked instead
	tried   int            // outcomes, in all turns
	stuck   int            // of those: alone, in all turns
}

// refusedAlone is an outcome that the server has refused when it was settled by itself.
type refusedAlone struct {
	outcome outbox.Outcome
	err     error
	passing bool
}

func (t *settling) refuse(err error, outcomes ...outbox.Outcome) {
	t.refusal.Outcomes = append(t.refusal.Outcomes, outcomes...)
	t.refusal.Err = cmp.Or(t.refusal.Err, err)
}

// recount counts as delivered what an earlier settle, whose reply was lost, has removed.
func (t *settling) recount(ctx context.Context, outcomes []outbox.Outcome) error {
	var done pgtable.Rows
	var of []int16
	for i := range outcomes {
		if o := &outcomes[i]; o.State == outbox.Delivered {
			done.Add(o)
			of = append(of, o.Record.Lane)
		}
	}
	var known int
	if err := t.pool.QueryRow(ctx, t.sql.settleKnown, t.guarded()(done.Positions, done.IDs, of)...).
		Scan(&known); err != nil {
		return fmt.Errorf("count what is settled in %s: %w", t.layout.Table, err)
	}
	t.settled.Delivered = max(t.settled.Delivered, known)
	return nil
}

// settle settles outcomes that ascend: together and, if they are refused, by turns.
func (t *settling) settle(ctx context.Context, outcomes []outbox.Outcome) error {
	passing := slices.ContainsFunc(outcomes, func(o outbox.Outcome) bool { return o.Refused > 0 })
	if !passing {
		err := t.once(ctx, outcomes, false)
		if whole := t.wholly(ctx, err); whole != nil {
			return whole
		}
		if !pgtable.Refused(err) {
			return err
		}
		passing = pgtable.Code(err) == pgtable.LockNotAvailable
	}
	for len(outcomes) > 0 {
		first, rest := t.turn(outcomes)
		if len(first) > 0 {
			t.tried += len(first)
			if err := t.halves(ctx, first, passing); err != nil {
				return err
			}
			if err := t.explain(ctx); err != nil {
				return err
			}
		}
		outcomes = rest
	}
	return nil
}

// turn takes the first outcome of each key. It refuses those that are behind a refused one in their
// key.
func (t *settling) turn(outcomes []outbox.Outcome) (first, rest []outbox.Outcome) {
	waits, begun := outbox.HeldKeys{}, outbox.HeldKeys{}
	for _, o := range t.refusal.Outcomes {
		waits.Hold(o.Record)
	}
	for _, o := range outcomes {
		switch {
		case waits.Holds(o.Record):
			t.refuse(t.refusal.Err, o)
		case begun.Holds(o.Record):
			rest = append(rest, o)
		default:
			begun.Hold(o.Record)
			first = append(first, o)
		}
	}
	return first, rest
}

// halves settles outcomes, in halves where they are refused together. passing leaves out rows that
// are locked.
func (t *settling) halves(ctx context.Context, outcomes []outbox.Outcome, passing bool) error {
	err := t.once(ctx, outcomes, passing)
	if pgtable.Code(err) == pgtable.LockNotAvailable && !passing {
		passing = true
		err = t.once(ctx, outcomes, passing)
	}
	if pgtable.Transient(err) { // a deadlock, a conflict of transactions: mostly gone at the second try
		err = t.once(ctx, outcomes, passing)
	}
	if whole := t.wholly(ctx, err); whole != nil {
		return whole
	}
	if !pgtable.Refused(err) {
		return err
	}
	if half := len(outcomes) / 2; half > 0 {
		if err := t.halves(ctx, outcomes[:half], passing); err != nil {
			return err
		}
		return t.halves(ctx, outcomes[half:], passing)
	}
	if outcomes[0].State == outbox.Delivered && t.removes && !pgtable.Passes(err) {
		marked := t.keep(ctx, outcomes, passing)
		if !pgtable.Refused(marked) {
			return marked
		}
	}
	t.alone = append(t.alone, refusedAlone{outcomes[0], err, passing})
	return nil
}

// maxKept is the number of rows of one Settle that are found by halves because the table does not
// let them go. The rows after them are marked without an attempt to remove them.
const maxKept = 8

// keep marks a delivered row that cannot be removed, for example because a foreign key of the
// application refers to it. Retention removes the row when it can.
func (t *settling) keep(ctx context.Context, outcomes []outbox.Outcome, passing bool) error {
	t.removes = false
	err := t.once(ctx, outcomes, passing)
	t.kept++
	t.removes = t.kept < maxKept
	return err
}

// wholly is whole, which is asked once about rights: a row that is alone is looked at again by
// explain.
func (t *settling) wholly(ctx context.Context, err error) error {
	if pgtable.OfAccess(err) {
		if t.asked {
			return nil
		}
		t.asked = true
	}
	return t.whole(ctx, err)
}

// explain makes the refusals of rows their errors. First it makes sure that it is the rows that are
// refused: rights may have gone while they were settled in halves, or come back, and what nothing
// of several rows gets past is not theirs.
func (t *settling) explain(ctx context.Context) error {
	t.stuck += len(t.alone)
	defer func() { t.alone = nil }()
	if i := slices.IndexFunc(t.alone, func(a refusedAlone) bool { return pgtable.OfAccess(a.err) }); i >= 0 {
		if whole := t.whole(ctx, t.alone[i].err); whole != nil {
			return whole
		}
	}
	all := t.tried > 1 && t.stuck == t.tried && !slices.ContainsFunc(t.alone, func(a refusedAlone) bool {
		return pgtable.Code(a.err) != pgtable.Code(t.alone[0].err) || pgtable.OfTheData(a.err)
	})
	for _, a := range t.alone {
		if pgtable.Passes(a.err) || all {
			t.refuse(a.err, a.outcome)
			continue
		}
		switch err := t.once(ctx, []outbox.Outcome{a.outcome}, a.passing); {
		case err == nil: // what refused it is over
		case !pgtable.Refused(err):
			return err
		case !t.explained(ctx, a.outcome, err, a.passing):
			t.refuse(err, a.outcome)
		}
	}
	return nil
}

// explained makes a refusal the error of its row, which waits, and tells whether the server took
// that. A table that cannot say what was served must not: it would be published again.
func (t *settling) explained(ctx context.Context, o outbox.Outcome, refusal error, passing bool) bool {
	if pgtable.OfTheData(refusal) && pgtable.Abandon(&o, refusal) && t.bury(ctx, &o) {
		return true
	}
	if o.State == outbox.Delivered && t.layout.DeliveredTo == "" {
		return false
	}
	o.State, o.Attempts, o.RetryIn = outbox.Retry, max(o.Attempts, o.Record.Attempts), max(o.RetryIn, unsettledRetry)
	o.Failures = []outbox.Failure{{Error: refusal.Error()}}
	if t.once(ctx, []outbox.Outcome{o}, passing) == nil {
		return true
	}
	o.Failures = nil // not even with that error
	return t.once(ctx, []outbox.Outcome{o}, passing) == nil
}

// bury stores dead letters that hold less of their row than those that the server refused. It
// reports whether the server took one.
func (t *settling) bury(ctx context.Context, o *outbox.Outcome) bool {
	var dead pgtable.Deaths
	dead.Add(o)
	for _, sql := range append([]string{t.sql.settle.dead}, t.sql.deadReduced[:]...) {
		n := 0
		var batch pgx.Batch
		batch.Queue(t.sql.durable)
		batch.Queue(t.sql.settleApps, dead.Tenants)
		batch.Queue(sql, t.guarded()(dead.Args(t.layout.Table)...)...).
			QueryRow(func(row pgx.Row) error { return row.Scan(&n) })
		if err := t.pool.SendBatch(ctx, &batch).Close(); !pgtable.OfTheData(err) {
			t.settled.Dead += n
			return err == nil
		}
		dead.Tenants = []string{eventrow.DefaultTenant}
	}
	return false
}

// sorted is a batch by what becomes of its rows.
type sorted struct {
	all, done, marked pgtable.Rows // marked: of done, those whose row stays
	again             retries
	dead              pgtable.Deaths
	owed              pgtable.Debts
}

// sort takes outcomes apart. all is for a settle that passes by locked rows.
func (b *sorted) sort(outcomes []outbox.Outcome, passing, removes bool) error {
	for i := range outcomes {
		o := &outcomes[i]
		if passing {
			b.all.Add(o)
		}
		switch o.State {
		case outbox.Delivered:
			b.done.Add(o)
			// A letter may need the row of an event that was replayed: then settle_delete.sql
			// leaves it to be marked.
			if !removes || o.Record.Generation > 0 {
				b.marked.Add(o)
			}
			if len(o.Owed) > 0 {
				b.owed.Add(o)
			}
		case outbox.Retry:
			if err := b.again.add(o); err != nil {
				return err
			}
		case outbox.Dead:
			b.dead.Add(o)
		}
	}
	return nil
}

// once is one request. A batch without failures, the usual one, is a single statement. With
// passing, what is locked is added to the refusal.
func (t *settling) once(ctx context.Context, outcomes []outbox.Outcome, passing bool) error {
	var b sorted
	if err := b.sort(outcomes, passing, t.removes); err != nil {
		return err
	}
	with := t.guarded()
	sql, arrived := &t.sql.settle, &t.sql.settlePlaced
	if passing {
		sql = &t.sql.settlePassing
	}
	placed := !passing && len(b.owed.Positions) == 0 // what is owed is copied for exactly the rows that are settled
	if !placed {
		arrived = &sql.arrivals
	}
	var settled outbox.Settled
	var locked []outbox.Outcome
	var batch pgx.Batch
	if len(b.owed.Positions)+b.dead.Records > 0 {
		batch.Queue(t.sql.durable)
	}
	if len(b.owed.Positions) > 0 {
		batch.Queue(sql.owed, with(b.owed.Args()...)...)
	}
	t.queue(&batch, arrived, placed, &b.done, &b.marked, &settled.Delivered)
	if len(b.again.Positions) > 0 {
		batch.Queue(sql.retry, with(b.again.args()...)...).
			Exec(countInto(&settled.Retried))
	}
	if b.dead.Records > 0 {
		batch.Queue(t.sql.settleApps, b.dead.Tenants)
		batch.Queue(sql.dead, with(b.dead.Args(t.layout.Table)...)...).
			QueryRow(func(row pgx.Row) error { return row.Scan(&settled.Dead) })
	}
	if passing {
		batch.Queue(t.sql.settleLeft, with(b.all.Positions, b.all.IDs, b.all.Generations)...).
			Query(func(rows pgx.Rows) error {
				left, err := pgx.CollectRows(rows, pgx.RowTo[int])
				for _, n := range left { // a bucket's number, from 1
					locked = append(locked, outcomes[n-1])
				}
				return err
			})
	}
	if err := t.pool.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("settle in %s: %w", t.layout.Table, err)
	}
	t.settled.Delivered += settled.Delivered
	t.settled.Retried += settled.Retried
	t.settled.Dead += settled.Dead
	if len(locked) > 0 {
		t.refuse(errors.New("their rows are held locked by another session (pg_stat_activity tells which)"), locked...)
	}
	if placed && settled.Delivered < len(b.done.Positions) {
		return t.byPosition(ctx, &b.done, &b.marked)
	}
	return nil
}

// guarded returns what makes the parameters of a statement that is guarded by the lease.
func (t *settling) guarded() func(args ...any) []any {
	numbers, epochs := pgtable.SplitLanes(t.lanes)
	return func(args ...any) []any { return append([]any{t.name, t.owner, numbers, epochs}, args...) }
}

// queue adds the statements for what was delivered to a batch: done rows are removed, where the
// layout says so, and marked ones marked. n counts them.
func (t *settling) queue(batch *pgx.Batch, sql *arrivals, placed bool, done, marked *pgtable.Rows, n *int) {
	with := t.guarded()
	add := func(statement string, rows *pgtable.Rows) {
		if len(rows.Positions) == 0 {
			return
		}
		args := with(rows.Positions, rows.IDs, rows.Generations)
		if placed {
			args = append(args, rows.Places)
		}
		batch.Queue(statement, args...).Exec(countInto(n))
	}
	if t.removes {
		add(sql.remove, done)
	}
	add(sql.delivered, marked)
}

// byPosition settles what was delivered and stands no more where the claim has read it.
func (t *settling) byPosition(ctx context.Context, done, marked *pgtable.Rows) error {
	var batch pgx.Batch
	n := 0
	t.queue(&batch, &t.sql.settle.arrivals, false, done, marked, &n)
	if err := t.pool.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("settle in %s: %w", t.layout.Table, err)
	}
	t.settled.Delivered += n
	return nil
}

func countInto(n *int) func(tag pgconn.CommandTag) error {
	return func(tag pgconn.CommandTag) error {
		*n += int(tag.RowsAffected())
		return nil
	}
}

type retries struct {
	pgtable.Rows
	attempts            []int32
	delays              []int64 // microseconds
	errors, deliveredTo []string
}

func (r *retries) args() []any {
	return []any{r.Positions, r.IDs, r.Generations, r.attempts, r.delays, r.errors, r.deliveredTo}
}

func (r *retries) add(o *outbox.Outcome) error {
	r.Add(o)
	r.attempts = append(r.attempts, int32(min(o.Attempts, math.MaxInt32)))
	r.delays = append(r.delays, o.RetryIn.Microseconds())
	problem, served, err := sqltable.Retry(o)
	r.errors, r.deliveredTo = append(r.errors, problem), append(r.deliveredTo, served)
	return err
}
