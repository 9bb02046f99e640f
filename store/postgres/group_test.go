package postgres_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/inbox/group"
	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/grouptest"
	"github.com/outboxrelay/outbox/internal/test/pgtest"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/relay"
	"github.com/outboxrelay/outbox/store/postgres"
)

func TestGroupSuite(t *testing.T) {
	t.Parallel()
	migrated := newDatabase(t, append(pgmigrations.Sets, "log")...)
	for _, layout := range []outbox.Layout{outbox.OutboxEvents(), outbox.OutboxLog()} {
		t.Run(layout.Table, func(t *testing.T) {
			if !layout.KeepsState() {
				tier.Full(t)
			}
			t.Parallel()
			grouptest.Suite(t, func(t *testing.T) grouptest.Harness { return grouped(t, migrated, layout) })
		})
	}
}

// Each group of a log gets all of it, from where it begins.
func TestGroupsOfALog(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	grouptest.Log(t, grouped(t, newDatabase(t, append(pgmigrations.Sets, "log")...), outbox.OutboxLog()))
}

// A relay that is told no tables leaves out a log that only groups read.
func TestRelayLeavesOutLogOfGroups(t *testing.T) {
	t.Parallel()
	h := grouped(t, newDatabase(t, append(pgmigrations.Sets, "log")...), outbox.OutboxLog())
	serves := func(tables ...relay.Table) bool {
		r, err := relay.New(h.DB, outbox.SinkFunc(func(context.Context, outbox.Delivery) error { return nil }),
			relay.Config{Tables: tables})
		if err == nil {
			err = r.Open(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		_, ok := r.Health().Tables["outbox_log"]
		return ok
	}
	if !serves() {
		t.Error("a log that nobody reads is left out")
	}
	lease := func(reader string) {
		layout := outbox.OutboxLog()
		layout.Reader = reader
		request := outbox.LeaseRequest{Owner: uuid.New(), Name: "test", TTL: time.Minute}
		if _, err := h.Table(t, layout).Lease(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
	lease("billing")
	if serves() {
		t.Error("a log that only a group reads is served")
	}
	if !serves(relay.Table{Layout: outbox.OutboxLog()}) {
		t.Error("a log that is named is left out")
	}
	lease("") // as a relay that was told so
	if !serves() {
		t.Error("a log that a relay has served before is left out")
	}
}

func grouped(t *testing.T, migrated string, layout outbox.Layout) grouptest.Harness {
	t.Helper()
	url := testenv.CopyOf(t, migrated)
	h := pgtest.Harness(t, url)
	h.Exec(t, "CREATE TABLE effects (key TEXT, n INTEGER)")
	db, err := postgres.Connect(t.Context(), url, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	handle := stdlib.OpenDBFromPool(h.Pool)
	t.Cleanup(func() { _ = handle.Close() })
	return grouptest.Harness{StoreHarness: h.StoreHarness, DB: db, Tx: postgres.SQLTransactions(handle), Layout: layout,
		Foreign: map[string]error{
			"a server shuts down":        &pgconn.PgError{Code: "57P01"},
			"a server has a deadlock":    &pgconn.PgError{Code: "40P01"},
			"a server's disk is full":    &pgconn.PgError{Code: "53100"},
			"a server takes no writes":   &pgconn.PgError{Code: "25006"},
			"a server's lock is held":    &pgconn.PgError{Code: "55P03"},
			"a server refuses a login":   &pgconn.PgError{Code: "28P01"},
			"a connection is lost":       &pgconn.PgError{Code: "08006"},
			"a server cannot be reached": noServer(t),
		}}
}

// noServer is the error of a connection to a server that does not exist.
func noServer(t *testing.T) error {
	t.Helper()
	_, err := pgx.Connect(t.Context(), "host="+t.TempDir())
	if connect := (*pgconn.ConnectError)(nil); !errors.As(err, &connect) {
		t.Fatalf("got error %v", err)
	}
	return err
}

var _ group.Begun = (*postgres.DB)(nil)

// A group on event_outbox has each handler's transaction speak for the event's application: rows of
// the handler's own table get its app_id and are separated by row-level security.
func TestGroupSpeaksForTheApplication(t *testing.T) {
	t.Parallel()
	for _, of := range []string{"ok", "batch"} {
		t.Run(of, func(t *testing.T) {
			t.Parallel()
			b := newBus(t)
			role := "handler " + uuid.NewString() // roles belong to the server, which the tests share
			name := pgx.Identifier{role}.Sanitize()
			_, err := b.Exec(t.Context(), `CREATE TABLE effects (id BIGSERIAL, type TEXT, app_id UUID NOT NULL
					DEFAULT nullif(current_setting('app.current_tenant', true), '')::uuid);
				ALTER TABLE effects ENABLE ROW LEVEL SECURITY;
				CREATE POLICY app ON effects USING (app_id = nullif(current_setting('app.current_tenant', true), '')::uuid);
				CREATE ROLE `+name+`; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO `+name+`;
				GRANT ALL ON SEQUENCE effects_id_seq TO `+name)
			ok(t, err)
			for range 20 {
				his := b.event("his."+of, uuid.NewString())
				his.AppID = b.his
				b.offer(t, b.event("mine."+of, uuid.NewString()), his)
			}
			db, err := postgres.Connect(t.Context(), b.url, postgres.Config{})
			ok(t, err)
			t.Cleanup(db.Close)
			handlers := newPool(t, b.url, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["role"] = role })
			g, err := group.New(db, postgres.Transactions(handlers), group.Config{Name: "billing", Table: outbox.EventOutbox(),
				MaxAttempts: 1, Relay: relay.Config{Logger: slog.New(slog.DiscardHandler)}})
			ok(t, err)
			effect := func(ctx context.Context, tx pgx.Tx, m group.Message[json.RawMessage]) error {
				if want := map[string]uuid.UUID{"mine": b.app, "his": b.his}[m.TenantID]; m.AppID != want {
					return fmt.Errorf("the message of %s has application %s", m.TenantID, m.AppID)
				}
				_, err := tx.Exec(ctx, "INSERT INTO effects (type) VALUES ($1)", m.Topic)
				return err
			}
			for _, whose := range []string{"mine", "his"} {
				group.Handle(g, whose+".ok", effect)
			}
			group.HandleBatch(g, "*", func(ctx context.Context, tx pgx.Tx, ms []group.Message[json.RawMessage]) error {
				for _, m := range ms {
					if err := effect(ctx, tx, m); err != nil {
						return err
					}
				}
				return nil
			})
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- g.Run(ctx) }()
			for deadline := time.Now().Add(tier.Patience()); pgtest.Query[int](t, b.Pool,
				"SELECT count(*) FROM event_outbox WHERE status = 'pending'") > 0; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("events stay pending")
				}
			}
			stop()
			ok(t, <-ended)
			if got := pgtest.Query[string](t, b.Pool, `SELECT coalesce(string_agg(DISTINCT concat_ws(' ', e.type, a.namespace, n), ', '), '')
				FROM (SELECT type, app_id, count(*) n FROM effects GROUP BY 1, 2) e JOIN apps a ON a.id = e.app_id`); got !=
				"his."+of+" his 20, mine."+of+" mine 20" {
				t.Errorf("effects: %s; letters: %s", got, pgtest.Query[string](t, b.Pool,
					"SELECT coalesce(min(error_history::text), '') FROM job_dlq"))
			}
		})
	}
}

// A group that lacks a table or a right ends at its start, and names the command.
func TestGroupNamesWhatItLacks(t *testing.T) {
	t.Parallel()
	run := func(pool *pgxpool.Pool) error {
		g, err := group.New(postgres.NewDB(pool), postgres.Transactions(pool), group.Config{Name: "billing"})
		if err != nil {
			t.Fatal(err)
		}
		group.Handle(g, "a", func(context.Context, pgx.Tx, group.Message[json.RawMessage]) error { return nil })
		ctx, cancel := context.WithTimeout(t.Context(), tier.Patience())
		defer cancel()
		return g.Run(ctx)
	}
	wants := func(err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %q", err, want)
		}
	}
	url := testenv.Database(t)
	pool := pgtest.Sessions(t, url)
	err := run(pool)
	wants(err, "outbox migrate up --set core")
	if _, ok := errors.AsType[*outbox.SchemaError](err); !ok {
		t.Errorf("%v is no SchemaError", err)
	}
	if err := pgmigrations.Up(t.Context(), url, "core"); err != nil {
		t.Fatal(err)
	}
	wants(run(pool), "outbox migrate up --set log")
	if err := pgtest.ApplyRoles(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	err = run(pgtest.As(t, pool, "outbox_reader"))
	wants(err, "GRANT outbox_consumer TO")
	if !errors.Is(err, outbox.ErrNotAllowed) {
		t.Errorf("%v is no ErrNotAllowed", err)
	}
}
