package sqltable

import "github.com/outboxrelay/outbox"

// Layout is a layout as the SQL templates need it: identifiers and literals quoted.
type Layout struct {
	outbox.Layout
	DeleteDead      bool
	DeleteDelivered bool
	PayloadName     string // as a text, to leave it out of a row's JSON
	TableName       string // as a text, which letters have

	Passing, Placed, Unheld bool // PostgreSQL's settle_*.sql only
	OneByOne, Pausing       bool // PostgreSQL's claim.sql only
	OneForm                 bool // SQLite: the table's own check sees to the form of next_retry_at

	// PostgreSQL's claims and dead letters of rows that cannot be read: each leaves out more of the
	// row than the one before it.
	Unreadable, NoPayload, Bare bool
}

// Quote returns the layout as the SQL templates need it. The functions quote a table, a column and
// a text.
func Quote(l outbox.Layout, table, column, text func(string) string) Layout {
	return Layout{
		Layout: l.Quoted(table, column, text), DeleteDead: l.Status == "",
		DeleteDelivered: l.Settle.Removes(), PayloadName: text(l.Payload), TableName: text(l.Table),
	}
}

// Reduced are the forms in which PostgreSQL stores the dead letter of a row that it cannot store in
// full, from most to least of the row.
func (l Layout) Reduced() (forms [3]Layout) {
	for i := range forms {
		forms[i] = l
		forms[i].Unreadable, forms[i].NoPayload, forms[i].Bare = true, i > 0, i > 1
	}
	return forms
}

// Names are the columns that a layout names.
func Names(l outbox.Layout) (names []string) {
	for _, c := range l.Columns() {
		names = append(names, c)
	}
	return names
}

// Needed is a table that a relay needs beside its own, with columns that not every version has.
type Needed struct {
	Table   string
	Columns []string
}

// Beside are those of every relay, and Archive is that of one that moves delivered rows there.
var (
	Beside = []Needed{
		{"outbox_lanes", []string{"owner", "epoch", "expires_at", "crashes", "trial_size", "trial_event"}},
		{"outbox_relays", []string{"owner", "name", "expires_at", "health", "serves"}},
		{"outbox_readers", []string{"reader"}},
		{"job_dlq", []string{"destination", "outbox_table", "event_key", "generation", "position", "origin"}},
		{"apps", []string{"namespace"}},
		{"outbox_pauses", []string{"destination"}},
	}
	Archive = Needed{"outbox_archive", []string{"position", "row"}}
)

// ReaderOf returns the reader that outbox_readers has for a table that is served with a layout, or
// "" where none is recorded: a log has many readers, and outbox_deliveries belongs to its sinks.
func ReaderOf(l outbox.Layout) string {
	switch {
	case !l.KeepsState() || l.Part != "":
		return ""
	case l.Reader != "":
		return "group:" + l.Reader
	}
	return "sinks"
}

// Column is a column as statements have it: its name, and that name as a text. JSON says that the
// layout has JSON in it (SQLite's only).
type Column struct {
	Name, Text string
	JSON       bool
}
