package chaos

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/outboxtest"
)

// subscriber records every message of every channel in the order of arrival. It is connected to
// Redis directly, so that what befalls the relay's connections does not befall its own: Pub/Sub
// reaches who is connected, and a message that nobody was there to hear proves nothing about the
// relay.
type subscriber struct {
	mu            sync.Mutex
	received      []outboxtest.Received
	subscriptions int   // how often it has subscribed
	malformed     int   // messages with a time that is not RFC 3339
	bulk          *bulk // nil, or the events that are only counted
}

func subscribe(t *testing.T, server *testenv.Redis) *subscriber {
	t.Helper()
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Socket(), MaxRetries: -1})
	s := &subscriber{}
	ctx, stop := context.WithCancel(context.Background())
	pubsub := client.PSubscribe(ctx, "*")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			got, err := pubsub.Receive(ctx)
			if err != nil {
				time.Sleep(10 * time.Millisecond) // the next Receive connects again
				continue
			}
			s.record(got)
		}
	}()
	t.Cleanup(func() {
		stop()
		_ = pubsub.Close()
		<-done
		_ = client.Close()
	})
	s.await(t, 1)
	return s
}

func (s *subscriber) record(got any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch m := got.(type) {
	case *redis.Subscription:
		s.subscriptions++
	case *redis.Message:
		r, malformed := arrived([]byte(m.Payload), m.Channel)
		if malformed {
			s.malformed++
		}
		if !s.bulk.take(r.ID) {
			s.received = append(s.received, r)
		}
	}
}

// await waits for the n-th subscription.
func (s *subscriber) await(t *testing.T, n int) {
	t.Helper()
	eventually(t, "the subscriber is connected", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.subscriptions >= n
	})
}

// count is how many messages have come, those of a bulk left out.
func (s *subscriber) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.received)
}

// has tells whether an event has come.
func (s *subscriber) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.received, func(r outboxtest.Received) bool { return r.ID == id })
}

// quiet waits until nothing has come for d, and returns everything and how often it subscribed.
func (s *subscriber) quiet(d time.Duration) ([]outboxtest.Received, int) {
	for last := -1; ; {
		n := s.count()
		if n == last {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.received, s.subscriptions
		}
		last = n
		time.Sleep(d)
	}
}
