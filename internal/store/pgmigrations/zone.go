package pgmigrations

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

// written are the columns that an application, or the default now(), sets to the time of the
// statement. Their newest value tells in which zone: it lies behind now, and in a table that is in
// use not far.
var written = []string{"created_at", "updated_at", "started_at", "completed_at", "cancelled_at", "published_at",
	"processed_at", "replayed_at"}

// How old the newest row of an application that is running is taken to be at most, and how far
// clocks may differ.
const (
	fresh = 15 * time.Minute
	ahead = 2 * time.Minute
)

// zoneCandidate is a zone in which an application may write times without one.
type zoneCandidate struct {
	name, whose string
	database    bool // a session has it that says nothing
	fits        bool // a newest value is a fresh one in it
	refuted     bool // a newest value is still to come in it
}

// bareColumn is a column of times without a zone, and how long ago its newest was in each
// candidate's zone.
type bareColumn struct {
	table, column string
	ages          []*float64
}

// findZone decides in which zone the times without one are, unless that is recorded already. What
// it was told is taken, and said to be doubtful where a value contradicts it.
func (a *adoption) findZone(ctx context.Context, asked string) error {
	var recorded bool
	if err := a.conn.QueryRow(ctx, statement("zone_recorded", nil)).Scan(&recorded); err != nil {
		return fmt.Errorf("look for the zone of times without one: %w", err)
	}
	if asked != "" {
		err := a.conn.QueryRow(ctx, statement("zone_named", nil), asked).Scan(&a.zone)
		if errors.Is(err, pgx.ErrNoRows) {
			a.problem("the server knows no time zone %q: SELECT name FROM pg_timezone_names", asked)
			return nil
		}
		if err != nil {
			return fmt.Errorf("look for zone %s: %w", asked, err)
		}
	} else if recorded {
		return nil
	}
	columns, err := a.bareColumns(ctx)
	if err != nil || len(columns) == 0 {
		return err
	}
	candidates := []zoneCandidate{{name: a.zone}}
	if asked == "" {
		candidates = nil
		var z zoneCandidate
		err := each(ctx, a.conn, "zone_candidates", nil, []any{&z.name, &z.whose, &z.database}, func() error {
			candidates = append(candidates, z)
			return nil
		})
		if err != nil {
			return fmt.Errorf("read the zones of the database and its roles: %w", err)
		}
	}
	if err := a.compareZones(ctx, columns, candidates); err != nil {
		return err
	}
	a.decideZone(columns, candidates, asked != "")
	return nil
}

// bareColumns are those of the seeds' tables, under their own names and FR-005's.
func (a *adoption) bareColumns(ctx context.Context) (columns []*bareColumn, err error) {
	tables := append([]string{"outbox"}, adoptable...)
	for _, r := range a.renames {
		tables = append(tables, r.from)
	}
	var c bareColumn
	err = each(ctx, a.conn, "zone_columns", []any{a.schema, tables}, []any{&c.table, &c.column}, func() error {
		columns = append(columns, &bareColumn{table: c.table, column: c.column})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for times without a zone: %w", err)
	}
	return columns, nil
}

// compareZones reads the newest value of each column in each zone.
func (a *adoption) compareZones(ctx context.Context, columns []*bareColumn, candidates []zoneCandidate) error {
	var names []string
	for _, z := range candidates {
		names = append(names, z.name)
	}
	for _, c := range columns {
		if !slices.Contains(written, c.column) {
			continue
		}
		ask := statement("zone_ages", struct{ Table, Column string }{quote(c.table), quote(c.column)})
		if err := a.conn.QueryRow(ctx, ask, names).Scan(&c.ages); err != nil {
			return fmt.Errorf("read the newest %s of %s: %w", c.column, c.table, err)
		}
		for i, age := range c.ages {
			if age == nil {
				continue
			}
			candidates[i].saw(time.Duration(*age * float64(time.Second)))
		}
	}
	return nil
}

// saw records how long ago the newest value of a column was in the candidate's zone.
func (z *zoneCandidate) saw(ago time.Duration) {
	z.refuted = z.refuted || ago < -ahead
	z.fits = z.fits || ago >= -ahead && ago <= fresh
}

// decideZone takes a zone only if the newest values prove it: one is fresh in it, none is in the
// future, and in each other candidate's zone one is in the future. A value that is merely old
// proves nothing, because an application that has been idle for as long as its zone is away from
// another one looks the same. Zones that are no candidates are not considered.
func (a *adoption) decideZone(columns []*bareColumn, candidates []zoneCandidate, told bool) {
	var possible []zoneCandidate
	for _, z := range candidates {
		if !z.refuted {
			possible = append(possible, z)
		}
	}
	var names []string
	for _, c := range columns {
		names = append(names, c.table+"."+c.column)
	}
	where := strings.Join(names, ", ")
	switch {
	case told && len(possible) == 0:
		a.note("%s have no time zone and are taken to be in %s, as --zone says, although %s", where, a.zone,
			seen(columns, candidates))
	case told:
		a.note("%s have no time zone and are taken to be in %s, as --zone says", where, a.zone)
	case len(possible) == 1 && possible[0].fits:
		a.zone = possible[0].name
		a.note("%s have no time zone and are taken to be in %s, the only zone of the database and its roles that fits "+
			"their newest values; to set another one, run up with --zone", where, a.zone)
	case !a.adopts(columns) || len(seen(columns, candidates)) == 0:
		a.zone = databases(candidates)
		a.note("%s have no time zone and are taken to be in %s, the database's, as nothing tells; if "+
			"the application's "+
			"sessions are in another (SHOW timezone there), say it with --zone", where, a.zone)
	default:
		var ways []string
		for _, z := range candidates {
			ways = append(ways, fmt.Sprintf("--zone %s (%s)", z.name, z.whose))
		}
		a.problem("%s have no time zone, and it is not known in which one the application writes them; in a wrong one "+
			"retries and event times would be hours off. Run up with %s, or that of the "+
			"application's sessions (SHOW timezone "+
			"there). What can be seen: %s", where, strings.Join(ways, " or "), seen(columns, candidates))
	}
}

// adopts tells whether one of the columns is in a table that is adopted now: those of before were
// served in the database's zone, and go on so.
func (a *adoption) adopts(columns []*bareColumn) bool {
	return slices.ContainsFunc(a.works, func(w *work) bool {
		return slices.ContainsFunc(columns, func(c *bareColumn) bool { return c.table == w.now })
	})
}

// databases is the zone that a session has which says nothing.
func databases(candidates []zoneCandidate) string {
	for _, z := range candidates {
		if z.database {
			return z.name
		}
	}
	return ""
}

// seen says how the newest values look in the zones, or "" where there are none.
func seen(columns []*bareColumn, candidates []zoneCandidate) string {
	var all []string
	for _, c := range columns {
		for i, age := range c.ages {
			if age == nil {
				continue
			}
			ago := time.Duration(*age * float64(time.Second)).Round(time.Second)
			when := fmt.Sprintf("%s ago", ago)
			if ago < 0 {
				when = fmt.Sprintf("in %s", -ago)
			}
			all = append(all, fmt.Sprintf("the newest %s.%s in %s was %s", c.table, c.column, candidates[i].name, when))
		}
	}
	return strings.Join(all, "; ")
}

// recordZone writes down what was decided, as soon as there is core to write it to.
func (a *adoption) recordZone(ctx context.Context) error {
	if a.zone == "" {
		return nil
	}
	_, err := a.conn.Exec(ctx, statement("zone_record",
		struct{ Comment string }{sqltable.QuoteText("Times in columns without a zone are in " + a.zone)}))
	if err != nil {
		return fmt.Errorf("record the zone of times without one: %w", err)
	}
	return nil
}
