package pgmigrations_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/internal/pgmigrations"
	"github.com/outboxrelay/outbox/internal/testenv"
)

// legacyTable is the table of before ADR-004, as docs/seeds.md#adr-004 has it: with the ids of
// its day (random), a bare TIMESTAMP, a status too short for FAILED and a check that knows no DEAD.
const legacyTable = `
CREATE TABLE outbox (
    id           UUID PRIMARY KEY,
    tenant_id    VARCHAR(64),
    aggregate_id VARCHAR(128),
    type         VARCHAR(255) NOT NULL,
    schema_id    VARCHAR(128),
    schema_ver   INT NOT NULL DEFAULT 1,
    payload      JSONB NOT NULL,
    status       VARCHAR(5) NOT NULL DEFAULT 'NEW' CONSTRAINT status_known CHECK (status IN ('NEW', 'SENT', 'ERR')),
    retry_cnt    INT NOT NULL DEFAULT 0,
    created_at   TIMESTAMP NOT NULL DEFAULT now()
)`

const legacyRows = 12000

// legacyDatabase has that table with 12,000 rows, and a copy of them named before.
func legacyDatabase(t *testing.T) (string, *pgx.Conn) {
	t.Helper()
	url := testenv.Database(t)
	conn := connect(t, url)
	run(t, conn, legacyTable)
	run(t, conn, `INSERT INTO outbox
		SELECT gen_random_uuid(), CASE WHEN n % 100 = 0 THEN NULL ELSE 'tenant' || n % 3 END, CASE WHEN n % 10 = 0 THEN NULL ELSE 'aggregate' || n % 50 END,
		       'order.placed.' || n % 7, 'schema', n % 4, jsonb_build_object('n', n), (ARRAY['NEW', 'SENT', 'SENT', 'ERR'])[1 + n % 4], n % 6,
		       TIMESTAMP '2025-01-01' + n / 2 * interval '1 second'
		  FROM generate_series(1, $1::int) AS n ORDER BY random()`, legacyRows)
	run(t, conn, "CREATE TABLE before AS TABLE outbox")
	return url, conn
}

// checkUpgraded compares every row with the copy, and the table with outbox_events.
func checkUpgraded(t *testing.T, url string, conn *pgx.Conn) {
	t.Helper()
	// Seed 004, lines 75-79 and 124-127; ERR -> DEAD.
	same := one[int](t, conn, `SELECT count(*) FROM outbox o JOIN before b USING (id)
		 WHERE o.tenant_id = coalesce(b.tenant_id, 'default') AND o.aggregate_id IS NOT DISTINCT FROM b.aggregate_id
		   AND o.type = b.type AND o.event_topic = b.type AND o.schema_id = b.schema_id AND o.schema_version = b.schema_ver AND o.payload = b.payload
		   AND o.status = CASE b.status WHEN 'ERR' THEN 'DEAD' ELSE b.status END AND o.retry_count = b.retry_cnt
		   AND o.created_at = b.created_at AND o.occurred_at = b.created_at AND o.source_bc = 'default'
		   AND num_nulls(o.aggregate_type, o.destination_topics, o.metadata, o.next_retry_at, o.error_message, o.processed_at, o.error_history, o.delivered_to) = 8
		   AND o.generation = 0`)
	if all := one[int](t, conn, "SELECT count(*) FROM outbox"); same != legacyRows || all < legacyRows {
		t.Errorf("%d rows of %d are as they should be, of %d in the table", same, legacyRows, all)
	}
	if got := one[string](t, conn, `SELECT concat_ws(' ', count(DISTINCT position) = count(*), bool_and(earlier IS NULL OR earlier <= created_at))
		FROM (SELECT o.position, o.created_at, lag(o.created_at) OVER (ORDER BY o.position) AS earlier FROM outbox o JOIN before USING (id)) AS v`); got != "t t" {
		t.Errorf("positions unique, in order of creation: %s", got)
	}

	up(t, url, "core")
	const columns = `SELECT format('%s %s %s %s', attname, CASE WHEN attname = 'status' THEN '' ELSE format_type(atttypid, atttypmod) END, attnotnull, attidentity)
		  FROM pg_attribute WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped AND attname NOT IN ('id', 'type') ORDER BY 1`
	if got, want := query[string](t, conn, columns, "outbox"),
		query[string](t, conn, columns, "outbox_events"); !slices.Equal(got, want) {
		t.Errorf("the table has\n%s\noutbox_events has\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	// A writer of ADR-004 inserts into either, and the position goes on.
	for _, table := range []string{"outbox", "outbox_events"} {
		run(t, conn, "INSERT INTO "+table+` (id, event_topic, occurred_at, aggregate_id, aggregate_type, source_bc, payload)
			VALUES ('00000000-0000-7000-8000-000000000001', 'product.created', now(), '42', 'Product', 'catalog', '{}')`)
	}
	if last := one[bool](t, conn,
		"SELECT position = (SELECT max(position) FROM outbox) AND position = (SELECT count(*) FROM outbox) FROM outbox "+
			"WHERE event_topic = 'product.created'"); !last {
		t.Error("a new row's position does not follow the upgraded ones")
	}
	if e := refusal(t, conn, "23514", "UPDATE outbox SET status = 'ERR'"); e.ConstraintName != "outbox_status_check" {
		t.Errorf("ERR is refused by %s", e.ConstraintName)
	}
	run(t, conn, "UPDATE outbox SET status = 'FAILED', next_retry_at = now() WHERE event_topic = 'product.created'")
	run(t, conn, "ANALYZE outbox; SET enable_seqscan = off")
	p, _ := explain(t, conn, "SELECT * FROM outbox WHERE status IN ('NEW', 'FAILED') ORDER BY position LIMIT 10")
	if p.Rows != 10 || p.nodes() != "Limit < Index Scan using outbox_undelivered" {
		t.Errorf("the claim: %.0f rows by %s", p.Rows, p.nodes())
	}
	run(t, conn, "RESET enable_seqscan")
	if left := one[int](t, conn, "SELECT count(*) FROM pg_indexes WHERE indexname = 'outbox_upgrade'"); left != 0 {
		t.Error("the upgrade's own index is left")
	}
	report, err := pgmigrations.Legacy(t.Context(), url, pgmigrations.LegacyOptions{})
	if err != nil || !report.AlreadyUpgraded || report.Upgraded != 0 {
		t.Errorf("run again: %+v, %v", report, err)
	}
}

// ADR-004.
func TestLegacyUpgrade(t *testing.T) {
	t.Parallel()
	url, conn := legacyDatabase(t)
	var progress [][2]int64
	report, err := pgmigrations.Legacy(t.Context(), url,
		pgmigrations.LegacyOptions{BatchSize: 5000, Progress: func(done, total int64) {
			progress = append(progress, [2]int64{done, total})
		}})
	if err != nil {
		t.Fatal(err)
	}
	if report.Table != "outbox" || report.Rows != legacyRows || report.Upgraded != legacyRows ||
		report.Errors != legacyRows/4 || report.AlreadyUpgraded {
		t.Errorf("report: %+v", report)
	}
	if want := [][2]int64{{5000, 12000}, {10000, 12000}, {12000, 12000}}; !reflect.DeepEqual(progress, want) {
		t.Errorf("progress: %v, want %v", progress, want)
	}
	checkUpgraded(t, url, conn)
}

func TestLegacyDryRunChangesNothing(t *testing.T) {
	t.Parallel()
	url, conn := legacyDatabase(t)
	before := catalog(t, conn)
	report, err := pgmigrations.Legacy(t.Context(), url, pgmigrations.LegacyOptions{DryRun: true, BatchSize: 1000})
	if err != nil {
		t.Fatal(err)
	}
	if after := catalog(t, conn); !slices.Equal(after, before) {
		t.Error("the catalog changed")
	}
	if changed := one[int](t, conn, "SELECT count(*) FROM (TABLE outbox EXCEPT TABLE before) AS v"); changed != 0 {
		t.Errorf("%d rows changed", changed)
	}
	if report.Rows != legacyRows || report.Errors != legacyRows/4 || report.Upgraded != 0 {
		t.Errorf("report: %+v", report)
	}
	steps := strings.Join(report.Steps, "\n")
	for _, want := range []string{"nine columns", "rename schema_ver", "rename retry_cnt", `"status_known"`,
		"12000 rows in 12 batches of 1000", "DEAD in 3000", "ACCESS EXCLUSIVE", "created_at becomes TIMESTAMPTZ"} {
		if !strings.Contains(steps, want) {
			t.Errorf("%q is not among the steps:\n%s", want, steps)
		}
	}
}

func TestLegacyGoesOnAfterACancel(t *testing.T) {
	t.Parallel()
	url, conn := legacyDatabase(t)
	ctx, cancel := context.WithCancel(t.Context())
	report, err := pgmigrations.Legacy(ctx, url, pgmigrations.LegacyOptions{
		BatchSize: 1000,
		Progress: func(done, _ int64) {
			if done == 4000 {
				cancel()
			}
		},
	})
	if !errors.Is(err, context.Canceled) || report.Upgraded != 4000 ||
		!strings.Contains(err.Error(), "4000 of 12000 done") {
		t.Fatalf("cancelled: %+v, %v", report, err)
	}
	if n := one[int](t, conn, "SELECT count(*) FROM outbox WHERE event_topic IS NOT NULL"); n != 4000 {
		t.Errorf("%d rows are filled, want 4 batches", n)
	}

	// Half-way is also where the batch statement has most dead entries behind it: it must not walk over them, nor read
	// the table.
	pin, err := os.ReadFile("legacy/pin.sql")
	if err != nil {
		t.Fatal(err)
	}
	statement, err := os.ReadFile("legacy/batch.sql")
	if err != nil {
		t.Fatal(err)
	}
	planner := connect(t, url)
	run(t, planner, strings.ReplaceAll(string(pin), "SET LOCAL", "SET"))
	from := one[string](t, conn, "SELECT max(created_at)::text FROM outbox WHERE position IS NOT NULL")
	sql := strings.NewReplacer("{{.Table}}", "outbox", "$1", "'"+from+"'::timestamp", "$2", "1000", "$3",
		"4000").Replace(string(statement))
	explanation := strings.Join(query[string](t, planner, "EXPLAIN "+sql[strings.Index(sql, "WITH"):]), "\n")
	if !strings.Contains(explanation, "Index Scan using outbox_upgrade on outbox") ||
		!strings.Contains(explanation, "Index Cond: (created_at >=") {
		t.Errorf("the batch is found by\n%s", explanation)
	}

	if report, err = pgmigrations.Legacy(t.Context(), url, pgmigrations.LegacyOptions{}); err != nil ||
		report.Upgraded != legacyRows-4000 || report.Rows != legacyRows-4000 {
		t.Fatalf("again: %+v, %v", report, err)
	}
	checkUpgraded(t, url, conn)
}

func TestLegacyGoesOnAfterSIGKILL(t *testing.T) {
	t.Parallel()
	url, conn := legacyDatabase(t)
	command := childCommand(t, "legacy", url)
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	for batches := 0; batches < 5 && lines.Scan(); batches++ {
	}
	if err := command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := command.Wait(); err == nil {
		t.Fatal("the child had already finished")
	}
	// It waits until the server has noticed.
	report, err := pgmigrations.Legacy(t.Context(), url, pgmigrations.LegacyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if report.Upgraded == 0 || report.Upgraded > legacyRows-5*500 || report.Upgraded%500 != 0 {
		t.Errorf("%d rows were left after 5 batches of 500", report.Upgraded)
	}
	checkUpgraded(t, url, conn)
}

// Cancelled in the last step, which is one transaction, nothing of it stays.
func TestLegacyGoesOnAfterACancelAtTheEnd(t *testing.T) {
	t.Parallel()
	url, conn := legacyDatabase(t)
	reader := connect(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := pgmigrations.Legacy(ctx, url, pgmigrations.LegacyOptions{BatchSize: 6000, Progress: func(done, _ int64) {
			if done == legacyRows { // a long report begins to read: the last step has to wait for it
				_, _ = reader.Exec(context.WithoutCancel(ctx), "BEGIN; SELECT count(*) FROM outbox")
			}
		}})
		result <- err
	}()
	awaitLock(t, conn, "outbox")
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "run it again to go on") {
		t.Fatalf("cancelled: %v", err)
	}
	run(t, reader, "ROLLBACK")
	if report, err := pgmigrations.Legacy(t.Context(), url, pgmigrations.LegacyOptions{}); err != nil ||
		report.Upgraded != 0 || report.AlreadyUpgraded {
		t.Fatalf("again: %+v, %v", report, err)
	}
	checkUpgraded(t, url, conn)
}

// A producer and a publisher of old that were not stopped: nothing of theirs is lost or left half-done.
func TestLegacyWithRowsComingIn(t *testing.T) {
	t.Parallel()
	url, conn := legacyDatabase(t)
	old := connect(t, url)
	report, err := pgmigrations.Legacy(t.Context(), url,
		pgmigrations.LegacyOptions{BatchSize: 4000, Progress: func(done, _ int64) {
			// Created before what has been filled already; and a row already filled that fails now.
			run(t, old,
				"INSERT INTO outbox (id, tenant_id, type, payload, created_at) VALUES (gen_random_uuid(), 'late', 'late', '{}', "+
					"'2024-01-01')")
			run(t, old,
				"UPDATE outbox SET status = 'ERR' WHERE id = (SELECT id FROM outbox WHERE status = 'NEW' AND position IS NOT "+
					"NULL LIMIT 1)")
		}})
	if err != nil {
		t.Fatal(err)
	}
	if report.Upgraded != legacyRows+3 {
		t.Errorf("%d rows upgraded, want the 3 late ones too", report.Upgraded)
	}
	if got, want := one[string](t, conn,
		"SELECT concat_ws(' ', count(*), min(event_topic), min(occurred_at)::date, min(position)) FROM outbox WHERE "+
			"tenant_id = 'late'"), "3 late 2024-01-01 12001"; got != want {
		t.Errorf("late rows: %s, want %s", got, want)
	}
	if got, want := one[int](t, conn, "SELECT count(*) FROM outbox WHERE status = 'DEAD'"), legacyRows/4+3; got != want {
		t.Errorf("%d dead rows, want %d", got, want)
	}
}

func TestLegacyFromTwoProcessesAtOnce(t *testing.T) {
	t.Parallel()
	url, conn := legacyDatabase(t)
	var group sync.WaitGroup
	var reports [2]pgmigrations.LegacyReport
	for i := range reports {
		group.Go(func() {
			var err error
			if reports[i], err = pgmigrations.Legacy(t.Context(), url, pgmigrations.LegacyOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if reports[0].Upgraded+reports[1].Upgraded != legacyRows || reports[0].AlreadyUpgraded == reports[1].AlreadyUpgraded {
		t.Errorf("reports: %+v", reports)
	}
	checkUpgraded(t, url, conn)
}

// Somebody ran the seed's own SQL already (lines 112-127). Its TIMESTAMPs become TIMESTAMPTZ, and what was filled since
// is kept.
func TestLegacyAfterTheSeedsOwnSQL(t *testing.T) {
	t.Parallel()
	url, conn := legacyDatabase(t)
	run(t, conn, `ALTER TABLE outbox
		ADD COLUMN event_topic VARCHAR(150),
		ADD COLUMN occurred_at TIMESTAMP,
		ADD COLUMN aggregate_type VARCHAR(100),
		ADD COLUMN source_bc VARCHAR(50),
		ADD COLUMN destination_topics JSONB,
		ADD COLUMN metadata JSONB,
		ADD COLUMN next_retry_at TIMESTAMP,
		ADD COLUMN error_message TEXT,
		ADD COLUMN processed_at TIMESTAMP`)
	run(t, conn, "UPDATE outbox SET event_topic = type, occurred_at = created_at, source_bc = 'default'")
	run(t, conn, `INSERT INTO outbox (id, tenant_id, type, payload, event_topic, occurred_at, source_bc)
		VALUES (gen_random_uuid(), 'x', 'old', '{}', 'new.topic', '2025-06-01', 'sales')`)
	if _, err := pgmigrations.Legacy(t.Context(), url, pgmigrations.LegacyOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, want := one[string](t, conn,
		"SELECT concat_ws(' ', event_topic, source_bc, occurred_at::date) FROM outbox WHERE tenant_id = 'x'"),
		"new.topic sales 2025-06-01"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	checkUpgraded(t, url, conn)
}

// The last step keeps everybody out of the table: it copies it too only where it must.
func TestLegacyRewritesOnlyWhereATypeChanges(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		column, zone     string
		planned, rewrite bool
	}{
		{"TIMESTAMPTZ", "Europe/Berlin", false, false},
		{"TIMESTAMP", "UTC", true, false}, // stored alike
		{"TIMESTAMP", "Europe/Berlin", true, true},
	} {
		t.Run(c.column+" "+c.zone, func(t *testing.T) {
			t.Parallel()
			url, setup := legacyDatabase(t)
			run(t, setup, fmt.Sprintf("ALTER DATABASE %s SET timezone = '%s'",
				one[string](t, setup, "SELECT current_database()"), c.zone))
			conn := connect(t, url) // the setting holds for new sessions
			run(t, conn, "ALTER TABLE outbox ALTER created_at TYPE "+c.column)
			const file = "SELECT pg_relation_filenode('outbox')::text"
			before := one[string](t, conn, file)
			report, err := pgmigrations.Legacy(t.Context(), url, pgmigrations.LegacyOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if rewritten := one[string](t, conn, file) != before; rewritten != c.rewrite {
				t.Errorf("rewritten: %v", rewritten)
			}
			if planned := strings.Contains(report.Steps[len(report.Steps)-1], "rewrite"); planned != c.planned {
				t.Errorf("the last step is announced as %q", report.Steps[len(report.Steps)-1])
			}
			checkUpgraded(t, url, conn)
		})
	}
}

func TestLegacyInASchemaOfItsOwn(t *testing.T) {
	t.Parallel()
	url, conn := legacyDatabase(t)
	run(t, conn, `CREATE SCHEMA "Shop"; ALTER TABLE outbox SET SCHEMA "Shop"; ALTER TABLE "Shop".outbox RENAME TO events`)
	if _, err := pgmigrations.Legacy(t.Context(), url, pgmigrations.LegacyOptions{Table: "Shop.events"}); err != nil {
		t.Fatal(err)
	}
	if n := one[int](t, conn, `SELECT count(position) FROM "Shop".events WHERE event_topic = type`); n != legacyRows {
		t.Errorf("%d rows upgraded", n)
	}
}

func TestLegacyRefusesWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	for _, c := range [][2]string{
		{"DROP TABLE outbox", "no such table"},
		{"ALTER TABLE outbox DROP COLUMN type, DROP COLUMN schema_ver", "column schema_ver is missing"},
		{"ALTER TABLE outbox DROP CONSTRAINT outbox_pkey", "no primary key"},
		{"ALTER TABLE outbox ADD COLUMN retry_count INT", "both retry_cnt and retry_count"},
		{"ALTER TABLE outbox ALTER COLUMN id TYPE TEXT", "column id is text, want uuid"},
		{"ALTER TABLE outbox ALTER COLUMN payload TYPE TEXT", "column payload is text, want jsonb"},
		{"UPDATE outbox SET type = repeat('x', 151) WHERE payload = '{\"n\":7}'",
			"1 rows have no type, or one over 150"},
		{"ALTER TABLE outbox ALTER created_at DROP NOT NULL; UPDATE outbox SET created_at = NULL WHERE status = 'ERR'",
			"3000 rows have no created_at"},
		{"ALTER TABLE outbox DROP CONSTRAINT status_known; UPDATE outbox SET status = 'WAIT' WHERE payload = '{\"n\": 7}'",
			"1 rows have a status other"},
		{"ALTER TABLE outbox RENAME TO old; CREATE VIEW outbox AS TABLE old", "not an ordinary table"},
	} {
		change, want := c[0], c[1]
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			url, conn := legacyDatabase(t)
			run(t, conn, change)
			before := catalog(t, conn)
			if _, err := pgmigrations.Legacy(t.Context(), url, pgmigrations.LegacyOptions{}); err == nil ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
			if !slices.Equal(catalog(t, conn), before) {
				t.Error("something changed")
			}
		})
	}
	for _, options := range []pgmigrations.LegacyOptions{{BatchSize: -1}, {Table: `outbox"; DROP TABLE x`}, {Table: "a.b.c"},
		{Table: strings.Repeat("x", 51)}} {
		if _, err := pgmigrations.Legacy(t.Context(), testenv.Database(t), options); err == nil ||
			!strings.Contains(err.Error(), "want") {
			t.Errorf("%+v: %v", options, err)
		}
	}
}

// ADR-004: aggregate_id holds uuids and other keys alike. A table that had it as uuid takes what
// today's writers insert, and old keys are the text that new events of theirs have, so they share a lane.
func TestLegacyWithUUIDKeys(t *testing.T) {
	t.Parallel()
	url, conn := legacyDatabase(t)
	run(t, conn, "ALTER TABLE outbox ALTER COLUMN aggregate_id TYPE UUID USING md5(aggregate_id)::uuid")
	report, err := pgmigrations.Legacy(t.Context(), url, pgmigrations.LegacyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if last := report.Steps[len(report.Steps)-1]; !strings.Contains(last,
		"rewrite it under that lock, since aggregate_id becomes VARCHAR(128)") {
		t.Errorf("the last step is announced as %q", last)
	}
	if got := one[string](t, conn,
		"SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'outbox'::regclass AND attname = "+
			"'aggregate_id'"); got != "character varying(128)" {
		t.Errorf("aggregate_id is %s", got)
	}
	if odd := one[int](t, conn, `SELECT count(*) FROM outbox o JOIN before b USING (id)
		WHERE o.aggregate_id IS DISTINCT FROM md5(b.aggregate_id)::uuid::text`); odd != 0 {
		t.Errorf("%d old events have another key than before", odd)
	}
	run(t, conn,
		"INSERT INTO outbox (id, event_topic, occurred_at, aggregate_id, source_bc, payload) VALUES (gen_random_uuid(), "+
			"'new', now(), 'no uuid', 'shop', '{}')")
}
