package pgtest

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

// Sessions returns a pool of ordinary sessions on a database.
func Sessions(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	ok(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// ApplyRoles makes the roles and leaves the tables to the superuser of the URL, who may go on to
// run every command.
func ApplyRoles(ctx context.Context, url string) error {
	if err := migrations.ApplyRoles(ctx, url); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "REASSIGN OWNED BY outbox_owner TO CURRENT_USER; "+
		"REVOKE CREATE ON SCHEMA public FROM outbox_owner")
	return errors.Join(err, conn.Close(ctx))
}

// As returns a pool on the same database whose sessions have one of the roles.
func As(t *testing.T, pool *pgxpool.Pool, role string) *pgxpool.Pool {
	t.Helper()
	ok(t, migrations.ApplyRoles(t.Context(), pool.Config().ConnString()))
	cfg := pool.Config()
	cfg.ConnConfig.RuntimeParams["role"] = role
	p, err := pgxpool.NewWithConfig(t.Context(), cfg)
	ok(t, err)
	t.Cleanup(p.Close)
	return p
}

// Exec runs a statement that must succeed.
func Exec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// Query returns the single value of a query.
func Query[T any](t *testing.T, pool *pgxpool.Pool, sql string, args ...any) (v T) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}
