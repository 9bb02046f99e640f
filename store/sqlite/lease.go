package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/eventrow"
	"github.com/outboxrelay/outbox/internal/store/pause"
	"github.com/outboxrelay/outbox/internal/store/sqlitetime"
)

// relaysKept is how long a relay that has gone is remembered.
const relaysKept = time.Minute

// Lease implements outbox.Store. It asks before it waits for the file's write lock, and mostly
// there is nothing to write. The clock is the machine's: the database has no other, and all who may
// serve the file share it.
func (s *store) Lease(ctx context.Context, request outbox.LeaseRequest) (leased outbox.Leased, err error) {
	var due bool
	if err := s.db.check(); err != nil { // the one thing that every relay asks all the time
		return outbox.Leased{}, fmt.Errorf("lease lanes of %s: %w", s.layout.Table, whole(err))
	}
	err = s.db.snapshot(ctx, func(tx *sql.Tx) error {
		at := s.leaseArgs(request)
		if err := tx.QueryRowContext(ctx, s.sql.leaseDue,
			append(at.args(), outbox.LaneCount, request.Leaving, stamp(sqlitetime.Farthest(at.now, at.ttl)),
				eventrow.OrNull(request.Health), s.reader,
				eventrow.OrNull(pause.Text(request.Paused)))...).Scan(&due); err != nil || due {
			return err
		}
		leased, err = s.held(ctx, tx, at)
		return err
	})
	if err == nil && due {
		err = s.db.inTx(ctx, func(tx *sql.Tx) error {
			at := s.leaseArgs(request) // again: it may have waited
			if err := s.take(ctx, tx, at, request); err != nil {
				return err
			}
			leased, err = s.held(ctx, tx, at)
			return err
		})
	}
	if err != nil {
		return outbox.Leased{}, fmt.Errorf("lease lanes of %s: %w", s.layout.Table, whole(err))
	}
	leased.Origin = s.origin
	return leased, nil
}

// leaseArgs are the parameters ?1 to ?5 of the statements of leases, at one time.
type leaseArgs struct {
	table, owner string
	now          time.Time
	ttl          time.Duration
}

func (s *store) leaseArgs(r outbox.LeaseRequest) leaseArgs {
	return leaseArgs{table: s.name, owner: r.Owner.String(), now: time.Now(), ttl: r.TTL}
}

func (a leaseArgs) args() []any {
	return []any{a.table, a.owner, stamp(a.now), stamp(a.now.Add(a.ttl * 2 / 3)), stamp(a.now.Add(a.ttl))}
}

// take writes what is due.
func (s *store) take(ctx context.Context, tx *sql.Tx, at leaseArgs, r outbox.LeaseRequest) error {
	if s.reader != "" {
		refused := outbox.ReaderError{Table: s.name, Reader: s.reader}
		reading := tx.QueryRowContext(ctx, s.sql.leaseReader, s.name, s.reader, stamp(at.now))
		if err := reading.Scan(&refused.Current); err != nil {
			return err
		}
		if refused.Current != s.reader {
			return &refused
		}
	}
	// Each time: lanes whose rows are gone (a file put together by hand) nobody could serve, and
	// every relay would look as if it stood by.
	if _, err := tx.ExecContext(ctx, s.sql.leaseRows, at.table, outbox.LaneCount); err != nil {
		return err
	}
	for _, text := range []string{s.sql.leaseCutLanes, s.sql.leaseCutRelays} {
		if _, err := tx.ExecContext(ctx, text, at.table, stamp(sqlitetime.Farthest(at.now, at.ttl)),
			stamp(at.now.Add(at.ttl))); err != nil {
			return err
		}
	}
	var lapsed bool
	if err := tx.QueryRowContext(ctx, s.sql.leaseLapsed, at.table, at.owner, stamp(at.now)).Scan(&lapsed); err != nil {
		return err
	}
	enrol, args := s.sql.leaseJoin, append(at.args(), r.Name, eventrow.OrNull(r.Health), eventrow.OrNull(r.Serves),
		eventrow.OrNull(pause.Text(r.Paused)))
	if r.Leaving {
		enrol, args = s.sql.leaseQuit, []any{at.table, at.owner}
	}
	if _, err := tx.ExecContext(ctx, enrol, args...); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, s.sql.leaseTake,
		append(at.args(), outbox.LaneCount, !lapsed && !r.Returning)...); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, s.sql.leaseSweep, at.table, at.owner, stamp(at.now.Add(-relaysKept)))
	return err
}

// held reads what the caller holds.
func (s *store) held(ctx context.Context, tx *sql.Tx, at leaseArgs) (leased outbox.Leased, err error) {
	rows, err := tx.QueryContext(ctx, s.sql.leaseHeld, append(at.args(), outbox.LaneCount)...)
	if err != nil {
		return outbox.Leased{}, err
	}
	defer func() { _ = rows.Close() }()
	leased.Remaining = at.ttl
	for rows.Next() {
		var lane outbox.Lane
		var number sql.NullInt16
		var event, expires sql.NullString
		if err := rows.Scan(&number, &lane.Epoch, &lane.Crashes, &lane.Trial.Size, &event, &expires,
			&leased.Share); err != nil {
			return outbox.Leased{}, fmt.Errorf("read lanes: %w", err)
		}
		if !number.Valid { // none held; the row is there for the share's sake
			continue
		}
		lane.Number = number.Int16
		if event.Valid {
			if lane.Trial.Event, err = uuid.Parse(event.String); err != nil {
				return outbox.Leased{}, fmt.Errorf("read lane %d: %w", lane.Number, err)
			}
		}
		until, err := parseTime(expires.String)
		if err != nil {
			return outbox.Leased{}, fmt.Errorf("read lane %d: %w", lane.Number, err)
		}
		leased.Remaining = min(leased.Remaining, until.Sub(at.now.Round(0))) // Round: by the wall clock, as what is stored
		leased.Lanes = append(leased.Lanes, lane)
	}
	if err := rows.Err(); err != nil {
		return outbox.Leased{}, err
	}
	return leased, s.paused(ctx, tx, &leased)
}

// paused reads what operators have paused.
func (s *store) paused(ctx context.Context, tx *sql.Tx, leased *outbox.Leased) error {
	rows, err := tx.QueryContext(ctx, s.sql.leasePauses, s.name, s.of)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var topic, destination string
		if err := rows.Scan(&topic, &destination); err != nil {
			return err
		}
		pause.Add(&leased.Paused, topic, destination)
	}
	return rows.Err()
}

// Release implements outbox.Store.
func (s *store) Release(ctx context.Context, owner uuid.UUID, lanes []outbox.Lane) error {
	err := s.eachLane(ctx, s.sql.leaseRelease, lanes, func(l outbox.Lane) []any {
		return []any{s.name, owner.String(), l.Number, l.Epoch, stamp(time.Now())}
	})
	if err != nil {
		return fmt.Errorf("release lanes of %s: %w", s.layout.Table, explain(err))
	}
	return nil
}

// Leave implements outbox.Store.
func (s *store) Leave(ctx context.Context, owner uuid.UUID) error {
	err := s.db.inTx(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, s.sql.leaseQuit, s.name, owner.String()); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, s.sql.leaseLeave, s.name, owner.String(), stamp(time.Now()))
		return err
	})
	if err != nil {
		return fmt.Errorf("leave the relays of %s: %w", s.layout.Table, explain(err))
	}
	return nil
}

// Mark implements outbox.Store.
func (s *store) Mark(ctx context.Context, owner uuid.UUID, lanes []outbox.Lane) error {
	err := s.eachLane(ctx, s.sql.leaseMark, lanes, func(l outbox.Lane) []any {
		var event any
		if l.Trial.Event != uuid.Nil {
			event = l.Trial.Event.String()
		}
		return []any{s.name, owner.String(), l.Number, l.Epoch, l.Crashes, l.Trial.Size, event}
	})
	if err != nil {
		return fmt.Errorf("mark lanes of %s: %w", s.layout.Table, explain(err))
	}
	return nil
}

// eachLane runs a statement for every lane, in one transaction.
func (s *store) eachLane(ctx context.Context, text string, lanes []outbox.Lane, args func(outbox.Lane) []any) error {
	return s.db.inTx(ctx, func(tx *sql.Tx) error {
		stmt, err := tx.PrepareContext(ctx, text)
		if err != nil {
			return err
		}
		for _, l := range lanes {
			if _, err := stmt.ExecContext(ctx, args(l)...); err != nil {
				return err
			}
		}
		return nil // the statement is closed with the transaction
	})
}
