package postgres_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/store/postgres"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

// numbered is a table and the statement that writes an event of one key, with its number as $1.
type numbered struct {
	layout          outbox.Layout
	insert, setUp   string
	position, drawn string // the column that a sequence draws, and the sequence
	unique          bool   // the database refuses a position that is repeated
}

func numberedTables() []numbered {
	deliveries := outbox.DeliveriesOf("outbox_events", "a")
	return []numbered{
		{layout: outbox.OutboxEvents(), position: "position", drawn: "outbox_events_position_seq",
			insert: "INSERT INTO outbox_events (event_topic, occurred_at, source_bc, aggregate_type, aggregate_id, payload) " +
				"VALUES ('t', now(), 's', 'K', 'k', $1::text::jsonb)"},
		{layout: outbox.EventOutbox(), position: "position", drawn: "event_outbox_position_seq",
			insert: "INSERT INTO event_outbox (app_id, event_id, event_type, payload) " +
				"SELECT id, outbox_uuidv7(), 't', $1::text::jsonb FROM apps"},
		{layout: outbox.CrawlOutbox(), position: "id", drawn: "crawl_outbox_id_seq", unique: true,
			setUp: "INSERT INTO crawl_runs (tenant_id, app_package) VALUES ('default', 'p')",
			insert: "INSERT INTO crawl_outbox (crawl_id, event_type, payload) SELECT id, 't', $1::text::jsonb " +
				"FROM crawl_runs"},
		{layout: deliveries, position: "position", drawn: "outbox_deliveries_position_seq", unique: true,
			insert: "INSERT INTO outbox_deliveries (outbox_table, sink, lane, order_key, event_id, destinations, " +
				"event_topic, payload, written_at) VALUES ('outbox_events', 'a', 1, 7, outbox_uuidv7(), '[\"d\"]', 't', " +
				"$1::text::json, now())"},
		{layout: outbox.OutboxLog(), position: "position", drawn: "outbox_log_position_seq",
			insert: "INSERT INTO outbox_log (event_topic, occurred_at, source_bc, aggregate_type, aggregate_id, payload) " +
				"VALUES ('t', now(), 's', 'K', 'k', $1::text::jsonb)"},
	}
}

// Each number that order or uniqueness rests on is broken in each way that a switch-over, a restore
// or an ALTER can break it. A relay's role must notice, the statement in the error must repair it,
// and the events must then come in the order in which they were written.
func TestClaimRefusesNumbersThatDoNotRise(t *testing.T) {
	t.Parallel()
	pool := newPool(t, newDatabase(t, "core", "events", "crawl", "log"))
	ok(t, migrations.ApplyRoles(t.Context(), pool.Config().ConnString()))
	cfg := pool.Config()
	cfg.ConnConfig.RuntimeParams["role"] = "outbox_relay"
	serving, err := pgxpool.NewWithConfig(t.Context(), cfg)
	ok(t, err)
	t.Cleanup(serving.Close)
	for _, n := range numberedTables() {
		t.Run(n.layout.Table, func(t *testing.T) {
			written, failing := 3, t
			run := func(sql string, args ...any) {
				t.Helper()
				args = append([]any{pgx.QueryExecModeSimpleProtocol}, args...)
				if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
					failing.Fatalf("%s: %v", sql, err)
				}
			}
			if n.setUp != "" {
				run(n.setUp)
			}
			write := func(from, to int) {
				t.Helper()
				for i := from; i <= to; i++ {
					time.Sleep(2 * time.Millisecond) // the time in a UUIDv7 has milliseconds
					run(n.insert, fmt.Sprint(i))
				}
			}
			column := fmt.Sprintf("ALTER TABLE %s ALTER %s ", n.layout.Table, n.position)
			restart := "ALTER SEQUENCE " + n.drawn + " RESTART WITH 1"
			broken := map[string]func(){
				"sequence left behind":    func() { run(restart) },
				"sequence set to nothing": func() { run(fmt.Sprintf("SELECT setval('%s', 1, false)", n.drawn)) },
				"sequence that cycles":    func() { run("ALTER SEQUENCE " + n.drawn + " CYCLE") },
				"sequence that falls":     func() { run("ALTER SEQUENCE " + n.drawn + " INCREMENT BY -1") },
				"sequence with a cache":   func() { run("ALTER SEQUENCE " + n.drawn + " CACHE 20") },
				"table whose column draws no numbers": func() {
					run(`DROP POLICY IF EXISTS "producers see the row that they insert" ON ` + n.layout.Table) // it names the sequence
					run(column + "DROP IDENTITY IF EXISTS, ALTER " + n.position + " DROP DEFAULT")
				},
			}
			if !n.unique {
				broken["events written behind"] = func() { run(restart); write(4, 5); written = 5 }
				broken["positions repeated"] = func() { run(restart); write(4, 7); written = 7 }
			}
			if !n.layout.KeepsState() {
				const beyond = "(SELECT last_value + 1000 FROM outbox_log_position_seq)"
				place := "INSERT INTO outbox_log_positions (table_name, position, lanes, snapshot) VALUES ('g', "
				broken["table whose column draws no numbers"] = func() { run(column + "SET DEFAULT 7") }
				broken["rows of another server"] = func() { run("UPDATE outbox_log SET xid = '900000000'") }
				broken["place of another server"] = func() { run(place + "1, -1, '900000000:900000000:')") }
				broken["place in front of the sequence"] = func() { run(place + beyond + ", -1, '3:3:')") }
				broken["ids of places left behind"] = func() {
					run(place + "1, -1, '3:3:'), ('g', 2, -1, '3:3:')")
					run("SELECT setval('outbox_log_positions_id_seq', 1)")
				}
				broken["subscription of another server"] = func() {
					run("SELECT outbox_subscribe('s', '-infinity')")
					run("UPDATE outbox_subscriptions SET snapshot = '900000000:900000000:'")
				}
				broken["subscription in front of the sequence"] = func() {
					run("SELECT outbox_subscribe('s', '-infinity')")
					run("UPDATE outbox_subscriptions SET position = " + beyond)
				}
				broken["numbers of fetched events left behind"] = func() {
					run("SELECT outbox_subscribe('s', '-infinity'); SELECT outbox_next('s')")
					run("SELECT setval('outbox_subscription_events_number_seq', 1)")
				}
			}
			for _, premise := range slices.Sorted(maps.Keys(broken)) {
				provoke := broken[premise]
				t.Run(premise, func(t *testing.T) {
					if premise != "sequence left behind" && premise != "rows of another server" {
						tier.Full(t)
					}
					failing = t
					run("TRUNCATE " + n.layout.Table)
					if !n.layout.KeepsState() {
						run("TRUNCATE outbox_log_positions; DELETE FROM outbox_subscriptions")
					}
					written = 3
					write(1, 3)
					if got, err := claimNumbers(t, serving, n.layout); err != nil || len(got) != 3 {
						t.Fatalf("before: claimed %v, error %v", got, err)
					}
					provoke()
					refused := false
					_, err := claimNumbers(t, serving, n.layout)
					for repairs := 0; err != nil && repairs < 3; repairs++ { // one repair may be of what another one made
						refusal, is := errors.AsType[*outbox.RefusedError](err)
						_, repair, says := strings.Cut(fmt.Sprint(err), " run: ")
						if !is || !refusal.Whole || !says {
							t.Fatalf("claim: got error %v, want a refusal that names a statement", err)
						}
						refused = true
						run(repair)
						if strings.Contains(repair, "IDENTITY") { // a new sequence has no grants
							ok(t, migrations.ApplyRoles(t.Context(), pool.Config().ConnString()))
						}
						_, err = claimNumbers(t, serving, n.layout)
					}
					if err != nil || !refused {
						t.Fatalf("claim: error %v; want one before the repair, and none after it", err)
					}
					write(written+1, written+1)
					got, err := claimNumbers(t, serving, n.layout)
					var want []string
					for i := range written + 1 {
						want = append(want, fmt.Sprint(i+1))
					}
					if err != nil || !slices.Equal(got, want) {
						t.Errorf("after the repair: claimed %v, want %v (%v)", got, want, err)
					}
				})
			}
		})
	}
}

// claimNumbers claims all events, as a relay that starts does.
func claimNumbers(t *testing.T, pool *pgxpool.Pool, layout outbox.Layout) (numbers []string, err error) {
	t.Helper()
	s, err := postgres.NewDB(pool).OpenTable(t.Context(), layout)
	if err != nil {
		t.Fatal(err)
	}
	lanes := make([]outbox.Lane, outbox.LaneCount)
	for i := range lanes {
		lanes[i].Number = int16(i)
	}
	records, err := s.Claim(t.Context(), lanes, outbox.ClaimLimit{Records: 1000, Bytes: 8 << 20})
	for _, r := range records {
		numbers = append(numbers, string(r.Payload))
	}
	return numbers, err
}
