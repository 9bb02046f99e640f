package pgstore

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/pgcold"
	"github.com/outboxrelay/outbox/internal/store/sqlfile"
	"github.com/outboxrelay/outbox/server/store"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

var files = sqlfile.Folder(sqlFiles)

// Runs are those of a database.
type Runs struct {
	*store.Runs

	pool *pgxpool.Pool
}

// OpenRuns returns the runs of a database after checking its tables: if they are missing or older
// than it needs the error is an *outbox.SchemaError. A gateway's role needs outbox_gateway, which
// row-level security binds to the tenant of each transaction (app.current_namespace), and a
// worker's outbox_worker.
func OpenRuns(ctx context.Context, pool *pgxpool.Pool) (*Runs, error) {
	r, err := store.OpenRuns(ctx, newDatabase(pool))
	if err != nil {
		return nil, err
	}
	return &Runs{r, pool}, nil
}

// Tokens are those of a database.
//
// A gateway's role can look tokens up and cannot make any: whoever breaks into a gateway does not
// leave with a token of his own.
type Tokens struct {
	*store.Tokens

	pool *pgxpool.Pool
}

// OpenTokens returns the tokens of a database after checking that it has the tables: if not, an
// *outbox.SchemaError.
func OpenTokens(ctx context.Context, pool *pgxpool.Pool) (*Tokens, error) {
	s, err := store.OpenTokens(ctx, newDatabase(pool))
	if err != nil {
		return nil, err
	}
	return &Tokens{s, pool}, nil
}

// database is a store.Database. Its statements go in pipelines.
type database struct{ pgcold.DB }

func newDatabase(pool *pgxpool.Pool) database { return database{pgcold.DB{Pool: pool}} }

// Statements implements store.Database.
func (database) Statements() (*sqlfile.Set, error) { return files.Set() }

// Refused implements store.Database: what JSON contains, and a text's length or bytes.
func (database) Refused(err error) (words string, refused bool) {
	var server *pgconn.PgError
	if errors.As(err, &server) {
		switch server.Code {
		case "22P02", "22P05", "22003", "22021", "22001", "54001":
			return server.Message, true
		}
	}
	return "", false
}

// Read implements store.Database.
func (d database) Read(ctx context.Context, tenant string, a store.Ask) error {
	return d.Write(ctx, tenant, a)
}

// Write implements store.Database: one round trip, which is one implicit transaction.
func (d database) Write(ctx context.Context, tenant string, asks ...store.Ask) error {
	var batch pgx.Batch
	if err := queue(&batch, d, asks, speaking(tenant)...); err != nil {
		return err
	}
	return d.Pool.SendBatch(ctx, &batch).Close()
}

// Change implements store.Database.
func (d database) Change(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	conn, err := d.Pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("acquire connection: %w", err)
	}
	defer conn.Release()
	defer rollback(ctx, conn)
	return fn(&transaction{d, conn.Conn(), append([]store.Ask{{Name: "begin"}, {Name: "run_bounded"}},
		speaking(tenant)...)})
}

// speaking names a tenant to row-level security.
func speaking(tenant string) []store.Ask {
	if tenant == "" {
		return nil
	}
	return []store.Ask{{Name: "run_tenant", Data: struct{ Tenant string }{tenant}}}
}

// transaction begins and commits in a pipeline with its statements.
type transaction struct {
	database

	conn  *pgx.Conn
	first []store.Ask // that begin it
}

// Run implements store.Tx.
func (t *transaction) Run(ctx context.Context, asks ...store.Ask) error {
	var batch pgx.Batch
	if err := queue(&batch, t, asks, t.first...); err != nil {
		return err
	}
	t.first = nil
	return t.conn.SendBatch(ctx, &batch).Close()
}

// Commit implements store.Tx.
func (t *transaction) Commit(ctx context.Context, asks ...store.Ask) error {
	return t.Run(ctx, append(asks, store.Ask{Name: "commit"})...)
}

// queue fills statements in.
func queue(batch *pgx.Batch, of cold.Language, asks []store.Ask, first ...store.Ask) error {
	for _, a := range append(first, asks...) {
		statement, args, err := cold.Statement(of, a.Name, a.Data)
		if err != nil {
			return err
		}
		if q := batch.Queue(statement, args...); a.Row != nil {
			q.Query(func(rows pgx.Rows) error { return a.Give(rows) })
		}
	}
	return nil
}

// rollbackTimeout bounds the wait for a server that does not answer. Past it the connection is
// closed, and the server rolls back itself.
const rollbackTimeout = 5 * time.Second

// rollback ends a transaction that is still open. A connection on which it fails is broken: Release
// discards it.
func rollback(ctx context.Context, conn *pgxpool.Conn) {
	if conn.Conn().PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	_, _ = conn.Exec(ctx, "ROLLBACK")
}
