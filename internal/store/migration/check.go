package migration

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/outboxrelay/outbox"
)

// CheckColumns answers with an *outbox.SchemaError, whose remedy is the one for this table, if a
// table lacks one of the columns that are wanted. A table without columns is not there. same
// compares two names as the database does; nil: by the letter.
func CheckColumns(table string, have, want []string, same func(a, b string) bool) error {
	remedy := "add the columns or correct the layout"
	if len(have) == 0 {
		remedy = "make it or correct its name in the layout"
	}
	if set, ok := SetOf[table]; ok {
		remedy = "run: outbox migrate up --set " + set
	}
	if len(have) == 0 {
		return &outbox.SchemaError{Table: table, Remedy: remedy}
	}
	if same == nil {
		same = func(a, b string) bool { return a == b }
	}
	var missing []string
	for _, c := range want {
		if !slices.ContainsFunc(have, func(h string) bool { return same(h, c) }) && !slices.Contains(missing, c) {
			missing = append(missing, c)
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return &outbox.SchemaError{Table: table, Missing: missing, Remedy: remedy}
	}
	return nil
}

var (
	sqlComment  = regexp.MustCompile(`--[^\n]*`)
	makesTable  = regexp.MustCompile(`(?m)^ *CREATE (?:UNLOGGED )?TABLE (?:IF NOT EXISTS )?(\w+) \(`)
	addsColumn  = regexp.MustCompile(`(?m)^ *ALTER TABLE (\w+) ADD COLUMN (?:IF NOT EXISTS )?(\w+)`)
	definesName = regexp.MustCompile(`^\s*([a-z_0-9]+)\s`) // of a column; what else a table has begins with a word in capitals
)

// Columns returns the columns of the tables that a set makes, as its files say it.
func (m Files) Columns(set string) (map[string][]string, error) {
	tables := map[string][]string{}
	for _, one := range m.List(set) {
		file, err := fs.ReadFile(m.Files, set+"/"+one.Name+".up.sql")
		if err != nil {
			return nil, err
		}
		text := sqlComment.ReplaceAllString(string(file), "")
		for _, at := range makesTable.FindAllStringSubmatchIndex(text, -1) {
			name, depth, begin := text[at[2]:at[3]], 0, at[1]
			for i := begin; depth >= 0; i++ {
				switch text[i] {
				case '(':
					depth++
				case ')':
					depth--
				}
				if depth < 0 || depth == 0 && text[i] == ',' {
					if column := definesName.FindStringSubmatch(text[begin:i]); column != nil {
						tables[name] = append(tables[name], column[1])
					}
					begin = i + 1
				}
			}
		}
		for _, added := range addsColumn.FindAllStringSubmatch(text, -1) {
			tables[added[1]] = append(tables[added[1]], added[2])
		}
	}
	return tables, nil
}

// CheckApplied compares the tables of a set that is recorded as applied with those that exist. have
// returns the columns of tables.
func (m Files) CheckApplied(s SetStatus, have func(tables []string) (map[string][]string, error)) error {
	if s.Current != s.Latest || s.Dirty {
		return nil
	}
	tables, err := m.Columns(s.Set)
	if err != nil {
		return err
	}
	exist, err := have(slices.Collect(maps.Keys(tables)))
	if err != nil {
		return fmt.Errorf("compare the tables of set %s: %w", s.Set, err)
	}
	var lacking []string
	for table, want := range tables {
		columns := exist[table]
		missing, ok := errors.AsType[*outbox.SchemaError](CheckColumns(table, columns, want, strings.EqualFold))
		switch {
		case !ok:
		case len(columns) == 0:
			lacking = append(lacking, "table "+table)
		default:
			lacking = append(lacking, fmt.Sprintf("%s of table %s", strings.Join(missing.Missing, ", "), table))
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	slices.Sort(lacking)
	return fmt.Errorf("set %s is recorded at version %d, and the database lacks %s: another build made the tables, "+
		"or they were changed since; restore what is missing from a backup, or, where nothing in them is needed, run "+
		"`outbox migrate down --set %s --all` and then `outbox migrate up`", s.Set, s.Current,
		strings.Join(lacking, "; "), s.Set)
}
