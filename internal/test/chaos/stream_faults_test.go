package chaos

import (
	"syscall"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/test/testenv"
)

var streamFaults = []streamFault{
	{name: "gateway-killed", strike: gatewayKilled},
	{name: "gateways-killed-in-turn", gateways: 2, view: view{cutAfter: 40}, strike: gatewaysKilledInTurn},
	{name: "gateway-terminated", gateways: 2, view: view{politely: true}, strike: gatewayTerminated},
	{name: "stream-redis-killed", view: view{stay: true}, strike: streamRedisKilled},
	{name: "stream-redis-stopped", view: view{stay: true}, strike: streamRedisStopped},
	{name: "stream-postgres-killed", postgres: &testenv.PostgresConfig{}, view: view{stay: true},
		strike: streamPostgresKilled},
	{name: "stream-relay-killed", parts: "gateway", view: view{stay: true}, strike: streamRelayKilled},
	{name: "stream-byte-at-a-time", view: view{cutAfter: 25, dripping: true}, strike: byteAtATime},
	{name: "stream-outbox-purged", view: view{cutAfter: 30}, strike: streamOutboxPurged},
	{name: "crawl-worker-killed", crawled: true, view: view{stay: true}, strike: workerKilled},
	{name: "crawl-worker-stopped", crawled: true, view: view{stay: true}, strike: workerStopped},
}

// TestStreamChaos runs the table of streams. Each fault is struck while runs are written and
// followed; every viewer must end up with the log of its run.
func TestStreamChaos(t *testing.T) {
	t.Parallel()
	for _, f := range streamFaults {
		row(t, f.name, false, func(t *testing.T) {
			s := newStreaming(t, f)
			if !f.crawled {
				s.begin()
			}
			s.finish(f.strike(s))
		})
	}
}

// gatewayKilled kills the only process, with everybody's streams, its relay and what it was
// writing, and starts it again on the same port.
func gatewayKilled(s *streaming) (struck int) {
	for range 4 {
		s.gateways[0].kill(s.t)
		struck++
		s.pause(0, 300*time.Millisecond)
		s.gateway(0)
		s.arrives(15)
	}
	return struck
}

// gatewaysKilledInTurn kills one of two while viewers go back and forth between them.
func gatewaysKilledInTurn(s *streaming) (struck int) {
	for i := range 4 {
		s.gateways[i%2].kill(s.t)
		struck++
		s.arrives(15) // from the other
		s.gateway(i % 2)
		s.pause(300*time.Millisecond, 600*time.Millisecond)
	}
	return struck
}

// gatewayTerminated stops one of two politely: its streams end between two events, and their
// viewers go to the other.
func gatewayTerminated(s *streaming) (struck int) {
	for i := range 4 {
		s.gateways[i%2].terminate(s.t)
		struck++
		s.arrives(15)
		s.gateway(i % 2)
		s.pause(300*time.Millisecond, 600*time.Millisecond)
	}
	return struck
}

func streamRedisKilled(s *streaming) (struck int) {
	for range 3 {
		before := s.redis.PID()
		s.must(s.redis.Kill())
		s.arrives(20)
		s.must(s.redis.Restart())
		if s.redis.PID() != before {
			struck++
		}
		s.arrives(20)
	}
	return struck
}

// streamRedisStopped has Redis stand still for 5 s: connections stay, and nobody is told.
func streamRedisStopped(s *streaming) (struck int) {
	s.must(syscall.Kill(s.redis.PID(), syscall.SIGSTOP))
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
		s.arrives(20)
	}
	s.must(syscall.Kill(s.redis.PID(), syscall.SIGCONT))
	s.arrives(40)
	return s.said("Redis messages do not arrive")
}

func streamPostgresKilled(s *streaming) (struck int) {
	for range 2 {
		before := s.pg.PID()
		s.must(s.pg.Kill())
		s.pause(0, 500*time.Millisecond)
		s.must(s.pg.Restart())
		if s.pg.PID() != before {
			struck++
		}
		s.arrives(20)
	}
	return struck
}

// streamRelayKilled has a relay in a process of its own, and none for a while.
func streamRelayKilled(s *streaming) (struck int) {
	for range 2 {
		relay := s.serve("--parts=relay")
		s.eventually("the relay delivers",
			"SELECT count(*) > 0 FROM crawl_outbox WHERE published_at > now() - interval '1 second'")
		s.arrives(20)
		relay.kill(s.t)
		struck++
		s.arrives(40)
	}
	return struck
}

// streamOutboxPurged removes delivered rows as soon as they are, while viewers come back with
// cursors that point at them.
func streamOutboxPurged(s *streaming) (struck int) {
	for range 6 {
		s.arrives(15)
		before := s.number(`SELECT count(*) FROM crawl_outbox WHERE published_at IS NOT NULL`)
		said, err := s.outbox("purge", "--yes", "--table", "crawl_outbox", "--older-than", "1s", "--archive", "none")
		if err != nil {
			s.t.Fatalf("purge: %v\n%s", err, said)
		}
		struck += max(0, before-s.number(`SELECT count(*) FROM crawl_outbox WHERE published_at IS NOT NULL`))
	}
	return struck
}

// byteAtATime has viewers that are far behind, and hang up in the middle of it.
func byteAtATime(s *streaming) (struck int) {
	s.arrives(40)
	s.gateways[0].kill(s.t)
	s.gateway(0)
	s.arrives(40)
	s.end()
	for _, v := range s.viewers {
		struck += v.cuts
	}
	return struck
}
