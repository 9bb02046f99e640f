package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/late"
)

// Publish implements outbox.Sink. A relay that says how long it waits has the slower answers later
// (internal/sink/late).
func (s *Sink) Publish(ctx context.Context, batch []outbox.Delivery) []outbox.Result {
	w, release := newWindow(ctx)
	defer release()
	found, err := s.lookup(ctx, batch)
	if err != nil {
		results := make([]outbox.Result, len(batch))
		for i := range results {
			results[i].Err = outbox.Unavailable(fmt.Errorf("look up webhook endpoints: %w", err))
		}
		return results
	}
	send := func(i int, done func(outbox.Result)) {
		s.under.Go(func() { done(outbox.Result{Err: s.deliver(ctx, w, found[batch[i].Destination], &batch[i])}) })
	}
	return outbox.InOrder(context.WithoutCancel(ctx), batch, outbox.Sending{Send: send})
}

// usable is an endpoint, or why nothing can be sent to it.
type usable struct {
	*state
	err error
}

// lookup finds the endpoints of a batch by their names.
func (s *Sink) lookup(ctx context.Context, batch []outbox.Delivery) (map[string]usable, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	found := map[string]usable{}
	var names []string
	for i := range batch {
		name := batch[i].Destination
		if _, seen := found[name]; seen {
			continue
		}
		found[name] = usable{err: outbox.Postponed(errNobodyKnown, lateWait)}
		if name != everyone {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return found, nil
	}
	known, err := s.endpoints.Lookup(ctx, names...)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		e, ok := known[name]
		found[name] = s.use(name, e, ok)
	}
	return found, nil
}

var errNobodyKnown = errors.New("who has subscribed to the events for * is not known")

// use returns what is known of an endpoint. One whose entry has changed is a new one.
func (s *Sink) use(name string, e Endpoint, ok bool) usable {
	was := s.states[name]
	delete(s.states, name)
	switch {
	case !ok:
		return usable{err: outbox.Permanent(fmt.Errorf("there is no webhook endpoint %q: add an entry with this name, "+
			"a url and secrets to the sink's, then replay its dead letters", name))}
	case e.Disabled:
		return usable{err: outbox.Permanent(fmt.Errorf(
			"endpoint %q is disabled: take disabled out of its entry, then replay its dead letters", name))}
	case was == nil || !reflect.DeepEqual(was.given, e):
		t, err := newTarget(e, s.cfg)
		if err != nil {
			return usable{err: outbox.Permanent(err)}
		}
		was = newState(t)
	}
	s.states[name] = was
	return usable{state: was}
}

// deliver makes one request, if the endpoint is to be asked.
func (s *Sink) deliver(ctx context.Context, w window, to usable, d *outbox.Delivery) error {
	switch {
	case to.err != nil:
		return to.err
	case to.Tenant != "" && to.Tenant != cmp.Or(d.TenantID, "default"):
		return outbox.Permanent(fmt.Errorf("endpoint %q is of another tenant than the event", to.Name))
	}
	turn, err := to.enter(ctx, w)
	switch {
	case errors.Is(err, errLate): // the others of its endpoint come first
		return outbox.Postponed(fmt.Errorf("endpoint %q: %w", to.Name, err), to.book())
	case err != nil:
		return err
	}
	if w.patience == 0 {
		return s.send(ctx, w, to.state, turn, d)
	}
	one, answer := *d, make(chan error, 1)
	s.under.Go(func() { answer <- s.send(ctx, w, to.state, turn, &one) })
	timer := time.NewTimer(to.patience(w.patience))
	defer timer.Stop()
	select {
	case err := <-answer:
		return err
	case <-timer.C:
	}
	to.straggles(1)
	later := make(chan error, 1)
	s.under.Go(func() {
		err := <-answer
		to.straggles(-1)
		later <- err
	})
	return outbox.Postponed(&late.Answer{C: later}, to.Timeout)
}

// send makes the request of a turn.
func (s *Sink) send(ctx context.Context, w window, to *state, turn pass, d *outbox.Delivery) error {
	began := time.Now()
	a := s.post(ctx, w, to.target, d)
	to.leave(turn, a, time.Since(began))
	switch {
	case a.err == nil:
		return nil
	case a.verdict == unknown:
		return outbox.Unavailable(a.err)
	case a.verdict == leaves:
		s.cfg.Logger.Warn("webhook endpoint answered 410 Gone and is disabled", "endpoint", to.Name)
		return to.wentAway()
	case a.permanent:
		return outbox.Permanent(a.err)
	case a.unseen:
		return outbox.Postponed(a.err, max(a.after, to.left()))
	}
	n := min(max(d.Attempts, 0), len(s.cfg.Schedule)-1)
	return outbox.RetryAfter(a.err, max(a.after, spread(s.cfg.Schedule[n])))
}
