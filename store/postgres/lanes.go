package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
)

// suspectAfter is package outbox's: so many relays in a row vanished from a lane before its events are tried in small batches.
const suspectAfter = 2

// LaneReport says who serves a table, and how far behind each lane is.
type LaneReport struct {
	Table  string      `json:"table"`
	Relays []RelayView `json:"relays"`
	Lanes  []LaneView  `json:"lanes"` // all of them, in order
	// Counted is how many undelivered rows were counted. If Bounded, there may be more, in any lane: the count stopped at the oldest of them.
	Counted int  `json:"counted"`
	Bounded bool `json:"bounded"`
	// Hidden says that row-level security hides the rows from this role, so that no backlog is known.
	Hidden bool `json:"hidden,omitempty"`
}

// RelayView is a relay that serves the table, or did within the last minute.
type RelayView struct {
	Owner     uuid.UUID `json:"owner"`
	Name      string    `json:"name"`
	JoinedAt  time.Time `json:"joined_at"`
	ExpiresIn float64   `json:"expires_in_seconds"` // below 0: it is gone
	Lanes     int       `json:"lanes"`              // that it holds
	Share     int       `json:"share"`              // that it should hold
}

// LaneView is one lane.
type LaneView struct {
	Lane      int        `json:"lane"`
	State     string     `json:"state"` // held, lapsed or free
	Owner     *uuid.UUID `json:"owner,omitempty"`
	Name      *string    `json:"name,omitempty"` // of the owner, while it is remembered
	Epoch     int64      `json:"epoch"`
	ExpiresIn *float64   `json:"expires_in_seconds,omitempty"` // by the database's clock
	Backlog   int        `json:"backlog"`
	Oldest    *float64   `json:"oldest_seconds,omitempty"` // age of its first undelivered row; none if that tells no time
	// Suspect says that relays died at this lane, and that its events are tried in small batches; see Crashes and Trial.
	Suspect    bool       `json:"suspect,omitempty"`
	Crashes    int        `json:"crashes,omitempty"`
	TrialSize  int        `json:"trial_size,omitempty"`
	TrialEvent *uuid.UUID `json:"trial_event,omitempty"`
}

// Lanes reports on the table's lanes and relays. Undelivered rows are counted up to limit.
func (b *Browser) Lanes(ctx context.Context, limit int) (LaneReport, error) {
	r := LaneReport{Table: b.layout.Table, Lanes: make([]LaneView, outbox.Lanes), Hidden: b.hidden}
	for n := range r.Lanes {
		r.Lanes[n] = LaneView{Lane: n, State: "free"} // its row is made when a relay first serves the table
	}
	// One snapshot, so that a lane that changes hands meanwhile is not counted for both.
	err := pgx.BeginTxFunc(ctx, b.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if err := r.readRelays(ctx, tx); err != nil {
			return err
		}
		if err := r.readLanes(ctx, tx); err != nil {
			return err
		}
		if b.hidden {
			return nil
		}
		return r.readBacklog(ctx, tx, b.layout, limit)
	})
	if err != nil {
		return LaneReport{}, fmt.Errorf("read lanes of %s: %w", b.layout.Table, err)
	}
	return r, nil
}

func (r *LaneReport) readRelays(ctx context.Context, tx pgx.Tx) error {
	sql, err := plain("lanes_relays")
	if err != nil {
		return err
	}
	rows, err := tx.Query(ctx, sql, r.Table, outbox.Lanes)
	if err != nil {
		return err
	}
	r.Relays, err = pgx.CollectRows(rows, pgx.RowToStructByPos[RelayView])
	return err
}

func (r *LaneReport) readLanes(ctx context.Context, tx pgx.Tx) error {
	sql, err := plain("lanes")
	if err != nil {
		return err
	}
	rows, err := tx.Query(ctx, sql, r.Table)
	if err != nil {
		return err
	}
	var l LaneView
	_, err = pgx.ForEachRow(rows, []any{&l.Lane, &l.Owner, &l.Name, &l.Epoch, &l.ExpiresIn, &l.Crashes, &l.TrialSize, &l.TrialEvent}, func() error {
		switch {
		case l.Owner == nil:
			l.State = "free"
		case l.ExpiresIn == nil || *l.ExpiresIn <= 0:
			l.State = "lapsed"
		default:
			l.State = "held"
		}
		l.Suspect = l.Crashes >= suspectAfter || l.TrialSize > 0
		r.Lanes[l.Lane] = l
		return nil
	})
	return err
}

func (r *LaneReport) readBacklog(ctx context.Context, tx pgx.Tx, layout Layout, limit int) error {
	t, err := parseSQL()
	if err != nil {
		return err
	}
	sql, err := render(t, "lanes_backlog", layout.quoted())
	if err != nil {
		return err
	}
	rows, err := tx.Query(ctx, sql, limit)
	if err != nil {
		return err
	}
	var lane, count int
	var written *time.Time
	var id uuid.UUID
	var now time.Time
	_, err = pgx.ForEachRow(rows, []any{&lane, &count, &written, &id, &now}, func() error {
		since := timeOfID(id)
		if written != nil {
			since = *written
		}
		r.Lanes[lane].Backlog = count
		r.Counted += count
		if !since.IsZero() {
			age := max(now.Sub(since), 0).Seconds()
			r.Lanes[lane].Oldest = &age
		}
		return nil
	})
	r.Bounded = r.Counted >= limit
	return err
}
