package config

import (
	"errors"
	"fmt"
	"os"

	"go.yaml.in/yaml/v3"

	"github.com/outboxrelay/outbox/tables"
)

// mappedTable is one entry of a list of layouts: tables.Layout's keys, and what only the relay needs to know.
type mappedTable struct {
	tables.Layout `koanf:",squash"`
	Like          string `koanf:"like"`         // start from the layout of this table of ours; other keys change it
	Destination   string `koanf:"destination"`  // template
	MaxAttempts   int    `koanf:"max_attempts"` // 0: the relay's default
}

// readLayouts reads the file of --layout: a YAML list, alone or under the key layouts as in the file of --config.
func readLayouts(path string) ([]any, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("layout file: %w: correct --layout or OUTBOX_LAYOUT", err)
	}
	var list []any
	listErr := yaml.Unmarshal(text, &list)
	if listErr == nil {
		return list, nil
	}
	var file struct {
		Layouts []any `yaml:"layouts"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil || file.Layouts == nil {
		return nil, fmt.Errorf("layout file %s: want a YAML list of tables, or one under the key layouts: %w", path, errors.Join(listErr, err))
	}
	return file.Layouts, nil
}

// mapped turns the entries of a list into tables. where is how problems name the list.
func mapped(where string, entries []any, problems *Error) (tables []Table) {
	for i, entry := range entries {
		at := fmt.Sprintf("%s, entry %d", where, i+1)
		var m mappedTable
		unused, known, err := decode(entry, &m)
		if err != nil {
			problems.add("%s: %v", at, err)
			continue
		}
		at += fmt.Sprintf(" (table %q)", m.Table)
		if len(unused) > 0 {
			problems.add("%s: %s", at, unknownKeys(unused, known))
			continue
		}
		t := Table{Required: true}
		if m.Like != "" {
			base, ok := find(builtin(), m.Like)
			if !ok {
				problems.add("%s: like: there is no table %q: it is one of %s", at, m.Like, names(builtin()))
				continue
			}
			t.Destination, t.MaxAttempts = base.Destination, base.MaxAttempts
			m = mappedTable{Layout: base.Layout}
			if _, _, err := decode(entry, &m); err != nil { // once more, over the base
				problems.add("%s: %v", at, err)
				continue
			}
		}
		if err := m.Validate(); err != nil {
			problems.add("%s: %v", where, err)
			continue
		}
		t.Layout = m.Layout
		if m.Destination != "" {
			t.Destination = m.Destination
		}
		if m.MaxAttempts != 0 {
			t.MaxAttempts = m.MaxAttempts
		}
		if t.MaxAttempts < 0 {
			problems.add("%s: max_attempts is %d, must be positive", at, t.MaxAttempts)
		}
		tables = append(tables, t)
	}
	return tables
}
