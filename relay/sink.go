package relay

import (
	"context"
	"sync"
	"time"

	"github.com/outboxrelay/outbox"
)

const (
	// probeEvery is how often a backlog is counted and a sink is asked. An idle relay does not talk
	// to its sinks at all: without asking they would look healthy until the next event found them
	// gone.
	probeEvery   = 3 * time.Second
	probeTimeout = 2 * time.Second
)

// SinkHealth is the state of one sink.
type SinkHealth struct {
	Ready  bool   // it answers, if it can be asked
	Reason string // why it is not ready, or why it is down
	Down   bool   // it took nothing when it was last tried
	// Lags is how long a batch takes of late if that is long: 1 s, 2 s, 4 s and so on, or longer.
	// Else it is 0.
	Lags time.Duration
}

// sinkState is a sink and what is known of it.
type sinkState struct {
	name    string
	sink    outbox.Sink
	breaker *breaker

	mu      sync.Mutex
	err     error     // of the last probe
	failing time.Time // when err began
}

// probe asks the sink whether it is there until ctx ends.
func (s *sinkState) probe(ctx context.Context) error {
	return repeat(ctx, func(ctx context.Context) {
		ping := outbox.AbilitiesOf(s.sink).Ping
		if ping == nil {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		err := ping(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case err != nil && s.err == nil:
			s.failing = time.Now()
		case err == nil && s.err != nil:
			s.breaker.answers()
		}
		s.err = err
	})
}

func (s *sinkState) health() SinkHealth {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := SinkHealth{Ready: s.err == nil, Lags: s.breaker.lags()}
	_, h.Down = s.breaker.outage(time.Now())
	if s.err != nil {
		h.Reason = s.err.Error()
	} else if h.Down {
		h.Reason = s.breaker.lastRefusal()
	}
	return h
}

// unavailable returns for how long the sink has been unavailable; 0: it is available.
func (s *sinkState) unavailable(now time.Time) (d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if since, down := s.breaker.outage(now); down {
		d = now.Sub(since)
	}
	if s.err != nil {
		d = max(d, now.Sub(s.failing))
	}
	return d
}

// repeat calls fn at once and then every probeEvery until ctx ends.
func repeat(ctx context.Context, fn func(context.Context)) error {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		fn(ctx)
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	return nil
}
