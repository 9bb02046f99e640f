package pgmigrations

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	driver "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outboxrelay/outbox/internal/store/migration"
)

// All, as the number of steps, makes Down take a whole set away, its tables and all their rows.
const All = math.MaxInt

// ErrCoreMissing is returned by Up for a set that stands on core where core is not applied.
var ErrCoreMissing = errors.New("core is not up to date")

// ErrCoreNeeded is returned by Down for core while a set that stands on it is applied.
var ErrCoreNeeded = errors.New("core is still needed")

// lockTimeout bounds golang-migrate's own lock. Callers of this package never meet on it (see locked); its 15
// seconds would be short against another golang-migrate that builds an index on a large table.
const lockTimeout = 10 * time.Minute

// Up brings the sets (none: migration.Default, and what the database has) to the newest embedded version, core first.
// It is safe to call from many processes at once, and where there is nothing to do.
//
// A mark "dirty", left by a process that died between running a file and recording it, is cleared. Files are atomic and
// may run twice, so the version is forced back by one and the file runs again.
//
// What another migration tool has applied (Export) is left to it: there is nothing to do, or ErrOwned where it lacks
// something. TakeOver ends that.
//
// When ctx ends, Up finishes the file under way and stops before the next.
func Up(ctx context.Context, databaseURL string, sets ...string) error {
	return UpIn(ctx, databaseURL, "", sets...)
}

// UpIn is Up for an application that writes times without a zone in this one. "" leaves it to Up to find that out, and
// to refuse where it cannot.
func UpIn(ctx context.Context, databaseURL, zone string, sets ...string) error {
	if _, err := migration.Order(sets); err != nil {
		return fmt.Errorf("migrate up: %w", err)
	}
	err := locked(ctx, databaseURL, func(by session) error {
		sets, _, err := leave(ctx, by.Conn, sets)
		if err != nil {
			return err
		}
		existing, err := survey(ctx, by.Conn, sets)
		if err != nil {
			return fmt.Errorf("look for existing tables: %w", err)
		}
		if err := existing.findZone(ctx, zone); err != nil {
			return err
		}
		if err := existing.refuse(); err != nil {
			return err
		}
		for _, set := range sets {
			if err := up(ctx, by, set, existing); err != nil {
				return err
			}
			if err := existing.recordZone(ctx); err != nil { // core is there, and first
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

func up(ctx context.Context, by session, set string, existing *adoption) error {
	if set != "core" {
		core, err := status(ctx, by.Conn, "core")
		if err != nil {
			return err
		}
		if len(core.Pending) > 0 || core.Dirty {
			return fmt.Errorf("set %s needs core at version %d, the database has %d: run `outbox migrate up --set core,%s`: %w",
				set, core.Latest, core.Current, set, ErrCoreMissing)
		}
	}
	return withMigrate(ctx, by, set, func(m *migrate.Migrate) error {
		before, err := status(ctx, by.Conn, set)
		if err != nil {
			return err
		}
		if before.Dirty {
			if err := repair(m, before); err != nil {
				return err
			}
			if before, err = status(ctx, by.Conn, set); err != nil {
				return err
			}
		}
		for _, file := range embedded.List(set)[len(embedded.List(set))-len(before.Pending):] {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("stop before %s/%s: %w", set, file.Name, err)
			}
			if err := existing.before(ctx, set, file.Version); err != nil {
				return err
			}
			if err := m.Steps(1); err != nil {
				return errors.Join(fmt.Errorf("apply %s/%s: %w", set, file.Name, cause(err)), unmark(m, err, int(file.Version)-1))
			}
		}
		return nil
	})
}

// unmark takes the mark "dirty" away after a file that the server refused, or that did not get its locks: such a file
// did nothing, because it is one transaction.
func unmark(m *migrate.Migrate, failure error, version int) error {
	var server *pgconn.PgError
	if !errors.As(cause(failure), &server) && !errors.Is(cause(failure), errNotRun) {
		return nil
	}
	if version == 0 {
		version = -1 // golang-migrate's "no version"
	}
	if err := m.Force(version); err != nil {
		return fmt.Errorf("clear the dirty mark: %w", cause(err))
	}
	return nil
}

// repair clears a dirty mark by forcing the version before the marked one, so that the marked one runs again.
// The mark of an interrupted Down stands one below the file that was being taken away; going up again from there
// restores that one too.
func repair(m *migrate.Migrate, s migration.SetStatus) error {
	previous := -1 // golang-migrate's "no version"
	known := s.Current == 0
	for _, candidate := range embedded.List(s.Set) {
		if candidate.Version == s.Current {
			known = true
			break
		}
		previous = int(candidate.Version)
	}
	if !known {
		return fmt.Errorf("set %s is marked dirty at version %d, which this build (up to %d) does not have: migrate with "+
			"the newer build",
			s.Set, s.Current, s.Latest)
	}
	if s.Current == 0 {
		previous = -1
	}
	if err := m.Force(previous); err != nil {
		return fmt.Errorf("clear the dirty mark of set %s: %w", s.Set, cause(err))
	}
	return nil
}

// Down takes the newest steps applied migrations of one set away, with the data in their tables; All takes the
// set away. More steps than are applied is the same as All. Core cannot go below a set that stands on it.
//
// When ctx ends, Down finishes the file under way and stops before the next.
func Down(ctx context.Context, databaseURL string, steps int, set string) error {
	if _, err := migration.Order([]string{set}); err != nil {
		return fmt.Errorf("migrate down: %w", err)
	}
	if steps <= 0 {
		return fmt.Errorf("migrate down: steps is %d, want 1 or more (to drop the whole set, say so: All)", steps)
	}
	err := locked(ctx, databaseURL, func(by session) error { return down(ctx, by, steps, set) })
	if err != nil {
		return fmt.Errorf("migrate down: %w", err)
	}
	return nil
}

func down(ctx context.Context, by session, steps int, set string) error {
	before, err := status(ctx, by.Conn, set)
	if err != nil {
		return err
	}
	all, err := observe(ctx, by.Conn)
	if err != nil {
		return err
	}
	if now := all[slices.Index(every, set)]; owned(now) {
		return fmt.Errorf("%w: %s was applied by %s: take it away with that; or, to have outbox migrate do it, "+
			"run `outbox migrate up --take-over` first", ErrOwned, set, now.By)
	}
	if err := refuseDown(ctx, by, before, set); err != nil {
		return err
	}
	undone, err := giveBack(ctx, by.Conn, set, before.Current)
	if err != nil {
		return err
	}
	if steps -= len(undone); steps <= 0 { // a step that was half done is the newest
		return nil
	}
	if err := keepTenants(ctx, by.Conn, set, before.Current, steps); err != nil {
		return err
	}
	if err := keepArchive(ctx, by.Conn, set, before.Current, steps); err != nil {
		return err
	}
	if err := takeAway(ctx, by, set, steps, before.Current); err != nil {
		return err
	}
	return forget(ctx, by.Conn, set)
}

// takeAway undoes the newest steps of a set that is at a version.
func takeAway(ctx context.Context, by session, set string, steps int, current uint) error {
	applied := embedded.List(set)
	for len(applied) > 0 && applied[len(applied)-1].Version > current {
		applied = applied[:len(applied)-1]
	}
	return withMigrate(ctx, by, set, func(m *migrate.Migrate) error {
		for i := len(applied) - 1; i >= 0 && steps > 0; i, steps = i-1, steps-1 {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("stop before taking %s/%s away: %w", set, applied[i].Name, err)
			}
			if err := m.Steps(-1); err != nil {
				return errors.Join(fmt.Errorf("take %s/%s away: %w", set, applied[i].Name, cause(err)),
					unmark(m, err, int(applied[i].Version)))
			}
		}
		return nil
	})
}

// refuseDown says why a set cannot be taken away.
func refuseDown(ctx context.Context, by session, before migration.SetStatus, set string) error {
	switch {
	case before.Dirty:
		return fmt.Errorf("set %s is marked dirty at version %d: run `outbox migrate up --set %s` first, it repairs the mark",
			set, before.Current, set)
	case before.Current > before.Latest:
		return fmt.Errorf("set %s is at version %d, which this build (up to %d) does not have: migrate with the newer build",
			set, before.Current, before.Latest)
	}
	if set == "core" {
		for _, other := range every[1:] {
			standing, err := status(ctx, by.Conn, other)
			if err != nil {
				return err
			}
			if standing.Current > 0 || standing.Dirty {
				return fmt.Errorf("%w: set %s stands on it: run `outbox migrate down --set %s --all` first", ErrCoreNeeded, other,
					other)
			}
		}
	}
	return nil
}

// forget drops the version table of a set of which nothing is left.
func forget(ctx context.Context, conn *pgx.Conn, set string) error {
	now, err := status(ctx, conn, set)
	if err != nil || now.Current > 0 || now.Dirty {
		return err
	}
	if _, err := conn.Exec(ctx, strings.ReplaceAll(versionDropSQL, "{table}", migration.VersionTable(set))); err != nil {
		return fmt.Errorf("drop the version table of set %s: %w", set, err)
	}
	return nil
}

// tenantsVersion is that of crawl/003_run_api, which brings the tenants of runs.
const tenantsVersion = 3

// keepTenants refuses to take the column away that says whose runs are whose, unless all of the set goes.
func keepTenants(ctx context.Context, conn *pgx.Conn, set string, current uint, steps int) error {
	if set != "crawl" || current < tenantsVersion || steps >= int(current) || int(current)-steps >= tenantsVersion {
		return nil
	}
	var others int64
	if err := conn.QueryRow(ctx, templated("other_tenants", nil)).Scan(&others); err != nil {
		return fmt.Errorf("count runs of tenants: %w", err)
	}
	if others > 0 {
		return fmt.Errorf("%d runs belong to other tenants than default, and would become default's when crawl/003_run_api "+
			"is taken away: "+
			"delete them (SELECT * FROM crawl_runs WHERE tenant_id <> 'default'), or take the whole set away with --all", others)
	}
	return nil
}

// archiveVersion is that of core/008_retention, which brings outbox_archive.
const archiveVersion = 8

// keepArchive refuses to take the archive away while it has rows of tables that stay, before anything else goes. The
// down file begins with that check, for other tools.
func keepArchive(ctx context.Context, conn *pgx.Conn, set string, current uint, steps int) error {
	if set != "core" || current < archiveVersion || steps < int(current) && int(current)-steps >= archiveVersion {
		return nil
	}
	text, err := fs.ReadFile(files, "core/008_retention.down.sql")
	if err != nil {
		return fmt.Errorf("read core/008_retention: %w", err)
	}
	check, _, _ := strings.Cut(string(text), "DROP TABLE")
	if _, err := conn.Exec(ctx, check, pgx.QueryExecModeSimpleProtocol); err != nil {
		return fmt.Errorf("look into the archive: %w", cause(err))
	}
	return nil
}

// withMigrate runs change with golang-migrate on one set and closes what that opened. golang-migrate takes no
// context; steps are therefore counted out to it one by one.
func withMigrate(ctx context.Context, by session, set string, change func(*migrate.Migrate) error) (err error) {
	src, err := iofs.New(files, set)
	if err != nil {
		return fmt.Errorf("read set %s: %w", set, err)
	}
	open := openDriver
	if by.pooled {
		open = openPooled
	}
	dst, err := open(context.WithoutCancel(ctx), by, migration.VersionTable(set))
	if err != nil {
		return errors.Join(fmt.Errorf("open version table %s: %w", migration.VersionTable(set), cause(err)), src.Close())
	}
	m, err := migrate.NewWithInstance("iofs", src, "pgx5", patientDriver{dst, ctx})
	if err != nil {
		return errors.Join(fmt.Errorf("open set %s: %w", set, err), dst.Close(), src.Close())
	}
	m.LockTimeout = lockTimeout
	defer func() {
		srcErr, dbErr := m.Close()
		err = errors.Join(err, srcErr, dbErr)
	}()
	return change(m)
}

// openDriver opens golang-migrate's own driver.
func openDriver(_ context.Context, by session, table string) (database.Driver, error) {
	config, err := parse(by.url)
	if err != nil {
		return nil, err
	}
	db := stdlib.OpenDB(*config)
	dst, err := driver.WithInstance(db, &driver.Config{MigrationsTable: table})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return dst, nil
}
