package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/tables"
)

// unsettledRetry is how long a row waits whose dead letter cannot be stored. Somebody has to act before it can.
const unsettledRetry = time.Hour

// Settle implements outbox.Store. All outcomes are one pipelined request, which the server runs as one transaction.
//
// If the server refuses the data of one of them (a payload of type json that jsonb does not take, an error text too long for a mapped
// column) the batch is settled in halves until that one is alone: it waits, with the refusal as its error, and the others do not. Without this the
// lanes would stand still until somebody removed the row.
func (s *Store) Settle(ctx context.Context, owner uuid.UUID, lanes []outbox.Lane, outcomes []outbox.Outcome) (outbox.Settled, error) {
	settled, err := s.settleAll(ctx, owner, lanes, outcomes)
	if !ofTheData(err) {
		return settled, err
	}
	if half := len(outcomes) / 2; half > 0 {
		first, err := s.Settle(ctx, owner, lanes, outcomes[:half])
		if err != nil {
			return outbox.Settled{}, err
		}
		second, err := s.Settle(ctx, owner, lanes, outcomes[half:])
		if err != nil {
			return outbox.Settled{}, err
		}
		first.Add(second)
		return first, nil
	}
	again := outcomes[0]
	again.State, again.RetryIn = outbox.Retry, max(again.RetryIn, unsettledRetry)
	again.Failures = []outbox.Failure{{Error: err.Error()}}
	settled, err = s.settleAll(ctx, owner, lanes, []outbox.Outcome{again})
	if ofTheData(err) { // not even with that error
		again.Failures = nil
		settled, err = s.settleAll(ctx, owner, lanes, []outbox.Outcome{again})
	}
	return settled, err
}

// ofTheData tells whether the server refused what a row contains, which trying again does not change: data exceptions (22), integrity
// constraints (23), limits of the program (54), damaged data (XX001).
func ofTheData(err error) bool {
	var server *pgconn.PgError
	if !errors.As(err, &server) {
		return false
	}
	switch server.Code[:2] {
	case "22", "23", "54":
		return true
	}
	return server.Code == "XX001"
}

// settleAll is one request. A batch without failures, the usual one, is a single statement.
func (s *Store) settleAll(ctx context.Context, owner uuid.UUID, lanes []outbox.Lane, outcomes []outbox.Outcome) (outbox.Settled, error) {
	byPosition := func(a, b outbox.Outcome) int { return cmp.Compare(a.Record.Position, b.Record.Position) }
	if !slices.IsSortedFunc(outcomes, byPosition) { // the statements look positions up; nearly always they are
		outcomes = slices.SortedStableFunc(slices.Values(outcomes), byPosition)
	}
	var done delivered
	var again retries
	var dead deaths
	for i := range outcomes {
		switch o := &outcomes[i]; o.State {
		case outbox.Delivered:
			done.add(o)
		case outbox.Retry:
			if err := again.add(o); err != nil {
				return outbox.Settled{}, err
			}
		case outbox.Dead:
			dead.add(o)
		}
	}
	numbers, epochs := splitLanes(lanes)
	guard := []any{s.layout.Table, owner, numbers, epochs}
	with := func(args ...any) []any { return append(guard[:len(guard):len(guard)], args...) }

	var settled outbox.Settled
	var batch pgx.Batch
	if n := len(done.positions); n > 0 {
		batch.Queue(s.sql.settleDelivered, with(done.positions, done.ids, done.generations)...).Exec(countInto(&settled.Delivered))
	}
	if n := len(again.positions); n > 0 {
		batch.Queue(s.sql.settleRetry, with(again.positions, again.ids, again.generations, again.attempts, again.delays, again.errors, again.deliveredTo)...).Exec(countInto(&settled.Retried))
	}
	if dead.records > 0 {
		batch.Queue(s.sql.settleApps, dead.tenants)
		batch.Queue(s.sql.settleDead, with(dead.positions, dead.ids, dead.generations, dead.attempts, dead.errors, dead.reasons, dead.destinations, outbox.DefaultTenant)...).
			QueryRow(func(row pgx.Row) error { return row.Scan(&settled.Dead) })
	}
	if err := s.pool.SendBatch(ctx, &batch).Close(); err != nil {
		return outbox.Settled{}, fmt.Errorf("settle in %s: %w", s.layout.Table, err)
	}
	settled.Lost = len(outcomes) - settled.Delivered - settled.Retried - settled.Dead
	return settled, nil
}

func countInto(n *int) func(tag pgconn.CommandTag) error {
	return func(tag pgconn.CommandTag) error {
		*n = int(tag.RowsAffected())
		return nil
	}
}

type delivered struct {
	positions   []int64
	ids         [][16]byte // not uuid.UUID: pgx would take its driver.Valuer, by way of text, which was a fifth of the relay's CPU
	generations []int32
}

func (d *delivered) add(o *outbox.Outcome) {
	d.positions = append(d.positions, o.Record.Position)
	d.ids = append(d.ids, o.Record.ID)
	d.generations = append(d.generations, int32(o.Record.Generation))
}

type retries struct {
	delivered
	attempts            []int32
	delays              []int64 // microseconds
	errors, deliveredTo []string
}

func (r *retries) add(o *outbox.Outcome) error {
	r.delivered.add(o)
	r.attempts = append(r.attempts, int32(o.Attempts))
	r.delays = append(r.delays, o.RetryIn.Microseconds())
	texts := make([]string, len(o.Failures))
	for i, f := range o.Failures {
		texts[i] = f.Error
		if len(o.Failures) > 1 {
			texts[i] = f.Destination + ": " + f.Error
		}
	}
	r.errors = append(r.errors, tables.ErrorText(strings.Join(texts, "; ")))
	served := ""
	if len(o.DeliveredTo) > 0 {
		b, err := json.Marshal(o.DeliveredTo)
		if err != nil {
			return fmt.Errorf("encode destinations served: %w", err)
		}
		served = string(b)
	}
	r.deliveredTo = append(r.deliveredTo, served)
	return nil
}

// deaths has one entry a failure: a record that failed at two destinations has two letters.
type deaths struct {
	delivered
	records                       int
	attempts                      []int32
	errors, reasons, destinations []string
	tenants                       []string
}

func (d *deaths) add(o *outbox.Outcome) {
	d.records++
	tenant := o.Record.TenantID
	if tenant == "" {
		tenant = outbox.DefaultTenant
	}
	d.tenants = append(d.tenants, tenant)
	for _, f := range o.Failures {
		d.delivered.add(o)
		d.attempts = append(d.attempts, int32(max(o.Attempts, 1)))
		d.errors = append(d.errors, tables.ErrorText(f.Error))
		d.reasons = append(d.reasons, string(f.Reason))
		d.destinations = append(d.destinations, f.Destination)
	}
}
