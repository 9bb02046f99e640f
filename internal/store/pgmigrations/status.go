package pgmigrations

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/internal/store/migration"
)

const undefinedTable = "42P01" // SQLSTATE

// Status reads the state of the default sets, and of the others that are applied or named, in their
// order. That is what Up has recorded, or, where it has recorded nothing, what is there in the
// catalog. It has who applied a set as far as that is known. It changes nothing and takes no lock.
func Status(ctx context.Context, databaseURL string, named ...string) ([]migration.SetStatus, error) {
	conn, _, err := connect(ctx, databaseURL)
	if err != nil {
		return nil, fmt.Errorf("read migration status: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()

	all, err := observe(ctx, conn)
	if err != nil {
		return nil, fmt.Errorf("read migration status: %w", err)
	}
	return migration.Unasked(all, named), nil
}

// status is what Up has recorded of a set.
func status(ctx context.Context, conn *pgx.Conn, set string) (migration.SetStatus, error) {
	s, _, err := recordedStatus(ctx, conn, set)
	return s, err
}

// recordedStatus tells whether there is a record too, be it one of nothing.
func recordedStatus(ctx context.Context, conn *pgx.Conn, set string) (s migration.SetStatus, recorded bool, err error) {
	var version int64
	var dirty bool
	recorded, err = exists(ctx, conn, migration.VersionTable(set))
	if err == nil && recorded {
		err = conn.QueryRow(ctx, statement("version", migration.VersionTable(set))).Scan(&version, &dirty)
	}
	if isCode(err, undefinedTable) { // a Down has dropped it in between
		recorded, err = false, nil
	}
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return s, false, fmt.Errorf("read version table %s: %w", migration.VersionTable(set), err)
	}
	// golang-migrate writes -1 for "none" while it takes the first one away.
	return embedded.Status(set, uint(max(version, 0)), dirty), recorded, nil
}

func exists(ctx context.Context, conn *pgx.Conn, table string) (there bool, err error) {
	err = conn.QueryRow(ctx, statement("exists", nil), table).Scan(&there)
	return there, err
}

// ErrOwned is returned by Up and Down, which have changed nothing, where another tool has applied
// the files and has to go on with them.
var ErrOwned = errors.New("another tool migrates these tables")

// handOver is where the way from another tool to Up is described.
const handOver = "docs/guide/adopting.md#with-your-own-migration-tool"

// byHand says that the files were run by no tool that is known.
const byHand = "hand"

// trace is what a step leaves in the catalog, and no step before it: a column of a table or of an
// index, or any column.
type trace struct {
	Set              string
	Version          uint
	Relation, Column string
	// That the step makes, where an application may have had one of that name, which lacks the
	// trace.
	Table string
}

// traces are in the order of the steps.
var traces = []trace{
	{"core", 1, "apps_namespace_key", "", "apps"},
	{"core", 2, "outbox_events", "position", "outbox_events"},
	{"core", 3, "job_dlq", "generation", "job_dlq"},
	{"core", 4, "outbox_lanes", "", ""},
	{"core", 5, "outbox_audit", "", ""},
	{"core", 6, "outbox_inbox_turn", "", ""},
	{"core", 7, "outbox_archive", "", ""},
	{"events", 1, "event_outbox", "position", "event_outbox"},
	{"crawl", 1, "crawl_events", "seq", "crawl_events"},
	{"crawl", 2, "crawl_outbox", "event_id", "crawl_outbox"},
	{"log", 1, "outbox_log_positions", "", ""},
	{"log", 2, "outbox_subscriptions", "", ""},
}

// observed are the versions that the traces tell of, for sets whose files were applied by something
// else than Up.
func observed(ctx context.Context, conn *pgx.Conn) (map[string]uint, error) {
	var sets, relations, columns []string
	var versions []int32
	for _, t := range traces {
		sets, versions = append(sets, t.Set), append(versions, int32(t.Version))
		relations, columns = append(relations, t.Relation), append(columns, t.Column)
	}
	newest := map[string]uint{} // the traces come in their order, and without one those behind it do not count
	var set string
	var version int32
	asked := []any{sets, versions, relations, columns}
	if err := each(ctx, conn, "traces", asked, []any{&set, &version}, func() error {
		if uint(version) == newest[set]+1 {
			newest[set]++
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("look for what is applied: %w", err)
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
	tools, err := texts(ctx, conn, "tools")
	if err != nil {
		return "", fmt.Errorf("look for other migration tools: %w", err)
	}
	if len(tools) == 0 {
		return byHand, nil
	}
	return strings.Join(tools, " or "), nil
}

func owned(s migration.SetStatus) bool { return s.By != "" && s.By != byHand }

// applied is the newest version of which nothing can be missing: the file of a dirty mark may not
// have run. The mark of a Down stands one below the file that was being taken away, and going up
// again from there restores that one too.
func applied(s migration.SetStatus) (version uint) {
	if !s.Dirty {
		return s.Current
	}
	for _, candidate := range embedded.List(s.Set) {
		if candidate.Version < s.Current {
			version = candidate.Version
		}
	}
	return version
}
