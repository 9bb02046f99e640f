package postgres

import (
	"context"
	"fmt"
	"strconv"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/eventbus"
	"github.com/outboxrelay/outbox/internal/store/busevent"
	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/pgcold"
	"github.com/outboxrelay/outbox/internal/store/sqltx"
)

// NewEventBus returns the repository of table event_outbox for transactions of pgx, and
// NewSQLEventBus for those of database/sql and what is built on it. maxPayload is in bytes; 0 means
// outbox.DefaultMaxPayload.
//
// A bus sees what row-level security shows its transaction. A role that the policy of the relay
// does not cover must call SetTenant first; without it nothing can be offered, and there seem to be
// no events.
func NewEventBus(maxPayload int) eventbus.Bus[pgx.Tx] { return newBus[pgx.Tx](maxPayload) }

// NewSQLEventBus is NewEventBus for transactions of database/sql.
func NewSQLEventBus(maxPayload int) eventbus.Bus[outbox.SQLTx] {
	return newBus[outbox.SQLTx](maxPayload)
}

func newBus[Tx any](maxPayload int) busevent.Bus[Tx] {
	return busevent.Bus[Tx]{DB: anyDriver{}, Conn: func(tx Tx) (cold.Conn, error) { return anyTx(tx) },
		MaxPayload: maxPayload, Refused: askEncoding}
}

// anyDriver has arguments as texts and integers, which all drivers take alike.
type anyDriver struct{ pgcold.DB }

// Argument implements cold.Database.
func (anyDriver) Argument(n int, v any) (parameter string, value any, err error) {
	switch of := v.(type) {
	case uuid.UUID:
		v = of.String()
	case *uuid.UUID:
		if of == nil {
			return "$" + strconv.Itoa(n), nil, nil
		}
		v = of.String()
	case []uuid.UUID:
		v = arrayOf(of, uuid.UUID.String)
	case outbox.Reason:
		v = string(of)
	}
	return "$" + strconv.Itoa(n), v, nil
}

// anyTx is a caller's transaction, a pgx.Tx or an outbox.SQLTx.
func anyTx(tx any) (cold.Conn, error) {
	switch tx := tx.(type) {
	case pgx.Tx:
		return pgcold.Conn{Querier: tx}, checkTx(tx)
	case outbox.SQLTx:
		open, err := sqltx.Open(tx)
		return cold.SQL{SQLTx: open}, err
	}
	return nil, fmt.Errorf("%w: %T is neither a pgx.Tx nor an outbox.SQLTx", outbox.ErrNoTransaction, tx)
}

// askEncoding finds out why an event was not stored: an INSERT inserts nothing through a connection
// that does not speak UTF-8, and database/sql cannot tell what the server reported (checkEncoding).
func askEncoding(ctx context.Context, tx *cold.Tx) error {
	var encoding string
	var safe bool
	if err := tx.One(ctx, "write_encoding", nil, &encoding, &safe); err != nil {
		return fmt.Errorf("ask for the connection's encoding: %w", err)
	}
	if !safe {
		return &EncodingError{encoding}
	}
	return nil
}

// SetTenant makes the rest of tx speak for the application appID. It ends with the transaction, so
// a pooled connection carries nothing over. tx is a pgx.Tx or an outbox.SQLTx.
func SetTenant(ctx context.Context, tx any, appID uuid.UUID) error {
	conn, err := anyTx(tx)
	if err == nil {
		err = cold.In(anyDriver{}, conn).Each(ctx, "bus_tenant", appID.String(), func(cold.Rows) error { return nil })
	}
	if err != nil {
		return fmt.Errorf("set tenant %s: %w", appID, err)
	}
	return nil
}
