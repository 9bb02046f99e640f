// Package conditions_test provokes every condition of internal/condition on real servers.
package conditions_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/condition"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/test/pgtest"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// patient is a database, a Redis, and the settings that lead to both.
type patient struct {
	*testing.T
	server    *testenv.Postgres
	redis     *testenv.Redis
	pool      *pgxpool.Pool
	url, name string
	environ   []string
	limits    condition.Limits
	asking    string // the condition that is asked for
	canary    condition.Canary
	elsewhere string // the other machine that the database is on, as no server of the tests can be
}

func newPatient(t *testing.T) *patient {
	t.Helper()
	server := testenv.PostgresServer(t, testenv.PostgresConfig{Clock: true,
		Settings: map[string]string{"max_prepared_transactions": "5"}})
	p := &patient{T: t, server: server, redis: testenv.RedisServer(t), url: server.URL("postgres"), name: "postgres",
		limits: condition.Usual}
	p.limits.Files, p.limits.Free = 1, 1
	must(t, migrate(t.Context(), p.url, "core", "events", "crawl", "log"))
	must(t, pgtest.ApplyRoles(t.Context(), p.url))
	cfg, err := pgxpool.ParseConfig(p.url)
	must(t, err)
	cfg.MaxConns = 1
	p.pool, err = pgxpool.NewWithConfig(t.Context(), cfg)
	must(t, err)
	t.Cleanup(p.pool.Close)
	p.exec("INSERT INTO apps (namespace, name) VALUES ('acme', 'Acme') ON CONFLICT DO NOTHING")
	p.environ = []string{"OUTBOX_DATABASE_URL=" + p.url, "OUTBOX_SINK=" + p.redis.URL(),
		"OUTBOX_TABLE=outbox_events,event_outbox"}
	return p
}

func migrate(ctx context.Context, url string, sets ...string) error {
	return app.MigrationsOf(url).Up(ctx, sets...)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (p *patient) exec(statements ...string) {
	p.Helper()
	for _, s := range statements {
		if _, err := p.pool.Exec(p.Context(), s); err != nil {
			p.Fatalf("%s: %v", s, err)
		}
	}
}

// cured runs statements.
func (p *patient) cured(statements ...string) func() { return func() { p.exec(statements...) } }

// set sets variables of the environment, and returns what sets them back.
func (p *patient) set(variables ...string) (cure func()) {
	before := p.environ
	for _, v := range variables {
		name, _, _ := strings.Cut(v, "=")
		p.environ = append(slices.DeleteFunc(slices.Clone(p.environ), func(old string) bool {
			return strings.HasPrefix(old, name+"=")
		}), v)
	}
	return func() { p.environ = before }
}

// connected opens sessions that call themselves so, and returns what ends them.
func (p *patient) connected(names ...string) (cure func()) {
	var sessions []*pgx.Conn
	for _, name := range names {
		cfg, err := pgx.ParseConfig(p.url)
		must(p.T, err)
		cfg.RuntimeParams["application_name"] = name
		session, err := pgx.ConnectConfig(p.Context(), cfg)
		must(p.T, err)
		sessions = append(sessions, session)
	}
	return func() {
		for _, s := range sessions {
			must(p.T, s.Close(p.Context()))
		}
		p.eventuallyWell()
	}
}

// login makes the login of a role that of the settings, and returns what makes it postgres again.
func (p *patient) login(role, grant string) (cure func()) {
	p.exec("CREATE ROLE "+role+" LOGIN", grant)
	return p.set("OUTBOX_DATABASE_URL=" + strings.Replace(p.url, "postgres@", role+"@", 1))
}

// remedied is a cure that does what a finding's remedy says.
func (p *patient) remedied(id string) func() {
	return func() {
		for _, f := range p.examine().Findings {
			if f.ID == id {
				p.exec(f.Remedy)
			}
		}
	}
}

// file writes a file of settings.
func (p *patient) file(mode os.FileMode, text string) string {
	path := filepath.Join(p.TempDir(), "outbox.yaml")
	must(p.T, os.WriteFile(path, []byte(text), mode))
	return path
}

// tell has Redis do something.
func (p *patient) tell(command ...any) {
	client := redis.NewClient(&redis.Options{Addr: p.redis.Addr()})
	defer func() { _ = client.Close() }()
	must(p.T, client.Do(p.Context(), command...).Err())
}

func (p *patient) settings() config.Config {
	p.Helper()
	kinds, err := app.Kinds(app.Sinks())
	must(p.T, err)
	c, err := config.Load(kinds, p.environ, config.Global(), config.Mapping(), config.Relay(), config.RetentionFlags())
	must(p.T, err)
	must(p.T, c.Check(config.Database|config.Publishing|config.Serving))
	return c
}

func (p *patient) examine() condition.Report {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), tier.Patience())
	defer cancel()
	which := condition.Selection{Only: []string{p.asking},
		Audit: slices.ContainsFunc(condition.Catalogue,
			func(c condition.Condition) bool { return c.ID == p.asking && c.Category == "audit" })}
	if p.elsewhere != "" {
		db, err := app.OpenDatabase(ctx, p.url)
		must(p.T, err)
		defer db.Close()
		x := condition.Examination{Config: p.settings(), DB: elsewhere{db, p.elsewhere}, Limits: p.limits}
		return x.Examine(ctx, which)
	}
	report, err := app.Examine(ctx, p.settings(), p.limits, which, p.canary)
	must(p.T, err)
	for _, u := range report.Unseen {
		if u.ID != "" {
			p.Errorf("%s was not seen: %s", u.ID, u.Why)
		}
	}
	return report
}

// elsewhere is a database that says that it is on another machine.
type elsewhere struct {
	app.Database
	machine string
}

func (e elsewhere) Plaintext(context.Context) (string, error) { return e.machine, nil }

// says waits until the condition is found and says something.
func (p *patient) says(id, text string) {
	p.Helper()
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		report := p.examine()
		for _, f := range report.Findings {
			if f.ID == id && strings.Contains(f.Says, text) && f.Remedy != "" && f.About != "" {
				p.Logf("%s: %s\n  do: %s", f.Severity, f.Says, f.Remedy)
				return
			}
		}
		if time.Since(began) > tier.Patience() {
			p.Fatalf("want %s to say %q, found %+v", id, text, report.Findings)
		}
	}
}

// well fails unless the condition is not found.
func (p *patient) well() {
	p.Helper()
	if report := p.examine(); len(report.Findings) > 0 {
		p.Fatalf("found without its cause: %+v", report.Findings)
	}
}

// eventuallyWell waits until it is not found.
func (p *patient) eventuallyWell() {
	p.Helper()
	for began := time.Now(); len(p.examine().Findings) > 0; time.Sleep(100 * time.Millisecond) {
		if time.Since(began) > tier.Patience() {
			p.well()
		}
	}
}

// held is how many lanes of outbox_events relays hold.
func (p *patient) held() (n int) {
	must(p.T, p.pool.QueryRow(p.Context(), "SELECT count(owner) FROM outbox_lanes WHERE table_name = "+
		"'outbox_events' AND expires_at > now()").Scan(&n))
	return n
}

// delivered waits until outbox_events has nothing to deliver.
func (p *patient) delivered() {
	p.Helper()
	for began, left := time.Now(), 1; left > 0; time.Sleep(10 * time.Millisecond) {
		must(p.T, p.pool.QueryRow(p.Context(), "SELECT count(*) FROM outbox_events WHERE processed_at IS NULL").Scan(&left))
		if time.Since(began) > tier.Patience() {
			p.Fatalf("%d events are not delivered", left)
		}
	}
}

// relay runs one until it is stopped.
func (p *patient) relay() (stop func()) {
	p.Helper()
	ctx, cancel := context.WithCancel(p.Context())
	done := make(chan error, 1)
	go func() { done <- app.Relay(ctx, p.settings(), slog.New(slog.DiscardHandler)) }()
	for began := time.Now(); p.held() == 0; time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > tier.Patience() {
			p.Fatal("the relay holds no lane")
		}
	}
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		must(p.T, <-done)
	}
	p.Cleanup(stop)
	return stop
}
