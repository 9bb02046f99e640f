package webhook

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/outboxrelay/outbox/internal/sink/late"
)

// When an endpoint rests, and for how long.
const (
	restAfter = 3 // failures in a row
	minRest   = time.Second
	maxRest   = 5 * time.Minute
	// maxRetryAfter bounds what an answer's Retry-After is believed.
	maxRetryAfter = time.Hour
	// lateWait is how long an event waits at least whose turn did not come, and maxLateWait at most: those of other
	// endpoints are claimed meanwhile.
	lateWait    = 2 * time.Second
	maxLateWait = time.Minute
)

// state is an endpoint in use: how many requests are under way, and how it has fared.
type state struct {
	*target
	slots chan struct{}

	mu     sync.Mutex
	gone   time.Time     // when it answered 410
	next   time.Time     // before which no request begins, by Rate
	took   time.Duration // by about the longest of the last answers
	failed int           // requests in a row
	rests  int           // in a row
	behind int           // requests that their batches did not wait for
	booked time.Time     // the turn of the last event that was sent away
	until  time.Time     // when the rest is over; zero while all is well
	why    string        // it rests
	trial  chan struct{} // is closed when the one request after a rest has its answer
	epoch  int           // the number of rests: what failed of before says nothing new
}

func newState(t *target) *state { return &state{target: t, slots: make(chan struct{}, t.Concurrency)} }

// window is the time that a batch has, if it has a limit. Requests begin in its first 2.5 s, and in its first half at
// most, so that each has the rest to be answered. What does not get its turn is left for a later batch.
type window struct {
	begin    context.Context
	bounded  bool
	total    time.Duration
	cut      time.Time     // when a request must have its answer
	patience time.Duration // how long the batch waits for one request; 0: for all of them
}

// beginTime is how long the requests of a batch may begin, where all of an endpoint's timeout fits behind it.
const beginTime = 2500 * time.Millisecond

// timeout is outbox.Abilities.Timeout: it has room for the longest timeout of the endpoints.
func (s *Sink) timeout() time.Duration {
	longest := defaultTimeout
	if known, ok := s.endpoints.(interface{ longest() time.Duration }); ok {
		longest = known.longest()
	}
	return (beginTime + longest) * 20 / 19
}

// newWindow leaves a twentieth of the time for answering the batch. The function releases the window.
func newWindow(ctx context.Context) (window, context.CancelFunc) {
	end, bounded := ctx.Deadline()
	patience, _ := late.Patience(ctx)
	if !bounded {
		return window{begin: ctx, patience: patience}, func() {}
	}
	now := time.Now()
	total, begins := end.Sub(now), beginTime
	if patience > 0 {
		begins = min(begins, 2*patience)
	}
	begin, cancel := context.WithDeadline(ctx, now.Add(min(total/2, begins)))
	return window{begin: begin, bounded: true, total: total, cut: end.Add(-total / 20), patience: patience}, cancel
}

// allows tells whether a request that is likely to take so long, and may take as long as timeout, may begin.
func (w window) allows(now time.Time, took, timeout time.Duration) bool {
	return !w.bounded || w.cut.Sub(now) >= min(w.total*9/10, 2*took, timeout)
}

// What keeps a request from being made.
var (
	errLate = errors.New("the batch's time was over before its turn came")
	errGone = errors.New("it answered 410 Gone")
)

// restError says that an endpoint rests.
type restError struct {
	left time.Duration
	why  string
}

func (e *restError) Error() string {
	return fmt.Sprintf("it rests for %s after failures in a row, the last: %s", e.left.Round(time.Second), e.why)
}

// pass is the leave to make one request. It is given back with leave.
type pass struct {
	epoch int
	trial bool
	*straggler
}

// straggler is what a request and the batch that does not wait for it know of each other.
type straggler struct{ behind, done bool }

// enter waits for the turn of a request: a free slot, the rate, the outcome of a trial.
func (s *state) enter(ctx context.Context, w window) (pass, error) {
	if err := s.shut(); err != nil {
		return pass{}, err // without waiting behind those that find it out
	}
	if w.patience > 0 && s.jammed() {
		return pass{}, errLate
	}
	select {
	case s.slots <- struct{}{}:
	case <-w.begin.Done():
		return pass{}, overdue(ctx)
	}
	p, err := s.turn(ctx, w)
	if err != nil {
		<-s.slots
	}
	return p, err
}

func (s *state) turn(ctx context.Context, w window) (pass, error) {
	for {
		p, pace, trial, err := s.ask(w)
		switch {
		case err != nil:
			return pass{}, err
		case trial != nil && w.patience > 0: // which may take all of the timeout
			return pass{}, errLate
		case trial != nil:
			select {
			case <-trial:
			case <-w.begin.Done():
				return pass{}, overdue(ctx)
			}
		case pace > 0:
			timer := time.NewTimer(pace)
			select {
			case <-timer.C:
			case <-w.begin.Done():
				timer.Stop()
				return pass{}, overdue(ctx)
			}
		default:
			return p, nil
		}
	}
}

// overdue is why a turn did not come: the batch's first half is over, or all of it.
func overdue(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errLate
}

func (s *state) shut() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shutAt(time.Now())
}

func (s *state) shutAt(now time.Time) error {
	switch {
	case !s.gone.IsZero():
		return errGone
	case now.Before(s.until):
		return &restError{left: s.until.Sub(now), why: s.why}
	}
	return nil
}

// ask returns a pass, or how long to wait for the rate, or the trial to wait for.
func (s *state) ask(w window) (p pass, pace time.Duration, trial <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	switch err := s.shutAt(now); {
	case err != nil:
		return p, 0, nil, err
	case !w.allows(now, s.took, s.Timeout):
		return p, 0, nil, errLate
	case s.trial != nil:
		return p, 0, s.trial, nil
	case now.Before(s.next):
		return p, s.next.Sub(now), nil, nil
	}
	if s.Rate > 0 {
		s.next = now.Add(time.Duration(float64(time.Second) / s.Rate))
	}
	p.epoch, p.straggler = s.epoch, &straggler{}
	if !s.until.IsZero() {
		p.trial, s.trial = true, make(chan struct{})
	}
	return p, 0, nil, nil
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

// leave gives a pass back with what came of it. after is the answer's Retry-After.
func (s *state) leave(p pass, v verdict, after, took time.Duration, why string) {
	<-s.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.done = true; p.behind {
		s.behind--
	}
	if p.trial {
		close(s.trial)
		s.trial = nil
	}
	if v == leaves {
		s.gone = time.Now()
	}
	if p.epoch != s.epoch {
		return // it was under way when the rest began
	}
	switch v {
	case works:
		s.failed, s.rests, s.until = 0, 0, time.Time{}
		s.took = max(took, s.took*9/10)
	case fails, full:
		s.failed++
		if v == full || s.failed >= restAfter || p.trial {
			s.rest(after, why)
		}
	case unknown, leaves:
	}
}

// patience is how long a batch waits for a request, which waits so long for one of a fine endpoint: nothing if it is
// known to be slow.
func (s *state) patience(most time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.behind > 0 || s.took > most || !s.until.IsZero() {
		return 0
	}
	return most
}

// straggles notes that a request's batch waits for it no more.
func (s *state) straggles(p pass) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !p.done {
		p.behind = true
		s.behind++
	}
}

// jammed tells whether requests that no batch waits for have all the room there is.
func (s *state) jammed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.behind > 0 && len(s.slots) == cap(s.slots)
}

// book returns how long an event waits that had no turn: behind those that were sent away before, at the pace of the
// endpoint. Were all of them to come again at once, they would leave no room in the claims for others.
func (s *state) book() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, took := time.Now(), s.took
	if s.behind > 0 {
		took = max(took, time.Second)
	}
	if first := now.Add(lateWait); s.booked.Before(first) {
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

func (s *state) rest(after time.Duration, why string) {
	rest := spread(min(minRest<<min(s.rests, 10), maxRest))
	s.until = time.Now().Add(max(rest, after))
	s.why = why
	s.rests++
	s.epoch++
}

func (s *state) goneSince() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone
}

// spread returns d ± 10 %, so that what failed together does not come back together.
func spread(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.9 + 0.2*rand.Float64()))
}
