package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/internal/store/pgschema"
	"github.com/outboxrelay/outbox/server/subscription"
)

// Subscriptions are those of a database. It is a subscription.Store.
type Subscriptions struct{ db database }

var _ subscription.Store = (*Subscriptions)(nil)

// OpenSubscriptions returns the subscriptions of a database after checking that it has the tables, which are of the
// migration set log: if not, an *outbox.SchemaError. A gateway's role needs outbox_gateway.
func OpenSubscriptions(ctx context.Context, pool *pgxpool.Pool) (*Subscriptions, error) {
	if err := pgschema.CheckTable(ctx, pool, "outbox_subscriptions", []string{"most", "late_snapshot"}); err != nil {
		return nil, err
	}
	return &Subscriptions{newDatabase(pool)}, nil
}

// ask runs a statement as a tenant, in one round trip with the question whether the subscription is the tenant's: "" is
// asked for none.
func (s *Subscriptions) ask(
	ctx context.Context, tenant, name, statement string, args []any, rows func(pgx.Rows) error,
) error {
	batch, err := s.speaking(tenant)
	if err != nil {
		return err
	}
	queue := func(file string, args ...any) (*pgx.QueuedQuery, error) {
		sql, err := files.Statement(file, nil)
		return batch.Queue(sql, args...), err
	}
	known := name == ""
	if !known {
		q, err := queue("subscription_known", name, tenant)
		if err != nil {
			return err
		}
		q.QueryRow(func(row pgx.Row) error { return row.Scan(&known) })
		args = append([]any{name, tenant}, args...)
	}
	q, err := queue(statement, args...)
	if err != nil {
		return err
	}
	if rows != nil {
		q.Query(rows)
	}
	if err := s.db.Pool.SendBatch(ctx, batch).Close(); err != nil {
		return explained(err)
	}
	if !known {
		return subscription.ErrUnknown
	}
	return nil
}

// speaking begins a round trip as a tenant.
func (s *Subscriptions) speaking(tenant string) (*pgx.Batch, error) {
	batch := new(pgx.Batch)
	return batch, queue(batch, s.db, speaking(tenant))
}

// explained turns what the functions refuse into the errors of package subscription.
func explained(err error) error {
	var server *pgconn.PgError
	if !errors.As(err, &server) {
		return err
	}
	switch server.Code {
	case "42704":
		return subscription.ErrUnknown
	case "23505", "42501": // of another tenant: its row is hidden, and there
		return subscription.ErrExists
	case "22023", "23514", "22008", "22021", "22P05":
		return fmt.Errorf("%w: %s", subscription.ErrRefused, server.Message)
	}
	return err
}

// answerBytes is after how many bytes of payloads an answer ends; what is left of it is given back.
const answerBytes = 4 << 20

// Next implements subscription.Store.
func (s *Subscriptions) Next(ctx context.Context, tenant, name string, most int) (all []subscription.Given, err error) {
	cut := false
	err = s.ask(ctx, tenant, name, "subscription_next", []any{most}, func(rows pgx.Rows) error {
		for bytes := 0; rows.Next(); {
			if bytes > answerBytes {
				cut = true
				return nil // closing them discards the rest
			}
			var e subscription.Given
			err := rows.Scan(&e.ID, &e.Position, &e.Token, &e.Attempt, &e.Type, &e.Key, &e.Tenant, &e.OccurredAt, &e.Payload,
				&e.Metadata)
			if err != nil {
				return err
			}
			e.OccurredAt = e.OccurredAt.UTC()
			bytes += len(e.Payload) + len(e.Metadata)
			all = append(all, e)
		}
		return rows.Err()
	})
	if err == nil && cut {
		last := all[len(all)-1]
		sql, err := files.Statement("subscription_return", nil)
		if err != nil {
			return nil, err
		}
		batch, err := s.speaking(tenant)
		if err != nil {
			return nil, err
		}
		batch.Queue(sql, name, last.Token, last.Position)
		return all, s.db.Pool.SendBatch(ctx, batch).Close()
	}
	return all, err
}

// Ack implements subscription.Store.
func (s *Subscriptions) Ack(
	ctx context.Context, tenant, name string, events []subscription.Receipt,
) (acknowledged int, refused []subscription.Refused, err error) {
	ids, tokens := make([]uuid.UUID, len(events)), make([]uuid.UUID, len(events))
	for i, e := range events {
		ids[i], tokens[i] = e.ID, e.Token
	}
	err = s.ask(ctx, tenant, name, "subscription_ack", []any{ids, tokens}, func(rows pgx.Rows) error {
		var r subscription.Refused
		_, err := pgx.ForEachRow(rows, []any{&r.ID, &r.Reason}, func() error {
			if r.Reason == "acknowledged" {
				acknowledged++
			} else {
				refused = append(refused, r)
			}
			return nil
		})
		return err
	})
	return acknowledged, refused, err
}

// Nack implements subscription.Store.
func (s *Subscriptions) Nack(
	ctx context.Context, tenant, name string, event subscription.Receipt, why string, delay *time.Duration,
) (failure *subscription.Failure, err error) {
	var wait *int64
	if delay != nil {
		us := delay.Microseconds()
		wait = &us
	}
	err = s.ask(ctx, tenant, name, "subscription_nack", []any{event.ID, event.Token, why, wait},
		func(rows pgx.Rows) error {
			var f subscription.Failure
			_, err := pgx.ForEachRow(rows, []any{&f.Attempt, &f.AgainAt, &f.Dead}, func() error {
				failure = &f
				return nil
			})
			return err
		})
	return failure, err
}

// Subscribe implements subscription.Store.
func (s *Subscriptions) Subscribe(ctx context.Context, n subscription.Settings) (created bool, err error) {
	err = s.ask(ctx, n.Tenant, "", "subscription_add", []any{n.Name, n.Tenant, n.Types, n.From, n.Earliest,
		n.Lease.Microseconds(), n.MaxAttempts}, func(rows pgx.Rows) error {
		created, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[bool])
		return err
	})
	return created, err
}

// Rewind implements subscription.Store.
func (s *Subscriptions) Rewind(ctx context.Context, tenant, name string, to time.Time) error {
	return s.ask(ctx, tenant, name, "subscription_rewind", []any{to}, nil)
}

// Remove implements subscription.Store.
func (s *Subscriptions) Remove(ctx context.Context, tenant, name string) error {
	return s.ask(ctx, tenant, name, "subscription_remove", nil, nil)
}

// List implements subscription.Store.
func (s *Subscriptions) List(ctx context.Context, tenant string) (all []subscription.State, err error) {
	var may struct{ Letters bool }
	letters, err := files.Statement("subscription_letters", nil)
	if err == nil {
		err = s.db.Pool.QueryRow(ctx, letters).Scan(&may.Letters)
	}
	if err != nil {
		return nil, err
	}
	sql, err := files.Statement("subscription_list", may)
	if err != nil {
		return nil, err
	}
	batch, err := s.speaking(tenant)
	if err != nil {
		return nil, err
	}
	batch.Queue(sql, tenant).Query(func(rows pgx.Rows) error {
		all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (st subscription.State, err error) {
			var lease int64
			err = row.Scan(&st.Name, &st.Tenant, &st.Types, &lease, &st.MaxAttempts, &st.Position, &st.Behind,
				&st.Outstanding, &st.Oldest, &st.Letters)
			st.Lease = (time.Duration(lease) * time.Microsecond).String()
			return st, err
		})
		return err
	})
	return all, s.db.Pool.SendBatch(ctx, batch).Close()
}

// Ready implements subscription.Store, in one round trip.
func (s *Subscriptions) Ready(ctx context.Context, of []subscription.Name) (ready []subscription.Name, err error) {
	sql, err := files.Statement("subscription_ready", nil)
	if err != nil {
		return nil, err
	}
	by := map[string][]string{}
	for _, n := range of {
		by[n.Tenant] = append(by[n.Tenant], n.Name)
	}
	var batch pgx.Batch
	for tenant, names := range by {
		if err := queue(&batch, s.db, speaking(tenant)); err != nil {
			return nil, err
		}
		batch.Queue(sql, names, tenant).Query(func(rows pgx.Rows) error {
			var name string
			_, err := pgx.ForEachRow(rows, []any{&name}, func() error {
				ready = append(ready, subscription.Name{Tenant: tenant, Name: name})
				return nil
			})
			return err
		})
	}
	return ready, s.db.Pool.SendBatch(ctx, &batch).Close()
}
