package main

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// seeds times the queries that FR-006 and FR-007 put a limit on.
func seeds(ctx context.Context, s *servers, o options) error {
	// FR-007's poll in the words of FR-005, on a session without the relay's settings.
	const poll = "SELECT * FROM run_outbox WHERE published_at IS NULL ORDER BY id ASC LIMIT 100"
	if err := s.exec(ctx, "TRUNCATE crawl_runs CASCADE"); err != nil {
		return err
	}
	var run uuid.UUID
	if err := s.app.QueryRow(ctx,
		"INSERT INTO crawl_runs (app_package) VALUES ('com.example') RETURNING id").Scan(&run); err != nil {
		return err
	}
	if _, err := s.app.Exec(ctx,
		"INSERT INTO crawl_events (crawl_id, event_type, payload) SELECT $1, 'PROCESSING', jsonb_build_object('n', i, "+
			"'pad', repeat('x', 475)) FROM generate_series(1, 10000) i", run); err != nil {
		return err
	}
	fmt.Printf("%-76s %10s %10s\n", "query", "ms", "limit ms")
	row := func(name string, limit int, took time.Duration) {
		fmt.Printf("%-76s %10.2f %10d\n", name, float64(took.Microseconds())/1000, limit)
	}
	took, err := timeQuery(ctx, s,
		"SELECT id, seq, event_type, payload, created_at FROM crawl_events WHERE crawl_id = $1 ORDER BY id", 10_000, run)
	if err != nil {
		return err
	}
	row("FR-006: 10,000 events of one run", 100, took)

	t := outboxTables[1]
	if err := s.fill(ctx, t, 100_000); err != nil {
		return err
	}
	if took, err = timeQuery(ctx, s, poll, 100); err != nil {
		return err
	}
	row("FR-007: poll on 100,000 unpublished rows", 50, took)

	if err := s.exec(ctx, "ALTER TABLE crawl_outbox SET (autovacuum_enabled = false)"); err != nil {
		return err
	}
	if _, err := s.timeDrain(ctx, t, 100_000, relayLoop); err != nil {
		return err
	}
	for i := range 3 {
		if took, err = timeQuery(ctx, s, poll, 0); err != nil {
			return err
		}
		row(fmt.Sprintf("FR-007: poll %d right after 100,000 rows drained, before any vacuum", i+1), 50, took)
	}
	return s.exec(ctx, "ALTER TABLE crawl_outbox RESET (autovacuum_enabled)", "TRUNCATE crawl_runs CASCADE")
}

// timeQuery returns how long the query took until its last row was read, and checks how many rows came.
func timeQuery(ctx context.Context, s *servers, sql string, want int, args ...any) (time.Duration, error) {
	start := time.Now()
	rows, err := s.app.Query(ctx, sql, args...)
	if err != nil {
		return 0, err
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) { return struct{}{}, nil })
	took := time.Since(start)
	if err == nil && len(all) != want {
		err = fmt.Errorf("got %d rows, want %d", len(all), want)
	}
	return took, err
}
