package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
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
