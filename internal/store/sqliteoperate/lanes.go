package sqliteoperate

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/sqlitefile"
	"github.com/outboxrelay/outbox/internal/store/sqlitetime"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
	"github.com/outboxrelay/outbox/internal/store/uuid7"
)

// Lanes reports on the table's lanes and relays. Undelivered rows are counted up to limit.
func (b *Browser) Lanes(ctx context.Context, limit int) (operate.LaneReport, error) {
	r := laneReport{LaneReport: operate.NewLaneReport(b.layout.Table), now: time.Now()}
	// One snapshot, so that a lane that changes hands meanwhile is not counted for both.
	err := file(b.db).Snapshot(ctx, func(tx *sql.Tx) error {
		if err := r.read(ctx, tx, "lanes_relays", nil, r.relay, r.Table, outbox.Lanes, sqlitetime.Stamp(r.now)); err != nil {
			return err
		}
		if err := r.read(ctx, tx, "lanes", nil, r.lane, r.Table); err != nil {
			return err
		}
		pauses, err := readPauses(ctx, tx, r.Table)
		if err != nil {
			return err
		}
		r.Pauses = append(r.Pauses, pauses...)
		return r.read(ctx, tx, "lanes_backlog", b.quoted, r.backlog, limit, sqlitetime.Stamp(r.now))
	})
	if err != nil {
		return operate.LaneReport{}, fmt.Errorf("read lanes of %s: %w", b.layout.Table, sqlitefile.Explain(err))
	}
	r.Bounded = r.Counted >= limit
	return r.LaneReport, nil
}

// laneReport is a report that is being filled in.
type laneReport struct {
	operate.LaneReport
	now time.Time // by the machine's clock, which is that of the leases
}

// read gives each row of a statement to add.
func (r *laneReport) read(
	ctx context.Context, tx *sql.Tx, name string, data any, add func(*sql.Rows) error, args ...any,
) error {
	t, err := parseSQL()
	if err != nil {
		return err
	}
	text, err := t.Statement(name, data)
	if err != nil {
		return err
	}
	rows, err := tx.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := add(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (r *laneReport) relay(rows *sql.Rows) error {
	var v operate.RelayView
	var joined, expires string
	if err := rows.Scan(&v.Owner, &v.Name, &joined, &expires, &v.Lanes, &v.Share); err != nil {
		return err
	}
	var err error
	if v.JoinedAt, err = sqlitetime.Parse(joined); err != nil {
		return err
	}
	ends, err := sqlitetime.Parse(expires)
	if err != nil {
		return err
	}
	v.ExpiresIn = ends.Sub(r.now).Seconds()
	r.Relays = append(r.Relays, v)
	return nil
}

func (r *laneReport) lane(rows *sql.Rows) error {
	var v operate.LaneView
	var owner, trial uuid.NullUUID
	var expires sql.NullString
	if err := rows.Scan(&v.Lane, &owner, &v.Name, &v.Epoch, &expires, &v.Crashes, &v.TrialSize, &trial); err != nil {
		return err
	}
	ends, err := sqlitetime.ParseNull(expires)
	if err != nil {
		return err
	}
	if ends != nil {
		in := ends.Sub(r.now).Seconds()
		v.ExpiresIn = &in
	}
	if owner.Valid {
		v.Owner = &owner.UUID
	}
	if trial.Valid {
		v.TrialEvent = &trial.UUID
	}
	v.Judge()
	r.Lanes[v.Lane] = v
	return nil
}

func (r *laneReport) backlog(rows *sql.Rows) error {
	var lane operate.LaneBacklog
	var position int64
	var written, id sqltable.Text
	if err := rows.Scan(&lane.Lane, &lane.Rows, &position, &written, &id, &lane.Retrying, &lane.Held,
		&lane.HeldKeys); err != nil {
		return err
	}
	event, _ := sqltable.ParseID(id)
	lane.Oldest = uuid7.Written(written.Moment(), event)
	r.Count(lane, r.now)
	return nil
}
