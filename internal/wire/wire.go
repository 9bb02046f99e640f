// Package wire builds what the commands run, from their settings. It is the only package that sees stores and sinks together.
//
// Guaranteed: a relay that has to wait for its database or its Redis says so and shows as not ready; one that is told to stop finishes the
// batch in flight, gives up its lanes and only then closes what it opened.
//
// Not guaranteed: that settings make sense. Package config has checked them before.
package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/tables"
)

// Pool opens connections for a command that writes or reads as an application would, and sees to it that the server answers. A relay's
// sessions are different: see postgres.Connect.
func Pool(ctx context.Context, databaseURL string) (*pgxpool.Pool, error) {
	pool, err := openPool(ctx, databaseURL, "outbox", 2) // the command's own, and one to wake relays
	if err != nil {
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("open database %s: %w", config.MaskDatabase(databaseURL), err)
	}
	return pool, nil
}

// openPool opens a pool of plain sessions; a relay's are different, see postgres.Connect. It does not wait for the server.
func openPool(ctx context.Context, databaseURL, name string, conns int) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return nil, errors.New("parse database URL: it is not valid (not shown, it may hold a password)")
	}
	cfg.MaxConns = int32(conns)
	cfg.ConnConfig.ConnectTimeout = 10 * time.Second
	if cfg.ConnConfig.RuntimeParams["application_name"] == "" {
		cfg.ConnConfig.RuntimeParams["application_name"] = name
	}
	// Of several servers the primary: to a stream a standby's older log looks like one that has lost events. Whoever wants another says so.
	if several(cfg.ConnConfig) && !strings.Contains(databaseURL, "target_session_attrs") {
		cfg.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	return pool, nil
}

// several tells whether there is more than one server to connect to; one comes twice where TLS is preferred and not required.
func several(cfg *pgx.ConnConfig) bool {
	return slices.ContainsFunc(cfg.Fallbacks, func(f *pgconn.FallbackConfig) bool { return f.Host != cfg.Host || f.Port != cfg.Port })
}

// passing tells whether a failure to open something can go away while one waits: a server that is down, starting or out of connections, and
// not a wrong password, an untrusted certificate or a missing column, which need somebody to act.
func passing(err error) bool {
	var settings *config.Error
	var schema *tables.SchemaError
	var server *pgconn.PgError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &certificate):
		return false
	case errors.As(err, &settings), errors.As(err, &schema), errors.Is(err, tables.ErrRowsHidden), errors.Is(err, tables.ErrNotAllowed), errors.Is(err, errNoTable), redis.IsAuthError(err):
		return false
	case errors.As(err, &server):
		switch server.Code[:2] {
		case "08", "40", "53", "55", "57": // connection, rolled back, resources, locked, operator intervention
			return true
		}
		return false
	}
	return true
}
