package outbox

import (
	"context"
	"strings"
	"time"
)

// deliveriesTable holds what sinks still owe: see DeliveriesOf.
const deliveriesTable = "outbox_deliveries"

// DeliveriesOf is the part of outbox_deliveries that holds what a sink has not taken of the events
// of a table, which is named as its lanes are leased (DeliveryStore.LeaseName). It is an outbox of
// its own: a relay serves it as one more table, with the lanes, retries and dead letters of any
// other. With an empty sink it is all of outbox_deliveries, to look at and not to serve.
func DeliveriesOf(table, sink string) Layout {
	l := Layout{
		Table: deliveriesTable,
		ID:    "event_id", Position: "position", Topic: "event_topic", Payload: "payload",
		Key: "event_key", KeyScope: []string{"outbox_table", "order_key"},
		AggregateType: "aggregate_type", Tenant: "tenant_id", Source: "source",
		SchemaID: "schema_id", SchemaVersion: "schema_version",
		Destinations: "destinations", Metadata: "metadata", Sequence: "sequence",
		OccurredAt: "occurred_at", WrittenAt: "written_at", Generation: "generation",
		Status: "status", Pending: "pending", Delivered: "delivered", Dead: "dead", DeliveredAt: "delivered_at",
		Attempts: "attempts", NextRetryAt: "next_retry_at", LastError: "last_error", ErrorHistory: "error_history",
	}
	if sink != "" {
		l.Part, l.PartValue, l.Of = "queue", table+"/"+sink, table
	}
	return l
}

// Owed is a delivery that a sink has not taken, and that is not waited for.
type Owed struct {
	Sink, Destination string
	Attempts          int           // failed ones so far
	RetryIn           time.Duration // by the database's clock; 0 is at once
	Error             string        // "" if nothing went wrong: it is behind another one
}

// DeliveryStore is a Store whose Settle records Outcome.Owed in outbox_deliveries, in the same
// transaction as the outcome. A table with Routes needs one.
type DeliveryStore interface {
	Store
	// Owes returns, by lane, those of the sinks with rows in outbox_deliveries that are neither
	// delivered nor dead.
	Owes(ctx context.Context, lanes []int16, sinks []string) (map[int16][]string, error)
	// LeaseName is the name by which the table's lanes are leased.
	LeaseName() string
}

// Debtor is a sink with rows in outbox_deliveries that are neither delivered nor dead.
type Debtor struct {
	Table  string // whose events these are, by the name by which its lanes are leased
	Sink   string
	Served bool // a relay delivers them
}

// OfGroup tells whether the events failed in a consumer group of a log, and not at a sink. Only the
// group's processes deliver them.
func (d Debtor) OfGroup() bool { return strings.HasSuffix(d.Table, "/"+d.Sink) }

// Name is the table's, and for a part or a reader of one also which: what relays lease lanes by,
// and what logs, metrics and pauses call it.
func (l Layout) Name() string {
	switch {
	case l.Part != "":
		return l.Table + "/" + l.PartValue
	case l.Reader != "" && !l.KeepsState():
		return l.Table + "/" + l.Reader
	}
	return l.Table
}
