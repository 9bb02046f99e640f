package testenv

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
)

// sessionState is all that a session may keep from one transaction to the next.
const sessionState = `
	SELECT 'setting ' || name || ' = ' || coalesce(setting, '') || ', reset to ' || coalesce(reset_val, '') FROM pg_settings
	 WHERE name <> 'application_name' AND name NOT LIKE 'tcp%' -- of the client, and of the kind of socket
	   AND name NOT LIKE 'plpgsql.%'                          -- there once the session has run a function
	UNION ALL SELECT 'prepared statement ' || name FROM pg_prepared_statements
	UNION ALL SELECT 'cursor ' || name FROM pg_cursors
	UNION ALL SELECT 'channel listened to ' || c FROM pg_listening_channels() c
	UNION ALL SELECT 'temporary ' || relname FROM pg_class WHERE relnamespace = pg_my_temp_schema()
	UNION ALL SELECT 'advisory lock ' || mode FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'`

// SessionDifferences is CompareSessions, for poolers that nobody kills.
func SessionDifferences(t testing.TB, direct, pooled string, n int) (found []string) {
	t.Helper()
	found, err := CompareSessions(t.Context(), direct, pooled, n)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// CompareSessions takes n sessions at a time out of a pooler, as the transactions of an application
// do. It returns what is different in them from a new session of PostgreSQL itself.
func CompareSessions(ctx context.Context, direct, pooled string, n int) (found []string, err error) {
	fresh, err := take(ctx, direct)
	if err == nil {
		err = fresh.end(ctx)
	}
	if err != nil {
		return nil, err
	}
	want := fresh.lines
	for i := range n {
		session, failed := take(ctx, pooled)
		if failed != nil {
			return nil, failed
		}
		defer func() { err = errors.Join(err, session.end(ctx)) }() // not before all are taken: each is another one
		for line := range session.lines {
			if !want[line] {
				found = append(found, fmt.Sprintf("session %d has %s", i, line))
			}
		}
		for line := range want {
			if !session.lines[line] {
				found = append(found, fmt.Sprintf("session %d lacks %s", i, line))
			}
		}
	}
	return found, nil
}

// takenSession is a session in a transaction.
type takenSession struct {
	conn  *pgx.Conn
	lines map[string]bool
}

func take(ctx context.Context, url string) (s takenSession, err error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return s, err
	}
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	if s.conn, err = pgx.ConnectConfig(ctx, cfg); err != nil {
		return s, err
	}
	_, err = s.conn.Exec(ctx, "BEGIN")
	rows, failed := s.conn.Query(ctx, sessionState)
	lines, reading := pgx.CollectRows(rows, pgx.RowTo[string])
	if err := errors.Join(err, failed, reading); err != nil {
		return s, errors.Join(err, s.conn.Close(ctx))
	}
	s.lines = map[string]bool{}
	for _, line := range lines {
		s.lines[line] = true
	}
	return s, nil
}

func (s takenSession) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupLimit)
	defer cancel()
	_, err := s.conn.Exec(ctx, "ROLLBACK")
	return errors.Join(err, s.conn.Close(ctx))
}
