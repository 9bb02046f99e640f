package pgmigrations

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/golang-migrate/migrate/v4/database"
	"github.com/jackc/pgx/v5/pgconn"
)

//go:embed sql/strangers.sql
var strangersSQL string

// briefly begins each transaction that changes something. It bounds a wait for a lock, because who comes after it
// queues behind it: a writer never waits longer for a statement that waits itself. And it calls nothing that a role
// with fewer rights has made. It is one line, so that the lines of errors are those of a file.
var briefly = "SET LOCAL lock_timeout = '300ms'; SET LOCAL statement_timeout = 0; " +
	strings.Join(strings.Fields(strangersSQL[strings.Index(strangersSQL, "DO $do$"):]), " ") + " "

const (
	// patience is how long a lock is tried for.
	patience = 2 * time.Minute

	lockNotAvailable = "55P03"
	deadlockDetected = "40P01"
)

// errNotRun is that of a statement that never got its locks.
var errNotRun = errors.New("not run")

// patiently tries what needs a lock again until it gets it. Between two tries those who hold it, and those who queued
// behind the last try, go on.
func patiently(ctx context.Context, try func() error) error {
	began := time.Now()
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := try()
		if !locksOut(err) {
			return err
		}
		if time.Since(began) > patience {
			return fmt.Errorf("wait %s for a lock (a transaction holds it, see pg_stat_activity; end it and run up again): %w",
				patience, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: wait for a lock: %w", errNotRun, ctx.Err())
		case <-time.After(pause/2 + rand.N(pause)):
		}
	}
}

func locksOut(err error) bool {
	var server *pgconn.PgError
	return errors.As(cause(err), &server) && (server.Code == lockNotAvailable || server.Code == deadlockDetected)
}

// patientDriver runs each file so that an application's writers hardly wait for it. A file is one transaction, so one
// that did not get its locks did nothing.
type patientDriver struct {
	database.Driver
	ctx context.Context // ends the waiting, never a file under way
}

// Run adds to the file's first line, so that the lines of errors are those of the file.
func (d patientDriver) Run(file io.Reader) error {
	text, err := io.ReadAll(file)
	if err != nil {
		return fmt.Errorf("read migration: %w", err)
	}
	return patiently(d.ctx, func() error { return d.Driver.Run(strings.NewReader(briefly + string(text))) })
}
