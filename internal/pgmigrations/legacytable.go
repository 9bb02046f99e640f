package pgmigrations

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/internal/sqlfile"
)

//go:embed legacy/*.sql
var legacyFiles embed.FS

var parseLegacy = sync.OnceValues(func() (*sqlfile.Set, error) { return sqlfile.Parse(legacyFiles, "legacy/*.sql") })

// legacyName is what a table may be called: what needs no thought about quoting. It leaves room for _undelivered within
// PostgreSQL's 63 bytes.
var legacyName = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,49}$`)

// legacyColumns are the columns of before ADR-004, under either name, and the types that the upgrade understands.
// A relay takes ids as uuid and payloads as jsonb; converting them would be the owner's decision.
var legacyColumns = []struct {
	name, renamed string
	types         []string
}{
	{"id", "", []string{"uuid"}},
	{"tenant_id", "", []string{"varchar", "text"}},
	{"aggregate_id", "", []string{"varchar", "text", "uuid"}},
	{"type", "", []string{"varchar", "text"}},
	{"schema_id", "", []string{"varchar", "text"}},
	{"schema_ver", "schema_version", []string{"int2", "int4", "int8"}},
	{"payload", "", []string{"jsonb"}},
	{"status", "", []string{"varchar", "text"}},
	{"retry_cnt", "retry_count", []string{"int2", "int4", "int8"}},
	{"created_at", "", []string{"timestamptz", "timestamp"}},
}

// legacyTable is what the catalog says of the table, in the words of the templates under legacy/.
type legacyTable struct {
	Table         string   // quoted
	Schema        string   // quoted, with its dot; empty when the table was named without
	name          string   // bare
	size          string   // as the server prints it
	Prepared      bool     // prepare.sql has run
	RenameVersion bool     // schema_ver has its old name
	RenameRetries bool     // retry_cnt has its old name
	WidenStatus   bool     // status is too short for FAILED
	DropChecks    []string // quoted: checks on status
	BareTimes     []string // times without a zone
	WidenKey      bool     // aggregate_id is a uuid

	columns map[string]legacyColumn
}

type legacyColumn struct {
	kind     string
	notNull  bool
	modifier int32
}

// inspectLegacy reads the catalog and refuses a table that does not fit, saying everything that is wrong with it.
func inspectLegacy(ctx context.Context, conn *pgx.Conn, name string) (*legacyTable, error) {
	if !legacyName.MatchString(name) {
		return nil, errors.New("table name: want name or schema.name of letters, digits and _, the name up to 50 long")
	}
	parts := strings.Split(name, ".")
	t := &legacyTable{Table: pgx.Identifier(parts).Sanitize(), name: parts[len(parts)-1],
		columns: map[string]legacyColumn{}}
	if len(parts) == 2 {
		t.Schema = pgx.Identifier(parts[:1]).Sanitize() + "."
	}

	var kind string
	var unique bool
	var checks []string
	err := conn.QueryRow(ctx, t.sql("table"), t.Table).Scan(&kind, &t.size, &unique, &checks)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, errors.New("no such table")
	case err != nil:
		return nil, fmt.Errorf("read the catalog: %w", err)
	}
	rows, err := conn.Query(ctx, t.sql("columns"), t.Table)
	if err != nil {
		return nil, fmt.Errorf("read the catalog: %w", err)
	}
	var column string
	var c legacyColumn
	if _, err := pgx.ForEachRow(rows, []any{&column, &c.kind, &c.notNull, &c.modifier}, func() error {
		t.columns[column] = c
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read the catalog: %w", err)
	}
	if t.done() {
		return t, nil
	}

	problems := t.misfits()
	if kind != "r" {
		problems = append(problems, errors.New("it is not an ordinary table (a view or partitioned)"))
	}
	if !unique {
		problems = append(problems, errors.New("column id has no primary key or unique index of its own"))
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}

	t.Prepared = t.has("position")
	t.RenameVersion, t.RenameRetries = t.has("schema_ver"), t.has("retry_cnt")
	status := t.columns["status"]
	// Typmod counts a 4-byte header.
	t.WidenStatus = status.kind == "varchar" && status.modifier >= 0 && status.modifier-4 < 10
	t.WidenKey = t.columns["aggregate_id"].kind == "uuid"
	for _, check := range checks {
		t.DropChecks = append(t.DropChecks, pgx.Identifier{check}.Sanitize())
	}
	for _, column := range []string{"created_at", "occurred_at", "next_retry_at", "processed_at"} {
		if t.columns[column].kind == "timestamp" {
			t.BareTimes = append(t.BareTimes, column)
		}
	}
	return t, nil
}

// misfits compares the columns with legacyColumns.
func (t *legacyTable) misfits() (problems []error) {
	for _, want := range legacyColumns {
		name := want.name
		if want.renamed != "" && t.has(want.renamed) {
			if t.has(name) {
				problems = append(problems, fmt.Errorf("it has both %s and %s: keep one", name, want.renamed))
			}
			name = want.renamed
		}
		if !t.has(name) {
			problems = append(problems, fmt.Errorf("column %s is missing", name))
		} else if kind := t.columns[name].kind; !slices.Contains(want.types, kind) {
			problems = append(problems, fmt.Errorf("column %s is %s, want %s", name, kind, strings.Join(want.types, " or ")))
		}
	}
	return problems
}

func (t *legacyTable) has(column string) bool { _, ok := t.columns[column]; return ok }

// done reports whether the upgrade is complete: its last transaction makes both NOT NULL. Position alone would take a
// table that had such a column of its own for an upgraded one.
func (t *legacyTable) done() bool {
	return t.columns["position"].notNull && t.columns["event_topic"].notNull
}

// Call implements sqlfile.Caller: index_name names an index or constraint of the table, quoted.
func (t *legacyTable) Call(function string, operand any) (any, error) {
	suffix, ok := operand.(string)
	if function != "index_name" || !ok {
		return nil, fmt.Errorf("there is no %s of %T", function, operand)
	}
	return pgx.Identifier{t.name + "_" + suffix}.Sanitize(), nil
}

// sql fills a statement of legacy/ in.
func (t *legacyTable) sql(name string) string {
	return filled(parseLegacy, func(set *sqlfile.Set) (string, error) { return set.Render(name, t) })
}

// exec runs a file of several statements; without arguments, so as one simple query and one transaction.
func (t *legacyTable) exec(ctx context.Context, conn *pgx.Conn, name string) error {
	_, err := conn.Exec(ctx, t.sql(name))
	return err
}

// survey counts the rows still to do and refuses those that could not be kept as they are.
func (t *legacyTable) survey(ctx context.Context, conn *pgx.Conn) (rows, failed int64, err error) {
	var statuses, topics, times int64
	if err := conn.QueryRow(ctx, t.sql("survey")).Scan(&rows, &failed, &statuses, &topics, &times); err != nil {
		return 0, 0, fmt.Errorf("count rows: %w", err)
	}
	var problems []error
	for _, p := range []struct {
		count int64
		what  string
	}{
		{statuses, "have a status other than NEW, SENT and ERR"},
		{topics, "have no type, or one over 150 characters, which event_topic cannot hold"},
		{times, "have no created_at"},
	} {
		if p.count > 0 {
			problems = append(problems, fmt.Errorf("%d rows %s: correct them first", p.count, p.what))
		}
	}
	return rows, failed, errors.Join(problems...)
}

// steps says in plain words what is about to happen.
func (t *legacyTable) steps(rows, failed int64, batchSize int) []string {
	var steps []string
	if !t.Prepared {
		steps = append(steps,
			"add the nine columns of ADR-004 and the relay's position, error_history, delivered_to and generation")
	}
	if t.RenameVersion {
		steps = append(steps, "rename schema_ver to schema_version")
	}
	if t.RenameRetries {
		steps = append(steps, "rename retry_cnt to retry_count")
	}
	for _, check := range t.DropChecks {
		steps = append(steps, "replace the check "+check+" on status")
	}
	batches := (rows + int64(batchSize) - 1) / int64(batchSize)
	last := fmt.Sprintf("read the table (%s now) for NOT NULL and the check on status and build three indexes, under an "+
		"ACCESS EXCLUSIVE lock: nobody reads or writes it meanwhile", t.size)
	var retyped []string
	if t.WidenKey {
		retyped = append(retyped, "aggregate_id becomes VARCHAR(128), which holds uuids and other keys alike")
	}
	if len(t.BareTimes) > 0 {
		retyped = append(retyped, strings.Join(t.BareTimes, ", ")+
			" becomes TIMESTAMPTZ (which alone takes no rewrite where the session's time zone is UTC)")
	}
	if len(retyped) > 0 {
		last += "; rewrite it under that lock, since " + strings.Join(retyped, " and ")
	}
	return append(steps,
		fmt.Sprintf("fill %d rows in %d batches of %d: event_topic from type, occurred_at from created_at, source_bc "+
			"'default'; status ERR becomes DEAD in %d", rows, batches, batchSize, failed),
		last,
	)
}
