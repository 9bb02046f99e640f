package webhook

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// When an endpoint rests, and for how long.
const (
	restAfter = 3 // failures in a row
	minRest   = time.Second
	maxRest   = 5 * time.Minute
	// maxRetryAfter bounds what an answer's Retry-After is believed.
	maxRetryAfter = time.Hour
	// lateWait is how long an event waits whose turn did not come: those of other endpoints are claimed meanwhile.
	lateWait = 2 * time.Second
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
	until  time.Time     // when the rest is over; zero while all is well
	why    string        // it rests
	trial  chan struct{} // is closed when the one request after a rest has its answer
	epoch  int           // the number of rests: what failed of before says nothing new
}

func newState(t *target) *state { return &state{target: t, slots: make(chan struct{}, t.Concurrency)} }

// window is the time that a batch has, if it has a limit. Requests begin in its first 2.5 s, and in its first half at
// most, so that each has the rest to be answered. What does not get its turn is left for a later batch.
type window struct {
	begin   context.Context
	bounded bool
	total   time.Duration
	cut     time.Time // when a request must have its answer
}

// beginTime is how long the requests of a batch may begin, where all of an endpoint's timeout fits behind it.
const beginTime = 2500 * time.Millisecond

// PublishTimeout implements outbox.Slow: it has room for the longest timeout of the endpoints.
func (s *poster) PublishTimeout() time.Duration {
	longest := defaultTimeout
	if known, ok := s.endpoints.(interface{ longest() time.Duration }); ok {
		longest = known.longest()
	}
	return (beginTime + longest) * 20 / 19
}

// newWindow leaves a twentieth of the time for answering the batch. The function releases the window.
func newWindow(ctx context.Context) (window, context.CancelFunc) {
	end, bounded := ctx.Deadline()
	if !bounded {
		return window{begin: ctx}, func() {}
	}
	now := time.Now()
	total := end.Sub(now)
	begin, cancel := context.WithDeadline(ctx, now.Add(min(total/2, beginTime)))
	return window{begin: begin, bounded: true, total: total, cut: end.Add(-total / 20)}, cancel
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
}

// enter waits for the turn of a request: a free slot, the rate, the outcome of a trial.
func (s *state) enter(ctx context.Context, w window) (pass, error) {
	if err := s.shut(); err != nil {
		return pass{}, err // without waiting behind those that find it out
	}
	select {
	case s.slots <- struct{}{}:
	case <-w.begin.Done():
		return pass{}, late(ctx)
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
		case trial != nil:
			select {
			case <-trial:
			case <-w.begin.Done():
				return pass{}, late(ctx)
			}
		case pace > 0:
			timer := time.NewTimer(pace)
			select {
			case <-timer.C:
			case <-w.begin.Done():
				timer.Stop()
				return pass{}, late(ctx)
			}
		default:
			return p, nil
		}
	}
}

// late is why a turn did not come: the batch's first half is over, or all of it.
func late(ctx context.Context) error {
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
	p.epoch = s.epoch
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
