package sqlitetable

import (
	"strings"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

// Quote returns the layout as the SQL templates need it.
func Quote(l outbox.Layout) sqltable.Layout {
	return sqltable.Quote(l, QuoteTable, QuoteName, sqltable.QuoteText)
}

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
