package pgtable

import (
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
)

// Layout is a layout as the SQL templates need it: identifiers and literals quoted.
type Layout struct {
	outbox.Layout
	DeleteDead      bool
	DeleteDelivered bool
	PayloadName     string // as a text, to leave it out of a row's JSON
	Passing         bool   // settle_*.sql only
	Placed          bool   // the same
	Unheld          bool   // the same
}

// Quote returns the layout as the SQL templates need it.
func Quote(l outbox.Layout) Layout {
	return Layout{
		Layout: l.Quoted(QuoteTable, quoteColumn, QuoteText), DeleteDead: l.Status == "",
		DeleteDelivered: l.Settle.Removes(), PayloadName: QuoteText(l.Payload),
	}
}

// QuoteText makes a literal of a text.
func QuoteText(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// QuoteTable quotes a table's name, and the schema before it, if there is one.
func QuoteTable(name string) string { return pgx.Identifier(strings.Split(name, ".")).Sanitize() }

func quoteColumn(name string) string { return pgx.Identifier{name}.Sanitize() }
