package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
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

func TestReplayKeepsTheEventAndTheOrderOfItsKey(t *testing.T) {
	t.Parallel()
	pool := browsed(t)
	u := burying(t, pool, outbox.OutboxEvents())
	writeOrders(t, pool, 5, "a", "b")
	died := u.settle(dieAt("order.placed"))
	d := openLetters(t, pool)

	var pages [][]uuid.UUID
	sum := replay(t, d, deadletter.ReplayOptions{Selection: deadletter.Selection{All: true}, Rate: 12,
		Progress: func(sum deadletter.Replayed, page deadletter.ReplayPage) {
			rows, err := pool.Query(t.Context(),
				`SELECT original_job_id FROM job_dlq WHERE replayed_at = (SELECT max(replayed_at) FROM job_dlq) ORDER BY position`)
			if err != nil {
				t.Error(err)
				return
			}
			ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
			if err != nil {
				t.Error(err)
			}
			pages = append(pages, ids)
		}})
	if sum.Letters != 10 || sum.Tables["outbox_events"] != 10 || sum.Skipped != 0 || len(pages) != 4 {
		t.Fatalf("got %+v in %d pages, want 10 letters in 4", sum, len(pages))
	}
	for i, id := range slices.Concat(pages...) {
		if id != died[i].ID {
			t.Errorf("letter %d is of event %s, want %s", i, id, died[i].ID)
		}
	}
	again := u.settle(arrive)
	if len(again) != 10 {
		t.Fatalf("%d events are to be delivered, want 10", len(again))
	}
	for i, r := range again {
		if r.ID != died[i].ID || r.Position != died[i].Position || r.Generation != 1 || r.Attempts != 0 ||
			len(r.DeliveredTo) != 0 || string(r.Payload) != string(died[i].Payload) {
			t.Errorf("event %d came back as %+v", i, r)
		}
	}
	if n := query[int](t, pool,
		`SELECT count(*) FROM outbox_events WHERE jsonb_array_length(error_history) = 1`); n != 10 {
		t.Errorf("%d events kept their history, want 10", n)
	}
	if sum := replay(t, d,
		deadletter.ReplayOptions{Selection: deadletter.Selection{All: true}}); sum.Letters+sum.Skipped != 0 {
		t.Errorf("a second replay did %+v", sum)
	}
	// It dies again, is replayed again.
	exec(t, pool, `UPDATE outbox_events SET status = 'NEW' WHERE id = $1`, died[0].ID)
	u.settle(dieAt("order.placed"))
	replay(t, d, deadletter.ReplayOptions{Selection: deadletter.Selection{All: true}})
	if last := u.settle(arrive); len(last) != 1 || last[0].Generation != 2 {
		t.Errorf("after a second death: %+v", last)
	}
}

// A replay is for the destinations that failed. The others are done, and so is each that is replayed on its own.
func TestReplayOfSeveralDestinations(t *testing.T) {
	t.Parallel()
	pool := browsed(t)
	u := burying(t, pool, outbox.OutboxEvents())
	exec(t, pool,
		`INSERT INTO outbox_events (event_topic, occurred_at, source_bc, payload, destination_topics) VALUES ('t', now(), 's', '1', '["a", "b", "c"]')`)
	u.settle(dieAt("a", "c"))
	d := openLetters(t, pool)
	id := func(destination string) uuid.UUID {
		return query[uuid.UUID](t, pool, `SELECT id FROM job_dlq WHERE destination = $1`, destination)
	}
	if sum := replay(t, d, choose(id("a"))); sum.Letters != 1 {
		t.Fatalf("got %+v", sum)
	}
	// A relay may have read it already, for a alone.
	if sum := replay(t, d, choose(id("c"))); sum.Letters != 0 ||
		!strings.Contains(whys(sum), "outbox_events is NEW, not DEAD: it is being delivered") {
		t.Errorf("c while a is on its way: %+v", sum)
	}
	if got := u.settle(arrive); len(got) != 1 || !slices.Equal(got[0].DeliveredTo, []string{"b", "c"}) ||
		got[0].Generation != 1 {
		t.Fatalf("for a came %+v", got)
	}
	if sum := replay(t, d, choose(id("c"))); sum.Letters != 1 {
		t.Fatalf("c after a: %+v", sum)
	}
	if got := u.settle(arrive); len(got) != 1 || !slices.Equal(got[0].DeliveredTo, []string{"a", "b"}) ||
		got[0].Generation != 2 {
		t.Errorf("for c came %+v", got)
	}
	// Both together are one event, also where a page would part them.
	exec(t, pool,
		`INSERT INTO outbox_events (event_topic, occurred_at, source_bc, payload, destination_topics) VALUES ('t', now(), 's', '1', '["a", "b", "c"]')`)
	u.settle(dieAt("a", "b", "c"))
	if sum := replay(t, d, deadletter.ReplayOptions{Selection: deadletter.Selection{All: true},
		Rate: 1}); sum.Letters != 3 || sum.Skipped != 0 {
		t.Errorf("all of an event: %+v", sum)
	}
	if got := u.settle(arrive); len(got) != 1 || len(got[0].DeliveredTo) != 0 {
		t.Errorf("for all came %+v", got)
	}
}

// A settle whose reply was lost is sent again. What an operator has put back in between is another generation, which
// nobody has published.
func TestSettleSentAgainAfterAReplay(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		layout outbox.Layout
		insert string
	}{
		"outbox_events": {outbox.OutboxEvents(),
			`INSERT INTO outbox_events (event_topic, occurred_at, source_bc, payload) VALUES ('t', now(), 's', '1')`},
		"crawl_outbox": {outbox.CrawlOutbox(),
			`WITH run AS (INSERT INTO crawl_runs (app_package) VALUES ('p') RETURNING id) INSERT INTO crawl_outbox (crawl_id, event_type, payload) SELECT id, 't', '1' FROM run`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := migrated(t)
			u := burying(t, pool, tt.layout)
			exec(t, pool, tt.insert)
			died := u.settle(dieAt("t"))
			if sum := replay(t, openLetters(t, pool, tt.layout),
				deadletter.ReplayOptions{Selection: deadletter.Selection{All: true}}); sum.Letters != 1 {
				t.Fatalf("got %+v", sum)
			}
			for _, state := range []outbox.State{outbox.Dead, outbox.Retry, outbox.Delivered} {
				settled, err := u.Settle(t.Context(), u.owner, u.lanes,
					[]outbox.Outcome{{Record: died[0], State: state, Attempts: 1, RetryIn: time.Hour,
						Failures: []outbox.Failure{{Destination: "t", Reason: outbox.ReasonDeliveryFailed, Error: "refused"}}}})
				if err != nil || settled.Lost != 1 {
					t.Errorf("state %d: settled %+v, error %v, want it to change nothing", state, settled, err)
				}
			}
			if got := u.settle(arrive); len(got) != 1 || got[0].Generation != 1 {
				t.Errorf("%d records are to be delivered, want the one that was put back", len(got))
			}
		})
	}
}

// Dead rows leave crawl_outbox; replay puts them back as they were.
func TestReplayPutsRowsBack(t *testing.T) {
	t.Parallel()
	pool := browsed(t)
	u := burying(t, pool, outbox.CrawlOutbox())
	const run = "00000000-0000-0000-0000-000000000001"
	exec(t, pool,
		`INSERT INTO crawl_runs (id, app_package) VALUES ($1, 'shop'), ('00000000-0000-0000-0000-000000000002', 'gone')`, run)
	exec(t, pool, `INSERT INTO crawl_outbox (crawl_id, event_type, payload, seq, created_at)
		SELECT $1, 'NODE', CASE WHEN i = 2 THEN 'null' ELSE to_jsonb(i) END, i + 100, now() - i * interval '1.000001 hour' FROM generate_series(1, 3) i`, run)
	exec(t, pool,
		`INSERT INTO crawl_outbox (crawl_id, event_type, payload) VALUES ('00000000-0000-0000-0000-000000000002', 'NODE', '4')`)
	const state = `SELECT string_agg(concat_ws('|', id, crawl_id, event_type, payload, created_at, published_at, event_id, seq, retry_count, next_retry_at), E'\n' ORDER BY id) FROM crawl_outbox WHERE crawl_id = '` + run + `'`
	before := query[string](t, pool, state)
	died := u.settle(dieAt("run:" + run))
	if n := query[int](t, pool, `SELECT count(*) FROM crawl_outbox`); n != 0 {
		t.Fatalf("%d rows are left", n)
	}
	exec(t, pool, `DELETE FROM crawl_runs WHERE app_package = 'gone'`)

	d := openLetters(t, pool)
	sum := replay(t, d, deadletter.ReplayOptions{Selection: deadletter.Selection{All: true}})
	if sum.Letters != 3 || sum.Skipped != 1 || !strings.Contains(whys(sum), "foreign key") {
		t.Fatalf("got %+v, want the three of the run that is there", sum)
	}
	if after := query[string](t, pool, state); after != before {
		t.Errorf("got\n%s\nwant\n%s", after, before)
	}
	exec(t, pool, `UPDATE job_dlq SET replayed_at = NULL`) // as if somebody had meddled
	if sum := replay(t, d, deadletter.ReplayOptions{Selection: deadletter.Selection{All: true}}); sum.Letters != 0 ||
		!strings.Contains(whys(sum), "its row is in crawl_outbox again and is being delivered") {
		t.Errorf("rows that are there: %+v", sum)
	}
	if again := u.settle(arrive); len(again) != 3 || again[1].Generation != 1 || again[2].Sequence != 103 ||
		again[0].ID != died[0].ID {
		t.Errorf("came back as %+v", again)
	}
	if sum := replay(t, d, deadletter.ReplayOptions{Selection: deadletter.Selection{All: true}}); sum.Letters != 0 ||
		!strings.Contains(whys(sum), "was delivered") {
		t.Errorf("rows that were delivered: %+v", sum)
	}
	exec(t, pool, `UPDATE job_dlq SET origin = NULL`)
	if sum := replay(t, d, deadletter.ReplayOptions{Selection: deadletter.Selection{All: true}}); sum.Letters != 0 ||
		!strings.Contains(whys(sum), "was not kept") {
		t.Errorf("letters of before the migration: %+v", sum)
	}
}

// A table of the user's own that lets dead rows go, with what makes putting them back hard: columns that may not be
// given, several destinations, json.
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
	u.settle(dieAt("x", "z"))
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
	if got := u.settle(arrive); len(got) != 1 || !slices.Equal(got[0].DeliveredTo, []string{"y", "z"}) ||
		got[0].Generation != 1 {
		t.Errorf("for x came %+v", got)
	}
	if sum := replay(t, d, choose(id("z"))); sum.Letters != 1 {
		t.Fatalf("z after x: %+v", sum)
	}
	if got := u.settle(arrive); len(got) != 1 || !slices.Equal(got[0].DeliveredTo, []string{"x", "y"}) ||
		got[0].Generation != 2 {
		t.Errorf("for z came %+v", got)
	}
}

func TestReplayOfTheEventBus(t *testing.T) {
	t.Parallel()
	pool := browsed(t)
	u := burying(t, pool, outbox.EventOutbox())
	exec(t, pool,
		`INSERT INTO event_outbox (app_id, event_id, event_type, payload, event_key) SELECT id, outbox_uuidv7(), 't', '{"n": 1}', 'k' FROM apps`)
	died := u.settle(dieAt("t"))
	d := openLetters(t, pool)
	letter, err := d.Show(t.Context(), died[0].ID, "")
	if err != nil {
		t.Fatal(err)
	}
	// A payload can be mended on the way; the letter keeps what failed.
	o := choose(letter[0].ID)
	for payload, says := range map[string]string{`{`: "not valid JSON", `"\u0000"`: "u0000"} {
		o.Payload = json.RawMessage(payload)
		if _, err := deadletter.Replay(t.Context(), d, o); !errors.Is(err, outbox.ErrInvalidEvent) ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("payload %s: got %v, want one that says %s", payload, err, says)
		}
	}
	o.Payload = json.RawMessage(`{"n": 2}`)
	if _, err := deadletter.Replay(t.Context(), d, deadletter.ReplayOptions{Payload: o.Payload}); !errors.Is(err,
		deadletter.ErrFilter) {
		t.Errorf("one payload for all: got %v", err)
	}
	replay(t, d, o)
	again := u.settle(arrive)
	if len(again) != 1 || again[0].ID != died[0].ID || again[0].Generation != 1 || string(again[0].Payload) != `{"n": 2}` {
		t.Errorf("came back as %+v", again)
	}
	if n := query[int](t, pool, `SELECT count(*) FROM job_dlq WHERE payload = '{"n": 1}'`); n != 1 {
		t.Error("the letter has lost the payload that failed")
	}
}

// What cannot be replayed says why, and the rest is replayed.
func TestReplaySkips(t *testing.T) {
	t.Parallel()
	pool := browsed(t)
	u := burying(t, pool, outbox.OutboxEvents())
	writeOrders(t, pool, 4, "a")
	died := u.settle(dieAt("t"))
	exec(t, pool, `UPDATE outbox_events SET status = 'SENT' WHERE id = $1`, died[0].ID)
	exec(t, pool, `DELETE FROM outbox_events WHERE id = $1`, died[1].ID)
	exec(t, pool, `UPDATE job_dlq SET outbox_table = 'elsewhere' WHERE original_job_id = $1`, died[2].ID)
	exec(t, pool,
		`INSERT INTO job_dlq (original_job_id, app_id, type, payload, error_reason, attempts, error_history) SELECT gen_random_uuid(), id, 'mail', '{}', 'Panic', 1, '[]' FROM apps`)
	d := openLetters(t, pool)
	sum := replay(t, d, deadletter.ReplayOptions{Selection: deadletter.Selection{All: true}})
	if sum.Letters != 1 || sum.Skipped != 4 {
		t.Errorf("got %+v, want 1 replayed and 4 skipped", sum)
	}
	for _, says := range []string{"is SENT, not DEAD", "no longer in outbox_events", "no table elsewhere", "--layouts",
		"DeadLettersConfig.Layouts", "program that runs the jobs"} {
		if !strings.Contains(whys(sum), says) {
			t.Errorf("%q is missing in: %s", says, whys(sum))
		}
	}
	fourth := query[uuid.UUID](t, pool, `SELECT id FROM job_dlq WHERE original_job_id = $1`, died[3].ID)
	if sum := replay(t, d, choose(fourth, uuid.New())); sum.Letters != 0 || sum.Skipped != 2 ||
		!strings.Contains(whys(sum), "replayed already; there is no letter") {
		t.Errorf("by id: %+v", sum)
	}
}

// A replay that is stopped goes on when it is run again; each letter goes once.
func TestReplayIsResumable(t *testing.T) {
	t.Parallel()
	pool := browsed(t)
	u := burying(t, pool, outbox.OutboxEvents())
	writeOrders(t, pool, 200, "a", "b", "c")
	u.settle(dieAt("t"))
	d := openLetters(t, pool)
	ctx, stop := context.WithCancel(t.Context())
	sum, err := deadletter.Replay(ctx, d,
		deadletter.ReplayOptions{Selection: deadletter.Selection{All: true}, Operator: operator, Rate: 400,
			Progress: func(sum deadletter.Replayed, _ deadletter.ReplayPage) {
				if sum.Letters >= 200 {
					stop()
				}
			}})
	if !errors.Is(err, context.Canceled) || sum.Letters != 200 {
		t.Fatalf("stopped after %+v, error %v", sum, err)
	}
	if n := query[int](t, pool, `SELECT count(*) FROM outbox_events WHERE status = 'NEW' AND generation = 1`); n != 200 {
		t.Errorf("%d rows were put back, want 200", n)
	}
	if rest := replay(t, d, deadletter.ReplayOptions{Selection: deadletter.Selection{All: true}}); rest.Letters != 400 ||
		rest.Skipped != 0 {
		t.Errorf("the rest is %+v", rest)
	}
	if n := query[int](t, pool, `SELECT count(*) FROM outbox_events WHERE status = 'NEW' AND generation = 1`); n != 600 {
		t.Errorf("%d rows were put back once, want 600", n)
	}
	if n := query[int](t, pool,
		`SELECT sum(letters) FROM outbox_audit WHERE action = 'replay' AND actor = 'test@here' AND reason = 'because' AND detail->>'run' IS NOT NULL`); n != 600 {
		t.Errorf("the record has %d letters, want 600", n)
	}
}

// Two operators who replay the same filter at once: each letter goes once, and a key in order.
func TestReplayByTwoAtOnce(t *testing.T) {
	t.Parallel()
	pool := browsed(t)
	u := burying(t, pool, outbox.OutboxEvents())
	writeOrders(t, pool, 300, "a", "b")
	u.settle(dieAt("t"))
	d := openLetters(t, pool)
	var both sync.WaitGroup
	var sums [2]deadletter.Replayed
	for i := range sums {
		both.Go(func() {
			var err error
			if sums[i], err = deadletter.Replay(t.Context(), d,
				deadletter.ReplayOptions{Selection: deadletter.Selection{All: true}, Operator: operator, Rate: 200}); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	if sums[0].Letters+sums[1].Letters != 600 || sums[0].Skipped+sums[1].Skipped != 0 || sums[0].Letters == 0 ||
		sums[1].Letters == 0 {
		t.Errorf("the two did %+v and %+v", sums[0], sums[1])
	}
	if n := query[int](t, pool, `SELECT count(*) FROM outbox_events WHERE status = 'NEW' AND generation = 1`); n != 600 {
		t.Errorf("%d rows were put back once, want 600", n)
	}
	if n := query[int](t, pool,
		`SELECT count(*) FROM (SELECT replayed_at < lag(replayed_at) OVER (PARTITION BY event_key ORDER BY position) AS wrong FROM job_dlq) l WHERE wrong`); n != 0 {
		t.Errorf("%d letters went before an earlier one of their key", n)
	}
}

func TestReplayPreview(t *testing.T) {
	t.Parallel()
	pool := browsed(t)
	u := burying(t, pool, outbox.OutboxEvents())
	crawl := burying(t, pool, outbox.CrawlOutbox())
	writeOrders(t, pool, 2, "clean", "overtaken", "racing", "other")
	exec(t, pool, `UPDATE outbox_events SET tenant_id = 'acme' WHERE aggregate_id = 'other'`)
	exec(t, pool, `INSERT INTO crawl_runs (id, app_package) VALUES ('00000000-0000-0000-0000-000000000001', 'shop')`)
	exec(t, pool,
		`INSERT INTO crawl_outbox (crawl_id, event_type, payload) SELECT '00000000-0000-0000-0000-000000000001', 'NODE', to_jsonb(i) FROM generate_series(1, 3) i`)
	u.settle(dieAt("t"))
	n := 0
	crawl.settle(func(*outbox.Record) []string { // the second arrives
		if n++; n == 2 {
			return nil
		}
		return []string{"run"}
	})
	writeOrders(t, pool, 1, "overtaken")
	u.settle(arrive)
	// The same key of another tenant is another key.
	writeOrders(t, pool, 1, "racing", "other")
	exec(t, pool,
		`INSERT INTO job_dlq (original_job_id, app_id, type, payload, error_reason, attempts, error_history) SELECT gen_random_uuid(), id, 'mail', '{}', 'Panic', 1, '[]' FROM apps WHERE namespace = 'default'`)
	exec(t, pool, `UPDATE job_dlq SET id = '01900000-0000-7000-8000-000000000001' WHERE source = 'job'`)
	d := openLetters(t, pool)
	check := func(s deadletter.Selection, want string) {
		t.Helper()
		p, err := d.Preview(t.Context(), s, 2*time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if string(text) != want {
			t.Errorf("got  %s\nwant %s", text, want)
		}
	}
	none := `{"count":0}`
	part := func(table string, letters, stuck int, overtaken, racing, behind string) string {
		return fmt.Sprintf(`{"table":%q,"letters":%d,"stuck":%d,"overtaken":%s,"racing":%s,"leftBehind":%s}`, table, letters,
			stuck, overtaken, racing, behind)
	}
	check(deadletter.Selection{}, `{"letters":11,"tables":[`+strings.Join([]string{
		part("crawl_outbox", 2, 0, `{"count":1,"first":["00000000-0000-0000-0000-000000000001"]}`, none, none),
		part("outbox_events", 8, 0, `{"count":1,"first":["overtaken"]}`, `{"count":1,"first":["racing"]}`, none),
		part("", 1, 1, none, none, none),
	}, ",")+`],"outsideWindow":1}`)
	later := query[uuid.UUID](t, pool, `SELECT id FROM job_dlq WHERE event_key = 'clean' ORDER BY position DESC LIMIT 1`)
	check(deadletter.Selection{IDs: []uuid.UUID{later}},
		`{"letters":1,"tables":[`+part("outbox_events", 1, 0, none, none, `{"count":1,"first":["clean"]}`)+
			`],"outsideWindow":0}`)
	exec(t, pool, `DELETE FROM outbox_events WHERE aggregate_id = 'clean'`)
	check(deadletter.Selection{Filter: deadletter.Filter{Key: "clean"}},
		`{"letters":2,"tables":[`+part("outbox_events", 2, 2, none, none, none)+`],"outsideWindow":0}`)
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
	for _, kind := range []string{"mail", "refused", "mail"} {
		if _, err := deadletter.Record(t.Context(), NewJobLetters(pool), job(kind)); err != nil {
			t.Fatal(err)
		}
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
	u.settle(dieAt("run:" + run.String()))
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
