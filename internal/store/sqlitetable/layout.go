package sqlitetable

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/sqlitetime"
)

// Layout is a layout as the SQL templates need it: identifiers and literals quoted.
type Layout struct {
	outbox.Layout
	DeleteDead  bool
	PayloadName string // as a text, to leave it out of a row's JSON
	OneForm     bool   // the table's own check sees to the form of next_retry_at
}

// Quote returns the layout as the SQL templates need it.
func Quote(l outbox.Layout) Layout {
	return Layout{
		Layout: l.Quoted(QuoteTable, QuoteName, QuoteText), DeleteDead: l.Status == "", PayloadName: QuoteText(l.Payload),
	}
}

// QuoteText makes a literal of a text.
func QuoteText(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// QuoteName quotes the name of a column or an index.
func QuoteName(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }

// QuoteTable quotes a name, and the attached database before it, if there is one.
func QuoteTable(name string) string {
	parts := strings.Split(name, ".")
	for i := range parts {
		parts[i] = QuoteName(parts[i])
	}
	return strings.Join(parts, ".")
}

// Arguments collects what a template gives its statement.
type Arguments struct{ Args []any }

var globEscapes = strings.NewReplacer("[", "[[]", "?", "[?]")

// Call implements sqlfile.Caller: arg adds a value to the arguments of the statement and returns the parameter that
// stands for it, glob a pattern in which only * means something.
func (a *Arguments) Call(function string, v any) (any, error) {
	text, isText := v.(string)
	switch {
	case function == "arg":
		return a.Add(v)
	case function == "glob" && isText:
		return a.Add(globEscapes.Replace(text))
	}
	return nil, fmt.Errorf("there is no %s of %T", function, v)
}

// Add adds a value, in the form that tables have it, and returns its parameter.
func (a *Arguments) Add(v any) (string, error) {
	switch value := v.(type) {
	case time.Time:
		v = sqlitetime.Stamp(value)
	case uuid.UUID:
		v = value.String()
	case []uuid.UUID:
		text, err := json.Marshal(value)
		if err != nil {
			return "", fmt.Errorf("encode ids: %w", err)
		}
		v = string(text)
	}
	a.Args = append(a.Args, v)
	return "?" + strconv.Itoa(len(a.Args)), nil
}
