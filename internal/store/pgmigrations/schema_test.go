package pgmigrations_test

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
)

// seedColumns are the columns of the seed documents, in their order: type, "not null" or "null",
// default. Only the bare TIMESTAMP of the seeds is TIMESTAMPTZ throughout.
var seedColumns = map[string]string{
	// FR-006
	"crawl_runs": `
id             uuid                     not null gen_random_uuid()
status         crawl_status             not null 'PENDING'::crawl_status
app_package    character varying(255)   not null -
device_config  jsonb                    null     -
max_steps      integer                  not null 100
goal           text                     null     -
created_at     timestamp with time zone not null now()
started_at     timestamp with time zone null     -
completed_at   timestamp with time zone null     -
cancelled_at   timestamp with time zone null     -
error_message  text                     null     -`,
	// FR-006
	"crawl_events": `
id             bigint                   not null nextval('crawl_events_id_seq'::regclass)
crawl_id       uuid                     not null -
event_type     character varying(50)    not null -
payload        jsonb                    not null -
created_at     timestamp with time zone not null now()`,
	// FR-007
	"crawl_outbox": `
id             bigint                   not null nextval('crawl_outbox_id_seq'::regclass)
crawl_id       uuid                     not null -
event_type     character varying(50)    not null -
payload        jsonb                    not null -
created_at     timestamp with time zone not null now()
published_at   timestamp with time zone null     -`,
	// FR-005: the names it uses
	"run_outbox": `
id             bigint                   null     -
run_id         uuid                     null     -
event_type     character varying(50)    null     -
payload        jsonb                    null     -
created_at     timestamp with time zone null     -
published_at   timestamp with time zone null     -`,
	// ADR-004; the default of id is additive
	"outbox_events": `
id                 uuid                     not null outbox_uuidv7()
event_topic        character varying(150)   not null -
occurred_at        timestamp with time zone not null -
schema_id          character varying(128)   null     -
schema_version     integer                  not null 1
aggregate_id       character varying(128)   null     -
aggregate_type     character varying(100)   null     -
tenant_id          character varying(64)    not null 'default'::character varying
source_bc          character varying(50)    not null -
destination_topics jsonb                    null     -
payload            jsonb                    not null -
metadata           jsonb                    null     -
status             character varying(10)    not null 'NEW'::character varying
retry_count        integer                  not null 0
next_retry_at      timestamp with time zone null     -
error_message      text                     null     -
created_at         timestamp with time zone not null now()
processed_at       timestamp with time zone null     -`,
	// 05-01, and what is known around it
	"event_outbox": `
id             uuid                     not null outbox_uuidv7()
app_id         uuid                     not null -
event_id       uuid                     not null -
event_type     text                     not null -
payload        jsonb                    not null -
status         text                     not null 'pending'::text
published_at   timestamp with time zone null     -`,
	// 05-01
	"job_dlq": `
id              uuid                     not null outbox_uuidv7()
source          text                     not null 'job'::text
original_job_id uuid                     not null -
app_id          uuid                     not null -
user_id         uuid                     null     -
request_id      uuid                     null     -
type            text                     not null -
payload         jsonb                    not null -
error_reason    text                     not null -
attempts        integer                  not null -
error_history   jsonb                    not null -
replayed_at     timestamp with time zone null     -`,
	"apps": `
id              uuid                     not null outbox_uuidv7()
name            text                     not null -
namespace       text                     not null -
settings        jsonb                    null     -
created_at      timestamp with time zone not null now()
updated_at      timestamp with time zone not null now()`,
}

// additiveColumns follow the seed's.
var additiveColumns = map[string][]string{
	"crawl_runs": {"tenant_id", "crawler", "idempotency_key", "lease_owner", "lease_epoch", "lease_expires_at",
		"next_node", "node_state", "steps_done", "node_attempts"},
	"crawl_events": {"seq", "event_id", "tenant_id"},
	"crawl_outbox": {"event_id", "seq", "retry_count", "next_retry_at", "error_message", "error_history", "delivered_to",
		"generation", "tenant_id"},
	"outbox_events": {"position", "error_history", "delivered_to", "generation"},
	"event_outbox": {"position", "event_key", "retry_count", "next_retry_at", "error_message", "error_history",
		"delivered_to", "generation"},
	"job_dlq": {"destination", "outbox_table", "event_key", "discarded_at", "discard_reason", "generation", "position",
		"origin", "tenant"},
}

// FR-005, FR-006, FR-007, 05-01 and ADR-004 (docs/seeds.md): each table above names its document.
func TestColumnsAreTheSeeds(t *testing.T) {
	t.Parallel()
	_, conn := database(t)
	for table, literal := range seedColumns {
		var want []string
		for line := range strings.Lines(strings.TrimSpace(literal)) {
			want = append(want, strings.Join(strings.Fields(line), " "))
		}
		got := query[string](t, conn, `
			SELECT format('%s %s %s %s', attname, format_type(atttypid, atttypmod), CASE WHEN attnotnull THEN 'not null' ELSE 'null' END,
			              coalesce(pg_get_expr(adbin, adrelid), '-'))
			  FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
			 WHERE attrelid = $1::text::regclass AND attnum > 0 ORDER BY attnum`, table)
		if len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
			t.Errorf("%s has\n%s\nwant\n%s", table, strings.Join(got, "\n"), strings.Join(want, "\n"))
			continue
		}
		var added []string
		for _, column := range got[len(want):] {
			added = append(added, strings.Fields(column)[0])
		}
		if !slices.Equal(added, additiveColumns[table]) {
			t.Errorf("%s has the additive columns %v, want %v", table, added, additiveColumns[table])
		}
	}
}

// The indexes that the documents of docs/seeds.md write, and those that 05-01 leaves unsaid.
func TestIndexesAreTheSeeds(t *testing.T) {
	t.Parallel()
	_, conn := database(t)
	want := map[string]string{
		// FR-006
		"idx_crawl_events_crawl_id": "crawl_events USING btree (crawl_id, id)",
		"idx_crawl_runs_created_at": "crawl_runs USING btree (created_at DESC)",
		// FR-007
		"idx_crawl_outbox_unpublished": "crawl_outbox USING btree (published_at, id) WHERE (published_at IS NULL)",
		"idx_crawl_outbox_crawl_id":    "crawl_outbox USING btree (crawl_id)",
		// ADR-004; partial or BRIN as core/002_outbox_events explains
		"idx_outbox_status":        "outbox_events USING btree (status, next_retry_at)",
		"idx_outbox_tenant_status": "outbox_events USING btree (tenant_id, status)",
		"idx_outbox_created":       "outbox_events USING btree (created_at)",
		"idx_outbox_aggregate":     "outbox_events USING btree (aggregate_type, aggregate_id)",
		"idx_outbox_topic":         "outbox_events USING btree (event_topic)",
		// 05-01: BRIN and partial indexes
		"idx_event_outbox_id_brin": "event_outbox USING brin (id)",
		"idx_event_outbox_pending": "event_outbox USING btree (status, id) INCLUDE (app_id, event_type) WHERE (status = " +
			"'pending'::text)",
		"idx_event_outbox_failed":     "event_outbox USING btree (event_type, id DESC) WHERE (status = 'failed'::text)",
		"idx_event_outbox_app_id":     "event_outbox USING btree (app_id)",
		"event_outbox_event_id_key":   "event_outbox USING btree (event_id)",
		"idx_job_dlq_id_brin":         "job_dlq USING brin (id)",
		"idx_job_dlq_pending_source":  "job_dlq USING btree (source, error_reason) WHERE (replayed_at IS NULL)",
		"idx_job_dlq_pending_type":    "job_dlq USING btree (type, error_reason) WHERE (replayed_at IS NULL)",
		"idx_job_dlq_pending_app":     "job_dlq USING btree (app_id, id DESC) WHERE (replayed_at IS NULL)",
		"idx_job_dlq_original_job_id": "job_dlq USING btree (original_job_id)",
		"idx_job_dlq_request_id":      "job_dlq USING btree (request_id) WHERE (request_id IS NOT NULL)",
		"idx_job_dlq_error_history":   "job_dlq USING gin (error_history)",
		"idx_job_dlq_app_id":          "job_dlq USING btree (app_id)",
		"idx_job_dlq_user_id":         "job_dlq USING btree (user_id) WHERE (user_id IS NOT NULL)",
	}
	for _, definition := range query[string](t, conn,
		"SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' AND indexname NOT LIKE '%_pkey'") {
		head, rest, _ := strings.Cut(definition, " ON public.")
		fields := strings.Fields(head)
		name := fields[len(fields)-1]
		wanted, theirs := want[name]
		if theirs && wanted != rest {
			t.Errorf("index %s is on %s, want %s", name, rest, wanted)
		}
		if isUnique := fields[1] == "UNIQUE"; theirs && isUnique != (name == "event_outbox_event_id_key") {
			t.Errorf("index %s: unique is %v", name, isUnique)
		}
		delete(want, name)
	}
	for name := range want {
		t.Errorf("index %s is missing", name)
	}
}

// A later step takes nothing away that an earlier one makes: an adopted table is compared with what
// all of them make.
func TestNoStepTakesAwayWhatAnotherMakes(t *testing.T) {
	t.Parallel()
	var all bytes.Buffer
	if err := pgmigrations.Print(&all, append(pgmigrations.Sets, "log")...); err != nil {
		t.Fatal(err)
	}
	if found := regexp.MustCompile(`(?m)^[^-\n]*\bDROP (COLUMN|INDEX|TABLE|VIEW|CONSTRAINT)\b.*`).FindString(all.String()); found != "" {
		t.Errorf("a step has %s", found)
	}
}

// FR-006 and FR-007: crawl_id goes with its run (ON DELETE CASCADE). An application with events
// cannot be removed.
func TestForeignKeysAreTheSeeds(t *testing.T) {
	t.Parallel()
	_, conn := database(t)
	got := query[string](t, conn, `SELECT format('%s: %s', conrelid::regclass, pg_get_constraintdef(oid))
		FROM pg_constraint WHERE contype = 'f' AND connamespace = 'public'::regnamespace ORDER BY 1`)
	want := []string{
		"crawl_events: FOREIGN KEY (crawl_id) REFERENCES crawl_runs(id) ON DELETE CASCADE",
		"crawl_outbox: FOREIGN KEY (crawl_id) REFERENCES crawl_runs(id) ON DELETE CASCADE",
		"event_outbox: FOREIGN KEY (app_id) REFERENCES apps(id) ON DELETE RESTRICT",
		"job_dlq: FOREIGN KEY (app_id) REFERENCES apps(id) ON DELETE RESTRICT",
		"outbox_tickets: FOREIGN KEY (token_id) REFERENCES outbox_tokens(id) ON DELETE CASCADE", // additive
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got, want := query[string](t, conn,
		"SELECT enumlabel::text FROM pg_enum WHERE enumtypid = 'crawl_status'::regtype ORDER BY enumsortorder"),
		[]string{"PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELLED"}; !slices.Equal(got, want) {
		t.Errorf("crawl_status is %v, want %v", got, want)
	}
}

const insertLetter = `INSERT INTO job_dlq (source, original_job_id, app_id, type, payload, error_reason, attempts, error_history)
	SELECT $1, gen_random_uuid(), id, 'T', '{}', $2, $3, $4 FROM apps`

// Seed 002, lines 75 and 83: the error reasons are scoped by source; HandlerMissing is shared.
func TestErrorReasonsAreScopedBySource(t *testing.T) {
	t.Parallel()
	_, conn := database(t)
	reasons := map[string]string{
		"MaxRetries": "job", "Validation": "job", "RunnerUnavailable": "job", "Timeout": "job", "Panic": "job",
		"DeliveryFailed": "event", "DeserializationFailed": "event", "DuplicateEvent": "event", "HandlerTimeout": "event",
		"HandlerMissing": "job event", "Whatever": "",
	}
	for reason, sources := range reasons {
		for _, source := range []string{"job", "event"} {
			if strings.Contains(sources, source) {
				run(t, conn, insertLetter, source, reason, 1, "[]")
			} else if e := refusal(t, conn, "23514", insertLetter, source, reason, 1,
				"[]"); e.ConstraintName != "job_dlq_error_reason_check" {
				t.Errorf("%s from %s: refused by %s", reason, source, e.ConstraintName)
			}
		}
	}
	if got, want := one[int](t, conn, "SELECT count(*) FROM job_dlq"), 11; got != want {
		t.Errorf("%d letters, want %d", got, want)
	}
}

func TestChecksRefuse(t *testing.T) {
	t.Parallel()
	_, conn := database(t)
	const event = "INSERT INTO outbox_events (event_topic, occurred_at, source_bc, payload, status) VALUES ('t', now(), " +
		"'bc', '{}', $1)"
	const bus = "INSERT INTO event_outbox (app_id, event_id, event_type, payload, status) SELECT id, gen_random_uuid(), " +
		"'t', '{}', $1 FROM apps"
	const lane = "INSERT INTO outbox_lanes (table_name, lane) VALUES ('t', $1)"
	for _, status := range []string{"NEW", "SENT", "FAILED", "DEAD"} {
		run(t, conn, event, status)
	}
	for _, status := range []string{"pending", "published", "failed"} {
		run(t, conn, bus, status)
	}
	run(t, conn, lane, 0)
	run(t, conn, lane, 63)
	for constraint, statement := range map[string][]any{
		"outbox_events_status_check":  {event, "ERR"},
		"event_outbox_status_check":   {bus, "NEW"},
		"outbox_lanes_lane_check":     {lane, 64},
		"job_dlq_attempts_check":      {insertLetter, "job", "Panic", 0, "[]"},
		"job_dlq_error_history_check": {insertLetter, "job", "Panic", 1, "{}"},
	} {
		if e := refusal(t, conn, "23514", statement[0].(string), statement[1:]...); e.ConstraintName != constraint {
			t.Errorf("refused by %s, want %s", e.ConstraintName, constraint)
		}
	}
	refused(t, conn, "23514", insertLetter, "cron", "Panic", 1, "[]")
	refused(t, conn, "23505", "INSERT INTO apps (name, namespace) VALUES ('other', 'Default')")
	restricted := "23503"
	if one[int](t, conn, "SELECT current_setting('server_version_num')::int") >= 180000 {
		restricted = "23001" // a code of its own since PostgreSQL 18
	}
	refused(t, conn, restricted, "DELETE FROM apps") // RESTRICT: event_outbox has rows
}

// What the relay would refuse, the INSERT is told, by a name that says the rule. A row from before
// is none of its business: it is settled as it was.
func TestInsertIsToldWhatTheRelayRefuses(t *testing.T) {
	t.Parallel()
	_, conn := database(t)
	if err := pgmigrations.Up(t.Context(), conn.Config().ConnString(), "log"); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"outbox_events", "outbox_log"} {
		insertion := "INSERT INTO " + table + " (event_topic, occurred_at, source_bc, payload, tenant_id, " +
			"destination_topics, metadata) VALUES ($1, now(), 's', '{}', $2, $3, $4)"
		for rule, row := range map[string][][]any{
			"topic_not_empty":  {{"", "a", nil, nil}},
			"tenant_not_empty": {{"t", "", nil, nil}},
			"destinations_are_texts": {{"t", "a", `"b"`, nil}, {"t", "a", `{"b":1}`, nil}, {"t", "a", `["b",1]`, nil}, {"t", "a", `[""]`, nil},
				{"t", "a", `[null]`, nil}, {"t", "a", `1`, nil}},
			"metadata_is_object": {{"t", "a", nil, `[1]`}, {"t", "a", nil, `"x"`}, {"t", "a", nil, `1`}},
		} {
			for _, values := range row {
				if e := refusal(t, conn, "23514", insertion, values...); e.ConstraintName != table+"_"+rule {
					t.Errorf("%v is refused by %s, want %s", values, e.ConstraintName, rule)
				}
			}
		}
		for _, values := range [][]any{{"t", "a", nil, nil}, {"t", "a", `[]`, `{}`}, {"t", "a", `null`, `null`},
			{"t", "a", `["a","b"]`, `{"a":[1]}`}} {
			run(t, conn, insertion, values...)
		}
	}
	run(t, conn, "ALTER TABLE outbox_events DISABLE TRIGGER outbox_events_refuse")
	run(t, conn, `INSERT INTO outbox_events (event_topic, occurred_at, source_bc, payload, metadata)
		VALUES ('', now(), 's', '{}', '[1]')`)
	run(t, conn, "ALTER TABLE outbox_events ENABLE TRIGGER outbox_events_refuse")
	run(t, conn, "UPDATE outbox_events SET status = 'DEAD' WHERE event_topic = ''")
	if e := refusal(t, conn, "23514", `INSERT INTO event_outbox (app_id, event_id, event_type, payload)
		SELECT id, outbox_uuidv7(), '', '{}' FROM apps`); e.ConstraintName != "event_outbox_type_not_empty" {
		t.Errorf("refused by %s", e.ConstraintName)
	}
}

// RFC 9562, 5.7: version 7, variant 10, the time in front.
func TestUUIDv7(t *testing.T) {
	t.Parallel()
	_, conn := database(t)
	if bad := query[string](t, conn, `SELECT id::text FROM (SELECT outbox_uuidv7() AS id FROM generate_series(1, 10000)) AS v
		WHERE id::text !~ '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$'`); len(bad) > 0 {
		t.Errorf("not a UUIDv7: %s", bad[0])
	}
	if got := one[int](t, conn, "SELECT count(DISTINCT outbox_uuidv7()) FROM generate_series(1, 10000)"); got != 10000 {
		t.Errorf("%d different ids of 10000", got)
	}
	if off := one[float64](t, conn,
		`SELECT abs(extract(epoch FROM clock_timestamp()) * 1000 - ('x' || left(replace(outbox_uuidv7()::text, '-', ''), 12))::bit(48)::bigint)::float8`); off > 5000 {
		t.Errorf("the time in it is %.0f ms off", off)
	}
	if sorted := one[bool](t, conn, `SELECT bool_and(earlier < later) FROM (
		SELECT id AS later, lag(id) OVER (ORDER BY n) AS earlier FROM (
			SELECT n, CASE WHEN pg_sleep(0.0001) IS NOT NULL THEN outbox_uuidv7() END AS id FROM generate_series(1, 200) AS n) AS v) AS w`); !sorted {
		t.Error("ids drawn 0.1 ms apart are not in order")
	}
}
