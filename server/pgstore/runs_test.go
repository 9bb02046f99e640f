package pgstore

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/server/crawl"
)

const acme = "acme"

// opened returns the runs of a new database.
func opened(t *testing.T) (*Runs, *pgxpool.Pool) {
	t.Helper()
	pool := migrated(t)
	r, err := OpenRuns(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	return r, pool
}

// newRun creates a run of tenant acme for an external crawler; change may alter it.
func newRun(t *testing.T, r *Runs, change ...func(*crawl.NewRun)) crawl.Run {
	t.Helper()
	n := crawl.NewRun{AppPackage: "com.example", MaxSteps: 100, Crawler: crawl.External}
	for _, f := range change {
		f(&n)
	}
	run, created, err := r.CreateRun(t.Context(), acme, n, 0)
	if err != nil || !created {
		t.Fatalf("created %t, error %v", created, err)
	}
	return run
}

// started creates a run and starts it.
func started(t *testing.T, r *Runs) crawl.Run {
	t.Helper()
	c := changing(t, r, newRun(t, r).ID,
		crawl.Change{From: []crawl.Status{crawl.Pending}, To: crawl.Running, Events: of(crawl.RunStarted)})
	return c.Run
}

func changing(t *testing.T, r *Runs, run uuid.UUID, c crawl.Change) crawl.Changed {
	t.Helper()
	changed, err := r.Change(t.Context(), acme, run, c)
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

// of makes an event of each type.
func of(types ...string) (events []crawl.NewEvent) {
	for _, typ := range types {
		events = append(events, crawl.NewEvent{ID: uuid.Must(uuid.NewV7()), Type: typ, Payload: json.RawMessage(`{"n": 1}`)})
	}
	return events
}

func TestOpenRunsNamesTheMigration(t *testing.T) {
	t.Parallel()
	url := testenv.Database(t)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	var schema *outbox.SchemaError
	if _, err := OpenRuns(t.Context(), pool); !errors.As(err, &schema) || schema.Table != "crawl_runs" ||
		!strings.Contains(err.Error(), "outbox migrate up --set crawl") {
		t.Errorf("nothing there: got %v", err)
	}
	if err := pgmigrations.Up(t.Context(), url, "core", "crawl"); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), "ALTER TABLE crawl_runs DROP COLUMN tenant_id"); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenRuns(t.Context(), pool); !errors.As(err, &schema) || !slices.Contains(schema.Missing, "tenant_id") ||
		!strings.Contains(err.Error(), "outbox migrate up --set crawl") {
		t.Errorf("without a column: got %v", err)
	}
}
