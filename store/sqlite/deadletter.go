package sqlite

import (
	"context"
	"database/sql"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/letters"
	"github.com/outboxrelay/outbox/internal/store/sqlitecold"
)

// DeadLettersConfig says where letters may be put back. The zero value is enough to look at them.
type DeadLettersConfig struct {
	// Layouts are of the tables whose letters can be replayed. outbox_deliveries, which has those
	// of routed tables, need not be among them. A table that does not exist is passed over: its
	// letters are skipped.
	Layouts []outbox.Layout
	// ReplayJob gives a job back to its runner inside tx, in which the letter is marked as replayed
	// too: both happen or neither. An error, whose text the operator is shown, leaves this letter
	// as it is, undoes what was done in tx for it, and does not stop the others. Nil: letters of
	// jobs are skipped.
	ReplayJob func(ctx context.Context, tx *sql.Tx, letter deadletter.Letter) error
}

// OpenDeadLetters returns the dead letters of a file, the table job_dlq, after checking that its
// tables fit. A table that is older than this program needs is an *outbox.SchemaError.
//
// The store is safe for concurrent use. A page of a replay, a discard or a purge is one write
// transaction, and holds up other writers as long as it takes. A filter by error or fingerprint,
// and Stats, read every letter that the rest of the filter leaves.
func OpenDeadLetters(ctx context.Context, db *DB, cfg DeadLettersConfig) (deadletter.Store, error) {
	var jobs func(context.Context, *cold.Tx, deadletter.Letter) error
	if cfg.ReplayJob != nil {
		jobs = func(ctx context.Context, tx *cold.Tx, letter deadletter.Letter) error {
			return cfg.ReplayJob(ctx, sqlitecold.Tx(tx), letter)
		}
	}
	return letters.Open(ctx, sqlitecold.DB{File: db}, cfg.Layouts, jobs)
}

// NewJobLetters returns what keeps the letters of jobs, and of events that consumers give up, in
// job_dlq:
//
//	deadletter.Add(ctx, sqlite.NewJobLetters(tx), job)
//
// db is a *sql.Tx, or DB.Writes() of a DB: with a transaction the letter is part of it, else it is
// stored at once.
func NewJobLetters(db outbox.SQLTx) deadletter.Recorder {
	return letters.NewRecorder(sqlitecold.DB{}, cold.SQL{SQLTx: db})
}
