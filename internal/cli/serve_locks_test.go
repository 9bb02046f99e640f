package cli_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/internal/test/testenv"
)

// A login that may connect and nothing else takes every advisory lock that it can guess. No request waits for one.
// Requests of a tenant that are stuck, here behind the row of its run, leave connections to the others.
func TestServeBesideStrangersLocks(t *testing.T) {
	t.Parallel()
	e := migrated(t)
	e.redis = testenv.RedisServer(t).URL()
	g := e.serving("--parts=gateway")
	token := func(tenant string) string {
		return decode[struct{ Token string }](t, e.ok("", "token", "create", "-o", "json", "--tenant", tenant, "--scope",
			"read,write")).Token
	}
	ask := func(method, path, token, body string) (status int, text string) {
		r, err := http.NewRequestWithContext(t.Context(), method, g.url+path, strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
		answer, err := (&http.Client{Timeout: patience}).Do(r)
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		defer answer.Body.Close()
		said, _ := io.ReadAll(answer.Body)
		return answer.StatusCode, string(said)
	}
	acme, beta := token("acme"), token("beta")

	stranger := "stranger_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	exec1(e, "CREATE ROLE "+stranger+" LOGIN")
	config, err := pgx.ParseConfig(e.database)
	if err != nil {
		t.Fatal(err)
	}
	config.User = stranger
	locks, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = locks.Close(context.Background())
		conn, err := pgx.Connect(context.Background(), e.database)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close(context.Background()) }()
		if _, err := conn.Exec(context.Background(), "DROP ROLE "+stranger); err != nil {
			t.Error(err)
		}
	})
	_, err = locks.Exec(t.Context(), `SELECT pg_advisory_lock(class, hashtext(tenant))
		FROM generate_series(1869968480, 1869968512) AS class, unnest(ARRAY['acme', 'beta', 'default']) AS tenant`)
	if err != nil {
		t.Fatal(err)
	}
	status, body := ask("POST", "/v1/runs", acme, `{"appPackage": "a"}`)
	if status != http.StatusCreated {
		t.Fatalf("a run beside a stranger's locks: status %d: %s", status, body)
	}
	run := decode[runView](t, body).RunID

	row, err := pgx.Connect(t.Context(), e.database)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = row.Close(context.Background()) }()
	if _, err := row.Exec(t.Context(), "BEGIN; SELECT FROM crawl_runs FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	var stuck sync.WaitGroup
	for range 12 {
		stuck.Go(func() {
			if status, body := ask("POST", "/v1/runs/"+run+"/start", acme, "{}"); status >= http.StatusInternalServerError &&
				status != http.StatusServiceUnavailable {
				t.Errorf("status %d: %s", status, body)
			}
		})
	}
	const waiting = `SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`
	for deadline := time.Now().Add(patience); query[int](e, waiting) < 4; {
		if time.Now().After(deadline) {
			t.Fatal("the tenant's requests are not stuck")
		}
	}
	status, body = ask("GET", "/v1/runs?limit=1", beta, "")
	if n := query[int](e, waiting); status != http.StatusOK || n > 4 {
		t.Errorf("another tenant's list: status %d, %d sessions are stuck: %s", status, n, body)
	}
	if _, err := row.Exec(t.Context(), "ROLLBACK"); err != nil {
		t.Error(err)
	}
	stuck.Wait()
	if status, body := ask("GET", "/v1/runs/"+run, acme, ""); status != http.StatusOK ||
		!strings.Contains(body, `"RUNNING"`) {
		t.Errorf("status %d: %s", status, body)
	}
}
