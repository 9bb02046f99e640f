package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/internal/store/sqlitefile"
	"github.com/outboxrelay/outbox/internal/store/sqlitetime"
	"github.com/outboxrelay/outbox/server/crawl"
)

// Change implements crawl.Store, in one transaction.
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
		err = checkEvents(c.Events)
	}
	for again := true; again && err == nil; {
		again = false
		err = sqlitefile.InTx(ctx, r.db, func(tx *sql.Tx) error {
			l, err := r.lock(ctx, tx, tenant, run)
			if err != nil {
				return err
			}
			if again = l.Forgotten() != ""; again { // in a transaction of its own, because c may be refused
				return r.settle(ctx, tx, l)
			}
			if err := r.find(ctx, tx, l, c.Events); err != nil {
				return err
			}
			fresh := l.Fresh(c.Events)
			if err := l.Allows(c, fresh); err != nil {
				return err
			}
			changed, err = r.apply(ctx, tx, l, c, fresh)
			return err
		})
	}
	if err != nil {
		return crawl.Changed{}, fmt.Errorf("change run %s: %w", run, sqlitefile.Explain(err))
	}
	return changed, nil
}

// lock reads a run and the end of its log: the transaction is the lock.
func (r *Runs) lock(ctx context.Context, tx *sql.Tx, tenant string, run uuid.UUID) (*crawl.Locked, error) {
	l := &crawl.Locked{Known: map[uuid.UUID]int64{}}
	var owner uuid.NullUUID
	var epoch int64
	err := scanRun(tx.StmtContext(ctx, r.writes.lock).QueryRowContext(ctx, tenant, run), &l.Run, &owner, &epoch)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, crawl.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if owner.Valid {
		l.Lease = &crawl.Hold{Owner: owner.UUID, Epoch: epoch}
	}
	err = tx.StmtContext(ctx, r.writes.last).QueryRowContext(ctx, run).Scan(&l.Run.LastSeq, &l.LastType)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("lock: %w", err)
	}
	return l, nil
}

// settle gives a run the status that its log ended with.
func (r *Runs) settle(ctx context.Context, tx *sql.Tx, l *crawl.Locked) error {
	if _, err := r.apply(ctx, tx, l, crawl.Change{To: l.Forgotten(), Error: l.Run.Error}, nil); err != nil {
		return fmt.Errorf("settle its status: %w", err)
	}
	return nil
}

// find fills in which of the events are in the log.
func (r *Runs) find(ctx context.Context, tx *sql.Tx, l *crawl.Locked, events []crawl.NewEvent) error {
	if len(events) == 0 || l.Run.LastSeq == 0 {
		return nil
	}
	given := make(map[uuid.UUID]crawl.NewEvent, len(events))
	ids := make([]uuid.UUID, len(events))
	for i, e := range events {
		given[e.ID], ids[i] = e, e.ID
	}
	return query(ctx, tx.StmtContext(ctx, r.writes.known), func(rows *sql.Rows) error {
		var id uuid.UUID
		var seq int64
		var typ string
		var payload []byte
		if err := rows.Scan(&id, &seq, &typ, &payload); err != nil {
			return err
		}
		if e := given[id]; e.Type != typ || !sameJSON(e.Payload, payload) {
			return fmt.Errorf("event %s: %w", id, crawl.ErrEventReused)
		}
		l.Known[id] = seq
		return nil
	}, l.Run.ID, jsonList(ids))
}

// apply writes what is new.
func (r *Runs) apply(
	ctx context.Context, tx *sql.Tx, l *crawl.Locked, c crawl.Change, fresh []crawl.NewEvent,
) (crawl.Changed, error) {
	run, now := l.Run, sqlitetime.Stamp(time.Now())
	if err := r.append(ctx, tx, run, now, fresh); err != nil {
		return crawl.Changed{}, err
	}
	if c.To != "" || c.Hold != nil {
		stmt, args := r.writes.change, []any{run.Tenant, run.ID, string(c.To), c.Error, now}
		if c.Hold != nil {
			if err := checkJSON("state", c.Progress.State); err != nil {
				return crawl.Changed{}, err
			}
			stmt, args = r.writes.saveProgress, append(args, c.Progress.Node, jsonText(c.Progress.State), c.Progress.Steps)
		}
		if err := scanRun(tx.StmtContext(ctx, stmt).QueryRowContext(ctx, args...), &run); err != nil {
			return crawl.Changed{}, err
		}
	}
	return l.Changed(run, len(fresh)), nil
}

// append appends events to log and outbox of a run that is locked, after its last.
func (r *Runs) append(ctx context.Context, tx *sql.Tx, run crawl.Run, now string, events []crawl.NewEvent) error {
	if len(events) == 0 {
		return nil
	}
	log, queue := tx.StmtContext(ctx, r.writes.append), tx.StmtContext(ctx, r.writes.send)
	for i, e := range events {
		for _, stmt := range []*sql.Stmt{log, queue} {
			if _, err := stmt.ExecContext(ctx, run.ID, e.Type, string(e.Payload), now, e.ID, run.LastSeq+int64(i)+1,
				run.Tenant); err != nil {
				return refusedCheck(err, fmt.Sprintf("events[%d]", i))
			}
		}
	}
	return nil
}

func checkEvents(events []crawl.NewEvent) error {
	for i, e := range events {
		if err := checkJSON(fmt.Sprintf("events[%d].payload", i), e.Payload); err != nil {
			return err
		}
	}
	return nil
}
