package webhook

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboxrelay/outbox"
)

// attempt makes a request of which this comes, and returns why it was not made.
func attempt(ctx context.Context, s *state, v verdict, after time.Duration) error {
	w, release := newWindow(ctx)
	defer release()
	p, err := s.enter(ctx, w)
	if err != nil {
		return err
	}
	s.leave(p, answer{verdict: v, after: after, err: errors.New("why")}, 0)
	return nil
}

// resting is for how long an endpoint rests that answers with this, or 0.
func resting(err error) time.Duration {
	if class, left := outbox.Classify(err); err != nil && class == outbox.ClassPostponed {
		return left
	}
	return 0
}

// After 3 failures in a row an endpoint rests; after the rest one request goes out, and each
// failure makes the next rest twice as long, up to 5 minutes. An answer ends it.
func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		s := newState(&target{Endpoint: Endpoint{Concurrency: 4}})
		for range 2 {
			if err := attempt(ctx, s, fails, 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := attempt(ctx, s, works, 0); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := attempt(ctx, s, fails, 0); err != nil {
				t.Fatal(err)
			}
		}
		for n := range 12 {
			rest, want := resting(attempt(ctx, s, works, 0)), min(time.Second<<n, 5*time.Minute)
			if rest < want*9/10 || rest > want*11/10 {
				t.Fatalf("rest %d is %s, want about %s", n, rest, want)
			}
			time.Sleep(rest)
			if err := attempt(ctx, s, fails, 0); err != nil {
				t.Fatalf("trial %d: %v", n, err)
			}
		}
		time.Sleep(6 * time.Minute)
		for range 3 {
			if err := attempt(ctx, s, works, 0); err != nil {
				t.Fatalf("after an answer: %v", err)
			}
		}
		if err := attempt(ctx, s, full, 40*time.Minute); err != nil {
			t.Fatal(err)
		}
		if err := attempt(ctx, s, works, 0); resting(err) != 40*time.Minute {
			t.Errorf("after Retry-After: %v", err)
		}
	})
}

// After a rest one request is the trial. The others are late until it has its answer, and then go
// out or rest too.
func TestTrial(t *testing.T) {
	for _, outcome := range []verdict{works, fails, unknown} {
		synctest.Test(t, func(t *testing.T) {
			ctx := t.Context()
			s := newState(&target{Endpoint: Endpoint{Concurrency: 100}})
			for range 3 {
				_ = attempt(ctx, s, fails, 0)
			}
			time.Sleep(2 * time.Second)
			trial, err := s.enter(ctx, window{begin: ctx})
			if err != nil || !trial.trial {
				t.Fatalf("%+v, %v", trial, err)
			}
			for range 10 {
				if err := attempt(ctx, s, works, 0); !errors.Is(err, errLate) {
					t.Fatalf("beside the trial: %v", err)
				}
			}
			s.leave(trial, answer{verdict: outcome, err: errors.New("why")}, 0)
			if err := attempt(ctx, s, works, 0); outcome == fails && resting(err) == 0 || outcome != fails && err != nil {
				t.Errorf("after verdict %d: %v", outcome, err)
			}
		})
	}
}

// What was under way when a rest began says nothing new: 64 failures at once are not 64 rests, and
// a 200 does not end what Retry-After asked for.
func TestAnswersTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, then := range []verdict{fails, works} {
			s := newState(&target{Endpoint: Endpoint{Concurrency: 64}})
			var passes []pass
			for range 64 {
				p, err := s.enter(t.Context(), window{begin: t.Context()})
				if err != nil {
					t.Fatal(err)
				}
				passes = append(passes, p)
			}
			s.leave(passes[0], answer{verdict: full, after: time.Hour, err: errors.New("429")}, 0)
			for _, p := range passes[1:] {
				s.leave(p, answer{verdict: then, err: errors.New("why")}, 0)
			}
			if err := attempt(t.Context(), s, works, 0); resting(err) != time.Hour || s.rests != 1 {
				t.Errorf("after verdict %d, %d rests: %v; want one of an hour", then, s.rests, err)
			}
		}
	})
}

// A request begins in the first 2.5 s of the batch's time, and not if it is likely to take longer
// than what is left.
func TestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		w, release := newWindow(ctx)
		defer release()
		s := newState(&target{Endpoint: Endpoint{Concurrency: 1, Timeout: time.Hour}})
		s.took = time.Minute
		if _, err := s.enter(ctx, w); err != nil {
			t.Fatalf("at the beginning any request may begin: %v", err)
		}
		time.Sleep(2 * time.Second)
		s.leave(pass{}, answer{}, 0)
		if _, err := s.enter(ctx, w); !errors.Is(err, errLate) {
			t.Fatalf("what took a minute begins with 7.5 s left: %v", err)
		}
		s.took = 3 * time.Second
		if _, err := s.enter(ctx, w); err != nil {
			t.Fatalf("what took 3 s may begin with 7.5 s left: %v", err)
		}
		if _, err := s.enter(ctx, w); !errors.Is(err, errLate) || ctx.Err() != nil {
			t.Fatalf("it waits longer for a slot: %v", err)
		}
		if at := time.Since(w.cut); at != -7*time.Second {
			t.Errorf("it waited until %s before the end, want 7 s", at)
		}
		s = newState(&target{Endpoint: Endpoint{Concurrency: 1, Timeout: 5 * time.Second}})
		s.took = time.Minute
		w.begin = t.Context()
		if _, err := s.enter(ctx, w); err != nil {
			t.Fatalf("what has all of its timeout left may begin: %v", err)
		}
	})
}

// An endpoint that is down, or hangs, is asked a few times. Only what was sent counts an attempt,
// and the others wait until its rest is over. Another endpoint does not notice.
func TestDeadEndpointSpendsNoAttempts(t *testing.T) {
	t.Parallel()
	for text, answer := range map[string]func(http.ResponseWriter, received, int){
		"502":          status(http.StatusBadGateway),
		"within 300ms": func(_ http.ResponseWriter, got received, _ int) { <-got.ctx.Done() },
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			dead, fine := receive(t, answer), receive(t, nil)
			e := dead.endpoint("dead")
			e.Concurrency = 2
			if text != "502" {
				e.Timeout = 300 * time.Millisecond
			}
			s := open(t, newBook(e, fine.endpoint("fine")), local)
			failed := 0
			for i, res := range s.Publish(t.Context(), events(t, 500, "dead", "fine")) {
				if i%2 == 1 {
					wantDelivered(t, []outbox.Result{res})
				} else if class, after := outbox.Classify(res.Err); class == outbox.ClassPostponed {
					if wantClass(t, res.Err, class, `"dead"`, "rests", text); after <= 0 || after > 2*maxRest {
						t.Fatalf("it waits for %s", after)
					}
				} else if after := wantClass(t, res.Err, outbox.ClassRetryAfter, `"dead"`, text); after < 4*time.Second {
					t.Fatalf("it waits for %s", after)
				} else {
					failed++
				}
			}
			if n := dead.count(); n > 50 || failed < restAfter || failed > 50 || text == "502" && failed != n {
				t.Errorf("%d requests to what is dead and %d attempts counted, want 3 and not many more", n, failed)
			}
		})
	}
}

// An event whose turn did not come holds its key up until it comes again: soon where the endpoint
// is fine, and later where it would only take the room of others.
func TestLateEventsComeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, of := range []struct {
			took, least time.Duration
			behind      int
			until       time.Time
		}{
			{took: 10 * time.Millisecond, least: soonWait},
			{took: time.Second, least: time.Second},
			{took: 10 * time.Second, least: lateWait, behind: 1},
			{took: 10 * time.Second, least: lateWait, until: time.Now()},
		} {
			s := newState(&target{Endpoint: Endpoint{Concurrency: 64}})
			s.took, s.behind, s.until = of.took, of.behind, of.until
			first := s.book()
			if first < of.least || first > of.least+of.took/64+time.Millisecond {
				t.Errorf("%+v: the first waits for %s", of, first)
			}
			for range 63 {
				s.book()
			}
			if last := s.book(); last < first+of.took || last > first+of.took+time.Second {
				t.Errorf("%+v: 64 more wait for %s after %s", of, last, first)
			}
		}
		s := newState(&target{Endpoint: Endpoint{Concurrency: 64, Rate: 20}})
		if wait := s.book(); wait < lateWait {
			t.Errorf("at a rate: the first waits for %s", wait)
		}
	})
}
