package postgres

import (
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/tables"
)

// quote returns the layout as the SQL templates need it: identifiers and literals quoted.
func quote(l tables.Layout) quotedLayout {
	if l.Retrying == "" {
		l.Retrying = l.Pending
	}
	q := quotedLayout{DeleteDead: l.Status == "", PayloadName: quoteText(l.Payload)}
	for _, f := range []*string{
		&l.ID, &l.Position, &l.Topic, &l.Payload, &l.Key, &l.KeylessScope, &l.AggregateType, &l.Tenant, &l.App, &l.Source,
		&l.SchemaID, &l.SchemaVersion, &l.Destinations, &l.Metadata, &l.Sequence, &l.OccurredAt, &l.WrittenAt, &l.TimeID, &l.Generation,
		&l.Status, &l.DeliveredAt, &l.Attempts, &l.NextRetryAt, &l.LastError, &l.ErrorHistory, &l.DeliveredTo,
	} {
		if *f != "" {
			*f = pgx.Identifier{*f}.Sanitize()
		}
	}
	scope := make([]string, len(l.KeyScope))
	for i, c := range l.KeyScope {
		scope[i] = pgx.Identifier{c}.Sanitize()
	}
	l.KeyScope = scope
	l.Table = quoteTable(l.Table)
	for _, f := range []*string{&l.Pending, &l.Retrying, &l.Delivered, &l.Dead} {
		*f = quoteText(*f)
	}
	q.Layout = l
	return q
}

type quotedLayout struct {
	tables.Layout
	DeleteDead  bool
	PayloadName string // as a text, to leave it out of a row's JSON
	Unreadable  bool   // claim.sql only
	OneByOne    bool   // the same
	Pausing     bool   // the same
	Passing     bool   // settle_*.sql only
	Unheld      bool   // the same
}

func quoteText(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

func quoteTable(name string) string { return pgx.Identifier(strings.Split(name, ".")).Sanitize() }
