package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/inbox"
	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
	"github.com/outboxrelay/outbox/internal/store/seen"
)

// NewInbox returns an inbox for transactions of pgx, and NewSQLInbox one for those of database/sql
// and what is built on it. The tables are of migration core/006; the role needs the rights of
// outbox_consumer.
//
// In a transaction that is not read committed, a copy that was handled since it began is an error
// that a retry cures (40001), as with any other row.
func NewInbox(cfg inbox.Config) (*inbox.Inbox[pgx.Tx], error) { return newInbox[pgx.Tx](cfg) }

// NewSQLInbox is NewInbox for transactions of database/sql.
func NewSQLInbox(cfg inbox.Config) (*inbox.Inbox[outbox.SQLTx], error) {
	return newInbox[outbox.SQLTx](cfg)
}

func newInbox[Tx any](cfg inbox.Config) (*inbox.Inbox[Tx], error) {
	return inbox.New[Tx](inboxStore[Tx]{seen.Store[Tx]{DB: anyDriver{},
		Conn: func(tx Tx) (cold.Conn, error) { return anyTx(tx) }}}, cfg)
}

// inboxStore is an inbox.Store.
type inboxStore[Tx any] struct{ seen.Store[Tx] }

// Remember implements inbox.Store, by a function of the database: a lock and what is looked up
// after it in one round trip, in any language.
func (s inboxStore[Tx]) Remember(ctx context.Context, tx Tx, deliveries []inbox.Delivery) ([]inbox.Known, error) {
	on, err := s.Conn(tx)
	if err != nil {
		return nil, err
	}
	statement, args, err := remembering(deliveries)
	if err != nil {
		return nil, err
	}
	rows, err := on.Query(ctx, statement, args...)
	if err != nil {
		return nil, err
	}
	return knownOf(rows)
}

// remembering is the statement that remembers deliveries. Its arguments are texts, which all
// drivers take alike.
func remembering(deliveries []inbox.Delivery) (statement string, args []any, err error) {
	var ids, payloads, windows []string
	for _, d := range deliveries {
		ids = append(ids, arrayOf(d.IDs, func(k inbox.Key) string { return uuid.UUID(k.Hash).String() }))
		windows = append(windows, arrayOf(d.IDs, func(k inbox.Key) string {
			return fmt.Sprintf("%d microseconds", k.Window.Microseconds())
		}))
		payload := ""
		if d.Payload != nil {
			payload = uuid.UUID(*d.Payload).String()
		}
		payloads = append(payloads, payload)
	}
	if len(deliveries) == 1 {
		statement, err = rememberOne()
		return statement, []any{ids[0], payloads[0], windows[0]}, err
	}
	same := func(text string) string { return text }
	statement, err = rememberAll()
	return statement, []any{arrayOf(ids, same), arrayOf(payloads, same), arrayOf(windows, same)}, err
}

// The statements that remember a delivery, and several. Each is filled in once: that was a
// fifteenth of what the process of a group does for an event.
var rememberOne, rememberAll = filled("inbox_once"), filled("inbox_remember")

func filled(name string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		statement, _, err := cold.Statement(anyDriver{}, name, struct{ IDs, Payloads, Windows string }{})
		return statement, err
	})
}

// knownOf reads what a statement of remembering has found, and closes it.
func knownOf(rows cold.Rows) (known []inbox.Known, err error) {
	defer rows.Close()
	for rows.Next() {
		var found string // (which,payload)
		if err := rows.Scan(&found); err != nil {
			return nil, err
		}
		which, payload, _ := strings.Cut(strings.Trim(found, "()"), ",")
		id, err := strconv.Atoi(which)
		if err != nil {
			return nil, fmt.Errorf("read what outbox_once says: %w", err)
		}
		k := inbox.Known{ID: id - 1}
		if of, err := uuid.Parse(payload); err == nil {
			k.Payload = (*inbox.Hash)(&of)
		}
		known = append(known, k)
	}
	return known, rows.Err()
}

// Sweep implements inbox.Store.
func (s inboxStore[Tx]) Sweep(ctx context.Context, tx Tx) (ended bool, err error) {
	on, err := s.Open(tx)
	if err != nil {
		return false, err
	}
	err = on.One(ctx, "inbox_sweep", nil, &ended)
	var busy interface{ SQLState() string }
	if errors.As(err, &busy) && busy.SQLState() == pgtable.LockNotAvailable {
		return false, fmt.Errorf("%w: %w", inbox.ErrBusy, err)
	}
	return ended, err
}
