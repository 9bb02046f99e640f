package pgmigrations

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/internal/store/migration"
)

var (
	//go:embed sql/traces.sql
	tracesSQL string
	//go:embed sql/tools.sql
	toolsSQL string
)

// ErrOwned is returned by Up and Down, which have changed nothing, where another tool has applied the files and has to
// go on with them.
var ErrOwned = errors.New("another tool migrates these tables")

// byHand says that the files were run by no tool that is known.
const byHand = "hand"

// trace is what a step leaves in the catalog, and no step before it: a column of a table or of an index, any column,
// or a storage parameter or trigger of a table.
type trace struct {
	set              string
	version          uint
	relation, column string
	// That the step makes, where an application may have had one of that name, which lacks the trace.
	table string
	// If not empty, column is a constraint, and the trace is that its definition does not have this any more.
	former string
}

// traces are in the order of the steps.
var traces = []trace{
	{"core", 1, "apps_namespace_key", "", "apps", ""},
	{"core", 2, "outbox_events", "position", "outbox_events", ""},
	{"core", 3, "job_dlq", "generation", "job_dlq", ""},
	{"core", 4, "outbox_lanes", "", "", ""},
	{"core", 5, "outbox_audit", "", "", ""},
	{"core", 6, "outbox_relays", "", "", ""},
	{"core", 7, "outbox_events_tenants", "", "", ""},
	{"core", 8, "outbox_archive", "", "", ""},
	{"core", 9, "outbox_tokens", "", "", ""},
	{"core", 10, "outbox_archive_pkey", "archived_at", "", ""},
	{"core", 11, "outbox_pauses", "", "", ""},
	{"core", 12, "outbox_pauses", "destination", "", ""},
	{"core", 13, "outbox_deliveries", "", "", ""},
	{"core", 14, "outbox_endpoints", "", "", ""},
	{"core", 15, "outbox_events", "outbox_events_status_check", "", "ARRAY["},
	{"core", 16, "outbox_relays", "autovacuum_analyze_threshold", "", ""},
	{"core", 17, "outbox_relays", "health", "", ""},
	{"core", 18, "outbox_audit", "db_user", "", ""},
	{"core", 19, "outbox_endpoints", "topics", "", ""},
	{"core", 20, "outbox_events", "outbox_events_refuse", "", ""},
	{"core", 21, "outbox_inbox_turn", "", "", ""},
	{"events", 1, "event_outbox", "position", "event_outbox", ""},
	{"events", 2, "event_outbox_tenants", "", "", ""},
	{"events", 3, "event_outbox", "event_outbox_refuse", "", ""},
	{"crawl", 1, "crawl_events", "seq", "crawl_events", ""},
	{"crawl", 2, "crawl_outbox", "event_id", "crawl_outbox", ""},
	{"crawl", 3, "crawl_runs", "tenant_id", "", ""},
	{"crawl", 4, "crawl_runs_held", "", "", ""},
	{"crawl", 5, "crawl_events_written", "", "", ""},
	{"log", 1, "outbox_log_positions", "", "", ""},
	{"log", 2, "outbox_log_era", "", "", ""},
	{"log", 3, "outbox_log", "outbox_log_refuse", "", ""},
}

// droppable are the indexes that an operator may drop (core/007 says so): without one, later steps tell.
var droppable = []string{"outbox_events_tenants", "event_outbox_tenants"}

// observed are the versions that the traces tell of, for sets whose files were applied by something else than Up.
func observed(ctx context.Context, conn *pgx.Conn) (map[string]uint, error) {
	var sets, relations, columns, former []string
	var versions []int32
	for _, t := range traces {
		sets, versions = append(sets, t.set), append(versions, int32(t.version))
		relations, columns, former = append(relations, t.relation), append(columns, t.column), append(former, t.former)
	}
	rows, err := conn.Query(ctx, tracesSQL, sets, versions, relations, columns, former)
	if err != nil {
		return nil, fmt.Errorf("look for what is applied: %w", err)
	}
	found := map[trace]bool{}
	var set string
	var version int32
	if _, err := pgx.ForEachRow(rows, []any{&set, &version}, func() error {
		found[trace{set: set, version: uint(version)}] = true
		return nil
	}); err != nil {
		return nil, fmt.Errorf("look for what is applied: %w", err)
	}
	newest, ended := map[string]uint{}, map[string]bool{}
	for _, t := range traces {
		switch there := found[trace{set: t.set, version: t.version}]; {
		case there && !ended[t.set]:
			newest[t.set] = t.version
		case !there && !slices.Contains(droppable, t.relation):
			ended[t.set] = true
		}
	}
	return newest, nil
}

// observe is the status of all sets, those included that Up has not recorded.
func observe(ctx context.Context, conn *pgx.Conn) (all []migration.SetStatus, err error) {
	var tool string
	var versions map[string]uint
	for _, set := range every {
		s, recorded, err := recordedStatus(ctx, conn, set)
		if err != nil {
			return nil, err
		}
		if !recorded && versions == nil {
			if versions, err = observed(ctx, conn); err != nil {
				return nil, err
			}
			if tool, err = toolOf(ctx, conn); err != nil {
				return nil, err
			}
		}
		if !recorded && versions[set] > 0 {
			s = embedded.Status(set, versions[set], false)
			s.By = tool
		}
		all = append(all, s)
	}
	return all, nil
}

// toolOf names the migration tools that keep their record in the database.
func toolOf(ctx context.Context, conn *pgx.Conn) (string, error) {
	rows, err := conn.Query(ctx, toolsSQL)
	if err != nil {
		return "", fmt.Errorf("look for other migration tools: %w", err)
	}
	tools, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return "", fmt.Errorf("look for other migration tools: %w", err)
	}
	if len(tools) == 0 {
		return byHand, nil
	}
	return strings.Join(tools, " or "), nil
}

func owned(s migration.SetStatus) bool { return s.By != "" && s.By != byHand }

// leave returns the sets that are Up's to migrate, of those that were named. Where none was, they are the default ones,
// and what the database has of the others, be it tables to adopt. What another tool has applied is left to it:
// completely applied it is nothing to do, and else refused.
func leave(ctx context.Context, conn *pgx.Conn, named []string) (sets []string, notes []string, err error) {
	sets, err = migration.Order(named)
	if err != nil {
		return nil, nil, err
	}
	all, err := observe(ctx, conn)
	if err != nil {
		return nil, nil, err
	}
	if len(named) == 0 {
		if sets, err = had(ctx, conn, all); err != nil {
			return nil, nil, err
		}
	}
	var mine []string
	for _, s := range all {
		core := all[0] // what the others stand on
		switch {
		case !slices.Contains(sets, s.Set):
		case owned(s) && len(s.Pending) > 0:
			return nil, nil,
				fmt.Errorf("%w: %s was applied by %s up to version %d and lacks %s: add what is new to its folder with "+
					"`outbox migrate export` and apply it with %s; or, to have outbox migrate up do it from now on, run it with "+
					"--take-over",
					ErrOwned, s.Set, s.By, s.Current, strings.Join(s.Pending, ", "), s.By)
		case owned(s):
			notes = append(notes, fmt.Sprintf("%s is up to date: %s has applied it", s.Set, s.By))
		case owned(core) && s.Current == 0 && !s.Dirty && len(named) > 0:
			return nil, nil, fmt.Errorf("%w: %s stands on core, which %s has applied: add it to that folder with "+
				"`outbox migrate export --set core,%s` and apply it with %s", ErrOwned, s.Set, core.By, s.Set, core.By)
		case owned(core) && s.Current == 0 && !s.Dirty:
		default:
			mine = append(mine, s.Set)
		}
	}
	return mine, notes, nil
}

// had returns the default sets, and those of the others that a database has.
func had(ctx context.Context, conn *pgx.Conn, all []migration.SetStatus) (sets []string, err error) {
	for _, s := range migration.Unasked(slices.Clone(all), nil) {
		sets = append(sets, s.Set)
	}
	for _, set := range migration.Sets {
		if slices.Contains(sets, set) {
			continue
		}
		there, err := survey(ctx, conn, []string{set})
		if err != nil {
			return nil, err
		}
		if len(there.plan.Tables) > 0 || len(there.plan.Problems) > 0 {
			sets = append(sets, set)
		}
	}
	return sets, nil
}

// TakeOver records what another tool, or somebody by hand, has applied, as if Up had: from then on Up and Down migrate
// the tables, and Down drops them too. It runs none of the files. The other tool must not run them any more. Where
// there is nothing to record it does nothing.
func TakeOver(ctx context.Context, databaseURL string) error {
	err := locked(ctx, databaseURL, func(by session) error {
		all, err := observe(ctx, by.Conn)
		if err != nil {
			return err
		}
		return pgx.BeginFunc(ctx, by.Conn, func(tx pgx.Tx) error {
			for _, s := range all {
				if s.By == "" {
					continue
				}
				table := migration.VersionTable(s.Set)
				if _, err := tx.Exec(ctx, strings.ReplaceAll(versionTableSQL, "{table}", table)); err != nil {
					return err
				}
				if _, err := tx.Exec(ctx, strings.ReplaceAll(versionRecordSQL, "{table}", table), int64(s.Current),
					false); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		return fmt.Errorf("take migrations over: %w", err)
	}
	return nil
}
