package chaos

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rs/zerolog"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/pgstore"
	"github.com/outboxrelay/outbox/server/token"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

// tenancy is a database with its roles and no more: what is struck here are rights and shares, not deliveries.
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
		migrations.ApplyRoles(t.Context(), c.url)); err != nil {
		t.Fatal(err)
	}
	c.connect(c.url)
	var err error
	if c.runs, err = pgstore.OpenRuns(t.Context(), c.pool); err != nil {
		t.Fatal(err)
	}
	return c
}

// finish prints the line of a fault.
func (c *tenancy) finish(name string, struck int) {
	c.t.Helper()
	if struck == 0 {
		c.t.Error("the fault never struck")
	}
	fmt.Printf("%-28s struck %4d  (%.0f s)%s\n", name, struck, time.Since(c.began).Seconds(),
		map[bool]string{true: "  FAILED"}[c.t.Failed()])
}

// outbox starts the command on a database.
func (c *tenancy) outbox(database string, args ...string) *relayProcess {
	c.t.Helper()
	path, err := binary()
	if err != nil {
		c.t.Fatal(err)
	}
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
	path, err := binary()
	if err != nil {
		c.t.Fatal(err)
	}
	var out, said bytes.Buffer
	cmd := exec.CommandContext(c.t.Context(), path, args...)
	cmd.Env = append(cmd.Environ(), "OUTBOX_DATABASE_URL="+c.url, "OUTBOX_SINK=redis://127.0.0.1:1")
	cmd.Stdout, cmd.Stderr = &out, &said
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	return out.String(), said.String(), cmd.ProcessState.ExitCode()
}

// token makes a token with all scopes.
func (c *tenancy) token(tenant string) string {
	c.t.Helper()
	tokens, err := pgstore.OpenTokens(c.t.Context(), c.pool)
	if err != nil {
		c.t.Fatal(err)
	}
	made, text, sum, err := token.New(tenant, "", token.Scopes)
	if err == nil {
		_, err = tokens.CreateToken(c.t.Context(), "chaos", made, sum, time.Hour)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return text
}

// ask makes a request and returns its status, its header and its body.
func (c *tenancy) ask(method, url, bearer, body string, header ...string) (int, http.Header, string) {
	c.t.Helper()
	request, err := http.NewRequestWithContext(c.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if bearer != "" {
		request.Header.Set("Authorization", "Bearer "+bearer)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			request.Host = header[i+1]
		} else {
			request.Header.Set(header[i], header[i+1])
		}
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		c.t.Error(err)
		return 0, http.Header{}, ""
	}
	defer func() { _ = answer.Body.Close() }()
	var text bytes.Buffer
	if _, err := text.ReadFrom(answer.Body); err != nil {
		c.t.Error(err)
	}
	return answer.StatusCode, answer.Header, text.String()
}

// create makes a run.
func (c *tenancy) create(tenant, crawler string) crawl.Run {
	c.t.Helper()
	run, _, err := c.runs.CreateRun(c.t.Context(), tenant,
		crawl.NewRun{AppPackage: "com.example." + tenant, MaxSteps: 100, Crawler: crawler}, 0)
	if err != nil {
		c.t.Fatal(err)
	}
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

// afar returns a URL of the database under which its server seems to be on another machine, and that machine's
// address; "" where this one has no address but loopback.
func (c *tenancy) afar() (url, address string) {
	c.t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		c.t.Fatal(err)
	}
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
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := toxiproxy.NewProxy(server, c.t.Name(), address+":0", "127.0.0.1:"+port)
	if err := p.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(p.Stop)
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
