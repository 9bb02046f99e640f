package pgmigrations

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/internal/store/migration"
)

// origin says which file makes a table.
type origin struct {
	set     string
	version uint
	table   string
}

var makesTable = regexp.MustCompile(`(?m)^ *CREATE TABLE (?:IF NOT EXISTS )?(\w+) \(`)

// origins reads from the embedded files which tables the sets bring, in the order in which they do.
func origins(sets []string) (all []origin) {
	for _, set := range sets {
		for _, file := range embedded.List(set) {
			for _, found := range makesTable.FindAllStringSubmatch(content(set+"/"+file.Name+".up.sql"), -1) {
				all = append(all, origin{set, file.Version, found[1]})
			}
		}
	}
	return all
}

// reference is what the embedded files make of an empty schema.
type reference struct {
	tables    map[string]*shape
	functions map[string]string // definitions by name
}

var errRolledBack = errors.New("rolled back")

// readReference runs the files of core and of the sets in a schema of their own, reads the catalog,
// and rolls back. So there is no second list of what the tables look like.
func readReference(ctx context.Context, conn *pgx.Conn, sets []string) (*reference, error) {
	ref := &reference{functions: map[string]string{}}
	schema := "outbox_reference_" + strings.ToLower(rand.Text()[:12])
	sets, err := migration.Order(append([]string{"core"}, sets...))
	if err != nil {
		return nil, err
	}
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "CREATE SCHEMA "+schema+"; SET LOCAL search_path = "+schema); err != nil {
			return err
		}
		if err := ref.read(ctx, tx, schema, sets); err != nil {
			return err
		}
		return errRolledBack
	})
	if !errors.Is(err, errRolledBack) {
		return nil, fmt.Errorf("make the tables in a schema of their own, which is rolled back, "+
			"to compare those that exist with them: %w", err)
	}
	return ref, nil
}

func (ref *reference) read(ctx context.Context, tx pgx.Tx, schema string, sets []string) (err error) {
	for _, set := range sets {
		for _, file := range embedded.List(set) {
			text := content(set + "/" + file.Name + ".up.sql")
			if _, err := tx.Exec(ctx, text, pgx.QueryExecModeSimpleProtocol); err != nil {
				return fmt.Errorf("%s/%s: %w", set, file.Name, err)
			}
		}
	}
	tables := namesOf(origins(sets), func(o origin) string { return o.table })
	if ref.tables, err = readShapes(ctx, tx, schema, tables); err != nil {
		return err
	}
	here := func(definition string) string { return strings.ReplaceAll(definition, schema+".", "") }
	for _, s := range ref.tables {
		for i := range s.Indexes {
			s.Indexes[i].Definition = here(s.Indexes[i].Definition)
		}
		for trigger := range s.Triggers {
			s.Triggers[trigger] = here(s.Triggers[trigger])
		}
	}
	var name, definition string
	return each(ctx, tx, "functions", []any{schema}, []any{&name, &definition}, func() error {
		ref.functions[name] = here(definition)
		return nil
	})
}

// readShapes returns those of the relations that exist.
func readShapes(ctx context.Context, db asker, schema string, names []string) (map[string]*shape, error) {
	shapes := map[string]*shape{}
	var name string
	var text []byte
	if err := each(ctx, db, "tables", []any{schema, names}, []any{&name, &text}, func() error {
		s := new(shape)
		shapes[name] = s
		return json.Unmarshal(text, s)
	}); err != nil {
		return nil, fmt.Errorf("read the catalog: %w", err)
	}
	return shapes, nil
}

// shape is what the catalog says of a table (sql/tables.sql).
type shape struct {
	Kind        string            `json:"kind"`
	Owner       string            `json:"owner"`
	Mine        bool              `json:"mine"`
	Size        string            `json:"size"`
	Options     []string          `json:"options"`
	Secured     bool              `json:"secured"`
	Forced      bool              `json:"forced"`
	Hidden      bool              `json:"hidden"` // row-level security applies to the role that asks
	Inherits    bool              `json:"inherits"`
	Policies    []string          `json:"policies"`
	Columns     []column          `json:"columns"`
	Indexes     []index           `json:"indexes"`
	Constraints []constraint      `json:"constraints"`
	Triggers    map[string]string `json:"triggers"`
}

type column struct {
	Name      string   `json:"name"`
	Type      string   `json:"type"`
	Base      string   `json:"base"` // the type's bare name
	NotNull   bool     `json:"notNull"`
	Identity  string   `json:"identity"`
	Generated string   `json:"generated"`
	Default   string   `json:"default"`
	Granted   bool     `json:"granted"` // has privileges of its own
	Labels    []string `json:"labels"`  // of an enum
}

type index struct {
	Name       string   `json:"name"`
	Definition string   `json:"definition"`
	Valid      bool     `json:"valid"`
	Unique     bool     `json:"unique"`
	Predicate  string   `json:"predicate"`
	Keys       []string `json:"keys"`
	Constraint bool     `json:"constraint"` // a constraint's own
}

type constraint struct {
	Name       string   `json:"name"`
	Kind       string   `json:"kind"` // c, f, p, u
	Definition string   `json:"definition"`
	Valid      bool     `json:"valid"`
	Expression string   `json:"expression"` // of a check
	Target     string   `json:"target"`     // of a foreign key
	Columns    []string `json:"columns"`
	Targets    []string `json:"targets"`
}

func (s *shape) column(name string) *column {
	for i := range s.Columns {
		if s.Columns[i].Name == name {
			return &s.Columns[i]
		}
	}
	return nil
}

func (s *shape) index(name string) *index {
	for i := range s.Indexes {
		if s.Indexes[i].Name == name {
			return &s.Indexes[i]
		}
	}
	return nil
}

// has tells whether the table has the constraint, or one that says the same under another name. A
// check of that name is taken for it, whatever it says: what is there stays.
func (s *shape) has(want constraint) bool {
	return slices.ContainsFunc(s.Constraints, func(k constraint) bool {
		if k.Name == want.Name && k.Kind == want.Kind {
			return true
		}
		switch want.Kind {
		case "u", "p":
			return s.unique(want)
		case "f":
			return k.Kind == "f" && k.Target == want.Target && slices.Equal(k.Columns, want.Columns)
		}
		return k.Kind == want.Kind && strings.TrimSuffix(k.Definition, " NOT VALID") == want.Definition
	})
}

// unique tells whether an index makes exactly the constraint's columns unique. One of its own name
// is what it will be made of.
func (s *shape) unique(want constraint) bool {
	return slices.ContainsFunc(s.Indexes, func(i index) bool {
		own := i.Name == want.Name && !i.Constraint
		return i.Unique && i.Valid && i.Predicate == "" && slices.Equal(i.Keys, want.Columns) && !own
	})
}

// lacks tells whether anything of want is missing.
func (s *shape) lacks(want *shape) bool {
	return slices.ContainsFunc(want.Columns, func(c column) bool {
		have := s.column(c.Name)
		return have == nil || have.Default == "" && c.Default != "" || have.Identity != c.Identity || c.NotNull &&
			!have.NotNull
	}) || slices.ContainsFunc(want.Indexes, func(i index) bool { return !i.Constraint && s.index(i.Name) == nil }) ||
		slices.ContainsFunc(want.Constraints, func(k constraint) bool { return !s.has(k) })
}

// fits tells whether a column that is there does for the one that is wanted. A bare timestamp stays
// one.
func (c column) fits(want column) bool {
	if len(want.Labels) > 0 {
		return !slices.ContainsFunc(want.Labels, func(label string) bool { return !slices.Contains(c.Labels, label) })
	}
	return family(c.Base) == family(want.Base)
}

func family(base string) string {
	switch base {
	case "timestamp", "timestamptz":
		return "timestamptz"
	case "varchar", "text":
		return "text"
	case "int4", "int8":
		return "int8"
	}
	return base
}

// addition is the column as ADD COLUMN takes it. What would be computed for each row comes later.
func (c column) addition() string {
	text := c.Name + " " + c.Type
	if c.Default == "" || c.rewrites() {
		return text
	}
	if c.NotNull {
		text += " NOT NULL"
	}
	return text + " DEFAULT " + c.Default
}

// rewrites tells whether ADD COLUMN with its default would compute it for each row. now() is
// computed once.
func (c column) rewrites() bool {
	return c.Identity != "" || strings.Contains(c.Default, "(") && c.Default != "now()"
}

func namesOf[T any](all []T, name func(T) string) (names []string) {
	for _, one := range all {
		names = append(names, name(one))
	}
	return names
}
