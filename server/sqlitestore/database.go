package sqlitestore

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	driver "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/migration"
	"github.com/outboxrelay/outbox/internal/store/sqlfile"
	"github.com/outboxrelay/outbox/internal/store/sqlitecold"
	"github.com/outboxrelay/outbox/internal/store/sqlitefile"
	"github.com/outboxrelay/outbox/internal/store/sqlitetime"
	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/store"
	"github.com/outboxrelay/outbox/store/sqlite"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

var files = sqlfile.Folder(sqlFiles)

// Runs are those of a file.
type Runs struct {
	*store.Runs

	db database
}

// OpenRuns returns the runs of a file after checking its tables. If they are missing or older than
// it needs the error is an *outbox.SchemaError. If the file can only be read, sqlite.ErrReadOnly.
// It waits for a transaction that writes.
func OpenRuns(ctx context.Context, db *sqlite.DB) (*Runs, error) {
	d := newDatabase(db)
	r, err := store.OpenRuns(ctx, d)
	if err != nil {
		return nil, err
	}
	if err := d.checkIndexes(ctx, "crawl_runs", "crawl_runs_waiting", "crawl_runs_held"); err != nil {
		return nil, err
	}
	if err := sqlitefile.CheckWritable(ctx, db.Reads()); err != nil {
		return nil, err
	}
	return &Runs{r, d}, nil
}

// Readable tells whether the runs can be read, which takes more than a file that is open.
func (r *Runs) Readable(ctx context.Context) error {
	if err := r.db.file.Ping(ctx); err != nil {
		return err
	}
	return r.Runs.Readable(ctx)
}

// CheckGateway is for stores with roles: whoever has opened the file may do everything.
func (r *Runs) CheckGateway(context.Context) error { return nil }

// CheckWorker is as CheckGateway.
func (r *Runs) CheckWorker(context.Context) error { return nil }

// waiting is what run_waits.sql and run_cut.sql are given.
type waiting struct {
	Crawlers             []string
	Now, Until, Farthest time.Time
}

// ClaimRun implements crawl.Store. It looks first without a lock, so that a worker with nothing to
// do holds up no writer. A lease from before the clock was set back is cut: its worker has as long
// as this one would to show that it is alive.
func (r *Runs) ClaimRun(
	ctx context.Context, owner uuid.UUID, crawlers []string, ttl time.Duration, events func(crawl.Run) []crawl.NewEvent,
) (crawl.Claim, error) {
	now := time.Now()
	q := waiting{crawlers, now, now.Add(ttl), sqlitetime.Farthest(now, ttl)}
	var some, ahead bool
	err := r.db.Read(ctx, "", store.Ask{Name: "run_waits", Data: q,
		Row: func(row store.Row) error { return row.Scan(&some, &ahead) }})
	if err == nil && ahead {
		err = r.db.Write(ctx, "", store.Ask{Name: "run_cut", Data: q})
	}
	if err == nil && !some {
		err = crawl.ErrNoRun
	}
	if err != nil {
		return crawl.Claim{}, err
	}
	return r.Runs.ClaimRun(ctx, owner, crawlers, ttl, events)
}

// Tokens are those of a file.
type Tokens struct{ *store.Tokens }

// OpenTokens returns the tokens of a file after checking that it has the tables: if not, an
// *outbox.SchemaError.
func OpenTokens(ctx context.Context, db *sqlite.DB) (*Tokens, error) {
	s, err := store.OpenTokens(ctx, newDatabase(db))
	if err != nil {
		return nil, err
	}
	return &Tokens{s}, nil
}

// CheckGateway is for stores with roles: whoever has opened the file may do everything.
func (s *Tokens) CheckGateway(context.Context) error { return nil }

// database is a store.Database.
type database struct {
	sqlitecold.DB

	file          *sqlite.DB
	reads, writes *prepared
}

func newDatabase(db *sqlite.DB) database {
	return database{sqlitecold.DB{File: db}, db, &prepared{}, &prepared{}}
}

// prepared are statements by their texts, for as long as the file is open. To compile them each
// time costs a change of a run a quarter of its pace.
type prepared struct{ sync.Map }

func (p *prepared) on(ctx context.Context, db *sql.DB, text string) (*sql.Stmt, error) {
	if kept, there := p.Load(text); there {
		return kept.(*sql.Stmt), nil
	}
	stmt, err := db.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	kept, there := p.LoadOrStore(text, stmt)
	if there {
		_ = stmt.Close() //nolint:sqlclosecheck // the one that is kept stays open
	}
	return kept.(*sql.Stmt), nil
}

// Statements implements store.Database.
func (database) Statements() (*sqlfile.Set, error) { return files.Set() }

// Refused implements store.Database: the tables' checks, as of a text's length.
func (database) Refused(err error) (words string, refused bool) {
	var failure *driver.Error
	if errors.As(err, &failure) && failure.Code() == codes.SQLITE_CONSTRAINT_CHECK {
		return failure.Error(), true
	}
	return "", false
}

// Read implements store.Database.
func (d database) Read(ctx context.Context, _ string, a store.Ask) error {
	text, args, err := cold.Statement(d, a.Name, a.Data)
	if err != nil {
		return err
	}
	stmt, err := d.reads.on(ctx, d.file.Reads(), text)
	if err != nil {
		return sqlitefile.Explain(err)
	}
	return answer(ctx, stmt, a, args)
}

// Write implements store.Database.
func (d database) Write(ctx context.Context, tenant string, asks ...store.Ask) error {
	return d.Change(ctx, tenant, func(tx store.Tx) error { return tx.Commit(ctx, asks...) })
}

// Change implements store.Database. What it has asked for the first time is prepared afterwards: in
// a transaction on the only connection that writes it would be too late.
func (d database) Change(ctx context.Context, _ string, fn func(store.Tx) error) error {
	begun, err := d.file.Begin(ctx)
	if err != nil {
		return sqlitefile.Explain(err)
	}
	tx := &transaction{db: d, tx: begun}
	err = func() error {
		defer func() { _ = begun.Rollback() }() // also where fn panics; of one that is committed it does nothing
		return fn(tx)
	}()
	for _, text := range tx.first {
		if _, failed := d.writes.on(ctx, d.file.Writes(), text); failed != nil {
			break // the next one tries again
		}
	}
	return err
}

type transaction struct {
	db    database
	tx    *sql.Tx
	first []string // texts that nobody has prepared
}

// Run implements store.Tx.
func (t *transaction) Run(ctx context.Context, asks ...store.Ask) error {
	for _, a := range asks {
		text, args, err := cold.Statement(t.db, a.Name, a.Data)
		if err != nil {
			return err
		}
		var stmt *sql.Stmt
		if kept, there := t.db.writes.Load(text); there {
			stmt = t.tx.StmtContext(ctx, kept.(*sql.Stmt))
		} else if stmt, err = t.tx.PrepareContext(ctx, text); err != nil {
			return sqlitefile.Explain(err)
		} else {
			t.first = append(t.first, text)
		}
		if err := answer(ctx, stmt, a, args); err != nil {
			return err
		}
	}
	return nil
}

// Commit implements store.Tx.
func (t *transaction) Commit(ctx context.Context, asks ...store.Ask) error {
	if err := t.Run(ctx, asks...); err != nil {
		return err
	}
	return sqlitefile.Explain(t.tx.Commit())
}

type answered struct{ *sql.Rows }

func (r answered) Close() { _ = r.Rows.Close() } // Err has said what there was to say

func answer(ctx context.Context, stmt *sql.Stmt, a store.Ask, args []any) error {
	if a.Row == nil {
		_, err := stmt.ExecContext(ctx, args...)
		return sqlitefile.Explain(err)
	}
	rows, err := stmt.QueryContext(ctx, args...) //nolint:rowserrcheck // Give asks
	if err != nil {
		return sqlitefile.Explain(err)
	}
	return sqlitefile.Explain(a.Give(answered{rows}))
}

// checkIndexes answers with an *outbox.SchemaError if a table lacks one of the indexes, which
// statements name: SQLite would refuse them.
func (d database) checkIndexes(ctx context.Context, table string, wanted ...string) error {
	var have []string
	if err := d.Read(ctx, "", store.Ask{Name: "check_indexes", Data: struct{ Table string }{table},
		Row: func(row store.Row) error {
			var name string
			err := row.Scan(&name)
			have = append(have, name)
			return err
		}}); err != nil {
		return err
	}
	missing := slices.DeleteFunc(wanted, func(w string) bool { return slices.Contains(have, w) })
	if len(missing) > 0 {
		return &outbox.SchemaError{Table: table, Missing: missing,
			Remedy: "run: outbox migrate up --set " + migration.SetOf[table]}
	}
	return nil
}
