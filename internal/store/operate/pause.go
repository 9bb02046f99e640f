package operate

import (
	"strings"
	"time"

	"github.com/outboxrelay/outbox"
)

// Pause keeps relays from delivering what it names: a table, what one of its sinks owes, or a topic or a destination of
// those or of all tables. Events wait in their table, uncounted and in their order, and with them what is behind them
// in their keys. An event that goes to several destinations waits as soon as one of them is paused.
type Pause struct {
	Table       string    `json:"table"`       // "": every table
	To          string    `json:"to"`          // a sink of a Table with routes; "": the table, and all of its sinks
	Topic       string    `json:"topic"`       // a name, or a pattern in which * stands for any text; "": every topic
	Destination string    `json:"destination"` // likewise; never beside a Topic
	Reason      string    `json:"reason"`
	Actor       string    `json:"actor"`
	At          time.Time `json:"pausedAt"`
}

// Name is the table's, by which relays look for their pauses: with a sink that of what it owes.
func (p Pause) Name() string {
	if p.To == "" {
		return p.Table
	}
	return outbox.DeliveriesOf(p.Table, p.To).Name()
}

// TableAndSink takes apart what Pause.Name and Layout.Name put together: the events' table, and the sink that owes
// them. Of any other table the sink is "".
func TableAndSink(name string) (table, sink string) {
	part, owed := strings.CutPrefix(name, outbox.DeliveriesOf("", "").Table+"/")
	end := strings.LastIndexByte(part, '/') // a table may have a / in its name, a sink of the settings may not
	if !owed || end < 0 {
		return name, ""
	}
	return part[:end], part[end+1:]
}

// auditOf is how outbox_audit names a table, or what a sink owes of one.
func auditOf(l outbox.Layout) map[string]any {
	table, sink := TableAndSink(l.Name())
	if sink == "" {
		return map[string]any{"table": table}
	}
	return map[string]any{"table": table, "to": sink}
}

// Names are what the pause is of, by what outbox_audit calls it.
func (p Pause) Names() map[string]string {
	names := map[string]string{"table": p.Table, "topic": p.Topic}
	if p.To != "" {
		names["to"] = p.To
	}
	if p.Destination != "" {
		names["destination"] = p.Destination
	}
	return names
}
