package sqlite

import (
	"strings"

	"github.com/outboxrelay/outbox"
)

// quotedLayout is a layout as the SQL templates need it: identifiers and literals quoted.
type quotedLayout struct {
	outbox.Layout
	DeleteDead  bool
	PayloadName string // as a text, to leave it out of a row's JSON
}

func quote(l outbox.Layout) quotedLayout {
	return quotedLayout{
		Layout: l.Quoted(quoteTable, quoteName, quoteText), DeleteDead: l.Status == "", PayloadName: quoteText(l.Payload),
	}
}

func quoteText(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

func quoteName(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }

// quoteTable quotes a name, and the attached database before it, if there is one.
func quoteTable(name string) string {
	parts := strings.Split(name, ".")
	for i := range parts {
		parts[i] = quoteName(parts[i])
	}
	return strings.Join(parts, ".")
}
