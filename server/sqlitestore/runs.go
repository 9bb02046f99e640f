package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	driver "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/sqlitefile"
	"github.com/outboxrelay/outbox/internal/store/sqlitetime"
	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/store/sqlite"
)

// Runs keeps crawl runs, their log and their outbox in the tables of set crawl. It is safe for concurrent use.
//
// Every statement names its tenant, but for those of a worker, which are for the runs of all. What jsonb would refuse
// is refused here too, so that what was tried on a file works in production.
type Runs struct {
	db     *sqlite.DB
	reads  struct{ get, events, lastSeqs, next *sql.Stmt }
	lists  map[filtered]*sql.Stmt
	writes struct {
		create, byKey, lock, last, known, append, send, change, saveProgress *sql.Stmt
		next, claim, renew, held, release                                    *sql.Stmt
	}
	turn atomic.Value // string: whose run was claimed last
}

// filtered says by what a list is filtered. Each has a statement of its own, which an index serves.
type filtered struct{ Status, App bool }

var _ crawl.Store = (*Runs)(nil)

// OpenRuns returns the runs of a file after checking its tables. If they are missing or older than it needs the error
// is an *outbox.SchemaError. If the file can only be read, sqlite.ErrReadOnly. It waits for a transaction that writes.
func OpenRuns(ctx context.Context, db *sqlite.DB) (*Runs, error) {
	for table, columns := range map[string][]string{
		"crawl_runs": {"tenant_id", "crawler", "idempotency_key", "lease_owner", "lease_epoch", "lease_expires_at",
			"next_node", "node_state", "steps_done", "node_attempts"},
		"crawl_events": {"event_id", "seq", "tenant_id"},
		"crawl_outbox": {"event_id", "seq", "tenant_id"},
	} {
		if err := checkTable(ctx, db, table, columns); err != nil {
			return nil, err
		}
	}
	if err := checkIndexes(ctx, db, "crawl_runs", "crawl_runs_waiting", "crawl_runs_held"); err != nil {
		return nil, err
	}
	if err := sqlitefile.CheckWritable(ctx, db.Reads()); err != nil {
		return nil, err
	}
	r := &Runs{db: db}
	in, w := &r.reads, &r.writes
	if err := compile(ctx, db.Reads(), nil, map[string]**sql.Stmt{
		"run_get": &in.get, "run_events": &in.events, "run_last_seqs": &in.lastSeqs, "run_next": &in.next,
	}); err != nil {
		return nil, err
	}
	if err := compile(ctx, db.Writes(), struct{ Progress bool }{false}, map[string]**sql.Stmt{
		"run_create": &w.create, "run_by_key": &w.byKey, "run_lock": &w.lock, "run_last": &w.last, "run_known": &w.known,
		"run_append": &w.append, "run_send": &w.send,
		"run_change": &w.change, "run_next": &w.next, "run_claim": &w.claim, "run_renew": &w.renew, "run_held": &w.held,
		"run_release": &w.release,
	}); err != nil {
		return nil, err
	}
	if err := compile(ctx, db.Writes(), struct{ Progress bool }{true},
		map[string]**sql.Stmt{"run_change": &w.saveProgress}); err != nil {
		return nil, err
	}
	r.lists = map[filtered]*sql.Stmt{}
	for _, f := range []filtered{{}, {Status: true}, {App: true}, {Status: true, App: true}} {
		var list *sql.Stmt
		if err := compile(ctx, db.Reads(), f, map[string]**sql.Stmt{"run_list": &list}); err != nil {
			return nil, err
		}
		r.lists[f] = list
	}
	return r, nil
}

// CreateRun implements crawl.Store.
func (r *Runs) CreateRun(
	ctx context.Context, tenant string, n crawl.NewRun, most int,
) (run crawl.Run, created bool, err error) {
	if err = checkJSON("deviceConfig", n.DeviceConfig); err == nil {
		err = sqlitefile.InTx(ctx, r.db, func(tx *sql.Tx) error {
			id, err := outbox.NewID()
			if err != nil {
				return err
			}
			row := tx.StmtContext(ctx, r.writes.create).QueryRowContext(ctx, tenant, n.AppPackage, jsonText(n.DeviceConfig),
				n.MaxSteps, n.Goal, n.Crawler, n.IdempotencyKey, id,
				sqlitetime.Stamp(time.Now()), most)
			if err = scanRun(row, &run); !errors.Is(err, sql.ErrNoRows) {
				created = err == nil
				return refusedCheck(err, "run")
			}
			err = scanRun(tx.StmtContext(ctx, r.writes.byKey).QueryRowContext(ctx, tenant, n.IdempotencyKey), &run)
			if errors.Is(err, sql.ErrNoRows) { // it is not the key that is in the way
				return &crawl.QuotaError{Most: most}
			}
			if err != nil {
				return err
			}
			if run.AppPackage != n.AppPackage || !sameJSON(run.DeviceConfig, n.DeviceConfig) || run.MaxSteps != n.MaxSteps ||
				run.Goal != n.Goal || run.Crawler != n.Crawler {
				return crawl.ErrKeyReused
			}
			return nil
		})
	}
	if err != nil {
		return crawl.Run{}, false, fmt.Errorf("create run: %w", sqlitefile.Explain(err))
	}
	return run, created, nil
}

// GetRun implements crawl.Store.
func (r *Runs) GetRun(ctx context.Context, tenant string, id uuid.UUID) (run crawl.Run, err error) {
	err = scanRun(r.reads.get.QueryRowContext(ctx, tenant, id), &run)
	if errors.Is(err, sql.ErrNoRows) {
		err = crawl.ErrNotFound
	}
	if err != nil {
		return crawl.Run{}, fmt.Errorf("get run %s: %w", id, sqlitefile.Explain(err))
	}
	return run, nil
}

// Readable tells whether the runs can be read, which takes more than a file that is open. It costs one probe of the
// primary key.
func (r *Runs) Readable(ctx context.Context) error {
	if err := r.db.Ping(ctx); err != nil {
		return err
	}
	if _, err := r.GetRun(ctx, crawl.DefaultTenant, uuid.Nil); !errors.Is(err, crawl.ErrNotFound) {
		return err
	}
	return nil
}

// CheckGateway is for stores with roles: whoever has opened the file may do everything.
func (r *Runs) CheckGateway(context.Context) error { return nil }

// CheckWorker is as CheckGateway.
func (r *Runs) CheckWorker(context.Context) error { return nil }

// errEnough ends a query early.
var errEnough = errors.New("that is enough")

// ListRuns implements crawl.Store. A page ends where its runs reach crawl.PageBytes; what comes after is not read.
func (r *Runs) ListRuns(
	ctx context.Context, tenant string, f crawl.RunFilter,
) (runs []crawl.Run, more bool, err error) {
	before, id := sqlitetime.Stamp(f.Before.CreatedAt), f.Before.ID.String()
	if f.Before == (crawl.Cursor{}) {
		before, id = "~", "~" // after every time and id
	}
	limit := f.Limit
	if limit <= 0 {
		limit = 50
	}
	size := 0
	err = query(ctx, r.lists[filtered{f.Status != "", f.AppPackage != ""}], func(rows *sql.Rows) error {
		if more = len(runs) == limit || size >= crawl.PageBytes; more {
			return errEnough
		}
		var run crawl.Run
		err := scanRun(rows, &run)
		runs, size = append(runs, run), size+run.Size()
		return err
	}, tenant, string(f.Status), f.AppPackage, before, id, limit+1)
	if err != nil && !errors.Is(err, errEnough) {
		return nil, false, fmt.Errorf("list runs: %w", err)
	}
	return runs, more, nil
}

// ListEvents implements crawl.Store. A page ends where its payloads reach crawl.PageBytes; what comes after is not
// read.
func (r *Runs) ListEvents(
	ctx context.Context, tenant string, run uuid.UUID, after int64, limit int,
) (events []crawl.Event, err error) {
	bytes := 0
	err = query(ctx, r.reads.events, func(rows *sql.Rows) (err error) {
		if bytes >= crawl.PageBytes {
			return errEnough
		}
		e := crawl.Event{Run: run, Tenant: tenant}
		var at string
		if err := rows.Scan(&e.Seq, &e.ID, &e.Type, &at, (*[]byte)(&e.Payload)); err != nil {
			return err
		}
		e.CreatedAt, err = sqlitetime.Parse(at)
		events, bytes = append(events, e), bytes+len(e.Payload)
		return err
	}, tenant, run, after, limit)
	if err != nil && !errors.Is(err, errEnough) {
		return nil, fmt.Errorf("list events of run %s: %w", run, err)
	}
	if len(events) == 0 { // of a run without events, of one that has been read to its end, or of none
		_, err = r.GetRun(ctx, tenant, run)
		return nil, err
	}
	return events, nil
}

// LastSeqs implements crawl.Store.
func (r *Runs) LastSeqs(ctx context.Context, tenant string, runs []uuid.UUID) (map[uuid.UUID]int64, error) {
	last := make(map[uuid.UUID]int64, len(runs))
	err := query(ctx, r.reads.lastSeqs, func(rows *sql.Rows) error {
		var id uuid.UUID
		var seq sql.NullInt64
		err := rows.Scan(&id, &seq)
		if seq.Valid {
			last[id] = seq.Int64
		}
		return err
	}, tenant, jsonList(runs))
	if err != nil {
		return nil, fmt.Errorf("look up the last events of %d runs: %w", len(runs), err)
	}
	return last, nil
}

// scanRun reads run_columns, the number of the last event, and what comes after them.
func scanRun(row interface{ Scan(...any) error }, r *crawl.Run, more ...any) error {
	var created string
	var started, completed, cancelled sql.NullString
	err := row.Scan(append([]any{&r.ID, &r.Tenant, &r.Status, &r.AppPackage, (*[]byte)(&r.DeviceConfig), &r.MaxSteps,
		&r.Goal, &r.Crawler,
		&created, &started, &completed, &cancelled, &r.Error, &r.LastSeq}, more...)...)
	if err != nil {
		return err
	}
	if r.CreatedAt, err = sqlitetime.Parse(created); err != nil {
		return err
	}
	for dst, at := range map[**time.Time]sql.NullString{&r.StartedAt: started, &r.CompletedAt: completed,
		&r.CancelledAt: cancelled} {
		if *dst, err = sqlitetime.ParseNull(at); err != nil {
			return err
		}
	}
	return nil
}

// refusedCheck makes the refusal of one of the tables' checks, as of a text's length, a *crawl.FieldError.
func refusedCheck(err error, field string) error {
	var refused *driver.Error
	if errors.As(err, &refused) && refused.Code() == codes.SQLITE_CONSTRAINT_CHECK {
		return &crawl.FieldError{Field: field, Problem: "is refused by the database: " + refused.Error()}
	}
	return err
}
