package testenv_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// A session that is open sees the jump, forward and back, and goes on answering.
func TestPostgresClock(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	server := testenv.PostgresServer(t, testenv.PostgresConfig{Clock: true})
	conn, err := pgx.Connect(t.Context(), server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	for _, ahead := range []time.Duration{0, 10 * time.Minute, -time.Hour, 0} {
		if err := server.SetClock(ahead); err != nil {
			t.Fatal(err)
		}
		var now time.Time
		if err := conn.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&now); err != nil {
			t.Fatal(err)
		}
		if off := time.Until(now.Add(-ahead)).Abs(); off > time.Minute {
			t.Errorf("%s ahead, the server is %s off", ahead, off)
		}
	}
}
