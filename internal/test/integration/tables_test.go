package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/internal/test/tier"
)

// rows inserted by psql, no library, are delivered from each of the three tables, each to the
// channel its seed names (FR-005: run:{runId}).
func TestPlainSQLRowsAreDelivered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.relay(t, nil)
	run, app, event := uuid.New(), uuid.New(), uuid.New()
	psql := exec.Command("psql", "--quiet", "--no-psqlrc", "-v", "ON_ERROR_STOP=1", w.url)
	psql.Stdin = stdin(`
		INSERT INTO crawl_runs (id, app_package) VALUES ('%[1]s', 'com.example');
		INSERT INTO crawl_outbox (crawl_id, event_type, payload) VALUES ('%[1]s', 'RUN_STARTED', '{"n": 1}'), ('%[1]s', 'NODE_START', '{"n": 2}');
		INSERT INTO run_outbox (run_id, event_type, payload) VALUES ('%[1]s', 'NODE_COMPLETE', '{"n": 3}');
		INSERT INTO outbox_events (id, event_topic, occurred_at, source_bc, destination_topics, payload)
		VALUES (gen_random_uuid(), 'product.created', now(), 'catalog', '["product.created", "search.index"]', '{"n": 4}');
		INSERT INTO apps (id, name, namespace) VALUES ('%[2]s', 'Acme', 'acme');
		INSERT INTO event_outbox (id, app_id, event_id, event_type, payload) VALUES (outbox_uuidv7(), '%[2]s', '%[3]s', 'user.signed_up', '{"n": 5}');`, run, app, event)
	if out, err := psql.CombinedOutput(); err != nil {
		t.Fatalf("psql: %v\n%s", err, out)
	}
	got := map[string][]string{}
	for _, m := range w.wait(t, 6, 500*time.Millisecond) {
		got[m.Channel] = append(got[m.Channel], m.Type+string(m.Data)+m.Tenant)
	}
	want := map[string][]string{
		"run:" + run.String(): {`RUN_STARTED{"n": 1}default`, `NODE_START{"n": 2}default`, `NODE_COMPLETE{"n": 3}default`},
		"product.created":     {`product.created{"n": 4}default`},
		"search.index":        {`product.created{"n": 4}default`},
		"user.signed_up":      {`user.signed_up{"n": 5}acme`}, // the application's namespace is the tenant
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	w.eventually(t, "every row is marked as its seed says", `SELECT
		(SELECT count(*) FROM crawl_outbox WHERE published_at IS NOT NULL) = 3 AND
		(SELECT count(*) FROM outbox_events WHERE status = 'SENT' AND processed_at IS NOT NULL) = 1 AND
		(SELECT count(*) FROM event_outbox WHERE status = 'published' AND published_at IS NOT NULL) = 1`)
}

// FR-005 "Marks events as published after success", "max 3 attempts", "Unit test: Retries on Redis
// failure": a channel that Redis refuses is retried and then dead, the others go on; the run's log
// keeps the event.
func TestRefusedChannelIsRetriedThenDead(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	w := newWorld(t)
	refused, fine := uuid.New(), uuid.New()
	w.command(t, "ACL", "SETUSER", "relay", "on", ">secret", "~*", "+@all", "resetchannels", "&run:"+fine.String())
	w.exec(t, `INSERT INTO crawl_runs (id, app_package) VALUES ($1, 'a'), ($2, 'b')`, refused, fine)
	w.exec(t,
		`INSERT INTO crawl_outbox (crawl_id, event_type, payload) VALUES ($1, 'ERROR', '1'), ($1, 'ERROR', '2'), ($2, 'ERROR', '3')`, refused, fine)
	w.relay(t, nil, "--table", "crawl_outbox", "--sink", "redis://relay:secret@"+w.redis.Addr(),
		"--backoff-base", "50ms")
	w.eventually(t, "both events of the refused run are dead letters with three attempts", `SELECT count(*) = 2 FROM job_dlq
		WHERE source = 'event' AND error_reason = 'DeliveryFailed' AND attempts = 3 AND jsonb_array_length(error_history) = 3 AND outbox_table = 'crawl_outbox'`)
	w.eventually(t, "they left the outbox, the other is published",
		`SELECT count(*) = 1 AND bool_and(published_at IS NOT NULL) FROM crawl_outbox`)
	if got := w.wait(t, 1, 300*time.Millisecond); len(got) != 1 || string(got[0].Data) != "3" {
		t.Errorf("received %+v, want only the event of the run that is not refused", got)
	}
}

// A handler of the bus in any language is an endpoint: it gets the events of an application one after
// another, again after a failure, and an event that it gives up becomes a dead letter.
func TestWebhookHandlesEventsOfTheBus(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var mu sync.Mutex
	var got []string
	handler := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		var m message
		if err := json.NewDecoder(request.Body).Decode(&m); err != nil || request.Header.Get("webhook-id") != m.ID {
			t.Errorf("event %+v with webhook-id %q: %v", m, request.Header.Get("webhook-id"), err)
		}
		mu.Lock()
		defer mu.Unlock()
		got = append(got, m.Type+" "+string(m.Data)+" "+m.Tenant)
		switch len(got) {
		case 2:
			answer.WriteHeader(http.StatusInternalServerError)
		case 3:
			answer.WriteHeader(http.StatusRequestEntityTooLarge)
		}
	}))
	t.Cleanup(handler.Close)
	file := filepath.Join(t.TempDir(), "endpoints.yaml")
	noError(t, os.WriteFile(file, fmt.Appendf(nil, "endpoints:\n  - name: handlers\n    url: %s\n"+
		"    secrets: [whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo=]\n", handler.URL), 0o600))
	w.exec(t, "INSERT INTO apps (id, name, namespace) VALUES ($1, 'Acme', 'acme')", uuid.UUID{15: 1})
	w.exec(t, `INSERT INTO event_outbox (app_id, event_id, event_type, payload)
		SELECT $1, outbox_uuidv7(), 'user.signed_up', to_jsonb(n) FROM generate_series(1, 3) AS n`, uuid.UUID{15: 1})
	w.relay(t, []string{"OUTBOX_SINK=webhook:" + file + "?allow=private,http&schedule=20ms"},
		"--table", "event_outbox", "--destination", "event_outbox=handlers", "--backoff-base", "10ms")
	w.eventually(t, "two events are handled, and one is a dead letter of its application", `SELECT
		(SELECT string_agg(status, ' ' ORDER BY position) FROM event_outbox) = 'published failed published' AND
		(SELECT count(*) FROM job_dlq d JOIN event_outbox e ON e.event_id = d.original_job_id
		  WHERE e.status = 'failed' AND d.app_id = e.app_id AND d.error_reason = 'DeliveryFailed' AND d.attempts = 2) = 1`)
	mu.Lock()
	defer mu.Unlock()
	want := []string{"1", "2", "2", "3"}
	for i := range want {
		want[i] = "user.signed_up " + want[i] + " acme"
	}
	if !slices.Equal(got, want) {
		t.Errorf("handled %q, want %q", got, want)
	}
}

// Bounded memory: the relay's peak stays far below the backlog's size, here 336 MB of payload.
// (bench flat has the backlog of 1,000,000 rows.)
func TestMemoryIsBoundedWithALargeBacklog(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	w := newWorld(t)
	w.exec(t, `INSERT INTO outbox_events (event_topic, occurred_at, source_bc, payload)
		SELECT 'big', now(), 's', to_jsonb(repeat(md5(i::text), 3000)) FROM generate_series(1, 3500) i`) // 336 MB of payload
	relay := w.relay(t, nil, "--table", "outbox_events")
	w.eventually(t, "the backlog is delivered", `SELECT count(*) = 0 FROM outbox_events WHERE status <> 'SENT'`)
	// Not the peak that its end reports: to Linux that begins with what this process had when it
	// started the relay.
	status := must(os.ReadFile(fmt.Sprintf("/proc/%d/status", relay.Process.Pid)))(t)
	_, after, found := strings.Cut(string(status), "VmHWM:")
	var kib int
	if _, err := fmt.Sscan(after, &kib); err != nil || !found {
		t.Fatalf("the platform does not tell a process's peak memory: %v", err)
	}
	peak := kib / 1024
	noError(t, relay.Process.Signal(syscall.SIGTERM))
	noError(t, relay.Wait())
	t.Logf("peak memory %d MiB for 336 MB of payload", peak)
	if peak > 300 {
		t.Errorf("peak memory %d MiB, want at most 300: a claim is 8 MiB, two workers have one each", peak)
	}
}

// Plan 05-01's rows have no key and are a FIFO: they arrive in the order of their ids, and their
// time is the one in the id.
func TestEventsOfTheBusKeepTheirOrder(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	w := newWorld(t)
	app := uuid.New()
	w.exec(t, "INSERT INTO apps (id, name, namespace) VALUES ($1, 'Acme', 'acme')", app)
	const n = 5000
	for i := range 5 { // as many transactions
		w.exec(t, `INSERT INTO event_outbox (app_id, event_id, event_type, payload)
			SELECT $1, gen_random_uuid(), 'user.signed_up', jsonb_build_object('n', n) FROM generate_series($2::int, $3::int) AS n`, app, i*n/5+1, (i+1)*n/5)
	}
	w.relay(t, nil, "--table", "event_outbox", "--batch", "100")
	began := time.Now().Add(-time.Hour)
	for i, m := range w.wait(t, n, 300*time.Millisecond) {
		if string(m.Data) != fmt.Sprintf(`{"n": %d}`, i+1) {
			t.Fatalf("event %d is %s", i+1, m.Data)
		}
		if at, err := time.Parse(time.RFC3339Nano, m.Time); err != nil || at.Before(began) ||
			at.After(time.Now().Add(time.Minute)) {
			t.Fatalf("event %d has time %q", i+1, m.Time)
		}
	}
}
