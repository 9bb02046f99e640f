package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/errortext"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
)

// Owes implements outbox.DeliveryStore.
func (s *store) Owes(ctx context.Context, lanes []int16, sinks []string) (map[int16][]string, error) {
	rows, err := s.pool.Query(ctx, s.sql.owes, s.name, lanes, sinks)
	if err != nil {
		return nil, fmt.Errorf("ask what %s owes: %w", s.layout.Table, err)
	}
	owed := map[int16][]string{}
	var lane int16
	var sink string
	if _, err := pgx.ForEachRow(rows, []any{&lane, &sink}, func() error {
		owed[lane] = append(owed[lane], sink)
		return nil
	}); err != nil {
		return nil, fmt.Errorf("ask what %s owes: %w", s.layout.Table, err)
	}
	return owed, nil
}

// Debtors implements outbox.Database.
func (d served) Debtors(ctx context.Context) ([]outbox.Debtor, error) {
	t, err := parseSQL()
	if err != nil {
		return nil, err
	}
	text, err := t.Statement("debtors", nil)
	if err != nil {
		return nil, err
	}
	rows, err := d.pool.Query(ctx, text)
	if err == nil {
		var found []outbox.Debtor
		if found, err = pgx.CollectRows(rows, pgx.RowToStructByPos[outbox.Debtor]); err == nil {
			return found, nil
		}
	}
	var refused *pgconn.PgError
	if errors.As(err, &refused) && (refused.Code == "42P01" || refused.Code == "42501") { // no table, or no right
		return nil, nil
	}
	return nil, fmt.Errorf("look for what sinks owe: %w", err)
}

// LeaseName implements outbox.DeliveryStore.
func (s *store) LeaseName() string { return s.name }

// debts are the rows of a settle of which sinks owe something, and what they owe.
type debts struct {
	pgtable.Rows
	lanes                                    []int16
	orderKeys                                []*int64
	keys                                     []*string
	topics, types, tenants, sources, schemas []string
	schemaVersions                           []int32
	sequences                                []int64
	payloads, metadata                       []string
	occurred, written                        []*time.Time
	rows, attempts                           []int32
	sinks, destinations, errors              []string
	delays                                   []int64 // microseconds
}

func (d *debts) add(o *outbox.Outcome) {
	r := o.Record
	d.Add(o)
	d.lanes = append(d.lanes, r.Lane)
	var key *string
	var orderKey *int64
	if r.Keyed {
		key, orderKey = &r.AggregateID, &r.OrderKey
	}
	d.keys, d.orderKeys = append(d.keys, key), append(d.orderKeys, orderKey)
	d.topics, d.types = append(d.topics, r.Topic), append(d.types, r.AggregateType)
	d.tenants, d.sources = append(d.tenants, r.TenantID), append(d.sources, r.Source)
	d.schemas, d.schemaVersions = append(d.schemas, r.SchemaID), append(d.schemaVersions, int32(r.SchemaVersion))
	d.sequences = append(d.sequences, r.Sequence)
	d.payloads, d.metadata = append(d.payloads, string(r.Payload)), append(d.metadata, string(r.RawMetadata))
	d.occurred, d.written = append(d.occurred, known(r.OccurredAt)), append(d.written, known(r.WrittenAt))
	for _, owed := range o.Owed {
		d.rows = append(d.rows, int32(len(d.lanes)))
		d.attempts = append(d.attempts, int32(owed.Attempts))
		d.sinks, d.destinations = append(d.sinks, owed.Sink), append(d.destinations, owed.Destination)
		d.errors = append(d.errors, errortext.Fit(owed.Error))
		d.delays = append(d.delays, owed.RetryIn.Microseconds())
	}
}

// known returns a time, or NULL.
func known(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

// args are $5 and the following of settle_owed.sql.
func (d *debts) args() []any {
	return []any{d.Positions, d.IDs, d.Generations, d.rows, d.sinks, d.destinations, d.attempts, d.delays, d.errors,
		d.lanes, d.orderKeys, d.topics, d.keys, d.types, d.tenants, d.sources, d.schemas, d.schemaVersions, d.sequences,
		d.payloads, d.metadata, d.occurred, d.written}
}
