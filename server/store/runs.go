package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/server/crawl"
)

// Runs keeps crawl runs, their log and their outbox in the tables of set crawl. It is safe for
// concurrent use.
//
// Every statement names its tenant, but for those of ClaimRun, RenewRun and ReleaseRun, which are
// for the runs of all.
type Runs struct {
	db    Database
	pages pageSize
	turn  atomic.Value // string: whose run was claimed last
	// turns has those take turns who create runs of one tenant: each counts, and must see what the
	// one before has inserted. A lock of the database would be one that any login can take and keep
	// (pg_advisory_lock); so as many runs too many as there are other gateways may come in at the
	// same moment.
	turns *crawl.Shares
}

var _ crawl.Store = (*Runs)(nil)

// runColumns are those that the program needs beside the seeds', by table.
var runColumns = []struct {
	table   string
	columns []string
}{
	{"crawl_runs", []string{"tenant_id", "crawler", "idempotency_key", "lease_owner", "lease_epoch", "lease_expires_at",
		"next_node", "node_state", "steps_done", "node_attempts"}},
	{"crawl_events", []string{"event_id", "seq", "tenant_id"}},
	{"crawl_outbox", []string{"event_id", "seq", "tenant_id"}},
}

// OpenRuns returns the runs of a database after checking its tables. If they are missing or older
// than it needs the error is an *outbox.SchemaError.
func OpenRuns(ctx context.Context, db Database) (*Runs, error) {
	for _, t := range runColumns {
		if err := db.Check(ctx, t.table, t.columns); err != nil {
			return nil, err
		}
	}
	return &Runs{db: db, turns: crawl.NewShares(1)}, nil
}

// asked names a tenant's run, or what of it is wanted.
type asked struct {
	Tenant string
	Run    uuid.UUID
	Runs   []uuid.UUID
	IDs    []uuid.UUID // of events
	After  int64       // number of an event
	Limit  int
	Bytes  int
}

// newRun is what run_create.sql and run_by_key.sql are given.
type newRun struct {
	crawl.NewRun
	Tenant string
	ID     uuid.UUID
	Now    time.Time
	Config any
	Most   int // 0: no limit
}

// CreateRun implements crawl.Store. It is one round trip.
func (r *Runs) CreateRun(
	ctx context.Context, tenant string, n crawl.NewRun, most int,
) (run crawl.Run, created bool, err error) {
	if run, created, err = r.create(ctx, tenant, n, max(most, 0)); err != nil {
		return crawl.Run{}, false, fmt.Errorf("create run: %w", err)
	}
	return run, created, nil
}

func (r *Runs) create(
	ctx context.Context, tenant string, n crawl.NewRun, most int,
) (run crawl.Run, created bool, err error) {
	if err := checkJSON("deviceConfig", n.DeviceConfig); err != nil {
		return run, false, err
	}
	id, err := outbox.NewID()
	if err != nil {
		return run, false, err
	}
	if most > 0 {
		turn, err := r.turns.Take(ctx, tenant, 1)
		if err != nil {
			return run, false, fmt.Errorf("wait for the turn of the tenant: %w", err)
		}
		defer turn.Release()
	}
	q := newRun{NewRun: n, Tenant: tenant, ID: id, Now: time.Now(), Config: text(n.DeviceConfig), Most: most}
	asks := []Ask{{"run_create", q, func(row Row) error {
		created = true
		return scanRun(row, &run)
	}}}
	found := false
	if n.IdempotencyKey != "" {
		asks = append(asks, Ask{"run_by_key", q, func(row Row) error {
			found = true
			return scanRun(row, &run)
		}})
	}
	switch err = r.db.Write(ctx, tenant, asks...); {
	case err != nil:
		return run, false, refused(r.db, err, "run")
	case created:
		return run, true, nil
	case !found && most > 0: // or, once in a lifetime, the run of the key was removed meanwhile
		return run, false, &crawl.QuotaError{Most: most}
	case !found:
		return run, false, errors.New("the run of the idempotency key was removed meanwhile")
	case run.AppPackage != n.AppPackage, run.MaxSteps != n.MaxSteps, run.Goal != n.Goal, run.Crawler != n.Crawler,
		!sameJSON(run.DeviceConfig, n.DeviceConfig):
		return run, false, crawl.ErrKeyReused
	}
	return run, false, nil
}

// GetRun implements crawl.Store.
func (r *Runs) GetRun(ctx context.Context, tenant string, id uuid.UUID) (run crawl.Run, err error) {
	found := false
	err = r.db.Read(ctx, tenant, Ask{"run_get", asked{Tenant: tenant, Run: id}, func(row Row) error {
		found = true
		return scanRun(row, &run)
	}})
	if err == nil && !found {
		err = crawl.ErrNotFound
	}
	if err != nil {
		return crawl.Run{}, fmt.Errorf("get run %s: %w", id, err)
	}
	return run, nil
}

// Readable tells whether the runs can be read: a server that answers is not enough for a gateway to
// be ready. It costs one probe of the primary key.
func (r *Runs) Readable(ctx context.Context) error {
	if _, err := r.GetRun(ctx, crawl.DefaultTenant, uuid.Nil); !errors.Is(err, crawl.ErrNotFound) {
		return err
	}
	return nil
}

// runList is what run_list.sql is given. Each way to filter makes a text of its own, which an index
// serves.
type runList struct {
	crawl.RunFilter
	Tenant string
	Begins bool // with the newest
	Bytes  int
}

// ListRuns implements crawl.Store. A page ends where its runs reach crawl.PageBytes. A database may
// count the bytes as stored, which compression makes fewer, so they are counted again as they are
// read.
func (r *Runs) ListRuns(
	ctx context.Context, tenant string, f crawl.RunFilter,
) (runs []crawl.Run, more bool, err error) {
	if f.Status != "" && !slices.Contains(crawl.Statuses, f.Status) { // it becomes a part of the statement
		return nil, false, fmt.Errorf("list runs: %w",
			&crawl.FieldError{Field: "status", Problem: fmt.Sprintf("%.50q is none of %v", f.Status, crawl.Statuses)})
	}
	limit := f.Limit
	if limit <= 0 {
		limit = 50
	}
	f.Limit = limit + 1 // the one too many says that there are more
	q := runList{f, tenant, f.Before == (crawl.Cursor{}), crawl.PageBytes}
	size, found := 0, 0
	err = r.db.Read(ctx, tenant, Ask{"run_list", q, func(row Row) error {
		if more = len(runs) == limit || size >= crawl.PageBytes; more {
			return errEnough
		}
		var run crawl.Run
		err := scanRun(row, &run, &found)
		runs, size = append(runs, run), size+run.Size()
		return err
	}})
	if err != nil {
		return nil, false, fmt.Errorf("list runs: %w", err)
	}
	return runs, more || len(runs) < found, nil
}

// ListEvents implements crawl.Store.
//
// A page ends where its payloads, as text, reach crawl.PageBytes: only what is read tells, since a
// megabyte may be stored in 12 KB. What was asked for beyond is discarded, so fewer are asked for
// after large ones, and the rest only if there was room.
func (r *Runs) ListEvents(
	ctx context.Context, tenant string, run uuid.UUID, after int64, limit int,
) (events []crawl.Event, err error) {
	bytes := 0
	for more := true; more && len(events) < limit && bytes < crawl.PageBytes; {
		q := asked{Tenant: tenant, Run: run, After: after, Bytes: crawl.PageBytes,
			Limit: min(limit-len(events), r.pages.ask(crawl.PageBytes-bytes))}
		n, size := 0, 0
		err = r.db.Read(ctx, tenant, Ask{"run_events", q, func(row Row) error {
			if bytes+size >= crawl.PageBytes {
				return errEnough
			}
			e := crawl.Event{Run: run, Tenant: tenant}
			var at *time.Time
			err := row.Scan(&e.Seq, &e.ID, &e.Type, &moment{&at}, (*[]byte)(&e.Payload))
			e.CreatedAt = required(at)
			events, n, size = append(events, e), n+1, size+len(e.Payload)
			return err
		}})
		if err != nil {
			return nil, fmt.Errorf("list events of run %s: %w", run, err)
		}
		if n > 0 {
			r.pages.saw(size / n)
			after = events[len(events)-1].Seq
		}
		bytes += size
		more = n == q.Limit
	}
	if len(events) == 0 { // of a run without events, of one that has been read to its end, or of none
		_, err = r.GetRun(ctx, tenant, run)
	}
	return events, err
}

// pageSize is how large payloads are, by the pages seen last. It halves at most from one read to
// the next: runs of small events and of large ones are read by turns.
type pageSize struct{ average atomic.Int64 }

func (p *pageSize) ask(bytes int) int { return max(1, bytes/max(1, int(p.average.Load()))) }

func (p *pageSize) saw(average int) { p.average.Store(max(int64(average), p.average.Load()/2)) }

// LastSeqs implements crawl.Store.
func (r *Runs) LastSeqs(ctx context.Context, tenant string, runs []uuid.UUID) (map[uuid.UUID]int64, error) {
	return r.lastSeqs(ctx, "run_last_seqs", tenant, runs)
}

// EndedRuns implements crawl.Store.
func (r *Runs) EndedRuns(ctx context.Context, tenant string, runs []uuid.UUID) (map[uuid.UUID]int64, error) {
	return r.lastSeqs(ctx, "run_ended", tenant, runs)
}

func (r *Runs) lastSeqs(ctx context.Context, name, tenant string, runs []uuid.UUID) (map[uuid.UUID]int64, error) {
	last := make(map[uuid.UUID]int64, len(runs))
	err := r.db.Read(ctx, tenant, Ask{name, asked{Tenant: tenant, Runs: runs}, func(row Row) error {
		var id uuid.UUID
		var seq int64
		err := row.Scan(&id, &seq)
		last[id] = seq
		return err
	}})
	if err != nil {
		return nil, fmt.Errorf("look up the last events of %d runs: %w", len(runs), err)
	}
	return last, nil
}

// scanRun reads run_columns, the number of the last event, and what comes after them.
func scanRun(row Row, r *crawl.Run, more ...any) error {
	var created *time.Time
	err := row.Scan(append([]any{&r.ID, &r.Tenant, &r.Status, &r.AppPackage, (*[]byte)(&r.DeviceConfig), &r.MaxSteps,
		&r.Goal, &r.Crawler, &moment{&created}, &moment{&r.StartedAt}, &moment{&r.CompletedAt},
		&moment{&r.CancelledAt}, &r.Error, &r.LastSeq}, more...)...)
	r.CreatedAt = required(created)
	return err
}
