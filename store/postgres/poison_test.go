package postgres

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// loose makes a table as somebody might have it: everything that may be NULL may be NULL, and
// nothing has an index but the key.
func loose(t *testing.T, pool *pgxpool.Pool) outbox.Layout {
	t.Helper()
	exec(t, pool, `CREATE TABLE loose (n bigserial PRIMARY KEY, id uuid NOT NULL DEFAULT gen_random_uuid(), kind text, body json, customer text, region text, gen smallint, version int,
		goes jsonb, meta json, at_last timestamptz, tries int, due timestamptz, problem varchar(20), served jsonb, past jsonb)`)
	return outbox.Layout{Table: "loose", ID: "id", Position: "n", Topic: "kind", Payload: "body", Key: "customer",
		KeyScope: []string{"region"}, Generation: "gen",
		SchemaVersion: "version", Destinations: "goes", Metadata: "meta", DeliveredAt: "at_last", Attempts: "tries",
		NextRetryAt: "due", LastError: "problem",
		DeliveredTo: "served", ErrorHistory: "past"}
}

// A row of NULLs, wherever a mapped table allows them, is claimed, and can be settled in each of
// the three ways.
func TestNullsEverywhere(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	s, owner, lanes := serving(t, pool, loose(t, pool))
	for _, state := range []outbox.State{outbox.Retry, outbox.Dead, outbox.Delivered} {
		exec(t, pool, "DELETE FROM loose")
		exec(t, pool, "INSERT INTO loose DEFAULT VALUES")
		records, err := s.Claim(t.Context(), lanes, everything)
		if err != nil || len(records) != 1 {
			t.Fatalf("got %d records, error %v", len(records), err)
		}
		if r := records[0]; string(r.Payload) != "null" || r.Topic != "" || r.Keyed || r.SchemaVersion != 1 ||
			r.Attempts != 0 {
			t.Errorf("got %+v", r)
		}
		settled, err := s.Settle(t.Context(), owner, lanes,
			[]outbox.Outcome{{Record: records[0], State: state, Attempts: 1, RetryIn: time.Hour,
				Failures: []outbox.Failure{{Error: "no topic", Reason: outbox.ReasonHandlerMissing}}}})
		if err != nil || settled.Lost != 0 {
			t.Errorf("state %d: settled %+v, error %v", state, settled, err)
		}
	}
}

// jsonb takes a number of 131,072 digits as eight bytes. As text, 10,000 of them are longer than
// PostgreSQL's limit of a gigabyte, and the query that asks for the row fails, every time. The row
// becomes a dead letter, the others are delivered.
func TestUnreadableRowIsADeadLetter(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	pool := migrated(t)
	s, owner, lanes := serving(t, pool, outbox.OutboxEvents())
	writeOrders(t, pool, 2, "before")
	exec(t, pool, `INSERT INTO outbox_events (event_topic, occurred_at, source_bc, payload)
		SELECT 'poison', now(), 's', jsonb_agg('1e131071'::numeric) FROM generate_series(1, 8200)`)
	writeOrders(t, pool, 3, "after")
	deliver(t, s, owner, lanes, 2)
	records, err := s.Claim(t.Context(), lanes, everything)
	if err != nil || len(records) != 1 || records[0].Defect == "" || records[0].Topic != "poison" {
		t.Fatalf("got %d records, error %v, want the poison alone, marked as defective", len(records), err)
	}
	if settled, err := s.Settle(t.Context(), owner, lanes,
		[]outbox.Outcome{{Record: records[0], State: outbox.Dead, Attempts: 1,
			Failures: []outbox.Failure{{Error: records[0].Defect, Reason: outbox.ReasonDeserializationFailed}}}}); err != nil ||
		settled.Dead != 1 {
		t.Fatalf("settled %+v, error %v", settled, err)
	}
	if n := query[int](t, pool, "SELECT jsonb_array_length(payload) FROM job_dlq WHERE type = 'poison'"); n != 8200 {
		t.Errorf("the dead letter has %d numbers, want all 8200", n)
	}
	deliver(t, s, owner, lanes, 3)

	// One that can be read but is far longer than it looked is the same.
	s.rows.MaxPayload = 1 << 20
	exec(t, pool,
		`INSERT INTO outbox_events (event_topic, occurred_at, source_bc, payload) SELECT 'long', now(), 's', jsonb_agg('1e131071'::numeric) FROM generate_series(1, 9)`)
	records, err = s.Claim(t.Context(), lanes, everything)
	if err != nil || len(records) != 1 || !strings.Contains(records[0].Defect, "bytes as text") ||
		len(records[0].Payload) != 0 {
		t.Errorf("got %d records, error %v, want one without payload, marked as defective", len(records), err)
	}
}

// Where no index gives the order, the rows are sorted, and the one that cannot be read ends the
// query before the first is out. It is not taken for the first. Its version is what the
// server cannot read here: that fails as a gigabyte does, at once.
func TestUnreadableRowBehindOthersWithoutAnIndex(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	exec(t, pool,
		`CREATE TABLE bare (n bigint GENERATED ALWAYS AS IDENTITY NOT NULL, id uuid PRIMARY KEY DEFAULT gen_random_uuid(), kind text, body jsonb, version bigint, at timestamptz, tries int, due timestamptz)`)
	s, owner, lanes := serving(t, pool,
		outbox.Layout{Table: "bare", ID: "id", Position: "n", Topic: "kind", Payload: "body", SchemaVersion: "version",
			DeliveredAt: "at", Attempts: "tries", NextRetryAt: "due"})
	exec(t, pool, `INSERT INTO bare (kind, body) VALUES ('good', '1'), ('good', '2')`)
	exec(t, pool, `INSERT INTO bare (kind, body, version) VALUES ('poison', '3', 3000000000)`)
	deliver(t, s, owner, lanes, 2)
	records, err := s.Claim(t.Context(), lanes, everything)
	if err != nil || len(records) != 1 || records[0].Defect == "" || records[0].Topic != "poison" {
		t.Fatalf("got %d records, error %v, want the poison alone, marked as defective", len(records), err)
	}
}

// A payload that job_dlq does not take (json allows what jsonb does not) is kept in the dead letter as
// a JSON string. An error text that a mapped column does not take holds back its own key and nothing
// else.
func TestSettleIsolatesWhatTheServerRefuses(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	s, owner, lanes := serving(t, pool, loose(t, pool))
	exec(t, pool,
		`INSERT INTO loose (kind, body, customer) SELECT 'k', CASE WHEN i = 3 THEN '{"a": "\u0000"}' ELSE '{}' END::json, i::text FROM generate_series(1, 9) i`)
	records, err := s.Claim(t.Context(), lanes, everything)
	if err != nil || len(records) != 9 {
		t.Fatalf("got %d records, error %v", len(records), err)
	}
	var outcomes []outbox.Outcome
	for i, r := range records {
		o := outbox.Outcome{Record: r, State: outbox.Delivered}
		switch i {
		case 2, 3:
			o.State, o.Attempts, o.Failures = outbox.Dead, 5,
				[]outbox.Failure{{Error: "boom", Reason: outbox.ReasonDeliveryFailed}}
		case 6:
			o.State, o.Attempts, o.RetryIn, o.Failures = outbox.Retry, 1, time.Minute,
				[]outbox.Failure{{Error: strings.Repeat("long ", 20)}}
		}
		outcomes = append(outcomes, o)
	}
	settled, err := s.Settle(t.Context(), owner, lanes, outcomes)
	if want := (outbox.Settled{Delivered: 6, Dead: 2, Retried: 1}); err != nil || settled != want {
		t.Fatalf("settled %+v, error %v, want %+v", settled, err, want)
	}
	if n := query[int](t, pool, "SELECT count(*) FROM loose WHERE at_last IS NULL AND due > now()"); n != 1 {
		t.Errorf("%d rows wait, want 1", n)
	}
	if n := query[int](t, pool, `SELECT count(*) FROM job_dlq WHERE payload = to_jsonb('{"a": "\u0000"}'::text)`); n != 1 {
		t.Errorf("%d dead letters have the payload as a text, want 1", n)
	}
}

// Columns that cannot play their part are found when the table is opened, not after its first
// events were published.
func TestOpenRefusesTypesThatDoNotFit(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	layout := loose(t, pool)
	for _, tt := range []struct{ change, want string }{
		{"ALTER COLUMN id DROP NOT NULL", "NOT NULL on id"},
		{"ALTER COLUMN id SET NOT NULL, ALTER COLUMN id DROP DEFAULT, ALTER COLUMN id TYPE text", `type uuid of column "id" (id), which is text`},
		{"ALTER COLUMN id TYPE uuid USING id::uuid, ALTER COLUMN due TYPE time", "time without time zone"},
		{"ALTER COLUMN due TYPE timestamp USING NULL, ALTER COLUMN body TYPE text",
			`type json or jsonb of column "body" (payload), which is text`},
		{"ALTER COLUMN body TYPE jsonb USING NULL, ALTER COLUMN meta TYPE text",
			`type json or jsonb of column "meta" (metadata), which is text`},
		{"ALTER COLUMN meta TYPE jsonb USING NULL, ALTER COLUMN version TYPE numeric",
			`type bigint or integer or smallint of column "version" (schema_version), which is numeric`},
		{"ALTER COLUMN version TYPE int, ALTER COLUMN goes TYPE text[] USING NULL",
			`type json or jsonb of column "goes" (destinations), which is text[]`},
		{"ALTER COLUMN goes TYPE json USING NULL, ALTER COLUMN gen TYPE bigint",
			`type integer or smallint of column "gen" (generation), which is bigint`},
	} {
		exec(t, pool, "ALTER TABLE loose "+tt.change)
		if _, err := openTable(t.Context(), pool, layout); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got error %v, want %q in it", tt.change, err, tt.want)
		}
	}
}

// A domain counts as the type below it.
func TestOpenTakesDomains(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	layout := loose(t, pool)
	exec(t, pool, "CREATE DOMAIN body AS jsonb NOT NULL; CREATE DOMAIN order_body AS body; CREATE DOMAIN words AS text")
	exec(t, pool, "ALTER TABLE loose ALTER body TYPE order_body")
	if _, err := openTable(t.Context(), pool, layout); err != nil {
		t.Error(err)
	}
	exec(t, pool, "ALTER TABLE loose ALTER body TYPE words")
	if _, err := openTable(t.Context(), pool, layout); err == nil || !strings.Contains(err.Error(), "which is words") {
		t.Errorf("got error %v", err)
	}
}

// The lane of a row whose key cannot be read is unknown. The rows before it are claimed, and the
// error names the position before it.
func TestUnreadableKeyIsLocated(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	s, owner, lanes := serving(t, pool, loose(t, pool))
	exec(t, pool, "ALTER TABLE loose ALTER customer SET STORAGE EXTERNAL")
	exec(t, pool, "CREATE EXTENSION pg_surgery")
	exec(t, pool, `INSERT INTO loose (kind, body, customer) SELECT 'k', '{}',
		CASE n WHEN 4 THEN (SELECT string_agg(md5(g::text), '') FROM generate_series(1, 300) g) ELSE n::text END
		FROM generate_series(1, 6) n`)
	exec(t, pool, `DO $$ DECLARE part regclass; BEGIN
		SELECT reltoastrelid INTO part FROM pg_class WHERE oid = 'loose'::regclass;
		EXECUTE format('SELECT heap_force_kill(%L, ARRAY(SELECT ctid FROM %s))', part, part);
	END $$`)
	deliver(t, s, owner, lanes, 3)
	_, err := s.Claim(t.Context(), lanes, everything)
	if err == nil || !strings.Contains(err.Error(), "first undelivered row behind position 0 of loose") {
		t.Errorf("got error %v", err)
	}
	exec(t, pool, "UPDATE loose SET customer = 'repaired' WHERE n = 4")
	deliver(t, s, owner, lanes, 3)
}

// A pending delivery that outbox_deliveries refuses becomes a dead letter of its sink.
func TestDeliveryThatCannotBeStoredIsADeadLetter(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	s, owner, lanes := serving(t, pool, outbox.OutboxEvents())
	writeOrders(t, pool, 1, "a", "b", "c")
	records, err := s.Claim(t.Context(), lanes, everything)
	if err != nil || len(records) != 3 {
		t.Fatalf("got %d records, error %v", len(records), err)
	}
	long := query[string](t, pool, "SELECT string_agg(md5(g::text), '') FROM generate_series(1, 2000) g")
	outcomes := []outbox.Outcome{{Record: records[0]}, {Record: records[2]},
		{Record: records[1], Owed: []outbox.Owed{{Sink: "slow", Destination: long}}}}
	settled, err := s.Settle(t.Context(), owner, lanes, outcomes)
	if want := (outbox.Settled{Delivered: 2, Dead: 1}); err != nil || settled != want {
		t.Errorf("settled %+v, error %v, want %+v", settled, err, want)
	}
	if got := query[string](t, pool, "SELECT error_history->-1->>'error' FROM job_dlq"); !strings.Contains(got,
		"slow: the delivery cannot be stored: ") {
		t.Errorf("the dead letter's error is %q", got)
	}
}

// Without an index for it, the claim must not look for the blocked keys once a row: that took 6.6 s
// here.
func TestClaimOfTableWithoutIndexesIsNotQuadratic(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	pool := migrated(t)
	s, _, lanes := serving(t, pool, loose(t, pool))
	exec(t, pool,
		`INSERT INTO loose (kind, body, customer, at_last) SELECT 'k', '{}', (i % 1000)::text, CASE WHEN i <= 29000 THEN now() END FROM generate_series(1, 30000) i`)
	rows, err := pool.Query(t.Context(), "EXPLAIN (ANALYZE, BUFFERS) "+s.sql.claim,
		pgtable.LaneBits(lanes), 1000, []int64{}, [][16]byte{})
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var plan []string
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		plan = append(plan, line)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(plan, "\n"); !strings.Contains(text, "hashed SubPlan") ||
		strings.Contains(text, "loops=1000") {
		t.Errorf("the blocked keys are not looked up once:\n%s", text)
	}
}

// 10,000 keys whose head waits for a retry cost the claim of the others the walk over their index
// entries (1.7 ms on two cores) and nothing a key: no more pages than there are of the index and
// the heap, and no probe of the waiting ones.
func TestTenThousandWaitingKeysCostOneWalk(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	s, _, lanes := serving(t, pool, outbox.OutboxEvents())
	exec(t, pool, `INSERT INTO outbox_events (event_topic, occurred_at, aggregate_id, source_bc, payload, status, next_retry_at, retry_count)
		SELECT 'waits', now(), i::text, 's', '{}', 'FAILED', now() + interval '1 hour', 1 FROM generate_series(1, 10000) i`)
	writeOrders(t, pool, 5, "a", "b")
	var plan []struct {
		Plan struct {
			Rows    float64 `json:"Actual Rows"` // 10.00 since PostgreSQL 18
			Buffers int     `json:"Shared Hit Blocks"`
			Read    int     `json:"Shared Read Blocks"`
		}
	}
	if err := pool.QueryRow(t.Context(), "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+s.sql.claim,
		pgtable.LaneBits(lanes), 1000, []int64{}, [][16]byte{}).Scan(&plan); err != nil {
		t.Fatal(err)
	}
	if p := plan[0].Plan; p.Rows != 10 || p.Buffers+p.Read > 1000 {
		t.Errorf("%v rows for %d pages, want 10 for at most 1000", p.Rows, p.Buffers+p.Read)
	}
}
