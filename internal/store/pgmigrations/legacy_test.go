package pgmigrations_test

import (
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/outboxtest"
	"github.com/outboxrelay/outbox/relay"
)

// legacyTable is the table of before ADR-004, as docs/seeds.md#adr-004 has it: with the ids of its
// day (random), a bare TIMESTAMP, a status too short for FAILED and a check that knows no DEAD.
const legacyTable = `
CREATE TABLE outbox (
    id           UUID PRIMARY KEY,
    tenant_id    VARCHAR(64),
    aggregate_id KEYTYPE,
    type         VARCHAR(255) NOT NULL,
    schema_id    VARCHAR(128),
    schema_ver   INT NOT NULL DEFAULT 1,
    payload      JSONB NOT NULL,
    status       VARCHAR(5) NOT NULL DEFAULT 'NEW' CONSTRAINT status_known CHECK (status IN ('NEW', 'SENT', 'ERR')),
    retry_cnt    INT NOT NULL DEFAULT 0,
    created_at   TIMESTAMP NOT NULL DEFAULT now()
)`

const legacyRows = 12000

// oldInsert is that of the program that wrote the table.
const oldInsert = `INSERT INTO outbox (id, tenant_id, aggregate_id, type, schema_id, schema_ver, payload, status)
	VALUES (gen_random_uuid(), $1, gen_random_uuid()::KEYTYPE, 'order.placed', 'schema', 2, '{}', 'NEW')`

// legacyDatabase has that table with 12,000 rows in the order of n, and a copy of them named
// before.
func legacyDatabase(t *testing.T, key string) (string, *pgx.Conn) {
	t.Helper()
	url := testenv.Database(t)
	conn := connect(t, url)
	run(t, conn, strings.ReplaceAll(legacyTable, "KEYTYPE", key))
	run(t, conn, `INSERT INTO outbox
		SELECT gen_random_uuid(), CASE WHEN n % 100 = 0 THEN NULL ELSE 'tenant' || n % 3 END,
		       CASE WHEN n % 10 <> 0 THEN md5((n % 50)::text)::uuid::`+key+` END,
		       'order.placed.' || n % 7, 'schema', n % 4, jsonb_build_object('n', n),
		       (ARRAY['NEW', 'SENT', 'SENT', 'ERR'])[1 + n % 4], n % 6, now()::timestamp - ($1 - n / 2) * interval '1 second'
		  FROM generate_series(1, $1::int) AS n ORDER BY random()`, legacyRows)
	run(t, conn, "CREATE TABLE before AS TABLE outbox")
	return url, conn
}

// psql runs a file as the documentation says.
func psql(t *testing.T, url, file string) error {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "psql", "--quiet", "--no-psqlrc", "-v", "ON_ERROR_STOP=1", "-f",
		"../../../deploy/postgres/"+file, url)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Logf("%s: %s", file, out)
	}
	return err
}

// The older outbox is upgraded while its old writer writes, by one file that can be run twice; a
// relay delivers it, in order; and the other file gives it back as it was, with the rows of now.
func TestLegacyUpgrade(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"VARCHAR(128)", "UUID"} {
		t.Run(key, func(t *testing.T) {
			if key == "UUID" {
				tier.Full(t)
			}
			t.Parallel()
			url, conn := legacyDatabase(t, key)
			up(t, url, "core")
			before := shaped(t, conn)
			ended := make(chan struct{})
			var writing sync.WaitGroup
			var late int
			old := connect(t, url)
			writing.Go(func() {
				for {
					select {
					case <-ended:
						return
					case <-time.After(time.Millisecond):
					}
					if _, err := old.Exec(t.Context(), strings.ReplaceAll(oldInsert, "KEYTYPE", key), "late"); err != nil {
						t.Error(err)
						return
					}
					late++
				}
			})
			for range 2 {
				if err := psql(t, url, "upgrade-outbox.sql"); err != nil {
					t.Fatal(err)
				}
			}
			close(ended)
			writing.Wait()
			checkUpgraded(t, conn, late)
			deliverUpgraded(t, url, conn)

			if err := psql(t, url, "downgrade-outbox.sql"); err != nil {
				t.Fatal(err)
			}
			if got := shaped(t, conn); !slices.Equal(got, before) {
				t.Errorf("given back as\n%s\nwas\n%s", strings.Join(got, "\n"), strings.Join(before, "\n"))
			}
			if e := refusal(t, conn, "23514", "UPDATE outbox SET status = 'DEAD'"); e.ConstraintName != "status_known" {
				t.Errorf("DEAD is refused by %s", e.ConstraintName)
			}
			if n := one[int](t, conn, `SELECT count(*) FROM outbox o JOIN before b USING (id) WHERE o.type = b.type AND
				o.schema_ver = b.schema_ver AND o.created_at = b.created_at AND o.status = CASE b.status WHEN 'NEW' THEN 'SENT' ELSE
				b.status END`); n != legacyRows {
				t.Errorf("%d rows of %d are as they were", n, legacyRows)
			}
			run(t, conn, strings.ReplaceAll(oldInsert, "KEYTYPE", key), "after")
		})
	}
}

// shaped is the catalog, but for the words of status_known: PostgreSQL has others for what it has
// printed itself.
func shaped(t *testing.T, conn *pgx.Conn) []string {
	t.Helper()
	return slices.DeleteFunc(catalog(t, conn), func(line string) bool { return strings.Contains(line, "status_known") })
}

// checkUpgraded compares the rows with the copy (ADR-004, lines 75-79 and 124-127; ERR -> DEAD),
// and writes as old and new programs do.
func checkUpgraded(t *testing.T, conn *pgx.Conn, late int) {
	t.Helper()
	same := one[int](t, conn, `SELECT count(*) FROM outbox o JOIN before b USING (id)
		 WHERE o.tenant_id = coalesce(b.tenant_id, 'default') AND o.aggregate_id IS NOT DISTINCT FROM b.aggregate_id
		   AND o.type = b.type AND o.event_topic = b.type AND o.schema_id = b.schema_id AND o.schema_version = b.schema_ver
		   AND o.payload = b.payload AND o.status = CASE b.status WHEN 'ERR' THEN 'DEAD' ELSE b.status END
		   AND o.retry_count = b.retry_cnt AND o.created_at = b.created_at AND o.occurred_at = b.created_at
		   AND o.source_bc = 'default' AND o.generation = 0
		   AND o.processed_at IS NOT DISTINCT FROM CASE b.status WHEN 'SENT' THEN b.created_at END
		   AND num_nulls(o.aggregate_type, o.destination_topics, o.metadata, o.next_retry_at, o.error_message) = 5`)
	if all := one[int](t, conn, "SELECT count(*) FROM outbox"); same != legacyRows || all != legacyRows+late || late == 0 {
		t.Errorf("%d of %d rows are as they should be, and there are %d, %d of them written meanwhile", same, legacyRows, all,
			late)
	}
	if got := one[string](t, conn, `SELECT concat_ws(' ', count(DISTINCT position) = count(*), bool_and(earlier IS NULL OR
		earlier <= created_at)) FROM (SELECT position, created_at, lag(created_at) OVER (ORDER BY position) AS earlier
		FROM outbox WHERE id IN (SELECT id FROM before)) AS v`); got != "t t" {
		t.Errorf("positions unique, in order of creation: %s", got)
	}
	if n := one[int](t, conn, `SELECT count(*) FROM outbox WHERE tenant_id = 'late' AND position > (SELECT max(position) FROM
		outbox JOIN before USING (id)) AND event_topic = 'order.placed' AND schema_version = 2 AND occurred_at = created_at`); n !=
		late {
		t.Errorf("%d of %d rows that came in meanwhile are whole", n, late)
	}
	run(t, conn, `INSERT INTO outbox (id, event_topic, occurred_at, source_bc, schema_version, payload)
		VALUES ('00000000-0000-7000-8000-000000000001', 'product.created', now(), 'catalog', 3, '{}')`)
	if n := one[int](t, conn, `SELECT count(*) FROM outbox WHERE type = 'product.created' AND schema_ver = 3`); n != 1 {
		t.Error("who reads the old columns does not see what a new writer has written")
	}
	if e := refusal(t, conn, "23514", "UPDATE outbox SET status = 'LOST'"); e.ConstraintName != "outbox_adr004" {
		t.Errorf("LOST is refused by %s", e.ConstraintName)
	}
	run(t, conn, "SET enable_seqscan = off")
	p, _ := explain(t, conn, "SELECT * FROM outbox WHERE status IN ('NEW', 'FAILED') ORDER BY position LIMIT 10")
	if p.Rows != 10 || p.nodes() != "Limit < Index Scan using outbox_undelivered" {
		t.Errorf("the claim: %.0f rows by %s", p.Rows, p.nodes())
	}
	run(t, conn, "RESET enable_seqscan")
}

// deliverUpgraded has a relay deliver what is NEW, in the order of each key, with the time that it
// happened.
func deliverUpgraded(t *testing.T, url string, conn *pgx.Conn) {
	t.Helper()
	db := relaying(t, url)
	t.Cleanup(db.Close)
	layout := outbox.OutboxEvents()
	layout.Table = "outbox"
	waiting := one[int](t, conn, "SELECT count(*) FROM outbox WHERE status = 'NEW'")
	messages := outboxtest.Relay(t, db, func(cfg *relay.Config) { cfg.Tables = []relay.Table{{Layout: layout}} })
	last := map[string]time.Time{}
	for range waiting {
		m := messages.Next(t)
		key := m.TenantID + "/" + m.AggregateID
		if m.AggregateID != "" && m.OccurredAt.Before(last[key]) {
			t.Fatalf("event %s of key %s overtook another", m.ID, key)
		}
		last[key] = m.OccurredAt
		if age := time.Since(m.OccurredAt); age < -time.Minute || age > 4*time.Hour {
			t.Fatalf("event %s has the time %v", m.ID, m.OccurredAt)
		}
	}
	for deadline := time.Now().Add(tier.Patience()); ; time.Sleep(20 * time.Millisecond) {
		if n := one[int](t, conn, "SELECT count(*) FROM outbox WHERE status = 'NEW'"); n == 0 || time.Now().After(deadline) {
			if n != 0 {
				t.Errorf("%d are not settled", n)
			}
			return
		}
	}
}

// A table that does not fit is refused before anything is changed; after the seed's own SQL the
// columns that it made stay when the upgrade is taken back.
func TestLegacyAfterTheSeedsOwnSQL(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	url, conn := legacyDatabase(t, "VARCHAR(128)")
	run(t, conn, `ALTER TABLE outbox ADD COLUMN event_topic VARCHAR(150), ADD COLUMN occurred_at TIMESTAMP,
		ADD COLUMN aggregate_type VARCHAR(100), ADD COLUMN source_bc VARCHAR(50), ADD COLUMN destination_topics JSONB,
		ADD COLUMN metadata JSONB, ADD COLUMN next_retry_at TIMESTAMP, ADD COLUMN error_message TEXT,
		ADD COLUMN processed_at TIMESTAMP`)
	run(t, conn, "UPDATE outbox SET event_topic = type, occurred_at = created_at, source_bc = 'default'")
	before := shaped(t, conn)
	run(t, conn, "INSERT INTO outbox (id, type, payload) VALUES (gen_random_uuid(), repeat('x', 151), '{}')")
	if psql(t, url, "upgrade-outbox.sql") == nil || !slices.Equal(shaped(t, conn), before) {
		t.Error("a topic of 151 characters: not refused, or something was changed")
	}
	run(t, conn, "DELETE FROM outbox WHERE length(type) > 150")
	if err := psql(t, url, "upgrade-outbox.sql"); err != nil {
		t.Fatal(err)
	}
	if n := one[int](t, conn, `SELECT count(*) FROM outbox WHERE event_topic = type AND position IS NOT NULL AND
		schema_version = schema_ver`); n != legacyRows {
		t.Errorf("%d of %d rows are filled", n, legacyRows)
	}
	if err := psql(t, url, "downgrade-outbox.sql"); err != nil {
		t.Fatal(err)
	}
	if got := shaped(t, conn); !slices.Equal(got, before) {
		t.Errorf("given back as\n%s\nwas\n%s", strings.Join(got, "\n"), strings.Join(before, "\n"))
	}
	if psql(t, url, "downgrade-outbox.sql") == nil {
		t.Error("taken back twice")
	}
}
