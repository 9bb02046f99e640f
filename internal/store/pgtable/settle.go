package pgtable

import (
	"cmp"
	"math"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/errortext"
	"github.com/outboxrelay/outbox/internal/store/eventrow"
)

// Rows are rows as the templates of found.sql look them up.
type Rows struct {
	Positions []int64
	// Not uuid.UUID: pgx would take its driver.Valuer, by way of text, which was a fifth of the
	// relay's CPU.
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

// Deaths are rows that cannot arrive, for settle_dead.sql. They have one entry a failure: a record
// that failed at two destinations has two letters.
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
	d.Tenants = append(d.Tenants, cmp.Or(o.Record.TenantID, eventrow.DefaultTenant))
	for _, f := range o.Failures {
		d.rows.Add(o)
		d.attempts = append(d.attempts, int32(min(max(o.Attempts, 1), math.MaxInt32)))
		d.errors = append(d.errors, errortext.Fit(f.Error))
		d.reasons = append(d.reasons, string(f.Reason))
		d.destinations = append(d.destinations, errortext.Fit(f.Destination))
	}
}

// Abandon makes an outcome that cannot be recorded, for what it contains, that of a dead event:
// each delivery that cannot be copied becomes a dead letter. It reports whether the event is dead.
// A delivered event that owes nothing is not.
func Abandon(o *outbox.Outcome, refusal error) bool {
	for _, owed := range o.Owed {
		o.State, o.Attempts = outbox.Dead, max(o.Attempts, owed.Attempts)
		o.Failures = append(o.Failures, outbox.Failure{Destination: owed.Destination, Reason: outbox.ReasonDeliveryFailed,
			Error: owed.Sink + ": the delivery cannot be stored: " + refusal.Error()})
	}
	o.Owed = nil
	return o.State == outbox.Dead
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

// Debts are the rows of a settle of which sinks owe something, and what they owe.
type Debts struct {
	Rows
	lanes                                    []int16
	orderKeys                                []*int64
	keys                                     []*string
	topics, types, tenants, sources, schemas []string
	schemaVersions                           []int32
	sequences                                []int64
	payloads, metadata                       []string
	occurred, written                        []*time.Time
	rows, attempts                           []int32
	sinks, destinations, errors              []string
	delays                                   []int64 // microseconds
}

// Add adds a delivered outcome.
func (d *Debts) Add(o *outbox.Outcome) {
	r := o.Record
	d.Rows.Add(o)
	d.lanes = append(d.lanes, r.Lane)
	var key *string
	var orderKey *int64
	if r.Keyed {
		key, orderKey = &r.AggregateID, &r.OrderKey
	}
	d.keys, d.orderKeys = append(d.keys, key), append(d.orderKeys, orderKey)
	d.topics, d.types = append(d.topics, r.Topic), append(d.types, r.AggregateType)
	d.tenants, d.sources = append(d.tenants, r.TenantID), append(d.sources, r.Source)
	d.schemas, d.schemaVersions = append(d.schemas, r.SchemaID), append(d.schemaVersions, int32(r.SchemaVersion))
	d.sequences = append(d.sequences, r.Sequence)
	d.payloads, d.metadata = append(d.payloads, string(r.Payload)), append(d.metadata, string(r.RawMetadata))
	d.occurred, d.written = append(d.occurred, known(r.OccurredAt)), append(d.written, known(r.WrittenAt))
	for _, owed := range o.Owed {
		d.rows = append(d.rows, int32(len(d.lanes)))
		d.attempts = append(d.attempts, int32(owed.Attempts))
		d.sinks, d.destinations = append(d.sinks, owed.Sink), append(d.destinations, owed.Destination)
		d.errors = append(d.errors, errortext.Fit(owed.Error))
		d.delays = append(d.delays, owed.RetryIn.Microseconds())
	}
}

// known returns a time, or NULL.
func known(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

// Args are $5 and the following of settle_owed.sql.
func (d *Debts) Args() []any {
	return []any{d.Positions, d.IDs, d.Generations, d.rows, d.sinks, d.destinations, d.attempts, d.delays, d.errors,
		d.lanes, d.orderKeys, d.topics, d.keys, d.types, d.tenants, d.sources, d.schemas, d.schemaVersions, d.sequences,
		d.payloads, d.metadata, d.occurred, d.written}
}

// SplitLanes are lanes as the statements that are guarded by a lease have them.
func SplitLanes(lanes []outbox.Lane) (numbers []int16, epochs []int64) {
	numbers, epochs = make([]int16, len(lanes)), make([]int64, len(lanes))
	for i, l := range lanes {
		numbers[i], epochs[i] = l.Number, l.Epoch
	}
	return numbers, epochs
}
