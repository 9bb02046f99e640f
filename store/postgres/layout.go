package postgres

import (
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
)

// quote returns the layout as the SQL templates need it: identifiers and literals quoted.
func quote(l outbox.Layout) quotedLayout {
	return quotedLayout{
		Layout: l.Quoted(quoteTable, quoteColumn, quoteText), DeleteDead: l.Status == "", PayloadName: quoteText(l.Payload),
	}
}

type quotedLayout struct {
	outbox.Layout
	DeleteDead  bool
	PayloadName string // as a text, to leave it out of a row's JSON
	Unreadable  bool   // claim.sql only
	OneByOne    bool   // the same
	Pausing     bool   // the same
	Passing     bool   // settle_*.sql only
	Unheld      bool   // the same
}

func quoteText(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

func quoteColumn(name string) string { return pgx.Identifier{name}.Sanitize() }

func quoteTable(name string) string { return pgx.Identifier(strings.Split(name, ".")).Sanitize() }
