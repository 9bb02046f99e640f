package outbox

import (
	"fmt"
	"strings"
)

// Template builds a destination's name from a record, for instance "run:{key}". It knows {topic},
// {key} (the aggregate id), {type} (the aggregate type), {tenant} and {source}.
type Template struct {
	text  string
	parts []templatePart
}

type templatePart struct {
	literal string
	field   func(*Record) string
	name    string
}

var templateFields = map[string]func(*Record) string{
	"topic":  func(r *Record) string { return r.Topic },
	"key":    func(r *Record) string { return r.AggregateID },
	"type":   func(r *Record) string { return r.AggregateType },
	"tenant": func(r *Record) string { return r.TenantID },
	"source": func(r *Record) string { return r.Source },
}

// ParseTemplate reports unknown and unclosed placeholders.
func ParseTemplate(text string) (Template, error) {
	t := Template{text: text}
	rest := text
	for rest != "" {
		open := strings.IndexByte(rest, '{')
		if open != 0 {
			if open < 0 {
				open = len(rest)
			}
			t.parts = append(t.parts, templatePart{literal: rest[:open]})
			rest = rest[open:]
			continue
		}
		end := strings.IndexByte(rest, '}')
		if end < 0 {
			return Template{}, fmt.Errorf("parse destination %q: placeholder without a closing brace", text)
		}
		name := rest[1:end]
		field, ok := templateFields[name]
		if !ok {
			return Template{}, fmt.Errorf("parse destination %q: unknown placeholder {%s} "+
				"(known: {topic}, {key}, {type}, {tenant}, {source})", text, name)
		}
		t.parts = append(t.parts, templatePart{field: field, name: name})
		rest = rest[end+1:]
	}
	if len(t.parts) == 0 {
		return Template{}, fmt.Errorf("parse destination: the template is empty")
	}
	return t, nil
}

// String returns the template's text.
func (t Template) String() string { return t.text }

// Expand fills the placeholders from rec. A placeholder whose value is empty is an error: "run:"
// would mix all runs.
func (t Template) Expand(rec *Record) (string, error) {
	if len(t.parts) == 1 && t.parts[0].field != nil {
		if s := t.parts[0].field(rec); s != "" { // the common case, without a copy
			return s, nil
		}
	}
	var b strings.Builder
	for _, p := range t.parts {
		if p.field == nil {
			b.WriteString(p.literal)
			continue
		}
		s := p.field(rec)
		if s == "" {
			return "", fmt.Errorf("destination %q: the event has no %s", t.text, p.name)
		}
		b.WriteString(s)
	}
	return b.String(), nil
}
