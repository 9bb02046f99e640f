package pgtable

import (
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/errortext"
	"github.com/outboxrelay/outbox/internal/store/eventrow"
)

// Rows are rows as the templates of found.sql look them up.
type Rows struct {
	Positions []int64
	// Not uuid.UUID: pgx would take its driver.Valuer, by way of text, which was a fifth of the relay's CPU.
	IDs         [][16]byte
	Generations []int32
	Places      []pgtype.TID // of claims
}

// Add adds the row of an outcome.
func (r *Rows) Add(o *outbox.Outcome) {
	r.Positions = append(r.Positions, o.Record.Position)
	r.IDs = append(r.IDs, o.Record.ID)
	r.Generations = append(r.Generations, int32(o.Record.Generation))
	place := o.Record.Place
	r.Places = append(r.Places,
		pgtype.TID{BlockNumber: uint32(place >> 16), OffsetNumber: uint16(place), Valid: true})
}

// Deaths are rows that cannot arrive, for settle_dead.sql. They have one entry a failure: a record that failed at two
// destinations has two letters.
type Deaths struct {
	Records int
	Tenants []string // for settle_apps.sql

	rows                          Rows
	attempts                      []int32
	errors, reasons, destinations []string
}

// Add adds a dead outcome.
func (d *Deaths) Add(o *outbox.Outcome) {
	d.Records++
	tenant := o.Record.TenantID
	if tenant == "" {
		tenant = eventrow.DefaultTenant
	}
	d.Tenants = append(d.Tenants, tenant)
	for _, f := range o.Failures {
		d.rows.Add(o)
		d.attempts = append(d.attempts, int32(max(o.Attempts, 1)))
		d.errors = append(d.errors, errortext.Fit(f.Error))
		d.reasons = append(d.reasons, string(f.Reason))
		d.destinations = append(d.destinations, f.Destination)
	}
}

// Unheld are the parameters of settle_dead.sql where nobody's lease is asked for.
func (d *Deaths) Unheld(table string) []any {
	return append([]any{"", [16]byte{}, []int16{}, []int64{}}, d.Args(table)...)
}

// Args are the parameters of settle_dead.sql after the four that say who settles.
func (d *Deaths) Args(table string) []any {
	return []any{d.rows.Positions, d.rows.IDs, d.rows.Generations, d.attempts, d.errors, d.reasons, d.destinations,
		eventrow.DefaultTenant, table}
}
