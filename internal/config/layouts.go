package config

import (
	"fmt"
	"os"

	"go.yaml.in/yaml/v3"

	"github.com/outboxrelay/outbox"
)

// mappedTable is one entry of a list of layouts: outbox.Layout's keys, and what only the relay needs to know.
type mappedTable struct {
	outbox.Layout `yaml:",squash"`
	Like          string `yaml:"like"`         // start from the layout of this table of ours; other keys change it
	Destination   string `yaml:"destination"`  // template
	MaxAttempts   int    `yaml:"max_attempts"` // 0: the relay's default
}

// layouts returns the mapped tables of the files that --layouts names, or of the entries and files in that of --config.
func (c *Config) layouts(problems *Error) (tables []Table) {
	var here []any
	for _, entry := range c.Layouts {
		path, isFile := entry.(string)
		if !isFile {
			here = append(here, entry)
			continue
		}
		entries, err := readLayouts(path)
		if err != nil {
			problems.add("%v", err)
		}
		tables = append(tables, mapped("layout file "+path, entries, problems)...)
	}
	return append(tables, mapped("layouts in the config file", here, problems)...)
}

// readLayouts reads a file of layouts: a YAML list, alone or under the key layouts as in the file of --config.
func readLayouts(path string) ([]any, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("layout file: %w: correct --layouts or OUTBOX_LAYOUTS", err)
	}
	top, err := readYAML(path, text)
	if err != nil {
		return nil, fmt.Errorf("layout file %w", err)
	}
	if top != nil && top.Kind == yaml.MappingNode {
		file := map[string]yaml.Node{}
		if err := into(path, top, &file); err != nil {
			return nil, fmt.Errorf("layout file %w", err)
		}
		list := file["layouts"]
		top = &list
	}
	if top == nil || top.Kind != yaml.SequenceNode {
		return nil, fmt.Errorf("layout file %s: want a YAML list of tables, or one under the key layouts", path)
	}
	var entries []any
	if err := into(path, top, &entries); err != nil {
		return nil, fmt.Errorf("layout file %w", err)
	}
	return entries, nil
}

// mapped turns the entries of a list into tables. where is how problems name the list.
func mapped(where string, entries []any, problems *Error) (tables []Table) {
	for i, entry := range entries {
		at := fmt.Sprintf("%s, entry %d", where, i+1)
		var m mappedTable
		unused, wrong := decode(entry, &m)
		if m.Table != "" {
			at += fmt.Sprintf(" (table %q)", m.Table)
		}
		if problems.entry(at, unused, wrong) {
			continue
		}
		t := Table{Required: true}
		if m.Like != "" {
			base, ok := find(builtin(), m.Like)
			if !ok {
				problems.add("%s: like: there is no table %q: it is one of %s", at, m.Like, names(builtin()))
				continue
			}
			t.Destination, t.MaxAttempts, t.BackoffBase = base.Destination, base.MaxAttempts, base.BackoffBase
			m = mappedTable{Layout: base.Layout}
			decode(entry, &m) // once more, over the base
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

// entry adds what is wrong with an entry of a list, and tells whether that is anything.
func (e *Error) entry(at string, unused, wrong []string) bool {
	for _, problem := range wrong {
		e.add("%s: %s", at, problem)
	}
	if len(unused) > 0 {
		e.add("%s: %s", at, unknownKeys(unused))
	}
	return len(wrong)+len(unused) > 0
}
