package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/condition"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/operate"
)

// whyLogged explains an event of a log, which is looked for in the named one, or in all that the
// settings know.
func whyLogged(
	ctx context.Context, cfg config.Config, db Database, table, tenant, id string,
) (e condition.Explanation, err error) {
	for _, t := range cfg.Known() {
		if t.Layout.KeepsState() || table != "" && t.Name() != table {
			continue
		}
		found, readers, err := db.Logged(ctx, t.Layout, id, tenant)
		if _, missing := errors.AsType[*outbox.SchemaError](err); missing || errors.Is(err, operate.ErrNoEvent) {
			continue
		} else if err != nil {
			return e, err
		}
		e.Table, e.Event, e.Readers = t.Name(), found, readers
		written := fmt.Sprintf("it was written into %s at position %d", e.Table, found.Position)
		if found.WrittenAt != nil {
			written += fmt.Sprintf(", %s ago", time.Since(*found.WrittenAt).Round(time.Second))
		}
		e.Says = append(e.Says, written)
		for _, r := range readers {
			e.Says = append(e.Says, saysOf(r))
		}
		if len(readers) == 0 {
			e.Says = append(e.Says, "no group, subscription or relay has read the log yet")
		}
		return e, nil
	}
	return e, operate.ErrNoEvent
}

// saysOf says how far a reader has come with an event.
func saysOf(r operate.LogReader) string {
	who := map[string]string{"sinks": "the relay of the sinks", "group": "group " + r.Name,
		"subscription": "subscription " + r.Name}[r.Kind]
	why := ""
	if r.Error != "" {
		why = fmt.Sprintf(", after %d failed: %s", r.Attempts, r.Error)
	}
	switch {
	case r.Status == "other":
		return "it is not for " + who
	case r.Status == "dead":
		who += " gave it up: it is a dead letter" + why
	case r.Status == "given":
		who += " has given it to a consumer, which has not acknowledged it"
	case r.Status == "pending" && r.Kind == "subscription":
		who += " has it for the next consumer that asks" + why
	case r.Status == "pending":
		who += " has it among its failed events, or it waits behind one of them" + why
	case r.Passed:
		who += " has handled it"
	default:
		who += fmt.Sprintf(" has not reached it, and has up to %d events to pass before it", r.Before)
	}
	if r.Paused {
		who += "; it is paused"
	}
	return who
}
