package sources

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/source"
	"github.com/outboxrelay/outbox/source/webhook"
	"github.com/outboxrelay/outbox/store/postgres"
)

// endpoint is a receiver of webhooks in this process, and what its source writes into.
func endpoint(
	t *testing.T, url string, cfg webhook.Config,
) (post func(id, body, secret string) int, pool *pgxpool.Pool) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	must(t, err)
	w, err := postgres.NewWriter(outbox.WriterConfig{Table: outbox.OutboxLog().Table})
	must(t, err)
	from, err := webhook.New(cfg)
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- source.Run(ctx, from, postgres.Transactions(pool), w.Write, source.Config{Name: "orders",
			Type: destination})
	}()
	server := httptest.NewServer(from)
	t.Cleanup(func() {
		server.Close()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		pool.Close()
	})
	return func(id, body, secret string) int {
		signer, err := standardwebhooks.NewWebhook(secret)
		must(t, err)
		now := time.Now()
		signature, err := signer.Sign(id, now, []byte(body))
		must(t, err)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, bytes.NewBufferString(body))
		must(t, err)
		request.Header.Set("webhook-id", id)
		request.Header.Set("webhook-timestamp", fmt.Sprint(now.Unix()))
		request.Header.Set("webhook-signature", signature)
		answer, err := http.DefaultClient.Do(request)
		must(t, err)
		must(t, answer.Body.Close())
		return answer.StatusCode
	}, pool
}

const otherSecret = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="

// A request is answered 204 after the commit, and 503 while the database is away. What was answered
// so is one row.
func TestDatabaseAway(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	server := testenv.PostgresServer(t, testenv.PostgresConfig{})
	url := server.URL("postgres")
	must(t, pgmigrations.Up(t.Context(), url, "core", "log"))
	post, pool := endpoint(t, url,
		webhook.Config{Secrets: []string{otherSecret, secret}, MaxBody: 100, Wait: 2 * time.Second})
	for name, c := range map[string]struct {
		id, body, secret string
		want             int
	}{
		"written":          {"a", `{"n":1}`, secret, 204},
		"the other secret": {"b", `{"n":2}`, otherSecret, 204},
		"another's secret": {"c", `{"n":3}`, "whsec_BBBBAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", 401},
		"too large":        {"d", strings.Repeat(" ", 101), secret, 413},
	} {
		if got := post(c.id, c.body, c.secret); got != c.want {
			t.Errorf("%s: answered %d, want %d", name, got, c.want)
		}
	}
	must(t, server.Kill())
	tried := 0
	until(t, "a request is refused", func() bool { // a server process may outlive the server for a moment
		tried++
		return post(fmt.Sprint("away-", tried), `{"n":4}`, secret) == 503
	})
	must(t, server.Restart())
	until(t, "a request is written again", func() bool { return post("e", `{"n":5}`, secret) == 204 })
	if got := post("e_1", `{"n":5}`, secret); got != 204 { // an operator's replay
		t.Errorf("a copy: answered %d", got)
	}
	rows := 0
	must(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM outbox_log WHERE payload->>'n' <> '4'").Scan(&rows))
	if rows != 3 {
		t.Errorf("%d rows of 3 events", rows)
	}
}

// What can be no event is one whose payload is a text, and the rest of its batch is written. The
// same id with another body is another row, of which a group makes a letter.
func TestPoison(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	url := testenv.Prepared(t, "log", func(ctx context.Context, url string) error {
		return pgmigrations.Up(ctx, url, "core", "log")
	})
	post, pool := endpoint(t, url, webhook.Config{Secrets: []string{secret}, MaxBody: 4 << 20})
	cloud := `{"specversion":"1.0","id":"019aa000-0000-7000-8000-000000000001","source":"s","type":"t",` +
		`"partitionkey":"k","data":`
	for n, c := range []struct{ body, kind, key, payload string }{
		{`{"n": 1}`, "object", "", `{"n": 1}`},
		{`no JSON`, "string", "", `"no JSON"`},
		{"\xff\xfe", "string", "", `"//4="`},
		{`{"n":"\u0000"}`, "string", "", `"{\"n\":\"\\u0000\"}"`},
		{"", "string", "", ""},
		{`"` + strings.Repeat("a", 2<<20) + `"`, "string", "", ""},
		{cloud + `{"n":7}}`, "object", "k", `{"n": 7}`},
		{cloud + `{"n":7}}`, "", "", ""}, // a copy
		{cloud + `{"n":8}}`, "object", "k", `{"n": 8}`},
		{cloud + `"\ud800"}`, "string", "k", ""},
		{strings.Replace(cloud, `"t"`, `"`+strings.Repeat("t", 151)+`"`, 1) + `{}}`, "string", "", ""},
	} {
		if got := post(fmt.Sprint("m", n), c.body, secret); got != 204 {
			t.Fatalf("message %d: answered %d", n, got)
		}
		var kind, key, payload string
		err := pool.QueryRow(t.Context(), `SELECT jsonb_typeof(payload), coalesce(aggregate_id, ''), payload::text
			FROM outbox_log ORDER BY position OFFSET $1`, rowsBefore(n)).Scan(&kind, &key, &payload)
		if c.kind == "" {
			continue // there is no row
		}
		if err != nil || kind != c.kind || key != c.key || c.payload != "" && payload != c.payload {
			t.Errorf("message %d is %s of key %q: %.100s, error %v", n, kind, key, payload, err)
		}
	}
	told := 0
	must(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM outbox_log WHERE metadata ? 'unreadable'").Scan(&told))
	if told != 7 {
		t.Errorf("%d rows say why they are unreadable, want 7", told)
	}
}

// rowsBefore is how many rows there are before that of message n: the copy has none.
func rowsBefore(n int) int {
	if n > 7 {
		return n - 1
	}
	return n
}
