package pgmigrations

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// LegacyOptions say which table Legacy upgrades and how. The zero value is usable.
type LegacyOptions struct {
	Table     string                  // as schema.table or table; "": outbox
	BatchSize int                     // rows a commit; 0: 5000, negative: an error
	DryRun    bool                    // change nothing, report what would be done
	Progress  func(done, total int64) // called after each batch; nil: nobody asks
}

// LegacyReport says what Legacy did, or after a dry run would do.
type LegacyReport struct {
	Table           string   `json:"table"`
	Rows            int64    `json:"rows"`             // rows that were still to do when the run began
	Errors          int64    `json:"errors"`           // those of them with status ERR, which becomes DEAD
	Upgraded        int64    `json:"upgraded"`         // rows this run has filled; 0 after a dry run
	AlreadyUpgraded bool     `json:"already_upgraded"` // there was nothing to do
	Steps           []string `json:"steps"`            // in plain words, in order
}

// Legacy upgrades the outbox table of before ADR-004 in place to the columns of outbox_events, so that a relay can
// serve it as a mapped table. That table has id, tenant_id, aggregate_id, type, schema_id, schema_ver, payload, status
// (NEW|SENT|ERR), retry_cnt and created_at. No row is lost and no value of one, but that ERR becomes DEAD; the column
// type stays beside its copy event_topic. An aggregate_id of type uuid becomes VARCHAR(128), as ADR-004 has it.
//
// It works in three steps. The columns are added and two renamed: one short transaction. Rows are filled oldest first
// in batches with a commit each, which readers and writers hardly notice. Last, in one transaction under an ACCESS
// EXCLUSIVE lock, the constraints and indexes are added, for which the table is read but not rewritten. (500,000 rows
// of 500 bytes on two cores: 30 s, the last 1.5 s of it under the lock.) Only where a column changes its type
// (aggregate_id from uuid; a bare TIMESTAMP, unless the session's time zone is UTC) is it rewritten there: 3.5 to 4.5
// s. Filling a row leaves its old version behind, so as much free disk again is needed. Without a rewrite the table
// stays that large (there 244 MB became 523) and autovacuum makes the room usable. Stop whoever writes the old column
// names before the first step.
//
// Killed or cancelled at any point it can be called again and goes on where it stopped; on an upgraded table it does
// nothing. A table that does not fit (a missing column, another type, a topic over 150 characters, an unknown
// status) is refused before anything is changed. The report is valid also with an error.
func Legacy(ctx context.Context, databaseURL string, options LegacyOptions) (LegacyReport, error) {
	if options.Table == "" {
		options.Table = "outbox"
	}
	if options.BatchSize == 0 {
		options.BatchSize = 5000
	}
	report := LegacyReport{Table: options.Table}
	if options.BatchSize < 0 {
		return report, fmt.Errorf("upgrade table %s: BatchSize is %d, want 1 or more", options.Table, options.BatchSize)
	}
	run := func(by session) error {
		conn := by.Conn
		if options.DryRun {
			// A promise kept by the server rather than by this code. It ends with the connection.
			if _, err := conn.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly}); err != nil {
				return fmt.Errorf("begin a read-only transaction: %w", err)
			}
		}
		table, err := inspectLegacy(ctx, conn, options.Table)
		if err != nil {
			return err
		}
		if report.AlreadyUpgraded = table.done(); report.AlreadyUpgraded {
			return nil
		}
		if report.Rows, report.Errors, err = table.survey(ctx, conn); err != nil {
			return err
		}
		report.Steps = table.steps(report.Rows, report.Errors, options.BatchSize)
		if options.DryRun {
			return nil
		}
		return table.upgrade(ctx, conn, options, &report)
	}
	if err := locked(ctx, databaseURL, run); err != nil {
		return report, fmt.Errorf("upgrade table %s: %w", options.Table, err)
	}
	return report, nil
}

// upgrade does the three steps.
func (t *legacyTable) upgrade(ctx context.Context, conn *pgx.Conn, options LegacyOptions, report *LegacyReport) error {
	if err := t.exec(ctx, conn, "prepare"); err != nil {
		return fmt.Errorf("add columns: %w", err)
	}
	b := batch{from: "-infinity", size: options.BatchSize}
	if err := conn.QueryRow(ctx, t.sql("last")).Scan(&b.position); err != nil {
		return fmt.Errorf("find where to go on: %w", err)
	}
	for {
		var filled int64
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) (err error) {
			if err := t.exec(ctx, conn, "pin"); err != nil {
				return fmt.Errorf("pin plans: %w", err)
			}
			filled, err = b.next(ctx, conn, t)
			return err
		})
		if err != nil {
			return fmt.Errorf("fill rows (%d of %d done; run it again to go on): %w", report.Upgraded, report.Rows, err)
		}
		if filled == 0 {
			break
		}
		report.Upgraded += filled
		if options.Progress != nil {
			options.Progress(report.Upgraded, max(report.Rows, report.Upgraded)) // rows may have come in meanwhile
		}
	}
	// Rows that came in during the batches, also with an older created_at than the last batch's, are filled under the
	// lock.
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if err := t.exec(ctx, tx.Conn(), "lock"); err != nil {
			return err
		}
		if err := t.exec(ctx, tx.Conn(), "pin"); err != nil {
			return fmt.Errorf("pin plans: %w", err)
		}
		b.from = "-infinity"
		for {
			filled, err := b.next(ctx, tx.Conn(), t)
			if err != nil {
				return err
			}
			if filled == 0 {
				break
			}
			report.Upgraded += filled
		}
		return t.exec(ctx, tx.Conn(), "finish")
	})
	if err != nil {
		return fmt.Errorf("add constraints and indexes (all rows are filled; run it again to go on): %w", err)
	}
	return nil
}

// batch walks through the rows still to do, oldest first.
type batch struct {
	from     string // created_at of the last row filled, as PostgreSQL writes it
	position int64  // last one given out
	size     int
}

// next fills the next rows in one statement and says how many; 0 when none is left.
func (b *batch) next(ctx context.Context, conn *pgx.Conn, t *legacyTable) (int64, error) {
	var filled int64
	err := conn.QueryRow(ctx, t.sql("batch"), b.from, b.size, b.position).Scan(&filled, &b.position, &b.from)
	return filled, err
}
