package pgmigrations

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxrelay/outbox/internal/store/migration"
)

// All, as the number of steps, makes Down take a whole set away, its tables and all their rows.
const All = math.MaxInt

// Up brings the sets (none: migration.Default, and what the database has) to the newest embedded
// version, core first. It is safe to call from many processes at once, and where there is nothing
// to do.
//
// A mark "dirty", which golang-migrate's own command leaves when it dies, is cleared: files are
// atomic and may run twice, so the marked one runs again.
//
// What another migration tool has applied (Export) is left to it: there is nothing to do, or
// ErrOwned where it lacks something.
//
// When ctx ends, Up finishes the file under way and stops before the next.
func Up(ctx context.Context, databaseURL string, sets ...string) error {
	return UpIn(ctx, databaseURL, "", sets...)
}

// UpIn is Up for an application that writes times without a zone in this one. "" leaves it to Up to
// find that out, and to refuse where it cannot.
func UpIn(ctx context.Context, databaseURL, zone string, sets ...string) error {
	if _, err := migration.Order(sets); err != nil {
		return fmt.Errorf("migrate up: %w", err)
	}
	err := locked(ctx, databaseURL, func(conn *pgx.Conn) error {
		existing, sets, _, err := plan(ctx, conn, zone, sets)
		if err != nil {
			return err
		}
		if err := existing.refuse(); err != nil {
			return err
		}
		for _, set := range sets {
			if err := up(ctx, conn, set, existing); err != nil {
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

func up(ctx context.Context, conn *pgx.Conn, set string, existing *adoption) error {
	if set != "core" {
		core, err := status(ctx, conn, "core")
		if err != nil {
			return err
		}
		if len(core.Pending) > 0 || core.Dirty {
			return fmt.Errorf("set %s needs core at version %d, the database has %d: "+
				"run `outbox migrate up --set core,%s`: %w", set, core.Latest, core.Current, set,
				migration.ErrCoreMissing)
		}
	}
	before, err := status(ctx, conn, set)
	if err != nil {
		return err
	}
	if before.Dirty && before.Current > before.Latest {
		return fmt.Errorf("set %s is marked dirty at version %d, which this build (up to %d) does not have: "+
			"migrate with the newer build", set, before.Current, before.Latest)
	}
	// Made before anything of the set is, by which another tool's hand would be taken to be in it.
	if _, err := conn.Exec(ctx, statement("version_table", migration.VersionTable(set))); err != nil {
		return fmt.Errorf("make the version table of set %s: %w", set, err)
	}
	for _, file := range embedded.List(set) {
		if file.Version <= applied(before) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("stop before %s/%s: %w", set, file.Name, err)
		}
		if err := existing.before(ctx, set, file.Version); err != nil {
			return err
		}
		if err := run(ctx, conn, set, file.Name+".up.sql", file.Version); err != nil {
			return fmt.Errorf("apply %s/%s: %w", set, file.Name, err)
		}
	}
	after, err := status(ctx, conn, set)
	if err != nil {
		return err
	}
	return embedded.CheckApplied(after, func(tables []string) (map[string][]string, error) {
		found, err := readShapes(ctx, conn, existing.schema, tables)
		exist := map[string][]string{}
		for table, s := range found {
			exist[table] = namesOf(s.Columns, func(c column) string { return c.Name })
		}
		return exist, err
	})
}

// run runs a file of a set and records the version that the set then has. Both are one simple
// query, and so one transaction; it ends even when ctx does. An application's writers hardly wait
// for it: see briefly. It has the taken tables to itself: see inTurn.
func run(ctx context.Context, conn *pgx.Conn, set, file string, version uint, taken ...string) error {
	return patiently(ctx, func() error {
		text := briefly + inTurn(taken) + content(set+"/"+file) + recording(set, version)
		_, err := conn.Exec(context.WithoutCancel(ctx), text, pgx.QueryExecModeSimpleProtocol)
		var server *pgconn.PgError
		if errors.As(err, &server) && server.Position > 0 {
			before := string([]rune(text)[:server.Position-1])
			return fmt.Errorf("line %d: %w", 1+strings.Count(before, "\n"), err)
		}
		return err
	})
}

// inTurn locks the tables that are there, and turns their order for the next try. An application
// that is never idle and writes to two of them takes their locks in an order of its own: who takes
// them in the other one never gets past.
func inTurn(tables []string) string {
	if len(tables) == 0 {
		return ""
	}
	locks := onOneLine(statement("in_turn", tables))
	slices.Reverse(tables)
	return locks
}

// recording is what records the version of a set; 0 is none.
func recording(set string, version uint) string {
	return statement("version_record", struct {
		Table   string
		Version int
	}{migration.VersionTable(set), int(version)})
}

// Down takes the newest steps applied migrations of one set away, with the data in their tables;
// All takes the set away. More steps than are applied is the same as All. Core cannot go below a
// set that stands on it.
//
// When ctx ends, Down finishes the file under way and stops before the next.
func Down(ctx context.Context, databaseURL string, steps int, set string) error {
	if _, err := migration.Order([]string{set}); err != nil {
		return fmt.Errorf("migrate down: %w", err)
	}
	if steps <= 0 {
		return fmt.Errorf("migrate down: steps is %d, want 1 or more (to drop the whole set, say so: All)", steps)
	}
	err := locked(ctx, databaseURL, func(conn *pgx.Conn) error { return down(ctx, conn, steps, set) })
	if err != nil {
		return fmt.Errorf("migrate down: %w", err)
	}
	return nil
}

func down(ctx context.Context, conn *pgx.Conn, steps int, set string) error {
	before, err := status(ctx, conn, set)
	if err != nil {
		return err
	}
	if err := refuseDown(ctx, conn, before); err != nil {
		return err
	}
	undone, err := giveBack(ctx, conn, set, before.Current)
	if err != nil {
		return err
	}
	steps -= len(undone) // a step that was half done is the newest
	list := embedded.List(set)
	for i, file := range slices.Backward(list) {
		if steps <= 0 {
			break
		}
		if file.Version > before.Current {
			continue
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("stop before taking %s/%s away: %w", set, file.Name, err)
		}
		var left uint
		if i > 0 {
			left = list[i-1].Version
		}
		var tables []string
		for _, o := range origins([]string{set}) {
			if o.version == file.Version {
				tables = append(tables, o.table)
			}
		}
		if err := run(ctx, conn, set, file.Name+".down.sql", left, tables...); err != nil {
			return fmt.Errorf("take %s/%s away: %w", set, file.Name, err)
		}
		steps--
	}
	return forget(ctx, conn, set)
}

// refuseDown says why a set cannot be taken away.
func refuseDown(ctx context.Context, conn *pgx.Conn, before migration.SetStatus) error {
	all, err := observe(ctx, conn)
	if err != nil {
		return err
	}
	set := before.Set
	if now := all[slices.Index(every, set)]; owned(now) {
		return fmt.Errorf("%w: %s was applied by %s: take it away with that, or hand it over first: %s",
			ErrOwned, set, now.By, handOver)
	}
	switch {
	case before.Dirty:
		return fmt.Errorf("set %s is marked dirty at version %d: run `outbox migrate up --set %s` first, "+
			"it repairs the mark", set, before.Current, set)
	case before.Current > before.Latest:
		return fmt.Errorf("set %s is at version %d, which this build (up to %d) does not have: "+
			"migrate with the newer build",
			set, before.Current, before.Latest)
	case set != "core":
		return nil
	}
	for _, other := range every[1:] {
		standing, err := status(ctx, conn, other)
		if err != nil {
			return err
		}
		if standing.Current > 0 || standing.Dirty {
			return fmt.Errorf("%w: set %s stands on it: run `outbox migrate down --set %s --all` first",
				migration.ErrCoreNeeded, other, other)
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
	if _, err := conn.Exec(ctx, statement("version_drop", migration.VersionTable(set))); err != nil {
		return fmt.Errorf("drop the version table of set %s: %w", set, err)
	}
	return nil
}

// giveBack undoes adoptions that were begun and not finished: those of tables whose file has not
// been applied. The down files do it for the others.
func giveBack(ctx context.Context, conn *pgx.Conn, set string, current uint) (undone []string, err error) {
	a := &adoption{conn: conn, recorded: map[string]map[string]bool{}}
	if err := a.readRecord(ctx); err != nil || len(a.recorded) == 0 {
		return nil, err
	}
	for _, o := range slices.Backward(origins([]string{set})) {
		if len(a.recorded[o.table]) == 0 || o.version <= current {
			continue
		}
		if err := a.step(ctx, o.table, nil, statement("give_back", o.table)); err != nil {
			return undone, fmt.Errorf("give table %s back: %w", o.table, err)
		}
		undone = append(undone, o.table)
	}
	return undone, nil
}
