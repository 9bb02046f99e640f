package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Connect opens a pool for relays: at most conns connections, with the session settings of sql/session.sql. Producers and readers use a
// pool of their own. It does not wait for the server; the first use does. A relay uses one connection a worker and one for its leases; Listen
// and Backlog one each.
// Errors never contain the URL.
func Connect(ctx context.Context, url string, conns int) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("parse database URL: %w", withoutURL(err))
	}
	settings, err := plain("session")
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = int32(min(max(conns, 2), 1000))
	cfg.ConnConfig.ConnectTimeout = 5 * time.Second
	// Whatever the URL says: Claim reads the binary format, which the simple protocol does not have.
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	if cfg.ConnConfig.RuntimeParams["application_name"] == "" {
		cfg.ConnConfig.RuntimeParams["application_name"] = "outbox relay"
	}
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, settings, pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("set up relay session: %w", err)
		}
		return nil
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open database pool: %w", withoutURL(err))
	}
	return pool, nil
}

// withoutURL drops the text of a parse error, which quotes the connection string. (pgx masks a password it recognises, but in a
// malformed URL it cannot know where it is.)
func withoutURL(err error) error {
	var parse *pgconn.ParseConfigError
	if errors.As(err, &parse) {
		return errors.New("it is no valid PostgreSQL URL or keyword/value string (the text is not shown, it may hold a password)")
	}
	return err
}
