package operate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outboxrelay/outbox"
)

// Debt is what a sink has not taken of the events of a table with routes.
type Debt struct {
	Sink     string   `json:"sink"`
	Table    string   `json:"table"`
	Owed     int      `json:"owed"`     // deliveries that it has still to take
	Retrying int      `json:"retrying"` // of those that wait for another attempt
	Oldest   *float64 `json:"oldest"`   // seconds since the first of their events was written; nil: none is owed
	Dead     int      `json:"dead"`     // deliveries with a letter that is pending
}

// DebtMove gives what a sink owes of a table to another one.
type DebtMove struct {
	Table, Sink, To string
	Skip            // who, why and in which run
}

// DebtMoved is how many deliveries have another sink now, and how many of the chosen that one had
// already: they count as delivered.
type DebtMoved struct{ Moved, Had int }

// detail is what outbox_audit has of a move.
func (m DebtMove) detail(done DebtMoved) map[string]any {
	return map[string]any{"table": m.Table, "to": m.Sink, "movedTo": m.To, "had": done.Had, "run": m.Run}
}

// Delivery is an event at one sink and destination that the sink did not take at once.
type Delivery struct {
	Sink        string     `json:"sink"`
	Destination string     `json:"destination"`
	Status      string     `json:"status"`   // pending, delivered or dead
	Attempts    int        `json:"attempts"` // failed ones
	NextRetryAt *time.Time `json:"nextRetryAt,omitempty"`
	LastError   *string    `json:"lastError,omitempty"`
	DeliveredAt *time.Time `json:"deliveredAt,omitempty"`
	// Paused is for whoever knows the pauses, as EventRow.Paused.
	Paused bool `json:"paused,omitempty"`
}

// DeliveriesOfTable is the part of outbox_deliveries that holds what any sink has not taken of a
// table's events, to look at and not to serve. The table is named as its lanes are leased.
func DeliveriesOfTable(table string) outbox.Layout {
	l := outbox.DeliveriesOf("", "")
	l.Part, l.PartValue = "outbox_table", table
	return l
}

// Pending is how many dead letters of a source (event or job) and table nobody has replayed or
// discarded.
type Pending struct {
	Source, Table string
	Letters       int
}

// Trouble is what hinders a relay, as it has told the database, or the database itself if Relay is
// empty.
type Trouble struct {
	Relay string            `json:"relay,omitempty"`
	Since *time.Time        `json:"since,omitempty"`
	Of    string            `json:"table,omitempty"` // by its name in leases
	Why   string            `json:"reason,omitempty"`
	Sinks map[string]string `json:"sinks,omitempty"` // reasons by name
	Slow  map[string]string `json:"slow,omitempty"`  // sinks that take, but take long, by name
}

// tell takes over what a relay has told (outbox.LeaseRequest has its form).
func (t *Trouble) tell(health []byte) error {
	var told struct {
		Table       string
		Sinks, Slow map[string]string
	}
	if err := json.Unmarshal(health, &told); err != nil {
		return fmt.Errorf("read what relay %s has told of %s: %w", t.Relay, t.Of, err)
	}
	t.Why, t.Sinks, t.Slow = told.Table, told.Sinks, told.Slow
	return nil
}

// Reasons are what it says, in the words of /readyz.
func (t Trouble) Reasons() (all []string) {
	for name, why := range t.Sinks {
		all = append(all, "sink "+name+": "+why)
	}
	slices.Sort(all)
	switch {
	case t.Why != "" && t.Relay == "":
		all = append(all, t.Why)
	case t.Why != "":
		all = append(all, t.Of+": "+t.Why)
	}
	return all
}

// Concerns tells whether it hinders a table, or what one of its sinks owes.
func (t Trouble) Concerns(table string) bool {
	of, _ := TableAndSink(t.Of)
	return t.Of == "" || of == table || strings.HasSuffix(of, "."+table) || strings.HasSuffix(table, "."+of)
}
