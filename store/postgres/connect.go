package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/internal/store/pooler"
	"github.com/outboxrelay/outbox/internal/version"
)

// ErrStatementMode is the error of every connection through a pooler in statement mode. There the
// outbox cannot work, nor anything else that needs transactions.
var ErrStatementMode = pooler.ErrStatementMode

// errPoolerCame is the error of a connection that was made as one to PostgreSQL itself and is none
// any more. The next one will be right.
var errPoolerCame = errors.New("a pooler has come between this program and PostgreSQL, connecting again")

// Config configures a DB. Zero means the default in parentheses.
type Config struct {
	// Conns is how many connections there are at most (20). A relay uses one a worker of each
	// table, and for each table one for its leases and one for retention. One counts backlogs, one
	// looks for work, and Listen has one. With fewer they take turns. What was not needed for half
	// a minute is closed.
	Conns int
	// Name is what the sessions call themselves to the server (outbox relay, and the version),
	// unless the URL says it.
	Name string
}

// Connect returns the database behind a URL for a relay, whose sessions have the settings of
// sql/session.sql. It does not wait for the server; the first use does.
//
// A URL that leads to a pooler works too, see Adapt. The settings then go with each transaction,
// and none stays with a session that others may get. Errors never contain the URL.
func Connect(ctx context.Context, url string, cfg Config) (*DB, error) {
	cfg.Conns = cmp.Or(cfg.Conns, 20)
	cfg.Name = cmp.Or(cfg.Name, version.Named("outbox relay"))
	pool, err := connect(ctx, url, cfg)
	if err != nil {
		return nil, err
	}
	return NewDB(pool), nil
}

// An idle relay needs a few connections, of all that it has opened for a burst. Making one takes
// some milliseconds.
const (
	idleConns      = 30 * time.Second
	pgxDefaultIdle = 30 * time.Minute
)

// connect opens a pool for relays.
func connect(ctx context.Context, url string, of Config) (*pgxpool.Pool, error) {
	cfg, _, err := pooler.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("parse database URL: %w", err)
	}
	settings, err := plain("session")
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = int32(min(max(of.Conns, 2), 1000))
	if cfg.MaxConnIdleTime == pgxDefaultIdle { // the URL says nothing else
		cfg.MaxConnIdleTime = idleConns
	}
	cfg.ConnConfig.ConnectTimeout = 4 * time.Second // of each attempt: one with TLS, one without
	// Whatever the URL says: Claim reads the binary format, which the simple protocol does not
	// have.
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	version.Introduce(cfg.ConnConfig.RuntimeParams, of.Name)
	adapt(cfg, settings)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open database pool: %w", err)
	}
	return pool, nil
}

// Adapt makes the connections of a pool fit for what they lead to, PostgreSQL itself or a pooler in
// transaction mode, which it finds out before the first one. Through a pooler they have no named
// prepared statements. All speak UTF-8, whatever the role's or the database's client_encoding is,
// and read texts in SQL as the standard has them. Where adopted tables have times without a zone,
// they are in the zone that `outbox migrate up` recorded. A password that stands in a passfile
// (?passfile=, PGPASSFILE, ~/.pgpass) is read again for each connection, so it may change while the
// program runs.
//
// It sets cfg.BeforeConnect and cfg.AfterConnect, and calls those that were there.
func Adapt(cfg *pgxpool.Config) { adapt(cfg, "") }

// adapt also gives the sessions of PostgreSQL itself the settings of session.sql.
func adapt(cfg *pgxpool.Config, settings string) {
	// A start-up parameter: every pooler knows it, and it ends with the connection.
	cfg.ConnConfig.RuntimeParams["client_encoding"] = "UTF8"
	cfg.ConnConfig.RuntimeParams["standard_conforming_strings"] = "on" // or pgx refuses its simple protocol
	r := &route{settings: settings, password: cfg.ConnConfig.Password}
	before, after := cfg.BeforeConnect, cfg.AfterConnect
	cfg.BeforeConnect = func(ctx context.Context, conn *pgx.ConnConfig) error {
		if before != nil {
			if err := before(ctx, conn); err != nil {
				return err
			}
		}
		return r.prepare(ctx, conn)
	}
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if err := r.settle(ctx, conn); err != nil || after == nil {
			return err
		}
		return after(ctx, conn)
	}
}

// route is what is known of the way to the server.
type route struct {
	settings string // of a relay's sessions, or ""
	password string // as it was when the URL was read

	mu     sync.Mutex // held while the first connection finds out
	known  bool
	pooled bool
	zone   string // of times without one, or ""
}

// prepare chooses how a new connection sends its statements.
func (r *route) prepare(ctx context.Context, cfg *pgx.ConnConfig) error {
	if now, err := pgx.ParseConfig(cfg.ConnString()); err == nil && cfg.Password == r.password {
		cfg.Password = now.Password
	}
	pooled, zone, err := r.find(ctx, cfg)
	if err != nil {
		return err
	}
	if zone != "" { // a start-up parameter too: PgBouncer gives it to whichever session serves a transaction
		maps.DeleteFunc(cfg.RuntimeParams, func(name, _ string) bool { return strings.EqualFold(name, "timezone") })
		cfg.RuntimeParams["timezone"] = zone
	}
	if !pooled {
		return nil
	}
	if cfg.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement ||
		cfg.DefaultQueryExecMode == pgx.QueryExecModeDescribeExec {
		cfg.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	return nil
}

// find tells whether there is a pooler and which zone is recorded, for which it makes a connection
// if that is not known yet.
func (r *route) find(ctx context.Context, cfg *pgx.ConnConfig) (pooled bool, zone string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known {
		return r.pooled, r.zone, nil
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return false, "", err
	}
	pooled, err = pooler.Between(ctx, conn)
	if err == nil {
		zone, err = recordedZone(ctx, conn)
	}
	if closing := conn.Close(ctx); err == nil {
		err = closing
	}
	if err != nil {
		return false, "", err
	}
	r.known, r.pooled, r.zone = true, pooled, zone
	return pooled, zone, nil
}

func recordedZone(ctx context.Context, conn *pgx.Conn) (zone string, err error) {
	ask, err := plain("zone")
	if err == nil {
		err = conn.QueryRow(ctx, ask, pgx.QueryExecModeSimpleProtocol).Scan(&zone)
	}
	if err != nil {
		return "", fmt.Errorf("ask for the zone of times without one: %w", err)
	}
	return zone, nil
}

// settle sets up a session of PostgreSQL itself, and makes sure that it is one.
func (r *route) settle(ctx context.Context, conn *pgx.Conn) error {
	r.mu.Lock()
	pooled := r.pooled
	r.mu.Unlock()
	if pooled {
		return nil
	}
	var direct bool
	var err error
	if r.settings == "" {
		direct, err = pooler.Between(ctx, conn)
		direct = !direct
	} else {
		var tag pgconn.CommandTag
		tag, err = conn.Exec(ctx, r.settings, pgx.QueryExecModeExec, false, int64(conn.PgConn().PID()))
		direct = tag.RowsAffected() == 1
	}
	switch {
	case err != nil:
		return fmt.Errorf("set up session: %w", err)
	case !direct:
		r.mu.Lock()
		r.pooled = true
		r.mu.Unlock()
		return errPoolerCame
	}
	if r.settings != "" {
		pooler.SetUp(conn)
	}
	return nil
}
