package postgres_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/retention"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/relay"
	"github.com/outboxrelay/outbox/store/postgres"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

func TestRetentionRefusesWhatTellsNoAge(t *testing.T) {
	t.Parallel()
	o := newOld(t, "mapped", 1)
	layout := oldTables["mapped"].layout
	layout.WrittenAt = ""
	if _, err := postgres.NewDB(o.admin).OpenRetention(t.Context(), layout); !errors.Is(err, retention.ErrNoAge) ||
		!strings.Contains(err.Error(), "delivered_at or written_at") {
		t.Errorf("got error %v, want ErrNoAge with a remedy", err)
	}
	o.exec("DROP TABLE outbox_archive")
	var schema *outbox.SchemaError
	if _, err := postgres.NewDB(o.admin).OpenRetention(t.Context(), outbox.OutboxEvents()); !errors.As(err, &schema) ||
		!strings.Contains(err.Error(), "outbox migrate up --set core") {
		t.Errorf("got error %v, want a SchemaError with a remedy", err)
	}
}

// as returns a pool whose sessions are of a role made for this test, and the role's name.
func (o *old) as(role string, grants ...string) *pgxpool.Pool {
	o.t.Helper()
	name := role + "_" + one[string](o.t, o.admin, "SELECT current_database()")
	o.exec("CREATE ROLE " + name)
	o.t.Cleanup(func() {
		_, err := o.admin.Exec(context.WithoutCancel(o.t.Context()), "DROP OWNED BY "+name+"; DROP ROLE "+name)
		if err != nil {
			o.t.Error(err)
		}
	})
	for _, g := range grants {
		o.exec(strings.ReplaceAll(g, "ROLE", name))
	}
	return newPool(o.t, o.url, func(c *pgxpool.Config) {
		c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "SET ROLE "+name)
			return err
		}
	})
}

// replaying is a store in which an operator replays rows after they were found and before they are
// removed.
type replaying struct {
	retention.Store
	replay func(found []retention.Row)
}

func (r replaying) Remove(ctx context.Context, removal retention.Removal) (retention.Removed, error) {
	r.replay(removal.Rows)
	return r.Store.Remove(ctx, removal)
}

// A replay moves a row, and after a vacuum a later update may move it back to the place where
// retention found it. The test hands the row's new place to Remove, which must check its state
// again.
func TestRetentionKeepsRowsReplayedBeforeTheDelete(t *testing.T) {
	t.Parallel()
	o := newOld(t, "outbox_events", 0)
	for name, undelivered := range map[string]string{
		"outbox_events": "status = 'NEW', processed_at = NULL", "event_outbox": "status = 'pending', published_at = NULL",
		"crawl_outbox": "published_at = NULL", "job_dlq": "replayed_at = NULL",
	} {
		o.name = name
		if before := oldTables[name].before; before != "" {
			o.exec(before)
		}
		o.exec(oldTables[name].fill, 100)
		old, replayed := len(o.rows(oldTables[name].goes)), 0
		report, err := o.keeper(replaying{o.store(), func(found []retention.Row) {
			for i := range found[:min(3, len(found))] {
				found[i].Place = one[string](t, o.admin, "UPDATE "+name+" SET "+undelivered+
					" WHERE ctid = $1::text::tid RETURNING ctid::text", found[i].Place)
				replayed++
			}
		}}, retention.Config{}).Purge(t.Context(), 0, nil)
		ok(t, err)
		archived := one[int](t, o.admin, "SELECT count(*) FROM outbox_archive WHERE table_name = $1", name)
		if removed := 100 - len(o.rows("true")); replayed == 0 || removed != old-replayed ||
			archived != removed || report.Rows != int64(removed) {
			t.Errorf("%s: %d rows removed, %d archived and %d reported; want %d old rows without the %d replayed ones",
				name, removed, archived, report.Rows, old, replayed)
		}
	}
}

// A role that sees no rows must not report that there was nothing to do.
func TestRetentionUnderRowLevelSecurity(t *testing.T) {
	t.Parallel()
	o := newOld(t, "job_dlq", 300)
	ok(t, migrations.ApplyRoles(t.Context(), o.url))
	rights := []string{"GRANT SELECT, DELETE ON job_dlq, outbox_events TO ROLE",
		"GRANT SELECT, INSERT, UPDATE ON outbox_maintenance TO ROLE", "GRANT INSERT ON outbox_archive TO ROLE"}

	hidden := postgres.NewDB(o.as("hidden", rights...))
	if _, err := hidden.OpenRetention(t.Context(), retention.Letters()); !errors.Is(err, outbox.ErrRowsHidden) {
		t.Errorf("got error %v, want ErrRowsHidden", err)
	}
	owner := postgres.NewDB(o.as("owner", "GRANT outbox_owner TO ROLE"))
	if _, err := owner.OpenRetention(t.Context(), retention.Letters()); !errors.Is(err, outbox.ErrRowsHidden) {
		t.Errorf("got error %v as owner, want ErrRowsHidden", err)
	}
	weak := postgres.NewDB(o.as("weak", "GRANT SELECT ON outbox_events TO ROLE"))
	_, err := weak.OpenRetention(t.Context(), outbox.OutboxEvents())
	if !errors.Is(err, outbox.ErrNotAllowed) || !strings.Contains(err.Error(), "DELETE") {
		t.Errorf("got error %v, want ErrNotAllowed with the privilege", err)
	}

	seeing := append(rights, "CREATE POLICY see ON job_dlq FOR SELECT TO ROLE USING (true)")
	blind, err := postgres.NewDB(o.as("blind", seeing...)).OpenRetention(t.Context(), retention.Letters())
	ok(t, err)
	if report, err := o.keeper(blind, retention.Config{}).Purge(t.Context(), 0, nil); err == nil ||
		!strings.Contains(err.Error(), "row-level security") {
		t.Errorf("got %+v, error %v from a role that sees rows and may not delete them", report, err)
	}
	granted := postgres.NewDB(o.as("relay", "GRANT outbox_relay TO ROLE"))
	relay, err := granted.OpenRetention(t.Context(), retention.Letters())
	ok(t, err)
	want := len(o.rows(oldTables["job_dlq"].goes))
	if report, err := o.keeper(relay, retention.Config{}).Purge(t.Context(), 0, nil); err != nil ||
		report.Rows != int64(want) || want == 0 {
		t.Errorf("got %+v, error %v, want %d rows", report, err, want)
	}
	// And on these it has the rights it needs.
	for _, name := range []string{"outbox_events", "event_outbox", "crawl_outbox"} {
		s, err := postgres.NewDB(o.as("relay_"+name, "GRANT outbox_relay TO ROLE")).OpenRetention(t.Context(),
			oldTables[name].layout)
		ok(t, err)
		_, err = (&old{t: t, name: name}).keeper(s, retention.Config{}).Purge(t.Context(), 0, nil)
		ok(t, err)
	}
}

// What an upgraded table holds: delivered, but by a program that did not note when.
func TestRetentionOfRowsWithoutATimeOfDelivery(t *testing.T) {
	t.Parallel()
	o := newOld(t, "outbox_events", 0)
	o.exec(`INSERT INTO outbox_events (event_topic, occurred_at, source_bc, payload, status, created_at)
		SELECT 't', now(), 'bc', '{}', s, now() - a * interval '1 day' FROM unnest(ARRAY['SENT', 'NEW', 'DEAD']) s, unnest(ARRAY[6, 8]) a`)
	report, err := o.keeper(o.store(), retention.Config{}).Purge(t.Context(), 0, nil)
	ok(t, err)
	if left := o.rows("status = 'SENT'"); report.Rows != 1 || len(left) != 1 || len(o.rows("true")) != 5 {
		t.Errorf("got %+v and %d of both SENT rows left", report, len(left))
	}
}

// takeAll is a sink that takes everything.
type takeAll struct{}

func (takeAll) Publish(_ context.Context, batch []outbox.Delivery) []outbox.Result {
	return make([]outbox.Result, len(batch))
}

// A relay that drains the table at the same time loses nothing to retention, and retention nothing
// to it. Here rows are old a moment after delivery.
func TestRetentionBesideARelay(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	o := newOld(t, "outbox_events", 0)
	db, err := postgres.Connect(t.Context(), o.url, postgres.Config{})
	ok(t, err)
	t.Cleanup(db.Close)
	relay, err := relay.New(db, takeAll{}, relay.Config{
		Logger:    slog.New(slog.DiscardHandler),
		Retention: outbox.Retention{After: 50 * time.Millisecond, Every: 10 * time.Millisecond, Batch: 100},
	})
	ok(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = relay.Run(ctx) })
	const events = 1500
	for range 30 {
		o.exec(`INSERT INTO outbox_events (event_topic, occurred_at, source_bc, payload, aggregate_type, aggregate_id) SELECT 't', now(), 'bc', '{}', 'a', n % 7 FROM generate_series(1, $1) n`, events/30)
		time.Sleep(10 * time.Millisecond)
	}
	eventually(t, "all are archived",
		func() bool { return one[int](t, o.admin, "SELECT count(*) FROM outbox_archive") == events })
	cancel()
	running.Wait()
	if n := one[int](t, o.admin,
		"SELECT count(*) FROM outbox_archive WHERE row->>'status' = 'SENT' AND row->>'processed_at' IS "+
			"NOT NULL"); n != events || len(o.rows("true")) != 0 {
		t.Errorf("%d of %d archived as delivered, %d still in the table", n, events, len(o.rows("true")))
	}
}

func TestRetentionStopsAtOnceAndGoesOnLater(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	o := newOld(t, "event_outbox", 6000)
	goes := oldTables[o.name].goes
	k := o.keeper(o.store(), retention.Config{Batch: 5})
	ctx, cancel := context.WithCancel(t.Context())
	var stopped int64
	report, err := k.Purge(ctx, 0, func(r retention.Report) {
		if stopped == 0 && r.Rows >= 50 {
			stopped = r.Rows
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || stopped == 0 || report.Rows > stopped+5 {
		t.Fatalf("got %+v, error %v, after being stopped at %d rows", report, err, stopped)
	}
	left := len(o.rows(goes))
	if left == 0 {
		t.Fatal("nothing was left to interrupt")
	}
	// The lease was given up; meanwhile more may have grown old.
	if report, err = k.Purge(t.Context(), 0, nil); err != nil || report.Rows < int64(left) {
		t.Errorf("got %+v, error %v, want %d rows or more", report, err, left)
	}
}

func TestRetentionStatementsAreServedByIndexes(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	for name, index := range map[string]string{
		"outbox_events": "outbox_events_pkey", "event_outbox": "event_outbox_event_id_key",
		"crawl_outbox": "crawl_outbox_pkey", "job_dlq": "job_dlq_replayed",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOld(t, name, 2000) // without statistics, and below with them
			for range 2 {
				plans := postgres.ExplainRetention(t, o.admin, o.store())
				for what, plan := range map[string][2]string{"walk": {index, plans.Walk},
					"sweep": {"Tid Range Scan on", plans.Sweep}, "remove": {"Tid Scan on", plans.Remove}} {
					if !strings.Contains(plan[1], plan[0]) || strings.Contains(plan[1], "Seq Scan") {
						t.Errorf("%s of %s does not use %s:\n%s", what, name, plan[0], plan[1])
					}
				}
				o.exec("ANALYZE")
			}
		})
	}
}

// hasty is a store whose process is told to stop while its lease is being asked for.
type hasty struct {
	retention.Store
	stop context.CancelFunc
}

func (h *hasty) Lease(ctx context.Context, request retention.LeaseRequest) (retention.Lease, error) {
	h.stop()
	return h.Store.Lease(ctx, request)
}

func TestRetentionStoppedWhileItAsksForTheLease(t *testing.T) {
	t.Parallel()
	o := newOld(t, "crawl_outbox", 100)
	ctx, cancel := context.WithCancel(t.Context())
	ok(t, o.keeper(&hasty{o.store(), cancel}, retention.Config{}).Run(ctx))
	if free := one[bool](t, o.admin, "SELECT ran_at IS NOT NULL AND owner IS NULL FROM outbox_maintenance"); !free {
		t.Error("the lease was granted and not given up")
	}
}
