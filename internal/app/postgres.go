package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/migration"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/pgcold"
	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/store/pgschema"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
	"github.com/outboxrelay/outbox/internal/store/pooler"
	"github.com/outboxrelay/outbox/internal/store/retention"
	"github.com/outboxrelay/outbox/internal/version"
	"github.com/outboxrelay/outbox/server/pgstore"
	"github.com/outboxrelay/outbox/server/subscription"
	"github.com/outboxrelay/outbox/store/postgres"
)

func postgresStore() store {
	return store{
		schemes: []string{"postgres", "postgresql"},
		words:   regexp.MustCompile(`^\s*[a-z_]+\s*=|^\$`).MatchString,
		example: "postgres://user:password@host:5432/database",
		check:   checkPostgres, mask: maskPostgres,
		opener:     func() opener { return openPostgres },
		migrations: func(url string) Migrations { return postgresMigrations{url: url} },
		required:   pgmigrations.Required,
		passes:     pgschema.Passes, hint: hintPostgres,
	}
}

func checkPostgres(url string) error {
	_, _, err := pooler.ParseURL(url)
	return err
}

func maskPostgres(url string) string {
	cfg, _, err := pooler.ParseURL(url)
	if err != nil {
		return "(no valid URL)"
	}
	c := cfg.ConnConfig
	return fmt.Sprintf("%s at %s:%d", c.Database, c.Host, c.Port)
}

// postgresDatabase is a Database in PostgreSQL. What uses only one kind of sessions makes none of
// the other.
type postgresDatabase struct {
	*pgxpool.Pool
	outbox.Database // is relay
	views
	relay *postgres.DB
}

func openPostgres(ctx context.Context, databaseURL string, u use) (Database, error) {
	pool, err := openPool(ctx, databaseURL, u)
	if err != nil {
		return nil, err
	}
	relay, err := postgres.Connect(ctx, databaseURL, postgres.Config{Conns: u.conns, Name: u.called()})
	if err != nil {
		pool.Close()
		return nil, err
	}
	return postgresDatabase{pool, relay, viewsOf(pgcold.DB{Pool: pool}), relay}, nil
}

// openPool opens a pool of plain sessions; a relay's are different, see postgres.Connect. It does
// not wait for the server.
func openPool(ctx context.Context, databaseURL string, u use) (*pgxpool.Pool, error) {
	cfg, _, err := pooler.ParseURL(databaseURL)
	if err != nil {
		return nil, fmt.Errorf("parse database URL: %w", err)
	}
	cfg.MaxConns = int32(u.conns)
	if u.relay {
		cfg.MaxConnIdleTime = time.Minute // what a relay asks at its start need not stay connected
	}
	cfg.ConnConfig.ConnectTimeout = 4 * time.Second // of each attempt: one with TLS, one without
	version.Introduce(cfg.ConnConfig.RuntimeParams, u.called())
	postgres.Adapt(cfg)
	// Of several servers the primary: to a stream a standby's older log looks like one that has
	// lost events. Whoever wants another says so.
	if several(cfg.ConnConfig) && !strings.Contains(databaseURL, "target_session_attrs") {
		cfg.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	return pool, nil
}

// several tells whether there is more than one server to connect to; one comes twice where TLS is
// preferred and not required.
func several(cfg *pgx.ConnConfig) bool {
	return slices.ContainsFunc(cfg.Fallbacks,
		func(f *pgconn.FallbackConfig) bool { return f.Host != cfg.Host || f.Port != cfg.Port })
}

func (d postgresDatabase) Close() {
	d.relay.Close()
	d.Pool.Close()
}

func (d postgresDatabase) OpenRetention(ctx context.Context, layout outbox.Layout) (*retention.Table, error) {
	return d.relay.OpenRetention(ctx, layout)
}

func (d postgresDatabase) Runs(ctx context.Context) (Runs, error) {
	return pgstore.OpenRuns(ctx, d.Pool)
}

func (d postgresDatabase) Tokens(ctx context.Context) (Tokens, error) {
	return pgstore.OpenTokens(ctx, d.Pool)
}

func (d postgresDatabase) Subscriptions(ctx context.Context) (subscription.Store, error) {
	s, err := pgstore.OpenSubscriptions(ctx, d.Pool)
	if _, missing := errors.AsType[*outbox.SchemaError](err); missing {
		return nil, ErrNoSubscriptions
	} else if err != nil {
		return nil, err
	}
	return s, nil
}

func (d postgresDatabase) Letters(ctx context.Context, layouts []outbox.Layout) (deadletter.Store, error) {
	return postgres.OpenDeadLetters(ctx, d.Pool, postgres.DeadLettersConfig{Layouts: layouts})
}

func (d postgresDatabase) Notifier() (Notifier, error) { return postgres.NewNotifier(d.Pool, 0) }

// postgresWriting is a Writing into PostgreSQL.
type postgresWriting struct {
	preparing
	pool     *pgxpool.Pool
	writer   *postgres.Writer
	browser  *operate.Browser // tells which ids were there before
	notifier *postgres.Notifier

	stop       context.CancelFunc
	background sync.WaitGroup
}

func (d postgresDatabase) Writing(ctx context.Context, cfg outbox.WriterConfig) (Writing, error) {
	w := &postgresWriting{pool: d.Pool, preparing: preparing{cfg}}
	var err error
	if w.writer, err = postgres.NewWriter(cfg); err != nil {
		return nil, err
	}
	if w.browser, err = d.Browser(ctx, pgtable.Written(cfg.Table)); err != nil {
		return nil, err
	}
	if w.notifier, err = postgres.NewNotifier(d.Pool, 0); err != nil {
		return nil, err
	}
	ctx, w.stop = context.WithCancel(context.WithoutCancel(ctx))
	w.background.Go(func() { _ = w.notifier.Run(ctx) }) // it returns nil
	return w, nil
}

func (w *postgresWriting) Commit(
	ctx context.Context, events []outbox.Event, ask []uuid.UUID,
) (known []uuid.UUID, err error) {
	err = w.writer.InTx(ctx, w.pool, func(tx pgx.Tx) (_ []outbox.Event, err error) {
		if len(ask) > 0 {
			known, err = w.browser.Known(ctx, pgcold.Conn{Querier: tx}, ask)
		}
		return events, err
	}, w.notifier.Wake)
	return known, err
}

func (w *postgresWriting) Close() {
	w.stop()
	w.background.Wait()
}

// postgresMigrations are the Migrations of the database at a URL.
type postgresMigrations struct{ url, zone string }

// InZone implements ZoneMigrations.
func (m postgresMigrations) InZone(zone string) Migrations {
	m.zone = zone
	return m
}

func (m postgresMigrations) Status(ctx context.Context, named ...string) ([]migration.SetStatus, error) {
	return pgmigrations.Status(ctx, m.url, named...)
}

func (m postgresMigrations) Plan(ctx context.Context, sets ...string) (migration.Adoption, error) {
	return pgmigrations.PlanIn(ctx, m.url, m.zone, sets...)
}

func (m postgresMigrations) Up(ctx context.Context, sets ...string) error {
	return pgmigrations.UpIn(ctx, m.url, m.zone, sets...)
}

func (m postgresMigrations) Down(ctx context.Context, steps int, set string) error {
	return pgmigrations.Down(ctx, m.url, steps, set)
}

func (m postgresMigrations) ApplyRoles(ctx context.Context) error {
	return pgmigrations.ApplyRoles(ctx, m.url)
}

func (m postgresMigrations) Indexes(ctx context.Context) ([]pgmigrations.Index, error) {
	return pgmigrations.Indexes(ctx, m.url)
}

func (m postgresMigrations) SwitchIndexes(
	ctx context.Context, to pgmigrations.IndexSet, progress func(index string),
) (changed []string, err error) {
	return pgmigrations.SwitchIndexes(ctx, m.url, to, progress)
}

func (postgresMigrations) Export(
	dir string, format pgmigrations.Format, sets ...string,
) ([]pgmigrations.ExportedFile, error) {
	return pgmigrations.Export(dir, format, sets...)
}

// Required implements Migrations.
func (postgresMigrations) Required(set string) uint { return pgmigrations.Required(set) }

// Lacks is empty: it has all abilities.
func (postgresMigrations) Lacks(Ability) string { return "" }

func (m postgresMigrations) Print(w io.Writer, sets ...string) error {
	return pgmigrations.Print(w, sets...)
}

// hintPostgres names the remedy where the error's own text cannot know it.
func hintPostgres(err error) string {
	var server *pgconn.PgError
	switch {
	case errors.As(err, &server) && (strings.HasPrefix(server.Code, "28") || server.Code == "3D000"):
		return "correct user, password or database in --database, OUTBOX_DATABASE_URL or DATABASE_URL"
	case errors.As(err, &server) && server.Code == "42P01":
		return "make the tables with: outbox migrate up"
	case errors.As(err, &server) && server.Code == "42501":
		return "this database role may not do that: see outbox migrate roles --help for the roles and what each may do"
	case errors.As(err, &server) && slices.Contains([]string{"42704", "22023", "55P02", "08P01"}, server.Code) &&
		errors.As(err, new(*pgconn.ConnectError)):
		return "the server does not accept a parameter of the URL: correct it or leave it out"
	case errors.As(err, new(*pgconn.ConnectError)) && errors.Is(err, context.DeadlineExceeded):
		return "the server does not answer: is it overloaded, or is another program at that address?"
	case pooler.NotRunning(err):
		return "is PostgreSQL running there? The URL is that of --database, OUTBOX_DATABASE_URL or DATABASE_URL"
	}
	return ""
}
