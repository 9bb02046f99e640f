package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/eventbus"
	"github.com/outboxrelay/outbox/store/postgres"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

// Through a connection of another encoding nothing is written, and the transaction goes on.
// SQL_ASCII converts nothing, so it is as good as UTF-8.
func TestWritersRefuseAnotherEncoding(t *testing.T) {
	t.Parallel()
	url := newDatabase(t, "core", "events")
	plain := newPool(t, url)
	app := one[uuid.UUID](t, plain, "INSERT INTO apps (name, namespace) VALUES ('Acme', 'acme') RETURNING id")
	for _, duplicates := range []bool{false, true} {
		cfg := outbox.WriterConfig{Source: "test", RefuseDuplicates: duplicates}
		w, err := postgres.NewWriter(cfg)
		ok(t, err)
		sqlWriter, err := postgres.NewSQLWriter(cfg)
		ok(t, err)
		for encoding, refused := range map[string]bool{"UTF8": false, "SQL_ASCII": false, "LATIN1": true, "WIN1252": true} {
			pool := newPool(t, url, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["client_encoding"] = encoding })
			db := stdlib.OpenDBFromPool(pool)
			t.Cleanup(func() { _ = db.Close() })
			bySQL := func(ctx context.Context, events ...outbox.Event) (err error) {
				tx, err := db.BeginTx(ctx, nil)
				ok(t, err)
				defer func() { ok(t, sqlEnd(ctx, tx)) }()
				return sqlWriter.Write(ctx, tx, events...)
			}
			byPgx := func(ctx context.Context, events ...outbox.Event) (err error) {
				tx, err := pool.Begin(ctx)
				ok(t, err)
				defer func() {
					_, alive := tx.Exec(ctx, "SELECT 1")
					ok(t, errors.Join(alive, tx.Commit(ctx)))
				}()
				return w.Write(ctx, tx, events...)
			}
			inTx := func(ctx context.Context, events ...outbox.Event) error {
				return w.InTx(ctx, pool, func(pgx.Tx) ([]outbox.Event, error) { return events, nil })
			}
			bus := func(ctx context.Context, events ...outbox.Event) error {
				return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
					for _, e := range events {
						if err := postgres.NewEventBus(0).Offer(ctx, tx,
							eventbus.Event{AppID: app, EventID: e.ID, EventType: e.Topic, Payload: e.Payload}); err != nil {
							return err
						}
					}
					return nil
				})
			}
			for way, write := range map[string]func(context.Context, ...outbox.Event) error{"pgx": byPgx, "InTx": inTx,
				"database/sql": bySQL, "EventBus": bus} {
				for n := range 2 { // one event and several go by different statements
					events := []outbox.Event{umlauts(), umlauts(), umlauts()}[:1+2*n]
					err := write(t.Context(), events...)
					var wrong *postgres.EncodingError
					switch {
					case refused && (!errors.As(err, &wrong) || wrong.Encoding != encoding):
						t.Errorf("%s, %s, %d events: got error %v, want an EncodingError", way, encoding, len(events), err)
					case !refused && err != nil:
						t.Errorf("%s, %s, %d events: %v", way, encoding, len(events), err)
					}
					const written = `SELECT (SELECT count(*) FROM outbox_events WHERE id = ANY ($1) AND payload->>'a' = 'Grüße 日本 😀')
						+ (SELECT count(*) FROM event_outbox WHERE event_id = ANY ($1) AND payload->>'a' = 'Grüße 日本 😀')`
					want := len(events)
					if refused {
						want = 0
					}
					if got := one[int](t, plain, written, ids(events)); got != want {
						t.Errorf("%s, %s: %d events are in the table as they were written, want %d", way, encoding, got, want)
					}
					if got := one[int](t, plain,
						`SELECT (SELECT count(*) FROM outbox_events WHERE id = ANY ($1)) + (SELECT count(*) FROM event_outbox WHERE event_id = ANY ($1))`, ids(events)); got != want {
						t.Errorf("%s, %s: %d events are in the table, want %d", way, encoding, got, want)
					}
				}
			}
		}
	}
}

// sqlEnd commits a transaction that must be usable.
func sqlEnd(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, "SELECT 1")
	return errors.Join(err, tx.Commit())
}

func umlauts() outbox.Event {
	e := event("order.placed")
	e.Payload = []byte(`{"a": "Grüße 日本 😀"}`)
	return e
}

func ids(events []outbox.Event) (list []string) {
	for _, e := range events {
		list = append(list, e.ID.String())
	}
	return list
}

// A second write of an id is no error of the connection.
func TestSQLWriterOfDuplicates(t *testing.T) {
	t.Parallel()
	db := stdlib.OpenDBFromPool(newPool(t, newDatabase(t)))
	t.Cleanup(func() { _ = db.Close() })
	w, err := postgres.NewSQLWriter(outbox.WriterConfig{Source: "test"})
	ok(t, err)
	events := []outbox.Event{umlauts(), umlauts()}
	for range 2 {
		for _, n := range []int{1, 2} {
			tx, err := db.BeginTx(t.Context(), nil)
			ok(t, err)
			ok(t, w.Write(t.Context(), tx, events[:n]...))
			ok(t, sqlEnd(t.Context(), tx))
		}
	}
}

// What the role, the database or the environment say of the encoding does not matter to a relay.
func TestRelaySpeaksUTF8(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	plain := newPool(t, url)
	_, err := plain.Exec(t.Context(),
		"ALTER DATABASE "+pgx.Identifier{plain.Config().ConnConfig.Database}.Sanitize()+" SET client_encoding = 'LATIN1'")
	ok(t, err)
	pool, err := postgres.ConnectPool(t.Context(), url, postgres.Config{Conns: 2})
	ok(t, err)
	t.Cleanup(pool.Close)
	if got := one[string](t, pool, "SHOW client_encoding"); got != "UTF8" {
		t.Errorf("the relay's sessions speak %s", got)
	}
}

// A database that cannot store every text is refused in one sentence, by a migration and by a relay.
func TestOtherEncodingsAreRefused(t *testing.T) {
	t.Parallel()
	admin := newPool(t, newDatabase(t))
	for _, encoding := range []string{"SQL_ASCII", "LATIN1"} {
		name := one[string](t, admin, "SELECT current_database()") + "_" + encoding
		_, err := admin.Exec(t.Context(), fmt.Sprintf(
			"CREATE DATABASE %q ENCODING '%s' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0", name, encoding))
		ok(t, err)
		t.Cleanup(func() { _, _ = admin.Exec(context.Background(), fmt.Sprintf("DROP DATABASE %q WITH (FORCE)", name)) })
		at, err := url.Parse(admin.Config().ConnString())
		ok(t, err)
		at.Path = "/" + name
		want := fmt.Sprintf("use database %q: unsupported encoding %s, want UTF8; create a database", name, encoding)
		_, opened := postgres.NewDB(newPool(t, at.String())).OpenTable(t.Context(), outbox.OutboxEvents())
		for what, err := range map[string]error{"up": migrations.Up(t.Context(), at.String()), "open": opened} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got error %v, want %q", what, err, want)
			}
		}
		if class, _ := outbox.Classify(opened); class != outbox.ClassPermanent {
			t.Errorf("a relay would wait for another encoding: %v", opened)
		}
	}
}
