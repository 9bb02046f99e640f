package pgstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/internal/store/pgschema"
	"github.com/outboxrelay/outbox/server/crawl"
)

// Runs keeps crawl runs, their log and their outbox in the tables of set crawl. It is safe for concurrent use.
//
// Every statement names its tenant, and every transaction names it to row-level security too (app.current_namespace),
// which binds the role outbox_gateway. ClaimRun, RenewRun and ReleaseRun are for the runs of all tenants and need
// outbox_worker.
type Runs struct {
	pool  *pgxpool.Pool
	sql   runStatements
	pages pageSize
	turn  atomic.Value // string: whose run was claimed last
	// turns has those take turns who create runs of one tenant: each counts, and must see what the one before has
	// inserted. A lock of the database would be one that any login can take and keep (pg_advisory_lock); so as many runs
	// too many as there are other gateways may come in at the same moment.
	turns *crawl.Shares
}

var _ crawl.Store = (*Runs)(nil)

type runStatements struct {
	tenant, bounded, get, create, byKey, events, lastSeqs   string
	list                                                    map[filtered]string
	lock, last, known, differ, append, change, saveProgress string
	claim, renew, held, release                             string
}

// filtered says by what a list is filtered. Each has a statement of its own, which an index serves.
type filtered struct {
	Status crawl.Status
	App    bool
}

// OpenRuns returns the runs of a database after checking its tables: if they are missing or older than it needs the
// error is an *outbox.SchemaError.
func OpenRuns(ctx context.Context, pool *pgxpool.Pool) (*Runs, error) {
	for _, t := range []struct {
		table   string
		columns []string
	}{
		{runsTable, []string{"tenant_id", "crawler", "idempotency_key", "lease_owner", "lease_epoch", "lease_expires_at",
			"next_node", "node_state", "steps_done", "node_attempts"}},
		{"crawl_events", []string{"event_id", "seq", "tenant_id"}},
		{"crawl_outbox", []string{"event_id", "seq", "tenant_id"}},
	} {
		if err := pgschema.CheckTable(ctx, pool, t.table, t.columns); err != nil {
			return nil, err
		}
	}
	t, err := parseSQL()
	if err != nil {
		return nil, err
	}
	r := &Runs{pool: pool, turns: crawl.NewShares(1)}
	for name, dst := range map[string]*string{
		"tenant": &r.sql.tenant, "bounded": &r.sql.bounded, "get": &r.sql.get, "create": &r.sql.create,
		"by_key": &r.sql.byKey, "events": &r.sql.events, "last_seqs": &r.sql.lastSeqs,
		"lock": &r.sql.lock, "last": &r.sql.last, "known": &r.sql.known, "differ": &r.sql.differ, "append": &r.sql.append,
		"change": &r.sql.change,
		"claim":  &r.sql.claim, "renew": &r.sql.renew, "held": &r.sql.held, "release": &r.sql.release,
	} {
		if *dst, err = t.Statement("run_"+name, struct{ Progress bool }{false}); err != nil {
			return nil, err
		}
	}
	r.sql.list = map[filtered]string{}
	for _, status := range append([]crawl.Status{""}, crawl.Statuses...) {
		for _, app := range []bool{false, true} {
			f := filtered{status, app}
			if r.sql.list[f], err = t.Statement("run_list", f); err != nil {
				return nil, err
			}
		}
	}
	r.sql.saveProgress, err = t.Statement("run_change", struct{ Progress bool }{true})
	return r, err
}

// CreateRun implements crawl.Store. It is one round trip.
func (r *Runs) CreateRun(
	ctx context.Context, tenant string, n crawl.NewRun, most int,
) (run crawl.Run, created bool, err error) {
	config := text(n.DeviceConfig)
	var batch pgx.Batch // one implicit transaction
	batch.Queue(r.sql.tenant, tenant)
	if most > 0 {
		turn, err := r.turns.Take(ctx, tenant, 1)
		if err != nil {
			return crawl.Run{}, false, fmt.Errorf("create run: wait for the turn of the tenant: %w", err)
		}
		defer turn.Release()
	}
	batch.Queue(r.sql.create, tenant, n.AppPackage, config, n.MaxSteps, n.Goal, n.Crawler, n.IdempotencyKey,
		most).Query(func(rows pgx.Rows) error {
		return first(rows, &created, func(row pgx.CollectableRow) error { return scanRun(row, &run) })
	})
	var found, same bool
	if n.IdempotencyKey != "" {
		batch.Queue(r.sql.byKey, tenant, n.IdempotencyKey, n.AppPackage, config, n.MaxSteps, n.Goal,
			n.Crawler).Query(func(rows pgx.Rows) error {
			return first(rows, &found, func(row pgx.CollectableRow) error { return scanRun(row, &run, &same) })
		})
	}
	err = r.pool.SendBatch(ctx, &batch).Close()
	switch {
	case err != nil:
		err = refusedJSON(err, "deviceConfig")
	case created:
		return run, true, nil
	case !found && most > 0: // or, once in a lifetime, the run of the key was removed meanwhile
		err = &crawl.QuotaError{Most: most}
	case !found:
		err = errors.New("the run of the idempotency key was removed meanwhile")
	case !same:
		err = crawl.ErrKeyReused
	default:
		return run, false, nil
	}
	return crawl.Run{}, false, fmt.Errorf("create run: %w", err)
}

// GetRun implements crawl.Store.
func (r *Runs) GetRun(ctx context.Context, tenant string, id uuid.UUID) (run crawl.Run, err error) {
	found := false
	err = r.read(ctx, tenant, func(rows pgx.Rows) error {
		return first(rows, &found, func(row pgx.CollectableRow) error { return scanRun(row, &run) })
	}, r.sql.get, tenant, id)
	if err == nil && !found {
		err = crawl.ErrNotFound
	}
	if err != nil {
		return crawl.Run{}, fmt.Errorf("get run %s: %w", id, err)
	}
	return run, nil
}

// ListRuns implements crawl.Store. A page ends where its runs reach crawl.PageBytes. The database counts the bytes as
// stored, which compression makes fewer, so they are counted again as they are read; what was sent beyond is discarded.
func (r *Runs) ListRuns(
	ctx context.Context, tenant string, f crawl.RunFilter,
) (runs []crawl.Run, more bool, err error) {
	before, id := pgtype.Timestamptz{Time: f.Before.CreatedAt, Valid: true}, f.Before.ID
	if f.Before == (crawl.Cursor{}) {
		before, id = pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true}, uuid.Max
	}
	limit := f.Limit
	if limit <= 0 {
		limit = 50
	}
	list, known := r.sql.list[filtered{f.Status, f.AppPackage != ""}]
	if !known {
		return nil, false, fmt.Errorf("list runs: %w",
			&crawl.FieldError{Field: "status", Problem: fmt.Sprintf("%.50q is none of %v", f.Status, crawl.Statuses)})
	}
	err = r.read(ctx, tenant, func(rows pgx.Rows) error {
		defer rows.Close()
		found := 0
		for size := 0; len(runs) < limit && size < crawl.PageBytes && rows.Next(); {
			var run crawl.Run
			if err := scanRun(rows, &run, &found); err != nil {
				return err
			}
			runs, size = append(runs, run), size+run.Size()
		}
		more = len(runs) < found
		rows.Close()
		return rows.Err()
	}, list, tenant, string(f.Status), f.AppPackage, before, id, limit+1, crawl.PageBytes)
	if err != nil {
		return nil, false, fmt.Errorf("list runs: %w", err)
	}
	return runs, more, nil
}

// ListEvents implements crawl.Store.
//
// A page ends where its payloads, as text, reach crawl.PageBytes: only what is read tells, since a megabyte may be
// stored in 12 KB. What was asked for beyond is discarded, so fewer are asked for after large ones, and the rest only
// if there was room.
func (r *Runs) ListEvents(
	ctx context.Context, tenant string, run uuid.UUID, after int64, limit int,
) (events []crawl.Event, err error) {
	bytes := 0
	for more := true; more && len(events) < limit && bytes < crawl.PageBytes; {
		ask := min(limit-len(events), r.pages.ask(crawl.PageBytes-bytes))
		var n, size int
		err = r.read(ctx, tenant, func(rows pgx.Rows) error {
			defer rows.Close()
			for bytes+size < crawl.PageBytes && rows.Next() {
				e := crawl.Event{Run: run, Tenant: tenant}
				if err := rows.Scan(&e.Seq, &e.ID, &e.Type, &e.CreatedAt, (*[]byte)(&e.Payload)); err != nil {
					return err
				}
				e.CreatedAt = e.CreatedAt.UTC()
				events = append(events, e)
				n, size = n+1, size+len(e.Payload)
			}
			rows.Close()
			return rows.Err()
		}, r.sql.events, tenant, run, after, ask, crawl.PageBytes)
		if err != nil {
			return nil, fmt.Errorf("list events of run %s: %w", run, err)
		}
		if n > 0 {
			r.pages.saw(size / n)
			after = events[len(events)-1].Seq
		}
		bytes += size
		more = n == ask
	}
	if len(events) == 0 { // of a run without events, of one that has been read to its end, or of none
		_, err = r.GetRun(ctx, tenant, run)
	}
	return events, err
}

// pageSize is how large payloads are, by the pages seen last. It halves at most from one read to the next: runs of
// small events and of large ones are read by turns.
type pageSize struct{ average atomic.Int64 }

func (p *pageSize) ask(bytes int) int { return max(1, bytes/max(1, int(p.average.Load()))) }

func (p *pageSize) saw(average int) { p.average.Store(max(int64(average), p.average.Load()/2)) }

// LastSeqs implements crawl.Store.
func (r *Runs) LastSeqs(ctx context.Context, tenant string, runs []uuid.UUID) (map[uuid.UUID]int64, error) {
	last := make(map[uuid.UUID]int64, len(runs))
	err := r.read(ctx, tenant, func(rows pgx.Rows) error {
		var id uuid.UUID
		var seq int64
		_, err := pgx.ForEachRow(rows, []any{&id, &seq}, func() error {
			last[id] = seq
			return nil
		})
		return err
	}, r.sql.lastSeqs, tenant, uuids(runs))
	if err != nil {
		return nil, fmt.Errorf("look up the last events of %d runs: %w", len(runs), err)
	}
	return last, nil
}

// read runs one query as a tenant. Both statements are one implicit transaction, and one round trip.
func (r *Runs) read(ctx context.Context, tenant string, fn func(pgx.Rows) error, sql string, args ...any) error {
	var batch pgx.Batch
	batch.Queue(r.sql.tenant, tenant)
	batch.Queue(sql, args...).Query(fn)
	return r.pool.SendBatch(ctx, &batch).Close()
}

// first scans the first row, if there is one.
func first(rows pgx.Rows, found *bool, scan func(pgx.CollectableRow) error) error {
	if !rows.Next() {
		return rows.Err()
	}
	*found = true
	return scan(rows)
}

// scanRun reads run_columns, the number of the last event, and what comes after them.
func scanRun(row pgx.CollectableRow, r *crawl.Run, more ...any) error {
	err := row.Scan(append([]any{&r.ID, &r.Tenant, &r.Status, &r.AppPackage, (*[]byte)(&r.DeviceConfig), &r.MaxSteps,
		&r.Goal, &r.Crawler,
		&r.CreatedAt, &r.StartedAt, &r.CompletedAt, &r.CancelledAt, &r.Error, &r.LastSeq}, more...)...)
	for _, t := range []*time.Time{&r.CreatedAt, r.StartedAt, r.CompletedAt, r.CancelledAt} {
		if t != nil {
			*t = t.UTC()
		}
	}
	return err
}

// text returns JSON as the text parameter that a statement casts, NULL for nil.
func text(json []byte) *string {
	if json == nil {
		return nil
	}
	s := string(json)
	return &s
}

func uuids(ids []uuid.UUID) []pgtype.UUID {
	list := make([]pgtype.UUID, len(ids))
	for i, id := range ids {
		list[i] = pgtype.UUID{Bytes: id, Valid: true}
	}
	return list
}

// refusedJSON makes what the database refuses about JSON, or about a text's length or bytes, a *crawl.FieldError.
// crawl.Service finds all of it before, so this is for other callers and for servers with narrower limits
// (max_stack_depth).
func refusedJSON(err error, field string) error {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		switch refused.Code {
		case "22P02", "22P05", "22003", "22021", "22001", "54001":
			return &crawl.FieldError{Field: field, Problem: "is refused by the database: " + refused.Message}
		}
	}
	return err
}
