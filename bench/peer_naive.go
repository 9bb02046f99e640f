package main

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// naiveLoop is the publisher of FR-005 as its sketch has it: 100 events every 200 ms, each
// published and marked by itself. 500 events a second are its limit, so it gets a small part of the
// backlog.
var naiveLoop = side{
	name: "FR-005's loop", kind: peer, share: 25,
	tables: []string{outboxTables[1].layout.Table},
	fill:   outboxTables[1].fill, busy: "SELECT EXISTS (" + outboxTables[1].pending + ")",
	serve: func(ctx context.Context, s *servers, until context.Context) error {
		ticks := time.NewTicker(200 * time.Millisecond)
		defer ticks.Stop()
		for {
			if err := publishRuns(ctx, s); err != nil {
				return err
			}
			select {
			case <-until.Done():
				return nil
			case <-ticks.C:
			}
		}
	},
}

// publishRuns is the seed's publishBatch.
func publishRuns(ctx context.Context, s *servers) error {
	rows, err := s.app.Query(ctx,
		"SELECT id, run_id, payload::text FROM run_outbox WHERE published_at IS NULL ORDER BY id ASC LIMIT 100")
	if err != nil {
		return err
	}
	type row struct {
		ID      int64
		Run     uuid.UUID
		Payload string
	}
	events, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	if err != nil {
		return err
	}
	for _, e := range events {
		if err := s.client.Publish(ctx, "run:"+e.Run.String(), e.Payload).Err(); err != nil {
			return err
		}
		if _, err := s.app.Exec(ctx, "UPDATE run_outbox SET published_at = NOW() WHERE id = $1", e.ID); err != nil {
			return err
		}
	}
	return nil
}
