package webhook

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/late"
)

// When an endpoint rests, and for how long.
const (
	restAfter = 3 // failures in a row
	minRest   = time.Second
	maxRest   = 5 * time.Minute
	// maxRetryAfter bounds what an answer's Retry-After is believed.
	maxRetryAfter = time.Hour
	// lateWait is how long an event waits at least whose turn did not come, and maxLateWait at
	// most: those of other endpoints are claimed meanwhile. Of an endpoint that answers all of its
	// requests in time it is soonWait.
	soonWait    = 50 * time.Millisecond
	lateWait    = 2 * time.Second
	maxLateWait = time.Minute
)

// state is an endpoint in use: how many requests are under way, and how it has fared.
type state struct {
	*target
	slots chan struct{}
	pace  *rate.Limiter

	mu     sync.Mutex
	gone   time.Time     // when it answered 410
	took   time.Duration // by about the longest of the last answers
	failed int           // requests in a row
	rests  int           // in a row
	behind int           // requests that their batches did not wait for
	booked time.Time     // the turn of the last event that was sent away
	until  time.Time     // when the rest is over; zero while all is well
	why    string        // it rests
	trial  bool          // the one request after a rest is under way
	epoch  int           // the number of rests: what failed of before says nothing new
}

func newState(t *target) *state {
	s := &state{target: t, slots: make(chan struct{}, t.Concurrency), pace: rate.NewLimiter(rate.Inf, 1)}
	if t.Rate > 0 {
		s.pace.SetLimit(rate.Limit(t.Rate))
	}
	return s
}

// window is the time that a batch has, if it has a limit. Requests begin in its first 2.5 s, and in
// its first half at most, so that each has the rest to be answered. What does not get its turn is
// left for a later batch.
type window struct {
	begin    context.Context
	total    time.Duration // 0: no limit
	cut      time.Time     // when a request must have its answer
	patience time.Duration // how long the batch waits for one request; 0: for all of them
}

// beginTime is how long the requests of a batch may begin, where all of an endpoint's timeout fits
// behind it.
const beginTime = 2500 * time.Millisecond

// newWindow leaves a twentieth of the time for answering the batch. The function releases the
// window.
func newWindow(ctx context.Context) (window, context.CancelFunc) {
	w := window{begin: ctx}
	w.patience, _ = late.Patience(ctx)
	end, bounded := ctx.Deadline()
	if !bounded {
		return w, func() {}
	}
	now, begins := time.Now(), beginTime
	w.total = max(end.Sub(now), 1)
	w.cut = end.Add(-w.total / 20)
	if w.patience > 0 {
		begins = min(begins, 2*w.patience)
	}
	var release context.CancelFunc
	w.begin, release = context.WithDeadline(ctx, now.Add(min(w.total/2, begins)))
	return w, release
}

// allows tells whether a request that is likely to take so long, and may take as long as timeout,
// may begin.
func (w window) allows(now time.Time, took, timeout time.Duration) bool {
	return w.total == 0 || w.cut.Sub(now) >= min(w.total*9/10, 2*took, timeout)
}

// errLate is why an event is left for a later batch.
var errLate = errors.New("the batch's time was over before its turn came")

// pass is the leave to make one request. It is given back with leave.
type pass struct {
	epoch int
	trial bool
}

// enter waits for the turn of a request: a free slot, and the rate. Its errors are those of an
// event, or errLate.
func (s *state) enter(ctx context.Context, w window) (pass, error) {
	if err := s.shut(w); err != nil {
		return pass{}, err // without waiting behind those that find it out
	}
	select {
	case s.slots <- struct{}{}:
	case <-w.begin.Done():
		return pass{}, s.overdue(ctx)
	}
	err := s.pace.Wait(w.begin)
	if err != nil {
		err = s.overdue(ctx)
	}
	var p pass
	if err == nil {
		p, err = s.admit(w)
	}
	if err != nil {
		<-s.slots
	}
	return p, err
}

// overdue is why a turn did not come: the time to begin is over, or the batch was given up.
func (s *state) overdue(ctx context.Context) error {
	if ctx.Err() != nil {
		return outbox.Unavailable(fmt.Errorf("endpoint %q: %w", s.Name, ctx.Err()))
	}
	return errLate
}

// shut tells why no request is made at this moment. One is late where requests that no batch waits
// for have all the room there is.
func (s *state) shut(w window) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.closed(time.Now()); err != nil {
		return err
	}
	if w.patience > 0 && s.behind > 0 && len(s.slots) == cap(s.slots) {
		return errLate
	}
	return nil
}

func (s *state) closed(now time.Time) error {
	switch {
	case !s.gone.IsZero():
		return s.wentAway()
	case now.Before(s.until):
		left := s.until.Sub(now)
		return outbox.Postponed(fmt.Errorf("endpoint %q: it rests for %s after failures in a row, the last: %s", s.Name,
			left.Round(time.Second), s.why), left)
	}
	return nil
}

// wentAway says how an endpoint that answered 410 is enabled again.
func (s *state) wentAway() error {
	return outbox.Permanent(fmt.Errorf("endpoint %q answered 410 Gone, so it is disabled: change its entry or restart "+
		"the relay (in Go: Sink.Enable), then replay its dead letters", s.Name))
}

// admit lets a request begin. After a rest one is the trial, and the others are late until it has
// its answer.
func (s *state) admit(w window) (pass, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if err := s.closed(now); err != nil {
		return pass{}, err
	}
	if s.trial || !w.allows(now, s.took, s.Timeout) {
		return pass{}, errLate
	}
	s.trial = !s.until.IsZero()
	return pass{s.epoch, s.trial}, nil
}

// verdict is what a request tells of its endpoint.
type verdict int

const (
	unknown verdict = iota // nothing: the batch was given up
	works                  // it answered, whatever it said of the event
	fails                  // it did not answer, or a gateway before it says that it does not
	full                   // it asks to be left alone
	leaves                 // it wants no more webhooks
)

// leave gives a pass back with what came of it.
func (s *state) leave(p pass, a answer, took time.Duration) {
	<-s.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.trial {
		s.trial = false
	}
	if a.verdict == leaves {
		s.gone = time.Now()
	}
	if p.epoch != s.epoch {
		return // it was under way when the rest began
	}
	switch a.verdict {
	case works:
		s.failed, s.rests, s.until = 0, 0, time.Time{}
		s.took = max(took, s.took*9/10)
	case fails, full:
		s.failed++
		if a.verdict == full || s.failed >= restAfter || p.trial {
			s.until = time.Now().Add(max(spread(min(minRest<<min(s.rests, 10), maxRest)), a.after))
			s.why = a.err.Error()
			s.rests++
			s.epoch++
		}
	case unknown, leaves:
	}
}

// patience is how long a batch waits for a request, which waits so long for one of a fine endpoint:
// nothing if it is known to be slow.
func (s *state) patience(most time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.behind > 0 || s.took > most || !s.until.IsZero() {
		return 0
	}
	return most
}

// straggles counts the requests that no batch waits for any more.
func (s *state) straggles(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.behind += n
}

// book returns how long an event waits that had no turn: behind those that were sent away before,
// at the pace of the endpoint. Were all of them to come again at once, they would leave no room in
// the claims for others.
func (s *state) book() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, took, wait := time.Now(), s.took, lateWait
	switch {
	case s.behind > 0:
		took = max(took, time.Second)
	case s.until.IsZero() && s.Rate == 0:
		wait = min(max(took, soonWait), lateWait)
	}
	if first := now.Add(wait); s.booked.Before(first) {
		s.booked = first
	}
	s.booked = s.booked.Add(took / time.Duration(s.Concurrency))
	if last := now.Add(maxLateWait); s.booked.After(last) {
		s.booked = last
	}
	return s.booked.Sub(now)
}

// left is how long the endpoint still rests.
func (s *state) left() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Until(s.until)
}

// spread returns d ± 10 %, so that what failed together does not come back together.
func spread(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.9 + 0.2*rand.Float64()))
}
