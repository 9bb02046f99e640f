package tabletest

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

// Undertaker serves a table and lets its events die, or arrive.
type Undertaker struct {
	Store outbox.Store
	Owner uuid.UUID
	Lanes []outbox.Lane
	t     *testing.T
}

// Bury takes all lanes of a table.
func (d Database) Bury(t *testing.T, layout outbox.Layout) Undertaker {
	t.Helper()
	u := Undertaker{t: t, Store: d.Open(t, layout), Owner: NewID(t)}
	leased, err := u.Store.Lease(t.Context(), outbox.LeaseRequest{Owner: u.Owner, Name: "undertaker", TTL: time.Minute})
	if err != nil || len(leased.Lanes) != outbox.LaneCount {
		t.Fatalf("leased %d lanes of %s, error %v", len(leased.Lanes), layout.Table, err)
	}
	u.Lanes = leased.Lanes
	return u
}

// Settle claims everything there is, settles it as dead at the destinations that fails names, or as
// delivered if it names none, and returns it in the order of positions.
func (u Undertaker) Settle(fails func(*outbox.Record) []string) []*outbox.Record {
	u.t.Helper()
	records, err := u.Store.Claim(u.t.Context(), u.Lanes, outbox.ClaimLimit{Records: 1000, Bytes: 8 << 20})
	if err != nil {
		u.t.Fatal(err)
	}
	var outcomes []outbox.Outcome
	for _, r := range records {
		o := outbox.Outcome{Record: r, State: outbox.Delivered, Attempts: r.Attempts + 1}
		for _, d := range fails(r) {
			o.State = outbox.Dead
			o.Failures = append(o.Failures,
				outbox.Failure{Destination: d, Reason: outbox.ReasonDeliveryFailed, Error: "connection refused by " + d})
		}
		outcomes = append(outcomes, o)
	}
	if got, err := u.Store.Settle(u.t.Context(), u.Owner, u.Lanes, outcomes); err != nil ||
		got.Delivered+got.Dead != len(records) {
		u.t.Fatalf("settled %+v of %d, error %v", got, len(records), err)
	}
	slices.SortFunc(records, func(a, b *outbox.Record) int { return int(a.Position - b.Position) })
	return records
}

// DieAt lets every event die at the same destinations.
func DieAt(destinations ...string) func(*outbox.Record) []string {
	return func(*outbox.Record) []string { return destinations }
}

// Arrive lets every event arrive.
func Arrive(*outbox.Record) []string { return nil }

// OneTable is a database with one table, and nothing to listen to.
type OneTable struct{ outbox.Store }

// OpenTable implements outbox.Database.
func (d OneTable) OpenTable(context.Context, outbox.Layout) (outbox.Store, error) {
	return d.Store, nil
}

// Watch implements outbox.Database.
func (OneTable) Watch([]outbox.Store) (func(context.Context, []bool) ([]outbox.Watched, error), error) {
	return nil, nil
}

// Debtors implements outbox.Database.
func (OneTable) Debtors(context.Context) ([]outbox.Debtor, error) { return nil, nil }

// Listen implements outbox.Database.
func (OneTable) Listen(ctx context.Context, _ *slog.Logger, _ func(string)) error { return ended(ctx) }

// Retain implements outbox.Database.
func (OneTable) Retain(ctx context.Context, _ outbox.Layout, _ outbox.Retention) error {
	return ended(ctx)
}

// RetainLetters implements outbox.Database.
func (OneTable) RetainLetters(ctx context.Context, _ outbox.Retention) error { return ended(ctx) }

func ended(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
