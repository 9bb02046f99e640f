package sqlite

import (
	"strings"

	"github.com/outboxrelay/outbox/tables"
)

// quotedLayout is a layout as the SQL templates need it: identifiers and literals quoted.
type quotedLayout struct {
	tables.Layout
	DeleteDead  bool
	PayloadName string // as a text, to leave it out of a row's JSON
}

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
			*f = quoteName(*f)
		}
	}
	scope := make([]string, len(l.KeyScope))
	for i, c := range l.KeyScope {
		scope[i] = quoteName(c)
	}
	l.KeyScope = scope
	l.Table = quoteTable(l.Table)
	for _, f := range []*string{&l.Pending, &l.Retrying, &l.Delivered, &l.Dead} {
		*f = quoteText(*f)
	}
	q.Layout = l
	return q
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
