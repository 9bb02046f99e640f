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

// relaySettings is what a relay's own sessions run with.
//
// The planner is pinned to ordered index scans: it knows neither that the queue is nearly always empty nor that statistics taken during a backlog are
// stale a second later. Unpinned, each empty poll walked 8,000 dead index entries; pinned, p50 latency went from 1.86 to 0.64 ms.
//
// synchronous_commit=off is safe for a settle: one lost in a crash of the server is a second publish, which the sink refuses.
// Leases turn it on again for themselves.
const relaySettings = `
SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off; SET enable_hashjoin = off; SET enable_mergejoin = off;
SET enable_material = off; SET jit = off; SET max_parallel_workers_per_gather = 0; SET plan_cache_mode = force_generic_plan;
SET synchronous_commit = off; SET idle_in_transaction_session_timeout = '60s'`

// Connect opens a pool for relays: at most conns connections, with the session settings above. Producers and readers use a
// pool of their own. It does not wait for the server; the first use does.
// Errors never contain the URL.
func Connect(ctx context.Context, url string, conns int) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("parse database URL: %w", withoutURL(err))
	}
	cfg.MaxConns = int32(min(max(conns, 2), 1000))
	cfg.ConnConfig.ConnectTimeout = 5 * time.Second
	if cfg.ConnConfig.RuntimeParams["application_name"] == "" {
		cfg.ConnConfig.RuntimeParams["application_name"] = "outbox relay"
	}
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, relaySettings, pgx.QueryExecModeSimpleProtocol); err != nil {
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
