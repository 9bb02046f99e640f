package postgres_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/eventbus"
	"github.com/outboxrelay/outbox/store/postgres"
)

// asTenant returns the bus as a role sees it that no policy lets through to everything, on one
// connection.
func (b bus) asTenant(t *testing.T) bus {
	t.Helper()
	role := pgx.Identifier{"tenant " + uuid.NewString()}.Sanitize() // roles belong to the server, which the tests share
	_, err := b.Exec(t.Context(), "CREATE ROLE "+role+"; GRANT SELECT, INSERT, UPDATE ON event_outbox TO "+role+
		"; GRANT INSERT ON job_dlq TO "+role)
	ok(t, err)
	b.Pool = newPool(t, b.url, func(c *pgxpool.Config) {
		c.MaxConns = 1
		c.ConnConfig.RuntimeParams["role"] = role[1 : len(role)-1]
	})
	return b
}

// Plan 05-01: row-level security by app.current_tenant.
func TestEventBusSeparatesTenants(t *testing.T) {
	all := newBus(t)
	mine, his := all.event("a.mine", ""), all.event("a.his", "")
	his.AppID = all.his
	all.offer(t, mine, his)
	b := all.asTenant(t)

	b.inTx(t, func(tx pgx.Tx) {
		ok(t, postgres.SetTenant(t.Context(), tx, b.app))
		if got := types(b.take(t, tx, 10)); got != "a.mine" {
			t.Errorf("took %q, want only my own", got)
		}
		if listed, err := b.ListPending(t.Context(), tx, uuid.Nil, 10); err != nil || types(listed) != "a.mine" {
			t.Errorf("listed %q (%v), want only my own", types(listed), err)
		}
		if n, err := b.CountPending(t.Context(), tx); err != nil || n != 1 {
			t.Errorf("counted %d (%v), want 1", n, err)
		}
		if _, err := b.ByEventID(t.Context(), tx, his.EventID); !errors.Is(err, eventbus.ErrNoEvent) {
			t.Errorf("his event: got %v, want eventbus.ErrNoEvent", err)
		}
		for _, mark := range []func() (int, error){
			func() (int, error) { return b.MarkPublished(t.Context(), tx, his.ID) },
			func() (int, error) { return b.MarkFailed(t.Context(), tx, his.ID) },
		} {
			if n, err := mark(); err != nil || n != 0 {
				t.Errorf("marked %d of his (%v), want none", n, err)
			}
		}
		// An id that is taken by somebody else's event is taken, though it cannot be seen.
		copied := b.event("a.copied", "")
		copied.EventID = his.EventID
		if err := b.Offer(t.Context(), tx, copied); !errors.Is(err, outbox.ErrDuplicateEvent) {
			t.Errorf("his event id: got %v, want ErrDuplicateEvent", err)
		}
		ok(t, b.Offer(t.Context(), tx, b.event("a.second", "")))
	})

	// The pool's one connection is used again: nothing of the tenant is left on it, but the setting
	// now reads '' instead of NULL.
	refused := func(appID uuid.UUID, tenant uuid.UUID) {
		t.Helper()
		tx := b.begin(t)
		defer func() { _ = tx.Rollback(t.Context()) }()
		if tenant != uuid.Nil {
			ok(t, postgres.SetTenant(t.Context(), tx, tenant))
		}
		forged := b.event("a.forged", "")
		forged.AppID = appID
		err := b.Offer(t.Context(), tx, forged)
		var denied *pgconn.PgError
		if !errors.As(err, &denied) || denied.Code != "42501" || !strings.Contains(err.Error(), "SetTenant") {
			t.Errorf("tenant %s offers for %s: got %v, want it refused with a hint", tenant, appID, err)
		}
	}
	refused(b.app, uuid.Nil)
	refused(b.his, b.app)
	b.inTx(t, func(tx pgx.Tx) {
		if n, err := b.CountPending(t.Context(), tx); err != nil || n != 0 {
			t.Errorf("without a tenant: %d events (%v), want none", n, err)
		}
		if got := b.take(t, tx, 10); len(got) != 0 {
			t.Errorf("without a tenant: took %s", types(got))
		}
	})
	b.inTx(t, func(tx pgx.Tx) {
		ok(t, postgres.SetTenant(t.Context(), tx, b.his))
		if got := types(b.take(t, tx, 10)); got != "a.his" {
			t.Errorf("as the other tenant: took %q, want a.his", got)
		}
	})
}
