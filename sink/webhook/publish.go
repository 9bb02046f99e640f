package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/late"
)

// publication is one call of Publish.
type publication struct {
	*Sink
	window
	batch   []outbox.Delivery
	states  map[string]*state // by destination
	defects map[string]error  // of destinations that cannot be used
}

// Publish implements outbox.Sink. A relay that says how long it waits has the slower answers later
// (internal/sink/late).
func (s *Sink) Publish(ctx context.Context, batch []outbox.Delivery) []outbox.Result {
	w, release := newWindow(ctx)
	defer release()
	p := &publication{Sink: s, window: w, batch: batch}
	if err := p.resolve(ctx); err != nil {
		results := make([]outbox.Result, len(batch))
		for i := range results {
			results[i].Err = outbox.Unavailable(fmt.Errorf("look up webhook endpoints: %w", err))
		}
		return results
	}
	return outbox.InOrder(context.WithoutCancel(ctx), batch, outbox.Sending{Send: func(i int, done func(outbox.Result)) {
		s.under.Go(func() { done(outbox.Result{Err: p.deliver(ctx, &batch[i])}) })
	}})
}

// deliver makes one request, if the endpoint is to be asked.
func (p *publication) deliver(ctx context.Context, d *outbox.Delivery) error {
	name := d.Destination
	if name == everyone {
		return outbox.Postponed(errors.New("who has subscribed to the events for * is not known"), lateWait)
	}
	if err := p.defects[name]; err != nil {
		return outbox.Permanent(err)
	}
	s := p.states[name]
	switch {
	case s.stored.defect != "":
		return outbox.Postponed(fmt.Errorf("endpoint %q: %s", name, s.stored.defect), defectWait)
	case s.Tenant != "" && s.Tenant != cmp.Or(d.TenantID, "default"):
		return outbox.Permanent(fmt.Errorf("endpoint %q is of another tenant than the event", name))
	}
	turn, err := s.enter(ctx, p.window)
	var rest *restError
	switch {
	case errors.As(err, &rest):
		return outbox.Postponed(fmt.Errorf("endpoint %q: %w", name, err), rest.left)
	case errors.Is(err, errGone):
		return outbox.Permanent(p.gone(name))
	case errors.Is(err, errLate): // the others of its endpoint come first
		return outbox.Postponed(fmt.Errorf("endpoint %q: %w", name, err), s.book())
	case err != nil: // the batch was given up
		return outbox.Unavailable(fmt.Errorf("endpoint %q: %w", name, err))
	}
	if p.patience == 0 {
		return p.send(ctx, s, turn, d)
	}
	one, answer := *d, make(chan error, 1)
	alone := &publication{Sink: p.Sink, window: p.window} // without what the batch holds
	p.under.Go(func() { answer <- alone.send(ctx, s, turn, &one) })
	timer := time.NewTimer(s.patience(p.patience))
	defer timer.Stop()
	select {
	case err := <-answer:
		return err
	case <-timer.C:
		s.straggles(turn)
		return outbox.Postponed(&late.Answer{C: answer}, s.Timeout)
	}
}

// send makes the request of a turn.
func (p *publication) send(ctx context.Context, s *state, turn pass, d *outbox.Delivery) error {
	name := d.Destination
	began := time.Now()
	a := p.post(ctx, s.target, d)
	s.leave(turn, a.verdict, a.after, time.Since(began), a.text())
	switch {
	case a.err == nil:
		return nil
	case a.verdict == unknown:
		return outbox.Unavailable(a.err)
	case a.verdict == leaves:
		p.cfg.Logger.Warn("webhook endpoint answered 410 Gone and is disabled", "endpoint", name)
		if t, ok := p.endpoints.(*endpointTable); ok {
			t.disable(ctx, s.Endpoint)
		}
		return outbox.Permanent(p.gone(name))
	case a.permanent:
		return outbox.Permanent(a.err)
	case a.unseen:
		return outbox.Postponed(a.err, max(a.after, s.left()))
	}
	return outbox.RetryAfter(a.err, max(a.after, p.wait(d)))
}

// gone says how an endpoint that answered 410 is enabled again.
func (s *Sink) gone(name string) error {
	if _, ok := s.endpoints.(*endpointTable); ok {
		return fmt.Errorf("endpoint %q %s, so it is disabled: %s", name, answeredGone, enableIt)
	}
	return fmt.Errorf("endpoint %q answered 410 Gone, so it is disabled: change its entry (another url), or call "+
		"Enable, or restart the relay to ask it again; then replay its dead letters", name)
}

// wait is how long an event waits at least after a further failure.
func (p *publication) wait(d *outbox.Delivery) time.Duration {
	n := min(max(d.Attempts, 0), len(p.cfg.Schedule)-1)
	return spread(p.cfg.Schedule[n])
}

// resolve looks the destinations of the batch up.
func (p *publication) resolve(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	seen := map[string]bool{}
	var names []string
	for i := range p.batch {
		if name := p.batch[i].Destination; !seen[name] && name != everyone {
			seen[name] = true
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	found, err := p.endpoints.Lookup(ctx, names...)
	if err != nil {
		return err
	}
	p.states, p.defects = map[string]*state{}, map[string]error{}
	for _, name := range names {
		if p.states[name], err = p.state(name, found); err != nil {
			p.defects[name] = err
		}
	}
	return nil
}

// state returns what is known of an endpoint. One whose entry has changed is a new one.
func (s *Sink) state(name string, found map[string]Endpoint) (*state, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := found[name]
	if !ok {
		delete(s.states, name)
		if _, ok := s.endpoints.(*endpointTable); ok {
			return nil, fmt.Errorf("there is no webhook endpoint %q: make it with outbox endpoints add, then replay its dead "+
				"letters", name)
		}
		return nil, fmt.Errorf("there is no webhook endpoint %q: add an entry with this name, a url and secrets to the "+
			"endpoints of the sink, then replay its dead letters", name)
	}
	switch {
	case e.Disabled && e.stored.revision != 0:
		delete(s.states, name)
		return nil, fmt.Errorf("endpoint %q is disabled (%s): %s", name, e.stored.why, enableIt)
	case e.Disabled:
		delete(s.states, name)
		return nil, fmt.Errorf("endpoint %q is disabled: take disabled out of its entry, then replay its dead letters", name)
	}
	if known := s.states[name]; known != nil && known.same(e) {
		return known, nil
	}
	if e.stored.defect != "" {
		return newState(&target{Endpoint: e}), nil
	}
	t, err := newTarget(e, s.cfg)
	if err != nil {
		return nil, err
	}
	s.states[name] = newState(t)
	return s.states[name], nil
}
