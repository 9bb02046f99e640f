package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/test/tabletest"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

// replay replays everything pending, or what options say.
func replay(t *testing.T, d deadletter.Store, o deadletter.ReplayOptions) deadletter.Replayed {
	t.Helper()
	o.Operator = operator
	sum, err := deadletter.Replay(t.Context(), d, o)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

func choose(ids ...uuid.UUID) deadletter.ReplayOptions {
	return deadletter.ReplayOptions{Selection: deadletter.Selection{IDs: ids}}
}

// whys are the reasons for which letters were skipped.
func whys(r deadletter.Replayed) string {
	var all []string
	for _, s := range r.Reasons {
		all = append(all, s.Why)
	}
	return strings.Join(all, "; ")
}

// A table of the user's own that lets dead rows go, with what makes putting them back hard: columns
// that may not be given, several destinations, json.
func TestReplayIntoAMappedTable(t *testing.T) {
	t.Parallel()
	pool := browsed(t)
	exec(t, pool, `CREATE SCHEMA billing`)
	exec(t, pool, `CREATE TABLE billing."Out Box" (
		uid uuid NOT NULL DEFAULT outbox_uuidv7(), "No" bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, what text NOT NULL, body json NOT NULL, body_size int GENERATED ALWAYS AS (length(what)) STORED,
		who text, tags text[], amount numeric, secret bytea, "at" timestamptz DEFAULT now(), sent_at timestamptz, tries int NOT NULL DEFAULT 0, next_at timestamptz,
		dests jsonb, done jsonb, gen smallint NOT NULL DEFAULT 0)`)
	layout := outbox.Layout{Table: "billing.Out Box", ID: "uid", Position: "No", Topic: "what", Payload: "body",
		Key: "who", DeliveredAt: "sent_at", Attempts: "tries", NextRetryAt: "next_at",
		Destinations: "dests", DeliveredTo: "done", Generation: "gen"}
	u := burying(t, pool, layout)
	exec(t, pool,
		`INSERT INTO billing."Out Box" (what, body, who, tags, amount, secret, dests) VALUES ('paid', '{"b":1, "a":2}', 'k', '{a,"b c"}', 12345678901234567890.10, '\xdeadbeef', '["x", "y", "z"]')`)
	const state = `SELECT concat_ws('|', uid, "No", what, body_size, who, tags, amount, secret, "at", sent_at, tries, next_at, dests) FROM billing."Out Box"`
	before := query[string](t, pool, state)
	u.Settle(tabletest.DieAt("x", "z"))
	d := openLetters(t, pool, layout)
	id := func(destination string) uuid.UUID {
		return query[uuid.UUID](t, pool, `SELECT id FROM job_dlq WHERE destination = $1`, destination)
	}
	if p, err := d.Preview(t.Context(), deadletter.Selection{}, time.Minute); err != nil || p.Letters != 2 ||
		p.Tables[0].Stuck != 0 {
		t.Errorf("preview %+v, error %v", p, err)
	}
	if sum := replay(t, d, choose(id("x"))); sum.Letters != 1 {
		t.Fatalf("x: %+v", sum)
	}
	if after := query[string](t, pool, state); after != before {
		t.Errorf("got  %s\nwant %s", after, before)
	}
	if sum := replay(t, d, choose(id("z"))); sum.Letters != 0 || !strings.Contains(whys(sum), "is being delivered") {
		t.Errorf("z while x is on its way: %+v", sum)
	}
	if got := u.Settle(tabletest.Arrive); len(got) != 1 || !slices.Equal(got[0].DeliveredTo, []string{"y", "z"}) ||
		got[0].Generation != 1 {
		t.Errorf("for x came %+v", got)
	}
	if sum := replay(t, d, choose(id("z"))); sum.Letters != 1 {
		t.Fatalf("z after x: %+v", sum)
	}
	if got := u.Settle(tabletest.Arrive); len(got) != 1 || !slices.Equal(got[0].DeliveredTo, []string{"x", "y"}) ||
		got[0].Generation != 2 {
		t.Errorf("for z came %+v", got)
	}
}

// Jobs go back to their runner in the transaction that marks their letter.
func TestReplayOfJobs(t *testing.T) {
	t.Parallel()
	pool := browsed(t)
	exec(t, pool, `CREATE TABLE jobs (id uuid PRIMARY KEY, args jsonb)`)
	d, err := OpenDeadLetters(t.Context(), pool,
		DeadLettersConfig{ReplayJob: func(ctx context.Context, tx pgx.Tx, l deadletter.Letter) error {
			if _, err := tx.Exec(ctx, `INSERT INTO jobs VALUES ($1, $2)`, l.OriginalID, l.Payload); err != nil {
				return err
			}
			if l.Type == "refused" {
				return errors.New("no such queue")
			}
			return nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	failed := func(tx deadletter.Recorder, kind string) error {
		_, err := deadletter.Add(t.Context(), tx, deadletter.Job{ID: uuid.New(), Type: kind, Payload: json.RawMessage("1"),
			Reason: deadletter.JobMaxRetries, Attempts: 3, Errors: []deadletter.Failure{{Error: "no", Timestamp: time.Now()}}})
		return err
	}
	for _, kind := range []string{"mail", "refused", "mail"} {
		if err := failed(NewJobLetters(pool), kind); err != nil {
			t.Fatal(err)
		}
	}
	rolledBack := errors.New("rolled back")
	if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		return errors.Join(failed(NewJobLetters(tx), "mail"), rolledBack)
	}); !errors.Is(err, rolledBack) || query[int](t, pool, `SELECT count(*) FROM job_dlq`) != 3 {
		t.Errorf("error %v, and a letter is kept whose transaction rolled back", err)
	}
	sum := replay(t, d, deadletter.ReplayOptions{Selection: deadletter.Selection{All: true}})
	if sum.Letters != 2 || sum.Tables[""] != 2 || whys(sum) != "its runner did not take it: no such queue" {
		t.Errorf("got %+v", sum)
	}
	if n := query[int](t, pool,
		`SELECT count(*) FROM jobs JOIN job_dlq ON jobs.id = original_job_id AND replayed_at IS NOT NULL AND args = payload`); n != 2 {
		t.Errorf("%d jobs are back and marked, want 2", n)
	}
	if n := query[int](t, pool, `SELECT count(*) FROM jobs`); n != 2 {
		t.Errorf("%d jobs, want 2: what was done for the refused one must be undone", n)
	}
}

// as returns a pool to the same database whose sessions have one of the roles.
func as(t *testing.T, pool *pgxpool.Pool, role string) *pgxpool.Pool {
	t.Helper()
	if err := migrations.ApplyRoles(t.Context(), pool.Config().ConnString()); err != nil {
		t.Fatal(err)
	}
	cfg := pool.Config()
	cfg.ConnConfig.RuntimeParams["role"] = role
	p, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// A letter of before tenants has none in the row that it keeps.
func TestReplayOfALetterWithoutTenant(t *testing.T) {
	t.Parallel()
	pool := browsed(t)
	u := burying(t, pool, outbox.CrawlOutbox())
	run := query[uuid.UUID](t, pool,
		"INSERT INTO crawl_runs (tenant_id, app_package) VALUES ('acme', 'com.example') RETURNING id")
	for _, table := range []string{"crawl_events", "crawl_outbox"} {
		exec(t, pool, "INSERT INTO "+table+" (crawl_id, event_type, payload) VALUES ($1, 'RUN_STARTED', '{}')", run)
	}
	u.Settle(tabletest.DieAt("run:" + run.String()))
	if got := query[string](t, pool, "SELECT a.namespace FROM job_dlq l JOIN apps a ON a.id = l.app_id"); got != "acme" {
		t.Errorf("the letter is %s's", got)
	}
	exec(t, pool, "UPDATE job_dlq SET origin = origin - 'tenant_id'")
	d, err := OpenDeadLetters(t.Context(), as(t, pool, "outbox_operator"),
		DeadLettersConfig{Layouts: []outbox.Layout{outbox.CrawlOutbox()}})
	if err != nil {
		t.Fatal(err)
	}
	if sum := replay(t, d, deadletter.ReplayOptions{Selection: deadletter.Selection{All: true}}); sum.Letters != 1 {
		t.Fatalf("got %+v", sum)
	}
	if got := query[string](t, pool, "SELECT tenant_id FROM crawl_outbox"); got != "acme" {
		t.Errorf("the row is %s's", got)
	}
}
