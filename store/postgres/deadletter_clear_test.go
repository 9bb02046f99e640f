package postgres

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/test/tabletest"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

// All of an operator's work, as outbox_operator and nothing else.
func TestOperatorRole(t *testing.T) {
	t.Parallel()
	pool := browsed(t)
	if err := migrations.ApplyRoles(t.Context(), pool.Config().ConnString()); err != nil {
		t.Fatal(err)
	}
	events, bus, crawl := burying(t, pool, outbox.OutboxEvents()), burying(t, pool, outbox.EventOutbox()),
		burying(t, pool, outbox.CrawlOutbox())
	writeOrders(t, pool, 3, "a")
	exec(t, pool,
		`INSERT INTO event_outbox (app_id, event_id, event_type, payload) SELECT id, outbox_uuidv7(), 't', '1' FROM apps`)
	exec(t, pool, `INSERT INTO crawl_runs (id, app_package) VALUES ('00000000-0000-0000-0000-000000000001', 'shop')`)
	exec(t, pool,
		`INSERT INTO crawl_outbox (crawl_id, event_type, payload) VALUES ('00000000-0000-0000-0000-000000000001', 'NODE', '1')`)
	for _, u := range []tabletest.Undertaker{events, bus, crawl} {
		u.Settle(tabletest.DieAt("t"))
	}
	cfg := pool.Config()
	cfg.ConnConfig.RuntimeParams["role"] = "outbox_operator"
	own, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	d := openLetters(t, own)
	if _, err := d.Preview(t.Context(), deadletter.Selection{}, time.Minute); err != nil {
		t.Error(err)
	}
	if n, err := deadletter.Discard(t.Context(), d,
		deadletter.Selection{IDs: []uuid.UUID{query[uuid.UUID](t, pool,
			`SELECT id FROM job_dlq WHERE event_key = 'a' LIMIT 1`)}}, operator); err != nil || n != 1 {
		t.Errorf("discarded %d, error %v", n, err)
	}
	one := choose(query[uuid.UUID](t, pool,
		`SELECT id FROM job_dlq WHERE event_key = 'a' AND discarded_at IS NULL LIMIT 1`))
	one.Payload = json.RawMessage(`2`)
	if sum := replay(t, d, one); sum.Letters != 1 {
		t.Errorf("with a payload: %+v", sum)
	}
	if sum := replay(t, d, deadletter.ReplayOptions{Selection: deadletter.Selection{All: true}}); sum.Letters != 3 ||
		sum.Skipped != 0 || len(sum.Tables) != 3 {
		t.Errorf("replayed %+v", sum)
	}
	if _, err := d.Stats(t.Context(), deadletter.Filter{}); err != nil {
		t.Error(err)
	}
	if n, err := (deadletter.Purge{}).Run(t.Context(), d, operator); err != nil || n != 4 {
		t.Errorf("purged %d, error %v", n, err)
	}
	if actions, _, err := d.Actions(t.Context(), deadletter.ActionFilter{}); err != nil || len(actions) != 4 {
		t.Errorf("actions %+v, error %v", actions, err)
	}
	// What was replayed is undelivered again, and dies again.
	for i, u := range []tabletest.Undertaker{events, bus, crawl} {
		if died := u.Settle(tabletest.DieAt("t")); len(died) == 0 {
			t.Errorf("the replayed event of table %d is not undelivered", i)
		}
	}
	exec(t, pool, `DELETE FROM job_dlq`)
	exec(t, pool, `UPDATE outbox_events SET tenant_id = 'newcomer'`)
	if n, err := deadletter.Collect(t.Context(), d, "outbox_events", operator); err != nil || n != 3 {
		t.Errorf("collected %d, error %v, want the three rows without a letter", n, err)
	}
	for _, sql := range []string{`UPDATE outbox_audit SET actor = 'x'`, `DELETE FROM outbox_audit`,
		`DELETE FROM outbox_events`, `UPDATE job_dlq SET payload = '1'`,
		`INSERT INTO event_outbox (event_type) VALUES ('t')`} {
		if _, err := own.Exec(t.Context(), sql); err == nil || !strings.Contains(err.Error(), "42501") {
			t.Errorf("%s: got %v, want it refused", sql, err)
		}
	}
}
