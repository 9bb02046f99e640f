package pgmigrations

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/internal/store/migration"
	"github.com/outboxrelay/outbox/internal/store/pooler"
)

// Plan says what Up would do to tables that are there already, and changes nothing. Up does the
// same survey before anything else, and returns ErrRefused with the problems where there are any.
// ErrOwned is that of Up.
func Plan(ctx context.Context, databaseURL string, sets ...string) (migration.Adoption, error) {
	return PlanIn(ctx, databaseURL, "", sets...)
}

// PlanIn is Plan for UpIn.
func PlanIn(ctx context.Context, databaseURL, zone string, sets ...string) (migration.Adoption, error) {
	if _, err := migration.Order(sets); err != nil {
		return migration.Adoption{}, fmt.Errorf("plan migration: %w", err)
	}
	conn, _, err := connect(ctx, databaseURL)
	if err != nil {
		return migration.Adoption{}, fmt.Errorf("plan migration: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	a, _, notes, err := plan(ctx, conn, zone, sets)
	if err != nil {
		return migration.Adoption{}, fmt.Errorf("plan migration: %w", err)
	}
	a.plan.Notes = append(notes, a.plan.Notes...)
	return a.plan, nil
}

// plan finds out which sets are Up's to migrate, of those that were named, and what is to be
// adopted for them.
func plan(
	ctx context.Context, conn *pgx.Conn, zone string, named []string,
) (a *adoption, sets, notes []string, err error) {
	if err := pooler.CheckEncoding(ctx, conn); err != nil {
		return nil, nil, nil, err
	}
	if sets, notes, err = leave(ctx, conn, named); err != nil {
		return nil, nil, nil, err
	}
	if a, err = survey(ctx, conn, sets); err != nil {
		return nil, nil, nil, fmt.Errorf("look for existing tables: %w", err)
	}
	return a, sets, notes, a.findZone(ctx, zone)
}

// leave returns the sets that are Up's to migrate, of those that were named. Where none was, they
// are the default ones, and what the database has of the others, be it tables to adopt. What
// another tool has applied is left to it: completely applied it is nothing to do, and else refused.
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
		switch {
		case !slices.Contains(sets, s.Set):
		case owned(s) && len(s.Pending) == 0:
			notes = append(notes, fmt.Sprintf("%s is up to date: %s has applied it", s.Set, s.By))
		case owned(s):
			return nil, nil, fmt.Errorf("%w: %s was applied by %s up to version %d and lacks %s: add "+
				"what is new to its "+
				"folder with `outbox migrate export` and apply it with %s, or hand the tables over to outbox migrate: %s",
				ErrOwned, s.Set, s.By, s.Current, strings.Join(s.Pending, ", "), s.By, handOver)
		case !owned(all[0]) || s.Current > 0 || s.Dirty: // all[0] is core, on which the others stand
			mine = append(mine, s.Set)
		case len(named) > 0:
			return nil, nil, fmt.Errorf("%w: %s stands on core, which %s has applied: add it to that folder with "+
				"`outbox migrate export --set core,%s` and apply it with %s",
				ErrOwned, s.Set, all[0].By, s.Set, all[0].By)
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

// refuse returns the plan's problems as an error.
func (a *adoption) refuse() error {
	if len(a.plan.Problems) == 0 {
		return nil
	}
	text := strings.Join(a.plan.Problems, "\n  - ")
	if slices.Contains(a.plan.Notes, ownSchema) {
		text += "\n" + ownSchema
	}
	return fmt.Errorf("%w:\n  - %s", ErrRefused, text)
}

// ownSchema is the remedy for tables of another application that have a name of ours.
const ownSchema = "if these tables belong to an application and are not meant for Outbox, leave them as they are and " +
	"give Outbox a schema of its own: CREATE SCHEMA outbox, then add search_path=outbox to the database URL of the " +
	"outbox commands (docs/guide/adopting.md#a-schema-of-its-own)"

// survey finds the tables that exist although their file has not been applied, compares them with
// what the files make, and plans. It reads only.
func survey(ctx context.Context, conn *pgx.Conn, sets []string) (*adoption, error) {
	a := &adoption{conn: conn, recorded: map[string]map[string]bool{}}
	if err := conn.QueryRow(ctx, statement("schema", nil)).Scan(&a.schema); err != nil {
		return nil, fmt.Errorf("find the schema to make tables in (search_path): %w", err)
	}
	open, states, err := unapplied(ctx, conn, sets)
	if err != nil || len(open) == 0 {
		return a, err
	}
	names := namesOf(open, func(o origin) string { return o.table })
	shapes, err := readShapes(ctx, conn, a.schema, names)
	if err != nil {
		return nil, err
	}
	if slices.Contains(names, "crawl_outbox") {
		if err := a.findRenamed(ctx, shapes); err != nil {
			return nil, err
		}
	}
	if err := a.mentionLegacy(ctx); err != nil {
		return nil, err
	}
	for _, o := range open {
		if shapes[o.table] != nil || states[o.set].Dirty {
			continue
		}
		if err := a.noteFunctions(ctx, o.table); err != nil {
			return nil, err
		}
	}
	if len(shapes) == 0 {
		return a, nil
	}
	return a, a.considerAll(ctx, sets, open, shapes, states)
}

// unapplied are the tables whose files have not been applied, and what is recorded of the sets.
func unapplied(
	ctx context.Context, conn *pgx.Conn, sets []string,
) (open []origin, states map[string]migration.SetStatus, err error) {
	states = map[string]migration.SetStatus{}
	for _, set := range sets {
		if states[set], err = status(ctx, conn, set); err != nil {
			return nil, nil, err
		}
		for _, o := range origins([]string{set}) {
			if o.version > applied(states[set]) {
				open = append(open, o)
			}
		}
	}
	return open, states, nil
}

// noteFunctions says which functions stay that are there already.
func (a *adoption) noteFunctions(ctx context.Context, table string) error {
	functions, err := a.functionsOf(ctx, table)
	for _, function := range functions {
		a.note("function %s exists, and stays as it is: up makes none of that name, and down drops none", function)
	}
	return err
}

// considerAll plans what is to be done with the tables that are there.
func (a *adoption) considerAll(
	ctx context.Context, sets []string, open []origin, shapes map[string]*shape, states map[string]migration.SetStatus,
) (err error) {
	if err := a.readRecord(ctx); err != nil {
		return err
	}
	var database bool
	if err := a.conn.QueryRow(ctx, statement("may_create", nil)).Scan(&database); err != nil {
		return err
	}
	if !database {
		a.problem(
			"the role may not create a schema, which up needs for a moment to compare tables with " +
				"what its files make " +
				"(it is rolled back): GRANT CREATE ON DATABASE … TO the role that migrates",
		)
		return nil
	}
	if a.ref, err = readReference(ctx, a.conn, sets); err != nil {
		return err
	}
	for _, o := range open {
		if have := shapes[o.table]; have != nil {
			if err := a.consider(ctx, o, have, states[o.set].Dirty); err != nil {
				return err
			}
		}
	}
	if a.foreign {
		a.note(ownSchema)
	}
	return nil
}

func (a *adoption) readRecord(ctx context.Context) error {
	if recorded, err := exists(ctx, a.conn, "outbox_adopted"); err != nil || !recorded {
		return err
	}
	var table, object string
	return each(ctx, a.conn, "recorded", nil, []any{&table, &object}, func() error {
		if a.recorded[table] == nil {
			a.recorded[table] = map[string]bool{}
		}
		a.recorded[table][object] = true
		return nil
	})
}

// noteTriggers names the triggers that filling rows fires.
func (a *adoption) noteTriggers(ctx context.Context, w *work) error {
	if len(w.fills) == 0 {
		return nil
	}
	var name, owner string
	return each(ctx, a.conn, "triggers", []any{quote(w.now)}, []any{&name, &owner}, func() error {
		if name != logTrigger {
			a.note("filling %s fires its trigger %s, whose function belongs to %s, with the rights of the "+
				"role that migrates", w.now, name, owner)
		}
		return nil
	})
}

// consider decides what becomes of one table.
func (a *adoption) consider(ctx context.Context, o origin, have *shape, dirty bool) (err error) {
	w := &work{origin: o, now: o.table, have: have, whole: a.ref.tables[o.table], ours: a.recorded[o.table]}
	if r := a.renamed(o.table); r != nil {
		w.now = r.from
	}
	before := len(a.plan.Problems)
	if !a.takes(w, dirty) {
		a.foreign = a.foreign || len(a.plan.Problems) > before
		return nil
	}
	if len(w.ours) == 0 || w.ours["kept function "+functionOf[w.table]] { // else made since
		if w.functions, err = a.functionsOf(ctx, o.table); err != nil {
			return err
		}
	}
	w.compare()
	if err := a.noteTriggers(ctx, w); err != nil {
		return err
	}
	if err := a.check(ctx, w); err != nil {
		return err
	}
	a.works = append(a.works, w)
	planned := migration.AdoptedTable{Name: w.table, Size: have.Size, Steps: a.steps(w)}
	for _, function := range w.functions {
		planned.Steps = append(planned.Steps, "leave function "+function+" as it is: Outbox does not call it")
	}
	if w.now != w.table {
		planned.Was = w.now
	}
	if len(a.plan.Problems) == before {
		if err := a.conn.QueryRow(ctx, "SELECT count(*) FROM "+quote(w.now)).Scan(&planned.Rows); err != nil {
			return err
		}
	}
	a.plan.Tables = append(a.plan.Tables, planned)
	a.mentionRetention(o.table)
	return nil
}

// takes tells whether a table is one to adopt, and reports why it cannot be.
func (a *adoption) takes(w *work, dirty bool) bool {
	known := slices.Contains(adoptable, w.table)
	switch {
	case w.have.Kind != "r" || w.have.Inherits:
		a.problem("%s is not an ordinary table (a view, partitioned, inherited or foreign), and up "+
			"needs one of that name: "+
			"rename it", w.now)
		return false
	case len(w.ours) > 0:
		return true
	case !w.have.lacks(w.whole) && (dirty || !known):
		return false // its file made it, and died before it was recorded; or ran by hand
	case !known:
		a.problem("a table %s exists that is not Outbox's, which keeps its own things under that "+
			"name: rename it", w.table)
	}
	return known
}

// check reports why a table cannot be adopted.
func (a *adoption) check(ctx context.Context, w *work) error {
	before := len(a.plan.Problems)
	a.checkRights(w)
	if len(a.plan.Problems) > before { // it may not be readable
		return nil
	}
	a.checkColumns(w)
	if len(a.plan.Problems) > before { // the checks of rows name these columns
		a.foreign = true
		return nil
	}
	for _, check := range []func(context.Context, *work) error{a.checkNames, a.checkRows, a.checkWriters} {
		if err := check(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

// mentionRetention says what a relay with default settings does to old rows, which an application
// may count on.
func (a *adoption) mentionRetention(table string) {
	switch table {
	case "outbox_events", "crawl_outbox":
		a.note("a relay moves rows of %s that were delivered more than 168h ago into outbox_archive, at once and from "+
			"then on; --retention 0 keeps them", table)
	case "event_outbox":
		a.note("a relay deletes rows of %s that were published more than 168h ago, at once and from then on; "+
			"--retention 0 keeps them", table)
	case "job_dlq":
		a.note("a relay deletes rows of %s that were replayed more than 720h ago, at once and from then on; "+
			"--retention job_dlq=0 keeps them", table)
	}
}

func (a *adoption) checkRights(w *work) {
	if !w.have.Mine {
		a.problem("table %s belongs to %s: run up as that role or a member of it", w.now, w.have.Owner)
	} else if w.have.Hidden {
		a.problem("row-level security hides rows of %s from the role that migrates, and all of them must be filled: "+
			"run up as a role with BYPASSRLS that is a member of %s", w.now, w.have.Owner)
	}
}

// fillable are the columns that must not be NULL, have no default, and are filled all the same.
var fillable = map[string]string{"crawl_events": "seq"}

// given are the columns of tables into which Outbox itself inserts: apps (settle_apps.sql) and
// job_dlq (settle_dead.sql).
var given = map[string][]string{
	"apps": {"name", "namespace"},
	"job_dlq": {"source", "original_job_id", "app_id", "type", "payload", "error_reason", "attempts", "error_history",
		"destination", "outbox_table", "event_key", "generation", "position", "origin", "tenant"},
}

func (a *adoption) checkColumns(w *work) {
	for _, want := range w.whole.Columns {
		have := w.have.column(want.Name)
		ours := w.ours["column "+want.Name]
		switch {
		case have == nil && want.NotNull && want.Default == "" && want.Identity == "" && fillable[w.table] != want.Name:
			a.problem("%s has no column %s, which must not be NULL and which nobody but you can "+
				"fill: add it (%s), fill it, "+
				"and SET NOT NULL",
				w.now, want.Name, want.Type)
		case have == nil:
		case !have.fits(want):
			a.problem("column %s of %s is %s, and must be %s", want.Name, w.now, have.Type, want.Type)
		case !ours && want.NotNull && !have.NotNull:
			a.problem("column %s of %s may be NULL, and must not: fill it (SELECT count(*) FROM %s "+
				"WHERE %s IS NULL), then "+
				"ALTER TABLE %s ALTER COLUMN %s SET NOT NULL", want.Name, w.now, w.now, want.Name, w.now, want.Name)
		}
	}
	a.checkOthers(w)
	for _, k := range w.whole.Constraints {
		if k.Kind == "p" && !w.have.has(k) {
			a.problem("%s has no primary key (%s): add one", w.now, strings.Join(k.Columns, ", "))
		}
	}
}

// checkOthers reports columns that nobody would fill.
func (a *adoption) checkOthers(w *work) {
	columns, ok := given[w.table]
	if !ok {
		return
	}
	for _, c := range w.have.Columns {
		filled := !c.NotNull || c.Default != "" || c.Identity != "" || c.Generated != "" ||
			slices.Contains(columns, c.Name)
		if whole := w.whole.column(c.Name); filled || whole != nil && whole.Default != "" {
			continue
		}
		a.problem("column %s of %s must not be NULL and has no default, and Outbox, which writes "+
			"rows of its own there, "+
			"does not fill it: ALTER TABLE %s ALTER COLUMN %s DROP NOT NULL, or give it a default",
			c.Name, w.now, w.now, c.Name)
	}
}

// functionsOf are those that have the name of the function that a table's file makes, with their
// parameters.
func (a *adoption) functionsOf(ctx context.Context, table string) ([]string, error) {
	if functionOf[table] == "" {
		return nil, nil
	}
	functions, err := texts(ctx, a.conn, "functions_of", a.schema, functionOf[table])
	if err != nil {
		return nil, fmt.Errorf("read the catalog: %w", err)
	}
	return functions, nil
}

// steps says in plain words what is about to happen.
func (a *adoption) steps(w *work) (steps []string) {
	say := func(format string, args ...any) { steps = append(steps, fmt.Sprintf(format, args...)) }
	if w.done() {
		say("nothing: it has all it needs; down will leave it")
		return steps
	}
	if w.now != w.table {
		say("rename it, its type and its columns to crawl's names, and leave an updatable view %s of its names", w.now)
	}
	if len(w.columns) > 0 {
		names := namesOf(w.columns, func(c column) string { return c.Name })
		say("add %s (no row is rewritten)", strings.Join(names, ", "))
	}
	for _, c := range w.defaults {
		say("give %s the default %s", c.Name, c.Default)
	}
	if len(w.options) > 0 {
		say("set %s", strings.Join(w.options, ", "))
	}
	for _, c := range w.fills {
		switch {
		case w.table == "crawl_events" && c.Name == "seq":
			say("number the rows of each run from 1 in the order of id, %d a commit, and let the "+
				"trigger %s number new ones",
				fillBatch, logTrigger)
		case c.Identity != "" && w.have.column("created_at") != nil:
			say("number the rows in %s in the order of created_at and id, %d a commit, below all new ones", c.Name, fillBatch)
		case c.Identity != "":
			say("number the rows in %s in the order of id, %d a commit, below all new ones", c.Name, fillBatch)
		case c.Default != "": // else a problem says that it has to be filled by hand
			say("fill %s with %s in all rows, %d a commit", c.Name, c.Default, fillBatch)
		}
	}
	for _, k := range w.constraints {
		say("add constraint %s %s (rows are read, nobody waits)", k.Name, k.Definition)
	}
	builds := slices.DeleteFunc(slices.Clone(w.builds), func(i index) bool { return i.Constraint })
	if len(builds) > 0 {
		say("build, concurrently, %s", strings.Join(namesOf(builds, func(i index) string { return i.Name }), ", "))
	}
	return steps
}
