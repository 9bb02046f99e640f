package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/backoff"
	"github.com/outboxrelay/outbox/internal/store/eventrow"
	"github.com/outboxrelay/outbox/internal/store/pause"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
)

// Lease implements outbox.Store. The commit is synchronous, unlike the relay's others: after a
// crash of the server two relays must not both believe that they hold a lane. When nothing is due
// nothing is written, and there is nothing to wait for.
func (s *store) Lease(ctx context.Context, request outbox.LeaseRequest) (outbox.Leased, error) {
	leased, rows, err := s.lease(ctx, request)
	if err == nil && rows < outbox.LaneCount {
		// Lanes whose rows are gone (restored tables, TRUNCATE) nobody could serve, and every relay
		// would look as if it stood by.
		if _, err = s.pool.Exec(ctx, s.sql.leaseRows, s.name, outbox.LaneCount); err == nil {
			leased, _, err = s.lease(ctx, request)
		}
	}
	if whole := s.whole(ctx, err); whole != nil {
		err = whole
	}
	if err != nil {
		return outbox.Leased{}, fmt.Errorf("lease lanes of %s: %w", s.layout.Table, err)
	}
	return leased, nil
}

// lease makes one request, and tells how many lanes the table has.
func (s *store) lease(ctx context.Context, r outbox.LeaseRequest) (leased outbox.Leased, rows int, err error) {
	ttl := r.TTL.Microseconds()
	batch := begun()
	batch.Queue(s.sql.durable)
	if s.reader != "" {
		batch.Queue(s.sql.leaseReader, s.name, s.reader)
	}
	if r.Leaving {
		batch.Queue(s.sql.leaseQuit, s.name, r.Owner)
	} else {
		batch.Queue(s.sql.leaseJoin, s.name, r.Owner, r.Name, ttl, eventrow.OrNull(r.Health), eventrow.OrNull(r.Serves),
			eventrow.OrNull(pause.Text(r.Paused)))
	}
	batch.Queue(s.sql.leaseTake, s.name, r.Owner, ttl, outbox.LaneCount, r.Returning, r.Leaving)
	batch.Queue(s.sql.leaseHeld, s.name, r.Owner, outbox.LaneCount, s.of).Query(func(found pgx.Rows) (err error) {
		leased, rows, err = scanHeld(found, r.TTL)
		leased.Origin = s.origin
		return err
	})
	batch.Queue(s.sql.leaseSweep, s.name, r.Owner, ttl)
	if err = s.commit(ctx, batch); s.reader == "" || !otherReader(err) {
		return leased, rows, err
	}
	refused := outbox.ReaderError{Table: s.name, Reader: s.reader}
	if err := s.pool.QueryRow(ctx, s.sql.leaseReadBy, s.name).Scan(&refused.Current); err != nil {
		return outbox.Leased{}, 0, err
	}
	if refused.Current == s.reader { // a process of the same reader has recorded it at the same moment
		return s.lease(ctx, r)
	}
	return outbox.Leased{}, 0, &refused
}

// otherReader reports whether lease_reader.sql failed because the table has another reader.
func otherReader(err error) bool {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	return ok && refused.Code == pgtable.Duplicate && refused.ConstraintName == "outbox_readers_pkey"
}

// begun returns a transaction that commit sends to its end in one go. With a round trip before
// COMMIT, a relay that is stopped in it (SIGSTOP, a frozen machine, a network that is cut) would
// keep the lanes' rows locked. The others could not take them over until the server ended the
// session, after a minute. Each statement sees what was committed before it, whatever the session's
// default: after a wait for reader_lock.sql the former reader must not be seen.
func begun() *pgx.Batch {
	batch := new(pgx.Batch)
	batch.Queue("BEGIN ISOLATION LEVEL READ COMMITTED")
	return batch
}

// commit sends the batch with its COMMIT. After an error the pool closes the connection, and the
// server rolls back.
func (s *store) commit(ctx context.Context, batch *pgx.Batch) error {
	batch.Queue("COMMIT")
	return s.pool.SendBatch(ctx, batch).Close()
}

func scanHeld(found pgx.Rows, ttl time.Duration) (leased outbox.Leased, rows int, err error) {
	leased.Remaining = ttl
	first := true
	for found.Next() {
		var lane outbox.Lane
		var number *int16
		var event *uuid.UUID
		var remaining int64
		var topics, destinations []string
		if err := found.Scan(&number, &lane.Epoch, &lane.Crashes, &lane.Trial.Size, &event, &remaining, &leased.Share,
			&rows, &topics, &destinations); err != nil {
			return outbox.Leased{}, 0, fmt.Errorf("read lanes: %w", err)
		}
		if first {
			for i, topic := range topics {
				pause.Add(&leased.Paused, topic, destinations[i])
			}
			first = false
		}
		if number == nil { // none held; the row is there for the share's sake
			continue
		}
		lane.Number = *number
		if event != nil {
			lane.Trial.Event = *event
		}
		leased.Remaining = min(leased.Remaining, time.Duration(remaining)*time.Microsecond)
		leased.Lanes = append(leased.Lanes, lane)
	}
	return leased, rows, found.Err()
}

// Release implements outbox.Store.
func (s *store) Release(ctx context.Context, owner uuid.UUID, lanes []outbox.Lane) error {
	numbers, epochs := pgtable.SplitLanes(lanes)
	if _, err := s.pool.Exec(ctx, s.sql.leaseRelease, s.name, owner, numbers, epochs); err != nil {
		return fmt.Errorf("release lanes of %s: %w", s.layout.Table, err)
	}
	return nil
}

// A relay that leaves asks so often for lanes whose rows are locked. Mostly its own last statement
// has them, which it broke off, and the server has not noticed yet. What somebody else holds locked
// lapses.
const (
	leaveTries = 20
	leavePause = 50 * time.Millisecond
)

// Leave implements outbox.Store.
func (s *store) Leave(ctx context.Context, owner uuid.UUID) error {
	for try := 1; ; try++ {
		var left int
		if err := s.pool.QueryRow(ctx, s.sql.leaseLeave, s.name, owner).Scan(&left); err != nil {
			return fmt.Errorf("leave the relays of %s: %w", s.layout.Table, err)
		}
		if left == 0 || try == leaveTries {
			return nil
		}
		if !backoff.Wait(ctx, leavePause) {
			return fmt.Errorf("leave the relays of %s: %w", s.layout.Table, ctx.Err())
		}
	}
}

// Mark implements outbox.Store.
func (s *store) Mark(ctx context.Context, owner uuid.UUID, lanes []outbox.Lane) error {
	numbers, epochs := pgtable.SplitLanes(lanes)
	crashes, sizes, events := make([]int32, len(lanes)), make([]int32, len(lanes)), make([]*uuid.UUID, len(lanes))
	for i, l := range lanes {
		crashes[i], sizes[i] = int32(l.Crashes), int32(l.Trial.Size)
		if l.Trial.Event != uuid.Nil {
			events[i] = &l.Trial.Event
		}
	}
	batch := begun()
	batch.Queue(s.sql.durable)
	batch.Queue(s.sql.leaseMark, s.name, owner, numbers, epochs, crashes, sizes, events)
	if err := s.commit(ctx, batch); err != nil {
		return fmt.Errorf("mark lanes of %s: %w", s.layout.Table, err)
	}
	return nil
}
