package pgmigrations

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// sequenceDrawn is the default of a column that draws its numbers from a sequence, and the
// sequence, quoted if need be.
var sequenceDrawn = regexp.MustCompile(`^nextval\('([^'.]+)'::regclass\)$`)

// rename is a table that has run's name, as FR-005 writes it, and gets crawl's.
type rename struct {
	from, to string
	shape    *shape
}

func (a *adoption) renamed(to string) *rename {
	for i := range a.renames {
		if a.renames[i].to == to {
			return &a.renames[i]
		}
	}
	return nil
}

// findRenamed finds the tables run_outbox and run_events, and through their foreign keys that of
// runs. It adds what they will be like to the shapes, and a problem where they cannot be renamed.
func (a *adoption) findRenamed(ctx context.Context, shapes map[string]*shape) error {
	found, err := readShapes(ctx, a.conn, a.schema, []string{"run_outbox", "run_events"})
	if err != nil {
		return err
	}
	maps.DeleteFunc(found, func(_ string, s *shape) bool { return s.Kind == "v" || s.column("run_id") == nil })
	if len(found) == 0 {
		return nil
	}
	taken, err := readShapes(ctx, a.conn, a.schema, []string{"crawl_outbox", "crawl_events", "crawl_runs"})
	if err != nil {
		return err
	}
	parent := ""
	for _, name := range slices.Sorted(maps.Keys(found)) {
		to := "crawl_" + strings.TrimPrefix(name, "run_")
		if taken[to] != nil {
			a.problem("both tables %s and %s exist, and %s is to become %s: move the rows into one "+
				"of them, and drop or "+
				"rename the other", name, to, name, to)
			continue
		}
		runs := runsOf(found[name])
		switch {
		case runs == "":
			a.problem("%s.run_id has no foreign key, so it is not known which table has the runs: "+
				"ALTER TABLE %s ADD FOREIGN KEY (run_id) REFERENCES … (id) ON DELETE CASCADE", name, name)
			continue
		case parent != "" && parent != runs:
			a.problem("run_events and run_outbox have their runs in two tables, %s and %s: up takes one", parent, runs)
		}
		parent = runs
		a.renames = append(a.renames, rename{name, to, found[name]})
	}
	if parent != "" && parent != "crawl_runs" {
		runs, err := readShapes(ctx, a.conn, a.schema, []string{parent})
		if err != nil {
			return err
		}
		switch {
		case taken["crawl_runs"] != nil:
			a.problem("both tables %s and crawl_runs exist, and %s is to become crawl_runs: rename "+
				"or drop the other", parent,
				parent)
		case runs[parent] == nil:
			a.problem("the table of runs, %s, is not in the schema %s", parent, a.schema)
		default:
			a.renames = slices.Insert(a.renames, 0, rename{parent, "crawl_runs", runs[parent]})
		}
	}
	return a.checkRenames(shapes, parent)
}

// runsOf is the table that a table's run_id refers to.
func runsOf(of *shape) (table string) {
	for _, k := range of.Constraints {
		if k.Kind == "f" && slices.Equal(k.Columns, []string{"run_id"}) {
			table = k.Target
		}
	}
	return table
}

// checkRenames reports what a view would not have, and adds the tables under their new names.
func (a *adoption) checkRenames(shapes map[string]*shape, parent string) error {
	for _, r := range a.renames {
		if r.shape.Secured {
			a.problem("%s has row-level security, which a view of that name would pass by: rename "+
				"the table to %s and run_id "+
				"to crawl_id yourself, "+
				"with the application's statements", r.from, r.to)
		}
		if slices.ContainsFunc(r.shape.Columns, func(c column) bool { return c.Granted }) {
			a.problem("%s has privileges on single columns, which a view of that name would not "+
				"have: grant them on the table",
				r.from)
		}
		var err error
		if shapes[r.to], err = r.shape.as(parent); err != nil {
			return fmt.Errorf("see %s as %s: %w", r.from, r.to, err)
		}
	}
	return nil
}

// as is what a table will be like under crawl's names.
func (s *shape) as(parent string) (*shape, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	renamed := strings.NewReplacer(`"run_id"`, `"crawl_id"`,
		`"target":"`+parent+`"`, `"target":"crawl_runs"`).Replace(string(text))
	later := new(shape)
	return later, json.Unmarshal([]byte(renamed), later)
}

// rename gives the tables crawl's names in one short transaction. In the place of each it leaves a
// view of the old name and columns, which PostgreSQL lets an application write to.
func (a *adoption) rename(ctx context.Context) error {
	if len(a.renames) == 0 {
		return nil
	}
	err := patiently(ctx, func() error {
		return pgx.BeginFunc(ctx, a.conn, func(tx pgx.Tx) error {
			var names []string
			for _, r := range a.renames {
				names = append(names, quote(r.from))
			}
			if err := a.inStep(ctx, tx, "", nil,
				fmt.Sprintf("LOCK TABLE %s IN ACCESS EXCLUSIVE MODE", strings.Join(names, ", "))); err != nil {
				return err
			}
			for _, r := range a.renames {
				if err := a.renameOne(ctx, tx, r); err != nil {
					return fmt.Errorf("%s: %w", r.from, err)
				}
			}
			return nil
		})
	})
	if err != nil {
		return fmt.Errorf("rename tables to crawl's names (nothing was renamed; run `outbox migrate up` again): %w", err)
	}
	return nil
}

func (a *adoption) renameOne(ctx context.Context, tx pgx.Tx, r rename) error {
	table, view := quote(r.to), quote(r.from)
	do := []string{fmt.Sprintf("ALTER TABLE %s RENAME TO %s", view, table)}
	undo := []string{fmt.Sprintf("ALTER TABLE %s RENAME TO %s", table, view)} // written backwards
	var columns []string
	for _, c := range r.shape.Columns {
		switch {
		case c.Name == "run_id":
			do = append(do, fmt.Sprintf("ALTER TABLE %s RENAME COLUMN run_id TO crawl_id", table))
			undo = append(undo, fmt.Sprintf("ALTER TABLE %s RENAME COLUMN crawl_id TO run_id", table))
			columns = append(columns, "crawl_id AS run_id")
		case c.Name == "status" && len(c.Labels) > 0 && c.Base != "crawl_status":
			do = append(do, fmt.Sprintf("ALTER TYPE %s RENAME TO crawl_status; CREATE DOMAIN %s AS "+
				"crawl_status", quote(c.Base),
				quote(c.Base)))
			undo = append(undo, fmt.Sprintf("DROP DOMAIN %s; ALTER TYPE crawl_status RENAME TO %s", quote(c.Base),
				quote(c.Base)))
			columns = append(columns, "status")
		default:
			columns = append(columns, quote(c.Name))
		}
		// Roles are granted the sequence by its name.
		if drawn := sequenceDrawn.FindStringSubmatch(c.Default); drawn != nil {
			name := quote(r.to + "_" + c.Name + "_seq")
			do = append(do, fmt.Sprintf("ALTER SEQUENCE %s RENAME TO %s", drawn[1], name))
			undo = append(undo, fmt.Sprintf("ALTER SEQUENCE %s RENAME TO %s", name, drawn[1]))
		}
	}
	do = append(do,
		fmt.Sprintf("CREATE VIEW %s AS SELECT %s FROM %s", view, strings.Join(columns, ", "), table),
		fmt.Sprintf("ALTER VIEW %s OWNER TO %s", view, r.shape.Owner),
		statement("grants", struct{ Table, View string }{r.to, r.from}))
	undo = append(undo, fmt.Sprintf("DROP VIEW IF EXISTS %s", view))
	slices.Reverse(undo)
	if err := a.inStep(ctx, tx, r.to, []addition{{"table", strings.Join(undo, "; ")}}, do...); err != nil {
		return err
	}
	return a.record(ctx, tx, r.to, addition{"restore", statement("restore", r.shape.restoring(r.to))})
}
