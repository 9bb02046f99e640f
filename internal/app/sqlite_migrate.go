package app

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"

	"github.com/outboxrelay/outbox/internal/store/migration"
	"github.com/outboxrelay/outbox/internal/store/sqlitemigrations"
	"github.com/outboxrelay/outbox/store/sqlite"
)

// sqliteMigrations are the Migrations of a file.
type sqliteMigrations struct{ path string }

// Status of a file that is not there is that of an empty one, and makes none.
func (m sqliteMigrations) Status(ctx context.Context, named ...string) (all []migration.SetStatus, err error) {
	db, err := sqlite.Connect(ctx, m.path, 1)
	if errors.Is(err, sqlite.ErrNoFile) {
		return m.statusOfNothing(ctx, named)
	}
	if err != nil {
		return nil, fmt.Errorf("read migration status: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return sqlitemigrations.Status(ctx, db.Reads(), named...)
}

func (m sqliteMigrations) statusOfNothing(ctx context.Context, named []string) (all []migration.SetStatus, err error) {
	nothing, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return nil, fmt.Errorf("read migration status: %w", err)
	}
	defer func() { err = errors.Join(err, nothing.Close()) }()
	return sqlitemigrations.Status(ctx, nothing, named...)
}

// Plan is empty: nobody else has made such tables in an SQLite file.
func (m sqliteMigrations) Plan(context.Context, ...string) (migration.Adoption, error) {
	return migration.Adoption{}, nil
}

func (m sqliteMigrations) Up(ctx context.Context, sets ...string) (err error) {
	db, err := sqlite.Create(ctx, m.path, 1)
	if err != nil {
		return fmt.Errorf("migrate up: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return sqlitemigrations.Up(ctx, db.Writes(), sets...)
}

func (m sqliteMigrations) Down(ctx context.Context, steps int, set string) (err error) {
	db, err := sqlite.Connect(ctx, m.path, 1)
	if err != nil {
		return fmt.Errorf("migrate down: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return sqlitemigrations.Down(ctx, db.Writes(), steps, set)
}

// Required implements Migrations.
func (sqliteMigrations) Required(set string) uint { return sqlitemigrations.Required(set) }

// Lacks implements Migrations.
func (m sqliteMigrations) Lacks(what Ability) string {
	switch what {
	case Roles:
		return fmt.Sprintf("SQLite has no roles: whoever may write the file %s and its folder may do everything, so set "+
			"their permissions", m.path)
	case Indexes:
		return "an SQLite file has one form of indexes only, the lean one"
	case Export:
		return fmt.Sprintf("export writes PostgreSQL's tables, and --database is the SQLite file %s: outbox migrate up "+
			"makes its tables", m.path)
	case Zones:
		return "--zone is for PostgreSQL's columns without a time zone: times in an SQLite file are UTC, or name their zone"
	}
	return ""
}

func (m sqliteMigrations) Print(w io.Writer, sets ...string) error {
	return sqlitemigrations.Print(w, sets...)
}
