package sqlitemigrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"

	"github.com/golang-migrate/migrate/v4/database"
)

// driver is golang-migrate's view of one set's version table, within a transaction of Up or Down.
//
// golang-migrate has a driver for SQLite. It locks against other goroutines of its process and no more. It commits
// version and file apart, so that a process that dies leaves a mark that somebody has to repair. Here both are in the
// caller's transaction, which BEGIN IMMEDIATE has given the file's write lock.
type driver struct {
	ctx   context.Context // golang-migrate's methods take none
	conn  *sql.Conn
	table string // the version table; one of our own names
}

var _ database.Driver = driver{}

func (driver) Open(string) (database.Driver, error) {
	return nil, errors.New("open by URL: not supported")
}

func (driver) Close() error  { return nil }
func (driver) Lock() error   { return nil } // the transaction is the lock
func (driver) Unlock() error { return nil }

func (d driver) Run(file io.Reader) error {
	text, err := io.ReadAll(file)
	if err != nil {
		return fmt.Errorf("read migration: %w", err)
	}
	_, err = d.conn.ExecContext(d.ctx, string(text))
	return err
}

func (d driver) SetVersion(version int, dirty bool) error {
	if _, err := d.conn.ExecContext(d.ctx,
		"CREATE TABLE IF NOT EXISTS "+d.table+" (version INTEGER NOT NULL, dirty INTEGER NOT NULL) STRICT"); err != nil {
		return fmt.Errorf("make version table: %w", err)
	}
	if _, err := d.conn.ExecContext(d.ctx, "DELETE FROM "+d.table); err != nil {
		return fmt.Errorf("clear version: %w", err)
	}
	if version < 0 {
		return nil
	}
	if _, err := d.conn.ExecContext(d.ctx, "INSERT INTO "+d.table+" (version, dirty) VALUES (?, ?)", version,
		dirty); err != nil {
		return fmt.Errorf("set version: %w", err)
	}
	return nil
}

func (d driver) Version() (version int, dirty bool, err error) {
	var known bool
	if err := d.conn.QueryRowContext(d.ctx, "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?",
		d.table).Scan(&known); err != nil || !known {
		return database.NilVersion, false, err
	}
	err = d.conn.QueryRowContext(d.ctx, "SELECT version, dirty FROM "+d.table).Scan(&version, &dirty)
	if errors.Is(err, sql.ErrNoRows) {
		return database.NilVersion, false, nil
	}
	return version, dirty, err
}

func (driver) Drop() error { return errors.New("drop everything: not supported") }
