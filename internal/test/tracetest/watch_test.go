package tracetest_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tracetest"
)

func TestMain(m *testing.M) { testenv.Main(m) }

const (
	lanes = `INSERT INTO outbox_lanes (table_name, lane) SELECT 'outbox_events', generate_series(0, 63);`
	write = `INSERT INTO outbox_events (event_topic, occurred_at, aggregate_type, aggregate_id, source_bc, payload)
		SELECT 't', now(), 'Order', 'k', 's', jsonb_build_object('n', n) FROM generate_series(1, 2) n;`
	lease   = `UPDATE outbox_lanes SET owner = gen_random_uuid(), epoch = epoch + 1, expires_at = now();`
	first   = ` WHERE payload ->> 'n' = '1';`
	second  = ` WHERE payload ->> 'n' = '2';`
	sent    = `UPDATE outbox_events SET status = 'SENT'`
	failed  = `UPDATE outbox_events SET status = 'FAILED', retry_count = retry_count + 1`
	dead    = `UPDATE outbox_events SET status = 'DEAD', retry_count = retry_count + 1`
	again   = `UPDATE outbox_events SET status = 'NEW', retry_count = 0`
	replay  = again + `, generation = generation + 1`
	edit    = `UPDATE outbox_events SET metadata = '{}'`
	later   = `UPDATE outbox_events SET next_retry_at = now()`
	effect1 = `INSERT INTO effects VALUES ('k', 1);`
	effect2 = `INSERT INTO effects VALUES ('k', 2);`

	forgets = "where settles are lost, "
)

// What the database has had is accepted where relays may have done it, and rejected where a rule
// was broken.
func TestWatched(t *testing.T) {
	for _, tt := range []struct {
		name, does string
		wrong      bool
	}{
		{"both at once", lease + write + sent + ";" + effect1 + effect2, false},
		{"one after the other", lease + write + sent + first + effect1 + sent + second + effect2, false},
		{"taken over between", lease + write + sent + first + lease + sent + second + effect1 + effect2, false},
		{"tried again", lease + write + failed + first + failed + first + failed + first + sent + ";" + effect1 +
			effect2, false},
		{"dead at once, replayed", lease + write + dead + first + sent + second + replay + first + sent + first +
			effect1 + effect2, false},
		{"both at once, the second row first and an effect between", lease + write + "BEGIN;" + sent + second + effect1 +
			sent + first + "COMMIT;" + effect2, false},
		{"the second row first, and then the first, which was edited", lease + write + edit + first + sent + second + sent +
			first + effect1 + effect2, false},
		{"edited, and the second is past a failure of the first", lease + write + edit + first + failed + first + sent +
			second + sent + first + effect1 + effect2, true},
		{"the second is tried again, left for later", lease + write + sent + first + failed + second + later + second +
			sent + second + effect1 + effect2, false},
		{"the second is tried again, edited", lease + write + sent + first + failed + second + edit + second + sent +
			second + effect1 + effect2, false},
		{"delivered and removed", lease + write + "DELETE FROM outbox_events;" + effect1 + effect2, false},
		{"removed later", lease + write + sent + ";DELETE FROM outbox_events;" + effect1 + effect2, false},
		{"not delivered", lease + write + sent + first + effect1 + effect2, true},
		{"the second without the first", lease + write + sent + second + sent + first + effect1 + effect2, true},
		{"past a failure", lease + write + failed + first + sent + second + sent + first + effect1 + effect2, true},
		{"settled without a lease", write + sent + ";" + effect1 + effect2, true},
		{"published again, the same generation", lease + write + sent + ";" + again + first + sent + first +
			effect1 + effect2, true},
		{"no effect", lease + write + sent + ";" + effect1, true},
		{"two effects", lease + write + sent + ";" + effect1 + effect2 + effect2, true},
		{"an attempt is forgotten", lease + write + failed + first + again + first + sent + ";" + effect1 + effect2, true},
		{forgets + "the second without the first", lease + write + sent + second + sent + first, false},
		{forgets + "not delivered", lease + write + sent + second, true},
		{forgets + "settled without a lease", write + sent + ";", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			url := testenv.Prepared(t, "core",
				func(ctx context.Context, url string) error { return pgmigrations.Up(ctx, url, "core") })
			db, err := pgxpool.New(t.Context(), url)
			must(t, err)
			defer db.Close()
			conn, err := db.Acquire(t.Context())
			must(t, err)
			defer conn.Release()
			exec := func(statements string) {
				t.Helper()
				_, err := conn.Exec(t.Context(), statements)
				must(t, err)
			}
			exec("CREATE TABLE effects (key text, n int);" + lanes)
			must(t, tracetest.Watch(t.Context(), db, "effects", "k"))
			for _, statement := range strings.SplitAfter(tt.does, ";") {
				exec(statement)
			}
			lost := strings.HasPrefix(tt.name, forgets)
			asked, err := tracetest.Watched(t.Context(), db, !lost, lost)
			if asked != 1 || (err != nil) != tt.wrong {
				t.Errorf("asked of %d pairs: %v", asked, err)
			}
			t.Log(err)
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
