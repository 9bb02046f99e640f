package dev

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/backoff"
	"github.com/outboxrelay/outbox/internal/store/operate"
)

// Incident is captured events that are tried here.
type Incident struct {
	Events []outbox.Event
	Told   func(line string) // what becomes of them
}

// enact writes the events as they were captured, and tells what becomes of each until none waits or
// ctx ends.
func (p *page) enact(ctx context.Context, of Incident) error {
	var ids []uuid.UUID
	var events []outbox.Event
	for _, e := range of.Events {
		prepared, err := p.writing.Prepare(ctx, e)
		if err != nil {
			return fmt.Errorf("event %s: %w", e.ID, err)
		}
		ids, events = append(ids, e.ID), append(events, prepared)
	}
	known, err := p.writing.Commit(ctx, events, ids)
	if err != nil {
		return err
	}
	for _, e := range events {
		what := "written"
		if slices.Contains(known, e.ID) {
			what = "was in the table already and is left as it is"
		}
		of.Told(fmt.Sprintf("event %s  %s  key %s  %s", e.ID, e.Topic, e.AggregateID, what))
	}
	last := map[uuid.UUID]string{}
	for len(ids) > 0 {
		if !backoff.Wait(ctx, look) {
			return nil
		}
		for _, id := range slices.Clone(ids) {
			now, err := p.events.Show(ctx, id.String(), "")
			gone := errors.Is(err, operate.ErrNoEvent)
			if err != nil && !gone {
				continue // the file may be busy
			}
			said, done := "has left the table", true
			if !gone {
				said, done = p.outcome(now)
			}
			if said != "" && said != last[id] {
				of.Told(fmt.Sprintf("event %s  %s", id, said))
			}
			last[id] = said
			if done {
				ids = slices.DeleteFunc(ids, func(other uuid.UUID) bool { return other == id })
			}
		}
	}
	return nil
}

// outcome is what became of an event, "" if nothing yet; done: it stays that.
func (p *page) outcome(e operate.EventDetail) (said string, done bool) {
	failed := operate.Text(e.LastError)
	switch {
	case e.Status == p.layout.Dead:
		return fmt.Sprintf("DEAD after %d failures: %s", e.Attempts, failed), true
	case !e.Undelivered(p.layout):
		said = "delivered to " + strings.Join(e.GoesTo(p.layout, p.template), ", ")
		done = true
		for _, d := range e.Deliveries {
			if d.Status == "delivered" {
				continue
			}
			said += fmt.Sprintf("; %s has not taken it", d.Sink)
			if d.LastError != nil {
				said += ": " + *d.LastError
			}
			done = done && d.Status == "dead"
		}
		return said, done
	case e.Attempts > 0:
		return fmt.Sprintf("failed (%d): %s", e.Attempts, failed), false
	case e.WaitsBehind != nil:
		return "waits behind event " + e.WaitsBehind.String(), false
	}
	return "", false
}
