package operate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/cold"
	paused "github.com/outboxrelay/outbox/internal/store/pause"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

// Pause keeps relays from delivering what it names: a table, what one of its sinks owes, or a topic
// or a destination of those or of all tables. Events wait in their table, uncounted and in their
// order, and with them what is behind them in their keys. An event that goes to several
// destinations waits as soon as one of them is paused.
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

// TableAndSink takes apart what Pause.Name and Layout.Name put together: the events' table, and the
// sink that owes them. Of any other table the sink is "".
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

// Check refuses what names nothing, or what is no pause. sign stands before the names of what can
// be said: -- of flags.
func (p Pause) Check(sign string) error {
	why := ""
	switch {
	case p.To != "" && p.Table == "":
		why = fmt.Sprintf("sink %s: of which table? Give its %stable, which has routes", p.To, sign)
	case p.Table == "" && p.Topic == "" && p.Destination == "":
		why = fmt.Sprintf("say what: %[1]stable, %[1]stopic or %[1]sdestination, or one of the last two with a %[1]stable",
			sign)
	case p.Topic != "" && p.Destination != "":
		why = fmt.Sprintf("%[1]stopic and %[1]sdestination: pause the one or the other, or each by itself", sign)
	default:
		return nil
	}
	return errors.New(why)
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

// Pauses are what operators have paused. Running relays obey with their next check of their lease,
// twice a second. They need the rights of outbox_operator; reading is also outbox_reader's. It is
// safe for concurrent use.
type Pauses struct{ db cold.Database }

// Pauses answers with a *outbox.SchemaError where the database has no table of pauses yet.
func (d Database) Pauses(ctx context.Context) (*Pauses, error) {
	if err := d.db.Check(ctx, "outbox_pauses", nil); err != nil {
		return nil, err
	}
	return &Pauses{d.db}, nil
}

// pauseQuery is what the files pause_*.sql are given.
type pauseQuery struct {
	Pause
	Leased string // its table, as relays look for their pauses
	Now    time.Time
}

// Pauses returns all, those of every table first.
func (p *Pauses) Pauses(ctx context.Context) (all []Pause, err error) {
	if all, err = listPauses(ctx, cold.In(p.db, p.db.Alone()), ""); err != nil {
		return nil, fmt.Errorf("list pauses: %w", p.db.Explain(err))
	}
	return all, nil
}

// listPauses returns those that concern a table, "" for all.
func listPauses(ctx context.Context, tx *cold.Tx, leased string) (all []Pause, err error) {
	err = tx.Each(ctx, "pause_list", pauseQuery{Leased: leased}, func(rows cold.Rows) error {
		var one Pause
		var at sqltable.Text
		err := rows.Scan(&one.Table, &one.Topic, &one.Destination, &one.Reason, &one.Actor, &at)
		if since := at.Moment(); since != nil {
			one.At = *since
		}
		one.Table, one.To = TableAndSink(one.Table)
		all = append(all, one)
		return err
	})
	return all, err
}

// Pause adds one, or gives the one of those names a new reason. It is recorded in outbox_audit.
func (p *Pauses) Pause(ctx context.Context, pause Pause) error {
	if _, err := p.change(ctx, "pause", "pause_add", pause); err != nil {
		return fmt.Errorf("pause: %w", err)
	}
	return nil
}

// Resume removes the one of those names, and tells whether it was there. It is recorded likewise,
// with the actor and reason of pause.
func (p *Pauses) Resume(ctx context.Context, pause Pause) (bool, error) {
	found, err := p.change(ctx, "resume", "pause_remove", pause)
	if err != nil {
		return false, fmt.Errorf("resume: %w", err)
	}
	return found, nil
}

// Obeyed returns the processes that a pause concerns and that have reported that they obey what is
// paused now, and those that have not: each with nothing of it in flight. A process that is
// stopping reports nothing, and is late until it has gone.
func (p *Pauses) Obeyed(ctx context.Context, pause Pause) (obeyed, late []string, err error) {
	if pause.Table != "" {
		if pause.Table, err = p.db.Leased(ctx, pause.Table); err != nil {
			return nil, nil, err
		}
	}
	obeys := map[string]bool{}
	err = cold.Read(ctx, p.db, func(tx *cold.Tx) error {
		all, err := listPauses(ctx, tx, "")
		if err != nil {
			return err
		}
		return tx.Each(ctx, "pause_obeyed", pauseQuery{Now: time.Now()}, func(rows cold.Rows) error {
			var leased, name string
			var told sqltable.Text
			err := rows.Scan(&leased, &name, &told)
			of, _ := TableAndSink(leased)
			if leased != pause.Name() && (pause.To != "" || pause.Table != "" && of != pause.Table) {
				return err
			}
			var now outbox.Paused
			for _, one := range all {
				if by := one.Name(); by == "" || by == leased || by == of {
					paused.Add(&now, one.Topic, one.Destination)
				}
			}
			before, known := obeys[name]
			obeys[name] = (before || !known) && paused.Text(now) == told.S
			return err
		})
	})
	if err != nil {
		return nil, nil, fmt.Errorf("ask which processes obey: %w", err)
	}
	obeyed, late = []string{}, []string{} // [] in JSON
	for _, name := range slices.Sorted(maps.Keys(obeys)) {
		if obeys[name] {
			obeyed = append(obeyed, name)
		} else {
			late = append(late, name)
		}
	}
	return obeyed, late, nil
}

// change runs a statement for what a pause names, and records it if it changed something.
func (p *Pauses) change(ctx context.Context, action, statement string, pause Pause) (changed bool, err error) {
	if pause.Table != "" {
		if pause.Table, err = p.db.Leased(ctx, pause.Table); err != nil {
			return false, err
		}
	}
	q := pauseQuery{pause, pause.Name(), time.Now()}
	err = cold.Write(ctx, p.db, func(tx *cold.Tx) error {
		n, err := tx.Change(ctx, statement, q)
		if changed = n > 0; err != nil || !changed {
			return err
		}
		return tx.Record(ctx,
			cold.Action{Actor: pause.Actor, Action: action, Reason: pause.Reason, Filter: pause.Names()})
	})
	return changed, err
}
