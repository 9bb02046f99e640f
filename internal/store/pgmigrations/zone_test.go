package pgmigrations_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/outboxtest"
	"github.com/outboxrelay/outbox/relay"
	"github.com/outboxrelay/outbox/store/postgres"
)

// newYork is a database in New York's zone with ADR-004's literal table.
func newYork(t *testing.T) (string, *pgx.Conn) {
	t.Helper()
	url, conn := seeds()["ADR-004"].before(t, 0)
	run(t, conn, "DO $do$ BEGIN EXECUTE "+
		"format('ALTER DATABASE %I SET timezone = ''America/New_York''', current_database()); END $do$")
	return url, connect(t, url)
}

// in is a database's URL whose sessions are in a zone, as with PGTZ.
func in(t *testing.T, databaseURL, zone string) string {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("timezone", zone)
	u.RawQuery = q.Encode()
	return u.String()
}

const (
	insertNow = `INSERT INTO outbox_events (id, event_topic, occurred_at, aggregate_id, aggregate_type, source_bc, payload,
			status, next_retry_at)
		VALUES ($1, 'order.placed', now(), 'a', 'Order', 'shop', '{}', $2, now())`
	zoneOf = "SELECT coalesce(obj_description('outbox_lanes'::regclass), '')"
)

// The application's sessions are in UTC, and the database is in New York: up finds out, and a relay
// delivers what is due at once, with the time that it happened, whatever the zone of its own
// session.
func TestTimesMeanWhatTheApplicationMeant(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	for name, relay := range map[string]func(*testing.T, string) *postgres.DB{
		"the database's zone": func(t *testing.T, url string) *postgres.DB { return relaying(t, url) },
		"PGTZ":                func(t *testing.T, url string) *postgres.DB { return relaying(t, in(t, url, "Asia/Tokyo")) },
		"a pool of the caller's": func(t *testing.T, url string) *postgres.DB {
			pool, err := pgxpool.New(t.Context(), in(t, url, "Asia/Tokyo"))
			if err != nil {
				t.Fatal(err)
			}
			return postgres.NewDB(pool)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, _ := newYork(t)
			application := connect(t, in(t, url, "UTC"))
			retried, fresh := uuid.New(), uuid.New()
			run(t, application, insertNow, retried, "FAILED")
			up(t, url)
			run(t, application, insertNow, fresh, "NEW")
			db := relay(t, url)
			t.Cleanup(db.Close)
			messages := outboxtest.Relay(t, db)
			got := map[uuid.UUID]time.Time{}
			for range 2 {
				m := messages.Next(t)
				var body struct{ Time time.Time }
				if err := json.Unmarshal(m.Body, &body); err != nil {
					t.Fatalf("%v: %s", err, m.Body)
				}
				got[m.ID] = body.Time
			}
			for _, id := range []uuid.UUID{retried, fresh} {
				if time.Since(got[id]).Abs() > 5*time.Minute {
					t.Errorf("an event of now has the time %v", got[id])
				}
			}
			var latency time.Duration
			settled := "SELECT max(processed_at - created_at) FROM outbox_events WHERE status = 'SENT' HAVING count(*) = 2"
			for deadline := time.Now().Add(tier.Patience()); ; time.Sleep(20 * time.Millisecond) {
				err := application.QueryRow(t.Context(), settled).Scan(&latency)
				if err == nil || time.Now().After(deadline) {
					if err != nil || latency < 0 || latency > 5*time.Minute {
						t.Errorf("delivered %v after it was written: %v", latency, err)
					}
					return
				}
			}
		})
	}
}

func relaying(t *testing.T, url string) *postgres.DB {
	t.Helper()
	db, err := postgres.Connect(t.Context(), url, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// A retry that one relay writes is due at the same instant to another, be they in different zones
// by PGTZ or by role, connected directly or through a pooler.
func TestRetriesAreDueAlikeInAllZones(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	url, conn := newYork(t)
	application := connect(t, in(t, url, "UTC"))
	run(t, application, insertNow, uuid.New(), "SENT")
	up(t, url)
	role := fmt.Sprintf("utc_%x", time.Now().UnixNano())
	run(t, conn, fmt.Sprintf("CREATE ROLE %s SUPERUSER LOGIN; ALTER ROLE %s SET timezone = 'UTC'", role, role))
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), url)
		if err == nil {
			_, err = conn.Exec(context.Background(), "DROP ROLE "+role)
		}
		if err != nil {
			t.Error(err)
		}
	})
	_, through := testenv.Pooled(t, nil)
	sessions := []struct{ name, url string }{
		{"PGTZ of Tokyo", in(t, url, "Asia/Tokyo")}, {"the database's", url}, {"a role in UTC", loginAs(t, url, role)},
		{"PGTZ of Tokyo through a pooler", in(t, through(url), "Asia/Tokyo")},
	}
	for i, first := range sessions {
		second := sessions[(i+1)%len(sessions)]
		t.Run(first.name+", then "+second.name, func(t *testing.T) {
			id := uuid.New()
			run(t, application, insertNow, id, "NEW")
			db := relaying(t, first.url)
			t.Cleanup(db.Close)
			sink := outbox.SinkFunc(func(context.Context, outbox.Delivery) error { return errors.New("not now") })
			relay, err := relay.New(db, sink, relay.Config{})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- relay.Run(ctx) }()
			var due float64
			for deadline := time.Now().Add(tier.Patience()); ; time.Sleep(5 * time.Millisecond) {
				err := application.QueryRow(t.Context(), "SELECT extract(epoch FROM next_retry_at - now()::timestamp)::float8 "+
					"FROM outbox_events WHERE id = $1 AND retry_count > 0", id).Scan(&due)
				if err == nil || time.Now().After(deadline) {
					if err != nil || due > 60 || due < -60 {
						t.Errorf("the retry is due in %v s (%v)", due, err)
					}
					break
				}
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			db = relaying(t, second.url)
			t.Cleanup(db.Close)
			if got := outboxtest.Relay(t, db).Next(t); got.ID != id {
				t.Errorf("got event %s, want %s", got.ID, id)
			}
		})
	}
}

func loginAs(t *testing.T, databaseURL, role string) string {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(role)
	return u.String()
}

// up takes the zone that the newest rows fit, and refuses where they fit none or nothing tells.
func TestZoneIsFoundOrAskedFor(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	newest := func(age, zone string) string {
		return fmt.Sprintf("INSERT INTO outbox_events (id, event_topic, occurred_at, source_bc, payload, created_at) SELECT "+
			"gen_random_uuid(), 'a', t, 'b', '{}', t FROM (SELECT (now() - interval '%s') AT TIME ZONE '%s') n (t)", age, zone)
	}
	for name, tt := range map[string]struct {
		rows, asked string
		zone        string // "": refused
	}{
		"recent in UTC":              {newest("1 min", "UTC"), "", "UTC"},
		"an hour ago in UTC":         {newest("1 hour", "UTC"), "", ""},
		"recent in the database's":   {newest("1 min", "America/New_York"), "", ""}, // or hours ago in UTC
		"long ago":                   {newest("3 days", "UTC"), "", ""},
		"no row":                     {"SELECT 1", "", "America/New_York"},
		"another zone than both":     {newest("1 min", "Asia/Tokyo"), "", ""},
		"another, of which is told":  {newest("1 min", "Asia/Tokyo"), "asia/tokyo", "Asia/Tokyo"},
		"long ago, of which is told": {newest("3 days", "UTC"), "UTC", "UTC"},
		"a zone that there is not":   {newest("1 min", "UTC"), "Europe/Atlantis", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, conn := newYork(t)
			run(t, conn, tt.rows)
			before := catalog(t, conn)
			plan, err := pgmigrations.PlanIn(t.Context(), url, tt.asked)
			if err != nil {
				t.Fatal(err)
			}
			err = pgmigrations.UpIn(t.Context(), url, tt.asked)
			if tt.zone == "" {
				if !errors.Is(err, pgmigrations.ErrRefused) || len(plan.Problems) != 1 || tt.asked == "" &&
					(!strings.Contains(err.Error(), "--zone UTC") || !strings.Contains(err.Error(), "--zone America/New_York")) {
					t.Errorf("plan %+v, up: %v", plan, err)
				}
				if !slices.Equal(before, catalog(t, conn)) {
					t.Error("refused, and changed something")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if notes := strings.Join(plan.Notes, "\n"); !strings.Contains(notes, "outbox_events.next_retry_at") ||
				!strings.Contains(notes, "taken to be in "+tt.zone) {
				t.Errorf("plan: %s", notes)
			}
			var recorded string
			if err := conn.QueryRow(t.Context(), zoneOf).Scan(&recorded); err != nil ||
				!strings.HasSuffix(recorded, " "+tt.zone) {
				t.Errorf("recorded %q, %v", recorded, err)
			}
			up(t, url) // what is recorded stays
			if err := pgmigrations.UpIn(t.Context(), url, "Europe/Berlin"); err != nil {
				t.Fatal(err)
			}
			if err := conn.QueryRow(t.Context(), zoneOf).Scan(&recorded); err != nil ||
				!strings.HasSuffix(recorded, " Europe/Berlin") {
				t.Errorf("then recorded %q, %v", recorded, err)
			}
		})
	}
}
