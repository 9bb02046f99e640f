package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/internal/store/pgschema"
	"github.com/outboxrelay/outbox/server/store"
	"github.com/outboxrelay/outbox/server/subscription"
)

// Subscriptions are those of a database. It is a subscription.Store.
type Subscriptions struct{ db database }

var _ subscription.Store = (*Subscriptions)(nil)

// OpenSubscriptions returns the subscriptions of a database after checking that it has the tables,
// which are of the migration set log: if not, an *outbox.SchemaError. A gateway's role needs
// outbox_gateway.
func OpenSubscriptions(ctx context.Context, pool *pgxpool.Pool) (*Subscriptions, error) {
	columns := []string{"id", "keep", "most", "late_snapshot"}
	if err := pgschema.CheckTable(ctx, pool, "outbox_subscriptions", columns); err != nil {
		return nil, err
	}
	return &Subscriptions{newDatabase(pool)}, nil
}

// named is the subscription of a statement.
type named struct{ Name, Tenant string }

// ask runs a statement, in one round trip with the question whether the subscription is the
// tenant's. data has a named.
func (s *Subscriptions) ask(
	ctx context.Context, of named, statement string, data any, row func(store.Row) error,
) error {
	var known, paused bool
	err := s.db.Write(ctx, of.Tenant,
		store.Ask{Name: "subscription_known", Data: of, Row: func(row store.Row) error { return row.Scan(&known, &paused) }},
		store.Ask{Name: statement, Data: data, Row: row})
	switch {
	case err == nil && !known:
		err = subscription.ErrUnknown
	case err == nil && paused && statement == "subscription_next":
		err = subscription.ErrPaused
	}
	return of.explained(err)
}

// limits are what the table's constraints say.
var limits = map[string]string{
	"outbox_subscriptions_name_check": "the name must be 1 to 63 of a-z, 0-9, _, . and -, and begin with a letter or " +
		"digit",
	"outbox_subscriptions_types_check":    "there must be 1 to 100 types",
	"outbox_subscriptions_lease_check":    "the lease must be more than 0 and at most a day",
	"outbox_subscriptions_attempts_check": "max_attempts must be 1 to 1000",
}

// explained turns what the functions refuse into the errors of package subscription.
func (of named) explained(err error) error {
	var server *pgconn.PgError
	unknown := errors.Is(err, subscription.ErrUnknown) || errors.As(err, &server) && server.Code == "42704"
	switch {
	case unknown && of.Tenant != "":
		return fmt.Errorf("%w: tenant %s has none named %s; over HTTP a token reaches the subscriptions of its tenant, "+
			"which are made with: outbox subscriptions add %[3]s --tenant %[2]s", subscription.ErrUnknown, of.Tenant, of.Name)
	case unknown:
		return fmt.Errorf("%w: %s", subscription.ErrUnknown, of.Name)
	case server == nil:
		return err
	}
	switch server.Code {
	case "23505", "42501": // of another tenant: its row is hidden, and there
		return subscription.ErrExists
	case "55000":
		return fmt.Errorf("%w: %s", subscription.ErrState, server.Message)
	case "22023", "23514", "22008", "22021", "22P05":
		if server.Routine == "exec_stmt_raise" { // a function of ours has said it
			return fmt.Errorf("%w: %s", subscription.ErrRefused, server.Message)
		}
		return fmt.Errorf("%w: %s", subscription.ErrRefused, cmp.Or(limits[server.ConstraintName], "a value is out of range"))
	}
	return err
}

// answerBytes is after how many bytes of payloads an answer ends; what is left of it is given back.
const answerBytes = 4 << 20

// Next implements subscription.Store.
func (s *Subscriptions) Next(ctx context.Context, tenant, name string, most int) (all []subscription.Given, err error) {
	of, bytes, cut := named{name, tenant}, 0, false
	err = s.ask(ctx, of, "subscription_next", struct {
		named
		Most int
	}{of, most}, func(row store.Row) error {
		if cut = bytes > answerBytes; cut {
			return nil
		}
		var e subscription.Given
		err := row.Scan(&e.ID, &e.Position, &e.Token, &e.Attempt, &e.Type, &e.Key, &e.OrderKey, &e.Tenant, &e.OccurredAt,
			&e.Payload, &e.Metadata)
		e.OccurredAt = e.OccurredAt.UTC()
		bytes += len(e.Payload) + len(e.Metadata)
		all = append(all, e)
		return err
	})
	if err == nil && cut {
		err = s.db.Write(ctx, tenant, store.Ask{Name: "subscription_return", Data: struct {
			named
			Last subscription.Given
		}{of, all[len(all)-1]}})
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
	of := named{name, tenant}
	err = s.ask(ctx, of, "subscription_ack", struct {
		named
		IDs, Tokens []uuid.UUID
	}{of, ids, tokens}, func(row store.Row) error {
		var r subscription.Refused
		if err := row.Scan(&r.ID, &r.Reason); err != nil {
			return err
		}
		if r.Reason == "acknowledged" {
			acknowledged++
		} else {
			refused = append(refused, r)
		}
		return nil
	})
	return acknowledged, refused, err
}

// Nack implements subscription.Store.
func (s *Subscriptions) Nack(
	ctx context.Context, tenant, name string, event subscription.Receipt, why, reason string, delay *time.Duration,
) (failure *subscription.Failure, err error) {
	var wait *int64
	if delay != nil {
		us := delay.Microseconds()
		wait = &us
	}
	of := named{name, tenant}
	err = s.ask(ctx, of, "subscription_nack", struct {
		named
		subscription.Receipt
		Why, Reason string
		Delay       *int64
	}{of, event, why, reason, wait}, func(row store.Row) error {
		failure = &subscription.Failure{}
		return row.Scan(&failure.Attempt, &failure.AgainAt, &failure.Dead)
	})
	return failure, err
}

// Subscribe implements subscription.Store.
func (s *Subscriptions) Subscribe(ctx context.Context, n subscription.Settings) (created bool, err error) {
	if n.Limit <= 0 {
		n.Limit = math.MaxInt32
	}
	var made *bool
	err = s.db.Write(ctx, n.Tenant, store.Ask{Name: "subscription_add", Data: struct {
		subscription.Settings
		Microseconds int64
	}{n, n.Lease.Microseconds()}, Row: func(row store.Row) error { return row.Scan(&made) }})
	if err == nil && made == nil {
		return false, fmt.Errorf("%w: %d", subscription.ErrTooMany, n.Limit)
	}
	err = named{n.Name, n.Tenant}.explained(err)
	if errors.Is(err, subscription.ErrExists) {
		err = s.explainExisting(ctx, n.Name, n.Tenant)
	}
	return made != nil && *made, err
}

// explainExisting returns an ErrExists that names the settings of the subscription that has the
// name, if it is one of the tenant.
func (s *Subscriptions) explainExisting(ctx context.Context, name, tenant string) error {
	all, err := s.List(ctx, tenant)
	for _, e := range all {
		if e.Name == name {
			types := "all"
			if e.Types != nil {
				types = strings.Join(e.Types, ", ")
			}
			return fmt.Errorf("%w: %s is of tenant %s, with types %s, lease %s and %d attempts", subscription.ErrExists, name,
				cmp.Or(e.Tenant, "(all)"), types, e.Lease, e.MaxAttempts)
		}
	}
	return cmp.Or(err, fmt.Errorf("%w: %s is not of tenant %s", subscription.ErrExists, name, tenant))
}

// Rewind implements subscription.Store.
func (s *Subscriptions) Rewind(ctx context.Context, tenant, name string, to time.Time) error {
	of := named{name, tenant}
	return s.ask(ctx, of, "subscription_rewind", struct {
		named
		To time.Time
	}{of, to}, nil)
}

// Remove implements subscription.Store.
func (s *Subscriptions) Remove(ctx context.Context, tenant, name string) error {
	of := named{name, tenant}
	return s.ask(ctx, of, "subscription_remove", of, nil)
}

// Pause implements subscription.Store.
func (s *Subscriptions) Pause(
	ctx context.Context, tenant, name string, paused bool, by subscription.Operator,
) (changed bool, err error) {
	of := named{name, tenant}
	err = s.ask(ctx, of, "subscription_pause", struct {
		named
		Paused bool
		By     subscription.Operator
	}{of, paused, by}, func(row store.Row) error { return row.Scan(&changed) })
	return changed, err
}

// List implements subscription.Store.
func (s *Subscriptions) List(ctx context.Context, tenant string) (all []subscription.State, err error) {
	of := struct {
		Tenant  string
		Letters bool
	}{Tenant: tenant}
	err = s.db.Read(ctx, "", store.Ask{Name: "subscription_letters", Row: func(row store.Row) error {
		return row.Scan(&of.Letters)
	}})
	if err != nil {
		return nil, err
	}
	err = s.db.Read(ctx, tenant, store.Ask{Name: "subscription_list", Data: of, Row: func(row store.Row) error {
		var st subscription.State
		var lease int64
		err := row.Scan(&st.Name, &st.Tenant, &st.Types, &lease, &st.MaxAttempts, &st.Position, &st.Behind,
			&st.Outstanding, &st.Oldest, &st.SeenAt, &st.PausedAt, &st.Letters)
		st.Lease = (time.Duration(lease) * time.Microsecond).String()
		all = append(all, st)
		return err
	}})
	return all, err
}

// Ready implements subscription.Store, in one round trip.
func (s *Subscriptions) Ready(ctx context.Context, of []subscription.Name) (ready []subscription.Name, err error) {
	by := map[string][]string{}
	for _, n := range of {
		by[n.Tenant] = append(by[n.Tenant], n.Name)
	}
	var asks []store.Ask
	for tenant, names := range by {
		asks = append(append(asks, speaking(tenant)...), store.Ask{Name: "subscription_ready", Data: struct {
			Tenant string
			Names  []string
		}{tenant, names}, Row: func(row store.Row) error {
			n := subscription.Name{Tenant: tenant}
			err := row.Scan(&n.Name)
			ready = append(ready, n)
			return err
		}})
	}
	return ready, s.db.Write(ctx, "", asks...)
}
