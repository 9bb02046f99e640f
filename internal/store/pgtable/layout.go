package pgtable

import (
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

// Quote returns the layout as the SQL templates need it.
func Quote(l outbox.Layout) sqltable.Layout {
	return sqltable.Quote(l, QuoteTable, QuoteColumn, sqltable.QuoteText)
}

// QuoteTable quotes a table's name, and the schema before it, if there is one.
func QuoteTable(name string) string { return pgx.Identifier(strings.Split(name, ".")).Sanitize() }

// QuoteColumn quotes a column's name.
func QuoteColumn(name string) string { return pgx.Identifier{name}.Sanitize() }

// Written is the layout of a table that a Writer writes into. It is that of outbox_events, or of
// outbox_log where this is its name, in whichever schema.
func Written(table string) outbox.Layout {
	layout := outbox.OutboxEvents()
	if log := outbox.OutboxLog(); table == log.Table || strings.HasSuffix(table, "."+log.Table) {
		layout = log
	}
	layout.Table = table
	return layout
}

// Watched is what a watch statement is given.
type Watched struct {
	sqltable.Layout
	Number int // of the table among those that are watched, from 1
}
