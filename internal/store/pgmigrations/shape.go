package pgmigrations

import (
	"slices"
	"strings"
)

// shape is what the catalog says of a table (adopt/tables.sql).
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

// has tells whether the table has the constraint, or one that says the same under another name. A check of that name
// is taken for it, whatever it says: what is there stays.
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

// unique tells whether an index makes exactly the constraint's columns unique. One of its own name is what it will be
// made of.
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

// fits tells whether a column that is there does for the one that is wanted. A bare timestamp stays one.
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

// rewrites tells whether ADD COLUMN with its default would compute it for each row. now() is computed once.
func (c column) rewrites() bool {
	return c.Identity != "" || strings.Contains(c.Default, "(") && c.Default != "now()"
}
