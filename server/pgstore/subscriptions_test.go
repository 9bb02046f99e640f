package pgstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/internal/test/pgtest"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/server/subscription"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

// Row-level security does not restrict a superuser, nor the tables' owner. For their logins, only
// the condition in each statement hides the subscriptions of another tenant.
func TestSubscriptionsOfAnotherTenantAreHiddenFromASuperuser(t *testing.T) {
	t.Parallel()
	pool := need(pgxpool.New(t.Context(), testenv.Prepared(t, "core_log", func(ctx context.Context, url string) error {
		return migrations.Up(ctx, url, "core", "log")
	})))(t)
	t.Cleanup(pool.Close)
	s := need(OpenSubscriptions(t.Context(), pool))(t)
	need(s.Subscribe(t.Context(), subscription.Settings{Name: "mine", Tenant: acme, Earliest: true, Lease: time.Minute,
		MaxAttempts: 5}))(t)
	more := subscription.Settings{Name: "more", Tenant: acme, Lease: time.Minute, MaxAttempts: 5, Limit: 1}
	if _, err := s.Subscribe(t.Context(), more); !errors.Is(err, subscription.ErrTooMany) {
		t.Errorf("a second subscription where the tenant may have one: %v, want ErrTooMany", err)
	}
	pgtest.Exec(t, pool, `INSERT INTO outbox_log (event_topic, occurred_at, tenant_id, source_bc, payload)
		SELECT 't', now(), $1, 'test', '{}' FROM generate_series(1, 2)`, acme)
	given := need(s.Next(t.Context(), acme, "mine", 1))(t)
	if len(given) != 1 {
		t.Fatalf("the tenant itself gets %d events, want 1", len(given))
	}
	const state = `SELECT concat((SELECT jsonb_agg(to_jsonb(s)) FROM outbox_subscriptions s),
		(SELECT jsonb_agg(to_jsonb(v) ORDER BY v.position) FROM outbox_subscription_events v))`
	before := pgtest.Query[string](t, pool, state)
	const other = "umbrella"
	receipt := subscription.Receipt{ID: given[0].ID, Token: given[0].Token}
	for name, call := range map[string]func(context.Context) (found bool, err error){
		"next": func(ctx context.Context) (bool, error) {
			events, err := s.Next(ctx, other, "mine", 10)
			return len(events) > 0, err
		},
		"acknowledge": func(ctx context.Context) (bool, error) {
			n, refused, err := s.Ack(ctx, other, "mine", []subscription.Receipt{receipt})
			return n+len(refused) > 0, err
		},
		"give back": func(ctx context.Context) (bool, error) {
			failure, err := s.Nack(ctx, other, "mine", receipt, "error", "", nil)
			return failure != nil, err
		},
		"rewind": func(ctx context.Context) (bool, error) {
			return false, s.Rewind(ctx, other, "mine", time.Now().Add(-time.Hour))
		},
		"pause": func(ctx context.Context) (bool, error) {
			return s.Pause(ctx, other, "mine", true, subscription.Operator{Actor: "me", Reason: "why"})
		},
		"remove": func(ctx context.Context) (bool, error) { return false, s.Remove(ctx, other, "mine") },
	} {
		if found, err := call(t.Context()); found || !errors.Is(err, subscription.ErrUnknown) {
			t.Errorf("%s: answers with events %t, error %v, want ErrUnknown", name, found, err)
		}
		if after := pgtest.Query[string](t, pool, state); after != before {
			t.Fatalf("%s changed the other tenant's subscription: %s, before %s", name, after, before)
		}
	}
	if all, err := s.List(t.Context(), other); err != nil || len(all) != 0 {
		t.Errorf("list: %d subscriptions, error %v, want none", len(all), err)
	}
	ready, err := s.Ready(t.Context(), []subscription.Name{{Tenant: other, Name: "mine"}, {Tenant: acme, Name: "mine"}})
	if err != nil || len(ready) != 1 || ready[0].Tenant != acme {
		t.Errorf("ready: %v, error %v, want only that of %s", ready, err, acme)
	}
}

// The consumers of a paused subscription get nothing, and are told, until it is resumed. What they
// have they can acknowledge, and they count as alive. Each change is recorded once.
func TestPausedSubscriptionGivesNothing(t *testing.T) {
	t.Parallel()
	pool := need(pgxpool.New(t.Context(), testenv.Prepared(t, "core_log", func(ctx context.Context, url string) error {
		return migrations.Up(ctx, url, "core", "log")
	})))(t)
	t.Cleanup(pool.Close)
	s := need(OpenSubscriptions(t.Context(), pool))(t)
	name := subscription.Name{Tenant: acme, Name: "mine"}
	need(s.Subscribe(t.Context(), subscription.Settings{Name: name.Name, Tenant: acme, Earliest: true, Lease: time.Minute,
		MaxAttempts: 5}))(t)
	pgtest.Exec(t, pool, `INSERT INTO outbox_log (event_topic, occurred_at, tenant_id, source_bc, payload)
		SELECT 't', now(), $1, 'test', '{}' FROM generate_series(1, 2)`, acme)
	given := need(s.Next(t.Context(), acme, name.Name, 1))(t)
	pause := func(paused, changes bool) {
		t.Helper()
		by := subscription.Operator{Actor: "me", Reason: "why"}
		if changed := need(s.Pause(t.Context(), acme, name.Name, paused, by))(t); changed != changes {
			t.Errorf("paused %t: changed %t, want %t", paused, changed, changes)
		}
	}
	pause(true, true)
	pause(true, false)
	pgtest.Exec(t, pool, "UPDATE outbox_subscriptions SET seen_at = now() - interval '1 minute'")
	if events, err := s.Next(t.Context(), acme, name.Name, 1); !errors.Is(err, subscription.ErrPaused) || len(events) > 0 {
		t.Errorf("paused, it gives %d events, error %v", len(events), err)
	}
	if ready := need(s.Ready(t.Context(), []subscription.Name{name}))(t); len(ready) > 0 {
		t.Errorf("paused, %v have events", ready)
	}
	state := need(s.List(t.Context(), acme))(t)[0]
	if state.PausedAt == nil || time.Since(state.SeenAt) > 30*time.Second {
		t.Errorf("paused at %v, consumer seen at %s", state.PausedAt, state.SeenAt)
	}
	if n, _, err := s.Ack(t.Context(), acme, name.Name,
		[]subscription.Receipt{{ID: given[0].ID, Token: given[0].Token}}); n != 1 || err != nil {
		t.Errorf("acknowledged %d, error %v", n, err)
	}
	pause(false, true)
	if events := need(s.Next(t.Context(), acme, name.Name, 5))(t); len(events) != 1 {
		t.Errorf("resumed, it gives %d events, want the other one", len(events))
	}
	const audit = "SELECT string_agg(concat_ws(' ', action, actor, filter ->> 'subscription'), ', ' ORDER BY at) " +
		"FROM outbox_audit"
	if got := pgtest.Query[string](t, pool, audit); got != "pause me mine, resume me mine" {
		t.Errorf("recorded %s", got)
	}
}
