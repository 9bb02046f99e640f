package pgmigrations

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/internal/store/migration"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

// adoptable are the tables of the seeds, which an application may have had before. Their down files
// give an adopted one back. The others are Outbox's own.
var adoptable = []string{"apps", "outbox_events", "job_dlq", "event_outbox", "crawl_runs", "crawl_events",
	"crawl_outbox"}

// functionOf names the functions that an application may have had with its tables. Their files make
// none where there is one, and Outbox itself calls neither.
var functionOf = map[string]string{"job_dlq": "purge_job_dlq", "event_outbox": "purge_event_outbox"}

// ErrRefused is returned by Up, before it has changed anything, when there are tables that it
// cannot adopt.
var ErrRefused = errors.New("tables that exist cannot be adopted, and nothing was changed")

// adoption is what up has to do to tables that were there before it.
type adoption struct {
	conn     *pgx.Conn
	schema   string
	ref      *reference
	works    []*work
	renames  []rename
	recorded map[string]map[string]bool // table, then what was done to it
	plan     migration.Adoption
	foreign  bool   // a table has a name of ours and another shape
	zone     string // to be recorded: of times without one
}

// work is one table to adopt.
type work struct {
	origin
	now         string          // what it is called now
	have, whole *shape          // as it is, and as the files make it
	functions   []string        // of the name that its file would make; they stay
	ours        map[string]bool // what was added to it before; anything: it is being adopted already

	replaced []constraint // checks that ours takes the place of

	// What is missing.
	columns     []column
	defaults    []column
	fills       []column // must not be NULL, but is where nobody has filled it yet
	constraints []constraint
	builds      []index
	options     []string
	trigger     bool
}

// logTrigger numbers the events of a run. It comes with crawl_events.seq, because a row without a
// number fits no more.
const logTrigger = "crawl_events_append"

func helper(table, column string) string { return table + "_" + column + "_adopt" }

// compare finds what is missing.
func (w *work) compare() {
	w.columns, w.defaults, w.fills, w.constraints, w.builds, w.options = nil, nil, nil, nil, nil, nil
	w.compareColumns()
	for _, k := range w.whole.Constraints {
		if k.Kind != "p" && !w.have.has(k) {
			w.constraints = append(w.constraints, k)
		}
	}
	for _, i := range w.whole.Indexes {
		have := w.have.index(i.Name)
		if i.Constraint && !slices.ContainsFunc(w.constraints, func(k constraint) bool { return k.Name == i.Name }) {
			continue // it has the constraint
		}
		if have == nil || !have.Valid && w.ours["index "+i.Name] {
			w.builds = append(w.builds, i)
		}
	}
	for _, option := range w.whole.Options {
		name, _, _ := strings.Cut(option, "=")
		if !slices.ContainsFunc(w.have.Options, func(o string) bool { return strings.HasPrefix(o, name+"=") }) {
			w.options = append(w.options, option)
		}
	}
	w.trigger = w.table == "crawl_events" && w.have.Triggers[logTrigger] == ""
}

func (w *work) compareColumns() {
	for _, c := range w.whole.Columns {
		have := w.have.column(c.Name)
		switch {
		case have == nil:
			w.columns = append(w.columns, c)
		case have.Default == "" && have.Identity == "" && have.Generated == "" && c.Default != "":
			w.defaults = append(w.defaults, c)
		}
		unfilled := have == nil || w.ours["column "+c.Name] && !have.NotNull
		if unfilled && c.NotNull && (c.rewrites() || c.Default == "") {
			w.fills = append(w.fills, c)
		}
	}
}

// done tells whether only the mark is missing, that the table was there before.
func (w *work) done() bool {
	missing := len(w.columns) + len(w.defaults) + len(w.fills) + len(w.constraints) + len(w.builds) + len(w.options)
	return missing == 0 && !w.trigger
}

// inspect reads the catalog again.
func (a *adoption) inspect(ctx context.Context, w *work) error {
	shapes, err := readShapes(ctx, a.conn, a.schema, []string{w.table})
	if err != nil {
		return err
	}
	if shapes[w.table] == nil {
		return fmt.Errorf("table %s is gone", w.table)
	}
	w.have, w.ours = shapes[w.table], a.recorded[w.table]
	w.compare()
	return nil
}

// before does what must be done before a file of a set runs. Each step records first what undoes
// it, and what was done already is left out: after a failure the same call goes on.
func (a *adoption) before(ctx context.Context, set string, version uint) error {
	if set == "crawl" {
		if err := a.rename(ctx); err != nil {
			return err
		}
		a.renames = nil
	}
	for _, w := range a.works {
		if w.set != set || w.version != version {
			continue
		}
		if err := a.adopt(ctx, w); err != nil {
			return fmt.Errorf("adopt table %s (it is usable as it is; run `outbox migrate up` again to go on, "+
				"or `outbox migrate down --set %s --all` to undo): %w", w.table, w.set, err)
		}
	}
	return nil
}

func (a *adoption) adopt(ctx context.Context, w *work) error {
	phases := []struct {
		what string
		do   func(context.Context, *work) error
	}{
		{"record", a.mark}, {"add columns", a.addColumns}, {"build indexes to fill by", a.buildEarly},
		{"fill rows", a.fill}, {"add constraints", a.constrain}, {"build indexes", a.buildAll}, {"finish", a.finish},
	}
	for _, phase := range phases {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := a.inspect(ctx, w); err != nil {
			return err
		}
		if err := phase.do(ctx, w); err != nil {
			return fmt.Errorf("%s: %w", phase.what, err)
		}
	}
	return nil
}

// addition is something that is added to a table.
type addition struct{ object, undo string }

// step does one short transaction: the record of what it adds, then the statements.
func (a *adoption) step(ctx context.Context, table string, additions []addition, statements ...string) error {
	return patiently(ctx, func() error {
		return pgx.BeginFunc(ctx, a.conn, func(tx pgx.Tx) error {
			return a.inStep(ctx, tx, table, additions, statements...)
		})
	})
}

func (a *adoption) inStep(
	ctx context.Context, tx pgx.Tx, table string, additions []addition, statements ...string,
) error {
	if _, err := tx.Exec(ctx, briefly); err != nil {
		return err
	}
	if err := a.record(ctx, tx, table, additions...); err != nil {
		return err
	}
	for _, statement := range statements {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// record writes down what is about to be added, once.
func (a *adoption) record(ctx context.Context, tx pgx.Tx, table string, additions ...addition) error {
	if len(additions) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, statement("record", nil)); err != nil { // never left empty
		return err
	}
	if a.recorded[table] == nil {
		a.recorded[table] = map[string]bool{}
	}
	for _, one := range additions {
		if _, err := tx.Exec(ctx, statement("record_step", nil), table, one.object, one.undo); err != nil {
			return err
		}
		a.recorded[table][one.object] = true
	}
	return nil
}

// mark records the table itself. Undone last, it puts back what later commands may have changed of
// it. A function that was there with it is recorded too: its file makes none, the down file drops
// none, and roles give none away.
func (a *adoption) mark(ctx context.Context, w *work) error {
	if len(w.ours) > 0 {
		return nil
	}
	added := []addition{{"table", statement("restore", w.have.restoring(w.table))}}
	if len(w.functions) > 0 {
		added = append(added, addition{"kept function " + functionOf[w.table], "SELECT"}) // nothing undoes nothing
	}
	return a.step(ctx, w.table, added)
}

// restoring is what adopt/restore.sql takes.
func (s *shape) restoring(table string) any {
	quoted := []string{}
	for _, policy := range s.Policies {
		quoted = append(quoted, sqltable.QuoteText(policy))
	}
	return struct {
		Table, Owner, Policies string
		Secured, Forced        bool
	}{table, s.Owner, strings.Join(quoted, ", "), s.Secured, s.Forced}
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

// addColumns adds all columns at once, none of which rewrites the table. What would be computed for
// each row is a default for new rows, and the old ones are filled later.
func (a *adoption) addColumns(ctx context.Context, w *work) error {
	if len(w.columns)+len(w.defaults)+len(w.options) == 0 {
		return nil
	}
	statements := []string{fmt.Sprintf("LOCK TABLE %s IN ACCESS EXCLUSIVE MODE", w.table)}
	var added []addition
	if w.table == "apps" {
		var err error
		if added, err = a.beforeApps(ctx); err != nil {
			return err
		}
		statements = append(statements, a.ref.functions["outbox_uuidv7"])
	}
	var adds, defaults []string
	for _, c := range w.columns {
		sequence := helper(w.table, c.Name)
		if c.Identity != "" {
			added = append(added, addition{"sequence " + sequence, "DROP SEQUENCE IF EXISTS " + sequence})
			statements = append(statements,
				statement("sequence", struct{ Table, Sequence string }{w.table, sequence}))
			c.Default = fmt.Sprintf("nextval('%s')", sequence)
		}
		added = append(added, addition{"column " + c.Name, w.alter("DROP COLUMN IF EXISTS " + c.Name)})
		adds = append(adds, "ADD COLUMN "+c.addition())
		if c.rewrites() {
			defaults = append(defaults, fmt.Sprintf("ALTER COLUMN %s SET DEFAULT %s", c.Name, c.Default))
		}
	}
	for _, c := range w.defaults {
		added = append(added, addition{"default " + c.Name, w.alter("ALTER COLUMN " + c.Name + " DROP DEFAULT")})
		defaults = append(defaults, fmt.Sprintf("ALTER COLUMN %s SET DEFAULT %s", c.Name, c.Default))
	}
	for _, parts := range [][]string{adds, defaults} {
		if len(parts) > 0 {
			statements = append(statements, w.alter(strings.Join(parts, ", ")))
		}
	}
	if len(w.options) > 0 {
		names := namesOf(w.options, func(option string) string { name, _, _ := strings.Cut(option, "="); return name })
		added = append(added, addition{"options", w.alter("RESET (" + strings.Join(names, ", ") + ")")})
		statements = append(statements, w.alter("SET ("+strings.Join(w.options, ", ")+")"))
	}
	return a.step(ctx, w.table, added, statements...)
}

// alter is a statement that changes the table.
func (w *work) alter(how string) string { return "ALTER TABLE " + w.table + " " + how }

// beforeApps is what the file of apps, which runs after the adoption, will find done or do: the
// function of its default, and the application of ADR-004's default tenant.
func (a *adoption) beforeApps(ctx context.Context) ([]addition, error) {
	added := []addition{{"function outbox_uuidv7", "DROP FUNCTION IF EXISTS outbox_uuidv7()"}}
	var exists bool
	if err := a.conn.QueryRow(ctx, statement("default_app", nil)).Scan(&exists); err != nil {
		return nil, err
	}
	if !exists {
		added = append(added, addition{"row default", statement("default_app_undo", nil)})
	}
	return added, nil
}

func (a *adoption) problem(format string, args ...any) {
	a.plan.Problems = append(a.plan.Problems, fmt.Sprintf(format, args...))
}

func (a *adoption) note(format string, args ...any) {
	a.plan.Notes = append(a.plan.Notes, fmt.Sprintf(format, args...))
}
