package postgres

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
)

// trips counts how often a client speaks again after it has heard.
type trips struct {
	net.Conn
	heard bool // one goroutine at a time reads and writes
	count *atomic.Int64
}

func (c *trips) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.heard = true
	return n, err
}

func (c *trips) Write(p []byte) (int, error) {
	if c.heard {
		c.heard = false
		c.count.Add(1)
	}
	return c.Conn.Write(p)
}

// A lease's transaction is sent with its COMMIT: a relay that is stopped between two round trips
// would keep the lanes' rows locked, and no other could take them over.
func TestLeaseIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	cfg := migrated(t).Config()
	var count atomic.Int64
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return &trips{Conn: conn, count: &count}, err
	}
	cfg.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s, err := openTable(t.Context(), pool, outbox.OutboxEvents())
	if err != nil {
		t.Fatal(err)
	}
	owner := uuid.New()
	lanes := lease(t, s, owner, time.Minute) // prepares the statements
	for name, do := range map[string]func() error{
		"lease": func() error {
			_, err := s.Lease(t.Context(), outbox.LeaseRequest{Owner: owner, Name: "test", TTL: time.Hour})
			return err
		},
		"mark": func() error { return s.Mark(t.Context(), owner, lanes[:1]) },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
		before := count.Load()
		if err := do(); err != nil {
			t.Fatal(err)
		}
		if n := count.Load() - before; n != 1 {
			t.Errorf("%s: %d round trips", name, n)
		}
	}
}
