package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
)

// adrDDL is the table of ADR-004, word for word.
const adrDDL = "../internal/store/pgmigrations/testdata/adr004.sql"

// adrQueries are what the five indexes of ADR-004 are for.
var adrQueries = []struct{ name, where string }{
	{"of an aggregate", "aggregate_type = 'Order' AND aggregate_id = '4242'"},
	{"of a topic", "event_topic = 'topic.42'"},
	{"of a tenant, delivered", "tenant_id = 'tenant.42' AND status = 'SENT'"},
	{"of a tenant, undelivered", "tenant_id = 'tenant.42' AND status = 'NEW'"},
	{"of the last minute", "created_at > now() - interval '1 minute'"},
	{"whose retry is due", "status = 'FAILED' AND next_retry_at < now()"},
}

// indexes compares ADR-004's queries with those on the ADR's own table, then what its indexes cost with what the lean
// ones do.
func indexes(ctx context.Context, s *servers, o options) error {
	if err := s.exec(ctx, "TRUNCATE outbox_events", "CREATE SCHEMA adr"); err != nil {
		return err
	}
	ddl, err := os.ReadFile(adrDDL)
	if err != nil {
		return fmt.Errorf("read ADR-004's table: %w", err)
	}
	const columns = `(id, event_topic, occurred_at, aggregate_type, aggregate_id, tenant_id, source_bc, payload, status,
		created_at, next_retry_at)`
	const rows = `SELECT gen_random_uuid(), 'topic.' || i % 1000, now(), 'Order', (i % 30000)::text, 'tenant.' || i % 1000, 'shop',
			jsonb_build_object('n', i, 'pad', repeat('x', 475)),
			CASE WHEN i % 300 = 0 THEN 'NEW' WHEN i % 3000 = 1 THEN 'FAILED' ELSE 'SENT' END,
			now() - (300000 - i) * interval '1 second', CASE WHEN i % 3000 = 1 THEN now() - interval '1 second' END
		FROM generate_series(1, 300000) i`
	for _, sql := range []string{
		"SET search_path = adr;" + string(ddl),
		"SET search_path = public; INSERT INTO outbox_events " + columns + rows,
		"INSERT INTO adr.outbox_events " + columns + " SELECT " + columns[1:len(columns)-1] + " FROM outbox_events",
		"VACUUM ANALYZE outbox_events", "VACUUM ANALYZE adr.outbox_events", "CHECKPOINT",
	} {
		if err := s.script(ctx, sql); err != nil {
			return err
		}
	}
	fmt.Printf("%-40s %10s %10s %8s\n", "events, among 300,000", "ours ms", "ADR ms", "ratio")
	for _, q := range adrQueries {
		var took [2][]float64
		for range 200 {
			for i, table := range []string{"outbox_events", "adr.outbox_events"} {
				ms, err := s.timeRows(ctx, "SELECT id, event_topic, status, payload FROM "+table+" WHERE "+q.where)
				if err != nil {
					return err
				}
				took[i] = append(took[i], ms)
			}
		}
		ours, adr := median(took[0]), median(took[1])
		fmt.Printf("%-40s %10.3f %10.3f %8.2f  (wanted: at most 1.20)\n", q.name, ours, adr, ours/adr)
	}
	if err := s.exec(ctx, "DROP SCHEMA adr CASCADE", "TRUNCATE outbox_events"); err != nil {
		return err
	}
	return s.indexSets(ctx, o)
}

// indexSets fills and drains the table with the ADR's indexes and with the lean ones, in turns.
func (s *servers) indexSets(ctx context.Context, o options) error {
	t := outboxTables[0]
	sets := []pgmigrations.IndexSet{pgmigrations.ADRIndexes, pgmigrations.LeanIndexes}
	inserts, drains := make([][]float64, len(sets)), make([][]float64, len(sets))
	for range o.rounds {
		for i, set := range sets {
			if err := s.exec(ctx, "TRUNCATE outbox_events"); err != nil {
				return err
			}
			if _, err := pgmigrations.SwitchIndexes(ctx, s.url, set, func(string) {}); err != nil {
				return err
			}
			start := time.Now()
			if _, err := s.app.Exec(ctx, t.fill, o.rows); err != nil {
				return fmt.Errorf("fill: %w", err)
			}
			inserts[i] = append(inserts[i], float64(o.rows)/time.Since(start).Seconds())
			if err := s.exec(ctx, "VACUUM ANALYZE outbox_events", "CHECKPOINT"); err != nil {
				return err
			}
			rate, err := s.timeDrain(ctx, t, o.rows, relayLoop)
			if err != nil {
				return err
			}
			drains[i] = append(drains[i], rate)
		}
	}
	fmt.Printf("%-40s %12s %12s %8s\n", "indexes of outbox_events", "adr", "lean", "adr/lean")
	for _, line := range []struct {
		name  string
		rates [][]float64
	}{{"rows inserted by one statement a second", inserts}, {"events drained by one relay a second", drains}} {
		adr, lean := median(line.rates[0]), median(line.rates[1])
		fmt.Printf("%-40s %12.0f %12.0f %8.2f\n", line.name, adr, lean, adr/lean)
	}
	if _, err := pgmigrations.SwitchIndexes(ctx, s.url, pgmigrations.ADRIndexes, func(string) {}); err != nil {
		return err
	}
	return s.exec(ctx, "TRUNCATE outbox_events")
}

// script runs statements on a connection of their own, whose settings end with it.
func (s *servers) script(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
		return fmt.Errorf("%.40s: %w", sql, err)
	}
	return nil
}

// timeRows returns how many milliseconds a query took until its last row was read.
func (s *servers) timeRows(ctx context.Context, sql string) (float64, error) {
	start := time.Now()
	rows, err := s.app.Query(ctx, sql)
	if err != nil {
		return 0, err
	}
	for rows.Next() {
	}
	return float64(time.Since(start).Microseconds()) / 1000, rows.Err()
}
