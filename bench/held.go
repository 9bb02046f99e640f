package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/outboxrelay/outbox/store/postgres"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

// hindrance is something about one row that keeps its settle from succeeding.
type hindrance struct {
	name     string
	set, end []string // statements that put it in place for all rows, and take it away
	hold     string   // of a transaction that is open meanwhile
	role     bool     // the relay has a role that policies count for
}

var hindrances = []hindrance{
	{name: "locked: SELECT … FOR UPDATE", hold: "FOR UPDATE"},
	{name: "share-locked: SELECT … FOR SHARE", hold: "FOR SHARE"},
	{
		name: "refused by a trigger",
		set: []string{
			`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
				$$BEGIN IF NEW.aggregate_id = 'held' THEN RAISE EXCEPTION 'not this one'; END IF; RETURN NEW; END$$`,
			`CREATE TRIGGER refuse BEFORE UPDATE OF status ON outbox_events FOR EACH ROW EXECUTE FUNCTION refuse()`,
		},
		end: []string{`DROP TRIGGER refuse ON outbox_events`, `DROP FUNCTION refuse`},
	},
	{
		name: "refused by a policy", role: true,
		set: []string{
			`CREATE POLICY seen ON outbox_events FOR SELECT TO bench_relay USING (true)`,
			`CREATE POLICY refuse ON outbox_events FOR UPDATE TO bench_relay USING (true) WITH CHECK (aggregate_id <> 'held')`,
			`ALTER TABLE outbox_events ENABLE ROW LEVEL SECURITY`,
		},
		end: []string{
			`ALTER TABLE outbox_events DISABLE ROW LEVEL SECURITY`,
			`DROP POLICY seen ON outbox_events`, `DROP POLICY refuse ON outbox_events`,
		},
	},
}

// held measures what a row that cannot be settled costs the others: the same backlog with it and without, under the
// same trigger or policy.
func held(ctx context.Context, s *servers, o options) error {
	if err := migrations.ApplyRoles(ctx, s.url); err != nil {
		return err
	}
	if err := s.exec(ctx, "CREATE ROLE bench_relay LOGIN IN ROLE outbox_relay"); err != nil {
		return err
	}
	address, err := url.Parse(s.url)
	if err != nil {
		return errors.New("parse database URL")
	}
	query := address.Query()
	query.Set("user", "bench_relay")
	address.User, address.RawQuery = nil, query.Encode()
	db, err := postgres.Connect(ctx, address.String(), postgres.Config{Conns: 6})
	if err != nil {
		return err
	}
	defer db.Close()
	fmt.Printf("%-44s %12s %12s %8s\n", "one row that cannot be settled", "without", "with it", "ratio")
	for _, h := range hindrances {
		own := *s
		if h.role {
			own.relay = db
		}
		if err := own.exec(ctx, h.set...); err != nil {
			return err
		}
		var without, with []float64
		for range o.rounds {
			for _, c := range []struct {
				rates *[]float64
				held  bool
			}{{&without, false}, {&with, true}} {
				rate, err := own.drainBeside(ctx, h, o.rows, c.held)
				if err != nil {
					return fmt.Errorf("%s: %w", h.name, err)
				}
				*c.rates = append(*c.rates, rate)
			}
		}
		if err := own.exec(ctx, h.end...); err != nil {
			return err
		}
		fmt.Printf("%-44s %12.0f %12.0f %8.2f  (wanted: 0.90)\n", h.name, median(without), median(with),
			median(with)/median(without))
	}
	return s.exec(ctx, "TRUNCATE outbox_events")
}

// drainBeside drains rows events of other keys, with the row in between or without.
func (s *servers) drainBeside(ctx context.Context, h hindrance, rows int, with bool) (rate float64, err error) {
	t := outboxTables[0]
	if err := s.refill(ctx, t, rows); err != nil {
		return 0, err
	}
	if with {
		// In the middle, so that the relay meets it while it is at work.
		if err := s.exec(ctx, `UPDATE outbox_events SET aggregate_id = 'held'
			WHERE position = (SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY position) FROM outbox_events)`); err != nil {
			return 0, err
		}
	}
	if with && h.hold != "" {
		tx, err := s.app.Begin(ctx)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, tx.Rollback(context.WithoutCancel(ctx))) }()
		var position int64
		if err := tx.QueryRow(ctx, "SELECT position FROM outbox_events WHERE aggregate_id = 'held' "+
			h.hold).Scan(&position); err != nil {
			return 0, err
		}
	}
	rate, err = s.timeDrain(ctx, t, rows, relayLoop) // a locked row is published, one that is refused too
	if err != nil || !with {
		return rate, err
	}
	var left int
	for range 50 { // the last settles
		const others = "SELECT count(*) FROM outbox_events WHERE status IN ('NEW', 'FAILED') AND aggregate_id <> 'held'"
		if err := s.app.QueryRow(ctx, others).Scan(&left); err != nil || left == 0 {
			return rate, err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return rate, fmt.Errorf("%d events of other keys are not settled after 5 s", left)
}
