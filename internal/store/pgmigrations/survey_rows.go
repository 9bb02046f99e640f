package pgmigrations

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

const undefinedColumn = "42703"

// samples are rows such as Outbox writes or makes of others, in the columns on which a table of
// before may have checks.
var samples = map[string][]string{
	"outbox_events": {`{"status": "SENT"}`, `{"status": "FAILED"}`, `{"status": "DEAD"}`},
	"event_outbox":  {`{"status": "published"}`, `{"status": "failed"}`},
	"job_dlq": {
		`{"source": "event", "error_reason": "DeliveryFailed", "attempts": 1, "error_history": []}`,
		`{"source": "event", "error_reason": "DeserializationFailed", "attempts": 1, "error_history": []}`,
		`{"source": "event", "error_reason": "HandlerMissing", "attempts": 1, "error_history": []}`,
	},
	"crawl_runs":   {`{"status": "RUNNING"}`, `{"status": "CANCELLED"}`},
	"crawl_events": {`{"event_type": "SCREENSHOT_CAPTURED"}`},
	"crawl_outbox": {`{"event_type": "SCREENSHOT_CAPTURED"}`},
}

// checkNames looks whether what is to be made has a name that something else in the schema has.
func (a *adoption) checkNames(ctx context.Context, w *work) error {
	var names []string
	for _, i := range w.whole.Indexes {
		if w.have.index(i.Name) == nil {
			names = append(names, i.Name)
		}
	}
	taken, err := texts(ctx, a.conn, "taken", a.schema, names)
	for _, name := range taken {
		a.problem("the name %s, which an index of %s needs, is taken by something else in schema %s: rename that", name,
			w.now, a.schema)
	}
	return err
}

// checkRows counts rows that break what would be added, and looks for checks that would refuse
// Outbox's own.
func (a *adoption) checkRows(ctx context.Context, w *work) error {
	table := quote(w.now)
	for _, k := range w.constraints {
		var condition string
		switch k.Kind {
		case "c":
			condition = fmt.Sprintf("NOT (%s)", k.Expression)
		case "f":
			if condition = a.orphaned(ctx, w, k); condition == "" {
				continue
			}
		default:
			continue
		}
		if err := a.count(ctx, fmt.Sprintf("SELECT count(*) FROM %s t WHERE %s", table, condition),
			"%d rows of %s break the constraint %s (%s) that up adds: correct them first. They are: "+
				"SELECT * FROM %s t WHERE %s",
			w.now, k.Name, k.Definition, table, condition); err != nil {
			return err
		}
	}
	for _, i := range w.builds {
		if !i.Unique {
			continue
		}
		where := ""
		if i.Predicate != "" {
			where = " WHERE " + i.Predicate
		}
		keys := strings.Join(i.Keys, ", ")
		twice := fmt.Sprintf("SELECT %s FROM %s%s GROUP BY %s HAVING count(*) > 1", keys, table, where, keys)
		if err := a.count(ctx, fmt.Sprintf("SELECT count(*) FROM (%s) twice", twice),
			"%d values are in %s more than once, and index %s makes (%s) unique: correct them first. They are: %s",
			w.now, i.Name, keys, twice); err != nil {
			return err
		}
	}
	for _, k := range w.have.Constraints {
		if k.Kind == "c" {
			if err := a.checkCheck(ctx, w, k); err != nil {
				return err
			}
		}
	}
	return a.checkSizes(ctx, w)
}

// orphaned says which rows a foreign key would refuse. Where the table that it points at is still
// to be made, all that point anywhere.
func (a *adoption) orphaned(ctx context.Context, w *work, k constraint) string {
	if slices.ContainsFunc(k.Columns, func(name string) bool { return w.have.column(name) == nil }) {
		return ""
	}
	target := k.Target
	if r := a.renamed(target); r != nil {
		target = r.from
	}
	column := k.Columns[0]
	if exists, err := readShapes(ctx, a.conn, a.schema, []string{target}); err != nil || exists[target] == nil {
		return fmt.Sprintf("t.%s IS NOT NULL", column)
	}
	return fmt.Sprintf("t.%s IS NOT NULL AND NOT EXISTS (SELECT FROM %s p WHERE p.%s = t.%s)", column, quote(target),
		k.Targets[0], column)
}

// count adds a problem if the query counts any. One of columns that are still to come finds
// nothing.
func (a *adoption) count(ctx context.Context, query, format string, args ...any) error {
	var n int64
	err := a.conn.QueryRow(ctx, query).Scan(&n)
	var server *pgconn.PgError
	switch {
	case errors.As(err, &server) && server.Code == undefinedColumn:
		return nil
	case err != nil:
		return err
	case n > 0:
		a.problem(format, append([]any{n}, args...)...)
	}
	return nil
}

// checkCheck asks a check of before about rows such as Outbox's.
func (a *adoption) checkCheck(ctx context.Context, w *work, k constraint) error {
	for _, sample := range samples[w.table] {
		var refused bool
		err := a.conn.QueryRow(ctx, fmt.Sprintf("SELECT (%s) IS FALSE FROM "+
			"jsonb_populate_record(NULL::%s, $1::jsonb) %s",
			k.Expression, quote(w.now), quote(w.now)), sample).Scan(&refused)
		var server *pgconn.PgError
		switch {
		case errors.As(err, &server):
			continue // a value that does not fit is checkSizes' business
		case err != nil:
			return err
		case refused && ofJobs(w, k):
			w.replaced = append(w.replaced, k)
			a.note("the check %s of %s, which lists the reasons of jobs, is replaced by "+
				"job_dlq_error_reason_check, which has "+
				"them and those of events", k.Name, w.now)
			return nil
		case refused:
			a.problem("the check %s of %s (%s) refuses what Outbox writes there (%s): drop it; up "+
				"adds its own where it has one",
				k.Name, w.now, k.Definition, sample)
			return nil
		}
	}
	return nil
}

var (
	listedReasons = regexp.MustCompile(`^\(+error_reason\)?(?:::text)? = ANY \(+ARRAY\[([^\]]*)\]`)
	quotedReason  = regexp.MustCompile(`'([^']*)'`)
	jobReasons    = []string{"MaxRetries", "Validation", "HandlerMissing", "RunnerUnavailable", "Timeout", "Panic"}
)

// ofJobs tells whether a check of job_dlq is that of before 05-01 (docs/seeds.md#05-01): a list of
// reasons, each of which the check that takes its place takes too.
func ofJobs(w *work, k constraint) bool {
	listed := listedReasons.FindStringSubmatch(k.Expression)
	if w.table != "job_dlq" || listed == nil {
		return false
	}
	for _, reason := range quotedReason.FindAllStringSubmatch(listed[1], -1) {
		if !slices.Contains(jobReasons, reason[1]) {
			return false
		}
	}
	return true
}

// checkSizes looks whether the table's columns hold what Outbox writes.
func (a *adoption) checkSizes(ctx context.Context, w *work) error {
	for _, sample := range samples[w.table] {
		ask := fmt.Sprintf("SELECT jsonb_populate_record(NULL::%s, $1::jsonb)", quote(w.now))
		_, err := a.conn.Exec(ctx, ask, sample)
		var server *pgconn.PgError
		if errors.As(err, &server) {
			a.problem("%s cannot hold what Outbox writes there (%s): %s", w.now, sample, server.Message)
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkWriters finds the roles that insert today and could not any more, because the triggers read
// the run, and lock it.
func (a *adoption) checkWriters(ctx context.Context, w *work) error {
	if w.table != "crawl_events" && w.table != "crawl_outbox" {
		return nil
	}
	runs := "crawl_runs"
	if r := a.renamed(runs); r != nil {
		runs = r.from
	}
	var role, grants string
	asked := []any{a.schema, w.now, runs, w.table == "crawl_events"}
	err := each(ctx, a.conn, "writers", asked, []any{&role, &grants}, func() error {
		a.problem("role %s inserts into %s, for which a trigger will read the row's run with the "+
			"role's own rights: %s", role,
			w.now, grants)
		return nil
	})
	if err != nil || w.table != "crawl_events" {
		return err
	}
	var late int64
	run := "crawl_id"
	if w.now != w.table {
		run = "run_id"
	}
	if err := a.conn.QueryRow(ctx,
		statement("late", struct{ Table, Run string }{quote(w.now), run})).Scan(&late); err != nil {
		return err
	}
	if late > 0 {
		a.note("%d rows of %s come after the terminal event of their run. They stay, but from now on such an INSERT "+
			"is refused "+
			"(a run's RUN_COMPLETED, RUN_FAILED or RUN_CANCELLED is its last event)", late, w.now)
	}
	return nil
}

// mentionLegacy points at the table of before ADR-004, which an SQL file upgrades.
func (a *adoption) mentionLegacy(ctx context.Context) error {
	found, err := readShapes(ctx, a.conn, a.schema, []string{"outbox"})
	if err != nil {
		return err
	}
	if s := found["outbox"]; s != nil && s.Kind == "r" && s.column("type") != nil && s.column("payload") != nil &&
		s.column("position") == nil {
		a.note("the table outbox looks like that of before ADR-004; up leaves it alone. To deliver its events: " +
			"deploy/postgres/upgrade-outbox.sql (docs/operations/upgrades.md)")
	}
	return nil
}
