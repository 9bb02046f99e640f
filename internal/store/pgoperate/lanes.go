package pgoperate

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
	"github.com/outboxrelay/outbox/internal/store/uuid7"
)

// Lanes reports on the table's lanes and relays. Undelivered rows are counted up to limit.
func (b *Browser) Lanes(ctx context.Context, limit int) (operate.LaneReport, error) {
	r := operate.NewLaneReport(b.layout.Table)
	r.Hidden = b.hidden
	// One snapshot, so that a lane that changes hands meanwhile is not counted for both.
	err := pgx.BeginTxFunc(ctx, b.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly},
		func(tx pgx.Tx) error {
			name, err := pgtable.Name(ctx, tx, r.Table)
			if err != nil {
				return err
			}
			if err := readRelays(ctx, tx, name, &r); err != nil {
				return err
			}
			if err := readLanes(ctx, tx, name, &r); err != nil {
				return err
			}
			pauses, err := readPauses(ctx, tx, &name)
			if err != nil {
				return err
			}
			r.Pauses = append(r.Pauses, pauses...)
			if b.hidden {
				return nil
			}
			return readBacklog(ctx, tx, &r, b.layout, name, limit)
		})
	if err != nil {
		return operate.LaneReport{}, fmt.Errorf("read lanes of %s: %w", b.layout.Table, err)
	}
	return r, nil
}

func readRelays(ctx context.Context, tx pgx.Tx, name string, r *operate.LaneReport) error {
	sql, err := plain("lanes_relays")
	if err != nil {
		return err
	}
	rows, err := tx.Query(ctx, sql, name, outbox.Lanes)
	if err != nil {
		return err
	}
	r.Relays, err = pgx.CollectRows(rows, pgx.RowToStructByPos[operate.RelayView])
	return err
}

func readLanes(ctx context.Context, tx pgx.Tx, name string, r *operate.LaneReport) error {
	sql, err := plain("lanes")
	if err != nil {
		return err
	}
	rows, err := tx.Query(ctx, sql, name)
	if err != nil {
		return err
	}
	var l operate.LaneView
	_, err = pgx.ForEachRow(rows, []any{&l.Lane, &l.Owner, &l.Name, &l.Epoch, &l.ExpiresIn, &l.Crashes, &l.TrialSize,
		&l.TrialEvent}, func() error {
		l.Judge()
		r.Lanes[l.Lane] = l
		return nil
	})
	return err
}

// readBacklog counts at most limit rows of what no relay has delivered. table is its name in leases and positions.
func readBacklog(
	ctx context.Context, tx pgx.Tx, r *operate.LaneReport, layout outbox.Layout, table string, limit int,
) error {
	t, err := parseSQL()
	if err != nil {
		return err
	}
	name, args := "lanes_backlog", []any{limit}
	if layout.IsLog() {
		name, args = "log_lanes", []any{table, limit, outbox.Lanes}
	}
	sql, err := t.Statement(name, pgtable.Quote(layout))
	if err != nil {
		return err
	}
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	var lane operate.LaneBacklog
	var written *time.Time
	var id uuid.UUID
	var now time.Time
	_, err = pgx.ForEachRow(rows, []any{&lane.Lane, &lane.Rows, &written, &id, &now, &lane.Retrying, &lane.Held,
		&lane.HeldKeys}, func() error {
		lane.Oldest = uuid7.Written(written, id)
		r.Count(lane, now)
		return nil
	})
	r.Bounded = r.Counted >= limit
	return err
}
