package chaos

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/pgstore"
	"github.com/outboxrelay/outbox/server/token"
)

// tenancyFaults are what one tenant, one role or one site tries on the others.
var tenancyFaults = []struct {
	name   string
	strike func(*tenancy) (struck int)
}{
	{"tenant-floods-crawls", floodsCrawls},
	{"tenant-fills-pending-quota", fillsQuota},
	{"filter-that-matches-nothing", matchesNothing},
	{"producer-role-overreaches", overreaches},
	{"purge-by-public", purgedByPublic},
	{"auth-none-behind-proxy", behindProxy},
	{"plaintext-to-remote-host", plaintextAfar},
	{"readiness-asked-from-afar", askedFromAfar},
	{"token-without-expiry", withoutExpiry},
	{"example-rebinding", rebinding},
}

// TestTenancyChaos runs the table of rights and shares.
func TestTenancyChaos(t *testing.T) {
	t.Parallel()
	for _, f := range tenancyFaults {
		row(t, f.name, false, func(t *testing.T) {
			c := newTenancy(t, f.name)
			struck := f.strike(c)
			if struck < 0 {
				fmt.Printf("%-28s not run: this machine has no address but loopback\n", f.name)
				return
			}
			line(t, f.name, struck, c.began, "rights and shares")
		})
	}
}

// floodsCrawls queues 60 runs of one tenant before two runs of another. They end while most of the
// flood still waits.
func floodsCrawls(c *tenancy) (struck int) {
	for range 60 {
		c.create("flood", "demo")
	}
	worker := c.outbox(c.url, "serve", "--parts=worker")
	c.eventually("the worker is busy", "SELECT count(*) >= 2 FROM crawl_runs WHERE status = 'RUNNING'")
	for range 2 {
		c.create("beta", "demo")
	}
	c.eventually("the other tenant's runs have ended",
		"SELECT count(*) = 2 FROM crawl_runs WHERE tenant_id = 'beta' AND status = 'COMPLETED'")
	waiting := c.number("SELECT count(*) FROM crawl_runs WHERE tenant_id = 'flood' AND status = 'PENDING'")
	if waiting < 40 {
		c.t.Errorf("%d of the flood's 60 runs still waited when the other tenant's had ended, want 40 or more", waiting)
	}
	worker.kill(c.t)
	return waiting
}

// fillsQuota has eight clients of one tenant create runs for as long as they are let.
func fillsQuota(c *tenancy) int {
	const most = 1000
	c.exec(`INSERT INTO crawl_runs (tenant_id, app_package, crawler)
		SELECT 'flood', 'a', 'demo' FROM generate_series(1, 950)`)
	api := c.gateway() + "/v1/runs"
	const (
		run  = `{"appPackage":"a","crawler":"demo"}`
		says = "1000 runs of the tenant wait already"
	)
	flood, beta := c.token("flood"), c.token("beta")
	var refused atomic.Int64
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for range 12 {
				switch status, header, body := ask(c.t, http.MethodPost, api, flood, run); {
				case status == http.StatusCreated:
				case status == http.StatusTooManyRequests && header.Get("Retry-After") != "" && strings.Contains(body, says):
					refused.Add(1)
				default:
					c.t.Errorf("status %d: %s", status, body)
				}
			}
		})
	}
	clients.Wait()
	if n := c.number("SELECT count(*) FROM crawl_runs WHERE tenant_id = 'flood'"); n != most {
		c.t.Errorf("the tenant has %d runs that wait, want %d", n, most)
	}
	if status, _, body := ask(c.t, http.MethodPost, api, beta, run); status != http.StatusCreated {
		c.t.Errorf("another tenant's run: status %d: %s", status, body)
	}
	return int(refused.Load())
}

// matchesNothing lists with filters that nothing fits, as the gateway's role, and counts what the
// server has read for it.
func matchesNothing(c *tenancy) (struck int) {
	c.exec(`INSERT INTO crawl_runs (tenant_id, app_package, status, created_at)
		SELECT 'acme', CASE WHEN i % 2 = 0 THEN 'a' ELSE 'b' END,
		       CASE WHEN i % 2 = 0 THEN 'COMPLETED' ELSE 'FAILED' END::crawl_status, now() - i * interval '1 second'
		  FROM generate_series(1, 20000) i`)
	c.exec("ANALYZE crawl_runs")
	cfg := c.pool.Config()
	cfg.ConnConfig.RuntimeParams["role"] = "outbox_gateway"
	pool, err := pgxpool.NewWithConfig(c.t.Context(), cfg)
	c.must(err)
	defer pool.Close()
	runs, err := pgstore.OpenRuns(c.t.Context(), pool)
	c.must(err)
	const read = `
		SELECT coalesce(seq_tup_read, 0) + (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes i WHERE i.relid = t.relid)
		  FROM pg_stat_user_tables t WHERE relname = 'crawl_runs'`
	before := c.number(read)
	for range 10 {
		for _, f := range []crawl.RunFilter{
			{AppPackage: "nosuch"}, {Status: crawl.Cancelled}, {Status: crawl.Pending},
			{AppPackage: "a", Status: crawl.Failed}, {AppPackage: "b", Status: crawl.Running},
		} {
			found, _, err := runs.ListRuns(c.t.Context(), "acme", f)
			if err != nil || len(found) != 0 {
				c.t.Errorf("%+v: %d runs, error %v", f, len(found), err)
			}
			struck++
		}
	}
	pool.Close() // sessions that end report what they have read
	time.Sleep(time.Second)
	if n := c.number(read) - before; n > 1000 {
		c.t.Errorf("%d lists of nothing read %d entries", struck, n)
	}
	return struck
}

// overreaches tries as a service that writes orders what is for whoever drives runs.
func overreaches(c *tenancy) int {
	run := c.create("beta", "demo").ID
	struck := c.denied("outbox_producer",
		"SELECT goal, device_config FROM crawl_runs", "UPDATE crawl_runs SET status = 'CANCELLED'",
		"INSERT INTO crawl_runs (app_package) VALUES ('a')", "DELETE FROM crawl_runs",
		fmt.Sprintf("INSERT INTO crawl_events (crawl_id, event_type, payload) VALUES ('%s', 'FORGED', '{}')", run),
		fmt.Sprintf("INSERT INTO crawl_outbox (crawl_id, event_type, payload) VALUES ('%s', 'FORGED', '{}')", run),
		"SELECT * FROM crawl_events", "SELECT * FROM crawl_outbox", "SELECT * FROM run_outbox",
		"SELECT nextval('crawl_events_id_seq')", "UPDATE outbox_events SET status = 'SENT'",
		"SELECT * FROM outbox_tokens", "SELECT * FROM job_dlq")
	if c.seesOnlyInserted() {
		struck++
	}
	return struck
}

// seesOnlyInserted reports whether a producer sees the row that it has just inserted, and no row of
// another transaction, whatever tenant its session names.
func (c *tenancy) seesOnlyInserted() bool {
	const insert = `INSERT INTO outbox_events (event_topic, occurred_at, source_bc, payload, tenant_id)
		VALUES ('order.placed', now(), 'orders', '{}', $1) ON CONFLICT (id) DO NOTHING RETURNING id`
	seen := 0
	for _, tenant := range []string{"alpha", "beta", "default"} {
		for _, other := range []string{"alpha", "beta", "default"} { // committed, and by the same session perhaps
			c.exec(insert, other)
		}
		err := pgx.BeginFunc(c.t.Context(), c.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(c.t.Context(), "SET LOCAL ROLE outbox_producer"); err != nil {
				return err
			}
			if _, err := tx.Exec(c.t.Context(), "SELECT set_config('app.current_tenant', $1, true)", tenant); err != nil {
				return err
			}
			var inserted string
			if err := tx.QueryRow(c.t.Context(), insert, tenant).Scan(&inserted); err != nil {
				return err
			}
			rows, err := tx.Query(c.t.Context(), "SELECT id::text FROM outbox_events WHERE payload IS NOT NULL")
			if err != nil {
				return err
			}
			visible, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err == nil && !slices.Equal(visible, []string{inserted}) {
				err = fmt.Errorf("it sees %v, want %s only", visible, inserted)
			}
			return err
		})
		if err != nil {
			c.t.Errorf("a producer of tenant %s inserts and reads: %v", tenant, err)
			continue
		}
		seen++
	}
	return seen == 3
}

// purgedByPublic calls the purges, and reads through the view, as a login that has been given
// nothing, and then the view.
func purgedByPublic(c *tenancy) int {
	run := c.create("beta", "demo").ID
	c.exec("INSERT INTO crawl_outbox (crawl_id, event_type, payload) VALUES ($1, 't', '{}')", run)
	role := "nobody " + uuid.NewString() // roles belong to the server, which the tests share
	c.exec("CREATE ROLE " + pgx.Identifier{role}.Sanitize())
	struck := c.denied(role,
		"SELECT purge_job_dlq()", "SELECT purge_job_dlq(0)", "SELECT purge_event_outbox()", "SELECT * FROM run_outbox")
	c.exec("GRANT SELECT ON run_outbox TO " + pgx.Identifier{role}.Sanitize())
	if c.number("SELECT current_setting('server_version_num')::int") >= 150000 {
		struck += c.denied(role, "SELECT * FROM run_outbox") // it has nothing on the table
	}
	return struck
}

// behindProxy publishes a server without authentication, through its own setting and without it.
func behindProxy(c *tenancy) (struck int) {
	public := []string{"--public-url", "https://api.example.com"}
	_, said, code := c.command(append([]string{"serve", "--auth", "none", "--http", "127.0.0.1:0"}, public...)...)
	if code != 2 || !strings.Contains(said, "auth is none, and public-url is an address that other machines reach") {
		c.t.Errorf("exit code %d: %s", code, said)
	} else {
		struck++
	}
	api := c.gateway("--auth", "none")
	for _, header := range [][]string{
		{"X-Forwarded-For", "203.0.113.9"}, {"Forwarded", "for=203.0.113.9"}, {"X-Real-IP", "203.0.113.9"},
		{"Host", "api.example.com"},
	} {
		for method, body := range map[string]string{http.MethodGet: "", http.MethodPost: `{"appPackage":"a"}`} {
			status, _, text := ask(c.t, method, api+"/v1/runs", "", body, header...)
			if status == http.StatusForbidden || status == http.StatusMisdirectedRequest {
				struck++
			} else {
				c.t.Errorf("%s %v: status %d: %s", method, header, status, text)
			}
		}
	}
	if status, _, text := ask(c.t, http.MethodGet, api+"/v1/runs", "", ""); status != http.StatusOK {
		c.t.Errorf("from this machine: status %d: %s", status, text)
	}
	if n := c.relays[0].warnings("the API asks nobody who he is"); n != 1 {
		c.t.Errorf("%d warnings that there is no authentication, want 1", n)
	}
	return struck
}

// plaintextAfar has a process speak to a server on what seems another machine.
func plaintextAfar(c *tenancy) int {
	url, address := c.afar()
	if url == "" {
		return -1
	}
	const warns = "PostgreSQL is on another machine and connections to it have no TLS"
	far := c.outbox(url, "serve", "--auth", "none", "--http", "127.0.0.1:0")
	eventually(c.t, "all parts have opened their database", func() bool {
		said := far.said()
		return strings.Contains(said, "serving the API") && strings.Contains(said, "crawling runs") &&
			strings.Contains(said, "waiting for sink default")
	})
	if n := far.warnings(warns); n != 1 || !strings.Contains(far.said(), address) {
		c.t.Errorf("%d warnings, want one that names %s", n, address)
	}
	near := c.outbox(c.url, "serve", "--auth", "none", "--http", "127.0.0.1:0")
	eventually(c.t, "the gateway serves", func() bool { return strings.Contains(near.said(), "serving the API") })
	if n := near.warnings(warns); n != 0 {
		c.t.Errorf("%d warnings of a server on this machine", n)
	}
	return far.warnings(warns)
}

// askedFromAfar asks a process that waits for its Redis how it is, from this machine and from what
// seems another.
func askedFromAfar(c *tenancy) (struck int) {
	_, address := c.afar()
	if address == "" {
		return -1
	}
	_, port, _ := strings.Cut(freeAddress(c.t), ":")
	relay := c.outbox(c.url, "relay", "--listen", "0.0.0.0:"+port)
	eventually(c.t, "the relay waits for Redis",
		func() bool { return strings.Contains(relay.said(), "waiting for sink default") })
	eventually(c.t, "its lanes are held, and all that is missing is Redis", func() bool {
		_, _, body := ask(c.t, http.MethodGet, "http://127.0.0.1:"+port+"/readyz", "", "")
		return strings.Contains(body, "127.0.0.1:1")
	})
	for _, path := range []string{"/readyz", "/readyz/relay"} {
		status, _, body := ask(c.t, http.MethodGet, "http://127.0.0.1:"+port+path, "", "")
		if status != http.StatusServiceUnavailable || !strings.Contains(body, "127.0.0.1:1") {
			c.t.Errorf("%s from this machine: status %d: %s", path, status, body)
		}
		status, _, body = ask(c.t, http.MethodGet, "http://"+address+":"+port+path, "", "")
		if status != http.StatusServiceUnavailable || strings.Contains(body, "127.0.0.1") {
			c.t.Errorf("%s from another: status %d: %s", path, status, body)
			continue
		}
		struck++
	}
	if n := relay.warnings("other machines can reach /metrics"); n != 1 {
		c.t.Errorf("%d warnings that others can reach it, want 1", n)
	}
	return struck
}

// withoutExpiry makes tokens and says nothing of their time, and one whose time comes.
func withoutExpiry(c *tenancy) (struck int) {
	for range 3 {
		if _, said, code := c.command("token", "create", "--scope", "read"); code != 0 {
			c.t.Fatalf("exit code %d: %s", code, said)
		}
	}
	struck = c.number(`SELECT count(*) FROM outbox_tokens
		WHERE expires_at BETWEEN now() + interval '89 days' AND now() + interval '90 days'`)
	if struck != 3 {
		c.t.Errorf("%d of 3 tokens expire in 90 days", struck)
	}
	out, said, code := c.command("token", "create", "--scope", "read", "--expires", "1s", "-o", "json")
	if code != 0 {
		c.t.Fatalf("exit code %d: %s", code, said)
	}
	_, text, _ := strings.Cut(out, `"token": "`)
	text, _, _ = strings.Cut(text, `"`)
	if _, _, err := token.Parse(text); err != nil {
		c.t.Fatal(err)
	}
	api := c.gateway() + "/v1/runs"
	eventually(c.t, "the token has expired", func() bool {
		status, _, _ := ask(c.t, http.MethodGet, api, text, "")
		return status == http.StatusUnauthorized
	})
	return struck + 1
}

// rebinding has pages of another site ask examples/browser for tickets, under their own name and
// under one that they have given its address.
func rebinding(c *tenancy) (struck int) {
	path := filepath.Join(c.t.TempDir(), "browser")
	out, err := exec.Command("go", "build", "-o", path, "github.com/outboxrelay/outbox/examples/browser").CombinedOutput()
	if err != nil {
		c.t.Fatalf("build the example: %v\n%s", err, out)
	}
	var tickets atomic.Int64
	gateway := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { tickets.Add(1) }))
	c.t.Cleanup(gateway.Close)
	address := freeAddress(c.t)
	c.process(path, []string{"OUTBOX_TOKEN=t"}, "-gateway", gateway.URL, "-listen", address, "-run", uuid.NewString())
	page := "http://" + address
	eventually(c.t, "the example answers", func() bool {
		answer, err := http.Get(page)
		if err == nil {
			_ = answer.Body.Close()
		}
		return err == nil
	})
	for _, header := range [][]string{
		{"Host", "evil.example", "Origin", "http://evil.example"}, {"Host", "evil.example"},
		{"Origin", "http://evil.example"}, {"Origin", "null", "Sec-Fetch-Site", "cross-site"},
		{"Host", "localhost.evil.example:8090", "Origin", "http://localhost.evil.example:8090", "Sec-Fetch-Site",
			"same-origin"},
	} {
		status, _, body := ask(c.t, http.MethodPost, page+"/v1/stream-tickets", "", "", header...)
		if status == http.StatusForbidden || status == http.StatusMisdirectedRequest {
			struck++
		} else {
			c.t.Errorf("%v: status %d: %s", header, status, body)
		}
	}
	if n := tickets.Load(); n != 0 {
		c.t.Errorf("the gateway was asked for %d tickets", n)
	}
	status, _, _ := ask(c.t, http.MethodPost, page+"/v1/stream-tickets", "", "", "Origin", page)
	if status != http.StatusOK || tickets.Load() != 1 {
		c.t.Errorf("its own page: status %d, %d tickets", status, tickets.Load())
	}
	_, header, _ := ask(c.t, http.MethodGet, page, "", "")
	if header.Get("Content-Security-Policy") == "" || header.Get("X-Content-Type-Options") != "nosniff" {
		c.t.Errorf("the page has %v", header)
	}
	return struck
}
