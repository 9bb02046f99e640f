package pgmigrations

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/golang-migrate/migrate/v4/database"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

var (
	//go:embed sql/version_table.sql
	versionTableSQL string
	//go:embed sql/version_forget.sql
	versionForgetSQL string
	//go:embed sql/version_record.sql
	versionRecordSQL string
	//go:embed sql/version_drop.sql
	versionDropSQL string
)

// pooledDriver is golang-migrate's driver for a connection through a pooler. Its own one locks a session, and would
// leave that lock in one that an application gets; here nothing outlives a transaction, and the schema lock is held
// already.
type pooledDriver struct {
	ctx   context.Context // golang-migrate takes none
	conn  *pgx.Conn
	table string
}

func openPooled(ctx context.Context, by session, table string) (database.Driver, error) {
	d := pooledDriver{ctx, by.Conn, table}
	_, err := d.conn.Exec(ctx, d.sql(versionTableSQL))
	return d, err
}

func (d pooledDriver) sql(statement string) string {
	return strings.ReplaceAll(statement, "{table}", d.table)
}

func (d pooledDriver) Lock() error   { return nil }
func (d pooledDriver) Unlock() error { return nil }
func (d pooledDriver) Close() error  { return nil } // the connection is the caller's

func (d pooledDriver) Open(string) (database.Driver, error) {
	return nil, errors.New("open migrations by URL: not here")
}
func (d pooledDriver) Drop() error { return errors.New("drop all tables: not here") }

// Run runs a file as one simple query, and so as one transaction.
func (d pooledDriver) Run(file io.Reader) error {
	text, err := io.ReadAll(file)
	if err != nil {
		return fmt.Errorf("read migration: %w", err)
	}
	_, err = d.conn.Exec(d.ctx, string(text), pgx.QueryExecModeSimpleProtocol)
	var server *pgconn.PgError
	if errors.As(err, &server) && server.Position > 0 {
		before := []rune(string(text))[:server.Position-1]
		return database.Error{OrigErr: err, Line: uint(1 + strings.Count(string(before), "\n"))}
	}
	return err
}

func (d pooledDriver) SetVersion(version int, dirty bool) error {
	return pgx.BeginFunc(d.ctx, d.conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(d.ctx, d.sql(versionForgetSQL)); err != nil {
			return err
		}
		if version < 0 && !dirty { // as golang-migrate has it: no row is no version
			return nil
		}
		_, err := tx.Exec(d.ctx, d.sql(versionRecordSQL), version, dirty)
		return err
	})
}

func (d pooledDriver) Version() (version int, dirty bool, err error) {
	err = d.conn.QueryRow(d.ctx, d.sql(versionSQL)).Scan(&version, &dirty)
	if errors.Is(err, pgx.ErrNoRows) {
		return database.NilVersion, false, nil
	}
	return version, dirty, err
}
