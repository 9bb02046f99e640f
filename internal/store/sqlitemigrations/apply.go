package sqlitemigrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"

	"github.com/outboxrelay/outbox/internal/store/migration"
)

// All, as the number of steps, makes Down take a whole set away, its tables and all their rows.
const All = math.MaxInt

// ErrNewer says that the file's schema is newer than this build.
var ErrNewer = errors.New("the file was migrated by a newer program")

// Up brings the sets (none: migration.Default, and what the file has) to the newest embedded
// version, core first, in one transaction. It is safe to call from many processes at once, and
// where there is nothing to do. db is a database whose transactions begin with BEGIN IMMEDIATE:
// sqlite.DB's Begin does.
//
// When ctx ends, nothing is changed.
func Up(ctx context.Context, db *sql.DB, named ...string) error {
	sets, err := migration.Order(named)
	if err == nil {
		err = embedded.Lacks(sets)
	}
	if err != nil {
		return fmt.Errorf("migrate up: %w", err)
	}
	err = inTx(ctx, db, func(conn *sql.Conn) error {
		if len(named) == 0 {
			all, err := statuses(ctx, conn)
			if err != nil {
				return err
			}
			sets = nil
			for _, s := range migration.Unasked(all, nil) {
				sets = append(sets, s.Set)
			}
		}
		for _, set := range sets {
			if err := up(ctx, conn, set); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("migrate up: %w", err)
	}
	return nil
}

func up(ctx context.Context, conn *sql.Conn, set string) error {
	if set != "core" {
		core, err := status(ctx, conn, "core")
		if err != nil {
			return err
		}
		if len(core.Pending) > 0 {
			return fmt.Errorf("set %s needs core at version %d, the file has %d: run `outbox migrate up --set core,%s`: %w",
				set, core.Latest, core.Current, set, migration.ErrCoreMissing)
		}
	}
	before, err := status(ctx, conn, set)
	if err != nil {
		return err
	}
	if before.Current > before.Latest {
		return fmt.Errorf("set %s is at version %d, this program knows %d: %w: use that one", set, before.Current,
			before.Latest, ErrNewer)
	}
	for _, file := range embedded.List(set)[len(embedded.List(set))-len(before.Pending):] {
		if err := run(ctx, conn, set, file.Name+".up.sql", file.Version); err != nil {
			return fmt.Errorf("apply %s/%s: %w", set, file.Name, err)
		}
	}
	after, err := status(ctx, conn, set)
	if err != nil {
		return err
	}
	return embedded.CheckApplied(after, func(tables []string) (map[string][]string, error) {
		exist := map[string][]string{}
		for _, table := range tables {
			var names sql.NullString
			err := conn.QueryRowContext(ctx, "SELECT group_concat(name) FROM pragma_table_xinfo(?)", table).Scan(&names)
			if err != nil {
				return nil, err
			}
			if names.Valid {
				exist[table] = strings.Split(names.String, ",")
			}
		}
		return exist, nil
	})
}

// Down takes the newest steps applied migrations of one set away, with the data in their tables, in
// one transaction; All takes the set away. More steps than are applied is the same as All. Core
// cannot go below a set that stands on it.
func Down(ctx context.Context, db *sql.DB, steps int, set string) error {
	if err := embedded.Lacks([]string{set}); err != nil {
		return fmt.Errorf("migrate down: %w", err)
	}
	if steps <= 0 {
		return fmt.Errorf("migrate down: steps is %d, want 1 or more (to drop the whole set, say so: All)", steps)
	}
	if err := inTx(ctx, db, func(conn *sql.Conn) error { return down(ctx, conn, steps, set) }); err != nil {
		return fmt.Errorf("migrate down: %w", err)
	}
	return nil
}

func down(ctx context.Context, conn *sql.Conn, steps int, set string) error {
	before, err := status(ctx, conn, set)
	if err != nil {
		return err
	}
	if before.Current > before.Latest {
		return fmt.Errorf("set %s is at version %d, this program knows %d: %w: use that one", set, before.Current,
			before.Latest, ErrNewer)
	}
	if set == "core" {
		for _, other := range Sets[1:] {
			standing, err := status(ctx, conn, other)
			if err != nil {
				return err
			}
			if standing.Current > 0 {
				return fmt.Errorf("%w: set %s stands on it: run `outbox migrate down --set %s --all` first",
					migration.ErrCoreNeeded, other, other)
			}
		}
	}
	list := embedded.List(set)
	for i, file := range slices.Backward(list) {
		if steps <= 0 {
			break
		}
		if file.Version > before.Current {
			continue
		}
		var left uint
		if i > 0 {
			left = list[i-1].Version
		}
		if err := run(ctx, conn, set, file.Name+".down.sql", left); err != nil {
			return fmt.Errorf("take %s/%s away: %w", set, file.Name, err)
		}
		steps--
	}
	return nil
}

// run runs a file of a set and records the version that the set then has, as golang-migrate would:
// no row is none.
func run(ctx context.Context, conn *sql.Conn, set, file string, version uint) error {
	text, err := fs.ReadFile(files, set+"/"+file)
	if err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, string(text)); err != nil {
		return err
	}
	table := migration.VersionTable(set)
	recording := "CREATE TABLE IF NOT EXISTS " + table + " (version INTEGER NOT NULL, dirty INTEGER " +
		"NOT NULL) STRICT; DELETE FROM " + table
	if version > 0 {
		recording += fmt.Sprintf("; INSERT INTO %s (version, dirty) VALUES (%d, 0)", table, version)
	}
	if _, err := conn.ExecContext(ctx, recording); err != nil {
		return fmt.Errorf("record the version: %w", err)
	}
	return nil
}

// inTx runs change in a transaction that has the file's write lock from its beginning.
func inTx(ctx context.Context, db *sql.DB, change func(*sql.Conn) error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("open connection: %w", err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return fmt.Errorf("wait for the write lock: %w", err)
	}
	after := context.WithoutCancel(ctx)
	if err := change(conn); err != nil {
		if _, undo := conn.ExecContext(after, "ROLLBACK"); undo != nil {
			err = errors.Join(err, fmt.Errorf("roll back: %w", undo))
		}
		return err
	}
	if _, err := conn.ExecContext(after, "COMMIT"); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// Status reads the state of the default sets, and of the others that are applied or named, in their
// order. It changes nothing.
func Status(ctx context.Context, db *sql.DB, named ...string) ([]migration.SetStatus, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("read migration status: %w", err)
	}
	defer func() { _ = conn.Close() }()
	all, err := statuses(ctx, conn)
	if err != nil {
		return nil, fmt.Errorf("read migration status: %w", err)
	}
	return migration.Unasked(all, named), nil
}

func statuses(ctx context.Context, conn *sql.Conn) (all []migration.SetStatus, err error) {
	for _, set := range Sets {
		s, err := status(ctx, conn, set)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

func status(ctx context.Context, conn *sql.Conn, set string) (s migration.SetStatus, err error) {
	table := migration.VersionTable(set)
	var known, dirty bool
	var version int64
	err = conn.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?",
		table).Scan(&known)
	if err == nil && known {
		err = conn.QueryRowContext(ctx, "SELECT version, dirty FROM "+table).Scan(&version, &dirty)
	}
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return s, fmt.Errorf("read version table %s: %w", table, err)
	}
	return embedded.Status(set, uint(max(version, 0)), dirty), nil
}
