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

// SessionDifferences takes n sessions at a time out of a pooler, as the transactions of an
// application do. It returns what is different in them from a new session of PostgreSQL itself.
func SessionDifferences(t testing.TB, direct, pooled string, n int) (found []string) {
	t.Helper()
	fresh := stateOf(t, direct)
	want := fresh.lines
	fresh.end(t)
	for i := range n {
		session := stateOf(t, pooled)
		defer session.end(t) // not before all are taken: each is another one
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
	return found
}

// takenSession is a session in a transaction.
type takenSession struct {
	conn  *pgx.Conn
	lines map[string]bool
}

func stateOf(t testing.TB, url string) takenSession {
	t.Helper()
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := takenSession{conn: conn, lines: map[string]bool{}}
	_, err = conn.Exec(t.Context(), "BEGIN")
	rows, failed := conn.Query(t.Context(), sessionState)
	lines, reading := pgx.CollectRows(rows, pgx.RowTo[string])
	if err := errors.Join(err, failed, reading); err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		s.lines[line] = true
	}
	return s
}

func (s takenSession) end(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), cleanupLimit)
	defer cancel()
	_, err := s.conn.Exec(ctx, "ROLLBACK")
	if err := errors.Join(err, s.conn.Close(ctx)); err != nil {
		t.Error(err)
	}
}
