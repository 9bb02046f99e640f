package postgres

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/uuid7"
)

// store is an outbox table that a relay can serve. It is safe for concurrent use.
type store struct {
	pool       sessions
	layout     outbox.Layout
	sql        statements
	intern     interner
	claims     claimSize
	fair       fairness
	name       string // of the table in its leases: one, whatever the layout calls it
	of         string // the name of the table whose events these are
	origin     uint64 // see outbox.Delivery
	maxPayload int    // bytes of a payload as text; a longer one is a defect
}

// maxPayload is what jsonb itself can hold. Only numbers with large exponents are longer as text, up to 15,000 times.
// One message of them is more than Redis takes (512 MB). Redis answers it by closing the connection, and so the whole
// relay would wait for ever.
const maxPayload = 256 << 20

var _ outbox.DeliveryStore = (*store)(nil)

// Backlog counts undelivered rows up to limit.
func (s *store) Backlog(ctx context.Context, limit int) (outbox.Backlog, error) {
	return s.scanBacklog(s.pool.QueryRow(ctx, s.sql.backlog, limit))
}

func (s *store) scanBacklog(row pgx.Row) (outbox.Backlog, error) {
	var b outbox.Backlog
	var written *time.Time
	var id *uuid.UUID
	var now time.Time
	if err := row.Scan(&b.Count, &written, &id, &now); err != nil {
		return outbox.Backlog{}, fmt.Errorf("read backlog of %s: %w", s.layout.Table, err)
	}
	if written == nil && id != nil {
		if t := uuid7.Time(*id); !t.IsZero() {
			written = &t
		}
	}
	if written != nil {
		b.Oldest = max(now.Sub(*written), 0)
	}
	return b, nil
}

// fairness is how a table's tenants share a claim. The zero value is that of a table whose claims cannot be shared.
type fairness struct {
	tenants, claim string // statements

	// Where the next fair claim begins, by the first of its lanes. Each of a relay's workers goes round on its own:
	// taking turns at one circle, one of two workers would meet the same half of the tenants for ever.
	mu    sync.Mutex
	last  map[int16]string
	alone time.Time // until then nobody looks for a second tenant
}

// interner returns one string for equal bytes: topics, types and tenants repeat in nearly every row.
type interner struct {
	mu sync.Mutex
	m  map[string]string
}

func (in *interner) string(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if s, ok := in.m[string(b)]; ok {
		return s
	}
	if in.m == nil || len(in.m) > 4096 {
		in.m = map[string]string{} // bounded: with many tenants it starts again
	}
	s := string(b)
	in.m[s] = s
	return s
}

// claimSize lowers the number of rows asked for when payloads are large, so that what one claim may not keep is not
// sent either.
type claimSize struct{ average atomic.Int64 } // bytes of payload per row, as last seen

// firstGuess is the payload's size before any was seen, in bytes. It is large, because a first claim of thousands of
// large rows would be read from the network only to be dropped.
const firstGuess = 8 << 10

func (c *claimSize) limit(l outbox.ClaimLimit) int {
	avg := c.average.Load()
	if avg == 0 {
		avg = firstGuess
	}
	return min(l.Records, max(1, int(int64(l.Bytes)/avg)))
}

func (c *claimSize) saw(records, bytes int) {
	if records > 0 {
		c.average.Store(int64(bytes / records))
	}
}
