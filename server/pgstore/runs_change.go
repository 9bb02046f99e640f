package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/server/crawl"
)

// Change implements crawl.Store, in two round trips: BEGIN, lock and look; write and COMMIT.
//
// Events whose ids are in the log already, with the same type and payload, are not appended again. If all of them are,
// and the change has no To, the run may be in any status: it is a change whose reply was lost.
//
// A run whose log was ended by plain SQL, with its status forgotten, gets the status of its last event first, whatever
// becomes of c.
func (r *Runs) Change(
	ctx context.Context, tenant string, run uuid.UUID, c crawl.Change,
) (changed crawl.Changed, err error) {
	c.Events, err = crawl.Identified(c.Events)
	if err == nil {
		err = r.transaction(ctx, func(conn *pgx.Conn) error {
			l, err := r.lockSettled(ctx, conn, tenant, run, c.Events)
			if err != nil {
				return err
			}
			fresh, err := r.fresh(ctx, conn, l, c.Events)
			if err != nil {
				return err
			}
			if err := l.Allows(c, fresh); err != nil {
				return err
			}
			changed, err = r.apply(ctx, conn, l, c, fresh)
			return err
		})
	}
	if err != nil {
		return crawl.Changed{}, fmt.Errorf("change run %s: %w", run, err)
	}
	return changed, nil
}

// lock begins a transaction.
func (r *Runs) lock(
	ctx context.Context, conn *pgx.Conn, tenant string, run uuid.UUID, events []crawl.NewEvent,
) (*crawl.Locked, error) {
	l := &crawl.Locked{Known: map[uuid.UUID]int64{}}
	found, logged := false, false
	var owner *uuid.UUID
	var epoch int64
	var batch pgx.Batch
	r.begin(&batch)
	batch.Queue(r.sql.tenant, tenant)
	batch.Queue(r.sql.lock, tenant, run).Query(func(rows pgx.Rows) error {
		return first(rows, &found, func(row pgx.CollectableRow) error { return scanRun(row, &l.Run, &owner, &epoch) })
	})
	batch.Queue(r.sql.last, tenant, run).Query(func(rows pgx.Rows) error {
		return first(rows, &logged, func(row pgx.CollectableRow) error { return row.Scan(&l.Run.LastSeq, &l.LastType) })
	})
	if len(events) > 0 {
		batch.Queue(r.sql.known, tenant, run, columnsOfNew(events).ids).Query(func(rows pgx.Rows) error {
			var id uuid.UUID
			var seq int64
			_, err := pgx.ForEachRow(rows, []any{&id, &seq}, func() error {
				l.Known[id] = seq
				return nil
			})
			return err
		})
	}
	if err := conn.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if !found {
		return nil, crawl.ErrNotFound
	}
	if owner != nil {
		l.Lease = &crawl.Hold{Owner: *owner, Epoch: epoch}
	}
	return l, nil
}

// lockSettled is lock, of a run whose status agrees with its log. One that does not is given the status its log ended
// with, in a transaction of its own, because the caller's may be refused.
func (r *Runs) lockSettled(
	ctx context.Context, conn *pgx.Conn, tenant string, run uuid.UUID, events []crawl.NewEvent,
) (*crawl.Locked, error) {
	l, err := r.lock(ctx, conn, tenant, run, events)
	if err != nil || l.Forgotten() == "" {
		return l, err
	}
	if _, err := r.apply(ctx, conn, l, crawl.Change{To: l.Forgotten(), Error: l.Run.Error}, nil); err != nil {
		return nil, fmt.Errorf("settle its status: %w", err)
	}
	return r.lock(ctx, conn, tenant, run, events)
}

// fresh returns the events that are not in the log. That those that are there are the same is asked for in a round trip
// of its own. It is rare, and to send every payload twice for it is not worth it.
func (r *Runs) fresh(
	ctx context.Context, conn *pgx.Conn, l *crawl.Locked, events []crawl.NewEvent,
) (fresh []crawl.NewEvent, err error) {
	if len(l.Known) == 0 {
		return events, nil
	}
	fresh = l.Fresh(events)
	known := slices.DeleteFunc(slices.Clone(events), func(e crawl.NewEvent) bool { return l.Known[e.ID] == 0 })
	c := columnsOfNew(known)
	var id uuid.UUID
	err = conn.QueryRow(ctx, r.sql.differ, l.Run.Tenant, l.Run.ID, c.ids, c.types, c.payloads).Scan(&id)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return fresh, nil
	case err != nil:
		return nil, refusedJSON(err, "events")
	}
	return nil, fmt.Errorf("event %s: %w", id, crawl.ErrEventReused)
}

// apply writes what is new and commits.
func (r *Runs) apply(
	ctx context.Context, conn *pgx.Conn, l *crawl.Locked, c crawl.Change, fresh []crawl.NewEvent,
) (crawl.Changed, error) {
	run := l.Run
	var batch pgx.Batch
	r.queueAppend(&batch, run.ID, fresh)
	if c.To != "" || c.Hold != nil {
		sql, args := r.sql.change, []any{run.Tenant, run.ID, string(c.To), c.Error}
		if c.Hold != nil {
			sql, args = r.sql.saveProgress, append(args, c.Progress.Node, text(c.Progress.State), c.Progress.Steps)
		}
		batch.Queue(sql, args...).Query(func(rows pgx.Rows) error {
			var updated bool
			return first(rows, &updated, func(row pgx.CollectableRow) error { return scanRun(row, &run) })
		})
	}
	batch.Queue("COMMIT")
	if err := conn.SendBatch(ctx, &batch).Close(); err != nil {
		return crawl.Changed{}, refusedAppend(err)
	}
	return l.Changed(run, len(fresh)), nil
}

func (r *Runs) queueAppend(batch *pgx.Batch, run uuid.UUID, events []crawl.NewEvent) {
	if len(events) > 0 {
		c := columnsOfNew(events)
		batch.Queue(r.sql.append, run, c.ids, c.types, c.payloads)
	}
}

// refusedAppend gives the database's own refusals of events their names.
func refusedAppend(err error) error {
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == "23505" && refused.ConstraintName == "crawl_events_event_id_key" {
		return crawl.ErrEventReused
	}
	return refusedJSON(err, "events")
}

// newColumns is a change's events turned on their side, as eventColumns.
type newColumns struct {
	ids             []uuid.UUID
	types, payloads []string
}

func columnsOfNew(events []crawl.NewEvent) (c newColumns) {
	for _, e := range events {
		c.ids, c.types, c.payloads = append(c.ids, e.ID), append(c.types, e.Type), append(c.payloads, string(e.Payload))
	}
	return c
}

// transaction runs fn, which begins and commits, each in a batch with its statements. Whatever it has left open is
// rolled back.
func (r *Runs) transaction(ctx context.Context, fn func(*pgx.Conn) error) error {
	conn, err := r.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("acquire connection: %w", err)
	}
	defer conn.Release()
	defer rollback(ctx, conn)
	return fn(conn.Conn())
}

// begin is READ COMMITTED whatever the default is: the statements after a lock must see what it waited for.
func (r *Runs) begin(batch *pgx.Batch) {
	batch.Queue("BEGIN ISOLATION LEVEL READ COMMITTED")
	batch.Queue(r.sql.bounded)
}

// rollbackTimeout bounds the wait for a server that does not answer. Past it the connection is closed, and the server
// rolls back itself.
const rollbackTimeout = 5 * time.Second

// rollback ends a transaction that is still open. A connection on which it fails is broken: Release discards it.
func rollback(ctx context.Context, conn *pgxpool.Conn) {
	if conn.Conn().PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	_, _ = conn.Exec(ctx, "ROLLBACK")
}
