package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	sqlite "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/outboxrelay/outbox/internal/backoff"
	"github.com/outboxrelay/outbox/internal/store/sqlitefile"
)

// writing makes the connection that writes.
type writing struct {
	driver.Connector
	db *DB
}

func newWriting(db *DB, source string) (*writing, error) {
	c, err := sqlite.NewConnector(source)
	if err != nil {
		return nil, err
	}
	return &writing{c, db}, nil
}

// Connect implements driver.Connector.
func (w *writing) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := w.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	inner, ok := c.(driverConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("the SQLite driver's %T lacks what database/sql uses", c), c.Close())
	}
	return &writeConn{inner, w.db}, nil
}

// driverConn is what the driver's connection can do.
type driverConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// writeConn is a connection whose transactions find out that the file has gone, at their beginning
// and at their end. They wait for the write lock more evenly than SQLite does.
type writeConn struct {
	driverConn
	db *DB
}

// BeginTx implements driver.ConnBeginTx.
func (c *writeConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	begin := c.wait
	if opts.ReadOnly {
		begin = c.driverConn.BeginTx
	}
	tx, err := begin(ctx, opts)
	if moved := c.db.inPlace(); moved != nil { // now, not before: it may have waited
		if err == nil {
			if !opts.ReadOnly {
				c.db.rescue()
			}
			moved = errors.Join(moved, tx.Rollback())
		}
		return nil, moved
	}
	if err != nil {
		return nil, err
	}
	return writeTx{tx, c.db}, nil
}

// Who waits for the write lock tries again so often. SQLite's own waiting grows to 100 ms a time,
// and whoever has come just now tries every few milliseconds. Beside relays that settle without a
// pause somebody who waits so might never get it (measured: docs/adr/0017). So a producer tries
// often, and a relay's settle seldom.
const (
	producerTries = 2 * time.Millisecond
	relayTries    = 20 * time.Millisecond
)

// wait begins a transaction that has the write lock.
func (c *writeConn) wait(ctx context.Context, opts driver.TxOptions) (tx driver.Tx, err error) {
	if err := c.waitInSQLite(ctx, 0); err != nil {
		return nil, err
	}
	defer func() {
		if waits := c.waitInSQLite(context.WithoutCancel(ctx), sqlitefile.BusyFor); waits != nil && err == nil {
			tx, err = nil, errors.Join(waits, tx.Rollback())
		}
	}()
	whole := context.WithoutCancel(ctx) // interrupted, the connection would be lost, and its statements
	for until := time.Now().Add(c.db.patience); ; {
		tx, err := c.driverConn.BeginTx(whole, opts)
		var failure *sqlite.Error
		if err == nil || !errors.As(err, &failure) || failure.Code()&0xff != codes.SQLITE_BUSY || time.Now().After(until) {
			return tx, err
		}
		pause := producerTries/2 + rand.N(producerTries)
		if givesWay(ctx) {
			pause = relayTries/2 + rand.N(relayTries)
			c.db.turns.add(time.Now(), pause, 0)
			pause = max(pause, c.db.turns.pause(time.Now()))
		}
		if !backoff.Wait(ctx, pause) {
			return nil, errors.Join(ctx.Err(), err)
		}
	}
}

// waitInSQLite sets how long a statement waits for a lock.
func (c *writeConn) waitInSQLite(ctx context.Context, d time.Duration) error {
	_, err := c.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout=%d", d.Milliseconds()), nil)
	return err
}

// writeTx is a transaction that is only acknowledged if it is in the file that others see.
type writeTx struct {
	driver.Tx
	db *DB
}

// Commit implements driver.Tx.
func (t writeTx) Commit() error {
	if err := t.db.inPlace(); err != nil {
		return errors.Join(err, t.Rollback())
	}
	if err := t.Tx.Commit(); err != nil {
		return err
	}
	return t.db.inPlace()
}
