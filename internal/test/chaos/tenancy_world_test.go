package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxrelay/outbox/internal/test/pgtest"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/pgstore"
	"github.com/outboxrelay/outbox/server/token"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

// tenancy is a database with its roles and no more: what is struck here are rights and shares, not
// deliveries.
type tenancy struct {
	*world
	url  string
	runs *pgstore.Runs
}

func newTenancy(t *testing.T, name string) *tenancy {
	t.Helper()
	if _, err := binary(); err != nil { // now, or the first process would wait for the compiler
		t.Fatal(err)
	}
	c := &tenancy{world: &world{t: t, rng: choices(name), began: time.Now()}, url: testenv.Database(t)}
	if err := errors.Join(migrations.Up(t.Context(), c.url, "core", "events", "crawl"),
		pgtest.ApplyRoles(t.Context(), c.url)); err != nil {
		t.Fatal(err)
	}
	c.connect(c.url)
	var err error
	if c.runs, err = pgstore.OpenRuns(t.Context(), c.pool); err != nil {
		t.Fatal(err)
	}
	return c
}

// outbox starts the command on a database.
func (c *tenancy) outbox(database string, args ...string) *relayProcess {
	c.t.Helper()
	path, err := binary()
	c.must(err)
	// Nobody answers at that Redis: neither a gateway nor a relay needs it for what is struck here.
	env := []string{"OUTBOX_DATABASE_URL=" + database, "OUTBOX_SINK=redis://127.0.0.1:1"}
	return c.process(path, env, args...)
}

// gateway starts a gateway alone and returns where it answers.
func (c *tenancy) gateway(flags ...string) string {
	c.t.Helper()
	address := freeAddress(c.t)
	c.outbox(c.url, append([]string{"serve", "--parts=gateway", "--http", address}, flags...)...)
	eventually(c.t, "the gateway answers", func() bool {
		conn, err := http.Get("http://" + address + "/openapi.json")
		if err == nil {
			_ = conn.Body.Close()
		}
		return err == nil
	})
	return "http://" + address
}

// command runs the command to its end.
func (c *tenancy) command(args ...string) (stdout, stderr string, code int) {
	c.t.Helper()
	stdout, stderr, code, err := outboxOn(c.t, c.url, args...)
	c.must(err)
	return stdout, stderr, code
}

// token makes a token with all scopes.
func (c *tenancy) token(tenant string) string {
	c.t.Helper()
	tokens, err := pgstore.OpenTokens(c.t.Context(), c.pool)
	c.must(err)
	made, text, sum, err := token.New(tenant, "", token.Scopes)
	if err == nil {
		_, err = tokens.CreateToken(c.t.Context(), "chaos", made, sum, time.Hour)
	}
	c.must(err)
	return text
}

// create makes a run.
func (c *tenancy) create(tenant, crawler string) crawl.Run {
	c.t.Helper()
	run, _, err := c.runs.CreateRun(c.t.Context(), tenant,
		crawl.NewRun{AppPackage: "com.example." + tenant, MaxSteps: 100, Crawler: crawler}, 0)
	c.must(err)
	return run
}

// denied counts the statements that a role may not run. One that it may is an error.
func (c *tenancy) denied(role string, statements ...string) (struck int) {
	c.t.Helper()
	for _, sql := range statements {
		err := pgx.BeginFunc(c.t.Context(), c.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(c.t.Context(), "SET LOCAL ROLE "+pgx.Identifier{role}.Sanitize()); err != nil {
				return err
			}
			_, err := tx.Exec(c.t.Context(), sql)
			return err
		})
		var refused *pgconn.PgError
		if !errors.As(err, &refused) || refused.Code != "42501" {
			c.t.Errorf("as %s %s: got %v, want it denied", role, sql, err)
			continue
		}
		struck++
	}
	return struck
}

// afar returns a URL of the database under which its server seems to be on another machine, and
// that machine's address; "" where this one has no address but loopback.
func (c *tenancy) afar() (url, address string) {
	c.t.Helper()
	addresses, err := net.InterfaceAddrs()
	c.must(err)
	for _, a := range addresses {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.To4() != nil && !ip.IP.IsLoopback() {
			address = ip.IP.String()
		}
	}
	if address == "" {
		return "", ""
	}
	var port, name string
	if err := c.pool.QueryRow(c.t.Context(), "SELECT current_setting('port'), current_database()").Scan(&port,
		&name); err != nil {
		c.t.Fatal(err)
	}
	p := proxyAt(c.t, address, "127.0.0.1:"+port)
	return fmt.Sprintf("postgres://postgres@%s/%s", p.Listen, name), address
}

// warnings counts the lines of a process's log that warn and say so.
func (r *relayProcess) warnings(of string) (n int) {
	for line := range strings.Lines(r.said()) {
		var entry struct{ Level, Msg string }
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Level == "WARN" && strings.Contains(entry.Msg, of) {
			n++
		}
	}
	return n
}
